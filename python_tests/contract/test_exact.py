"""Envelopes, Shapley values and sufficient sets against all subsets, from the definitions alone."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract import runners
from contract.subsets import KINDS, LONGEST, Small, batch_of, decided, draw, every_subset, share_of
from fastattnerase.ops import exact_library
from fastattnerase.reference.greedy import leads

BACKENDS = ("reference", "cpu")


def margins(one: Small) -> np.ndarray:
    """The label's margin over each rival, or the output, for every subset kept: [2^n, K]."""
    if one.logits.shape[1] == 1:
        return one.logits
    return one.logits[:, [one.label]] - np.delete(one.logits, one.label, 1)


def labelled(one: Small, label: int) -> bool:
    """Whether the two best logits are clearly apart, so that the label is in no doubt."""
    top = np.sort(one.logits[-1])
    return label == one.label and (len(top) == 1 or top[-1] - top[-2] > 1e-9)


def subset(order: np.ndarray) -> int:
    """The row of the subset that keeps some positions."""
    return sum(2 ** int(i) for i in order)


def judge_envelope(one: Small, found: fae.Envelope, b: int) -> None:
    out, sizes = margins(one), one.kept.sum(1)
    first = int(found.point_offsets[b])
    order = np.argsort(-one.weights, kind="stable")
    least, most = [], []
    for k in range(one.n + 1):
        of_size = out[sizes == one.n - k]
        at = first + k
        scale = {"rtol": 1e-8, "atol": 1e-9}
        np.testing.assert_allclose(found.lower[at].numpy(), of_size.min(0), **scale)
        np.testing.assert_allclose(found.upper[at].numpy(), of_size.max(0), **scale)
        np.testing.assert_allclose(float(found.least[at]), of_size.min(), **scale)
        assert float(found.largest[at]) >= of_size.min(1).max() - 1e-9
        curve = float(found.curves[0, at])
        np.testing.assert_allclose(curve, out[subset(order[k:])].min(), **scale)
        least.append(float(found.least[at]))
        most.append(float(found.largest[at]))
    if one.n and np.ptp(np.array(most) - least) > 1e-6:
        mine = [out[subset(order[k:])].min() for k in range(one.n + 1)]
        best, worst, own = (
            np.mean(np.array(c)[1:] + np.array(c)[:-1]) for c in (least, most, mine)
        )
        share = float(found.normalized_area[0, b])
        np.testing.assert_allclose(share, (own - worst) / (best - worst), 1e-6, 1e-6)


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_envelope_of_all_subsets(backend: str, classes: int) -> None:
    check_envelope(backend, classes, 40)


def check_envelope(backend: str, classes: int, count: int) -> None:
    for kind in KINDS:
        instances = draw(kind, count, classes, seed=11)
        found = fae.envelope(batch_of(instances), ["attention"], backend=backend)
        for b, one in enumerate(instances):
            if not labelled(one, int(found.label[b])):
                continue
            try:
                judge_envelope(one, found, b)
            except AssertionError as error:
                raise AssertionError(f"instance {b} of {kind}: {error}") from None


@cache
def shares_of_sets(n: int) -> np.ndarray:
    """How much each set's output counts for each item by Shapley's formula: [n, 2^n].

    `+ (|S| − 1)! (n − |S|)! / n!` where the item is in the set, `− |S|! (n − |S| − 1)! / n!` else.
    """
    kept = every_subset(n).T  # [n, 2^n]
    f = np.array([math.factorial(k) for k in range(n + 1)], dtype=float)
    size = kept.sum(0)  # [2^n]
    with_it = f[np.maximum(size - 1, 0)] * f[n - size] / f[n]
    without = f[size] * f[np.maximum(n - size - 1, 0)] / f[n]
    return np.where(kept, with_it, -without)


def shapley_of(one: Small) -> np.ndarray:
    """The values from their definition: [n, C]."""
    return shares_of_sets(one.n) @ (one.logits - one.bias)


