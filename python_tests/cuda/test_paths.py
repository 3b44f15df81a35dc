"""The emulated kernels against the reference on every path: pack, warp, block, big block, long.

An emulated device with little shared memory sends short instances down the paths of long ones.
"""

from __future__ import annotations

from dataclasses import fields, replace

import emulator
import pytest
import torch
from gpus import GPUS
from torch import Tensor

from fastattnerase.backends import reference
from fastattnerase.backends.addresses import sweep_fields
from fastattnerase.problem import (
    BIT,
    Outputs,
    PooledProblem,
    Problem,
    RankingKind,
    allocate,
    as_outputs,
)


def every(prefix: str) -> int:
    """The bits of the results whose names begin so."""
    return sum(bit for name, bit in BIT.items() if name.startswith(prefix))


EVERYTHING, CURVES, SINGLES, MINIMAL = map(every, ("", "curve_", "single_", "minimal_"))
NO_CURVES = EVERYTHING & ~CURVES
ORDER, LOGITS, WEIGHTS, SINGLE_KL = (
    BIT[name] for name in ("order", "logits", "weights", "single_kl")
)
H100 = (GPUS["H100"].shared_of_block, GPUS["H100"].quarter)
ALL = tuple(RankingKind)
QUICK = tuple(kind for kind in ALL if kind != RankingKind.GREEDY)
# Divergences of single items may be near enough to each other for another order (contract, 8).
PLAIN = tuple(kind for kind in QUICK if kind != RankingKind.LEAVE_ONE_OUT)


def use_device(shared: int | tuple[int, int], multiprocessors: int = 2) -> None:
    """Shared memory of a block, and of one of four on a multiprocessor where that is less."""
    whole, quarter = shared if isinstance(shared, tuple) else (shared, shared)
    emulator.module().set_device(multiprocessors, whole, quarter)


@pytest.fixture
def cuda():
    backend = emulator.load()
    yield backend
    use_device(H100)
    emulator.module().set_schedule("forward")


@pytest.fixture
def dirty(monkeypatch):
    """Scratch memory is full of ones, which no counter, flag or sum may start from."""
    empty = torch.empty

    def full(*size, **options):
        tensor = empty(*size, **options)
        return tensor.fill_(255) if tensor.dtype == torch.uint8 else tensor

    monkeypatch.setattr(torch, "empty", full)


def problem(
    lengths: list[int],
    D: int,
    C: int,
    kinds: tuple[RankingKind, ...] = ALL,
    dtype: torch.dtype = torch.float32,
    is_scores: bool = True,
    keep: bool = False,
    spread: float = 1.0,
) -> Problem:
    g = torch.Generator().manual_seed(len(lengths) * 1000 + D * 10 + C)
    T = sum(lengths)
    head = torch.float64 if dtype == torch.float64 else torch.float32
    attention = torch.randn(T, 1, generator=g) * spread
    order = [torch.randperm(n, generator=g) for n in lengths]
    return Problem(
        values=torch.randn(T, 1, D, generator=g, dtype=torch.float64).to(dtype),
        offsets=torch.tensor([0, *lengths]).cumsum(0),
        attention=attention if is_scores else attention.abs(),
        is_scores=is_scores,
        head_weight=torch.randn(C, 1, D, generator=g, dtype=torch.float64).to(head),
        head_bias=torch.randn(len(lengths), C, generator=g).to(head) * 0.1,
        ids=torch.arange(len(lengths)) + 5,
        rankings=kinds,
        ranking_args=(0,) * len(kinds),
        orders=(torch.cat(order),),
        keys=(torch.randn(T, generator=g),),
        seed=7,
        keep=keep,
        validate=False,
    )


def by_hand(
    n: int,
    values: list | dict[int, object],
    head: list,
    *,
    orders: list[list[int]] | None = None,
    bias: list[float] | None = None,
    rest: float = 0.0,
    all_weigh: bool = False,
    keep: bool = False,
) -> Problem:
    """One instance of n items: the first, or those at the keys, have these values and weight 1.

    The others have the value `rest` and, unless all weigh the same, no weight. An order begins with
    the items it lists; the others follow by position.
    """
    weights = torch.tensor(head).reshape(len(head), 1, -1)  # [C, 1, D]
    orders = orders or []
    kinds = (RankingKind.GIVEN_ORDER,) * len(orders)
    p = problem([n], weights.shape[2], len(head), kinds, is_scores=False, keep=keep)
    p.values.fill_(rest)
    p.attention.fill_(float(all_weigh))
    for i, value in values.items() if isinstance(values, dict) else enumerate(values):
        p.values[i, 0] = torch.tensor(value)
        p.attention[i] = 1
    p.head_weight.copy_(weights)
    p.head_bias[:] = torch.tensor(bias or [0.0] * len(head))
    given = [[*first, *(i for i in range(n) if i not in first)] for first in orders]
    return replace(
        p, orders=tuple(map(torch.tensor, given)), ranking_args=tuple(range(len(orders)))
    )


def run(backend, problem: Problem, wants: int = EVERYTHING) -> Outputs:
    results = allocate(
        problem.values,
        problem.offsets,
        problem.head_weight.shape[0],
        len(problem.rankings),
        wants,
    )
    for tensor in results:
        tensor.fill_(-77)
    out = as_outputs(results, wants)
    backend.sweep(problem, out)
    return out


def assert_close(out: Outputs, expected: Outputs) -> None:
    for field in fields(Outputs):
        x, y = getattr(out, field.name), getattr(expected, field.name)
        if x is None:
            continue
        if x.is_floating_point():
            torch.testing.assert_close(
                x, y, rtol=2e-5, atol=2e-6, equal_nan=True, msg=lambda m, f=field: f"{f.name}: {m}"
            )
        else:
            assert torch.equal(x, y), field.name


