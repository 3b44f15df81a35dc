"""The rankings: each against an order worked out by hand, ties by position, NaN first."""

import numpy as np
import pytest
import torch

import fastattnerase as fae
from fastattnerase.problem import RankingKind
from fastattnerase.rankings import RANKINGS, by_kind, register
from fastattnerase.rankings.base import Ranking, descending
from fastattnerase.rankings.random import first_keys, mix64, random_keys

BACKENDS = ["reference", "auto"]


def two_class(differences, weights, bias=0.0):
    """One instance with class scores (d_i, 0): s_0 − s_1 = d_i."""
    values = torch.tensor([[d, 0.0] for d in differences], dtype=torch.float64)
    return fae.AttentionBatch(
        values,
        torch.tensor([0, len(values)]),
        weights=torch.tensor(weights, dtype=torch.float64),
        head_weight=torch.eye(2),
        head_bias=torch.tensor([bias, 0.0]),
    )


# d = (2, −1, 3, 5), a = (.4, .3, .2, .1): Σ a d = 1.6, label 0, p_0 p_1 > 0.
#   gradient ∝ d: 3, 2, 0, 1.   product ∝ a d = (.8, −.3, .6, .5): 0, 2, 3, 1.
#   renormalized_gradient ∝ a / (1 − a) (d − 1.6) = (.267, −1.114, .35, .378): 3, 2, 0, 1.
#   leave one out, z without i = (.8/.6, 1.9/.7, 1/.8, 1.1/.9) = (1.333, 2.714, 1.25, 1.222):
#   drop of σ(z): 3, 2, 0, then 1 whose probability rises; by JS item 1 moves it most: 1, 3, 2, 0.
#   greedy: 3 leaves the least, 1.222; then 0 leaves .3/.5 = .6, 1 1.4/.6, 2 .5/.7: 0; then 1
#   leaves 3 and 2 leaves −1: 2; then 1.
#   minimal: margins as product: 0, 2, 3, 1.
BY_HAND = {
    "attention": [0, 1, 2, 3],
    "gradient": [3, 2, 0, 1],
    "product": [0, 2, 3, 1],
    "renormalized_gradient": [3, 2, 0, 1],
    "leave_one_out": [1, 3, 2, 0],
    "leave_one_out_drop": [3, 2, 0, 1],
    "greedy": [3, 0, 2, 1],
    "minimal": [0, 2, 3, 1],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "order"), BY_HAND.items())
def test_orders_by_hand(name, order, backend):
    batch = two_class([2.0, -1, 3, 5], [0.4, 0.3, 0.2, 0.1])
    assert fae.rank(batch, name, backend=backend).tolist() == order


