"""Batches on their way to a GPU and results on theirs back, while the GPU erases.

Batches are copied on a stream of their own, by way of two pinned buffers; results are copied into
pinned memory as soon as they are there, and waited for when the next batch is queued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith.erasure import Erased


@dataclass(frozen=True)
class Moved:
    """A batch where it is erased.

    Attributes:
        chunk: on the device.
        host: as it was read, in the CPU's memory.
        copied: on a GPU, what has to be waited for before the batch is used; else None.
    """

    chunk: Chunk
    host: Chunk
    copied: torch.cuda.Event | None = None

    def ready(self) -> Chunk:
        """Have what is queued next on the device wait for the copy; give the batch."""
        if self.copied is not None:
            stream = torch.cuda.current_stream(self.chunk.batch.device)
            stream.wait_event(self.copied)
            # Their memory is not given to others before what is queued now has used it.
            self.chunk.batch.with_tensors(lambda tensor: _recorded(tensor, stream))
        return self.chunk


def _recorded(tensor: Tensor, stream: torch.cuda.Stream) -> Tensor:
    tensor.record_stream(stream)
    return tensor


@dataclass
class Staging:
    """Page-locked memory from which a GPU copies by itself; it grows with the largest batch.

    Attributes:
        pinned: whether it is page-locked; not so where there is no GPU.
        memory: what is there.
        used: bytes of it that hold tensors.
    """

    pinned: bool
    memory: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    used: int = 0

    def reserve(self, tensors: list[Tensor]) -> None:
        """Forget what was held, and make room for these tensors."""
        size = sum(_room(tensor) for tensor in tensors)
        if size > len(self.memory):
            self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=self.pinned)
        self.used = 0

    def hold(self, tensor: Tensor) -> Tensor:
        """Copy a tensor here."""
        begin, size = self.used, tensor.numel() * tensor.element_size()
        self.used += _room(tensor)
        held = self.memory[begin : begin + size].view(tensor.dtype).view(tensor.shape)
        return held.copy_(tensor)


def _room(tensor: Tensor) -> int:
    """Count a tensor's bytes, rounded up to 16: what follows it begins where any type may."""
    return -(-tensor.numel() * tensor.element_size() // 16) * 16


class Mover:
    """Moves batches to a device. To a GPU two pinned buffers and a stream serve by turns.

    Args:
        device: where batches are erased.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        gpu = self.device.type == "cuda"
        self._stream = torch.cuda.Stream(self.device) if gpu else None  # type: ignore[no-untyped-call]
        self._buffers = (Staging(gpu), Staging(gpu))
        self._copied: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def __call__(self, chunk: Chunk) -> Moved:
        """Queue the copy of a batch; a batch for the CPU stays where it is."""
        if self._stream is None:
            return Moved(chunk, chunk)
        turn, self._turn = self._turn, 1 - self._turn
        before = self._copied[turn]
        if before is not None:
            before.synchronize()  # the copy two batches ago has left this buffer
        buffer = self._buffers[turn]
        buffer.reserve([x for x in vars(chunk.batch).values() if isinstance(x, Tensor)])
        with torch.cuda.stream(self._stream):
            moved = chunk.batch.with_tensors(
                lambda tensor: buffer.hold(tensor).to(self.device, non_blocking=True)
            )
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        self._copied[turn] = event
        return Moved(replace(chunk, batch=moved), chunk, event)


@dataclass(frozen=True)
class Results:
    """What the engine found for a batch, on its way to the CPU's memory.

    Attributes:
        found: the results, with the batch as it was read.
        copied: on a GPU, what has to be waited for before they are used; else None.
    """

    found: Erased
    copied: torch.cuda.Event | None = None

    def wait(self) -> Erased:
        """Wait until they are there."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.found


def taken_off(found: Erased, host: Chunk) -> Results:
    """Queue the copy of results from a GPU; those of the CPU are there.

    Args:
        found: the results.
        host: their batch, in the CPU's memory.
    """
    device = found.chunk.batch.device
    if device.type != "cuda":
        return Results(found)
    copies = with_copies(replace(found, chunk=host), _pinned)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return Results(copies, event)


def _pinned(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cuda":
        return tensor
    held = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return held.copy_(tensor, non_blocking=True)


def with_copies(value: Any, copy: Callable[[Tensor], Tensor]) -> Any:
    """Replace all tensors in a record of results, and in the records and tables in it."""
    if isinstance(value, Tensor):
        return copy(value)
    if isinstance(value, dict):
        return {name: with_copies(item, copy) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, (Chunk, type)):
        inner = {own.name: with_copies(getattr(value, own.name), copy) for own in fields(value)}
        return type(value)(**inner)
    return value
