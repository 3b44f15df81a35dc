"""The public operators and their results."""

from fastattnerase.ops.functions import (
    erase_each,
    erase_prefixes,
    minimal_flip_set,
    rank,
    reweigh,
)
from fastattnerase.ops.results import ItemErasure, MinimalFlipSet, PrefixErasure, Sweep
from fastattnerase.ops.sweeps import sweep

__all__ = [
    "ItemErasure",
    "MinimalFlipSet",
    "PrefixErasure",
    "Sweep",
    "erase_each",
    "erase_prefixes",
    "minimal_flip_set",
    "rank",
    "reweigh",
    "sweep",
]
