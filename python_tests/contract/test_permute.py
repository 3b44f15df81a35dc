"""`fae.permute` (engine contract, section 3b): every backend that has it, judged by the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import fastattnerase as fae
from contract.cases import CASES, Built, bands, guarded
from contract.harness import MAY, MUST, POISON, Judge, Runner, bits, same
from contract.oracle import NEAR_TIE, NON_FINITE, TOLERANCE, ZERO_MASS, Instance
from contract.public import one, ragged
from fastattnerase.ops.permutations import permuted
from fastattnerase.problem import PermutedOutputs, PermutedProblem, Problem

NAMES = [
    "base", "every-length", "every-length-double", "primes", "around-1024", "around-4096",
    "longest", "no-instances", "only-empty", "all-empty", "all-single", "one-instance", "han",
    "bilstm", "weights", "weights-unnormalised", "peaked", "peaked-weights", "one-heavy",
    "tiny-rest", "subnormal-weights", "huge-weights", "wide-span", "wide-span-all", "near-span",
    "astronomic-span", "holes", "zero-weights", "zero-mass", "zero-mass-scores", "equal-scores",
    "mask-constant-1e9-float32", "bias-zero", "bias-per-instance", "bias-per-instance-double",
    "bias-decides", "head-zero", "head-and-bias-zero", "confident", "identity-10-300-float32",
    "two-classes", "large-values", "small-values", "subnormal-values",
    "exact-ones-float32-erase", "exact-onehot-bfloat16-erase", "tied-values", "bad-values-nan",
    "bad-values-inf", "bad-attention-nan", "bad-attention-inf", "bad-weights-nan",
    "bad-bias-nan", "bad-shared-bias", "bad-head", "several-bad-items", "overflow",
    "overflow-but-not-in-differences", "no-overflow-double", "bad-and-wide", "classes-1",
    "classes-2", "classes-9", "classes-16", "classes-17", "classes-64", "classes-1000",
    "features-1", "features-129", "features-127-classes-17-float64",
    "features-513-classes-10-bfloat16", "float32-with-float64-scores",
    "float16-with-bfloat16-weights", "sliced-float32", "offset-bfloat16", "expanded-float64",
    "column-float32", "heads-2", "heads-3-weights", "heads-holes", "heads-wide", "heads-bad",
    "heads-sliced-bfloat16",
]  # fmt: skip
GOLDEN = 0x9E3779B97F4A7C15


def problem_of(problem: Problem, permutations: int) -> PermutedProblem:
    """The items and head of a sweep's problem."""
    own = {
        f.name: getattr(problem, f.name) for f in fields(PermutedProblem) if f.name in vars(problem)
    }
    return PermutedProblem(**own, permutations=permutations)


def tensors(record: PermutedProblem | PermutedOutputs) -> Iterator[tuple[str, Tensor]]:
    return ((name, value) for name, value in vars(record).items() if isinstance(value, Tensor))


def run(runner: Runner, problem: PermutedProblem) -> PermutedOutputs:
    """Two runs into poisoned results between guard bands: all written, nothing else touched."""
    before = {name: t.detach().clone() for name, t in tensors(problem)}
    margins = {name: bands(t) for name, t in tensors(problem)}
    found = []
    C = problem.head_weight.shape[0]
    for _ in range(2):
        room = PermutedOutputs.allocate(problem.values, problem.offsets, C, problem.permutations)
        out = PermutedOutputs(**{name: guarded(t) for name, t in tensors(room)})
        for _, t in tensors(out):
            bits(t).fill_(POISON[t.dtype])
        fences = {name: bands(t) for name, t in tensors(out)}
        runner.backend.permute(problem, out)  # type: ignore[attr-defined]
        for name, t in tensors(out):
            assert same(bands(t), fences[name]), f"{runner.name} wrote outside {name}"
            assert not (bits(t) == POISON[t.dtype]).any(), f"{runner.name} left {name} unwritten"
        found.append(out)
    for name, t in tensors(problem):
        assert same(t, before[name]), f"{runner.name} changed the input {name}"
        assert same(bands(t), margins[name]), f"{runner.name} wrote around the input {name}"
    for (name, a), (_, b) in zip(tensors(found[0]), tensors(found[1]), strict=True):
        assert same(a, b), f"{name} differs between two runs of {runner.name}"
    return found[0]


