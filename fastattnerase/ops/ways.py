"""How a sweep erases: by renormalising, or in another way that its arguments say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops.emptied import Empty, gives_bias, run_emptied
from fastattnerase.ops.running import run
from fastattnerase.ops.zeroed import run_zeroed
from fastattnerase.problem import Outputs


def way_to_run(batch: AttentionBatch, renormalize: bool, empty: Empty) -> Callable[..., Outputs]:
    """Find what takes a batch, a plan and the rest of the arguments of `run`."""
    if gives_bias(batch, empty, renormalize):
        return run if renormalize else run_zeroed
    assert not isinstance(empty, str)
    return partial(run_emptied, empty)