@pytest.mark.parametrize("backend", BACKENDS)
def test_renormalized_gradient_differs_from_the_gradient(backend):
    # d = (3, −1, 3, 4): Σ a d = 1.9; a / (1 − a) (d − 1.9) = (.733, −1.243, .275, .233).
    batch = two_class([3.0, -1, 3, 4], [0.4, 0.3, 0.2, 0.1])
    assert fae.rank(batch, "renormalized_gradient", backend=backend).tolist() == [0, 2, 3, 1]
    assert fae.rank(batch, "gradient", backend=backend).tolist() == [3, 0, 2, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_signed_scores_keep_their_sign(backend):
    batch = two_class([1.0, 1, 1], [0.2, 0.2, 0.6])
    assert fae.rank(batch, torch.tensor([-3.0, 1, 2]), backend=backend).tolist() == [2, 1, 0]
    assert fae.rank(batch, torch.tensor([-1.0, -2, -3]), backend=backend).tolist() == [0, 1, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_confident_models_are_not_lost(backend):
    # p_1 = σ(−60): p_0 rounds to 1, and 1 − p_0 to 0, but the order is that of d.
    batch = two_class([80.0, 40, 60], [1 / 3, 1 / 3, 1 / 3])
    assert fae.rank(batch, "gradient", backend=backend).tolist() == [0, 2, 1]
    huge = two_class([700.0, 300, 500], [1 / 3, 1 / 3, 1 / 3])
    assert fae.rank(huge, "gradient", backend=backend).tolist() == [0, 2, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_is_the_derivative_of_the_largest_probability(backend):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    weights = torch.rand(9, generator=generator, dtype=torch.float64).softmax(0)
    head = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    free = weights.clone().requires_grad_()
    largest = (head @ (free @ values)).softmax(0).max()
    (gradient,) = torch.autograd.grad(largest, free)
    batch = fae.AttentionBatch(values, torch.tensor([0, 9]), weights=weights, head_weight=head)
    for name, keys in (("gradient", gradient), ("product", gradient * weights)):
        expected = keys.argsort(descending=True).tolist()
        assert fae.rank(batch, name, backend=backend).tolist() == expected
    # Of the other class's probability it would be another order.
    assert fae.rank(batch, "gradient").tolist() != (-gradient).argsort(descending=True).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_go_to_the_lower_position(backend):
    for scores, order in (
        ([1.0, 2, 3, 3, 2, 1], [2, 3, 1, 4, 0, 5]),
        ([3.0, 1, 4, 1, 5, 9, 2, 6, 5], [5, 7, 4, 8, 2, 0, 6, 1, 3]),
        ([0.0, -0.0, 0.0], [0, 1, 2]),
    ):
        batch = two_class([1.0] * len(scores), [1.0] * len(scores))
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            given = torch.tensor(scores, dtype=dtype)
            assert fae.rank(batch, given, backend=backend).tolist() == order
    n = 10_000
    uniform = two_class([1.0] * n, [1 / n] * n)
    for name in ("attention", "gradient", "product", "minimal"):
        assert fae.rank(uniform, name, backend=backend).tolist() == list(range(n))


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_sorts_by_score_where_weights_underflow(backend):
    batch = fae.AttentionBatch(
        torch.eye(4),
        torch.tensor([0, 4]),
        scores=torch.tensor([-2000.0, -1500, 0, -torch.inf]),
        head_weight=torch.eye(4),
    )
    assert fae.rank(batch, "attention", backend=backend).tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_orders_are_these_and_depend_on_nothing_else(backend):
    # Literal orders: a change here breaks the reproducibility of everybody's saved results.
    head = torch.eye(2)
    batch = fae.AttentionBatch(
        torch.zeros(24, 2),
        torch.tensor([0, 8, 16, 24]),
        scores=torch.zeros(24),
        head_weight=head,
        ids=torch.tensor([0, 41, -1]),
    )
    orders = {
        (0, 0): fae.rank(batch, "random", backend=backend)[:8],
        (0, 1): fae.rank(batch, "random", order=1, backend=backend)[:8],
        (7, 3): fae.rank(batch, "random", seed=7, order=3, backend=backend)[8:16],
        (2**63 - 1, 0): fae.rank(batch, "random", seed=2**63 - 1, backend=backend)[16:],
    }
    assert {key: order.tolist() for key, order in orders.items()} == {
        (0, 0): [5, 3, 2, 7, 6, 4, 0, 1],
        (0, 1): [2, 1, 0, 7, 4, 3, 6, 5],
        (7, 3): [4, 2, 0, 5, 3, 1, 7, 6],
        (2**63 - 1, 0): [7, 1, 2, 6, 3, 0, 4, 5],
    }
    state = torch.get_rng_state()
    alone = fae.rank(batch[1:2], "random", seed=7, order=3, backend=backend)
    assert torch.equal(alone, orders[7, 3])
    assert torch.equal(torch.get_rng_state(), state)


def test_random_keys_are_those_of_splitmix64():
    # 0xE220A8397B1DCDAF is the known first output of splitmix64 from state 0.
    assert mix64(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert [hex(key) for key in random_keys(0, 0, 0, 2)] == [
        "0x2130748aaac80268",
        "0xcc78fb979ce5090",
    ]


def test_first_keys_of_many_instances_are_those_of_each():
    ids = [0, 1, 5, 2**62, -3, -1, 123_456_789]
    for seed in (0, 7, 2**63 - 1):
        for order in (0, 1 << 32, (1 << 32) + 2):
            expected = [random_keys(seed, order, instance, 1)[0] for instance in ids]
            assert first_keys(seed, order, np.array(ids)).tolist() == expected


def test_random_orders_are_uniform():
    n, draws = 4, 2000
    batch = fae.AttentionBatch(
        torch.zeros(n * draws, 2),
        torch.arange(0, n * draws + 1, n),
        scores=torch.zeros(n * draws),
        head_weight=torch.eye(2),
    )
    first = fae.rank(batch, "random", seed=11)[::n]
    counts = torch.bincount(first, minlength=n)
    # Binomial with p = 1/4: 500 ± 19.4; five standard deviations.
    assert ((counts - draws / n).abs() < 97).all()


def test_rows_of_a_given_order_and_of_its_scores_agree():
    batch = two_class([2.0, -1, 3, 5], [0.4, 0.3, 0.2, 0.1])
    order = torch.tensor([2, 0, 3, 1])
    scores = torch.tensor([3.0, 1, 4, 2])
    result = fae.erase_prefixes(batch, [order, scores], curves=("logits",))
    assert torch.equal(result.curves["logits"][0], result.curves["logits"][1])
    assert torch.equal(fae.rank(batch, order), order)


@pytest.mark.parametrize("backend", BACKENDS)
def test_orders_stay_permutations_where_something_is_not_finite(backend):
    batch = fae.AttentionBatch(
        torch.tensor([[1.0, 0], [float("nan"), 0], [3, 0]]),
        torch.tensor([0, 3]),
        weights=torch.tensor([0.2, 0.3, 0.5]),
        head_weight=torch.eye(2),
    )
    for name in BY_HAND:
        order = [2, 1, 0] if name == "attention" else [0, 1, 2]
        assert fae.rank(batch, name, backend=backend).tolist() == order, name
    scores = fae.AttentionBatch(
        torch.eye(4),
        torch.tensor([0, 4]),
        scores=torch.tensor([1.0, torch.inf, torch.nan, 2.0]),
        head_weight=torch.eye(4),
    )
    assert fae.rank(scores, "attention", backend=backend).tolist() == [2, 1, 3, 0]


def test_descending_puts_nan_first():
    keys = torch.tensor([1.0, torch.nan, torch.inf, torch.nan, -torch.inf])
    assert descending(keys).tolist() == [1, 3, 2, 0, 4]


def test_every_kind_but_the_given_ones_has_a_ranking():
    given = {RankingKind.GIVEN_ORDER, RankingKind.GIVEN_KEYS}
    kinds = {ranking.kind for ranking in RANKINGS.values()} - {None}
    assert kinds == set(RankingKind) - given
    for name, ranking in RANKINGS.items():
        assert ranking.name == name
        assert ranking.doc
    for kind in kinds:
        assert by_kind(kind).kind == kind


def test_names_and_kinds_are_registered_once():
    taken = RANKINGS["attention"]
    register(taken)  # the same one
    other = Ranking("attention", None, "another", taken.order)
    with pytest.raises(ValueError, match="given 'attention', which is registered already, needed"):
        register(other)
    with pytest.raises(ValueError, match="given 'attention', which backends compute, needed"):
        register(other, overwrite=True)
    with pytest.raises(ValueError, match="kind: given ATTENTION for 'new', needed None"):
        register(Ranking("new", taken.kind, taken.doc, taken.order))
    assert RANKINGS["attention"] is taken