def random_order(seed: int, order: int, identity: int, n: int) -> np.ndarray:
    """The contract's generator once more: positions by descending key."""

    def mix(x: np.ndarray) -> np.ndarray:
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    with np.errstate(over="ignore"):
        stream = np.zeros(1, np.uint64)
        for part in (seed, order, identity):
            stream = mix(stream + np.array([part % 2**64], np.uint64) + np.uint64(GOLDEN))
        keys = mix(stream + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GOLDEN))
    return np.argsort(~keys, kind="stable")


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def permuted_logits(inst: Instance, problem: PermutedProblem) -> np.ndarray:
    """The logits under each permutation: [P, C]."""
    found = []
    for p in range(problem.permutations):
        order = random_order(problem.seed, 2**33 + p, inst.identity, inst.n)
        moved = inst.weights[order]  # [n, H]
        found.append(inst.bias + (moved[:, :, None] * inst.clean).sum((0, 1)))
    return np.stack(found)


def judge(
    built: Built, problem: PermutedProblem, out: PermutedOutputs, b: int, slack: float
) -> None:
    """Compare the results of one instance with the oracle's."""
    inst, narrow = built.instance(b), problem.values.dtype != torch.float64
    status, label = int(out.status[b]), int(out.label[b])
    ignore = NEAR_TIE | (ZERO_MASS if inst.status & NON_FINITE else 0)
    assert status & ~ignore == inst.status & ~ignore, f"status {status}, expected {inst.status}"
    if inst.status & NON_FINITE:
        assert label == int(out.flips[b]) == -1
        assert out.probabilities[b].isnan().all()
        assert out.tvd[:, b].isnan().all()
        assert not status & NEAR_TIE
        return
    eps = float(np.finfo(np.float32 if narrow else np.float64).eps)
    logits = permuted_logits(inst, problem).astype(float)  # [P, C]
    original = inst.original.logits.astype(float)  # [C]
    apart = np.abs(softmax(logits) - softmax(original)).sum(1) / 2  # [P]
    np.testing.assert_allclose(out.tvd[:, b].double().numpy(), apart, 0, 2 * slack + 8 * eps)
    probabilities = out.probabilities[b].double().numpy()
    np.testing.assert_allclose(probabilities, softmax(original), 0, slack + 4 * eps)
    tied = bool(status & NEAR_TIE)
    if not tied:
        assert label == int(np.argmax(original))
        assert int(out.flips[b]) == int((logits.argmax(1) != label).sum())
    if inst.decided and inst.heads == 1 and inst.classes > 1 and inst.norm > 0:
        every = np.concatenate([logits, original[None]])
        gap = np.abs(every[:, label, None] - every)
        gap[:, label] = np.inf
        ratio = gap.min() / (TOLERANCE * inst.norm)
        assert tied or ratio > MUST[narrow], f"a compared sum is {ratio:.3g} tolerances from zero"
        assert not tied or ratio < MAY[narrow], f"NEAR_TIE, but no sum is nearer than {ratio:.3g}"
    elif not inst.decided:
        assert not tied, "NEAR_TIE where nothing is compared"


@pytest.mark.parametrize("name", NAMES)
def test_case(permuter: Runner, name: str) -> None:
    built = permuter.build(CASES[name])
    small = built.problem.values.shape[0] < 5000
    problem = problem_of(built.problem, 5 if small else 2)
    out = run(permuter, problem)
    look = built.some(40)
    for b in look:
        try:
            judge(built, problem, out, b, Judge(built, out)._slack(built.instance(b)))
        except AssertionError as error:
            raise AssertionError(f"instance {b} of {name}: {error}") from None


@pytest.mark.parametrize("classes", [2, 3, 20])
@pytest.mark.parametrize("heads", [1, 2])
def test_weights_that_are_equal_change_nothing(permuter: Runner, classes: int, heads: int) -> None:
    """Exactly, whatever the rounding of what they weigh."""
    lengths = [6, 1, 0, 33, 200, 300]
    g = torch.Generator().manual_seed(1)
    inner = (5,) if heads == 1 else (heads, 5)
    for weight in (0.3, 0.0):
        batch = fae.AttentionBatch.from_list(
            values=[torch.randn(n, *inner, generator=g) for n in lengths],
            weights=[torch.full((n, *inner[:-1]), weight) for n in lengths],
            head_weight=torch.randn(classes, *inner, generator=g),
        )
        result = fae.permute(batch, 12, backend=permuter.name)
        assert (result.tvd == 0).all()
        assert (result.flips == 0).all()
        assert (result.median == 0).all()


