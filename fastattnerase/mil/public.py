"""The public names of `fastattnerase.mil`, which that package imports when one is used."""

from fastattnerase.mil.bags import Bag, check_widths, find_bags, open_bag
from fastattnerase.mil.context import ContextModel, DroppedPatches
from fastattnerase.mil.errors import BagError
from fastattnerase.mil.flipping import (
    PatchFlipping,
    attention_scores,
    one_removed_scores,
    patch_flipping,
    patch_scores,
    shapley_scores,
    single_scores,
)
from fastattnerase.mil.heatmap import HeatMap
from fastattnerase.mil.labels import SlideLabels, read_labels
from fastattnerase.mil.layouts import read_model
from fastattnerase.mil.models import PoolModel
from fastattnerase.mil.pooled import PooledBag

__all__ = [
    "Bag",
    "BagError",
    "ContextModel",
    "DroppedPatches",
    "HeatMap",
    "PatchFlipping",
    "PoolModel",
    "PooledBag",
    "SlideLabels",
    "attention_scores",
    "check_widths",
    "find_bags",
    "one_removed_scores",
    "open_bag",
    "patch_flipping",
    "patch_scores",
    "read_labels",
    "read_model",
    "shapley_scores",
    "single_scores",
]
