"""The public operators and their results."""

from fastattnerase.ops.functions import (
    erase_each,
    erase_prefixes,
    minimal_flip_set,
    rank,
    reweigh,
)
from fastattnerase.ops.permute import permute
from fastattnerase.ops.results import (
    ItemErasure,
    MinimalFlipSet,
    PermutedWeights,
    PrefixErasure,
    Sweep,
)
from fastattnerase.ops.sweeps import sweep

__all__ = [
    "ItemErasure",
    "MinimalFlipSet",
    "PermutedWeights",
    "PrefixErasure",
    "Sweep",
    "erase_each",
    "erase_prefixes",
    "minimal_flip_set",
    "permute",
    "rank",
    "reweigh",
    "sweep",
]
