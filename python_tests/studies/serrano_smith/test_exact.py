"""What exact erasure alone can say: numbers worked out by hand, sentences, tables, old runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from studies.serrano_smith.hand_made import HandMade
from studies.serrano_smith.test_prefixes import batch, old_run

import fastattnerase as fae
from fastattnerase.sources import Chunk
from fastattnerase.statistics.bootstrap import UNDEFINED, Bootstrap
from fastattnerase.statistics.resampled import Ratios
from fastattnerase.studies.serrano_smith import exact_words, experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.exact import (
    OTHERWISE,
    PARTS,
    SAME,
    describe,
    groups,
    top_ranks,
)
from fastattnerase.studies.serrano_smith.exact_tables import exact_tables, page_tables
from fastattnerase.studies.serrano_smith.instance_tables import PLACES
from fastattnerase.studies.serrano_smith.looks import NAMES
from fastattnerase.studies.serrano_smith.report import build
from fastattnerase.studies.serrano_smith.result import Result

FAST = Config(resamples=200, exhibits=0)


class Given:
    """One batch as a source."""

    classes = ("bad", "good", "other")

    def __init__(self, given: fae.AttentionBatch) -> None:
        self.batch = given

    def __len__(self) -> int:
        return len(self.batch.offsets) - 1

    def describe(self) -> dict[str, Any]:
        return {"what": "given"}

    def chunks(self, start: int) -> Iterator[Chunk]:
        if start == 0:
            yield Chunk(self.batch)

    def select(self, rows: list[int]) -> Iterator[Chunk]:
        yield Chunk(self.batch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return experiment.run(HandMade(), FAST, tmp_path_factory.mktemp("run") / "run", name="hand")


def test_numbers_of_instances_worked_out_by_hand(finished: Result) -> None:
    """First flips by attention 1/3, 1/2, 1, 1, never; smallest sets 1/3, 1/2, 1/2, 1, never."""
    found = describe(finished)
    assert found.lacking == ()
    smallest = found.find("smallest_fraction", "minimal")
    assert smallest is not None
    assert (smallest.estimate.value, smallest.instances, smallest.values) == (0.5, 5, (0.5,))
    spared = found.value("unavoidable", "attention").value
    assert spared == pytest.approx((1 / 3 + 1 / 2 + 1 / 2 + 2) / (1 / 3 + 1 / 2 + 3))
    assert found.value("unavoidable", "product").value == pytest.approx(1)
    assert found.value("undone", "attention").value == 0
    assert found.value("lasts", "attention").value == 0.8
    assert found.value("lasting_fraction", "attention").value == 1
    # By the gradient another item moves the output of the third of five more than the top one.
    assert found.value("negative", "attention").value == 0
    assert found.value("negative", "gradient").value == pytest.approx(0.2)
    assert found.value("first", "gradient").value == pytest.approx(0.8)
    assert found.value("rank", "gradient").value == 1
    # Decided 0, as the bias: the second and the last, of which a part of the second flips it.
    assert found.value("some_set_flips", "", "bias", SAME).value == 0.5
    assert found.value("some_set_flips", "", "bias", OTHERWISE).value == pytest.approx(2 / 3)
    assert found.value("flips", "attention", "bias", OTHERWISE).value == 1
    assert found.value("flips", "attention", "class", "bad").value == 0.5
    # Random orders: 2/3, never, 1/2, 1, never, of which two of decision 1 have room.
    room = (2 / 3 - 1 / 3) + (1 / 2 - 1 / 2)
    skill = found.value("skill", "attention", "class", "good").value
    assert skill == pytest.approx(((2 / 3 - 1 / 3) + (1 / 2 - 1)) / room)
    assert found.value("skill", "attention").value == pytest.approx(
        finished.multi["attention"].counted.skill.overall.value
    )
    assert found.value("no such number") == UNDEFINED


def test_groups_cover_all_instances_once(finished: Result) -> None:
    """Lengths 3, 2, 2, 2, 2; decisions 1, 0, 1, 1, 0, the bias alone 0."""
    parted = groups(finished)
    for by in ("length", "class", "confidence", "bias"):
        rows = np.sum([group.rows for group in parted if group.by == by], axis=0)
        assert rows.tolist() == [1] * 5, by
    lengths = [(g.name, g.rows.tolist()) for g in parted if g.by == "length"]
    assert lengths == [
        ("quarter 1: 2 to 2 items", [False, True, True, True, True]),
        ("quarter 4: 3 to 3 items", [True, False, False, False, False]),
    ]
    names = [group.name for group in parted if group.by in ("class", "bias")]
    assert names == ["bad", "good", SAME, OTHERWISE]
    assert len({(group.by, group.name) for group in parted}) == len(parted)


def test_undone_flips_and_lasting_ones(tmp_path: Path) -> None:
    """Attention changes the first at 1 of 3 for good at 3, the second at 1 of 2 for good; two that
    nothing flips. By the gradient all changes last."""
    values = [[3.0, -1.5, 1.0], [2.0, -1.0], [-1.0, -1.0], [-1.0, -2.0]]
    weights = [[0.5, 0.4, 0.1], [0.6, 0.4], [0.5, 0.5], [0.5, 0.5]]
    run = experiment.run(Given(batch(values, weights)), FAST, tmp_path, name="x")
    found = describe(run)
    assert found.value("undone", "attention").value == 0.5
    assert found.value("undone", "gradient").value == 0
    assert found.value("lasts", "attention").value == 0.5
    # 1/3, 1/2, never, never; until they last 1, 1/2, never, never.
    assert found.value("first_fraction", "attention").value == math.inf
    assert found.value("lasting_fraction", "attention").value == math.inf
    two = experiment.run(Given(batch(values[:2], weights[:2])), FAST, tmp_path / "two", name="x")
    found = describe(two)
    assert found.value("first_fraction", "attention").value == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert found.value("lasting_fraction", "attention").value == 0.75
    text = exact_words.of_run(two, found)["lasting"]
    assert "changes back by attention 50.0\u00a0% (0.0\u00a0% to 100.0\u00a0%)" in text
    assert "by the gradient 0.0\u00a0%" in text
    assert "until the first change: 42\u00a0%; until the decision stays changed: 75\u00a0%." in text


def test_ranks_of_top_items_against_brute_force(tmp_path: Path) -> None:
    """Random instances of three classes: each item erased anew, and counted that moves more."""
    rng = np.random.default_rng(8)
    lengths = [2, 5, 9, 30]
    values, scores = rng.normal(size=(sum(lengths), 3)), rng.normal(size=sum(lengths))
    head, bias = 3 * rng.normal(size=(3, 3)), rng.normal(size=3)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    given = fae.AttentionBatch(
        torch.tensor(values),
        torch.tensor(offsets),
        scores=torch.tensor(scores),
        head_weight=torch.tensor(head),
        head_bias=torch.tensor(bias),
    )
    run = experiment.run(Given(given), FAST, tmp_path, name="x")
    tops = run.table("single").set_index(["ranking", "row"])["item"]
    seen = set()
    for ranking in ("attention", "gradient", "product"):
        table = top_ranks(run, ranking)
        assert table is not None
        for row, n in enumerate(lengths):
            items = slice(offsets[row], offsets[row + 1])
            weights, rows = np.exp(scores[items]), values[items]

            def output(left: np.ndarray, weights: Any = weights, rows: Any = rows) -> np.ndarray:
                logits = head @ (weights[left] @ rows[left] / weights[left].sum()) + bias
                return np.asarray(np.exp(logits) / np.exp(logits).sum())

            p = output(np.arange(n))
            js = []
            for item in range(n):
                q = output(np.delete(np.arange(n), item))
                middle = (p + q) / 2
                js.append((p @ np.log(p / middle) + q @ np.log(q / middle)) / 2)
            top = int(tops.loc[ranking, row])
            rank = 1 + sum(other > js[top] + 1e-9 for other in js)
            assert table["rank"][row] == rank
            assert table["others_larger_share"][row] == pytest.approx((rank - 1) / (n - 1))
            seen.add(rank)
    assert len(seen) == 3  # not all are first


def test_curves_areas_and_bands_by_hand(tmp_path: Path) -> None:
    """Two instances of two items each, decided 1: of two the mean is in a quarter of the resamples
    either one alone, so that the interval goes from the one to the other."""
    values, weights = [[2.0, -1.0], [1.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]
    run = experiment.run(Given(batch(values, weights)), FAST, tmp_path, name="x")
    found = describe(run)
    # Means .5, -1, 0 and 1, 1, 0 after 0, 1, 2 items by attention; the probability of 1 follows.
    first, second = (
        np.interp(PLACES, [0, 0.5, 1], [1 / (1 + math.exp(-mean)) for mean in means])
        for means in ((0.5, -1, 0), (1, 1, 0))
    )
    [curve] = [c for c in found.curves if (c.quantity, c.ranking) == ("label_prob", "attention")]
    drawn = np.array([[mean.value, mean.low, mean.high] for mean in curve.means])
    assert len(drawn) == len(PLACES)
    np.testing.assert_allclose(drawn[:, 0], (first + second) / 2, atol=1e-6)
    np.testing.assert_allclose(drawn[:, 1], np.minimum(first, second), atol=1e-6)
    np.testing.assert_allclose(drawn[:, 2], np.maximum(first, second), atol=1e-6)
    low, high = np.minimum(first, second), np.maximum(first, second)
    np.testing.assert_allclose(curve.q1, low + (high - low) / 4, atol=1e-6)
    np.testing.assert_allclose(curve.q3, high - (high - low) / 4, atol=1e-6)
    areas = [(p[0] + 2 * p[PLACES.index(0.5)] + p[-1]) / 4 for p in (first, second)]
    assert found.value("label_prob_area", "attention").value == pytest.approx(np.mean(areas))
    points = exact_tables([run], [found])["exact_points"]
    assert len(points) == 2 * 4 * len(PLACES)


def test_several_ratios_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(2)
    above, below = rng.random((30, 3)), rng.random((30, 2))
    below[:, 1] = 0
    bootstrap = Bootstrap(seed=0, resamples=50)
    [found] = bootstrap.intervals([Ratios(above, below, (0, 0, 1))], 30)
    for column in (0, 1):
        alone = bootstrap.ratio(above[:, column], below[:, 0])
        for name in ("value", "low", "high"):
            assert getattr(found[column], name) == pytest.approx(getattr(alone, name))
    assert found[2] == UNDEFINED


def test_tables_and_sentences_of_several_runs(finished: Result, tmp_path: Path) -> None:
    parts = {"model_config": {"kind": "flan", "encoder": "rnn"}}
    first = replace(finished, run=replace(finished.run, source=finished.run.source | parts))
    parts = {"model_config": {"kind": "flan", "encoder": "noenc"}}
    second = experiment.run(HandMade(rows=[0, 1, 0, 1]), FAST, tmp_path, name="second")
    second = replace(second, run=replace(second.run, source=second.run.source | parts))
    said = [describe(first), describe(second)]
    made = exact_tables([first, second], said)
    assert list(made) == [*(f"exact_{part}" for part in PARTS), "exact_points"]
    skill = made["exact_skill"]
    rows = skill[(skill["quantity"] == "some_set_flips") & (skill["by"] == "all")]
    assert rows["all"].tolist() == [0.6, 1]
    assert "seeds" not in skill
    shown = page_tables([first, second], said, NAMES)
    assert list(shown) == list(PARTS)
    assert shown["items"].rows[0][1][0].value == "100.0\u00a0%"
    assert shown["minimum"].rows[1][1][0].value == "41.7\u00a0%"
    over = exact_words.over_runs([first, second], said)
    assert set(over) == set(PARTS)
    assert over["minimum"].startswith(
        "Medians of the smallest set over the items: FLANrnn 50\u00a0%; FLANnoenc 42\u00a0%. In 2 "
        "of 2 models more than half"
    )
    assert exact_words.over_runs([first], said[:1]) == {}
    assert exact_words.lacking([first, second], said) == []


@pytest.mark.usefixtures("undrawn_figures")
def test_a_report_on_a_run_of_before_says_what_it_lacks(
    finished: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old_run(tmp_path / "before")
    found = describe(before)
    assert found.lacking == ("lasting", "curves")
    [line] = exact_words.lacking([before], [found])
    assert line == (
        "before: erased by a version that did not keep decisions after the first flip and curves "
        "over prefixes; erase again into a new folder to have these parts."
    )
    monkeypatch.setattr("fastattnerase.studies.serrano_smith.report._picture", _no_picture)
    text = build([before, finished], tmp_path / "report").read_text(encoding="utf-8")
    assert line in text
    alone = build([before], tmp_path / "alone").read_text(encoding="utf-8")
    assert "First flips that erasing more undoes" in text
    assert "First flips that erasing more undoes" not in alone
    assert "Whose doing late flips are" in alone
    table = pd.read_csv(tmp_path / "report" / "tables" / "exact_lasting.csv")
    assert set(table["model"]) == {"hand"}
    # And still older ones.
    single = pq.read_table(before.folder / "single.parquet").drop_columns(["others_larger_share"])
    pq.write_table(single, before.folder / "single.parquet")
    assert describe(before).lacking == ("lasting", "items", "curves")


def _no_picture(path: Path, caption: str) -> dict[str, Any]:
    return {"name": path.stem, "caption": caption, "picture": "data:,", "wide": False}


def test_nothing_is_said_of_nothing(tmp_path: Path) -> None:
    run = experiment.run(HandMade(rows=[5, 6]), FAST, tmp_path, name="x")
    found = describe(run)
    assert (found.numbers, found.curves, found.lacking) == ((), (), ())
    assert exact_tables([run], [found]) == {}
    assert exact_words.of_run(run, found) == {}