def shapley_by_dividends(one: Small) -> np.ndarray:
    """The values as shares of dividends: of what a set adds to its parts: [n, C]."""
    dividends = one.logits - one.bias  # [2^n, C]
    rows = np.arange(2**one.n)
    for i in range(one.n):  # less the set without item i, one item after another
        own = (rows >> i) % 2 == 1
        dividends[own] -= dividends[~own]
    each = dividends / np.maximum(one.kept.sum(1), 1)[:, None]
    return one.kept.T @ each


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapley_values_of_all_subsets(backend: str) -> None:
    check_shapley_values(backend, 12)


def check_shapley_values(backend: str, count: int) -> None:
    for kind in KINDS:
        instances = draw(kind, count, 3, seed=12)
        found = fae.shapley_values(batch_of(instances), backend=backend)
        for b, one in enumerate(instances):
            own = slice(int(found.offsets[b]), int(found.offsets[b + 1]))
            np.testing.assert_allclose(found.values[own].numpy(), shapley_of(one), 0, 1e-10)
        assert found.efficiency.max() < 1e-9
        assert found.error.max() < 1e-7


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapley_values_of_up_to_twelve_items_by_two_definitions(backend: str) -> None:
    rng = np.random.default_rng(21)
    instances = []
    for n in range(1, LONGEST + 1):
        weights = rng.random(n) ** 3
        instances.append(
            Small(weights / weights.sum(), rng.normal(size=(n, 2)), rng.normal(size=2))
        )
    found = fae.shapley_values(batch_of(instances), backend=backend)
    for b, one in enumerate(instances):
        own = found.values[int(found.offsets[b]) : int(found.offsets[b + 1])].numpy()
        np.testing.assert_allclose(own, shapley_of(one), 0, 1e-10)
        np.testing.assert_allclose(own, shapley_by_dividends(one), 0, 1e-10)


@pytest.mark.parametrize("classes", [1, 2, 3, 5])
@pytest.mark.parametrize("backend", BACKENDS)
def test_sufficient_sets_of_all_subsets(backend: str, classes: int) -> None:
    check_sufficient_sets(backend, classes, 60)


def check_sufficient_sets(backend: str, classes: int, count: int) -> None:
    several = 0
    for kind in KINDS:
        instances = draw(kind, count, classes, seed=13)
        t = np.random.default_rng(3).normal(size=count) / 2
        threshold = torch.from_numpy(t) if classes == 1 else None
        found = fae.minimal_sufficient_set(
            batch_of(instances), threshold=threshold, backend=backend
        )
        for b, one in enumerate(instances):
            if not decided(found.status, b) or int(found.label[b]) != one.label:
                continue
            if classes == 1:
                whole = one.logits[-1, 0] >= t[b]
                gives = (one.logits[:, 0] >= t[b]) == whole
            else:
                gives = one.logits.argmax(1) == one.label
            alive = one.sizes > 0
            smallest = int(one.sizes[gives & alive].min()) if (gives & alive).any() else -1
            size, least = int(found.size[b]), int(found.least[b])
            where = f"instance {b} of {kind}"
            if not alive.any():
                assert size == least == -1, where
                continue
            assert least <= smallest <= size, where
            assert bool(found.optimal[b]) == (size == least), where
            assert size == smallest or smallest > 2, where
            first = int(found.offsets[b])
            chosen = found.order[first : first + size].numpy()
            assert gives[subset(chosen)], where
            several += smallest > 1
    assert classes < 5 or several > 0


def greedy_of(one: Small) -> tuple[list[int], int, int, bool]:
    """The order by its definition, steps before the first near-tie, the first flip, its doubt."""
    out, wins = margins(one), np.arange(one.logits.shape[1] - 1) < one.label
    left, order, near, flip, doubt = list(range(one.n)), [], one.n, -1, False
    while left:
        least = [out[subset(np.array([j for j in left if j != i]))].min() for i in left]
        at = int(np.argmin(least))
        others = np.delete(least, at)
        # The engine's band of near-ties grows with the logits.
        if len(others) and others.min() - least[at] < 1e-5 * (1 + np.abs(one.logits).max()):
            near = min(near, len(order))
        order.append(left.pop(at))
        lead = out[subset(np.array(left))]
        ahead = (lead < 0) | ((lead == 0) & wins) if out.shape[1] == len(wins) else lead < 0
        doubt = doubt or bool((abs(lead) < 1e-6).any())
        if flip < 0 and ahead.any():
            flip = len(order)
    return order, near, flip, doubt


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_greedy_orders_of_all_subsets(backend: str, classes: int) -> None:
    check_greedy_orders(backend, classes, 40)