# Shared memory of a block, and lengths on both sides of what a warp and the blocks take.
# Up to 16 items are packed, a lane an instance, where neither curves nor greedy orders are wanted.
PATHS = {
    "pack": (H100, [7, 5, 1, 3, 2, 16, 9]),
    "short": (H100, [7, 5, 1, 0, 3, 2, 64]),
    "block": (H100, [65, 130, 257]),
    "big": ((H100[0], 12000), [70, 150, 260]),
    "large": (4000, [7, 40, 20]),
    "long": (3000, [7, 70, 20, 0, 1, 120]),
}
# And one where each thread scans a contiguous range of ranks.
PATHS_AND_LONGER = {**PATHS, "longer": (3000, [2200])}


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled", "by_warp"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.long_where(these=lambda p: p["order"] in ("backward", "shuffled"))
def test_every_result_on_every_path(cuda, path, order):
    shared, lengths = PATHS[path]
    use_device(shared)
    emulator.module().set_schedule(order, 11)
    p = problem(lengths, 20, 5, ALL if max(lengths) < 100 else QUICK)
    assert_close(run(cuda, p), run(reference.BACKEND, p))


@pytest.mark.parametrize("wants", [EVERYTHING, NO_CURVES], ids=["curves", "plain"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_exact_ties_and_items_without_weight(cuda, path, keep, wants):
    """Whole numbers and weights that are a power of two or nothing: every sum is exact."""
    shared, lengths = PATHS[path]
    use_device(shared)
    kinds = (
        RankingKind.ATTENTION,
        RankingKind.RANDOM,
        RankingKind.GIVEN_ORDER,
        RankingKind.GIVEN_KEYS,
        RankingKind.MINIMAL,
    )
    for C in (2, 5):
        p = problem(lengths, 2, C, kinds, is_scores=False, keep=keep)
        g = torch.Generator().manual_seed(C)
        for tensor in (p.values, p.head_weight, p.head_bias):
            tensor.copy_(torch.randint(-1, 2, tensor.shape, generator=g))
        p.attention.zero_()
        for begin, n in zip(p.offsets.tolist(), lengths, strict=False):
            some = torch.randperm(n, generator=g)[: 1 << max(0, n.bit_length() - 2)]
            p.attention[begin + some] = 1
        assert_close(run(cuda, p, wants), run(reference.BACKEND, p, wants))


@pytest.mark.parametrize("wants", [CURVES, 0], ids=["curves", "plain"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("path", PATHS_AND_LONGER)
def test_a_tie_behind_the_first_flip_is_none(cuda, path, keep, wants):
    """Erasing: sums 3, -1 (flips), 0, 1. Keeping: 1 (flips), 0, 1, 2. The rest weighs nothing."""
    shared, lengths = PATHS_AND_LONGER[path]
    use_device(shared)
    values = [1.0, -1, 1, 1] if keep else [4.0, -1, -1, 1]
    p = by_hand(max(lengths), values, [1.0, -1], orders=[[]], rest=5, keep=keep)
    out = run(cuda, p, wants)
    assert (out.first_flip.item(), out.status.item()) == (1, 0)


@pytest.mark.parametrize("wants", [CURVES, 0], ids=["curves", "plain"])
@pytest.mark.parametrize("path", PATHS_AND_LONGER)
def test_nothing_erased_is_the_label_whatever_the_order_rounds_to(cuda, path, wants):
    """Class 1 has 2^53 + 1 - 2^53: 0 by position, a tie; 1 with the large ones first, class 1."""
    shared, lengths = PATHS_AND_LONGER[path]
    use_device(shared)
    values = [2.0**53, 1, -(2.0**53), 0]
    p = by_hand(max(lengths), values, [0.0, 1], orders=[[1, 0]])
    out = run(cuda, p, wants)
    assert (out.label.item(), out.first_flip.item()) == (0, -1)


@pytest.mark.parametrize("wants", [CURVES, 0], ids=["curves", "plain"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("path", PATHS_AND_LONGER)
def test_only_nothing_left_flips(cuda, path, keep, wants):
    """Each item speaks for class 0, the biases for 3: all must go, or one be there."""
    shared, lengths = PATHS_AND_LONGER[path]
    use_device(shared)
    n = max(lengths)
    for last in (n - 1, n - 3):  # the rest weighs nothing
        values = dict.fromkeys(range(last % 5, last + 1, 5), 1.0)
        p = by_hand(n, values, [9.0, 0, 0, 0], orders=[[]], bias=[0, 1, 2, 3], keep=keep)
        out = run(cuda, p, wants)
        assert (out.label.item(), out.first_flip.item()) == (0, last % 5 + 1 if keep else last + 1)
        assert out.flip_label.item() == (0 if keep else 3)


def limits(p: Problem, wants: int) -> list[int]:
    """Items of the longest instance that a warp, a block and a big block take."""
    results = allocate(p.values, p.offsets, len(p.head_weight), len(p.rankings), wants)
    fields = sweep_fields(p, p.values, as_outputs(results, wants), 1)
    return list(emulator.module().limits(**fields))


# Of a smaller multiprocessor fewer items fit a block: ten classes, QUICK[:4], every result but
# curves. Where 512 is one's limit, the next power of two does not fit: a sort pads to it.
LIMITS = {
    "A100": [64, 428, 1182],
    "A10": [62, 220, 512],
    "RTX 4090": [62, 220, 512],
    "H100": [64, 512, 2011],
    "B200": [64, 512, 2011],
    "RTX 5090": [62, 220, 512],
}


@pytest.mark.parametrize("gpu", GPUS)
def test_both_sides_of_every_switch_of_path(cuda, gpu):
    """The longest instance that a path takes, and one item more; each path has others beside it."""
    emulator.use(GPUS[gpu])
    assert limits(problem([9], 20, 10, QUICK[:4]), NO_CURVES) == LIMITS[gpu]
    kinds = (RankingKind.ATTENTION, RankingKind.RANDOM)
    for wants, C in ((NO_CURVES, 10), (CURVES | MINIMAL, 3)):
        ends = limits(problem([9], 20, C, kinds), wants)
        assert ends == sorted(set(ends))
        # The longest are as long as a tile of a sort of long instances at most.
        lengths = [n for end in ends if end < 4096 for n in (end, end + 1)]
        p = problem([*lengths, 3, 0, 17], 20, C, kinds)
        assert_close(run(cuda, p, wants), run(reference.BACKEND, p, wants))


INVALID = 64


@pytest.mark.parametrize("path", PATHS)
def test_one_item_alone_where_a_total_cancels(cuda, path):
    """An item with nearly all the weight, or with a value of 1e14: the others' sums stay exact."""
    shared, lengths = PATHS[path]
    use_device(shared)
    lengths = lengths * (4 if max(lengths) < 100 else 1)
    heavy = problem(lengths, 8, 3, ())
    heavy.attention.zero_()
    heavy.head_weight.mul_(1e-15)
    heavy.head_bias.zero_()
    large = problem(lengths, 8, 3, ())
    large.attention.zero_()
    for begin, n in zip(heavy.offsets.tolist(), lengths, strict=False):
        heavy.attention[begin : begin + min(n, 1)] = 36
        large.values[begin : begin + min(n, 1)] *= 1e14
    for p in (heavy, large):
        expected = run(reference.BACKEND, p, SINGLES)
        for order in ("forward", "backward", "shuffled"):
            emulator.module().set_schedule(order, 5)
            assert_close(run(cuda, p, SINGLES), expected)


@pytest.mark.parametrize("wants", [SINGLES, SINGLE_KL], ids=["singles", "kl"])
@pytest.mark.parametrize("path", PATHS)
def test_the_divergence_from_a_probability_that_underflows(cuda, path, wants):
    """Logits 1999 apart; without the first item they are -1 and 1, q = (0.12, 0.88)."""
    shared, lengths = PATHS[path]
    use_device(shared)
    p = by_hand(max(lengths), [2000.0, -1.0], [1.0, -1])
    out = run(cuda, p, wants)
    q = torch.tensor([-1.0, 1.0]).softmax(0).double()
    assert out.probabilities.tolist() == [[1, 0]]
    assert out.single_kl is not None
    expected = (q * q.log()).sum() + 1999 * q[1]  # log p is 0 and -1999
    assert out.single_kl[0].item() == pytest.approx(expected.item(), rel=1e-6)
    assert out.single_kl[2:].tolist() == [0] * (max(lengths) - 2)


@pytest.mark.parametrize("path", PATHS)
def test_no_divergence_of_an_item_alone_is_negative(cuda, path):
    """Items without weight leave the same distribution, up to rounding on either side."""
    shared, lengths = PATHS[path]
    use_device(shared)
    p = problem(lengths, 8, 5, (), torch.float64, is_scores=False)
    p.attention[::2] = 0
    out = run(cuda, p, SINGLE_KL)
    assert out.single_kl is not None
    assert bool((out.single_kl >= 0).all())
    assert bool((out.single_kl[::2] < 1e-15).all())


@pytest.mark.parametrize("path", PATHS)
def test_logits_and_weights_of_what_is_not_finite_or_empty(cuda, path):
    """NaN where an own weight is not finite, or any logit; the bias where nothing weighs."""
    shared, lengths = PATHS[path]
    use_device(shared)
    n = max(lengths)
    p = by_hand(n, [1.0, -1.0, 2.0, 5.0], [1.0, -1], bias=[0.25, 0.5])
    p.values[1] = float("inf")  # its weight is kept
    for weight, expected in ((1.0, [0.25] * 4), (float("nan"), [1 / 3, 1 / 3, torch.nan, 1 / 3])):
        p.attention[2] = weight
        out = run(cuda, p, LOGITS | WEIGHTS)
        assert out.logits is not None
        assert out.weights is not None
        assert out.logits.isnan().all()
        wanted = torch.tensor([*expected, *[0.0] * (n - 4)], dtype=torch.float64)
        torch.testing.assert_close(out.weights[:, 0], wanted, rtol=1e-15, atol=0, equal_nan=True)
    p.values.zero_()
    p.attention.zero_()
    out = run(cuda, p, LOGITS | WEIGHTS)
    assert out.logits is not None
    assert out.weights is not None
    assert out.logits.tolist() == [[0.25, 0.5]]
    assert out.weights.tolist() == [[0.0]] * n


def test_single_erasures_that_all_blocks_share(cuda):
    """Tiles of 512 items; totals of 1,200 large margins are exact enough for every item."""
    use_device(3000, 3)
    meetings = []
    for scale in (1, 1000):
        p = problem([1200, 3, 600], 4, 3, (RankingKind.LEAVE_ONE_OUT_DROP,))
        p.values.mul_(scale)
        p.attention[7] = 9  # more than half of the mass
        before = emulator.module().meetings()
        out = run(cuda, p, SINGLES)
        meetings.append(emulator.module().meetings() - before)
        assert_close(out, run(reference.BACKEND, p, SINGLES))
    # Items whose others are added up once more would take many more.
    assert meetings[1] < 1.2 * meetings[0]


def test_greedy_where_a_total_cancels(cuda):
    """The first item has all but e^-36 of the weight, and erasing it leaves 0.99 instead of 1."""
    lengths = [3, 4, 5, 6, 7, 8, 9, 10, 70]
    p = problem(lengths, 1, 2, (RankingKind.GREEDY,))
    p.values.fill_(0.99)
    p.head_weight[:, 0, 0] = torch.tensor([1.0, 0])
    p.head_bias.zero_()
    p.attention.zero_()
    for b, begin in enumerate(p.offsets[:-1].tolist()):
        p.values[begin] = 1
        p.attention[begin] = 35.5 + 0.2 * b
    out = run(cuda, p, ORDER)
    assert out.order is not None
    assert out.order[0, p.offsets[:-1]].tolist() == [0] * len(lengths)


@pytest.mark.parametrize("path", PATHS)
def test_the_only_item_with_weight_has_a_slope_of_its_own(cuda, path):
    """Its gradient is negative and the others weigh nothing: it comes last."""
    shared, lengths = PATHS[path]
    use_device(shared)
    n = max(lengths)
    p = by_hand(n, [-1.0], [1.0, -1], orders=[[]], bias=[5.0, 0], rest=-1)
    p = replace(p, rankings=(RankingKind.RENORMALIZED_GRADIENT,))
    out = run(cuda, p, ORDER)
    assert out.order is not None
    assert out.order[0].tolist() == [*range(1, n), 0]


@pytest.mark.parametrize("path", PATHS)
def test_all_that_has_a_score_is_erased_where_only_that_flips(cuda, path):
    """Weights of e^-800 count: every item speaks for class 0, nothing for class 1 but its bias."""
    shared, lengths = PATHS[path]
    use_device(shared)
    n = max(lengths)
    p = problem([n], 1, 2, ())
    p.values.fill_(1)
    p.head_weight[:, 0, 0] = torch.tensor([3.0, 0])
    p.head_bias[:] = torch.tensor([0.0, 1])
    p.attention.fill_(-800)
    p.attention[0] = 0
    out = run(cuda, p, MINIMAL)
    assert out.minimal_size is not None
    assert out.minimal_flip_label is not None
    assert (out.minimal_size.item(), out.minimal_flip_label.item()) == (n, 1)


def test_the_minimal_set_of_a_packed_instance_is_never_empty(cuda):
    """By position 2^53 + (-2^53 + 1.2 - 0.9) is 0; with the large ones first and last it is 2."""
    values = {0: 2.0**53, 8: -(2.0**53), 9: 1.2, 10: -0.9}
    p = by_hand(16, values, [0.0, 1], all_weigh=True)
    out = run(cuda, p, MINIMAL)
    assert out.minimal_size is not None
    assert out.minimal_order is not None
    assert (out.label.item(), out.minimal_size.item()) == (0, 1)
    assert out.minimal_order[0].item() == 8


@pytest.mark.parametrize("path", PATHS)
def test_a_tie_within_the_minimal_set(cuda, path):
    """2 + 1 - 1, then 1 - 1, a tie that flips nothing, then -1: two items, and one near-tie."""
    shared, lengths = PATHS[path]
    use_device(shared)
    out = run(cuda, by_hand(max(lengths), [2.0, 1, -1], [1.0, -1]), MINIMAL)
    assert out.minimal_size is not None
    assert (out.minimal_size.item(), out.status.item()) == (2, 32)


@pytest.mark.parametrize("path", PATHS)
def test_a_tie_behind_the_minimal_set_is_none(cuda, path):
    """Erasing the first item leaves class 1 2 above 0; class 2 ties when the second is gone too."""
    shared, lengths = PATHS[path]
    use_device(shared)
    values = [[3.0, 0, 0], [0.0, 2, -1], [0.0, 0, 0]]
    out = run(cuda, by_hand(max(lengths), values, torch.eye(3).tolist()), MINIMAL)
    assert out.minimal_size is not None
    assert (out.minimal_size.item(), out.status.item()) == (1, 0)


@pytest.mark.parametrize("wants", [CURVES, 0], ids=["curves", "plain"])
@pytest.mark.parametrize("path", PATHS_AND_LONGER)
def test_a_near_tie_that_only_the_last_of_four_rankings_has(cuda, path, wants):
    """The first three leave 3 - 1, 3; the last, another warp's, leaves -1 + 1."""
    shared, lengths = PATHS_AND_LONGER[path]
    use_device(shared)
    first = [2, 1]
    for last, status in (([], 32), (first, 0)):
        p = by_hand(max(lengths), [3.0, -1, 1], [1.0, -1], orders=[first] * 3 + [last])
        for seed in range(6):
            emulator.module().set_schedule("by_warp", seed)
            assert run(cuda, p, wants).status.item() == status


@pytest.mark.parametrize("path", PATHS)
def test_a_near_tie_that_only_an_item_of_another_warp_leaves(cuda, path):
    """1 - 1 without the one of 2, the last or the 101st; 3 without -1, 1 without 1."""
    shared, lengths = PATHS[path]
    use_device(shared)
    n = max(lengths)
    p = by_hand(n, {0: 1.0, 1: -1.0, min(100, n - 1): 2.0}, [1.0, -1])
    for seed in range(6):
        emulator.module().set_schedule("by_warp", seed)
        assert run(cuda, p, SINGLES).status.item() == 32


def test_the_first_of_two_ties_of_a_long_order_counts(cuda):
    """Keeping -1, then -1 + 1, the label again by a tie; another tie is beyond it, at 4,097."""
    use_device(3000)
    values = {0: -1.0, 1: 1.0, 2: 5.0, 4096: -5.0, 4097: 5.0}
    out = run(cuda, by_hand(4200, values, [1.0, -1], orders=[[]], keep=True), 0)
    assert (out.first_flip.item(), out.status.item()) == (2, 32)


@pytest.mark.parametrize("path", PATHS)
def test_of_two_runners_up_the_lower_class_orders_what_never_flips(cuda, path):
    """Classes 1 and 2 are equally far from 0; by class 1 the second item goes first."""
    shared, lengths = PATHS[path]
    use_device(shared)
    n = max(lengths)
    p = by_hand(n, [[1.0, 0], [0.0, 1]], [[5.0, 5], [1, 0], [0, 1]])
    out = run(cuda, p, MINIMAL)
    assert out.minimal_size is not None
    assert out.minimal_order is not None
    assert out.minimal_size.item() == -1
    assert out.minimal_order.tolist() == [1, 0, *range(2, n)]


@pytest.mark.parametrize("shared", [H100, 4000, 3000])
def test_the_minimal_set_is_never_empty(cuda, shared):
    """2^51, 14 times 0.2 far apart, -2^51: 0 by position, but above it in the order of the set."""
    use_device(shared)
    values = {0: 2.0**58, **dict.fromkeys(range(8, 120, 8), 25.6), 127: -(2.0**58)}
    out = run(cuda, by_hand(128, values, [0.0, 1], all_weigh=True), MINIMAL)
    assert out.minimal_size is not None
    assert out.minimal_order is not None
    assert (out.label.item(), out.minimal_size.item()) == (0, 1)
    assert out.minimal_order[0].item() == 127


@pytest.mark.parametrize("wants", [CURVES, 0], ids=["curves", "plain"])
@pytest.mark.parametrize("D", [4, 132])  # a lane a row, a group of lanes a row
@pytest.mark.parametrize(
    ("values", "bias"), [([0.0, 0.0], [1.0, 1.000002]), ([1e-23, -0.999999e-23], [0.0, 0.0])]
)
def test_near_ties_by_biases_and_by_values_whose_squares_vanish(cuda, values, bias, D, wants):
    """Two sums nearer to each other than 3e-6 of the largest bias, of the largest norm."""
    rest = [0.0] * (D - 1)
    rows = [[x, *rest] for x in values]
    for orders in (None, [[]]):
        p = by_hand(2, rows, [[1.0, *rest], [-1.0, *rest]], orders=orders, bias=bias)
        assert run(cuda, p, wants).status.item() == 32


@pytest.mark.parametrize("wants", [CURVES, 0], ids=["curves", "plain"])
def test_a_near_tie_of_the_first_launch_is_kept_by_the_second(cuda, wants):
    """Of 201 orders the first leaves -1 + 1; the others leave 3 - 1, 3."""
    rest = [[2, 1]] * 200
    for first, status in (([], 32), ([2, 1], 0)):
        p = by_hand(3, [3.0, -1, 1], [1.0, -1], orders=[first, *rest])
        assert run(cuda, p, wants).status.item() == status


@pytest.mark.parametrize("path", PATHS)
def test_one_item_alone_that_leaves_a_tie(cuda, path):
    """0.2 + 9.1 - 9.1, each by 1/3: without the first exactly 0, which is class 0; not so total."""
    shared, lengths = PATHS[path]
    use_device(shared)
    out = run(cuda, by_hand(max(lengths), [0.2, 9.1, -9.1], [0.0, 1]), SINGLES)
    assert out.label.item() == 1
    assert out.single_flip_label is not None
    assert out.single_flip_label[:3].tolist() == [0, 0, -1]


@pytest.mark.parametrize("order", ["backward", "by_warp"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("C", [1, 2, 6])
@pytest.mark.long_where(these=lambda p: (p["order"] == "by_warp") != p["keep"])
def test_more_ranks_than_a_thread_has_bits(cuda, C, keep, order):
    """2,200 ranks are 69 for each of 32 threads, 9,000 more than a block takes in two steps."""
    emulator.module().set_schedule(order, C)
    kinds = (RankingKind.ATTENTION, RankingKind.PRODUCT, RankingKind.RANDOM)
    for shared, n in ((H100, 2200), (3000, 2200), (3000, 9000)):
        use_device(shared)
        p = problem([n], 4, C, kinds, keep=keep)
        for bias in (0.0, 0.4, 3.0):
            p.head_bias[:, -1] = bias
            assert_close(run(cuda, p, 0), run(reference.BACKEND, p, 0))


@pytest.mark.parametrize("all_weigh", [False, True])
def test_a_flip_at_any_rank_of_a_long_order(cuda, all_weigh):
    """Of 4,500 items that of rank r speaks for the label, three times the last, which does not."""
    use_device(3000)
    n = 4500
    head, bias = [-1.0, 1, 0], [0, 0, 1e-4]
    for r in (0, 1, 403, 404, 2000, 4096, n - 3):
        values = {r: 3.0, n - 1: -1.0}
        p = by_hand(n, values, head, orders=[[]], bias=bias, all_weigh=all_weigh)
        out = run(cuda, p, 0)
        # Label 1; without item r class 0 leads, where nothing is left class 2 would.
        assert (out.label.item(), out.first_flip.item()) == (1, r + 1)
        assert (out.flip_label.item(), out.status.item()) == (0, 0)
        removed = (r + 1) / n if all_weigh else 0.5
        assert out.removed_mass.item() == pytest.approx(removed, abs=1e-12)


@pytest.mark.parametrize("n", [16, 32, 64, 300])
def test_two_keys_that_a_sort_word_cannot_tell_apart_at_every_rank(cuda, n):
    """Instance 2r + 1: keys far from each other but those of ranks r and r + 1, in the wrong order.

    What the instance before it leaves in memory points at larger keys than there are here.
    """
    ranks = [*range(0, n - 1, 1 if n < 100 else 17), *(r for r in (127, 255) * 4 if r < n)]
    lengths = [n] * (2 * len(ranks))
    p = problem(lengths, 4, 2, (RankingKind.GIVEN_KEYS,), dtype=torch.float64)
    falling = torch.arange(n, 0, -1, dtype=torch.float64)
    keys = torch.stack([falling.roll(n // 3), falling]).repeat(len(ranks), 1)  # [B, n]
    for b, r in enumerate(ranks):
        own = keys[2 * b + 1]
        own[r + 1] = torch.nextafter(own[r], torch.tensor(1e9, dtype=torch.float64))
        if r < n - 4:
            own[n - 1] = own[n - 2]  # equal keys stay as they are
    p = replace(p, keys=(keys.flatten(),))
    for order in ("forward", "by_warp"):
        emulator.module().set_schedule(order, n)
        out = run(cuda, p, ORDER)
        assert out.order is not None
        orders = out.order[0].view(-1, 2, n)
        for b, r in enumerate(ranks):
            assert orders[b, 1].tolist() == [*range(r), r + 1, r, *range(r + 2, n)]


@pytest.mark.parametrize("n", [16, 64, 150])
def test_keys_that_differ_below_what_a_sort_word_holds(cuda, n):
    """Keys one unit in the last place apart, ascending by position: the order is reversed."""
    p = problem([n], 4, 2, (RankingKind.GIVEN_KEYS,), dtype=torch.float64)
    keys = torch.ones(n, dtype=torch.float64)
    for i in range(1, n):
        keys[i] = torch.nextafter(keys[i - 1], torch.tensor(2.0, dtype=torch.float64))
    p = replace(p, keys=(keys,))
    for order in ("forward", "by_warp"):
        emulator.module().set_schedule(order, n)
        out = run(cuda, p, ORDER)
        assert out.order is not None
        assert out.order[0].tolist() == list(range(n - 1, -1, -1))


@pytest.mark.parametrize("keys", [torch.arange(9001) // 180, torch.arange(9001) * 7919 % 50])
def test_long_orders_of_several_tiles(cuda, keys):
    """9,001 keys of 50 values: three tiles of a sort in device memory, two rounds of merges."""
    use_device(3000)
    p = problem([9001], 1, 1, (RankingKind.GIVEN_KEYS,))
    keys = keys.float()
    p = replace(p, keys=(keys,))
    out = run(cuda, p)
    assert out.order is not None
    assert torch.equal(out.order[0], keys.argsort(descending=True, stable=True))


@pytest.mark.parametrize("order", ["backward", "by_warp"])
def test_sorts_of_long_instances_that_all_blocks_share(cuda, order):
    """One to four tiles, none to two passes of merges; six rankings are two turns of four."""
    use_device(3000, 3)
    emulator.module().set_schedule(order, 1)
    kinds = (
        RankingKind.GIVEN_KEYS,
        RankingKind.ATTENTION,
        RankingKind.GIVEN_ORDER,
        RankingKind.RANDOM,
        RankingKind.PRODUCT,
        RankingKind.MINIMAL,
    )
    p = problem([4096, 4097, 12_300, 5, 900], 1, 2, kinds)
    p = replace(p, keys=((p.keys[0] * 3).round(),))  # with ties
    assert_close(run(cuda, p, ORDER | MINIMAL), run(reference.BACKEND, p, ORDER | MINIMAL))


MIXED = [1 + b * b % 16 for b in range(128)]  # 16 warps take eight each


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("C", [2, 3, 5, 6, 10, 16])
@pytest.mark.long_where(these=lambda p: p["C"] in (3, 5, 10))
def test_packs(cuda, C, keep):
    use_device(H100, 1)
    emulator.module().set_schedule("shuffled", C)
    dtype = torch.float64 if (C % 2 == 0) == keep else torch.float32
    p = problem(MIXED, 12, C, PLAIN, dtype, is_scores=keep, keep=keep, spread=2.0)
    assert_close(run(cuda, p, NO_CURVES), run(reference.BACKEND, p, NO_CURVES))


@pytest.mark.parametrize("shared", [13500, 15000, 20000, H100])
def test_packs_take_what_there_is_room_for(cuda, shared):
    """Rows for one instance, two, more; between them longer ones and empty ones."""
    use_device(shared, 1)
    lengths = [(n, 17, 0)[b % 13 // 11 * (1 + b % 2)] for b, n in enumerate(MIXED)]
    p = problem(lengths, 8, 2, PLAIN)
    expected = run(reference.BACKEND, p, NO_CURVES)
    for order in ("forward", "backward"):
        emulator.module().set_schedule(order)
        assert_close(run(cuda, p, NO_CURVES), expected)


def test_a_pack_leaves_what_is_out_of_the_ordinary_to_the_warp(cuda):
    """Of eight instances each: values, scores, biases not finite; underflow, no mass, invalid."""
    use_device(H100, 1)
    bad = {1: "value", 5: "score", 11: "underflow", 13: "bias", 27: "mass", 31: "order", 38: "key"}
    p = problem(MIXED, 8, 4, PLAIN, spread=2.0)
    orders, keys = p.orders[0].clone(), p.keys[0].clone()
    clean = run(cuda, p, NO_CURVES)
    for b, what in bad.items():
        item = slice(int(p.offsets[b]), int(p.offsets[b + 1]))
        if what == "value":
            p.values[item][-1, 0, 2] = float("inf")
        elif what == "score":
            p.attention[item][0] = float("nan")
        elif what == "underflow":
            p.attention[item][-1] = -700
        elif what == "bias":
            p.head_bias[b, 3] = float("nan")
        elif what == "mass":
            p.attention[item] = float("-inf")
        elif what == "order":
            orders[item][0] = orders[item][-1]
        else:
            keys[item][0] = float("nan")
    p = replace(p, orders=(orders,))
    p = replace(p, keys=(keys,))
    out = run(cuda, p, NO_CURVES)
    assert_close(out, run(reference.BACKEND, p, NO_CURVES))
    assert (out.status & (8 | 16 | 4 | INVALID) != 0).nonzero().flatten().tolist() == list(bad)
    others = torch.tensor([b for b in range(len(MIXED)) if b not in bad])
    assert torch.equal(out.probabilities[others], clean.probabilities[others])
    assert torch.equal(out.first_flip[:, others], clean.first_flip[:, others])


def test_packs_and_warps_give_the_same_bits(cuda):
    """With curves nothing is packed: label, probabilities, keys and so orders stay the same."""
    use_device(H100, 1)
    meetings = emulator.module().meetings
    kinds = (RankingKind.ATTENTION, RankingKind.GRADIENT, RankingKind.PRODUCT, RankingKind.RANDOM)
    for dtype, D, C in ((torch.float32, 100, 5), (torch.bfloat16, 40, 16), (torch.float64, 9, 2)):
        p = problem(MIXED, D, C, kinds, dtype, spread=2.0)
        at = [meetings()]
        packed = run(cuda, p, ORDER | LOGITS | WEIGHTS)
        at.append(meetings())
        alone = run(cuda, p, ORDER | LOGITS | WEIGHTS | CURVES)
        assert 4 * (at[1] - at[0]) < meetings() - at[1]
        assert torch.equal(packed.label, alone.label)
        assert torch.equal(packed.status, alone.status)
        assert torch.equal(packed.probabilities, alone.probabilities)
        for name in ("order", "logits", "weights"):
            assert torch.equal(getattr(packed, name), getattr(alone, name)), name


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("keep", [False, True])
def test_weights_and_both_directions(cuda, path, keep):
    shared, lengths = PATHS[path]
    use_device(shared)
    p = problem(lengths, 12, 2, QUICK, is_scores=False, keep=keep)
    assert_close(run(cuda, p), run(reference.BACKEND, p))


@pytest.mark.parametrize("order", ["forward", "shuffled"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("C", [1, 2, 6])
@pytest.mark.long_where(these=lambda p: (p["order"] == "shuffled") != p["keep"])
def test_without_curves(cuda, path, keep, C, order):
    """Scans that write no curve take chunks of ranks a thread instead of groups of lanes."""
    shared, lengths = PATHS[path]
    use_device(shared)
    emulator.module().set_schedule(order, 3)
    p = problem(lengths, 8, C, PLAIN, keep=keep, spread=3.0)
    assert_close(run(cuda, p, NO_CURVES), run(reference.BACKEND, p, NO_CURVES))


@pytest.mark.parametrize("path", PATHS)
def test_more_classes_than_lanes(cuda, path):
    shared, lengths = PATHS[path]
    use_device(shared)
    p = problem(lengths, 8, 37, QUICK)
    assert_close(run(cuda, p), run(reference.BACKEND, p))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.usefixtures("dirty")
def test_scores_that_underflow(cuda, path):
    shared, lengths = PATHS[path]
    use_device(shared)
    p = problem(lengths, 8, 3, QUICK, spread=400.0)
    expected = run(reference.BACKEND, p)
    assert int((expected.status & 16).max()) == 16
    for order in ("forward", "by_warp"):
        emulator.module().set_schedule(order, 1)
        assert_close(run(cuda, p), expected)


@pytest.mark.parametrize("path", PATHS)
def test_items_that_are_not_finite(cuda, path):
    shared, lengths = PATHS[path]
    use_device(shared)
    p = problem(lengths, 8, 3, QUICK)
    p.values[1, 0, 3] = float("nan")
    p.attention[sum(lengths) - 2] = float("inf")
    assert_close(run(cuda, p), run(reference.BACKEND, p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("D", [1, 7, 12, 64, 200])
def test_every_width_and_type(cuda, dtype, D):
    for C in (1, 2, 4, 11):
        p = problem([9, 3], D, C, (RankingKind.PRODUCT,), dtype=dtype)
        assert_close(run(cuda, p), run(reference.BACKEND, p))


@pytest.mark.parametrize("shift", [1, 2, 4])
def test_addresses_that_vectors_do_not_fit(cuda, shift):
    p = problem([9, 3], 16, 3, (RankingKind.PRODUCT,))
    room = torch.zeros(12, 1, 16 + shift)
    room[:, :, shift:] = p.values
    p = replace(p, values=room[:, :, shift:])
    assert_close(run(cuda, p), run(reference.BACKEND, p))


def test_rows_longer_than_a_float32_sum_may_span(cuda):
    p = problem([3], 4100, 2, (RankingKind.GRADIENT,))
    assert_close(run(cuda, p), run(reference.BACKEND, p))


@pytest.mark.parametrize("D", [16_384, 65_536])
def test_no_float32_sum_spans_more_than_128_features(cuda, D):
    """1 and D - 1 times 2^-25, which vanish beside it."""
    p = problem([1], D, 2, (RankingKind.ATTENTION,))
    p.values.fill_(2.0**-25)
    p.values[0, 0, 0] = 1
    p.head_weight[0].fill_(1)
    p.head_weight[1].fill_(0)
    p.head_bias.zero_()
    logits = run(cuda, p, CURVES).curve_logits
    assert logits is not None
    assert logits[0, 0, 0].item() == pytest.approx(1 + (D - 1) * 2.0**-25, abs=130 * 2.0**-25)


def test_instances_that_a_warp_takes_together(cuda):
    """601 instances are taken 19 at a time; nothing behind the last is read or written."""
    lengths = [1 + b % 3 for b in range(601)]
    p = problem(lengths, 4, 3, (RankingKind.ATTENTION,))
    expected = run(reference.BACKEND, p, 0)
    band = torch.cat([p.offsets, p.offsets[-1:] + 1])
    p = replace(p, offsets=band[:-1])
    results = allocate(p.values, p.offsets, 3, 1, 0)
    out = as_outputs(results, 0)
    status = torch.full((603,), -77)
    out.status = status[:601]
    cuda.sweep(p, out)
    assert_close(out, expected)
    assert status[601:].tolist() == [-77, -77]


def test_more_rankings_than_one_launch_takes(cuda):
    p = problem([6, 2], 4, 3, (RankingKind.RANDOM,) * 205)
    p = replace(p, ranking_args=tuple(range(205)))
    assert_close(run(cuda, p), run(reference.BACKEND, p))


@pytest.mark.long_where(these=lambda p: p["shared"] == 3000)
@pytest.mark.parametrize("shared", [H100, 3000])
@pytest.mark.parametrize("invalid", [0, 204], ids=["first", "last"])
def test_what_one_launch_finds_invalid_is_invalid_in_all_of_them(cuda, shared, invalid):
    """Of 205 rankings one is no permutation of the first instance; 200 are a launch."""
    use_device(shared)
    kinds = [RankingKind.RANDOM] * 205
    kinds[invalid] = RankingKind.GIVEN_ORDER
    args = list(range(205))
    args[invalid] = 0
    p = problem([1, 6, 70], 4, 3, tuple(kinds))
    bad = p.orders[0].clone()
    bad[:3] = 0
    p = replace(p, orders=(bad,), ranking_args=tuple(args))
    out, expected = run(cuda, p), run(reference.BACKEND, p)
    assert (out.status & INVALID != 0).tolist() == [False, True, False]
    assert_close(out, expected)
    # The first instance, too, and only that is marked as the only item of its own.
    bad[0] = 1
    out, expected = run(cuda, p), run(reference.BACKEND, p)
    assert out.status.tolist()[:2] == [INVALID | 2, INVALID]
    assert_close(out, expected)


def test_an_order_that_is_no_permutation_is_marked_and_nothing_else_changes(cuda):
    for path in PATHS.values():
        use_device(path[0])
        lengths = [n for n in path[1] if n > 1]
        p = problem(lengths, 8, 3, QUICK)
        run(cuda, p)  # what it leaves in the workspace must not matter
        bad = p.orders[0].clone()
        bad[0] = bad[1]
        bad[int(p.offsets[1]) :][:2] = torch.tensor([-(2**40), 2**40])
        bad[int(p.offsets[2])] = lengths[2]
        p = replace(p, orders=(bad,))
        out, expected = run(cuda, p), run(reference.BACKEND, p)
        assert (out.status & INVALID != 0).tolist()[:3] == [True, True, True]
        assert_close(out, expected)


@pytest.mark.parametrize(("kinds", "wants"), [(ALL, EVERYTHING), (PLAIN, NO_CURVES)])
def test_negative_weights_are_marked(cuda, kinds, wants):
    p = problem([3, 4], 8, 3, kinds, is_scores=False)
    p.attention[1] = -0.5
    out = run(cuda, p, wants)
    assert out.status.tolist()[0] == INVALID
    assert out.label.tolist()[0] == -1
    assert out.probabilities[0].isnan().all()
    assert out.first_flip[:, 0].tolist() == [-1] * len(kinds)
    assert not out.status[1] & INVALID


@pytest.mark.parametrize("shared", [H100, 3000])
@pytest.mark.parametrize(
    "offsets",
    [[0, 50, 30, 90], [10, 40, 60, 90], [0, 40, 60, 80], [0, -70, 60, 90], [0, 2**40, 40, 90]],
)
def test_offsets_that_make_no_sense_are_marked_and_nothing_is_read_out_of_bounds(
    cuda, offsets, shared
):
    use_device(shared)
    p = problem([40, 20, 30], 8, 3, (RankingKind.ATTENTION,))
    p = replace(p, offsets=torch.tensor(offsets))
    out = run(cuda, p)
    for b in range(3):
        broken = offsets[b] < 0 or offsets[b + 1] < offsets[b] or offsets[b + 1] > 90
        broken = broken or (b == 0 and offsets[0] != 0) or (b == 2 and offsets[3] != 90)
        assert bool(out.status[b] & INVALID) or not broken
        if broken:
            assert int(out.label[b]) == -1


def test_offsets_that_make_no_sense_are_marked_by_several_launches(cuda):
    """Nothing is read or written where they point; 205 rankings are two launches."""
    p = problem([4, 2, 3], 8, 3, (RankingKind.RANDOM,) * 205)
    p = replace(p, ranking_args=tuple(range(205)), offsets=torch.tensor([0, 2**40, 4, 9]))
    out = run(cuda, p)
    assert (out.status & INVALID != 0).tolist() == [True, True, False]
    assert (out.label[:2] == -1).all()
    assert (out.first_flip[:, :2] == -1).all()


def test_more_long_instances_than_there_is_room_for_are_marked(cuda):
    """Eight times the same 900 items: the workspace is for long ones that do not overlap."""
    use_device(20000)
    p = problem([900, *[0] * 14], 8, 3, (RankingKind.ATTENTION,))
    p = replace(p, offsets=torch.tensor([0, 900] * 8))
    out = run(cuda, p)
    assert out.status.tolist()[1::2] == [INVALID] * 7
    assert any(status & INVALID for status in out.status.tolist()[::2])


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("D", [1, 130])
def test_pooled_prefixes_write_what_is_asked_for_and_nothing_else(cuda, D, keep):
    lengths = [5, 0, 130, 1]
    p = problem(lengths, D, 2)
    for begin, count in [(0, 140), (5, 1), (6, 1), (7, 140 - 7), (30, 90), (139, 1)]:
        pooled = PooledProblem(p.values, p.offsets, p.attention, True, p.orders[0], keep, begin)
        band = torch.full((count + 2, 1, D), -77.0)
        expected = torch.empty(count, 1, D)
        cuda.pooled_prefixes(pooled, band[1:-1])
        reference.BACKEND.pooled_prefixes(pooled, expected)
        torch.testing.assert_close(band[1:-1], expected, rtol=2e-5, atol=2e-6)
        assert bool((band[0] == -77).all() and (band[-1] == -77).all())


def test_pooled_prefixes_of_an_order_that_leaves_the_instance_are_not_a_number(cuda):
    p = problem([2, 1], 3, 2)
    order = torch.tensor([2, 0, 0])
    problem_of = PooledProblem(p.values, p.offsets, p.attention, True, order, False, 0)
    pooled = torch.empty(5, 1, 3)
    cuda.pooled_prefixes(problem_of, pooled)
    assert pooled[0].isnan().all()
    assert torch.equal(pooled[1], p.values[0])
    assert torch.equal(pooled[3], p.values[2])


def test_validation_raises_the_exact_error(cuda):
    p = problem([3, 4], 8, 3, is_scores=False)
    p.attention[4] = -0.5
    p = replace(p, validate=True)
    with pytest.raises(ValueError, match=r"given -0\.5 at position 1 of instance 1, needed"):
        run(cuda, p)


def test_what_the_backend_refuses(cuda):
    p = problem([3], 8, 3)
    p = replace(p, values=torch.zeros(3, 2, 8))
    assert cuda.unsupported(p) == ["it takes one attention head, not 2"]


@pytest.mark.parametrize(
    ("shared", "lengths"),
    [(H100, [7, 70, 20, 130, 9, 1, 30]), (3000, [530, 5, 40])],
    ids=["short", "long"],
)
@pytest.mark.parametrize("C", [5, 20])
@pytest.mark.usefixtures("dirty")
@pytest.mark.long_where(these=lambda p: p["C"] == 20)
def test_results_do_not_depend_on_the_schedule(cuda, shared, lengths, C):
    use_device(shared)
    p = problem(lengths, 4 if C == 20 else 5, C, QUICK)  # a lane a row, or a group of lanes
    p.values[[100, 130, 200], 0, 1] = float("nan")
    orders = [("forward", 0), ("backward", 0), ("shuffled", 1), *(("by_warp", i) for i in range(4))]
    for wants in (EVERYTHING, NO_CURVES):
        results: list[list[Tensor]] = []
        for order, seed in orders:
            emulator.module().set_schedule(order, seed)
            out = run(cuda, p, wants)
            found = [getattr(out, f.name) for f in fields(Outputs)]
            results.append([x for x in found if x is not None])
        for other in results[1:]:
            for x, y in zip(results[0], other, strict=True):
                assert torch.equal(x.nan_to_num(-5), y.nan_to_num(-5))
