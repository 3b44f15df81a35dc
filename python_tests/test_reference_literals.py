"""The specification against numbers worked out by hand, all on the reference backend."""

import math

import pytest
import torch

import fastattnerase as fae

INF, NAN = math.inf, math.nan
CURVES = ("js", "kl", "label_prob", "mass", "decision", "logits")


def batch_of(contributions, weights=None, scores=None, bias=None, dtype=torch.float64):
    """One instance whose values are the class scores themselves: the head is the identity."""
    values = torch.tensor(contributions, dtype=dtype)
    given = {"weights": weights} if scores is None else {"scores": scores}
    return fae.AttentionBatch(
        values,
        torch.tensor([0, len(values)]),
        **{name: torch.tensor(x, dtype=torch.float64) for name, x in given.items()},
        head_weight=torch.eye(values.shape[1]),
        head_bias=None if bias is None else torch.tensor(bias, dtype=torch.float64),
    )


def sweep(batch, rankings=("attention",), **options):
    return fae.sweep(batch, rankings, curves=CURVES, backend="reference", **options)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# Items (4, 0), (0, 2), (0, 4) with weights 1/2, 1/4, 1/4. Pooled: (2, 1/2 + 1) = (2, 1.5): label 0.
# Margins a (s_0 − s_1): 2, −1/2, −1. By attention (ties by position) the order is 0, 1, 2:
#   k = 1: (0, 2/4 + 4/4) / (1/2) = (0, 3): class 1;  k = 2: (0, 4): class 1;  k = 3: bias: class 0.
THREE = {"contributions": [[4.0, 0], [0, 2], [0, 4]], "weights": [0.5, 0.25, 0.25]}


def test_erasing_prefixes_by_hand():
    prefixes = sweep(batch_of(**THREE)).prefixes
    assert prefixes.label.tolist() == [0]
    assert prefixes.probabilities[0].tolist() == pytest.approx([sigmoid(0.5), sigmoid(-0.5)])
    assert prefixes.first_flip.tolist() == [[1]]
    assert prefixes.flip_label.tolist() == [[1]]
    assert prefixes.fraction.tolist() == [[1 / 3]]
    assert prefixes.removed_mass.tolist() == [[0.5]]
    assert prefixes.status.tolist() == [0]
    assert prefixes.curve_offsets.tolist() == [0, 4]
    curves = {name: curve[0].tolist() for name, curve in prefixes.curves.items()}
    assert curves["decision"] == [0, 1, 1, 0]
    assert curves["mass"] == [1, 0.5, 0.25, 0]
    assert curves["logits"] == [[2, 1.5], [0, 3], [0, 4], [0, 0]]
    assert curves["label_prob"] == pytest.approx([sigmoid(0.5), sigmoid(-3), sigmoid(-4), 0.5])
    p, q = (sigmoid(0.5), sigmoid(-0.5)), (sigmoid(-3), sigmoid(3))
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    js = sum(a * math.log(a / m) for a, m in zip(p, middle, strict=True)) / 2
    js += sum(b * math.log(b / m) for b, m in zip(q, middle, strict=True)) / 2
    assert curves["js"][1] == pytest.approx(js, abs=1e-12)
    assert curves["kl"][1] == pytest.approx(
        sum(b * math.log(b / a) for a, b in zip(p, q, strict=True)), abs=1e-12
    )
    assert curves["js"][0] == curves["kl"][0] == 0


def test_keeping_prefixes_by_hand():
    # The top item alone gives (4, 0): the label, so k = 1; the other half of the mass is left out.
    # k = 0 keeps nothing: logits 0, class 0. Top two: (2, 1/2) / (3/4) = (8/3, 2/3).
    prefixes = sweep(batch_of(**THREE), direction="keep").prefixes
    assert prefixes.first_flip.tolist() == [[1]]
    assert prefixes.flip_label.tolist() == [[0]]
    assert prefixes.removed_mass.tolist() == [[0.5]]
    curves = prefixes.curves
    assert curves["decision"].tolist() == [[0, 0, 0, 0]]
    assert curves["mass"].tolist() == [[0, 0.5, 0.75, 1]]
    torch.testing.assert_close(
        curves["logits"][0],
        torch.tensor([[0, 0], [4, 0], [8 / 3, 2 / 3], [2, 1.5]], dtype=torch.float64),
    )
    # Worst first: (0, 4) alone is class 1, with (0, 2) still class 1, all three give the label.
    worst = sweep(batch_of(**THREE), [torch.tensor([2, 1, 0])], direction="keep").prefixes
    assert worst.first_flip.tolist() == [[3]]
    assert worst.removed_mass.tolist() == [[0]]
    assert worst.curves["decision"].tolist() == [[0, 1, 1, 0]]