def check_greedy_orders(backend: str, classes: int, count: int) -> None:
    for kind in KINDS:
        instances = draw(kind, count, classes, seed=14)
        batch = batch_of(instances)
        found = fae.greedy_order(batch, backend=backend)
        short = fae.greedy_order(batch, until_flip=True, steps=3, backend=backend)
        engine = fae.rank(batch, "greedy") if classes > 1 else None
        for b, one in enumerate(instances):
            if not labelled(one, int(found.label[b])) or one.n == 0:
                continue
            where = f"instance {b} of {kind}"
            first = int(found.offsets[b])
            order, near, flip, doubt = greedy_of(one)
            same = slice(first, first + near)
            assert int(found.certain[b]) >= near or kind == "degenerate", where
            assert found.order[same].tolist() == order[:near], where
            if engine is not None:
                assert engine[same].tolist() == order[:near], where
            assert int(found.removed[b]) == one.n, where
            if near == one.n and not doubt:
                stop = min(3, one.n, one.n if flip < 0 else flip)
                assert int(short.removed[b]) == stop, where
                rest = sorted(set(range(one.n)) - set(order[:stop]))
                assert short.order[first : first + one.n].tolist() == order[:stop] + rest, where


# Ten thousand instances of an answer on the reference, in plain torch; of each kind on the CPU.
TEN_THOUSAND = [("reference", 2_500), ("cpu", 10_000)]


