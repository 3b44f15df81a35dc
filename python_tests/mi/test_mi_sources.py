"""The measurement on what the rest of the package hands over: models and files of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from streams import random_batch

from fastattnerase.data import TokenisedText, Vocabulary, encode
from fastattnerase.mi import Config, group, measure, run
from fastattnerase.models import ModelConfig, build_model
from fastattnerase.sources import ModelSource, TensorSource

CONFIG = Config(clusters=6, shuffles=20, ranks=2)


@pytest.mark.parametrize("kind", ["flan", "han"])
def test_a_model(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(12)]
    texts = []
    for index in range(40):
        sentences = [list(rng.choice(words, rng.integers(1, 5))) for _ in range(rng.integers(2, 5))]
        texts.append(TokenisedText(index, index % 2, sentences, [" ".join(s) for s in sentences]))
    vocabulary = Vocabulary(words)
    dataset = encode(texts, vocabulary)
    config = ModelConfig(kind=kind, embedding_size=6, hidden_size=4)
    model = build_model(config, vocabulary, 2)

    result = run(ModelSource(model, dataset, ["no", "yes"], {}), CONFIG, tmp_path, name="tiny")
    found = result.measurement
    assert found.summary.instances == 40
    assert found.summary.width == 8
    assert found.ranks["attention"].is_monotonic_decreasing

    # The model's own logits are those that the engine computes from its batches.
    with (
        group(model.attention_outputs(dataset, batch_tokens=50)) as own,
        group(batch for batch, _ in model.attention_outputs(dataset)) as engines,
    ):
        assert own.logits == pytest.approx(engines.logits, abs=1e-5)
        assert own.states(1) == pytest.approx(engines.states(1), abs=1e-5)


def test_a_file_of_tensors(tmp_path: Path) -> None:
    batch = random_batch(40)
    assert batch.scores is not None
    assert batch.head_weight is not None
    assert batch.head_bias is not None
    content = {
        "values": batch.values,
        "offsets": batch.offsets,
        "scores": batch.scores,
        "head_weight": batch.head_weight,
        "head_bias": batch.head_bias,
    }
    save_file({name: x.clone() for name, x in content.items()}, tmp_path / "layer.safetensors")
    source = TensorSource(tmp_path / "layer.safetensors")
    found = run(source, CONFIG, tmp_path / "run", name="layer").measurement
    expected = measure([batch], CONFIG)
    pd.testing.assert_frame_equal(found.ranks, expected.ranks, check_exact=True)
    assert torch.equal(source.offsets, batch.offsets)
