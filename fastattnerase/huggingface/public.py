"""The public names of `fastattnerase.huggingface`, which that package imports when one is used."""

from fastattnerase.huggingface.classifier import TransformerClassifier
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.huggingface.families import FAMILIES, Family
from fastattnerase.huggingface.loading import LoadedTransformer, load_transformer
from fastattnerase.huggingface.train_config import FineTuneConfig
from fastattnerase.huggingface.training import (
    FineTuned,
    fine_tune,
    new_classifier,
    save_fine_tuned,
)
from fastattnerase.huggingface.words import Pieces

__all__ = [
    "FAMILIES",
    "Family",
    "FineTuneConfig",
    "FineTuned",
    "LoadedTransformer",
    "Pieces",
    "TransformerClassifier",
    "TransformerConfig",
    "fine_tune",
    "load_transformer",
    "new_classifier",
    "save_fine_tuned",
]