@pytest.mark.long
@pytest.mark.parametrize(("backend", "of_a_kind"), TEN_THOUSAND)
@pytest.mark.parametrize("answer", ["envelope", "sufficient_sets", "greedy_orders"])
def test_ten_thousand(answer: str, backend: str, of_a_kind: int) -> None:
    check = {
        "envelope": check_envelope,
        "sufficient_sets": check_sufficient_sets,
        "greedy_orders": check_greedy_orders,
    }[answer]
    for classes in (1, 2, 4):
        check(backend, classes, share_of(of_a_kind // 3 + 1))


@pytest.mark.long
@pytest.mark.parametrize(("backend", "of_a_kind"), TEN_THOUSAND)
def test_ten_thousand_shapley_values(backend: str, of_a_kind: int) -> None:
    check_shapley_values(backend, share_of(of_a_kind))


@pytest.mark.parametrize("classes", [2, 5])
def test_long_greedy_orders_agree_with_the_reference(classes: int) -> None:
    """Several blocks, tied items, one item that holds most of the mass, items without weight."""
    rng = torch.Generator().manual_seed(classes)
    n = 700
    values = torch.randn(n, classes, generator=rng, dtype=torch.float64)
    weights = torch.rand(n, generator=rng, dtype=torch.float64)
    weights[50:60], values[50:60] = weights[50], values[50]
    weights[300:310] = 0
    weights[77] = 2 * weights.sum()
    batch = fae.AttentionBatch(
        values, torch.tensor([0, n]), weights=weights, head_weight=torch.eye(classes).double()
    )
    mine, theirs = (fae.greedy_order(batch, backend=backend) for backend in ("cpu", "reference"))
    assert torch.equal(mine.certain, theirs.certain)
    assert torch.equal(mine.order[: int(mine.certain)], theirs.order[: int(mine.certain)])
    # Beyond, no step leaves more than the best does, but for rounding.
    left = list(range(n))
    label = int(mine.label[0])
    own = (values[:, [label]] - values)[:, [c for c in range(classes) if c != label]]
    for item in mine.order.tolist():
        rest = torch.tensor(left)
        least = leads(weights[rest], own[rest], own.new_zeros(classes - 1)).amin(1)
        assert float(least[left.index(item)]) <= float(least.min()) + 1e-9
        left.remove(item)


def test_the_ranking_greedy_of_long_instances(cpu_variant: str) -> None:
    """More than 1,024 items: on hulls too, in every variant, whatever else is in the batch."""
    rng = torch.Generator().manual_seed(8)
    lengths = [1_100, 40, 1_500]
    scores = [torch.randn(n, generator=rng) for n in lengths]
    batch = fae.AttentionBatch.from_list(
        [torch.randn(n, 6, generator=rng) for n in lengths], scores=scores,
        head_weight=torch.randn(3, 6, generator=rng), head_bias=torch.tensor([0.1, 0.0, -0.1]),
    )  # fmt: skip
    runner = runners.load(f"cpu-{cpu_variant}", False)
    found = fae.rank(batch, "greedy", backend=runner.name)
    order = fae.greedy_order(batch)
    for b, n in enumerate(lengths):
        own = slice(int(batch.offsets[b]), int(batch.offsets[b + 1]))
        sure = int(order.certain[b])
        assert torch.equal(found[own][:sure], order.order[own][:sure])
        assert torch.equal(found[own].sort().values, torch.arange(n))
        assert torch.equal(found[own], fae.rank(batch[b], "greedy", backend=runner.name))


def test_items_far_lighter_than_others_keep_their_turn() -> None:
    # Without item 0, -0.4 + 1e-4: without 2 -0.4, without 3 as before, without 1 -0.3.
    batch = fae.AttentionBatch(
        torch.tensor([[2.0], [-0.4], [-0.3], [1.0]]).double(), torch.tensor([0, 4]),
        weights=torch.tensor([1.0, 1e-19, 1e-22, 1e-92]).double(),
        head_weight=torch.eye(1).double(),
    )  # fmt: skip
    for backend in BACKENDS:
        assert fae.greedy_order(batch, backend=backend).order.tolist() == [0, 2, 3, 1]


def test_equal_items_go_by_position() -> None:
    batch = fae.AttentionBatch(
        torch.eye(2)[[0, 1, 0, 1, 0]].double(), torch.tensor([0, 5]),
        weights=torch.ones(5), head_weight=torch.eye(2).double(),
    )  # fmt: skip
    for backend in BACKENDS:
        found = fae.greedy_order(batch, backend=backend)
        assert found.order.tolist() == [0, 2, 4, 1, 3]
        assert found.certain.tolist() == [0]
        assert fae.greedy_order(batch, until_flip=True, backend=backend).removed.tolist() == [2]
        assert fae.greedy_order(batch, steps=1, backend=backend).order.tolist() == [0, 1, 2, 3, 4]


def arguments(name: str, backend: str) -> tuple[object, ...]:
    """The arguments of an operator, on two instances of 3 and 2 items."""
    offsets, status = torch.tensor([0, 3, 5]), torch.zeros(2, dtype=torch.int64)
    weights = torch.tensor([0.5, 0.3, 0.2, 0.6, 0.4], dtype=torch.float64)
    outputs = torch.arange(-4.0, 6.0, dtype=torch.float64).reshape(5, 2).flip(0)
    if name == "shapley":
        return offsets, status, weights.log(), outputs, 1e-9, backend
    if name == "sufficient":
        return offsets, status, weights, outputs, status.new_ones(2, 2), weights[:2], backend
    if name == "greedy":
        wins = status.new_ones(2, 2)
        return offsets, status, weights, outputs, outputs[:2], wins, weights[:2], -1, False, backend
    kept, points = torch.tensor([3, 1, 0, 2]), torch.tensor([0, 3, 4])
    order = torch.tensor([[2, 0, 1, 1, 0]])
    empty = weights.new_zeros(2, 2)
    return offsets, status, weights, outputs, empty, points, kept, order, False, backend


@pytest.mark.parametrize("name", ["envelope", "greedy", "shapley", "sufficient"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_opcheck(name: str, backend: str) -> None:
    torch.library.opcheck(getattr(exact_library, f"{name}_op"), arguments(name, backend))


@pytest.mark.parametrize("name", ["envelope", "greedy", "shapley", "sufficient"])
def test_thread_count_and_batch_change_no_bit(name: str) -> None:
    operator = getattr(exact_library, f"{name}_op")
    rng = torch.Generator().manual_seed(4)
    T = 20_000
    offsets = torch.tensor([0, 5_000, 5_003, 12_000, T])
    status = torch.zeros(4, dtype=torch.int64)
    outputs = torch.randn(T, 2, generator=rng, dtype=torch.float64)
    weights = torch.rand(T, generator=rng, dtype=torch.float64)
    kept = torch.tensor([4_000, 1_000, 2, 1, 3_500, 20, 4_000])
    points = torch.tensor([0, 2, 4, 5, 7])
    args: dict[str, tuple[object, ...]] = {
        "greedy": (
            offsets, status, weights, outputs, outputs[:4], status.new_zeros(4, 2), weights[:4],
            50, False, "cpu",
        ),
        "shapley": (offsets, status, weights.log(), outputs, 1e-3, "cpu"),
        "sufficient": (
            offsets, status, weights, outputs - 1, status.new_zeros(4, 2), weights[:4], "cpu",
        ),
        "envelope": (
            offsets, status, weights, outputs, weights[:8].reshape(4, 2), points, kept,
            torch.zeros(0, T, dtype=torch.int64), False, "cpu",
        ),
    }  # fmt: skip
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(operator(*args[name]))
    finally:
        torch.set_num_threads(threads)
    for x, y in zip(*found, strict=True):
        assert torch.equal(x, y)


def test_long_instances_agree_with_the_reference() -> None:
    """Selections by sample, blocks of items, several levels: n = 5,000, and weights of any size."""
    rng = torch.Generator().manual_seed(5)
    n = 5_000
    batch = fae.AttentionBatch(
        torch.randn(n, 3, generator=rng, dtype=torch.float64), torch.tensor([0, n]),
        scores=6 * torch.randn(n, generator=rng, dtype=torch.float64),
        head_weight=torch.randn(3, 3, generator=rng, dtype=torch.float64),
    )  # fmt: skip
    mine, theirs = (
        fae.envelope(batch, ["attention"], grid=9, backend=backend)
        for backend in ("cpu", "reference")
    )
    torch.testing.assert_close(mine.lower, theirs.lower, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mine.upper, theirs.upper, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mine.curves, theirs.curves, rtol=1e-9, atol=1e-9)
    assert mine.erased.tolist() == [0, 625, 1250, 1875, 2500, 3125, 3750, 4375, 5000]


@pytest.mark.parametrize("kind", ["ties", "without_weight", "heavy"])
def test_envelopes_at_every_prefix_agree_with_the_reference(kind: str) -> None:
    """Items are told apart between answered points: equal keys, items without weight, heavy ones.

    A sum of n numbers is off by n units in the last place at most.
    """
    rng = torch.Generator().manual_seed(6)
    n = 400
    if kind == "ties":
        values = torch.randint(-1, 2, (n, 2), generator=rng).double()
        scores = torch.zeros(n, dtype=torch.float64)
    else:
        values = torch.randn(n, 2, generator=rng, dtype=torch.float64)
        scores = torch.randn(n, generator=rng, dtype=torch.float64) * (60 if kind == "heavy" else 1)
    if kind == "without_weight":
        scores[torch.rand(n, generator=rng) < 0.3] = -torch.inf
    head = torch.tensor([[1.0, 0.5], [-0.5, 1.0], [0.0, -1.0]], dtype=torch.float64)
    batch = fae.AttentionBatch(values, torch.tensor([0, n]), scores=scores, head_weight=head)
    mine, theirs = (fae.envelope(batch, backend=backend) for backend in ("cpu", "reference"))
    assert len(mine.erased) == n + 1
    torch.testing.assert_close(mine.lower, theirs.lower, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mine.upper, theirs.upper, rtol=1e-12, atol=1e-12)


def test_scores_that_span_any_range_have_shapley_values() -> None:
    # Item 0 has all the mass wherever it is kept, item 1 where it alone is: v = 3, else 1, else 0.
    batch = fae.AttentionBatch(
        torch.tensor([[3.0], [1.0]]), torch.tensor([0, 2]), scores=torch.tensor([2000.0, 0.0]),
        head_weight=torch.tensor([[1.0]]),
    )  # fmt: skip
    for backend in BACKENDS:
        found = fae.shapley_values(batch, backend=backend)
        torch.testing.assert_close(found.values[:, 0], torch.tensor([2.5, 0.5]).double())
        assert fae.Status(int(found.status[0])) == fae.Status.UNDERFLOW


def test_shapley_is_a_ranking() -> None:
    batch = batch_of(draw("random", 20, 3, seed=6))
    values = fae.shapley_values(batch).values  # [T, C]
    logits = fae.sweep(batch, (), logits=True, single=False, minimal=False).prefixes.logits
    label, rival = logits.topk(2).indices.T  # [B] each
    instance = batch.instance_of_item
    lead = values.gather(1, label[instance, None]) - values.gather(1, rival[instance, None])
    assert torch.equal(fae.rank(batch, "shapley"), fae.rank(batch, lead[:, 0]))


def test_what_has_no_answer() -> None:
    values = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [2.0, 1.0]])
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 2, 2, 3]), weights=torch.ones(3), head_weight=torch.eye(2)
    )
    for backend in BACKENDS:
        bounds = fae.envelope(batch, ["attention"], backend=backend)
        assert bounds.point_offsets.tolist() == [0, 3, 4, 6]
        assert bounds.lower[:3].isnan().all()
        assert bounds.lower[3:, 0].tolist() == bounds.upper[3:, 0].tolist() == [0, 1, 0]
        assert bounds.normalized_area.isnan().all()
        shapley = fae.shapley_values(batch, backend=backend)
        assert shapley.values[:2].isnan().all()
        torch.testing.assert_close(shapley.values[2], torch.tensor([2.0, 1.0]).double())
        sets = fae.minimal_sufficient_set(batch, backend=backend)
        assert sets.size.tolist() == [-1, -1, 1]
        assert sets.optimal.tolist() == [False, False, True]
        assert sets.order.tolist() == [0, 1, 0]
    for table in (bounds, shapley, sets):
        assert table.to_pandas()["label"].tolist() == [-1, 0, 0]
        assert "3 instances" in repr(table)


