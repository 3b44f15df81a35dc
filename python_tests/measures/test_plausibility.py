"""Agreement of methods with each other and with people: literals by hand, others' code beside."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

from fastattnerase.measures.agreement import agreement, agreement_matrix
from fastattnerase.measures.auprc import auprc
from fastattnerase.measures.base import Floats
from fastattnerase.measures.human_words import choose_words, marked_words, mean_share, runs
from fastattnerase.measures.iou_f1 import iou_f1
from fastattnerase.measures.plausibility import plausibility
from fastattnerase.measures.token_f1 import token_f1
from fastattnerase.measures.token_iou import token_iou
from fastattnerase.measures.word_importance import word_importance

NEVER = float("nan")


def ragged(seed: int, ties: int) -> tuple[Floats, list[int], np.ndarray]:
    """Scores of two methods for texts of 0 to 30 words, with ties."""
    rng = np.random.default_rng(seed)
    lengths = [0, 1, 2, 30, 7, 12]
    scores = rng.integers(0, ties, (2, sum(lengths))).astype(np.float64)
    return scores, lengths, np.concatenate([[0], np.cumsum(lengths)])


@pytest.mark.parametrize("ties", [2, 5, 1000])
def test_agreement_is_scipys_tau_b(ties: int) -> None:
    scores, _, offsets = ragged(1, ties)
    found = agreement(scores[0], scores[1], offsets)
    for b, (begin, end) in enumerate(pairwise(offsets)):
        if end - begin < 2:
            assert np.isnan(found.values[b])
            continue
        tau = stats.kendalltau(scores[0, begin:end], scores[1, begin:end]).statistic
        np.testing.assert_allclose(found.values[b], tau, atol=1e-12)
    matrix = agreement_matrix(scores, offsets)
    np.testing.assert_array_equal(matrix.values[:, 0, 1], found.values)
    np.testing.assert_array_equal(matrix.values, matrix.values.transpose(0, 2, 1))
    assert int(matrix.undefined[0, 1]) == sum(found.undefined.values())
    np.testing.assert_allclose(matrix.mean[0, 1], np.nanmean(found.values))


def test_agreement_by_hand() -> None:
    """Of 3, 1, 2 and 1, 2, 2: pairs −, −, 0 of which x has 3 and y 2: −2 / √6. Then a constant."""
    found = agreement([3, 1, 2, 1, 1, 5], [1, 2, 2, 1, 2, 9], [0, 3, 5, 6])
    np.testing.assert_allclose(found.values, [-2 / np.sqrt(6), NEVER, NEVER])
    assert found.undefined == {"fewer than two words": 1, "constant": 1}
    infinite = agreement([np.inf, np.inf, 0.0], [2.0, 2.0, 1.0], [0, 3])
    np.testing.assert_allclose(infinite.values, [1.0])


def test_a_long_text_is_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, _, offsets = ragged(2, 9)
    whole = agreement_matrix(scores, offsets).values
    monkeypatch.setattr("fastattnerase.measures.agreement._CELLS", 64)
    np.testing.assert_array_equal(agreement_matrix(scores, offsets).values, whole)


def test_auprc_by_hand() -> None:
    """Marked are words 0 and 3, with scores 4 > 3 > 2 > 1: (0, 1), (½, 1), (½, ½), (½, ⅓), (1, ½).

    Trapezoids: ½ · 1 + ½ · (⅓ + ½)/2 = 17/24; steps: ½ · 1 + ½ · ½ = ¾.
    """
    scores, human, offsets = [4.0, 3, 2, 1], [True, False, False, True], [0, 4]
    assert auprc(scores, human, offsets).values.tolist() == pytest.approx([17 / 24])
    steps = auprc(scores, human, offsets, average_precision=True)
    assert steps.values.tolist() == pytest.approx([0.75])
    # All tied: (0, 1) to (1, ½).
    assert auprc([0.0] * 4, human, offsets).values.tolist() == pytest.approx([0.75])
    # Negative scores as 0: 4, then three ties: (0, 1), (½, 1), (1, ½).
    signed = auprc([4.0, -1, -2, -3], human, offsets, only_positive=True)
    assert signed.values.tolist() == pytest.approx([0.5 + 0.5 * 0.75])
    both = auprc([[4.0, 3, 2, 1], [4.0, 1, 2, 3]], human, offsets)
    assert both.values[:, 0].tolist() == pytest.approx([17 / 24, 1.0])


@pytest.mark.parametrize("ties", [2, 4, 1000])
def test_auprc_is_scikit_learns(ties: int) -> None:
    scores, lengths, offsets = ragged(3, ties)
    human = np.random.default_rng(4).random(sum(lengths)) < 0.4
    found = auprc(scores, human, offsets)
    steps = auprc(scores, human, offsets, average_precision=True)
    for b, (begin, end) in enumerate(pairwise(offsets)):
        own = human[begin:end]
        for row in range(2):
            if not own.any() or own.all():
                assert np.isnan(found.values[row, b])
                continue
            precision, recall, _ = precision_recall_curve(own, scores[row, begin:end])
            assert found.values[row, b] == pytest.approx(auc(recall, precision))
            expected = average_precision_score(own, scores[row, begin:end])
            assert steps.values[row, b] == pytest.approx(expected)


def test_undefined_plausibility_is_counted_by_reason() -> None:
    """No words; none marked; all marked; one of two marked."""
    offsets, human = [0, 0, 2, 4, 6], [False, False, True, True, True, False]
    scores = [1.0, 0, 1, 0, 1, 0]
    expected = {"no words": 1, "no human words": 1, "all words human": 1}
    assert auprc(scores, human, offsets).undefined == expected
    chosen = choose_words(scores, offsets, share=0.5)
    tokens = token_f1(chosen, human, offsets)
    spans = iou_f1(chosen, [None, None, [[0, 2]], [[0, 1]]], offsets)
    for found in (tokens, spans):
        assert found.undefined == expected
        np.testing.assert_array_equal(found.values, [NEVER, NEVER, NEVER, 1])
        assert (found.micro, found.macro) == (1, 1)
    nothing = token_f1([True], [False], [0, 1])
    assert np.isnan(nothing.micro)
    assert np.isnan(nothing.macro)


def test_token_f1_by_hand() -> None:
    """Hits, chosen, marked: 1, 2, 3 and 2, 4, 2 and 0, 1, 1."""
    chosen = [1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0]
    human = [1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0]
    found = token_f1(chosen, human, [0, 5, 10, 13])
    np.testing.assert_allclose(found.precision, [1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(found.recall, [1 / 3, 1, 0])
    np.testing.assert_allclose(found.values, [2 / 5, 2 / 3, 0])
    assert found.micro == pytest.approx(2 * 3 / (7 + 6))
    assert found.macro == pytest.approx((2 / 5 + 2 / 3) / 3)
    intervals = found.intervals(seed=1)
    assert intervals["micro"].value == pytest.approx(6 / 13)
    assert intervals["f1"].value == pytest.approx(found.macro)
    assert intervals["macro"] == intervals["f1"]
    assert set(intervals) == {"micro", "macro", "precision", "recall", "f1"}


def test_iou_f1_by_hand() -> None:
    """First text: chosen 0–2 and 4–5, marked 0–3 and 6–8: ⅔ is a hit, 0 none: P = R = ½.

    Second text: chosen 0–1, marked 0–2 and 2–3, which touch: ½ is a hit: P = 1, R = ½.
    Micro 2 · 2 / (3 + 4); macro the F1 of ¾ and ½.
    """
    chosen = [1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    spans = [[[0, 3], [6, 8]], [[0, 2], [2, 3]]]
    found = iou_f1(chosen, spans, [0, 8, 12])
    np.testing.assert_allclose(found.precision, [1 / 2, 1])
    np.testing.assert_allclose(found.recall, [1 / 2, 1 / 2])
    assert found.micro == pytest.approx(4 / 7)
    assert found.macro == pytest.approx(2 * 0.75 * 0.5 / 1.25)
    macro = found.intervals(seed=1)["macro"]
    assert macro.value == pytest.approx(found.macro)
    # Resamples hold the first text alone, both, or the second alone: ½, 3/5, ⅔.
    assert (macro.low, macro.high) == pytest.approx((1 / 2, 2 / 3))
    nothing = iou_f1([0, 1], [None], [0, 2]).intervals()["macro"]
    assert nothing.value is None
    strict = iou_f1(chosen, spans, [0, 8, 12], threshold=0.6)
    np.testing.assert_allclose(strict.precision, [1 / 2, 0])
    np.testing.assert_allclose(strict.values, [1 / 2, 0])


def test_plausibility_by_the_convention_of_each_peer() -> None:
    """Marked are words 1 and 2 of eight; the order is 1, 0, 2, 3 …, the last three are negative.

    ERASER, a quarter: 1 and 0 are chosen: P = R = ½, IoU ⅓; spans 0–2 and 1–3 overlap by ⅓: none.
    ferret: 1, 0, 2, 3, 4 are chosen: P = ⅖, R = 1, IoU ⅖; spans 0–5 and 1–3: ⅖, none.
    """
    scores = [0.8, 0.9, 0.7, 0.6, 0.5, -1, -2, -3]
    spans, offsets = [[[1, 3]]], [0, 8]
    eraser = plausibility(scores, spans, offsets, share=0.25)
    ferret = plausibility(scores, spans, offsets, preset="ferret")
    assert np.flatnonzero(eraser.chosen).tolist() == [0, 1]
    assert np.flatnonzero(ferret.chosen).tolist() == [0, 1, 2, 3, 4]
    assert (eraser.token_f1.micro, eraser.iou_f1.micro) == (0.5, 0)
    assert ferret.token_f1.micro == pytest.approx(2 * 0.4 / 1.4)
    assert eraser.token_iou.values.tolist() == pytest.approx([1 / 3])
    assert ferret.token_iou.values.tolist() == pytest.approx([2 / 5])
    # (0, 1), (½, 1), (½, ½), (1, ⅔): the same with the negative ones as 0, which stand last.
    expected = 0.5 + 0.5 * (1 / 2 + 2 / 3) / 2
    assert eraser.auprc.values.tolist() == pytest.approx([expected])
    assert ferret.auprc.values.tolist() == pytest.approx([expected])
    # Scores that are negative throughout are all tied for ferret: ¼ at (1, ¼).
    tied = plausibility([s - 9 for s in scores], spans, offsets, preset="ferret", count=2)
    assert tied.auprc.values.tolist() == pytest.approx([(1 + 1 / 4) / 2])
    assert not tied.chosen.any()
    assert tied.token_f1.values.tolist() == [0]


def test_token_iou_by_hand() -> None:
    """1 of 4; then no marked word."""
    found = token_iou([1, 1, 0, 0, 1], [1, 0, 1, 1, 0], [0, 4, 5])
    np.testing.assert_allclose(found.values, [1 / 4, NEVER])
    assert found.undefined == {"no human words": 1}


def test_choice_of_words_by_hand() -> None:
    """Texts of five and three words; ties by position."""
    scores, offsets = [0.2, 0.9, -1, 0.9, 0.5, -3, -1, -2], [0, 5, 8]

    def places(**options: object) -> list[int]:
        return np.flatnonzero(choose_words(scores, offsets, **options)).tolist()  # type: ignore[arg-type]

    assert places(share=0.4) == [1, 3, 6, 7]  # 2 of 5, 1.2 of 3 rounded up
    assert places(share=0.2) == [1, 6]  # 1 of 5, which rounding shall not make 2
    assert places(count=1) == [1, 6]
    assert places(count=[3, 0]) == [1, 3, 4]
    assert places(count=4, only_positive=True) == [0, 1, 3, 4]
    assert places(preset="ferret") == [0, 1, 3, 4]
    assert places(preset="ferret", count=2) == [1, 3]
    assert places(preset="eraser", share=0.4) == places(share=0.4)
    assert places(count=9) == list(range(8))


def test_shares_and_spans() -> None:
    """½ of the first text, ¼ of the last; the one without marks does not count."""
    human = marked_words([[[0, 1]], None, [[1, 2], [1, 2]]], [2, 2, 4])
    assert np.flatnonzero(human).tolist() == [0, 5]
    assert mean_share(human, [0, 2, 4, 8]) == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert runs(np.array([False, True, True, False, True])).tolist() == [[1, 3], [4, 5]]
    assert runs(np.zeros(0, dtype=bool)).shape == (0, 2)


def test_word_importance_by_hand() -> None:
    found = word_importance([1.0, -1.0, 3.0, 2.0], [7, 4, 7, 5])
    assert found.words.tolist() == [5, 7, 4]
    assert found.mean.tolist() == [2, 2, -1]
    assert found.counts.tolist() == [1, 2, 1]
    assert len(word_importance([], []).words) == 0


def test_bad_input_gets_one_line() -> None:
    human = [True, False]
    for call, message in (
        (lambda: agreement([1, 2], [1], [0, 2]), "y: given 1 score, needed 2, one for each word"),
        (lambda: agreement([1, NEVER], [1, 2], [0, 1, 2]), "x: given NaN in instance 1 at 0"),
        (lambda: agreement_matrix([1, 2], [0, 2]), "scores: given [2], needed [R, T]"),
        (lambda: auprc([1, NEVER], human, [0, 2]), "scores: given NaN in instance 0 at 1, needed"),
        (lambda: auprc([1, 2], [True], [0, 2]), "human: given [1], needed [2]"),
        (lambda: token_f1([True], human, [0, 2]), "chosen, human: given [1] and [2], needed [T]"),
        (lambda: token_f1([0.5, 1], human, [0, 2]), "chosen: given other values than 0 and 1"),
        (lambda: iou_f1(human, [[[0, 3]]], [0, 2]), "spans: given 0 to 3 in text 0 of 2 words"),
        (lambda: iou_f1(human, [[[1, 1]]], [0, 2]), "spans: given 1 to 1 in text 0 of 2 words"),
        (lambda: iou_f1(human, [], [0, 2]), "spans: given 0, needed 1, for each text its own"),
        (lambda: iou_f1(human, [None], [0, 2], threshold=0), "threshold: given 0, needed more"),
        (lambda: mean_share([False], [0, 1]), "human: given no marked word, needed at least one"),
        (lambda: choose_words([1.0], [0, 1]), "share, count: given neither, needed one of them"),
        (lambda: choose_words([1.0], [0, 1], share=0.0), "share: given 0.0, needed more than 0"),
        (lambda: choose_words([1.0], [0, 1], count=-1), "count: given -1, needed 0 or more"),
        (lambda: choose_words([1.0], [0, 1], preset="mine"), "preset: given 'mine', needed one"),  # type: ignore[arg-type]
        (
            lambda: plausibility([1.0], [None], [0, 1], preset="ferret", share=0.5),
            "share: given with ferret, needed count",
        ),
        (lambda: plausibility([1.0], [None], [0, 1]), "share, count: given neither, needed one"),
        (lambda: word_importance([1.0], ["a", "b"]), "scores: given 1 score, needed 2, one for"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
