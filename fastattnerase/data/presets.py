"""The data sets of Jain & Wallace and of Wen et al., with their cleaning, filters and vocabularies.

A preset reads the files as they are distributed, cleans and filters the texts, and writes one
Parquet file of texts whose words are separated by spaces, with its vocabulary. Everything else,
training and erasure, reads that file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import Corpus, load_corpus
from fastattnerase.data.dataset import PreparedCorpus, encode
from fastattnerase.data.errors import DataError
from fastattnerase.data.examples import Example
from fastattnerase.data.published import clinical, official, questions, texts
from fastattnerase.data.published.draws import draw, drawn_corpus
from fastattnerase.data.published.record import NO_LIMIT, DataPreset
from fastattnerase.data.spans import cut_spans
from fastattnerase.data.tokens import tokenise
from fastattnerase.data.vectors import read_vectors
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.extras import needs

_SPLITS = ("train", "dev", "test")
_TEXTS, _VOCABULARY, _ABOUT = "texts.parquet", "vocabulary.json", "about.json"
_FORMAT = 1

DATA_PRESETS: dict[str, DataPreset] = {
    **texts.PRESETS,
    **official.PRESETS,
    **clinical.PRESETS,
    **questions.PRESETS,
}


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
    vocabulary, are those of the training documents, before or after the filters as the preset says.

    Args:
        name: of the preset.
        root: the folder with a folder of each data set.
        folder: where to: `texts.parquet` (columns text, label, split, of two texts query, and where
            they have them answers and spans, as words of the text), `vocabulary.json` and, last,
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
    if preset.answers is not None:
        config = replace(config, classes=preset.answers(Path(root)))
    corpus = drawn_corpus(load_corpus(config), preset.draws)
    limits = {
        "train": max_train,
        "dev": None if max_train is None else max(1, max_train // 5),
        "test": max_test,
    }
    kept: dict[str, list[_Cleaned]] = {}
    counted: list[_Cleaned] = []  # the documents whose words are the vocabulary
    left_out: dict[str, int] = {}
    for split in _SPLITS:
        documents = [_clean(example, preset) for example in getattr(corpus, split)]
        kept[split] = _filter(documents, preset, f"{root}: {preset.title} has no {split} document")
        left_out[split] = len(documents) - len(kept[split])
        if split == "train":
            counted = [document.cut(max_tokens) for document in documents]
        if split == "test" and preset.test_draw is not None:
            labels = [document.example.label for document in kept[split]]
            kept[split] = [kept[split][i] for i in draw(labels, preset.test_draw)]
        limit, count = limits[split], len(kept[split])
        if limit is not None and limit < count:
            # Evenly spaced: files can be sorted by class.
            kept[split] = [kept[split][i * count // limit] for i in range(limit)]
        kept[split] = [document.cut(max_tokens) for document in kept[split]]
    counted = counted if preset.words_of_all else kept["train"]
    vocabulary = _vocabulary(counted, corpus.classes, preset)
    lengths = [len(document.words) for document in kept["train"]]
    about = {
        "format": _FORMAT,
        "options": options,
        "title": preset.title,
        "note": preset.about,
        "source": config.to_dict() | dict.fromkeys(("path", "train", "dev", "test")),
        "classes": corpus.classes,
        "documents": {split: _count(kept[split], corpus) for split in _SPLITS},
        "filtered": left_out,
        "dropped": corpus.dropped,
        "words": len(vocabulary.words),
        "mean_length": sum(lengths) / len(lengths),
    }
    if config.query_column is not None:
        about["first_dropped"] = corpus.first_dropped
    if columns := _columns_beside(config):
        about["columns"] = columns
    rows = [
        document.row(split, corpus.classes, config) for split in _SPLITS for document in kept[split]
    ]
    write_prepared(folder, rows, vocabulary, about)
    return about


def write_prepared(
    folder: Path, rows: Sequence[Mapping[str, str]], vocabulary: Vocabulary, about: dict[str, Any]
) -> None:
    """Write prepared documents for `read_prepared`; `about.json`, which says all are there, last.

    Args:
        folder: where to.
        rows: of each document `text`, its words with spaces between, `label` and `split`.
        vocabulary: the known words.
        about: what is said of them, `classes` among it.
    """
    with needs("text"):
        import pandas as pd
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / _TEXTS, index=False, compression="zstd")
    _write_json(folder / _VOCABULARY, vocabulary.to_dict())
    _write_json(folder / _ABOUT, {"format": _FORMAT} | about)


class _Cleaned(NamedTuple):
    """The words of an example; those of its query, None where it has none."""

    example: Example
    words: list[str]
    query: list[str] | None

    def cut(self, max_tokens: int | None) -> _Cleaned:
        """Keep so many words of the text, and of its marked spans what is left."""
        if max_tokens is None or len(self.words) <= max_tokens:
            return self
        spans, _ = cut_spans(self.example.spans, max_tokens)
        example = self.example._replace(spans=tuple(spans))
        return self._replace(words=self.words[:max_tokens], example=example)

    def row(self, split: str, classes: Sequence[str], config: DataConfig) -> dict[str, str]:
        """Give what is written; the columns are named as `_columns_beside` says."""
        example = self.example
        row = {"text": " ".join(self.words), "label": classes[example.label], "split": split}
        if self.query is not None:
            row["query"] = " ".join(self.query)
        if config.answers_column is not None:
            row["answers"] = ";".join(classes[answer] for answer in example.answers or ())
        if config.spans_column is not None:
            row["spans"] = ";".join(f"{begin}:{end}" for begin, end in example.spans)
        return row


def _columns_beside(config: DataConfig) -> dict[str, str]:
    """Name the columns of a query, of what belongs to it, and of spans that a data set has."""
    names = ("query", "answers", "spans")
    return {f"{n}_column": n for n in names if getattr(config, f"{n}_column") is not None}


def _clean(example: Example, preset: DataPreset) -> _Cleaned:
    # The same word in many texts is kept in memory once.
    words = [intern(word) for word in preset.clean(example.text)]
    query = None
    if example.query is not None:
        query = [intern(word) for word in preset.clean(example.query)]
    return _Cleaned(example, words, query)


def _filter(documents: list[_Cleaned], preset: DataPreset, nothing: str) -> list[_Cleaned]:
    """Keep the documents between the preset's lengths; `nothing` begins the error for none."""
    lengths = [len(document.words) for document in documents]
    low = min(lengths, default=0) if preset.longer_than is None else preset.longer_than
    high = max(lengths, default=0) if preset.shorter_than is None else preset.shorter_than
    kept = [
        document
        for document, length in zip(documents, lengths, strict=True)
        if low < length < high and document.query != []
    ]
    if not kept:
        fewer = "" if high == NO_LIMIT else f" and fewer than {high}"
        raise DataError(f"{nothing} of more than {low}{fewer} words")
    return kept


def _vocabulary(documents: list[_Cleaned], classes: list[str], preset: DataPreset) -> Vocabulary:
    """Collect the words that enough texts have, in the order of their occurrence."""
    texts = [words for document in documents for words in (document.words, document.query or [])]
    frequency = Counter(word for words in texts for word in set(words))
    known = dict.fromkeys(
        word for words in texts for word in words if frequency[word] >= preset.min_documents
    )
    if preset.answers_are_words:
        known |= dict.fromkeys(classes)
    return Vocabulary(list(known), lower_case=preset.lower_case)


def _count(documents: list[_Cleaned], corpus: Corpus) -> dict[str, int]:
    counts = Counter(document.example.label for document in documents)
    return {name: counts[label] for label, name in enumerate(corpus.classes)}


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
        lower_case=vocabulary.lower_case,
        seed=seed,
        **about.get("columns", {}),
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
