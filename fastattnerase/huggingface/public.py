"""The public names of `fastattnerase.huggingface`, which that package imports when one is used."""

from fastattnerase.huggingface.classifier import TransformerClassifier
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.huggingface.families import FAMILIES, Family
from fastattnerase.huggingface.loading import LoadedTransformer, load_transformer
from fastattnerase.huggingface.words import Pieces

__all__ = [
    "FAMILIES",
    "Family",
    "LoadedTransformer",
    "Pieces",
    "TransformerClassifier",
    "TransformerConfig",
    "load_transformer",
]
