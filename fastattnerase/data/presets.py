"""The data sets of Jain & Wallace and of Wen et al., with their cleaning, filters and vocabularies.

A preset reads the files as they are distributed, cleans and filters the texts, and writes one
Parquet file of texts whose words are separated by spaces, with its vocabulary. Everything else,
training and erasure, reads that file.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import load_corpus
from fastattnerase.data.dataset import PreparedCorpus, encode
from fastattnerase.data.errors import DataError
from fastattnerase.data.published import texts
from fastattnerase.data.published.record import DataPreset
from fastattnerase.data.tokens import tokenise
from fastattnerase.data.vectors import read_vectors
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.extras import needs

_SPLITS = ("train", "dev", "test")
_TEXTS, _VOCABULARY, _ABOUT = "texts.parquet", "vocabulary.json", "about.json"
_FORMAT = 1

DATA_PRESETS: dict[str, DataPreset] = {**texts.PRESETS}


def find_preset(name: str) -> DataPreset:
    """Look a preset up.

    Raises:
        DataError: no such preset; the message lists those there are.
    """
    if name not in DATA_PRESETS:
        raise DataError(f"data set: given {name!r}, needed one of {', '.join(DATA_PRESETS)}")
    return DATA_PRESETS[name]


def write_preset(
    name: str,
    root: str | Path,
    folder: str | Path,
    *,
    max_tokens: int | None = None,
    max_train: int | None = None,
    max_test: int | None = None,
) -> dict[str, Any]:
    """Read, clean, filter and split a preset's data, and write them into a folder.

    A folder that holds the same already is left as it is. Document frequencies, and with them the
    vocabulary, are those of the filtered training documents.

    Args:
        name: of the preset.
        root: the folder with a folder of each data set.
        folder: where to: `texts.parquet` (columns text, label, split), `vocabulary.json` and, last,
            `about.json`.
        max_tokens: longer documents are cut after so many words, once the filters are through;
            None keeps all.
        max_train: training documents, at most, evenly spaced; dev keeps a fifth of that.
        max_test: test documents, at most, evenly spaced.

    Returns:
        What was written: counts and options.

    Raises:
        DataError: no such preset, missing or damaged files, a folder with other options.

    Source:
        Jain & Wallace 2019, appendix and code.

    Example:
        >>> write_preset("sst", "data", "runs/sst")["documents"]["test"]  # doctest: +SKIP
        {'negative': 863, 'positive': 862}
    """
    with needs("text"):
        import pandas as pd
    preset, folder = find_preset(name), Path(folder)
    options = {
        "preset": name,
        "max_tokens": max_tokens,
        "max_train": max_train,
        "max_test": max_test,
    }
    if (folder / _ABOUT).exists():
        about = _read_json(folder / _ABOUT)
        if about["format"] != _FORMAT or about["options"] != options:
            raise DataError(
                f"{folder} holds {about['options']}, not {options}; choose another directory or "
                "delete it"
            )
        return about
    config = preset.config(Path(root))
    corpus = load_corpus(config)
    limits = {
        "train": max_train,
        "dev": None if max_train is None else max(1, max_train // 5),
        "test": max_test,
    }
    rows: list[dict[str, str]] = []
    counts: dict[str, dict[str, int]] = {}
    left_out: dict[str, int] = {}
    words: dict[str, list[list[str]]] = {}
    for split in _SPLITS:
        examples = getattr(corpus, split)
        cleaned = [preset.clean(example.text) for example in examples]
        lengths = [len(tokens) for tokens in cleaned]
        low = min(lengths, default=0) if preset.longer_than is None else preset.longer_than
        high = max(lengths, default=0) if preset.shorter_than is None else preset.shorter_than
        kept = [i for i, length in enumerate(lengths) if low < length < high]
        left_out[split] = len(examples) - len(kept)
        limit = limits[split]
        if limit is not None and limit < len(kept):
            # Evenly spaced: files can be sorted by class.
            kept = [kept[i * len(kept) // limit] for i in range(limit)]
        words[split] = [cleaned[i][:max_tokens] for i in kept]
        labels = [corpus.classes[examples[i].label] for i in kept]
        counts[split] = {c: labels.count(c) for c in corpus.classes}
        rows += [
            {"text": " ".join(tokens), "label": label, "split": split}
            for tokens, label in zip(words[split], labels, strict=True)
        ]
        if not kept:
            raise DataError(
                f"{root}: {preset.title} has no {split} document of more than {low} and fewer than "
                f"{high} words"
            )
    frequency = Counter(word for tokens in words["train"] for word in set(tokens))
    known = dict.fromkeys(
        word
        for tokens in words["train"]
        for word in tokens
        if frequency[word] >= preset.min_documents
    )
    vocabulary = Vocabulary(list(known))
    about = {
        "format": _FORMAT,
        "options": options,
        "title": preset.title,
        "note": preset.about,
        "source": config.to_dict() | dict.fromkeys(("path", "train", "dev", "test")),
        "classes": corpus.classes,
        "documents": counts,
        "filtered": left_out,
        "dropped": corpus.dropped,
        "words": len(known),
        "mean_length": sum(map(len, words["train"])) / len(words["train"]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / _TEXTS, index=False, compression="zstd")
    _write_json(folder / _VOCABULARY, vocabulary.to_dict())
    _write_json(folder / _ABOUT, about)
    return about


def read_prepared(
    folder: str | Path, *, vectors: str | Path | None = None, seed: int = 0
) -> tuple[PreparedCorpus, DataConfig]:
    """Load what `write_preset` wrote, with word vectors where a file is given.

    Args:
        folder: the folder.
        vectors: word vectors in GloVe's text format; words without one have zeros, as in the
            published code.
        seed: kept in the configuration.

    Returns:
        The data sets, and the configuration with which `load_corpus` and `erase` find them again.

    Raises:
        DataError: nothing was written there.

    Example:
        >>> prepared, config = read_prepared("runs/sst")  # doctest: +SKIP
        >>> len(prepared.train)  # doctest: +SKIP
        6355
    """
    folder = Path(folder)
    if not (folder / _ABOUT).exists():
        raise DataError(f"{folder} holds no prepared data set: it has no {_ABOUT}")
    about = _read_json(folder / _ABOUT)
    vocabulary = Vocabulary.from_dict(_read_json(folder / _VOCABULARY))
    config = DataConfig(
        path=str(folder / _TEXTS),
        split_column="split",
        classes=tuple(about["classes"]),
        sentences="spaces",
        line_breaks=False,
        min_count=1,
        seed=seed,
    )
    corpus = load_corpus(config)
    embeddings, found = None, 0
    if vectors is not None:
        config = replace(config, vectors=str(vectors))
        embeddings, found = read_vectors(vectors, vocabulary, missing="zero")
    splits = {
        split: encode(
            tokenise(getattr(corpus, split), sentences="spaces", line_breaks=False), vocabulary
        )
        for split in _SPLITS
    }
    prepared = PreparedCorpus(
        vocabulary, embeddings, found, **splits, classes=corpus.classes, dropped=corpus.dropped
    )
    return prepared, config


def _write_json(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); delete {path.parent}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged: it holds no JSON object; delete {path.parent}")
    return content