def test_erasing_each_by_hand():
    # Without item 0: (0, 3) flips; without 1: (2, 1) / (3/4); without 2: (2, 1/2) / (3/4).
    single = sweep(batch_of(**THREE)).single
    assert single.flip.tolist() == [True, False, False]
    assert single.flip_label.tolist() == [1, -1, -1]
    drops = [sigmoid(0.5) - sigmoid(x) for x in (-3, 4 / 3, 2)]
    assert single.label_prob_drop.tolist() == pytest.approx(drops, abs=1e-12)


def test_minimal_set_by_hand():
    # Margins against class 1: 0.8, −0.3, 0.6, 0.5, in all 1.6. In the order 0, 2, 3 the survivors'
    # sums are 0.8, 0.2, −0.3: three items.
    batch = batch_of([[2.0, 0], [-1, 0], [3, 0], [5, 0]], [0.4, 0.3, 0.2, 0.1])
    minimal = sweep(batch).minimal
    assert minimal.size.tolist() == [3]
    assert minimal.flip_label.tolist() == [1]
    assert minimal.order.tolist() == [0, 2, 3, 1]


def test_minimal_set_takes_the_lowest_class_and_erases_all_mass_where_the_bias_decides():
    # Item 0 carries class 0; without it (0, 1, 1): classes 1 and 2 are both reached at size 1.
    tied = sweep(batch_of([[4.0, 0, 0], [0, 1, 1]], [0.5, 0.5])).minimal
    assert (tied.size.tolist(), tied.flip_label.tolist()) == ([1], [1])
    # Every item says class 0 by 3, the bias class 1 by 1; the item of weight zero is not needed.
    bias = sweep(batch_of([[3.0, 0], [3, 0], [3, 0]], [0.5, 0, 0.5], bias=[0.0, 1.0])).minimal
    assert (bias.size.tolist(), bias.flip_label.tolist()) == ([2], [1])
    assert bias.order.tolist() == [0, 2, 1]
    # Nothing flips: the order is by margin against the runner-up, class 2.
    never = sweep(batch_of([[3.0, 0, 2], [3, 0, 1]], [0.5, 0.5])).minimal
    assert (never.size.tolist(), never.flip_label.tolist()) == ([-1], [-1])
    assert never.order.tolist() == [1, 0]


def test_ties_go_to_the_lowest_class():
    # (1, 1): label 0. Without item 0 (0, 2), without item 1 (2, 0).
    tie = sweep(batch_of([[2.0, 0], [0, 2]], [0.5, 0.5]))
    assert tie.prefixes.label.tolist() == [0]
    assert tie.prefixes.first_flip.tolist() == [[1]]
    assert tie.prefixes.status.tolist() == [fae.Status.NEAR_TIE]
    # Label 1 by (0, 1); without item 0 a tie, which class 0 wins.
    low = sweep(batch_of([[0.0, 2], [1, 1]], [0.5, 0.5])).prefixes
    assert low.label.tolist() == [1]
    assert low.first_flip.tolist() == [[1]]
    assert low.flip_label.tolist() == [[0]]
    # Label 0; without item 0 a tie with class 1, which class 0 still wins.
    stays = sweep(batch_of([[2.0, 0], [1, 1]], [0.5, 0.5])).prefixes
    assert stays.first_flip.tolist() == [[-1]]
    # Logits of a whole instance that tie.
    many = sweep(batch_of([[2.0, 3, 0, 3, 3]], [1.0])).prefixes
    assert many.label.tolist() == [1]


def test_empty_and_single():
    empty = fae.AttentionBatch(
        torch.zeros(1, 2),
        torch.tensor([0, 0, 1]),
        scores=torch.zeros(1),
        head_weight=torch.eye(2),
        head_bias=torch.tensor([0.0, 2.0]),
    )
    result = sweep(empty)
    prefixes = result.prefixes
    assert prefixes.status.tolist() == [fae.Status.EMPTY, fae.Status.SINGLE]
    assert prefixes.label.tolist() == [1, 1]
    assert prefixes.first_flip.tolist() == [[-1, -1]]
    assert prefixes.curve_offsets.tolist() == [0, 1, 3]
    assert prefixes.curves["decision"].tolist() == [[1, 1, 1]]
    assert prefixes.curves["mass"].tolist() == [[0, 1, 0]]
    assert prefixes.curves["js"].tolist() == [[0, 0, 0]]
    assert prefixes.removed_mass.isnan().all()
    assert result.minimal.size.tolist() == [-1, -1]
    assert result.single.flip.tolist() == [False]


