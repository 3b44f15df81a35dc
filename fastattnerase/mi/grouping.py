"""Hidden states by attention rank: streamed from packed batches to disk, read rank by rank."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.choices import BackendName
from fastattnerase.mi.config import Exclude
from fastattnerase.mi.errors import MeasurementError
from fastattnerase.statistics.attention import attention_weights

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
States = NDArray[np.float32]
StreamItem = fae.AttentionBatch | tuple[fae.AttentionBatch, Tensor]

_BLOCK_BYTES = 8 * 2**20  # states copied at a time while writing


class RankedStates:
    """The states and weights of every attention rank, on disk, with the outputs in memory.

    Rank 1 is the item with an instance's largest weight. Instances without items or without
    attention mass, and those with something that is not finite, are left out; the others keep
    their order and are numbered from 0. In memory
    are the outputs, two numbers an instance, and eight bytes for each batch and rank. Close it,
    or use it as a context manager: its files live until then.

    Args:
        directory: where the unnamed temporary files are; the system's choice by default, which
            may be a file system in memory.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.mi import group
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 2, 3]),
        ...     weights=torch.tensor([0.1, 0.9, 1.0]), head_weight=torch.tensor([[0.0], [1.0]]))
        >>> with group([batch]) as ranked:
        ...     ranked.states(1).tolist(), ranked.states(2).tolist(), ranked.instances(2).tolist()
        ([[2.0], [3.0]], [[1.0]], [0])
    """

    def __init__(self, directory: Path | None = None) -> None:
        with ExitStack() as files:
            self._states = files.enter_context(tempfile.TemporaryFile(dir=directory))
            self._weights = files.enter_context(tempfile.TemporaryFile(dir=directory))
            self._files = files.pop_all()
        self._bounds: list[Ints] = []  # of each batch: the row at which each rank begins
        self._rows = 0
        self.width = 0
        self.rows: Ints = np.zeros(0, dtype=np.int64)  # [n], number in the stream
        self.ids: Ints = self.rows  # [n]
        self.lengths: Ints = self.rows  # [n], items that are ranked
        self.logits: Floats = np.zeros((0, 0))  # [n, C]
        self.labels: Ints = self.rows  # [n], predicted classes
        self.left_out: Ints = self.rows  # number in the stream of instances without mass
        self.not_finite: Ints = self.rows  # likewise, of instances with something not finite
        self.excluded_items = 0

    def __enter__(self) -> RankedStates:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete the files."""
        self._files.close()

    def __len__(self) -> int:
        """The number of instances, `n`."""
        return len(self.rows)

    @property
    def num_ranks(self) -> int:
        """The largest rank that is stored."""
        return max((len(bounds) - 1 for bounds in self._bounds), default=0)

    def instances(self, rank: int) -> Ints:
        """Find the instances that have a rank: `[n_r]`, ascending; rows of `states(rank)`."""
        self._check_rank(rank)
        return np.flatnonzero(self.lengths >= rank)

    def states(self, rank: int) -> States:
        """Read the states of a rank: `[n_r, D]` float32."""
        return self._read(self._states, rank, np.dtype(np.float32), self.width)

    def weights(self, rank: int) -> Floats:
        """Read the weights of a rank: `[n_r]` float64."""
        return self._read(self._weights, rank, np.dtype(np.float64), 1)[:, 0]

    def _check_rank(self, rank: int) -> None:
        if not 1 <= rank <= self.num_ranks:
            raise ValueError(f"rank: given {rank}, needed 1 to {self.num_ranks}")

    def _read(self, file: Any, rank: int, dtype: np.dtype[Any], width: int) -> NDArray[Any]:
        self._check_rank(rank)
        spans = [(b[rank - 1], b[rank]) for b in self._bounds if rank < len(b)]
        found = np.empty((sum(int(end - begin) for begin, end in spans), width), dtype)
        row = 0
        for begin, end in spans:
            part = found[row : row + int(end - begin)]
            row += len(part)
            file.seek(int(begin) * width * dtype.itemsize)
            if file.readinto(part.view(np.uint8).data) != part.nbytes:
                raise OSError(f"the temporary file of rank {rank} ended early")
        return found

    def _write(self, values: Tensor, items: Ints, weights: Floats, bounds: Ints) -> None:
        """Append items in rank order."""
        self._bounds.append(self._rows + bounds)
        self._rows += len(items)
        self._weights.write(np.ascontiguousarray(weights, dtype=np.float64).data)
        for states in _states(values, items):
            self._states.write(np.ascontiguousarray(states).data)


