"""The public names of `fastattnerase.models`, which that package imports when one is used."""

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
from fastattnerase.models.saved import LoadedModel, load_model, save_model, save_trained
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
    "save_trained",
    "train",
]
