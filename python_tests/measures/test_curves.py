"""Measures of curves over prefixes: known answers in both directions, conventions by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import fastattnerase as fae
from fastattnerase import measures
from fastattnerase.measures.aopc import aopc_comprehensiveness, aopc_sufficiency
from fastattnerase.measures.base import Measure, Measured
from fastattnerase.measures.comprehensiveness import comprehensiveness
from fastattnerase.measures.deletion_area import deletion_area
from fastattnerase.measures.flip_fraction import flip_fraction
from fastattnerase.measures.insertion_area import insertion_area
from fastattnerase.measures.optimality_gap import optimality_gap
from fastattnerase.measures.sufficiency import sufficiency
from fastattnerase.measures.thresholds import PRESETS, Thresholds

NEVER = float("nan")
# p_y of a text of ten words after k = 0 … 10 are erased: .9, then lower by .05 a word.
TEN = [0.9 - 0.05 * k for k in range(11)]


def item_0_decides() -> fae.AttentionBatch:
    """Ten items of equal weight: the first alone speaks for class 1, with a logit of 60 / 10."""
    values = torch.zeros(10, 2, dtype=torch.float64)
    values[0, 1] = 60.0
    bias = torch.tensor([1.0, 0.0], dtype=torch.float64)
    return fae.AttentionBatch(
        values,
        torch.tensor([0, 10]),
        weights=torch.ones(10, dtype=torch.float64),
        head_weight=torch.eye(2, dtype=torch.float64),
        head_bias=bias,
    )


def test_item_0_alone_decides() -> None:
    """Before: sigmoid(6 − 1) = .9933; without it sigmoid(−1) = .2689; it alone sigmoid(60 − 1)."""
    batch = item_0_decides()
    ranking = torch.stack([-torch.arange(10.0), torch.arange(10.0)])  # first; last
    found = {}
    for direction in ("erase", "keep"):
        result = fae.erase_prefixes(batch, list(ranking), curves="label_prob", direction=direction)
        found[direction] = (result.curves["label_prob"], result.curve_offsets)
    before, without = 1 / (1 + np.exp(-5)), 1 / (1 + np.exp(1))
    high = comprehensiveness(*found["erase"], 0.1)
    np.testing.assert_allclose(high.values[0], [before - without])
    # Without another item the logit is 60 / 9: the probability rises.
    np.testing.assert_allclose(high.values[1], [before - 1 / (1 + np.exp(1 - 60 / 9))])
    near = sufficiency(*found["keep"], 0.1)
    np.testing.assert_allclose(near.values[0], [before - 1])
    np.testing.assert_allclose(near.values[1], [before - without])
    # And over every prefix: the wrong order keeps what decides until the last.
    for name, measure, direction in (
        ("aopc", aopc_comprehensiveness, "erase"), ("aopc", aopc_sufficiency, "keep"),
        ("area", deletion_area, "erase"), ("area", insertion_area, "keep"),
    ):  # fmt: skip
        right, wrong = (
            measure(*found[direction], "every") if name == "aopc" else measure(*found[direction])
        ).values[:, 0]
        assert (right > wrong) == (measure.better == "higher")
    erased = found["erase"][0][0].numpy()
    assert float(deletion_area(*found["erase"]).values[0, 0]) == pytest.approx(
        sum((a + b) / 2 for a, b in zip(erased[1:], erased[:-1], strict=True)) / 10
    )


def test_aopc_of_eraser_by_hand() -> None:
    """1, 5, 10, 20, 50 % of ten words are 1, 1, 1, 2, 5: drops .05, .05, .05, .1, .25."""
    found = aopc_comprehensiveness(TEN, [0, 11])
    np.testing.assert_allclose(found.values, [0.5 / 5])
    paper = aopc_comprehensiveness(TEN, [0, 11], include_zero=True)
    np.testing.assert_allclose(paper.values, [0.5 / 6])
    # Kept are 1, 1, 1, 2, 5 of a curve that rises by .05 to .9: .45, .45, .45, .4, .25.
    kept = aopc_sufficiency(TEN[::-1], [0, 11], "eraser")
    np.testing.assert_allclose(kept.values, [2.0 / 5])


def test_aopc_of_ferret_by_hand() -> None:
    """Of five words 10 … 100 % are 0, 1, 1, 2, 2, 3, 3, 4, 4, 5: each of 1 … 5 once."""
    five = [0.9, 0.7, 0.6, 0.2, 0.3, 0.5]
    found = aopc_comprehensiveness(five, [0, 6], "ferret", positive=[5])
    np.testing.assert_allclose(found.values, [(0.2 + 0.3 + 0.7 + 0.6 + 0.4) / 5])
    # With two words of positive score: 1 and 2, and no other set of words.
    found = aopc_comprehensiveness(five, [0, 6], "ferret", positive=[2])
    np.testing.assert_allclose(found.values, [(0.2 + 0.3) / 2])
    nothing = aopc_comprehensiveness(five, [0, 6], "ferret", positive=[0])
    assert np.isnan(nothing.values[0])
    assert nothing.undefined == {"no threshold with a word": 1}
    assert np.isnan(nothing.mean)
    # Negative words dropped is an option of its own, as are ERASER's fractions rounded down.
    down = Thresholds((0.01, 0.3), rounding="floor", distinct=True)
    np.testing.assert_allclose(aopc_comprehensiveness(five, [0, 6], down).values, [0.2])


def test_over_every_prefix_by_hand() -> None:
    """The second text has a word, the third none."""
    curves, offsets = [*TEN, 0.5, 0.75, 0.5], [0, 11, 13, 14]
    found = aopc_comprehensiveness(curves, offsets, "every")
    np.testing.assert_allclose(found.values[:2], [0.05 * 55 / 10, -0.25])
    assert np.isnan(found.values[2])
    assert found.undefined == {"no words": 1}
    assert float(found.mean) == pytest.approx(0.0125)


def test_products_of_fractions_are_not_rounded_up() -> None:
    """0.07 · 100 is 7.000000000000001 and 0.29 · 100 is 28.999999999999996."""
    assert Thresholds((0.07,)).counts([100])[1].tolist() == [7]
    assert Thresholds((0.29,), rounding="floor").counts([100])[1].tolist() == [29]
    assert PRESETS["eraser"].counts([1, 0, 3])[1].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert PRESETS["ferret"].counts([10], [10])[1].tolist() == list(range(1, 11))
    assert PRESETS["ferret"].counts([3, 3], [3, 3])[1].tolist() == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("preset", ["eraser", "ferret", "every"])
def test_aopc_against_a_loop_over_sets(preset: str) -> None:
    """Random curves of several rankings, the sets of words of each threshold written out."""
    rng = np.random.default_rng(2)
    lengths = [7, 1, 0, 23, 100]
    offsets = np.concatenate([[0], np.cumsum([n + 1 for n in lengths])])
    curves = rng.random((3, offsets[-1]))
    scores = [[rng.normal(size=n) for n in lengths] for _ in range(3)]
    positive = [[int((own > 0).sum()) for own in row] for row in scores]
    found = aopc_comprehensiveness(curves, offsets, preset, positive=positive)  # type: ignore[arg-type]
    for row in range(3):
        for b, n in enumerate(lengths):
            order = np.argsort(-scores[row][b]).tolist()
            sets: list[frozenset[int]] = []
            if preset == "every":
                sets = [frozenset(order[:k]) for k in range(1, n + 1)]
            elif preset == "eraser":
                sets = [frozenset(order[: -(-n * q // 100)]) for q in (1, 5, 10, 20, 50)]
            else:
                for q in range(10, 101, 10):
                    top = order[: n * q // 100]
                    words = frozenset(i for i in top if scores[row][b][i] > 0)
                    if words and words not in sets:
                        sets.append(words)
            own = curves[row, offsets[b] : offsets[b + 1]]
            drops = [own[0] - own[len(words)] for words in sets if n]
            expected = np.mean(drops) if drops else np.nan
            np.testing.assert_allclose(found.values[row, b], expected)


def test_what_is_not_there_is_counted() -> None:
    found = aopc_comprehensiveness([[0.5, NEVER, 0.25], [0.5, 0.25, 0.25]], [0, 3], "every")
    assert found.undefined == {"not finite": 1}
    np.testing.assert_allclose(found.mean, [np.nan, 0.25])
    areas = deletion_area([[0.5, NEVER, 0.25, 1.0], [0.5, 0.25, 0.0, 1.0]], [0, 3, 4])
    assert areas.undefined == {"no words": 2, "not finite": 1}
    assert deletion_area([], [0]).values.shape == (0,)


def test_flip_fraction_by_what_stands_for_never() -> None:
    first, lengths = [[1, -1, 3], [2, 1, -1]], [4, 2, 3]
    found = flip_fraction(first, lengths)
    np.testing.assert_array_equal(found.values, [[0.25, -1, 1], [0.5, 0.5, -1]])
    np.testing.assert_allclose(found.mean, [0.625, 0.5])
    assert found.undefined == {"never flips": 2}
    nan = flip_fraction(first, lengths, never=NEVER)
    np.testing.assert_array_equal(nan.values, [[0.25, NEVER, 1], [0.5, 0.5, NEVER]])
    np.testing.assert_allclose(nan.mean, [0.625, 0.5])
    one = flip_fraction(first, lengths, never=1.0)
    np.testing.assert_allclose(one.mean, [2.25 / 3, 2 / 3])
    assert one.undefined == {"never flips": 2}


def test_optimality_gap_by_hand() -> None:
    """The smallest sets are 2, 1 and none; the gap of a ranking that never flips is undefined."""
    found = optimality_gap([[2, 3, -1], [4, -1, -1]], [2, 1, -1])
    np.testing.assert_array_equal(found.values, [[1, 3, NEVER], [2, NEVER, NEVER]])
    assert found.undefined == {"no set flips": 2, "never flips": 1}
    np.testing.assert_allclose(found.mean, [2, 2])


def test_optimality_gap_of_the_engine_is_at_least_1_and_1_for_the_minimal_order() -> None:
    torch.manual_seed(0)
    batch = fae.AttentionBatch(
        torch.randn(60, 4), torch.arange(0, 61, 6), scores=torch.randn(60),
        head_weight=torch.randn(3, 4),
    )  # fmt: skip
    found = fae.sweep(batch, ["minimal", "attention", "random"])
    assert found.minimal is not None
    gaps = optimality_gap(found.prefixes.first_flip, found.minimal.size)
    defined = gaps.counted
    assert (gaps.values[defined] >= 1).all()
    assert (gaps.values[0][defined[0]] == 1).all()
    assert defined[0].sum() == (found.minimal.size.numpy() > 0).sum()


def test_intervals_come_from_the_bootstrap() -> None:
    """All values equal: no width. Rankings see the same resamples; what never flips has no part."""
    found = Measured(np.array([[0.5] * 6, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]]))
    same, other = found.intervals(seed=3)
    assert (same.value, same.low, same.high) == (0.5, 0.5, 0.5)
    assert other.low is not None
    assert other.high is not None
    assert 0 <= other.low < 0.5 < other.high <= 1
    never = flip_fraction([1, -1], [2, 2])
    assert never.intervals()[0].value == 0.5
    assert flip_fraction([-1], [2]).intervals()[0].value is None


def test_every_measure_says_direction_and_range() -> None:
    assert set(measures.MEASURES) == {
        "agreement", "agreement_matrix", "aopc_comprehensiveness", "aopc_over_random",
        "aopc_sufficiency", "areas", "auprc", "comprehensiveness", "deletion_area", "envelope_area",
        "flip_fraction", "insertion_area", "iou_f1", "lasting", "normalized_area", "optimality_gap",
        "skill", "sufficiency", "symmetric_relevance_gain", "token_f1", "token_iou",
        "word_importance",
    }  # fmt: skip
    for name, measure in measures.MEASURES.items():
        assert isinstance(measure, Measure)
        assert measure.name == name
        assert measure.low < measure.high
        assert measure.better in (None, "higher", "lower")
        for value in (measure.random, measure.best):
            assert value is None or measure.low <= value <= measure.high
        assert measure.__doc__
    assert repr(measures.find("skill")) == "Measure(skill, higher is better, -inf to 1)"
    with pytest.raises(ValueError, match=r"measure: given 'auc', needed one of agreement, "):
        measures.find("auc")


def test_bad_input_gets_one_line() -> None:
    for call, message in (
        (lambda: aopc_comprehensiveness(TEN, [0, 10]), "offsets: given [0, 10], needed 0 to 11"),
        (lambda: aopc_comprehensiveness(TEN, [0, 0, 11]), "offsets: given an instance without"),
        (lambda: aopc_comprehensiveness([[TEN]], [0, 11]), "curves: given [1, 1, 11], needed [P]"),
        (lambda: aopc_comprehensiveness(TEN, [0, 11], "mine"), "preset: given 'mine', needed one"),  # type: ignore[arg-type]
        (lambda: aopc_comprehensiveness(TEN, [0, 11], "ferret"), "positive: given none, needed"),
        (lambda: comprehensiveness(TEN, [0, 11], 0.0), "fractions: given (0.0,), needed some in"),
        (lambda: sufficiency(TEN, [0, 11], 1.5), "fractions: given (1.5,), needed some in (0, 1]"),
        (lambda: Thresholds(()), "fractions: given none, needed at least one"),
        (lambda: Thresholds(rounding="up"), "rounding: given 'up', needed ceil or floor"),  # type: ignore[arg-type]
        (lambda: flip_fraction([1], [2], never=0.0), "never: given 0.0, needed -1, NaN or 1.0"),
        (lambda: flip_fraction([3], [2]), "first_flip: given 0 or more than the words"),
        (lambda: flip_fraction([1, 2], [2]), "first_flip: given [2], needed [N] or [R, N] with"),
        (lambda: optimality_gap([1], [2]), "smallest: given a set larger than a prefix"),
        (lambda: optimality_gap([1], [1, 1]), "smallest: given [2], needed one for each"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
