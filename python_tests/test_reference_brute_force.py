"""The reference against erasing one set at a time with exactly rounded sums."""

import itertools
import math

import pytest
import torch

import fastattnerase as fae
from fastattnerase.status import Status


def logits_of(weights, contributions, bias, survivors):
    """z_c = Σ_h Σ a s / Σ a + b_c over the survivors, every sum by `math.fsum`."""
    heads, classes = len(weights[0]) if weights else 0, len(bias)
    logits = list(bias)
    for h in range(heads):
        mass = math.fsum(weights[i][h] for i in survivors)
        if mass > 0:
            for c in range(classes):
                logits[c] += (
                    math.fsum(weights[i][h] * contributions[i][h][c] for i in survivors) / mass
                )
    return logits


def argmax(logits):
    return logits.index(max(logits))


def softmax(logits):
    top = max(logits)
    parts = [math.exp(z - top) for z in logits]
    return [part / math.fsum(parts) for part in parts]


def js(p, q):
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total += (a * math.log(a / m) if a else 0) + (b * math.log(b / m) if b else 0)
    return total / 2


def random_batch(seed, heads, classes, use_scores, spread):
    generator = torch.Generator().manual_seed(seed)
    lengths = [1, 2, 3, 5, 8, 13, 0, 10]
    T, shape = sum(lengths), (heads, 3) if heads > 1 else (3,)
    values = torch.randn(T, *shape, generator=generator, dtype=torch.float64)
    attention = spread * torch.randn(T, *shape[:-1], generator=generator, dtype=torch.float64)
    attention[torch.rand(T, generator=generator) < 0.1] = -math.inf
    given = {"scores": attention} if use_scores else {"weights": attention.exp()}
    return fae.AttentionBatch(
        values,
        torch.tensor([0, *itertools.accumulate(lengths)]),
        **given,
        head_weight=torch.randn(classes, *shape, generator=generator, dtype=torch.float64),
        head_bias=torch.randn(len(lengths), classes, generator=generator, dtype=torch.float64) / 4,
    )


def plain(batch, b):
    """Weights [n][H], contributions [n][H][C] and bias [C] of an instance, as Python lists."""
    begin, end = batch.offsets[b : b + 2].tolist()
    n, H, D = end - begin, batch.num_heads, batch.values.shape[-1]
    values = batch.values[begin:end].reshape(n, H, D)
    head = batch.head_weight.reshape(batch.num_classes, H, D)
    contributions = torch.einsum("nhd,chd->nhc", values, head).tolist()
    if batch.scores is not None:
        weights = batch.scores[begin:end].exp()
    else:
        weights = batch.weights[begin:end]
    weights = weights.reshape(n, H)
    total = weights.sum(0)
    weights = torch.where(total > 0, weights / total, 0)
    return weights.tolist(), contributions, batch.head_bias[b].tolist()


CASES = [
    (seed, heads, classes, use_scores, spread)
    for seed, (heads, classes, use_scores, spread) in enumerate(
        itertools.product((1, 2), (2, 3, 5), (True, False), (0.5, 4.0))
    )
]
NAMES = (
    "attention", "gradient", "product", "renormalized_gradient", "random", "leave_one_out",
    "leave_one_out_drop", "greedy",
)  # fmt: skip


@pytest.mark.parametrize("direction", ["erase", "keep"])
@pytest.mark.parametrize("case", CASES)
def test_every_prefix_of_every_ranking(case, direction):
    batch = random_batch(*case)
    curves = ("js", "kl", "label_prob", "mass", "decision", "logits")
    result = fae.erase_prefixes(
        batch, NAMES, curves=curves, direction=direction, seed=3, backend="reference"
    )
    compared = 0
    for row, name in enumerate(NAMES):
        order = fae.rank(batch, name, seed=3, backend="reference")
        for b in range(len(batch)):
            weights, contributions, bias = plain(batch, b)
            n = len(weights)
            begin = int(batch.offsets[b])
            taken = order[begin : begin + n].tolist()
            assert sorted(taken) == list(range(n))
            if result.status[b] & Status.NEAR_TIE:
                continue
            points = slice(begin + b, begin + b + n + 1)
            curve = {key: value[row, points].tolist() for key, value in result.curves.items()}
            original = logits_of(weights, contributions, bias, range(n))
            label = argmax(original)
            p = softmax(original)
            flips = []
            for k in range(n + 1):
                survivors = taken[k:] if direction == "erase" else taken[:k]
                logits = logits_of(weights, contributions, bias, survivors)
                q = softmax(logits)
                assert curve["logits"][k] == pytest.approx(logits, abs=1e-9)
                assert curve["decision"][k] == argmax(logits)
                assert curve["js"][k] == pytest.approx(js(p, q), abs=1e-9)
                kl = math.fsum(x * math.log(x / y) for x, y in zip(q, p, strict=True))
                assert curve["kl"][k] == pytest.approx(kl, abs=1e-9)
                assert curve["label_prob"][k] == pytest.approx(q[label], abs=1e-9)
                mass = math.fsum(sum(weights[i]) / len(weights[i]) for i in survivors)
                assert curve["mass"][k] == pytest.approx(mass, abs=1e-12)
                if k and (argmax(logits) == label) == (direction == "keep"):
                    flips.append(k)
                compared += 1
            assert result.label[b] == label
            if result.status[b] & (Status.EMPTY | Status.ZERO_MASS) or not flips:
                assert result.first_flip[row, b] == -1
                assert result.removed_mass[row, b].isnan()
                continue
            first = flips[0]
            assert result.first_flip[row, b] == first
            assert result.flip_label[row, b] == curve["decision"][first]
            left = curve["mass"][first]
            assert result.removed_mass[row, b].item() == pytest.approx(1 - left, abs=1e-12)
    assert compared > 200


