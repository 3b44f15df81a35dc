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
from fastattnerase.ops.thresholds import ThresholdCrossing, cross_threshold

__all__ = [
    "ItemErasure",
    "MinimalFlipSet",
    "PermutedWeights",
    "PrefixErasure",
    "Sweep",
    "ThresholdCrossing",
    "cross_threshold",
    "erase_each",
    "erase_prefixes",
    "minimal_flip_set",
    "permute",
    "rank",
    "reweigh",
    "sweep",
]