@pytest.mark.parametrize("given", [{"weights": [0.0, 0.0]}, {"scores": [-INF, -INF]}])
def test_no_mass_at_all(given):
    result = sweep(batch_of([[4.0, 0], [4, 0]], bias=[0.0, 1.0], **given))
    prefixes = result.prefixes
    assert prefixes.status.tolist() == [fae.Status.ZERO_MASS]
    assert prefixes.label.tolist() == [1]
    assert prefixes.probabilities[0].tolist() == pytest.approx([sigmoid(-1), sigmoid(1)])
    assert prefixes.first_flip.tolist() == [[-1]]
    assert prefixes.curves["decision"].tolist() == [[1, 1, 1]]
    assert prefixes.curves["js"].tolist() == [[0, 0, 0]]
    assert prefixes.curves["mass"].tolist() == [[0, 0, 0]]
    assert result.single.js.tolist() == [0, 0]
    assert result.single.flip.tolist() == [False, False]
    assert result.minimal.size.tolist() == [-1]


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ({1: [NAN, 0.0]}, {"weights": [0.5, 0.25, 0.25]}),
        ({1: [INF, 0.0]}, {"weights": [0.5, 0.25, 0.25]}),
        ({1: [1e39, 0.0]}, {"weights": [0.5, 0.25, 0.25]}),  # overflows in float32
        ({}, {"weights": [0.5, NAN, 0.25]}),
        ({}, {"weights": [0.5, INF, 0.25]}),
        ({}, {"scores": [1.0, NAN, 0.0]}),
        ({}, {"scores": [1.0, INF, 0.0]}),
    ],
)
def test_a_bad_item_leaves_no_trace_once_erased(change, given):
    contributions = [change.get(i, row) for i, row in enumerate([[4.0, 0], [0, 2], [0, 4]])]
    result = sweep(batch_of(contributions, dtype=torch.float32, **given), [torch.tensor([0, 1, 2])])
    prefixes = result.prefixes
    assert prefixes.status.tolist() == [fae.Status.NON_FINITE]
    assert prefixes.label.tolist() == [-1]
    assert prefixes.first_flip.tolist() == [[-1]]
    assert prefixes.probabilities.isnan().all()
    assert prefixes.curves["decision"].tolist() == [[-1, -1, 1, 0]]
    logits = prefixes.curves["logits"][0]
    assert logits[:2].isnan().all()
    assert logits[2:].tolist() == [[0, 4], [0, 0]]
    assert prefixes.curves["mass"].isfinite().all()
    for name in ("js", "kl", "label_prob"):
        assert prefixes.curves[name].isnan().all()
    assert result.single.flip_label.tolist() == [-1, -1, -1]
    assert result.single.js.isnan().all()
    assert result.minimal.size.tolist() == [-1]
    assert result.minimal.order.tolist() == [0, 1, 2]


def test_a_bad_bias_never_becomes_valid():
    prefixes = sweep(batch_of([[4.0, 0], [0, 2]], [0.5, 0.5], bias=[0.0, NAN])).prefixes
    assert prefixes.status.tolist() == [fae.Status.NON_FINITE]
    assert prefixes.curves["decision"].tolist() == [[-1, -1, -1]]
    assert prefixes.curves["logits"].isnan().all()


def test_one_bad_instance_changes_no_other():
    good = batch_of(**THREE)
    bad = batch_of([[NAN, 0.0]], [1.0])
    both = sweep(fae.AttentionBatch.cat([bad, good]), ["attention", "gradient", "greedy"])
    alone = sweep(good, ["attention", "gradient", "greedy"])
    assert both.prefixes.status.tolist() == [fae.Status.NON_FINITE | fae.Status.SINGLE, 0]
    assert torch.equal(both.prefixes.first_flip[:, 1:], alone.prefixes.first_flip)
    assert torch.equal(both.prefixes.curves["js"][:, 2:], alone.prefixes.curves["js"])
    assert torch.equal(both.single.js[1:], alone.single.js)


def test_scores_that_span_more_than_floats_do():
    # exp(-1000) and exp(-2000) are zero in float64, yet erasing item 0 leaves the softmax of the
    # rest exactly on item 1, and erasing both leaves item 2.
    batch = batch_of([[4.0, 0], [0, 2], [3, 0]], scores=[0.0, -1000.0, -2000.0])
    result = sweep(batch)
    prefixes = result.prefixes
    assert prefixes.status.tolist() == [fae.Status.UNDERFLOW]
    assert prefixes.curves["logits"][0].tolist() == [[4, 0], [0, 2], [3, 0], [0, 0]]
    assert prefixes.curves["decision"].tolist() == [[0, 1, 0, 0]]
    assert result.single.flip_label.tolist() == [1, -1, -1]
    assert result.minimal.size.tolist() == [1]
    # By sign, then by score + log |difference|: the positive margins 0 and 2, then item 1.
    assert result.minimal.order.tolist() == [0, 2, 1]


