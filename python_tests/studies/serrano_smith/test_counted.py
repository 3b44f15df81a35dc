"""What never flips is counted: medians that no ranking can have below the smallest set's."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.serrano_smith.hand_made import HandMade

import fastattnerase as fae
from fastattnerase.runs.rundir import read_json, write_json
from fastattnerase.sources import Chunk
from fastattnerase.statistics.bootstrap import Bootstrap
from fastattnerase.statistics.together import Later
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.counted import with_never
from fastattnerase.studies.serrano_smith.result import Result, load
from fastattnerase.studies.serrano_smith.sentences import median_fraction, typical_gap
from fastattnerase.studies.serrano_smith.tables import tables

NAN, INF = float("nan"), float("inf")
ORDERS = 3


class Drawn(HandMade):
    """Instances of 2 to 7 items with drawn values, weights and a bias that decides half of them."""

    def _chunk(self, rows: list[int]) -> Chunk:
        generator = torch.Generator().manual_seed(1000 * len(self.rows) + rows[0])
        lengths = torch.randint(2, 8, (len(rows),), generator=generator)
        total = int(lengths.sum())
        return Chunk(
            fae.AttentionBatch(
                torch.randn(total, 3, generator=generator),
                torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
                scores=torch.randn(total, generator=generator),
                head_weight=torch.randn(4, 3, generator=generator),
                head_bias=torch.tensor([0.5, 0.0, 0.0, 0.0]),
                ids=torch.tensor(rows),
            )
        )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    config = Config(resamples=20, exhibits=0, random_orders=ORDERS)
    return [
        experiment.run(
            Drawn(size, list(range(size))),
            config,
            tmp_path_factory.mktemp(f"{size}"),
            name=f"{size}",
        )
        for size in (1, 2, 5, 8, 13, 40)
    ]


def test_no_ranking_has_a_median_below_the_smallest_sets(drawn: list[Result]) -> None:
    for result in drawn:
        least = median_fraction(result, "minimal")
        assert least is not None
        for ranking in result.multi:
            median = median_fraction(result, ranking)
            assert median is not None
            assert median >= least - 1e-12
    # By the paper's convention some has: what it never flips is left out.
    paper = [
        result.multi[ranking].fraction.median.value < result.multi["minimal"].fraction.median.value
        for result in drawn
        for ranking in ("attention", "gradient", "product", "random")
        if result.multi[ranking].fraction.median.value is not None
    ]
    assert any(paper)


def test_never_is_told_in_instances_whatever_the_number_of_orders(drawn: list[Result]) -> None:
    for result in drawn:
        multi = tables([result])["multi_weight"].set_index("ranking")
        assert ((multi["never"] + multi["flipped"]) == result.counts.analysed).all()
        table = result.table("multi", ["ranking", "first_flip"])
        never = table[(table["ranking"] == "random") & (table["first_flip"] < 0)]
        assert multi.loc["random", "never"] == len(never) / ORDERS


def test_attention_over_smallest_set_has_one_definition(drawn: list[Result]) -> None:
    """The table's column and the page's are the median over what a part of the items can flip."""
    models = tables(drawn)["models"].set_index("model")
    for result in drawn:
        told = models.loc[result.run.name, "attention_gap_median"]
        gaps = result.gaps("attention")
        if len(gaps):
            assert told == typical_gap(result, "attention") == float(np.median(gaps))
    single = tables(drawn[-1:])["single_weight"].set_index("ranking")
    skew = drawn[-1].uniform
    assert single.loc["attention", "uniform_kl_mean"] == skew.kl.mean.value
    assert single.loc["attention", "largest_weight_mean"] == skew.largest.mean.value


def test_skill_is_that_of_the_tables(drawn: list[Result]) -> None:
    """By the definition, from the table: means of orders, never as 1, summed."""
    result = drawn[-1]
    table = result.table("multi", ["row", "ranking", "order", "first_flip", "fraction"])
    table["fraction"] = table["fraction"].where(table["first_flip"] > 0, 1.0)
    mean = table.groupby("ranking")["fraction"].mean()
    for ranking in ("attention", "gradient", "product"):
        expected = (mean["random"] - mean[ranking]) / (mean["random"] - mean["minimal"])
        skill = result.multi[ranking].counted.skill
        assert skill.overall.value == pytest.approx(expected)
        assert skill.overall.low <= skill.overall.value <= skill.overall.high


def test_quartiles_with_never() -> None:
    """Of 1/2, 1, never, never: the median lies between 1 and never, the lower quartile at 7/8."""
    later = Later(Bootstrap(seed=0, resamples=30))
    spread = with_never(np.array([0.5, 1.0, NAN, NAN]), later)()
    assert spread.q1.value == pytest.approx(0.875)
    assert (spread.median.value, spread.q3.value, spread.mean.value) == (INF, INF, INF)
    assert spread.median.high == INF
    assert spread.median.low < INF
    none = with_never(np.array([0.5, 1.0, 0.75]), later)()
    assert (none.median.value, none.mean.value) == (0.75, 0.75)
    assert with_never(np.array([]), later)().median.value is None


def test_a_run_of_before_is_counted_when_it_is_opened(drawn: list[Result], tmp_path: Path) -> None:
    result = drawn[3]
    shutil.copytree(result.folder, tmp_path / "run")
    content = read_json(tmp_path / "run" / "result.json")
    for record in content["multi"]:
        del record["counted"]
    for record in content["single"]:
        del record["expected_negative"]
    del content["uniform"]["largest"]
    write_json(tmp_path / "run" / "result.json", content)
    before = load(tmp_path / "run")
    assert before.multi == result.multi
    assert before.uniform == result.uniform
    assert before.single["attention"].expected_negative.value is None
