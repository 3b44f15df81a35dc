"""The public operators and their results."""

from fastattnerase.ops.envelope import Envelope, envelope
from fastattnerase.ops.functions import (
    erase_each,
    erase_prefixes,
    minimal_flip_set,
    rank,
    reweigh,
)
from fastattnerase.ops.greedy import GreedyOrder, greedy_order
from fastattnerase.ops.groups import Groups, group_items
from fastattnerase.ops.permute import permute
from fastattnerase.ops.results import (
    ItemErasure,
    MinimalFlipSet,
    PermutedWeights,
    PrefixErasure,
    Sweep,
)
from fastattnerase.ops.shapley import ShapleyValues, shapley_values
from fastattnerase.ops.sufficient import SufficientSet, minimal_sufficient_set
from fastattnerase.ops.sweeps import sweep
from fastattnerase.ops.thresholds import ThresholdCrossing, cross_threshold

__all__ = [
    "Envelope",
    "GreedyOrder",
    "Groups",
    "ItemErasure",
    "MinimalFlipSet",
    "PermutedWeights",
    "PrefixErasure",
    "ShapleyValues",
    "SufficientSet",
    "Sweep",
    "ThresholdCrossing",
    "cross_threshold",
    "envelope",
    "erase_each",
    "erase_prefixes",
    "greedy_order",
    "group_items",
    "minimal_flip_set",
    "minimal_sufficient_set",
    "permute",
    "rank",
    "reweigh",
    "shapley_values",
    "sweep",
]