def test_mistakes() -> None:
    batch = batch_of(draw("random", 2, 3, seed=1))
    with pytest.raises(ValueError, match="grid: given 1, needed 2 points or more"):
        fae.envelope(batch, grid=1)
    with pytest.raises(ValueError, match=r"grid: given .*, needed shares of the items in"):
        fae.envelope(batch, grid=[0.5, 2.0])
    with pytest.raises(ValueError, match="direction: given 'both', needed 'erase' or 'keep'"):
        fae.envelope(batch, direction="both")
    with pytest.raises(ValueError, match="steps: given -1, needed 0 or more"):
        fae.greedy_order(batch, steps=-1)
    with pytest.raises(ValueError, match="tolerance: given 0, needed above 0"):
        fae.shapley_values(batch, tolerance=0)
    with pytest.raises(ValueError, match="threshold: given one with C = 3, needed one for one"):
        fae.minimal_sufficient_set(batch, threshold=1.0)
    heads = fae.AttentionBatch(
        torch.zeros(2, 2, 3), torch.tensor([0, 2]), scores=torch.zeros(2, 2),
        head_weight=torch.zeros(2, 2, 3),
    )  # fmt: skip
    with pytest.raises(ValueError, match="batch: given 2 attention heads, needed a linear head"):
        fae.shapley_values(heads)
