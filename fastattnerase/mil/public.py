"""The public names of `fastattnerase.mil`, which that package imports when one is used."""

from fastattnerase.mil.bags import Bag, check_widths, find_bags, open_bag
from fastattnerase.mil.context import ContextModel, DroppedPatches
from fastattnerase.mil.errors import BagError
from fastattnerase.mil.labels import SlideLabels, read_labels
from fastattnerase.mil.layouts import read_model
from fastattnerase.mil.models import PoolModel
from fastattnerase.mil.pooled import PooledBag

__all__ = [
    "Bag",
    "BagError",
    "ContextModel",
    "DroppedPatches",
    "PoolModel",
    "PooledBag",
    "SlideLabels",
    "check_widths",
    "find_bags",
    "open_bag",
    "read_labels",
    "read_model",
]
