"""Attention classifiers, their parts by name, training, saving and loading.

Every file here is imported, so that the parts that it registers are known.
"""

from importlib import import_module
from pkgutil import iter_modules

from fastattnerase.models.attentions import ATTENTIONS, Attention
from fastattnerase.models.base import KINDS, AttentionClassifier, ModelOutput
from fastattnerase.models.build import build_model
from fastattnerase.models.checkpoint import EpochRecord
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.encoders import ENCODERS, Encoder
from fastattnerase.models.errors import ModelError
from fastattnerase.models.evaluation import Evaluation, evaluate
from fastattnerase.models.mechanisms import MECHANISMS, Mechanism
from fastattnerase.models.objectives import Objective
from fastattnerase.models.saved import LoadedModel, load_model, save_model
from fastattnerase.models.train_config import TrainConfig
from fastattnerase.models.training import TrainResult, train

__all__ = [
    "ATTENTIONS",
    "ENCODERS",
    "KINDS",
    "MECHANISMS",
    "Attention",
    "AttentionClassifier",
    "Encoder",
    "EpochRecord",
    "Evaluation",
    "LoadedModel",
    "Mechanism",
    "ModelConfig",
    "ModelError",
    "ModelOutput",
    "Objective",
    "TrainConfig",
    "TrainResult",
    "build_model",
    "evaluate",
    "load_model",
    "save_model",
    "train",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
