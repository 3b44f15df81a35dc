"""The data sets of Jain & Wallace and of Wen et al., with their cleaning, filters and vocabularies.

A preset reads the files as they are distributed, cleans and filters the texts, and writes one
Parquet file of texts whose words are separated by spaces, with its vocabulary. Everything else,
training and erasure, reads that file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import load_corpus
from fastattnerase.data.dataset import PreparedCorpus, encode
from fastattnerase.data.errors import DataError
from fastattnerase.data.tokens import tokenise
from fastattnerase.data.vectors import read_vectors
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.extras import needs

if TYPE_CHECKING:
    from spacy.language import Language

_SPLITS = ("train", "dev", "test")
_TEXTS, _VOCABULARY, _ABOUT = "texts.parquet", "vocabulary.json", "about.json"
_FORMAT = 1

Clean = Callable[[str], list[str]]


# --- cleaning ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _tokeniser() -> Language:
    with needs("text"):
        import spacy  # slow to import, and needed only where text is cleaned

    language = spacy.blank("en")
    language.max_length = 2**31 - 1
    return language


def clean_text(text: str) -> list[str]:
    """Cut a text into words: white space collapsed, spaCy's tokens, lower case, digits hidden.

    A token with a digit becomes `qqq`.

    Example:
        >>> clean_text("It's  5pm, Bob.")
        ['it', "'s", 'qqq', 'pm', ',', 'bob', '.']
    """
    tokens = (token.text.lower() for token in _tokeniser()(" ".join(text.split())))
    return ["qqq" if any(c.isdigit() for c in token) else token for token in tokens]


def clean_sentiment(text: str) -> list[str]:
    """Cut a text into words without punctuation: bracket markers dropped, digits left.

    Example:
        >>> clean_sentiment("Is n't -LRB- 1 -RRB- it ?")
        ['is', 'n', 't', '1', 'it']
    """
    text = re.sub(r"\W", " ", re.sub(r"-?(LRB|RRB)-?", " ", text))
    return [token.text.lower() for token in _tokeniser()(" ".join(text.split()))]


def clean_post(text: str) -> list[str]:
    """Clean as `clean_text`, then set every punctuation mark apart.

    Example:
        >>> clean_post("e-mail me...")
        ['e', '-', 'mail', 'me', '.', '.', '.']
    """
    return re.sub(r"([^\w\s])", r" \1 ", " ".join(clean_text(text))).split()


_FILTERS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))


def clean_review(text: str) -> list[str]:
    """Cut a text as Keras does for its IMDB data: lower case, punctuation but apostrophes dropped.

    Example:
        >>> clean_review("Great!<br />It's <i>good</i>.")
        ['great', "it's", 'i', 'good', 'i']
    """
    return re.sub(r"<br\s*/?>", " ", text).lower().translate(_FILTERS).split()


# --- presets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataPreset:
    """A data set: where it is, how it is cleaned, filtered and split.

    Attributes:
        title: for tables.
        config: from the folder of all data sets, where the files are and how they are split.
        clean: from a text to its words.
        min_documents: a word of the vocabulary is in at least so many training documents.
        longer_than: shorter documents, and those of this length, are left out; None, as in the
            published preparation: each split's shortest are. -1 keeps all.
        shorter_than: longer documents, and those of this length, are left out; None: each split's
            longest are.
        about: what differs from the published data.
    """

    title: str
    config: Callable[[Path], DataConfig]
    clean: Clean
    min_documents: int
    longer_than: int | None
    shorter_than: int | None
    about: str = ""


def _sst(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "sst"),
        reader="sst_trees",
        label_column="binary",
        split_column="split",
        classes=("negative", "positive"),
    )


def _imdb(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "imdb"),
        reader="imdb_held_out",
        split_column="split",
        fractions=(0.8, 0.2, 0.0),
        seed=1378,
    )


def _imdb_5k(root: Path) -> DataConfig:
    path = root / "imdb" / "movie_review_5k.csv.xz"
    return DataConfig(path=str(path), fractions=(0.64, 0.16, 0.2), seed=1378)


def _ag_news(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "ag_news" / "test.csv.xz"),
        reader="ag_news",
        classes=("World", "Business"),
        fractions=(0.6, 0.1, 0.3),
        seed=16377,
    )


def _newsgroups(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "20news" / "sports.jsonl.xz"),
        split_column="split",
        classes=("rec.sport.baseball", "rec.sport.hockey"),
        fractions=(0.8, 0.2, 0.0),
        seed=13478,
    )


def _psytar(root: Path) -> DataConfig:
    folder = root / "psytar"
    return DataConfig(
        train=str(folder / "train.tsv"),
        dev=str(folder / "dev.tsv"),
        test=str(folder / "test.tsv"),
        text_column="sentences",
        label_column="ADR",
    )


DATA_PRESETS: dict[str, DataPreset] = {
    "sst": DataPreset("SST", _sst, clean_sentiment, 1, 5, None),
    "imdb": DataPreset(
        "IMDB",
        _imdb,
        clean_review,
        10,
        6,
        400,
        "trained on the official training half but 5,000 reviews, which are the test split",
    ),
    "imdb_5k": DataPreset(
        "IMDB 5k",
        _imdb_5k,
        clean_review,
        10,
        6,
        400,
        "5,000 reviews of the official training half, split 64/16/20",
    ),
    "ag_news": DataPreset(
        "AG News",
        _ag_news,
        clean_text,
        5,
        None,
        None,
        "World against Business of the 7,600-row test file, split 60/10/30",
    ),
    "20news_sports": DataPreset(
        "20News sports",
        _newsgroups,
        clean_post,
        2,
        6,
        500,
        "official by-date split; a fifth of train is dev",
    ),
    "psytar": DataPreset(
        "PsyTAR",
        _psytar,
        clean_text,
        2,
        5,
        100,
        "patients' posts in place of the ADR tweets, which may not be passed on",
    ),
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
