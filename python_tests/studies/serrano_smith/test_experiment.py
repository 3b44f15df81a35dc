"""The two tests of Serrano and Smith on instances worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from studies.serrano_smith.hand_made import HandMade, batch_of

import fastattnerase as fae
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import RANKINGS, Config
from fastattnerase.studies.serrano_smith.erasure import measure, random_items
from fastattnerase.studies.serrano_smith.result import Head, Result, SmallestSets, load

FAST = Config(resamples=20, exhibits=3)


def js(first: float, second: float) -> float:
    """JS divergence of the distributions with logits [0, first] and [0, second]."""
    p = np.array([1 / (1 + math.exp(first)), 1 / (1 + math.exp(-first))])
    q = np.array([1 / (1 + math.exp(second)), 1 / (1 + math.exp(-second))])
    m = (p + q) / 2
    return float((p * np.log(p / m)).sum() / 2 + (q * np.log(q / m)).sum() / 2)


def frames(config: Config = FAST) -> dict[str, pd.DataFrame]:
    [chunk] = HandMade(size=8).chunks(0)
    return {name: table.to_pandas() for name, table in measure(chunk, config).items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return experiment.run(
        HandMade(), FAST, tmp_path_factory.mktemp("run") / "run", name="hand-made"
    )


def test_instances_and_exclusions() -> None:
    table = frames()["instances"]
    assert table["n"].tolist() == [3, 2, 2, 2, 2, 1, 0, 2]
    assert table["excluded"].tolist() == [""] * 5 + ["length_1", "empty", "non_finite"]
    assert table["label"].tolist() == [1, 0, 1, 1, 0, 1, 0, -1]
    assert table["bias_label"].tolist() == [0] * 8
    assert table["gold"].tolist()[:7] == [1, 1, 1, 0, 0, 1, 0]
    assert math.isnan(table["gold"][7])  # -1 is no label
    np.testing.assert_allclose(table["probabilities"][3], [1 / (1 + math.e), math.e / (1 + math.e)])


def test_single_items_of_attention() -> None:
    table = frames()["single"]
    table = table[table["ranking"] == "attention"]
    assert table["row"].tolist() == [0, 1, 2, 3, 4]
    assert table["item"].tolist() == [0, 0, 0, 0, 0]
    assert table["flip_label"].tolist() == [0, 1, -1, -1, -1]
    assert table["r_flip_label"].tolist() == [-1, -1, 0, -1, -1]
    np.testing.assert_allclose(table["alpha"], [0.5, 0.8, 0.6, 0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(table["others_alpha"], [0.25, 0.2, 0.4, 0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(table["delta_alpha"][1:], [0.6, 0.2, 0.0, 0.0], atol=1e-6)
    assert table["others_flip_share"].tolist() == [0, 0, 1, 0, 0]
    # The top item moves every output the most: by .046 against .030 in instance 2.
    assert table["others_larger_share"].tolist() == [0, 0, 0, 0, 0]
    # Means: 0.6, -0.2, 0.5; without the top item -0.8, 3, 2; without the other of two -1, -0.5.
    tops = [js(0.6, -0.8), js(-0.2, 3.0), js(0.5, 2.0), 0.0, 0.0]
    np.testing.assert_allclose(table["js"], tops, atol=1e-6)
    np.testing.assert_allclose(table["r_js"][1:3], [js(-0.2, -1.0), js(0.5, -0.5)], atol=1e-6)
    np.testing.assert_allclose(table["delta_js"][1:], table["js"][1:] - table["r_js"][1:])
    # Of instance 0 the others leave means 0.9 / 0.7 and 0.7 / 0.8.
    others = (js(0.6, 0.9 / 0.7) + js(0.6, 0.7 / 0.8)) / 2
    np.testing.assert_allclose(table["others_js"][:1], others, atol=1e-6)


def test_single_items_of_the_gradient() -> None:
    """Its top is the largest value for decision 1 and the smallest for 0, whatever the weights."""
    table = frames()["single"]
    tops = table.loc[table["ranking"] == "gradient", "item"].tolist()
    assert tops == [0, 0, 1, 0, 0]
    # Of instance 2 it is not the item that moves the output the most.
    larger = table.loc[table["ranking"] == "gradient", "others_larger_share"]
    assert larger.tolist() == [0, 0, 1, 0, 0]
    products = table.loc[table["ranking"] == "product", "item"].tolist()
    assert products == [0, 0, 1, 0, 0]


def test_first_flips_masses_and_gaps() -> None:
    table = frames()["multi"].set_index(["ranking", "row"])
    attention = table.loc["attention"]
    assert attention["first_flip"].tolist() == [1, 1, 2, 2, -1]
    assert attention["flip_label"].tolist() == [0, 1, 0, 0, -1]
    np.testing.assert_allclose(attention["fraction"], [1 / 3, 1 / 2, 1, 1, np.nan])
    np.testing.assert_allclose(attention["mass"], [0.5, 0.8, 1, 1, np.nan], rtol=1e-6)
    np.testing.assert_allclose(attention["gap"], [1, 1, 2, 1, np.nan])
    minimal = table.loc["minimal"]
    assert minimal["first_flip"].tolist() == [1, 1, 1, 2, -1]
    np.testing.assert_allclose(minimal["mass"], [0.5, 0.8, 0.4, 1, np.nan], rtol=1e-6)
    np.testing.assert_allclose(minimal["gap"], [1, 1, 1, 1, np.nan])
    assert table.loc["product", "first_flip"].tolist() == [1, 1, 1, 2, -1]


def test_random_orders_are_those_of_the_engine() -> None:
    table = frames(Config(random_orders=3, seed=5))["multi"]
    table = table[table["ranking"] == "random"]
    assert table["order"].tolist() == [order for order in range(3) for _ in range(5)]
    expected = fae.erase_prefixes(batch_of([0, 1, 2, 3, 4]), ["random"], seed=5, random_orders=3)
    assert table["first_flip"].tolist() == expected.first_flip.flatten().tolist()


def test_a_draw_of_both_and_one_item() -> None:
    """Three classes: each of two items hides that the other alone would decide otherwise."""
    batch = fae.AttentionBatch(
        torch.eye(2),
        torch.tensor([0, 2]),
        scores=torch.zeros(2),
        head_weight=torch.tensor([[3.0, 0.0], [0.0, 3.0], [2.0, 2.0]]),
        head_bias=torch.zeros(3),
    )
    table = measure(Chunk(batch), FAST)["single"].to_pandas()
    assert table["flip_label"].tolist() == [1, 1, 1]
    assert table["r_flip_label"].tolist() == [0, 0, 0]


def aggregates(result: Result) -> str:
    """What a run found, but for the tables."""
    return (result.folder / "result.json").read_text()


def test_aggregates(finished: Result) -> None:
    counts = finished.counts
    assert counts.instances == 8
    assert counts.excluded == {"empty": 1, "length_1": 1, "non_finite": 1}
    assert counts.analysed == 5
    assert counts.label_is_bias_label == 2
    assert counts.label_differs_from_model == 1
    assert counts.compared_with_model == 8
    assert counts.accuracy == pytest.approx(5 / 7)
    assert counts.smallest_set == SmallestSets(known=5, none=1, everything=1, some=3)
    assert counts.label_counts == {"1": 3, "0": 2}

    single = finished.single["attention"]
    cells = {cell: share.value for cell, share in single.contingency.items()}
    assert cells == {"both": 0, "only_top": 0.4, "only_random": 0.2, "neither": 0.4}
    assert single.contingency["only_top"].count == 2
    expected = single.expected_contingency["different"]
    assert {cell: expected[cell].value for cell in cells} == pytest.approx(cells)
    # Two differences are 0, and of the other three that of instance 2 is the smallest.
    smallest = js(0.5, 2.0) - js(0.5, -0.5)
    assert single.delta_js.median.value == pytest.approx(smallest, abs=1e-6)
    assert single.negative_delta_js.value == 0
    assert single.delta_js.q1.value == 0

    multi = finished.multi
    assert list(multi) == ["random", "attention", "gradient", "product", "minimal"]
    attention = multi["attention"]
    assert (attention.flipped, attention.never) == (4, 1)
    assert attention.share_flipped.value == 0.8
    assert attention.fraction.median.value == pytest.approx(0.75)
    # Judged on the three instances that some but not all of their items flip.
    assert attention.share_optimal.value == pytest.approx(2 / 3)
    assert attention.gap.median.value == 1
    assert attention.gap.mean.value == pytest.approx(4 / 3)
    assert multi["product"].share_optimal.value == 1
    # With the one that never flips: 1/3, 1/2, 1, 1, never, which is 1 in the mean.
    counted = attention.counted
    assert (counted.fraction.median.value, counted.fraction.q3.value) == (1, 1)
    assert counted.fraction.mean.value == pytest.approx((1 / 3 + 1 / 2 + 3) / 5)
    # The random orders: 2/3, never, 1/2, 1, never.
    random = multi["random"].counted
    assert (random.fraction.median.value, random.fraction.q3.value) == (1, math.inf)
    assert random.gap.median.value == 2  # 2, never, 1 of the three
    assert random.gap.mean.value == math.inf
    assert random.skill.overall.value == 0
    assert counted.skill.overall.value == pytest.approx((1 / 3 + 1 / 2 - 1 / 2) / (1 / 3 + 1 / 2))
    assert counted.skill.undefined == 3  # of the last three, random is as good as can be
    assert counted.skill.spread.median.value == 1  # 1 and 1
    assert multi["minimal"].counted.skill.overall.value == 1
    assert finished.uniform.largest.mean.value == pytest.approx((0.5 + 0.8 + 0.6 + 0.5 + 0.5) / 5)
    assert single.expected_negative.value == 0
    assert multi["minimal"].gap.q3.value == 1
    assert finished.head == Head(classes=2, bias=(0.0, 0.0))


def test_the_record_names_what_was_run_and_holds_no_path(finished: Result) -> None:
    run = finished.run
    assert run.config.random_item == "different"
    assert run.source["what"] == "hand-made"
    assert set(run.versions) >= {"python", "torch", "fastattnerase"}
    assert run.machine["cores"] >= 1
    assert str(Path.cwd()) not in (finished.folder / "run.json").read_text()
    assert not (finished.folder / "parts").exists()


def test_exhibits_are_marked(finished: Result) -> None:
    shown = {exhibit.row: exhibit for exhibit in finished.exhibits}
    assert len(shown) == 3
    assert 4 in shown  # one that never flips under attention
    assert shown[4].erased == ()
    assert shown[4].minimal_size == -1
    assert 2 in shown  # the largest gap
    assert shown[2].items == ("<w0>", "<w1>")
    assert shown[2].erased == (0, 1)
    assert shown[2].minimal == (1,)
    assert shown[2].weights == (0.6, 0.4)


def test_batches_do_not_matter(tmp_path: Path, finished: Result) -> None:
    other = experiment.run(HandMade(size=1), FAST, tmp_path / "run", name="hand-made")
    assert aggregates(other) == aggregates(finished)
    for name in ("instances", "single", "multi"):
        first, second = (
            r.table(name).sort_values(["row", *({"ranking"} & set(r.table(name)))], kind="stable")
            for r in (finished, other)
        )
        pd.testing.assert_frame_equal(
            first.reset_index(drop=True), second.reset_index(drop=True), check_exact=True
        )


def test_an_interrupted_run_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "_PART", 2)
    rows = [0, 1, 2, 3, 4, 5, 6, 7] * 2
    whole = experiment.run(HandMade(2, rows), FAST, tmp_path / "whole", name="x")
    folder = tmp_path / "halves"
    with pytest.raises(KeyboardInterrupt):
        experiment.run(HandMade(2, rows, stop_at=6), FAST, folder, name="x")
    with pytest.raises(RunError, match="not finished"):
        load(folder)
    # A file that a kill left half written is not a part.
    (folder / "parts" / "multi-000003.parquet").write_bytes(b"half")
    source = HandMade(2, rows)
    second = experiment.run(source, FAST, folder, name="x")
    assert source.started == [6]
    assert aggregates(second) == aggregates(whole)
    for name in ("instances", "single", "multi"):
        pd.testing.assert_frame_equal(whole.table(name), second.table(name))
        # One row group a part: what is held in memory does not grow.
        assert pq.read_metadata(folder / f"{name}.parquet").num_row_groups == 8


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    experiment.run(HandMade(), FAST, tmp_path, name="x")
    source = HandMade(stop_at=0)
    assert experiment.run(source, FAST, tmp_path, name="x").run.name == "x"
    assert source.started == []


def test_a_finished_run_takes_a_new_name(tmp_path: Path) -> None:
    first = experiment.run(HandMade(), FAST, tmp_path, name="x")
    source = HandMade(stop_at=0)
    second = experiment.run(source, FAST, tmp_path, name="y")
    assert source.started == []
    assert second.run == replace(first.run, name="y")
    assert load(tmp_path).run.name == "y"
    assert aggregates(second) == aggregates(first)


def test_a_first_try_without_results_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        experiment.run(HandMade(stop_at=0), FAST, tmp_path, name="x")
    rows = HandMade(rows=[0, 1, 2])
    assert experiment.run(rows, FAST, tmp_path, name="x").counts.instances == 3
    # But one part is worth keeping.
    monkeypatch.setattr(experiment, "_PART", 2)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(HandMade(2, stop_at=4), FAST, tmp_path / "part", name="x")
    with pytest.raises(RunError, match="another source"):
        experiment.run(rows, FAST, tmp_path / "part", name="x")
    # And a run of another kind is not this one's to replace.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text('{"kind": "other"}')
    with pytest.raises(RunError, match="another kind"):
        experiment.run(rows, FAST, tmp_path / "other", name="x")


def test_a_bias_that_is_not_finite_stays_out_of_the_result(tmp_path: Path) -> None:
    class Source(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            whole = batch_of(rows)
            bad = fae.AttentionBatch(
                whole.values,
                whole.offsets,
                weights=whole.weights,
                head_weight=torch.tensor([[0.0], [1.0]]),
                head_bias=torch.tensor([math.nan, 0.0]),
            )
            return Chunk(bad)

    result = experiment.run(Source(rows=[0, 1]), FAST, tmp_path, name="x")
    assert result.head == Head(classes=2, bias=None)
    assert result.counts.excluded["non_finite"] == 2


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    experiment.run(HandMade(), FAST, tmp_path, name="x")
    with pytest.raises(RunError, match="another config"):
        experiment.run(HandMade(), Config(seed=1), tmp_path, name="x")
    with pytest.raises(RunError, match="another source"):
        experiment.run(HandMade(rows=[0, 1]), FAST, tmp_path, name="x")


def test_nothing_to_analyse(tmp_path: Path) -> None:
    for number, rows in enumerate(([], [5, 6], [7])):
        result = experiment.run(HandMade(rows=rows), FAST, tmp_path / str(number), name="x")
        assert result.counts.analysed == 0
        assert result.exhibits == ()
        assert all(record.share_flipped.value is None for record in result.multi.values())
        assert result.single["attention"].contingency["both"].value is None


def test_several_heads_have_no_smallest_set(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)

    class Source(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            lengths = [0, *(torch.tensor(rows) % 4 + 2).cumsum(0).tolist()]
            shape = (lengths[-1], 2, 3)
            return Chunk(
                fae.AttentionBatch(
                    torch.randn(shape, generator=generator),
                    torch.tensor(lengths),
                    scores=torch.randn(shape[:2], generator=generator),
                    head_weight=torch.randn((3, 2, 3), generator=generator),
                    head_bias=torch.zeros(3),
                )
            )

    result = experiment.run(Source(), FAST, tmp_path, name="x")
    assert list(result.multi) == list(RANKINGS)
    assert result.multi["attention"].gap.median.value is None
    assert result.counts.smallest_set.known == 0


class TestRandomItems:
    ids = np.arange(6000)
    n = np.full(6000, 4)
    top = np.arange(6000) % 4

    def draw(self, rule: str, **changes: int) -> np.ndarray:
        options = {"seed": 0, "draw": 0} | changes
        return random_items(self.top, self.n, self.ids, rule=rule, **options)  # type: ignore[arg-type]

    def test_different_never_draws_the_top_item_and_all_others_equally(self) -> None:
        drawn = self.draw("different")
        assert (drawn != self.top).all()
        for top in range(4):
            counts = np.bincount(drawn[self.top == top], minlength=4)
            assert counts[top] == 0
            others = np.delete(counts, top)  # 500 expected each, deviation 18
            assert (abs(others - 500) < 90).all()

    def test_uniform_draws_every_position_equally(self) -> None:
        counts = np.bincount(self.draw("uniform"), minlength=4)
        assert (abs(counts - 1500) < 150).all()

    def test_legacy_draws_every_position_but_the_first(self) -> None:
        drawn = self.draw("legacy")
        counts = np.bincount(drawn, minlength=4)
        assert counts[0] == 0
        assert (abs(counts[1:] - 2000) < 180).all()
        # Also the top item, in a third of the cases in which it is not the first.
        assert abs((drawn == self.top).sum() - 1500) < 150

    def test_legacy_with_two_items_draws_the_second(self) -> None:
        two = np.full(50, 2)
        drawn = random_items(two - 1, two, np.arange(50), rule="legacy", seed=3, draw=1)
        assert (drawn == 1).all()

    def test_draws_depend_on_seed_draw_and_id_alone(self) -> None:
        whole = self.draw("different")
        part = random_items(
            self.top[100:200],
            self.n[100:200],
            self.ids[100:200],
            rule="different",
            seed=0,
            draw=0,
        )
        assert (part == whole[100:200]).all()
        assert (self.draw("different", seed=1) != whole).any()
        assert (self.draw("different", draw=1) != whole).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed: given -1"),
        ({"seed": 2**63}, "seed: given 9223372036854775808"),
        ({"random_orders": 0}, "random_orders: given 0"),
        ({"random_item": "other"}, "random_item: given 'other'"),
        ({"resamples": 0}, "resamples: given 0"),
        ({"confidence": 1.0}, "confidence: given 1.0"),
        ({"exhibits": -2}, "exhibits: given -2"),
    ],
)
def test_bad_configurations(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**changes)  # type: ignore[arg-type]


def test_loading_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        load(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        load(tmp_path)
    (tmp_path / "run.json").write_text('{"kind": "other"}')
    with pytest.raises(RunError, match="kind 'other'"):
        load(tmp_path)


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    experiment.run(HandMade(2), FAST, tmp_path, name="x")
    record = json.loads((tmp_path / "run.json").read_text())
    del record["format"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match="given a run of format None, needed 2"):
        load(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no more"])
def test_a_damaged_table_is_named(tmp_path: Path, content: bytes | None) -> None:
    result = experiment.run(HandMade(2), FAST, tmp_path, name="x")
    table = tmp_path / "multi.parquet"
    table.unlink()
    if content is not None:
        table.write_bytes(content)
    with pytest.raises(RunError, match=r"multi\.parquet is missing or damaged"):
        result.table("multi")
