"""A tiny comparison: invented reviews with marked words, and untrained models of them."""

from __future__ import annotations

import json
from pathlib import Path

from fastattnerase.data import DataConfig, load_corpus, prepare
from fastattnerase.models import ModelConfig, build_model, save_model

GOOD = ["a fine film indeed .", "fine", "it is a fine and moving film , that is all ."]
BAD = ["a dull film indeed .", "dull and long", "it is a dull and empty film , that is all ."]
CLASSES = ("bad", "good")


def reviews(folder: Path, rationales: bool = True) -> DataConfig:
    """Write reviews, of which the words fine and dull are marked, and the test split's films."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for split in ("train", "dev", "test"):
        for label, texts in (("good", GOOD), ("bad", BAD)):
            for text in texts:
                words = text.split()
                place = next(i for i, word in enumerate(words) if word in ("fine", "dull"))
                spans = [[place, place + 1]]
                if split == "test" and "film" in words:
                    spans.append([words.index("film"), words.index("film") + 1])
                rows.append({"text": text, "label": label, "split": split, "why": spans})
    if not rationales:
        rows = [row | {"why": []} for row in rows]
    path = folder / "reviews.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return DataConfig(path=str(path), split_column="split", sentences="spaces", min_count=1)


def saved(folder: Path, config: DataConfig, **parts: object) -> Path:
    """Build and save a model that was never trained."""
    prepared = prepare(load_corpus(config), config)
    of = {"kind": "sequence", "encoder": "bilstm", "embedding_size": 6, "hidden_size": 4}
    model_config = ModelConfig(**(of | {"seed": 3} | parts))  # type: ignore[arg-type]
    model = build_model(model_config, prepared.vocabulary, 2)
    # Random weights decide nothing clearly: make decisions that words can flip.
    model.classifier.weight.data *= 20
    save_model(
        folder,
        model,
        vocabulary=prepared.vocabulary,
        classes=prepared.classes,
        data_config=config,
        metadata={"name": "small", "test_documents_hash": prepared.test.digest()},
    )
    return folder