def test_by_hand(permuter: Runner) -> None:
    """Three items of which one has all the weight: a third of the permutations leave it there."""
    batch = one(permuter, [[2.0], [0.0], [-1.0]], weights=[1.0, 0.0, 0.0], head=[[0.0], [1.0]])
    orders = [random_order(3, 2**33 + p, 0, 3).tolist() for p in range(8)]
    assert len({tuple(order) for order in orders}) > 3
    # The weight goes to the item whose place in the order holds position 0; p_1 = σ(its value).
    values = [[2.0, 0.0, -1.0][order.index(0)] for order in orders]
    p = [1 / (1 + np.exp(-v)) for v in values]
    result = fae.permute(batch, 8, seed=3, backend=permuter.name)
    expected = np.abs(np.array(p) - 1 / (1 + np.exp(-2)))
    np.testing.assert_allclose(result.tvd[:, 0].numpy(), expected, 0, 1e-7)
    # At a value of 0 the classes tie and the lower one, 0, is the decision: a flip.
    assert result.flips.tolist() == [sum(v <= 0 for v in values)]
    assert result.label.tolist() == [1]
    assert float(result.median[0]) == pytest.approx(np.median(expected), abs=1e-7)


@pytest.mark.parametrize("classes", [2, 4])
def test_equals_reweigh_of_permuted_weights(permuter: Runner, classes: int) -> None:
    args = ragged([7, 0, 1, 60, 130], classes=classes)
    batch = fae.AttentionBatch.from_list(**args)
    weights = fae.erase_prefixes(batch, "attention", weights=True).weights
    assert weights is not None
    result = fae.permute(batch, 6, seed=9, backend=permuter.name)
    rows = torch.stack([weights, *[permuted(batch, weights, p, seed=9) for p in range(6)]])
    logits = fae.reweigh(batch, rows).double()  # [1 + P, B, C]
    shares = logits.softmax(2)
    torch.testing.assert_close(
        result.tvd.double(), (shares[1:] - shares[0]).abs().sum(2) / 2, rtol=0, atol=5e-7
    )
    other = logits[1:].argmax(2) != logits[0].argmax(1)
    near = (result.status & NEAR_TIE) > 0
    assert torch.equal(result.flips[~near], other.sum(0)[~near])


def results(result: fae.PermutedWeights, b: int) -> dict[str, Tensor]:
    return {
        "tvd": result.tvd[:, b],
        "flips": result.flips[b],
        "label": result.label[b],
        "probabilities": result.probabilities[b],
        "status": result.status[b],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 400.0])
def test_batch_composition_and_threads(permuter: Runner, dtype: torch.dtype, spread: float) -> None:
    """Alone, in other company, and with more threads or permutations, the same bits."""
    lengths = [7, 0, 19, 1, 33, 5, 2, 64, 12, 300, 17]
    args = ragged(lengths, dtype=dtype, spread=spread)
    values, scores = args.pop("values"), args.pop("scores")

    def permute(rows: list[int], permutations: int) -> fae.PermutedWeights:
        batch = fae.AttentionBatch.from_list(
            values=[values[i] for i in rows],
            scores=[scores[i] for i in rows],
            ids=torch.tensor(rows),
            **args,
        )
        return fae.permute(batch, permutations, seed=2, backend=permuter.name)

    alone = [results(permute([i], 5), 0) for i in range(len(lengths))]
    many = [i * 7 % len(lengths) for i in range(300)]
    for rows in ([3, 1, 0, 2], list(reversed(range(len(lengths)))), many):
        for threads in (1, 3):
            torch.set_num_threads(threads)
            together = permute(rows, 5)
            for place, i in enumerate(rows):
                for name, x in results(together, place).items():
                    assert same(x, alone[i][name]), f"{name} of instance {i} among {rows[:9]}"
    more = permute(list(range(len(lengths))), 40)
    for i, own in enumerate(alone):
        assert same(more.tvd[:5, i], own["tvd"])


