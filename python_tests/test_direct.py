"""Operators are called without torch's dispatcher only where nothing would notice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fastattnerase as fae
from fastattnerase.ops import running
from fastattnerase.ops.direct import nobody_listens
from fastattnerase.tensor_checks import are_plain


def batch_of(scores: Tensor, **more: Any) -> fae.AttentionBatch:
    return fae.AttentionBatch(
        torch.eye(3), torch.tensor([0, 3]), scores=scores, head_weight=2 * torch.eye(3), **more
    )


SCORES = torch.tensor([1.5, 0.5, 0.25])


@pytest.fixture
def through_torch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what a sweep went through, in order."""
    seen: list[str] = []

    def watched(name: str, call: Any) -> Any:
        return lambda *args: (seen.append(name), call(*args))[1]

    monkeypatch.setattr(running, "sweep_op", watched("operator", running.sweep_op))
    monkeypatch.setattr(running, "sweep_function", watched("function", running.sweep_function))
    return seen


def test_a_plain_call_needs_no_dispatcher(through_torch: list[str]) -> None:
    batch = batch_of(SCORES)
    assert nobody_listens()
    assert batch.plain
    fae.sweep(batch, ["attention", torch.tensor([2, 1, 0]), torch.rand(3)])
    assert through_torch == ["function"]


def test_tensors_that_lie_differently_in_memory_take_it(through_torch: list[str]) -> None:
    negated = torch._neg_view(-SCORES)  # as of a complex conjugate: memory holds -SCORES
    batch = batch_of(negated)
    assert not batch.plain
    found = fae.sweep(batch, ["attention"], orders=True).prefixes
    assert found.order.tolist() == [[0, 1, 2]]
    own = torch._neg_view(torch.tensor([-1.0, -3.0, -2.0]))
    given = fae.sweep(batch_of(SCORES), [own], orders=True).prefixes
    assert given.order.tolist() == [[1, 2, 0]]
    assert "function" not in through_torch

    class Named(Tensor):
        pass

    assert not are_plain([SCORES, SCORES.as_subclass(Named)])


def test_tensors_made_for_inference_are_plain(through_torch: list[str]) -> None:
    with torch.inference_mode():
        result = fae.sweep(batch_of(SCORES.clone()), ["attention"])
    assert through_torch == ["function"]
    assert result.prefixes.label.tolist() == [0]


def test_whoever_listens_hears_the_operator() -> None:
    batch = batch_of(SCORES)
    heard: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            heard.append(str(func))
            return func(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            heard.append(str(func))
            return func(*args, **(kwargs or {}))

    for mode in (Functions(), Dispatch()):
        heard.clear()
        with mode:
            assert not nobody_listens()
            fae.sweep(batch, ["attention"])
        assert "fastattnerase.sweep.default" in heard
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        fae.sweep(batch, ["attention"])
    assert "fastattnerase::sweep" in {event.key for event in profile.key_averages()}
    torch.func.vmap(lambda x: x if not nobody_listens() else 1 / 0)(torch.zeros(2))


def test_a_batch_moved_elsewhere_is_asked_again() -> None:
    batch = batch_of(SCORES)
    assert batch.plain
    assert not batch.to("meta").plain
