"""The operators as citizens of torch: opcheck, compile, export, fake and meta tensors, modes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import fastattnerase as fae
from contract.cases import CASES
from contract.harness import Runner, skip_where_refused
from contract.public import RANKINGS, everything, ragged, results

LENGTHS = [5, 0, 9, 1]
# To torch, the variants of the CPU engine are the same operator: one stands for all at first.
other_variants_later = pytest.mark.long_where(
    these=lambda p: p["runner"].startswith("cpu-") and p["runner"] != "cpu-plain"
)
ALL_CURVES = ("js", "kl", "label_prob", "mass", "decision", "logits")
EVERYTHING = (1 << 13) - 1  # every optional result of the operator


def operator_arguments(runner: Runner, **changes: Any) -> tuple[Any, ...]:
    """Every ranking flips every instance: opcheck does not take two NaN for equal."""
    args = ragged([5, 9, 1], device=runner.device, dtype=changes.get("dtype", torch.float32))
    args["values"] = [v.abs() for v in args["values"]]
    args["head_weight"] = args["head_weight"].abs() * torch.tensor([[1], [-1], [-2]]).to(
        args["head_weight"]
    )
    args["head_bias"] = torch.tensor([0.0, 0.0, 0.01], device=runner.device)
    batch = fae.AttentionBatch.from_list(**args)
    keys = torch.linspace(0, 1, batch.num_items, device=runner.device)
    order = fae.rank(batch, keys, backend=runner.name)
    return (
        batch.values[:, None],
        batch.offsets,
        batch.scores[:, None],
        True,
        batch.head_weight[:, None],
        batch.head_bias,
        batch.ids,
        [0, 1, 4, 9, 10],
        [0, 0, 2, 0, 0],
        [order],
        [keys],
        3,
        False,
        changes.get("wants", EVERYTHING),
        runner.name,
        True,
    )


@pytest.mark.parametrize("wants", [0, 1, EVERYTHING])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@other_variants_later
def test_opcheck_of_sweep(runner: Runner, wants: int, dtype: torch.dtype) -> None:
    args = operator_arguments(runner, wants=wants, dtype=dtype)
    torch.library.opcheck(torch.ops.fastattnerase.sweep.default, args)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@other_variants_later
def test_opcheck_of_pooled_prefixes(runner: Runner) -> None:
    values, offsets, scores, *_ = operator_arguments(runner)
    order = operator_arguments(runner)[9][0]
    for keep in (False, True):
        args = (values, offsets, scores, True, order, keep, 3, 9, runner.name)
        torch.library.opcheck(torch.ops.fastattnerase.pooled_prefixes.default, args)


class Model(torch.nn.Module):
    """A classifier with attention that returns its own sweep."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend
        self.score = torch.nn.Linear(6, 1)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch = fae.AttentionBatch(
            values,
            offsets,
            scores=self.score(values).squeeze(-1),
            head_weight=self.head.weight,
            head_bias=self.head.bias,
        )
        result = fae.sweep(
            batch, ("attention", "product", "random"), curves=("js",), backend=self.backend
        )
        assert result.minimal is not None
        first = result.prefixes.first_flip
        return first, result.prefixes.curves["js"], result.minimal.size, result.prefixes.status


def model_and_input(runner: Runner) -> tuple[Model, Tensor, Tensor]:
    torch.manual_seed(1)
    model = Model(runner.name).to(runner.device)
    values = torch.randn(sum(LENGTHS), 6, device=runner.device)
    lengths = torch.tensor([0, *LENGTHS], device=runner.device)
    return model, values, lengths.cumsum(0)


COMPILERS = ["eager", "aot_eager"]
if shutil.which("c++") or shutil.which("g++"):
    COMPILERS.append("inductor")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.filterwarnings("ignore")