def _states(values: Tensor, items: Ints) -> Iterator[States]:
    """Read the states of items in blocks: [block, D], float32."""
    block = max(1, _BLOCK_BYTES // (4 * int(np.prod(values.shape[1:]))))
    for begin in range(0, len(items), block):
        chosen = torch.from_numpy(items[begin : begin + block]).to(values.device)
        yield values[chosen].flatten(1).float().cpu().numpy()


def group(
    stream: Iterable[StreamItem],
    *,
    exclude: Exclude = "masked",
    max_ranks: int | None = None,
    directory: Path | None = None,
    backend: str = "auto",
) -> RankedStates:
    """Group hidden states by attention rank, in one pass over a stream of batches.

    Items are sorted within each instance by descending attention, ties by lower position, as the
    ranking `attention` of the engine. Every batch is written to disk rank after rank, so that
    memory holds one batch, whatever the number of ranks or batches; disk holds 4 bytes for each
    ranked item and feature.

    Args:
        stream: batches, or pairs of a batch and the model's logits: [B, C], or [B] or [B, 1] of a
            model with one logit. Without logits the engine computes them from the batch. Several
            attention heads: their states are joined, their weights averaged.
        exclude: items that are not ranked. `masked`: those with a score of -inf. `zero_weight`:
            all of weight zero, for weights in which masked positions (start and end symbols) are
            zeros; sparse attention shortens its instances by that. `none`: no item.
        max_ranks: ranks beyond it are not kept; all by default.
        directory: of the temporary files; the system's choice by default.
        backend: of the engine.

    Returns:
        The grouped states. Instances with a score, weight, ranked state (as float32) or logit that
        is not finite are left out and counted, as the erasure experiments do.

    Raises:
        MeasurementError: naming the instance: a negative weight; batches of different sizes; no
            instance with attention mass.

    Source:
        Wen, Subbalakshmi and Yang 2022, figure 1.

    Example:
        >>> from fastattnerase.mi import group
        >>> with group(model.attention_outputs(dataset)) as ranked:  # doctest: +SKIP
        ...     ranked.states(1).shape
    """
    with ExitStack() as undo:
        grouping = Grouping(exclude, max_ranks, directory, backend)
        undo.enter_context(grouping.ranked)
        for item in stream:
            grouping.add(item)
        ranked = grouping.finish()
        undo.pop_all()
    return ranked


class Grouping:
    """States that are grouped batch by batch; the arguments are those of `group`.

    `ranked` is to be closed, or used as a context manager, from the start.
    """

    def __init__(
        self,
        exclude: Exclude = "masked",
        max_ranks: int | None = None,
        directory: Path | None = None,
        backend: str = "auto",
    ) -> None:
        if exclude not in ("masked", "zero_weight", "none"):
            raise ValueError(f"exclude: given {exclude!r}, needed masked, zero_weight or none")
        if max_ranks is not None and max_ranks < 1:
            raise ValueError(f"max_ranks: given {max_ranks}, needed 1 or more, or None")
        self.ranked = RankedStates(directory)
        self._options = (exclude, max_ranks, backend)
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._seen = 0

    def add(self, item: StreamItem) -> None:
        """Write a batch to disk."""
        batch, logits = item if isinstance(item, tuple) else (item, None)
        if len(batch):
            self._parts.append(_add(self.ranked, batch, logits, self._seen, *self._options))
        self._seen += len(batch)

    def finish(self) -> RankedStates:
        """Give the states, now that all batches are there."""
        if not sum(len(part["rows"]) for part in self._parts):
            broken = sum(len(part["not_finite"]) for part in self._parts)
            raise MeasurementError(
                f"no instance to measure: the stream held {self._seen}, {broken} with something "
                "that is not finite and the others without an item that has attention; "
                + (
                    "train the model again with a lower learning rate"
                    if broken
                    else "check the masks and what `exclude` (--exclude) leaves out"
                )
            )
        widths = {part["logits"].shape[1] for part in self._parts}
        if len(widths) > 1:
            raise MeasurementError(
                f"logits: given {sorted(widths)} classes, needed the same number in all batches"
            )
        for name in ("rows", "ids", "lengths", "logits", "labels", "left_out", "not_finite"):
            setattr(self.ranked, name, np.concatenate([part[name] for part in self._parts]))
        return self.ranked


def is_ranked(batch: fae.AttentionBatch, weights: Floats, exclude: Exclude) -> NDArray[np.bool_]:
    """Say which items are ranked, [T], by their weights [T], but for instances without mass."""
    if exclude == "zero_weight":
        return weights > 0
    if exclude == "masked" and batch.scores is not None:
        masked = (batch.scores == float("-inf")).reshape(-1, batch.num_heads).all(dim=1)
        return ~masked.cpu().numpy()
    return np.ones(len(weights), dtype=np.bool_)


def _add(
    ranked: RankedStates,
    batch: fae.AttentionBatch,
    given: Tensor | None,
    seen: int,
    exclude: Exclude,
    max_ranks: int | None,
    backend: str,
) -> dict[str, NDArray[Any]]:
    """Write one batch to disk; return what is kept of its instances."""
    B, values = len(batch), batch.values
    width = int(np.prod(values.shape[1:]))
    if ranked.width not in (0, width) or width == 0:
        raise MeasurementError(
            f"values: given states {width} wide from instance {seen} on and {ranked.width} "
            f"before, needed the same positive width in all batches"
        )
    ranked.width = width
    instance = np.repeat(np.arange(B), batch.lengths.cpu().numpy())  # [T]
    weights, strange = _weights(batch, instance, seen)  # [T], [T]
    keep = np.bincount(instance, weights, minlength=B)[instance] > 0  # [T], instance has mass
    left_out = np.bincount(instance, keep | strange, minlength=B) == 0  # [B]
    keep &= is_ranked(batch, weights, exclude)
    ranked_items = np.flatnonzero(keep)
    finite = [np.isfinite(states).all(axis=1) for states in _states(values, ranked_items)]
    strange[ranked_items] |= ~np.concatenate([np.zeros(0, dtype=np.bool_), *finite])
    logits, labels = _outputs(batch, given, seen, backend)
    broken = np.bincount(instance, strange, minlength=B) > 0  # [B]
    broken |= ~np.isfinite(logits).all(axis=1) & ~left_out
    out = left_out | broken
    ranked.excluded_items += int(np.count_nonzero(~keep & ~out[instance]))
    keep &= ~broken[instance]

    order = np.flatnonzero(keep)
    order = order[np.lexsort((-_keys(batch, weights)[order], instance[order]))]
    lengths = np.bincount(instance[order], minlength=B)  # [B]
    begins = np.cumsum(lengths) - lengths
    rank = np.arange(len(order)) - begins[instance[order]]  # [K], from 0
    if max_ranks is not None:
        order, rank = order[rank < max_ranks], rank[rank < max_ranks]
    order = order[np.argsort(rank, kind="stable")]  # by rank, then by instance
    bounds = np.concatenate([[0], np.cumsum(np.bincount(rank))])
    ranked._write(values, order, weights[order], bounds)
    kept = np.flatnonzero(~out)
    return {
        "rows": seen + kept,
        "ids": batch.ids.cpu().numpy()[kept],
        "lengths": lengths[kept],
        "logits": logits[kept],
        "labels": labels[kept],
        "left_out": seen + np.flatnonzero(left_out),
        "not_finite": seen + np.flatnonzero(broken),
    }


def _weights(
    batch: fae.AttentionBatch, instance: Ints, seen: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Compute the weights [T], and say which items have one that is not finite: [T].

    Weights are 0 in all of an instance that has such an item; negative ones are refused.
    """
    given = batch.weights if batch.scores is None else batch.scores
    assert given is not None  # a batch has one of the two
    flat = given.reshape(-1, batch.num_heads)  # [T, H]
    if batch.scores is None and bool((flat < 0).any()):
        item = int((flat < 0).any(dim=1).long().argmax())
        raise MeasurementError(
            f"weights: given {flat[item].tolist()} at position {int(batch.positions[item])} of "
            f"instance {seen + int(instance[item])}, needed 0 or more"
        )
    strange = (flat.isnan() | (flat == float("inf"))).any(dim=1).cpu().numpy()  # [T]
    broken = np.bincount(instance, strange, minlength=len(batch))[instance] > 0  # [T]
    return np.where(broken, 0.0, attention_weights(batch)), strange


def _keys(batch: fae.AttentionBatch, weights: Floats) -> Floats:
    """Give what the ranking sorts by: the score where there is one, for weights may underflow."""
    given = batch.weights if batch.scores is None else batch.scores
    assert given is not None
    if batch.num_heads > 1:
        return weights
    return np.asarray(given.reshape(-1).double().cpu().numpy())


def _outputs(
    batch: fae.AttentionBatch, given: Tensor | None, seen: int, backend: str
) -> tuple[Floats, Ints]:
    """Give the logits [B, C] and predicted classes [B] of a batch, as given or by the engine."""
    if given is None:
        erased = fae.erase_prefixes(
            batch, "attention", logits=True, backend=cast(BackendName, backend)
        )
        assert erased.logits is not None  # asked for
        logits, labels = erased.logits, erased.label  # [B, C], [B]
    else:
        logits = given.detach()
        if logits.ndim == 1:
            logits = logits[:, None]
        if logits.ndim != 2 or len(logits) != len(batch) or not logits.shape[1]:
            raise MeasurementError(
                f"logits: given {list(given.shape)} from instance {seen} on, needed "
                f"[{len(batch)}, C]"
            )
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        labels = logits.argmax(dim=1)
    return (
        np.asarray(logits.double().cpu().numpy()),
        np.asarray(labels.cpu().numpy(), dtype=np.int64),
    )
