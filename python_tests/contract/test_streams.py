"""Calls without validation never wait for the device, so that streams and graphs may hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fastattnerase as fae
from contract.harness import Runner, same
from contract.public import everything, ragged, results
from fastattnerase.problem import PooledProblem, Problem, RankingKind, allocate, as_outputs

LENGTHS = [5, 0, 40, 1]
# What makes the host read a tensor of the device, wait to learn a size, or copy numbers of its own.
WAITING = {
    "lift_fresh", "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select",
    "_unique2", "unique_dim", "repeat_interleave.Tensor",
}  # fmt: skip


class Watch(TorchDispatchMode):
    """Notes calls of operators that a device's stream would have to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(func).removeprefix("aten.")
        masks = name.startswith("index") and any(
            isinstance(x, torch.Tensor) and x.dtype == torch.bool
            for x in (args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ())
        )
        if masks or {name, name.split(".")[0]} & WAITING:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "call",
    [lambda x: x.sum().item(), lambda x: bool((x > 0).any()), lambda x: x[x > 0],
     lambda x: torch.repeat_interleave(x.long().clamp(0)), lambda x: x.nonzero(),
     lambda x: x + torch.tensor([1, 2, 3])],
)  # fmt: skip
def test_the_watch_sees_what_waits(call: Callable[[torch.Tensor], object]) -> None:
    with Watch() as watch:
        call(torch.ones(3))
    assert watch.found


def on_a_gpu(runner: Runner) -> None:
    if runner.device == "cpu":
        pytest.skip("streams are a GPU's")


def batch(runner: Runner, seed: int = 0, device: str = "") -> fae.AttentionBatch:
    return fae.AttentionBatch.from_list(
        **ragged(LENGTHS, seed=seed, device=device or runner.device)
    )


def test_the_public_functions_never_wait(runner: Runner) -> None:
    given = batch(runner)
    order = fae.rank(given, "attention", backend=runner.name)
    keys = torch.rand(given.num_items, device=runner.device)
    with Watch() as watch:
        everything(given, runner, validate=False)
        options: dict[str, Any] = {"backend": runner.name, "validate": False}
        for direction in ("erase", "keep"):
            fae.erase_prefixes(given, [order, keys], direction=direction, **options)
        fae.erase_each(given, **options)
        fae.minimal_flip_set(given, **options)
    assert watch.found == []


def test_the_backend_never_waits(runner: Runner) -> None:
    """What the operators hide from the watch: a backend's own steps, for every ranking."""
    if runner.name == "reference":
        pytest.skip("it is written in torch's terms for the host, conversions to numbers included")
    given = batch(runner)
    order = fae.rank(given, "random", backend=runner.name)
    keys = torch.rand(given.num_items, device=runner.device)
    kinds = tuple(RankingKind)
    problem = Problem(
        values=given.values[:, None],
        offsets=given.offsets,
        attention=given.scores[:, None],
        is_scores=True,
        head_weight=given.head_weight[:, None],
        head_bias=given.head_bias,
        ids=given.ids,
        rankings=kinds,
        ranking_args=(0,) * len(kinds),
        orders=(order,),
        keys=(keys,),
        validate=False,
    )
    wants = (1 << 13) - 1
    found = allocate(problem.values, problem.offsets, given.num_classes, len(kinds), wants)
    pooled = PooledProblem(problem.values, given.offsets, problem.attention, True, order, False, 0)
    with Watch() as watch:
        runner.backend.sweep(problem, as_outputs(found, wants))
        runner.backend.pooled_prefixes(
            pooled, torch.empty(given.num_items + len(LENGTHS), 1, 6, device=runner.device)
        )
    assert watch.found == []


def test_torch_sees_no_wait(runner: Runner) -> None:
    on_a_gpu(runner)
    given = batch(runner)
    everything(given, runner, validate=False)  # compiles and loads
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        everything(given, runner, validate=False)
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_a_captured_sweep_is_replayed_on_other_values(runner: Runner) -> None:
    on_a_gpu(runner)
    given, other = batch(runner), batch(runner, seed=1)
    everything(given, runner, validate=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = results(everything(given, runner, validate=False))
    for tensor, new in ((given.values, other.values), (given.scores, other.scores)):
        tensor.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    again = results(everything(given, runner, validate=False))
    for name, tensor in captured.items():
        assert same(tensor, again[name]), name


def test_a_sweep_runs_in_the_current_stream(runner: Runner) -> None:
    """Behind work that takes a while: elsewhere it would find the values as they were."""
    on_a_gpu(runner)
    given, other = batch(runner), batch(runner, seed=1)
    want = results(everything(other, runner, validate=False))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for tensor, new in (
            (given.values, other.values),
            (given.scores, other.scores),
            (given.head_weight, other.head_weight),
            (given.head_bias, other.head_bias),
        ):
            tensor.copy_(new)
        got = results(everything(given, runner, validate=False))
    stream.synchronize()
    for name, tensor in want.items():
        assert same(tensor, got[name]), name


def test_a_sweep_runs_where_its_tensors_are(runner: Runner) -> None:
    on_a_gpu(runner)
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    want = results(everything(batch(runner), runner, validate=False))
    got = results(everything(batch(runner, device="cuda:1"), runner, validate=False))
    assert torch.cuda.current_device() == 0
    for name, tensor in want.items():
        assert got[name].device.index == 1
        assert same(tensor.cpu(), got[name].cpu()), name
