"""What the paper says and what its published code did, on fixtures worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.serrano_smith.hand_made import HandMade

import fastattnerase as fae
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import measure
from fastattnerase.studies.serrano_smith.result import NeverFlip, Result, SmallestSets

FAST = Config(resamples=20, exhibits=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("arithmetic")
    return experiment.run(HandMade(), FAST, folder, name="hand-made")


def softmax(logit: float) -> np.ndarray:
    return np.array([1, math.exp(logit)]) / (1 + math.exp(logit))


def kl(new: float, original: float) -> float:
    q, p = softmax(new), softmax(original)
    return float((q * np.log(q / p)).sum())


def test_kl_is_of_the_new_distribution_from_the_original(finished: Result) -> None:
    table = finished.table("single", ["row", "ranking", "kl", "r_kl"])
    table = table[table["ranking"] == "attention"]
    # Means: 0.6, −0.2, 0.5; without the top item −0.8, 3, 2; without the other of two −1, −0.5.
    expected = [kl(-0.8, 0.6), kl(3.0, -0.2), kl(2.0, 0.5), 0.0, 0.0]
    np.testing.assert_allclose(table["kl"], expected, atol=1e-7)
    np.testing.assert_allclose(table["r_kl"][1:3], [kl(-1, -0.2), kl(-0.5, 0.5)], atol=1e-7)


def test_places_of_items_erased_alone(finished: Result) -> None:
    table = finished.table("erased")
    first = table[(table["row"] == 0) & (table["ranking"] == "attention")].set_index("place")
    assert first["item"].to_dict() == {1: 0, 2: 1, -1: 2, -2: 1}
    np.testing.assert_allclose(first.loc[[1, 2, -1], "alpha"], [0.5, 0.3, 0.2], rtol=1e-6)
    assert first["flip_label"].to_dict() == {1: 0, 2: -1, -1: -1, -2: -1}
    gradient = table[(table["row"] == 2) & (table["ranking"] == "gradient")].set_index("place")
    assert gradient["item"].to_dict() == {1: 1, 2: 0}
    assert (table[table["ranking"] == "random"]["place"] == 1).all()


def test_divergence_of_attention_from_uniform(finished: Result) -> None:
    table = finished.table("instances", ["uniform_kl", "uniform_js"])
    expected = sum(a * math.log(a * 3) for a in (0.5, 0.3, 0.2))
    assert table["uniform_kl"][0] == pytest.approx(expected, rel=1e-6)
    middle = [(a + 1 / 3) / 2 for a in (0.5, 0.3, 0.2)]
    js = sum(
        a * math.log(a / m) / 2 + math.log(1 / 3 / m) / 6
        for a, m in zip((0.5, 0.3, 0.2), middle, strict=True)
    )
    assert table["uniform_js"][0] == pytest.approx(js, rel=1e-6)
    assert table["uniform_kl"][3] == 0  # even
    assert table["uniform_kl"][5] == 0  # a single item
    assert math.isnan(table["uniform_kl"][6])  # none
    kl_mean = finished.uniform.kl.mean.value
    assert kl_mean == pytest.approx(table["uniform_kl"][:5].mean())


def test_logits_are_those_of_the_model(finished: Result) -> None:
    logits = np.stack(finished.table("instances", ["logits"])["logits"].to_list())
    np.testing.assert_allclose(logits[:6, 1], [0.6, -0.2, 0.5, 1.0, -1.0, 1.0], atol=1e-7)
    np.testing.assert_allclose(logits[6], 0)  # no item: the bias


def test_pairwise_comparison_of_rankings(finished: Result) -> None:
    """First flips by attention 1, 1, 2, 2, never; by product 1, 1, 1, 2, never."""
    pair = finished.pairs["product", "attention"]
    assert (pair.instances, pair.judged) == (5, 4)
    assert (pair.first_smaller, pair.second_smaller, pair.ties) == (1, 0, 3)
    assert pair.share_first_smaller.value == 0.25
    assert pair.share_of_all == 0.2
    assert pair.times_as_many is None
    assert pair.p_sign == 1  # one instance
    assert (pair.mcnemar, pair.p_mcnemar) == (0, 1)  # both flip the same
    assert pair.share_optimal == 1


def test_a_ranking_that_flips_where_the_other_never_does_wins(tmp_path: Path) -> None:
    """Two classes, items (weight, margin): by attention the sum never falls to 0, and class 0,
    which the bias prefers, is the decision."""

    class One(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            return Chunk(
                fae.AttentionBatch(
                    torch.tensor([[2.0], [-1.0], [2.0]]),
                    torch.tensor([0, 3]),
                    weights=torch.tensor([0.2, 0.5, 0.3]),
                    head_weight=torch.tensor([[0.0], [1.0]]),
                    head_bias=torch.tensor([0.75, 0.0]),
                )
            )

    # The mean is 0.5 < 0.75: class 0. Without the -1 it is 2: class 1, at the first by attention.
    result = experiment.run(One(rows=[0], size=1), FAST, tmp_path, name="one")
    flips = result.table("multi").set_index(["ranking", "order"])["first_flip"]
    assert flips["attention", 0] == flips["minimal", 0] == 1
    assert flips["ascending", 0] == -1  # 2, 2, -1: class 0 all along, as the bias alone
    never = flips["random", 0] < 0
    against = result.pairs["attention", "random"]
    assert against.judged == 1
    assert against.flips_only_first == int(never)


def test_both_ways_of_leaving_out_are_counted(finished: Result) -> None:
    assert finished.counts.never_flip == NeverFlip(
        paper=1,  # instance 4: no ranking ever changes it
        code={"random": 2, "attention": 1, "gradient": 1, "product": 1},
        flip_under_all=3,
    )
    # The random order of instance 1 erases its item 1 first, after which the decision stays.
    multi = finished.table("multi").set_index(["ranking", "row"])
    assert multi.loc["random", "first_flip"].tolist() == [2, -1, 1, 2, -1]
    attention = finished.multi["attention"]
    assert attention.common.mean.value == pytest.approx((1 / 3 + 1 + 1) / 3)


@pytest.mark.parametrize(
    ("convention", "stored", "mean"),
    [("left_out", math.nan, 17 / 24), ("minus_one", -1.0, 17 / 24), ("one", 1.0, 23 / 30)],
)
def test_conventions_for_instances_that_never_flip(
    convention: str, stored: float, mean: float, tmp_path: Path
) -> None:
    """Fractions by attention: 1/3, 1/2, 1, 1 and never; 17/24 is the mean of four."""
    config = Config(resamples=5, exhibits=0, never_flips=convention)  # type: ignore[arg-type]
    result = experiment.run(HandMade(), config, tmp_path, name="x")
    table = result.table("multi", ["ranking", "row", "fraction", "mass", "gap"])
    never = table[(table["ranking"] == "attention") & (table["row"] == 4)].iloc[0]
    np.testing.assert_equal([never["fraction"], never["mass"]], [stored, stored])
    assert math.isnan(never["gap"])
    attention = result.multi["attention"]
    assert attention.fraction.mean.value == pytest.approx(mean)
    assert attention.share_flipped.value == 0.8
    assert result.counts.smallest_set == SmallestSets(known=5, none=1, everything=1, some=3)


class TestTheRuleOfDrawingR:
    """The published code drew a rank from 1 … n − 1 and took it for a position."""

    def expected(self, result: Result, rule: str) -> dict[str, float | None]:
        cells = result.single["attention"].expected_contingency[rule]
        return {cell: estimate.value for cell, estimate in cells.items()}

    def test_exact_expectations_by_hand(self, finished: Result) -> None:
        """i* is in position 0 in all five instances, so the rule's positions are the others.

        Flips by i*: yes, yes, no, no, no; by another: none, none, the only one, none, none.
        """
        different = self.expected(finished, "different")
        assert different == pytest.approx(
            {"both": 0, "only_top": 0.4, "only_random": 0.2, "neither": 0.4, "same_item": 0}
        )
        assert self.expected(finished, "legacy") == pytest.approx(different)
        # Uniform: r is i* in 1/3, 1/2, … of the cases, and then both flip or neither.
        uniform = self.expected(finished, "uniform")
        assert uniform["both"] == pytest.approx((1 / 3 + 1 / 2) / 5)
        assert uniform["only_top"] == pytest.approx((2 / 3 + 1 / 2) / 5)
        assert uniform["only_random"] == pytest.approx(0.5 / 5)
        assert uniform["same_item"] == pytest.approx((1 / 3 + 4 / 2) / 5)

    def test_the_defect_by_numbers(self, tmp_path: Path) -> None:
        """Where i* is last of n items that alone decides, the published code takes it for r.

        Logits [0, c]; values −1, … , −1, 9 with even weights: only the last item flips. A correct r
        never flips; the published one is i* with probability 1/(n − 1), here 1/1, 1/2 and 1/4.
        """

        class Last(HandMade):
            def _chunk(self, rows: list[int]) -> Chunk:
                lengths = [(2, 3, 5)[row % 3] for row in rows]
                values = [v for n in lengths for v in [-1.0] * (n - 1) + [9.0]]
                scores = [s for n in lengths for s in [0.0] * (n - 1) + [0.1]]
                return Chunk(
                    fae.AttentionBatch(
                        torch.tensor(values)[:, None],
                        torch.tensor([0, *np.cumsum(lengths)]),
                        scores=torch.tensor(scores),
                        head_weight=torch.tensor([[0.0], [1.0]]),
                        head_bias=torch.zeros(2),
                        ids=torch.tensor(rows),
                    )
                )

        rows = list(range(3000))
        config = Config(random_item="legacy", resamples=2, exhibits=0)
        result = experiment.run(Last(1000, rows), config, tmp_path, name="last")
        right = self.expected(result, "different")
        assert right["only_top"] == 1
        assert right["both"] == 0
        defect = self.expected(result, "legacy")
        share = (1 + 1 / 2 + 1 / 4) / 3
        assert defect["same_item"] == pytest.approx(share)
        assert defect["both"] == pytest.approx(share)  # inflated from 0
        assert defect["only_top"] == pytest.approx(1 - share)  # deflated from 1
        drawn = result.single["attention"].contingency
        assert drawn["both"].value == pytest.approx(share, abs=0.03)
        table = result.table("single", ["ranking", "item", "r_item", "delta_js"])
        same = table["item"] == table["r_item"]
        assert (table.loc[same, "delta_js"] == 0).all()  # one code path: exactly 0, not noise
        assert (table["r_item"] > 0).all()

    def test_two_items_legacy_takes_the_second(self) -> None:
        [chunk] = HandMade(size=1, rows=[2]).chunks(0)
        table = measure(chunk, Config(random_item="legacy"))["single"].to_pandas()
        assert table["r_item"].tolist() == [1, 1, 1]
        assert table["item"].tolist() == [0, 1, 1]  # gradient's and product's i* is r
        assert table["delta_js"].tolist()[1:] == [0, 0]


def test_the_sequence_of_renormalisations_of_the_published_code(finished: Result) -> None:
    """Erase one by one, renormalise the renormalised, stop at the first flip: the same indices."""
    multi = finished.table("multi").set_index(["ranking", "row"])
    for row, (values, weights) in enumerate(
        [
            ([2.0, -1.0, -0.5], [0.5, 0.3, 0.2]),
            ([-1.0, 3.0], [0.8, 0.2]),
            ([-0.5, 2.0], [0.6, 0.4]),
            ([1.0, 1.0], [0.5, 0.5]),
            ([-1.0, -1.0], [0.5, 0.5]),
        ]
    ):
        v, a = np.array(values), np.array(weights)
        label = int(a @ v > 0)
        for ranking, keys in (("attention", -a), ("ascending", a)):
            left, removed, first = a.copy(), 0.0, -1
            for step, item in enumerate(np.argsort(keys, kind="stable"), start=1):
                removed += a[item]
                left[item] = 0
                left /= max(left.sum(), 1e-12)
                if int(left @ v > 0) != label:
                    first = step
                    break
            record = multi.loc[ranking, row]
            assert record["first_flip"] == first
            if first > 0:
                assert record["fraction"] == pytest.approx(first / len(v))
                assert record["mass"] == pytest.approx(removed, rel=1e-6)
