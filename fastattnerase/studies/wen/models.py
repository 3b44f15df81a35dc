"""The models of Wen et al. with fixed representations."""

from __future__ import annotations

from dataclasses import replace

import torch

from fastattnerase.data import PreparedCorpus
from fastattnerase.models import AttentionClassifier, ModelConfig
from fastattnerase.models.build import build_model
from fastattnerase.models.fixed_attention import NEW_SEED
from fastattnerase.studies.wen.options import FIX_REPRESENTATION

_REPRESENTATION = (
    *("embedding.", "markers", "words.encoder."),
    *("query_embedding.", "query_markers", "query_encoder."),
)
_DECODER = ("classifier.", "query_classifier.", "project.", "project_query.")


def fixed_representation(
    reading: str, config: ModelConfig, prepared: PreparedCorpus, base: AttentionClassifier
) -> AttentionClassifier:
    """Make a model whose hidden states are not trained; its attention is initialised again.

    Args:
        reading: `trained`: word vectors and encoder are the base model's, the decoder is
            initialised again. `trained_kept`: the decoder is the base model's, too, and is not
            trained. `random`: word vectors and encoder keep their initial values, the decoder is
            initialised again.
        config: of the base model.
        prepared: the data.
        base: the trained base model.

    Returns:
        A model with untrained attention.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 5.1, Fix Rep, which allows these readings.
    """
    if reading not in FIX_REPRESENTATION:
        raise ValueError(
            f"reading: given {reading!r}, needed one of {', '.join(FIX_REPRESENTATION)}"
        )
    config = replace(config, seed=config.seed + NEW_SEED)  # not the base model's initial values
    model = build_model(config, prepared.vocabulary, len(prepared.classes), prepared.embeddings)
    fixed = [name for name, _ in model.named_parameters() if _represents(name)]
    if reading == "trained_kept":
        fixed += [name for name, _ in model.named_parameters() if name.startswith(_DECODER)]
    trained = dict(base.named_parameters())
    for name in fixed:
        parameter = model.get_parameter(name)
        parameter.requires_grad_(False)
        if reading != "random":
            with torch.no_grad():
                parameter.copy_(trained[name])
    return model


def _represents(name: str) -> bool:
    """Say whether a parameter is one of the hidden states': word vectors and encoders."""
    return name.startswith(_REPRESENTATION)
