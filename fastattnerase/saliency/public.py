"""The public names of `fastattnerase.saliency`, which that package imports when one is used."""

from fastattnerase.saliency.attribution import Attribution, load_attribution
from fastattnerase.saliency.context import MethodContext, SaliencyModel, Scored
from fastattnerase.saliency.registry import Method, find_method, methods, register_method
from fastattnerase.saliency.scoring import attribute

__all__ = [
    "Attribution",
    "Method",
    "MethodContext",
    "SaliencyModel",
    "Scored",
    "attribute",
    "find_method",
    "load_attribution",
    "methods",
    "register_method",
]
