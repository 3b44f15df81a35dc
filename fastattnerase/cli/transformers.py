"""Fine-tuned transformers as what commands are applied to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.cli.console import UsageError, counted

if TYPE_CHECKING:
    from fastattnerase.data import Dataset, Document
    from fastattnerase.data.queries import LeftOut
    from fastattnerase.huggingface import (
        LoadedTransformer,
        TransformerClassifier,
        TransformerConfig,
    )
else:  # imported where they are used; hints that are read at run time say Any
    Dataset = Document = LeftOut = LoadedTransformer = TransformerClassifier = TransformerConfig = (
        Any
    )


def require_transformer_alone(given: Any) -> None:
    """Refuse options beside --transformer that are of other inputs."""
    for option in ("model", "tensors", "tokens"):
        if getattr(given, option, None) is not None:
            raise UsageError(f"--{option}: given with --transformer, needed without it")
    if given.query_column is not None:
        raise UsageError(
            "--query-column: given with --transformer, needed without it: one text is read"
        )


def choices_of(
    unit: str = "words",
    *,
    pool: str = "sum",
    erasure: str = "remove",
    max_pieces: int | None = None,
) -> dict[str, Any]:
    """Give the choices about a transformer's items, as the options of a command have them."""
    return {"unit": unit, "pool": pool, "erasure": erasure, "max_pieces": max_pieces}


def open_transformer(
    folder: Path,
    choices: dict[str, Any],
    classes: Sequence[str],
    data: Path | None,
    device: str,
) -> LoadedTransformer:
    """Load a fine-tuned transformer.

    Args:
        folder: The option --transformer.
        choices: What an item is; pieces that are not limited there are as in training.
        classes: Names of the classes, instead of the folder's.
        data: The option --data, without which the folder has to say what the model was trained on.
        device: Where to put it.

    Raises:
        UsageError: a choice that there is not, another number of classes, or no data.
    """
    from fastattnerase.huggingface import TransformerConfig, load_transformer
    from fastattnerase.huggingface.loading import trained_limit
    from fastattnerase.models.errors import ModelError

    most = choices["max_pieces"]
    limit = trained_limit(folder) if most is None else most
    try:
        config: TransformerConfig = TransformerConfig(**(choices | {"max_pieces": limit}))
    except ModelError as error:  # which begins with the choice's name
        choice, given = str(error).split(":", 1)
        raise UsageError(f"--{choice.replace('_', '-')}:{given}") from error
    loaded = load_transformer(folder, config, device=device)
    if classes:
        if len(classes) != len(loaded.classes) or len(set(classes)) != len(classes):
            raise UsageError(
                f"--classes: given {', '.join(classes)}, needed "
                f"{counted(len(loaded.classes), 'distinct name')}, in the order of the model's "
                f"outputs ({', '.join(loaded.classes)})"
            )
        loaded = loaded._replace(classes=list(classes))
    of = loaded.data_config
    if data is None and of.path is None and of.train is None:
        raise UsageError(
            f"--data: given none with --transformer {folder}, which does not say what it was "
            "trained on, needed a file of texts"
        )
    return loaded


def fit_counted(model: TransformerClassifier, dataset: Dataset, dropped: LeftOut) -> Dataset:
    """Make documents a transformer's, without those in which it has nothing to erase.

    Args:
        model: The transformer.
        dataset: Documents, as `data.encode` gives them.
        dropped: Counts those that are left out, and names the first.

    Returns:
        The other documents.

    Raises:
        ModelError: none is left, or a second text.
    """
    from fastattnerase.models.errors import ModelError

    kept = []
    for document in dataset:
        if model.words.has_words(document.tokens):
            kept.append(document)
        else:
            dropped.add("no_piece_of_a_word", _told(document))
    if len(dataset) and not kept:
        first = _told(dataset[0])
        raise ModelError(
            f"dataset: given no text with a piece of a word, the first {first}, needed some"
        )
    return model.fit(replace(dataset, documents=kept))


def _told(document: Document) -> str:
    return f"document {document.id}, {' '.join(document.tokens)!r:.40}"