def test_scores_of_masked_columns_in_half_precision():
    masked = torch.tensor([1.0, 2.0, -65504.0], dtype=torch.float16)
    batch = fae.AttentionBatch(
        torch.eye(3), torch.tensor([0, 3]), scores=masked, head_weight=torch.eye(3)
    )
    logits = sweep(batch).prefixes.curves["logits"][0, 0]
    assert logits.tolist() == pytest.approx([sigmoid(-1), sigmoid(1), 0])
    lowest = torch.full((3,), torch.finfo(torch.float32).min)
    uniform = fae.AttentionBatch(
        torch.eye(3), torch.tensor([0, 3]), scores=lowest, head_weight=torch.eye(3)
    )
    assert sweep(uniform).prefixes.curves["logits"][0, 0].tolist() == pytest.approx([1 / 3] * 3)


def test_tiny_remainders_are_not_lost():
    # Erasing item 0 leaves weights 1e-20 each: the mean of the last two, by total minus prefix 0/0.
    batch = batch_of([[1.0, 0], [2, 0], [4, 0]], [1.0, 1e-20, 1e-20])
    result = sweep(batch)
    assert result.prefixes.curves["logits"][0, 1].tolist() == [3, 0]
    assert result.single.label_prob_drop[0] == pytest.approx(sigmoid(1) - sigmoid(3), abs=1e-12)


def test_tail_sums_survive_peaked_attention():
    # Attention scores of standard deviation 4: every prefix against exact rational sums.
    from fractions import Fraction

    generator = torch.Generator().manual_seed(1)
    n = 300
    scores = 4 * torch.randn(n, generator=generator, dtype=torch.float64)
    values = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    weights = (scores - scores.max()).exp()
    batch = batch_of(values.tolist(), weights=weights.tolist())
    curve = sweep(batch).prefixes.curves["logits"][0]
    order = fae.rank(batch, "attention", backend="reference").tolist()
    for k in (1, n // 2, n - 3):
        left = [(Fraction(float(weights[i])), Fraction(float(values[i, 0]))) for i in order[k:]]
        exact = float(sum(a * s for a, s in left) / sum(a for a, _ in left))
        assert float(curve[k, 0]) == pytest.approx(exact, rel=1e-12)


def test_js_of_extreme_logits_stays_within_its_bounds():
    batch = batch_of([[1e4, 0.0], [0, 1e4], [1e4, 0]], [0.4, 0.2, 0.4])
    curves = sweep(batch).prefixes.curves
    assert curves["js"].min() >= 0
    assert curves["js"].max() <= math.log(2)
    assert curves["kl"].isfinite().all()
    # The whole says class 0 by 6000, item 1 alone class 1 by 10000: as far apart as JS goes.
    order = torch.tensor([0, 2, 1])
    far = sweep(batch, [order]).prefixes.curves["js"][0, 2]
    assert float(far) == pytest.approx(math.log(2), abs=1e-12)


def test_equal_values_never_flip():
    batch = batch_of([[1.0, 2], [1, 2], [1, 2]], [0.2, 0.5, 0.3], bias=[0.0, 1.0])
    result = sweep(batch, ["attention", "gradient", "product", "leave_one_out", "greedy"])
    assert (result.prefixes.first_flip == -1).all()
    assert result.single.flip.tolist() == [False] * 3
    assert result.minimal.size.tolist() == [-1]


def test_unchecked_bad_input_is_marked_and_no_other_instance_changes():
    values = torch.tensor([[4.0, 0], [0, 2], [0, 4], [1, 0]])
    offsets = torch.tensor([0, 2, 4])
    batch = fae.AttentionBatch(
        values, offsets, weights=torch.tensor([-1.0, 1, 1, 1]), head_weight=torch.eye(2)
    )
    result = sweep(batch, validate=False)
    assert result.prefixes.status.tolist() == [fae.Status.INVALID, 0]
    assert result.prefixes.label.tolist() == [-1, 1]
    assert result.prefixes.curves["decision"].tolist() == [[-1, -1, -1, 1, 0, 0]]
    assert result.prefixes.curves["mass"][0, :3].isnan().all()
    assert result.minimal.size.tolist() == [-1, 1]
    fine = fae.AttentionBatch(values, offsets, weights=torch.ones(4), head_weight=torch.eye(2))
    for ranking in (torch.tensor([0, 0, 0, 1]), torch.tensor([NAN, 1.0, 2.0, 1.0])):
        status = sweep(fine, [ranking], validate=False).prefixes.status
        assert status.tolist() == [fae.Status.INVALID, 0]