@pytest.mark.parametrize("case", CASES)
def test_every_item_alone(case):
    batch = random_batch(*case)
    result = fae.erase_each(batch, backend="reference")
    for b in range(len(batch)):
        weights, contributions, bias = plain(batch, b)
        if result.status[b] & (Status.NEAR_TIE | Status.ZERO_MASS):
            continue
        n, begin = len(weights), int(batch.offsets[b])
        original = logits_of(weights, contributions, bias, range(n))
        for i in range(n):
            logits = logits_of(weights, contributions, bias, [j for j in range(n) if j != i])
            flips = argmax(logits) != argmax(original)
            item = begin + i
            assert result.flip_label[item] == (argmax(logits) if flips else -1)
            assert bool(result.flip[item]) == flips
            p, q = softmax(original), softmax(logits)
            assert result.js[item].item() == pytest.approx(js(p, q), abs=1e-9)
            drop = p[argmax(original)] - q[argmax(original)]
            assert result.label_prob_drop[item].item() == pytest.approx(drop, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("use_scores", [True, False])
def test_minimal_set_against_all_subsets(classes, use_scores):
    generator = torch.Generator().manual_seed(classes)
    lengths = [1, 2, 3, 4, 6, 8, 9, 10, 11, 12]
    T = sum(lengths)
    attention = torch.randn(T, generator=generator, dtype=torch.float64)
    attention[::7] = -math.inf
    given = {"scores": attention} if use_scores else {"weights": attention.exp()}
    head = torch.randn(classes, 3, generator=generator, dtype=torch.float64)
    batch = fae.AttentionBatch(
        torch.randn(T, 3, generator=generator, dtype=torch.float64) + head[0] / 2,
        torch.tensor([0, *itertools.accumulate(lengths)]),
        **given,
        head_weight=head,
        head_bias=torch.randn(len(lengths), classes, generator=generator, dtype=torch.float64) / 8,
    )
    result = fae.minimal_flip_set(batch, backend="reference")
    sizes = []
    for b, n in enumerate(lengths):
        if result.status[b] & (Status.NEAR_TIE | Status.ZERO_MASS):
            continue
        weights, contributions, bias = (torch.tensor(x).double() for x in plain(batch, b))
        kept = torch.tensor(list(itertools.product((1.0, 0.0), repeat=n)), dtype=torch.float64)
        mass = kept @ weights[:, 0]  # [2^n]
        sums = kept @ (weights * contributions[:, 0])  # [2^n, C]
        mean = torch.where(mass[:, None] > 0, sums / mass[:, None], 0)
        decision = (mean + bias).argmax(1)  # [2^n]
        erased = n - kept.sum(1)
        flipping = erased[decision != decision[0]]
        smallest = int(flipping.min()) if len(flipping) else -1
        assert result.size[b] == smallest, (b, n)
        sizes.append(smallest)
        begin = int(batch.offsets[b])
        taken = result.order[begin : begin + n].tolist()
        assert sorted(taken) == list(range(n))
        if smallest > 0:
            after = [i for i in range(n) if i not in taken[:smallest]]
            logits = logits_of(weights.tolist(), contributions.tolist(), bias.tolist(), after)
            assert result.flip_label[b] == argmax(logits)
    assert len(sizes) >= 8
    assert max(sizes) >= 2


@pytest.mark.parametrize("seed", range(5))
def test_no_ranking_beats_the_minimal_set(seed):
    batch = random_batch(seed, 1, 3, True, 1.0)
    result = fae.sweep(batch, (*NAMES, "minimal"), backend="reference")
    flips, size = result.prefixes.first_flip, result.minimal.size
    assert torch.equal(flips[-1], size)
    for b in range(len(batch)):
        if not result.prefixes.status[b] & Status.NEAR_TIE:
            found = flips[:, b][flips[:, b] > 0]
            assert size[b] > 0 or len(found) == 0
            assert (found >= size[b]).all()


def test_near_ties_are_found_where_they_are():
    # Margins against class 1: 6 + gap, −1, −5: the whole is near a tie, without item 0 it is not.
    # 3e-6 · (‖h‖ ‖W‖) is about 3e-5 here.
    for gap, marked in ((1e-8, True), (1e-2, False)):
        batch = fae.AttentionBatch(
            torch.tensor([[6.0 + gap, 0], [0, 1], [0, 5]], dtype=torch.float64),
            torch.tensor([0, 3]),
            weights=torch.ones(3),
            head_weight=torch.eye(2),
        )
        result = fae.erase_prefixes(batch, [torch.tensor([0, 1, 2])], backend="reference")
        assert bool(result.status[0] & Status.NEAR_TIE) == marked
        assert result.first_flip.tolist() == [[1]]


def test_near_ties_behind_the_first_flip_do_not_count():
    # Survivors by k: −1/4 of (5, −1, −1.5, 1.5): 4, −1, 0, 1.5; it flips at k = 1, k = 2 would tie.
    batch = fae.AttentionBatch(
        torch.tensor([[5.0, 0], [0, 1], [0, 1.5], [1.5, 0]], dtype=torch.float64),
        torch.tensor([0, 4]),
        weights=torch.ones(4),
        head_weight=torch.eye(2),
    )
    result = fae.erase_prefixes(batch, [torch.tensor([0, 1, 2, 3])], backend="reference")
    assert result.first_flip.tolist() == [[1]]
    assert result.status.tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_composition_and_layout_change_no_bit(dtype):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([7, 1, 0, 30, 12])
    B, N, D = 5, 30, 6
    values = torch.randn(B, N, D, generator=generator).to(dtype)
    scores = torch.randn(B, N, generator=generator).to(dtype)
    head = {
        "head_weight": torch.randn(3, D, generator=generator),
        "head_bias": torch.randn(3, generator=generator),
    }
    names, options = NAMES[:7], {"curves": ("js", "logits"), "backend": "reference"}
    whole = fae.AttentionBatch.from_padded(values, scores=scores, lengths=lengths, **head)
    expected = fae.sweep(whole, names, **options)

    def same(result, instances, items, points):
        for name in ("first_flip", "flip_label", "removed_mass"):
            mine, theirs = getattr(result.prefixes, name), getattr(expected.prefixes, name)
            assert torch.equal(mine.nan_to_num(-5), theirs[:, instances].nan_to_num(-5))
        for name, curve in result.prefixes.curves.items():
            assert torch.equal(curve, expected.prefixes.curves[name][:, points])
        assert torch.equal(result.single.js, expected.single.js[items])
        assert torch.equal(result.minimal.order, expected.minimal.order[items])

    every = slice(None)
    wider = torch.nn.functional.pad(values, (0, 0, 0, 470), value=float("nan"))
    padded = torch.nn.functional.pad(scores, (0, 470), value=float("nan"))
    for width in (35, 500):
        same(
            fae.sweep(
                fae.AttentionBatch.from_padded(
                    wider[:, :width], scores=padded[:, :width], lengths=lengths, **head
                ),
                names,
                **options,
            ),
            every,
            every,
            every,
        )
    strided = torch.stack([whole.values, whole.values], dim=1)[:, 0]
    assert not strided.is_contiguous()
    again = fae.AttentionBatch(strided, whole.offsets, scores=whole.scores, **head)
    same(fae.sweep(again, names, **options), every, every, every)
    same(
        fae.sweep(fae.AttentionBatch.cat([whole[:2], whole[2:]]), names, **options),
        every,
        every,
        every,
    )
    begin = int(whole.offsets[3])
    same(
        fae.sweep(whole[3:4], names, **options),
        slice(3, 4),
        slice(begin, begin + 30),
        slice(begin + 3, begin + 34),
    )
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        same(fae.sweep(whole, names, **options), every, every, every)
    finally:
        torch.set_num_threads(threads)


def test_long_instances_need_nothing_of_size_n_by_n():
    n = 65_536
    generator = torch.Generator().manual_seed(0)
    batch = fae.AttentionBatch(
        torch.randn(n, 4, generator=generator),
        torch.tensor([0, n]),
        scores=torch.randn(n, generator=generator),
        head_weight=torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]]),
    )
    names = [name for name in NAMES if name != "greedy"]
    result = fae.sweep(batch, names, backend="reference")
    assert result.minimal.size[0] > 0
    flips = result.prefixes.first_flip[:, 0]
    assert (flips[flips > 0] >= result.minimal.size[0]).all()