@other_variants_later
def test_compile_in_one_graph(runner: Runner, compiler: str) -> None:
    torch._dynamo.reset()
    model, values, offsets = model_and_input(runner)
    want = model(values, offsets)
    got = torch.compile(model, backend=compiler, fullgraph=True)(values, offsets)
    for x, y in zip(want, got, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-6, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@other_variants_later
def test_compile_with_dynamic_shapes(runner: Runner) -> None:
    torch._dynamo.reset()
    model, values, offsets = model_and_input(runner)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for cut in (len(values), len(values) - 4):
        some = offsets.clamp(max=cut)
        want, got = model(values[:cut], some), compiled(values[:cut], some)
        for x, y in zip(want, got, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-6, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@other_variants_later
def test_B61_compiled_with_deterministic_algorithms(runner: Runner) -> None:
    torch._dynamo.reset()
    model, values, offsets = model_and_input(runner)
    want = model(values, offsets)
    torch.use_deterministic_algorithms(True)
    try:
        eager = model(values, offsets)
        got = torch.compile(model, backend="aot_eager", fullgraph=True)(values, offsets)
    finally:
        torch.use_deterministic_algorithms(False)
    for x, y, z in zip(want, got, eager, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-6, equal_nan=True)
        torch.testing.assert_close(x, z, rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@other_variants_later
def test_export(runner: Runner) -> None:
    model, values, offsets = model_and_input(runner)
    program = torch.export.export(model, (values, offsets))
    assert any("fastattnerase" in str(node.target) for node in program.graph.nodes)
    for x, y in zip(model(values, offsets), program.module()(values, offsets), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fake_and_meta_results_have_the_real_shapes(runner: Runner, dtype: torch.dtype) -> None:
    args = operator_arguments(runner, dtype=dtype)
    real = torch.ops.fastattnerase.sweep(*args)
    with FakeTensorMode() as mode:
        fake = torch.ops.fastattnerase.sweep(*_each(args, mode.from_tensor))
    meta = torch.ops.fastattnerase.sweep(*_each(args, lambda t: t.to("meta")))
    assert len(real) == len(fake) == len(meta) == 19
    for r, f, m in zip(real, fake, meta, strict=True):
        assert r.shape == f.shape == m.shape
        assert r.dtype == f.dtype == m.dtype
        assert r.stride() == f.stride() == m.stride()
        assert m.device.type == "meta"


def _each(args: tuple[Any, ...], change: Any) -> list[Any]:
    out = []
    for a in args:
        if isinstance(a, Tensor):
            out.append(change(a))
        elif isinstance(a, list) and a and isinstance(a[0], Tensor):
            out.append([change(t) for t in a])
        else:
            out.append(a)
    return out


def test_results_carry_no_gradient(runner: Runner) -> None:
    args = ragged(LENGTHS, device=runner.device)
    for name in ("head_weight", "head_bias"):
        args[name].requires_grad_()
    args["values"] = [v.requires_grad_() for v in args["values"]]
    args["scores"] = [s.requires_grad_() for s in args["scores"]]
    result = everything(fae.AttentionBatch.from_list(**args), runner)
    assert not any(t.requires_grad for t in results(result).values())
    assert args["head_weight"].grad is None


def test_the_random_state_stays(runner: Runner) -> None:
    batch = fae.AttentionBatch.from_list(**ragged(LENGTHS, device=runner.device))
    state = torch.get_rng_state()
    everything(batch, runner, random_orders=4)
    fae.rank(batch, "random", seed=9, backend=runner.name)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_a_model_stays(runner: Runner, training: bool) -> None:
    """A head with dropout: the engine neither switches it nor leaves it switched."""
    head = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))
    head = head.to(runner.device).train(training)
    args = ragged([4, 2], device=runner.device)
    args["head"] = lambda pooled, instance: head(pooled)
    del args["head_weight"], args["head_bias"]
    fae.erase_prefixes(fae.AttentionBatch.from_list(**args), "attention", backend=runner.name)
    assert all(m.training == training for m in head.modules())
    assert all(p.grad is None for p in head.parameters())


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 28])
def test_a_callable_head_equals_the_linear_one(runner: Runner, keep: bool, max_bytes: int) -> None:
    """The pooled path: same decisions and curves as the fused one, in chunks of any size."""
    args = ragged([5, 0, 9, 1], device=runner.device)
    linear = fae.AttentionBatch.from_list(**args)
    weight, bias = args.pop("head_weight"), args.pop("head_bias")
    seen = []

    def head(pooled: Tensor, instance: Tensor) -> Tensor:
        seen.append(pooled.numel() * pooled.element_size())
        assert instance.shape == pooled.shape[:1]
        return pooled @ weight.T.to(pooled.dtype) + bias

    pooled = fae.AttentionBatch.from_list(**args, head=head)
    options = {
        "curves": ALL_CURVES,
        "direction": "keep" if keep else "erase",
        "backend": runner.name,
        "seed": 3,
    }
    rankings = [r for r in RANKINGS if r != "leave_one_out"]
    a = fae.erase_prefixes(linear, rankings, **options)
    b = fae.erase_prefixes(pooled, rankings, max_bytes=max_bytes, **options)
    assert max(seen) <= max(max_bytes, 6 * 4 * 10) or max_bytes == 1
    for name in ("label", "first_flip", "flip_label"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    for name in ALL_CURVES:
        torch.testing.assert_close(
            a.curves[name], b.curves[name], rtol=1e-5, atol=2e-6, equal_nan=True, msg=name
        )
    x, y = (fae.erase_each(batch, backend=runner.name) for batch in (linear, pooled))
    assert torch.equal(x.flip_label, y.flip_label)
    torch.testing.assert_close(x.js, y.js, rtol=1e-5, atol=2e-6)
    with pytest.raises(ValueError, match="minimal"):
        fae.minimal_flip_set(pooled, backend=runner.name)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "name", ["base", "holes", "peaked", "wide-span", "heads-2", "sliced-bfloat16", "zero-mass"]
)
def test_pooled_prefixes(
    runner: Runner, name: str, keep: bool, record_property: Callable[[str, object], None]
) -> None:
    """Against the renormalised averages of the survivors, from any beginning, fully written."""
    built = runner.build(CASES[name])
    p = built.problem
    if runner.name != "triton":  # it sweeps one attention head, but pools any number
        skip_where_refused(runner, p, record_property)
    t, b = p.values.shape[0], len(p.ids)
    order = (
        torch.cat([torch.randperm(int(n)) for n in p.offsets.diff()] or [torch.zeros(0)])
        .long()
        .to(runner.device)
    )
    expected = []
    offsets = p.offsets.tolist()
    for i in range(b):
        rows = slice(offsets[i], offsets[i + 1])
        ranks, att = order[rows].cpu(), p.attention[rows].double().cpu()
        values = p.values[rows].double().cpu()
        for k in range(offsets[i + 1] - offsets[i] + 1):
            left = ranks[:k] if keep else ranks[k:]
            e = att[left]
            if p.is_scores:
                top = e.amax(0) if len(e) else e.sum(0)
                a = (e - top.clamp(min=-1e300)).exp()
            else:
                a = e
            total = a.sum(0)
            pooled = (a[..., None] * values[left]).sum(0) / total.clamp(min=1e-300)[:, None]
            expected.append(torch.where(total[:, None] > 0, pooled, 0.0))
    want = torch.stack(expected)
    for begin, count in ((0, t + b), (2, t + b - 2), (1, 3)):
        got = torch.ops.fastattnerase.pooled_prefixes(
            p.values, p.offsets, p.attention, p.is_scores, order, keep, begin, count, runner.name
        )
        assert got.dtype == (torch.float64 if p.values.dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(
            got.double().cpu(), want[begin : begin + count], rtol=1e-6, atol=1e-6
        )
