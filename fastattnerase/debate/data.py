"""A user's text, prepared once: tokenised, split, with its vocabulary."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from fastattnerase.data import DataConfig, DataError, Dataset, load_corpus, prepare
from fastattnerase.data.presets import write_prepared
from fastattnerase.data.splits import SPLITS
from fastattnerase.plurals import counted


def write_texts(config: DataConfig, folder: Path, title: str) -> dict[str, Any]:
    """Read, tokenise and split texts of two classes, and write them as `write_preset` does.

    Args:
        config: the files, columns, splits and vocabulary.
        folder: where to; `read_prepared` reads it.
        title: of the texts.

    Returns:
        What was written: counts of documents by split and class, and what was left out.

    Raises:
        DataError: other than two classes, a split without documents, bad files.
    """
    prepared = prepare(load_corpus(config), config)
    classes = prepared.classes
    if len(classes) != 2:
        raise DataError(
            f"data: given {counted(len(classes), 'class')} ({', '.join(classes[:5])}"
            f"{', …' if len(classes) > 5 else ''}), needed two: the tests compare the probability "
            "of one; name two of them as --classes"
        )
    rows: list[dict[str, str]] = []
    documents: dict[str, dict[str, int]] = {}
    dropped = Counter(prepared.dropped)
    words = 0
    for split in SPLITS:
        dataset: Dataset = getattr(prepared, split)
        kept = [document for document in dataset if document.tokens]
        dropped["no word"] += len(dataset) - len(kept)
        if not kept:
            raise DataError(
                f"data: given no {split} text, needed some in each of train, dev and test; see "
                "--fractions and --split-column"
            )
        labels = [classes[document.label] for document in kept]
        documents[split] = {name: labels.count(name) for name in classes}
        rows += [
            {"text": " ".join(document.tokens), "label": label, "split": split}
            for document, label in zip(kept, labels, strict=True)
        ]
        if split == "train":
            words = sum(map(len, kept))
    about = {
        "title": title,
        "note": "",
        "classes": classes,
        "documents": documents,
        "filtered": {},
        "dropped": {reason: count for reason, count in dropped.items() if count},
        "words": len(prepared.vocabulary.words),
        "mean_length": words / sum(documents["train"].values()),
    }
    write_prepared(folder, rows, prepared.vocabulary, about)
    return about
