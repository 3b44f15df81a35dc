"""One sweep of a batch, whether all its items can be erased or one of each instance never is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.choices import BackendName, CurveName
from fastattnerase.kept_items import sweep_beside_kept
from fastattnerase.sources import Chunk
from fastattnerase.statistics.attention import attention_weights
from fastattnerase.studies.serrano_smith.config import Config

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def sweep(
    chunk: Chunk,
    rankings: Sequence[str | Tensor],
    curves: tuple[CurveName, ...],
    config: Config,
    *,
    random_orders: int = 1,
    single: bool = False,
    minimal: bool | None = False,
    single_kl: bool = False,
) -> fae.Sweep:
    """Erase the items of a batch by rankings, with orders and logits.

    Beside an item that is never erased the curves have the decisions, too.

    Args:
        chunk: the batch.
        rankings, curves, random_orders, single, minimal, single_kl: as of `fae.sweep`.
        config: gives seed and backend.
    """
    backend = cast(BackendName, config.backend)
    if chunk.keeps_last:
        return sweep_beside_kept(
            chunk.batch,
            rankings,
            curves=tuple(dict.fromkeys((*curves, "decision"))),
            seed=config.seed,
            random_orders=random_orders,
            single=single,
            logits=True,
            single_kl=single_kl,
            backend=backend,
        )
    return fae.sweep(
        chunk.batch,
        rankings=rankings,
        curves=curves,
        orders=True,
        seed=config.seed,
        random_orders=random_orders,
        single=single,
        minimal=minimal,
        logits=True,
        single_kl=single_kl,
        backend=backend,
    )


def erasable_weights(chunk: Chunk, host: fae.AttentionBatch | None = None) -> Floats:
    """Compute the attention weights of the items that can be erased: `[T]`, float64.

    Args:
        chunk: the batch.
        host: the same batch in the CPU's memory, where there is one.
    """
    weights = attention_weights(chunk.batch if host is None else host)
    if chunk.keeps_last:
        weights = np.delete(weights, chunk.batch.offsets[1:].cpu().numpy() - 1)
    return weights


def shares(chunk: Chunk, weights: Floats, offsets: Ints) -> Floats:
    """Divide weights `[T]` by their sum, where an item that is never erased has the rest."""
    if not chunk.keeps_last:
        return weights
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    total = np.bincount(row, weights, minlength=len(offsets) - 1)
    return np.asarray(weights / np.where(total > 0, total, 1.0)[row])


def labels_of_nothing(w: fae.Sweep) -> Tensor:
    """Find the decision once all items are erased but the one that never is; `[B]`."""
    return w.prefixes.curves["decision"][0, w.prefixes.curve_offsets[1:] - 1]