def test_mistakes(permuter: Runner) -> None:
    args = ragged([4, 5, 3])
    batch = fae.AttentionBatch.from_list(**args)
    right = fae.permute(batch, 3, backend=permuter.name)
    weights = torch.cat(args.pop("scores")).softmax(0)
    weights[6] = -1
    wrong = fae.AttentionBatch(
        torch.cat(args["values"]), batch.offsets, weights=weights,
        head_weight=args["head_weight"], head_bias=args["head_bias"],
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"weights(?=.*-1).*instance 1\b"):
        fae.permute(wrong, 3, backend=permuter.name)
    unchecked = fae.permute(wrong, 3, backend=permuter.name, validate=False)
    assert unchecked.status.tolist() == [0, int(fae.Status.INVALID), 0]
    assert unchecked.flips[1] == unchecked.label[1] == -1
    assert unchecked.tvd.isnan().all(0).tolist() == [False, True, False]
    assert unchecked.probabilities.isnan().all(1).tolist() == [False, True, False]
    batch.offsets[1] = 13
    with pytest.raises(ValueError, match="offsets"):
        fae.permute(batch, 3, backend=permuter.name)
    batch.offsets[1] = 4
    assert same(fae.permute(batch, 3, backend=permuter.name).tvd, right.tvd)


# --- the public function --------------------------------------------------------------------------


def test_wrong_arguments() -> None:
    batch = fae.AttentionBatch.from_list(**ragged([4, 2]))
    with pytest.raises(ValueError, match="permutations: given 0, needed 1 or more"):
        fae.permute(batch, 0)
    with pytest.raises(ValueError, match="seed: given -1, needed 0"):
        fae.permute(batch, seed=-1)
    with pytest.raises(TypeError, match="batch: given list"):
        fae.permute([batch])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backend: given 'gpu'"):
        fae.permute(batch, backend="gpu")  # type: ignore[arg-type]


def test_backends_without_it_say_so(runner: Runner) -> None:
    batch = fae.AttentionBatch.from_list(**ragged([4, 2], device=runner.device))
    if hasattr(runner.backend, "permute"):
        assert fae.permute(batch, 2, backend=runner.name).tvd.shape == (2, 2)
        return
    with pytest.raises(RuntimeError, match=f"{runner.name}.*: it has no permute"):
        fae.permute(batch, 2, backend=runner.name)
    assert fae.permute(batch, 2).tvd.shape == (2, 2)  # auto finds one that has


