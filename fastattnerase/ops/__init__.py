"""The public operators and their results."""

from fastattnerase.ops.functions import erase_each, erase_prefixes, minimal_flip_set, rank, sweep
from fastattnerase.ops.results import ItemErasure, MinimalFlipSet, PrefixErasure, Sweep

__all__ = [
    "ItemErasure",
    "MinimalFlipSet",
    "PrefixErasure",
    "Sweep",
    "erase_each",
    "erase_prefixes",
    "minimal_flip_set",
    "rank",
    "sweep",
]
