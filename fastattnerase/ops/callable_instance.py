"""One instance under a head that is any callable, with the methods that rankings use."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.plurals import counted
from fastattnerase.reference.instance import Instance, average

# Sums in float64 hold their block of features about this many times, in bytes a float32 value's.
TEMPORARIES = 8


class CheckedHead:
    """Calls a batch's head on a chunk of pooled vectors and checks what it returns."""

    def __init__(self, batch: AttentionBatch, max_bytes: int) -> None:
        values = batch.packed[0]  # [T, H, D]
        H, D = values.shape[1:]
        self.real = torch.float64 if values.dtype == torch.float64 else torch.float32
        self.chunk = max(1, max_bytes // max(1, H * D * self.real.itemsize))  # pooled vectors
        self._batch = batch
        self._classes: int | None = None  # of the first call

    def __call__(self, pooled: Tensor, instances: Tensor) -> Tensor:
        """Map pooled vectors [M, H, D] of instances [M] to logits [M, C], float64.

        NaN where the pooled vector is not finite.
        """
        M = len(pooled)
        try:
            logits = self._batch.call_head(pooled, instances)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if self._classes is not None:  # it has taken others like these
                raise
            name = getattr(self._batch.head, "__name__", type(self._batch.head).__name__)
            needed = ", ".join(map(str, ("M", *self._batch.values.shape[1:])))
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"head: given {name}, which does not take pooled vectors [{needed}] ({reason}), "
                "needed one that does"
            ) from error
        if not isinstance(logits, Tensor):
            raise TypeError(f"head: given {type(logits).__name__} back, needed logits [{M}, C]")
        if logits.ndim != 2 or logits.shape[0] != M or logits.shape[1] == 0:
            raise ValueError(
                f"head: given logits {list(logits.shape)} for {counted(M, 'pooled vector')}, "
                f"needed [{M}, C]"
            )
        if not logits.is_floating_point():
            raise TypeError(f"head: given logits of {logits.dtype}, needed a float type")
        if logits.device != pooled.device:
            raise ValueError(f"head: given logits on {logits.device}, needed on {pooled.device}")
        if self._classes not in (None, logits.shape[1]):
            raise ValueError(
                f"head: given {counted(logits.shape[1], 'class')} after {self._classes}, needed "
                "the same number at every call"
            )
        if self._classes is None and logits.shape[1] == 1:
            warnings.warn(
                "head: one class, so nothing can flip; the logits of a model with one logit z are "
                "[0, z]",
                stacklevel=2,
            )
        if self._classes is None and _are_probabilities(logits):
            warnings.warn(
                "head: given numbers that are probabilities (none negative, each row sums to 1), "
                "needed logits: of probabilities the softmax would be taken again",
                stacklevel=2,
            )
        self._classes = logits.shape[1]
        finite = pooled.detach().isfinite().flatten(1).all(1)  # [M]
        return logits.double().masked_fill(~finite[:, None], torch.nan)

    def in_chunks(self, pooled: Tensor, instances: Tensor) -> Tensor:
        """Map any number of pooled vectors, a chunk at a time."""
        begins = range(0, max(1, len(pooled)), self.chunk)
        return torch.cat(
            [self(pooled[i : i + self.chunk], instances[i : i + self.chunk]) for i in begins]
        )


def _are_probabilities(logits: Tensor) -> bool:
    """Whether the numbers [M, C] that a head gives are probabilities of several classes."""
    if not len(logits) or logits.shape[1] == 1 or bool((logits < 0).any()):
        return False
    eps = torch.finfo(logits.dtype).eps
    return bool(((logits.sum(1) - 1).abs() <= 8 * logits.shape[1] * eps).all())


class CallableInstance(Instance):
    """An instance of a batch with a callable head, on the batch's device.

    `logits` [C] and `bias` [C] are the head's of the whole instance and of nothing; `gradients`
    gives those of the instance's items [n, H] when it is asked.
    """

    def __init__(
        self,
        batch: AttentionBatch,
        head: CheckedHead,
        index: int,
        items: slice,
        logits: Tensor,
        bias: Tensor,
        finite: bool,
        gradients: Callable[[slice], Tensor],
    ) -> None:
        values, _, attention, is_scores = batch.packed
        super().__init__(int(batch.ids[index]), values[items], attention[items], is_scores, bias)
        self.finite = finite
        self._head, self._index, self._items = head, index, items
        self._logits, self._gradients = logits, gradients

    @property
    def logits(self) -> Tensor:
        """The logits of the original decision: [C]."""
        return self._logits

    @cached_property
    def gradient(self) -> Tensor:
        """∂d/∂a_i = h_i · ∂d/∂pooled, d = max_c softmax(z)_c: [n, H]."""
        return self._gradients(self._items)

    def logits_without(self, items: Tensor) -> Tensor:
        """Compute the logits over `items` [m] (positions) but one, for each: [m, C].

        The sums run over a block of features at a time, so that memory stays within the limit.
        """
        m, (H, D), chunk = len(items), self.given_values.shape[1:], self._head.chunk
        width = max(1, chunk * D // (TEMPORARIES * max(1, m)))
        logits = [self.bias.new_empty(0, self.C)]
        for begin in range(0, m, chunk):
            rows = slice(begin, begin + chunk)
            pooled = self.given_values.new_empty(len(items[rows]), H, D, dtype=self._head.real)
            for h in range(H):
                for d in range(0, D, width):
                    terms = self.given_values[items, h, d : d + width].double()  # [m, width]
                    mean = average(*self.others(h, items, terms))  # [m, width]
                    pooled[:, h, d : d + width] = mean[rows].to(pooled.dtype)
            logits.append(self._head(pooled, torch.full_like(items[rows], self._index)))
        return torch.cat(logits)
