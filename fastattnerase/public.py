"""The public names of `fastattnerase`, which that package imports when one is used."""

from fastattnerase.backends import backends
from fastattnerase.batch import AttentionBatch, binary_head
from fastattnerase.dumps.reading import Dump, open_batches
from fastattnerase.dumps.writing import save_batches
from fastattnerase.explanation import Explanation, TextExplanation, explain
from fastattnerase.hooks import Capture, capture
from fastattnerase.ops import (
    Envelope,
    GreedyOrder,
    Groups,
    ItemErasure,
    MinimalFlipSet,
    PermutedWeights,
    PrefixErasure,
    ShapleyValues,
    SufficientSet,
    Sweep,
    ThresholdCrossing,
    cross_threshold,
    envelope,
    erase_each,
    erase_prefixes,
    greedy_order,
    group_items,
    minimal_flip_set,
    minimal_sufficient_set,
    permute,
    rank,
    reweigh,
    shapley_values,
    sweep,
)
from fastattnerase.rankings import register_ranking
from fastattnerase.status import Status

__all__ = [
    "AttentionBatch",
    "Capture",
    "Dump",
    "Envelope",
    "Explanation",
    "GreedyOrder",
    "Groups",
    "ItemErasure",
    "MinimalFlipSet",
    "PermutedWeights",
    "PrefixErasure",
    "ShapleyValues",
    "Status",
    "SufficientSet",
    "Sweep",
    "TextExplanation",
    "ThresholdCrossing",
    "backends",
    "binary_head",
    "capture",
    "cross_threshold",
    "envelope",
    "erase_each",
    "erase_prefixes",
    "explain",
    "greedy_order",
    "group_items",
    "minimal_flip_set",
    "minimal_sufficient_set",
    "open_batches",
    "permute",
    "rank",
    "register_ranking",
    "reweigh",
    "save_batches",
    "shapley_values",
    "sweep",
]