def test_result_as_a_record() -> None:
    args = ragged([5, 0, 3])
    args["values"][2][1, 0] = torch.nan
    result = fae.permute(fae.AttentionBatch.from_list(**args), 4)
    assert repr(result) == (
        "PermutedWeights(4 permutations, 3 instances; tvd [4, 3], flips [3], label [3], "
        "probabilities [3, 3], status [3], offsets [4])"
    )
    table = result.to_pandas()
    assert list(table.columns) == [
        "instance", "n", "label", "status", "status_names", "median", "flips", "permutations",
    ]  # fmt: skip
    assert table["n"].tolist() == [5, 0, 3]
    assert table["status_names"].tolist() == ["", "EMPTY", "NON_FINITE"]
    assert table["flips"].tolist()[1:] == [0, -1]
    np.testing.assert_array_equal(table["median"][:2], np.median(result.tvd[:, :2].numpy(), 0))
    assert table["median"].isna().tolist() == [False, False, True]
    assert result.to("meta").tvd.device.type == "meta"
    empty = fae.permute(fae.AttentionBatch.from_list(**args)[:0], 3)
    assert empty.tvd.shape == (3, 0)
    assert len(empty.to_pandas()) == 0


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("max_bytes", [1, 3000, 10**8])
def test_a_callable_head_equals_the_linear_one(heads: int, max_bytes: int) -> None:
    lengths = [5, 0, 1, 40, 3, 4]
    g = torch.Generator().manual_seed(3)
    inner = (4,) if heads == 1 else (heads, 4)
    values = torch.randn((sum(lengths), *inner), generator=g, dtype=torch.float64)
    scores = torch.randn(values.shape[:-1], generator=g)
    scores[-4:] = 0.25  # equal weights
    values[-6] = torch.nan
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    weight = torch.randn((3, *inner), generator=g, dtype=torch.float64)
    bias = torch.randn((6, 3), generator=g, dtype=torch.float64)
    linear = fae.AttentionBatch(values, offsets, scores=scores, head_weight=weight, head_bias=bias)
    calls = []

    def head(pooled: Tensor, instance: Tensor) -> Tensor:
        calls.append(len(pooled))
        return pooled.flatten(1) @ weight.flatten(1).T + bias[instance]

    called = fae.AttentionBatch(values, offsets, scores=scores, head=head)
    want = fae.permute(linear, 30, seed=4)
    got = fae.permute(called, 30, seed=4, max_bytes=max_bytes)
    torch.testing.assert_close(got.tvd, want.tvd, rtol=0, atol=1e-12, equal_nan=True)
    assert torch.equal(got.flips, want.flips)
    assert torch.equal(got.label, want.label)
    assert torch.equal(got.status, want.status & ~NEAR_TIE)
    assert (got.tvd[:, 5] == 0).all()
    assert max(calls) <= max(1, max_bytes // (heads * 4 * 8))
    part = fae.permute(called[3:], 30, seed=4, max_bytes=max_bytes)
    torch.testing.assert_close(part.tvd, got.tvd[:, 3:], rtol=0, atol=1e-12, equal_nan=True)


def test_a_head_that_breaks_under_a_permutation_is_seen() -> None:
    """A logarithm of what is negative where the weight is on the second item."""
    batch = fae.AttentionBatch(
        torch.tensor([[3.0], [-1.0]]), torch.tensor([0, 2]), weights=torch.tensor([0.9, 0.1]),
        head=lambda pooled: torch.cat([(pooled + 0.5).log(), pooled], 1),
    )  # fmt: skip
    result = fae.permute(batch, 20)
    orders = [random_order(0, 2**33 + p, 0, 2)[0] for p in range(20)]
    assert result.tvd[:, 0].isnan().tolist() == [order == 1 for order in orders]
    assert result.label.tolist() == [1]
    assert result.flips.tolist() == [-1]
    assert result.status.tolist() == [int(fae.Status.NON_FINITE)]


def test_a_module_keeps_its_mode_and_the_random_state() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.5))
    args = ragged([5, 3])
    batch = fae.AttentionBatch.from_list(args["values"], scores=args["scores"], head=module)
    state = torch.get_rng_state()
    first = fae.permute(batch, 5)
    assert module.training
    assert torch.equal(state, torch.get_rng_state())
    assert same(first.tvd, fae.permute(batch, 5).tvd)  # no dropout
    assert not first.tvd.requires_grad


# --- the operator ---------------------------------------------------------------------------------


def operator_arguments(dtype: torch.dtype) -> tuple[object, ...]:
    batch = fae.AttentionBatch.from_list(**ragged([5, 0, 9, 1], dtype=dtype))
    return (*batch.packed, *batch.linear_head, batch.ids, 6, 3, "auto", True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_opcheck(dtype: torch.dtype) -> None:
    torch.library.opcheck(torch.ops.fastattnerase.permute.default, operator_arguments(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fake_and_meta_results_have_the_real_shape(dtype: torch.dtype) -> None:
    args = operator_arguments(dtype)
    real = torch.ops.fastattnerase.permute(*args)
    with FakeTensorMode() as mode:
        fake = torch.ops.fastattnerase.permute(
            *[mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args]
        )
    meta = torch.ops.fastattnerase.permute(
        *[a.to("meta") if isinstance(a, Tensor) else a for a in args]
    )
    for x, y, z in zip(real, fake, meta, strict=True):
        assert x.shape == y.shape == z.shape
        assert x.dtype == y.dtype == z.dtype
        assert x.stride() == y.stride() == z.stride()


@pytest.mark.filterwarnings("ignore")
def test_compiles_in_one_graph() -> None:
    torch._dynamo.reset()
    args = ragged([5, 9, 1])
    values, scores, offsets = torch.cat(args["values"]), torch.cat(args["scores"]), [0, 5, 14, 15]

    def model(values: Tensor, scores: Tensor) -> Tensor:
        batch = fae.AttentionBatch(
            values, torch.tensor(offsets), scores=scores, head_weight=args["head_weight"]
        )
        return fae.permute(batch, 7).median

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(values, scores), model(values, scores))
