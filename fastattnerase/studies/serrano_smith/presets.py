"""The 24 models of Serrano & Smith 2019 by name, with every hyperparameter.

A preset is one of the data sets `yahoo`, `imdb`, `amazon`, `yelp`, a dash, `han` or `flan`, and an
encoder, `rnn`, `conv` or `noenc`: `yahoo-hanrnn`, `yelp-flannoenc`. Its style is `paper`, what the
paper says, or `code`, what the published code did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from fastattnerase.data.config import DataConfig
from fastattnerase.data.errors import DataError
from fastattnerase.data.files import COMPRESSIONS
from fastattnerase.data.readers.yahoo_l6 import CATEGORIES
from fastattnerase.data.word2vec import Word2VecConfig
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.errors import ModelError
from fastattnerase.models.train_config import TrainConfig

Style = Literal["paper", "code"]

DATA_SETS = ("yahoo", "imdb", "amazon", "yelp")
KINDS = ("han", "flan")
ENCODERS = ("rnn", "conv", "noenc")
MODEL_PRESETS = tuple(f"{d}-{k}{e}" for d in DATA_SETS for k in KINDS for e in ENCODERS)
STYLES: tuple[Style, ...] = ("paper", "code")


class _Seeds(NamedTuple):
    """The seeds of the code's Python, NumPy and torch generators."""

    python: int
    numpy: int
    torch: int


class _DataSet(NamedTuple):
    """The hyperparameters that depend on the data set."""

    learning_rate: float
    dropout_embedding: float
    dropout_sentence: float
    dropout_output: Mapping[str, float]  # by kind
    epochs: int  # of rnn and conv; noenc has 60
    cap: Mapping[str, int]  # by kind: words of the longest sentence or document times documents
    clamped: bool  # rnn and noenc: gradients clamped element by element instead of by their norm
    seeds: Mapping[str, _Seeds]  # by kind


_SEEDS = _Seeds(370, 944, 972)
_DATA_SETS = {
    "yahoo": _DataSet(
        learning_rate=4e-4,
        dropout_embedding=0.4445,
        dropout_sentence=0.2202,
        dropout_output={"han": 0.3749, "flan": 0.4457},
        epochs=15,
        cap={"han": 1_000, "flan": 15_000},
        clamped=False,
        seeds={"han": _Seeds(122, 462, 458), "flan": _SEEDS},
    ),
    "imdb": _DataSet(
        learning_rate=4e-4,
        dropout_embedding=0.4445,
        dropout_sentence=0.2202,
        dropout_output={"han": 0.2457, "flan": 0.3457},
        epochs=15,
        cap={"han": 2_000, "flan": 20_000},
        clamped=False,
        seeds=dict.fromkeys(KINDS, _SEEDS),
    ),
    "amazon": _DataSet(
        learning_rate=2e-4,
        dropout_embedding=0.6,
        dropout_sentence=0.2,
        dropout_output={"han": 0.4, "flan": 0.4},
        epochs=60,
        cap={"han": 9_000, "flan": 135_000},
        clamped=True,
        seeds=dict.fromkeys(KINDS, _Seeds(9, 289, 218)),
    ),
    "yelp": _DataSet(
        learning_rate=1e-4,
        dropout_embedding=0.7,
        dropout_sentence=0.1,
        dropout_output={"han": 0.7, "flan": 0.7},
        epochs=60,
        cap={"han": 6_000, "flan": 90_000},
        clamped=True,
        seeds=dict.fromkeys(KINDS, _Seeds(217, 735, 781)),
    ),
}

# The paper's names of its data sets.
PAPER_NAMES = {"yahoo": "Yahoo Answers", "imdb": "IMDB", "amazon": "Amazon", "yelp": "Yelp"}

# Accuracies on the test sets: the paper's Table 3, in percent.
PUBLISHED_ACCURACY: Mapping[str, float] = dict(
    zip(
        MODEL_PRESETS,
        (
            *(74.6, 72.8, 73.1, 75.5, 73.1, 72.3),
            *(50.3, 48.9, 46.1, 49.1, 48.2, 45.4),
            *(56.9, 55.3, 51.2, 56.6, 54.4, 50.2),
            *(63.0, 61.0, 58.6, 62.3, 60.7, 58.2),
        ),
        strict=True,
    )
)


def published_accuracy(paper: str, kind: str, encoder: str) -> float | None:
    """Look up an accuracy of the paper's Table 3.

    Args:
        paper: one of the paper's data sets, `Yahoo Answers` or `yahoo`.
        kind: of the model, `han` or `flan`.
        encoder: of the model, `rnn`, `conv` or `noenc`.

    Returns:
        In percent; None where the paper has no such data set or model.

    Source: Serrano & Smith 2019, Table 3.

    Example:
        >>> published_accuracy("IMDB", "flan", "conv")
        48.2
    """
    for data_set, name in PAPER_NAMES.items():
        if paper.lower() in (data_set, name.lower()):
            return PUBLISHED_ACCURACY.get(f"{data_set}-{kind}{encoder}")
    return None


@dataclass(frozen=True)
class ModelPreset:
    """One of the 24 models.

    Attributes:
        name: its name, such as `yahoo-hanrnn`.
        data_set: `yahoo`, `imdb`, `amazon` or `yelp`.
        style: `paper` or `code`.
        model: the model's parts and sizes.
        train: how it is trained.
        word2vec: how its word vectors are trained.
        published_accuracy: on the test set, a share (paper, Table 3).
    """

    name: str
    data_set: str
    style: Style
    model: ModelConfig
    train: TrainConfig
    word2vec: Word2VecConfig
    published_accuracy: float

    @property
    def title(self) -> str:
        """The model's name in the paper, such as `HANrnn`."""
        return f"{self.model.kind.upper()}{self.model.encoder}"

    def data(self, root: str | Path, *, source: str | None = None, seed: int = 0) -> DataConfig:
        """Find the preset's data set: `corpus_config` of its data set and style."""
        return corpus_config(self.data_set, root, style=self.style, source=source, seed=seed)


def preset(name: str, *, style: Style = "paper", seed: int | None = None) -> ModelPreset:
    """Give one of the 24 models by name.

    Both styles have the sizes, learning rates, dropout rates and patiences of the paper's appendix.
    Where the code did what the paper does not say, they differ:

    - output dropout: on the document vector (`paper`), on the class logits (`code`);
    - conv encoders: no dropout of their own (`paper`), 0.3 on their input (`code`);
    - gradients: total norm 10 (`paper`); the same, but elements clamped to 50 for the rnn and noenc
      models of Amazon and Yelp (`code`);
    - learning rate: constant (`paper`), halved after each epoch without a better dev accuracy
      (`code`);
    - epochs: until patience ends them, at most 1,000 (`paper`), at most 15 or 60 (`code`);
    - batches: 64 documents, at most 64 times 2,048 words of the longest document (`paper`); fewer,
      as the code's caps say, on the longest sentence for HANs (`code`);
    - initial GRU biases: zero (`paper`), some of them 1 (`code`);
    - word embeddings: no length limit (`paper`), at most 1 for Yelp's HANrnn and HANnoenc (`code`);
    - word2vec: one worker (`paper`), four (`code`), which cannot be repeated exactly.

    Args:
        name: one of `MODEL_PRESETS`.
        style: `paper` or `code`.
        seed: of parameters, batches and word vectors; default: 0 (`paper`), the code's torch seed
            for parameters and its Python seed for batches (`code`).

    Returns:
        The preset; change parts with `dataclasses.replace`.

    Raises:
        ModelError: unknown name or style.

    Source: Serrano & Smith 2019, appendix A.1, and their code.

    Example:
        >>> preset("yelp-hannoenc", style="code").model.embedding_max_norm
        1.0
    """
    if name not in MODEL_PRESETS:
        raise ModelError(f"preset: given {name!r}, needed one of {', '.join(MODEL_PRESETS)}")
    if style not in STYLES:
        raise ModelError(f"style: given {style!r}, needed paper or code")
    data_set, _, model = name.partition("-")
    kind = next(kind for kind in KINDS if model.startswith(kind))
    encoder = model.removeprefix(kind)
    values = _DATA_SETS[data_set]
    code = style == "code"
    seeds = values.seeds[kind] if code and seed is None else _Seeds(*[seed or 0] * 3)
    model_config = ModelConfig(
        kind=kind,
        encoder=encoder,
        embedding_size=200,
        hidden_size=50,
        attention_size=None,  # as wide as the encoder's output: 100, or 200 without an encoder
        dropout_embedding=values.dropout_embedding,
        dropout_sentence=values.dropout_sentence,
        dropout_output=values.dropout_output[kind],
        dropout_style=style,
        conv_dropout=0.3 if code else 0.0,
        embedding_max_norm=1.0 if code and name in ("yelp-hanrnn", "yelp-hannoenc") else None,
        initialisation="code" if code else "plain",
        seed=seeds.torch,
    )
    train_config = TrainConfig(
        epochs=1_000,
        patience=10 if encoder == "noenc" else 5,
        learning_rate=values.learning_rate,
        batch_size=64,
        batch_tokens=64 * 2_048,
        clip_norm=10.0,
        lr_factor=1.0,
        seed=seeds.python,
    )
    if code:
        clamped = values.clamped and encoder != "conv"
        train_config = replace(
            train_config,
            epochs=60 if encoder == "noenc" else values.epochs,
            batch_tokens=values.cap[kind],
            batch_unit="sentence" if kind == "han" else "document",
            clip_norm=None if clamped else 10.0,
            clip_value=50.0 if clamped else None,
            lr_factor=0.5,
            lr_patience=0,
        )
    word2vec = Word2VecConfig(workers=4 if code else 1, seed=seed or 0)
    return ModelPreset(
        name,
        data_set,
        style,
        model_config,
        train_config,
        word2vec,
        PUBLISHED_ACCURACY[name] / 100,
    )


# --- the corpora, where they lie -----------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """One form in which a data set is distributed."""

    names: tuple[str, ...]  # of its file or folder, or of the folder of train.csv and test.csv
    configure: Callable[[Path], DataConfig]
    split: bool = False  # a folder with train.csv and test.csv


def _zhang(folder: Path) -> DataConfig:
    files = {name: _find(folder, (f"{name}.csv",)) for name in ("train", "test")}
    missing = [f"{name}.csv" for name, file in files.items() if file is None]
    if missing:
        raise DataError(f"{folder} lacks {' and '.join(missing)}")
    return DataConfig(train=str(files["train"]), test=str(files["test"]), reader="zhang_csv")


def _l6(path: Path) -> DataConfig:
    return DataConfig(path=str(path), reader="yahoo_l6", classes=CATEGORIES)


def _jmars(path: Path) -> DataConfig:
    return DataConfig(path=str(path), reader="jmars", classes=_digits(10))


def _yelp_json(path: Path) -> DataConfig:
    return DataConfig(path=str(path), reader="yelp_json", classes=_digits(5))


def _digits(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))


_SOURCES: dict[str, dict[str, _Source]] = {
    "yahoo": {
        "csv": _Source(("yahoo_answers_csv", "yahoo"), _zhang, split=True),
        "xml": _Source(
            ("FullOct2007.xml", "FullOct2007.xml.part1", "yahoo_l6", "L6", "yahoo"), _l6
        ),
    },
    "imdb": {"json": _Source(("data.json", "imdb/data.json", "jmars/data.json"), _jmars)},
    "amazon": {"csv": _Source(("amazon_review_full_csv", "amazon"), _zhang, split=True)},
    "yelp": {
        "csv": _Source(("yelp_review_full_csv", "yelp"), _zhang, split=True),
        "json": _Source(
            tuple(
                f"{folder}{name}"
                for folder in ("", "yelp/")
                for name in ("yelp_academic_dataset_review.json", "review.json")
            ),
            _yelp_json,
        ),
    },
}

# What the code does with each source beyond the paper: quotas and length limits.
_LIMITS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "yahoo": (50, 350, ("train", "dev")),
    "amazon": (15, 130, ("train",)),
    "yelp": (43, 200, ("train",)),
}
_QUOTAS = {"xml": (126_000, 14_000, 5_000), "json": (117_000, 13_000, 10_000)}


def corpus_config(
    data_set: str,
    root: str | Path,
    *,
    style: Style = "paper",
    source: str | None = None,
    seed: int = 0,
) -> DataConfig:
    """Find a data set of the paper in a folder, and configure its splits, limits and vocabulary.

    Sources, looked for in `root`, also compressed (`.xz`, `.gz`, `.zst`):

    - yahoo: `csv`, `yahoo_answers_csv/train.csv` and `test.csv` of Zhang et al.; `xml`, Webscope
      L6, `FullOct2007.xml`, whole or in parts, also in a folder `yahoo_l6`, `L6` or `yahoo`;
    - imdb: `json`, `data.json` of Diao et al., also in a folder `imdb` or `jmars`;
    - amazon: `csv`, `amazon_review_full_csv/train.csv` and `test.csv` of Zhang et al.;
    - yelp: `csv`, `yelp_review_full_csv/train.csv` and `test.csv` of Zhang et al.; `json`,
      `yelp_academic_dataset_review.json` or `review.json` of the dataset challenge.

    Splits: IMDB's reviews go to train, dev and test by independent draws with .8, .1 and .1; of the
    others, a tenth of what is not test is dev. L6 and Yelp's JSON, which have no test rows, give so
    many rows a class as the paper's Table 1 says. `paper`: no length limits, words that occur more
    than 5 times (Yang et al. 2016), sentences by rules. `code`: documents beyond its length limits
    are left out of train (Yahoo: and dev), words that occur at least 5 times, sentences by spaCy's
    `en_core_web_sm`, which must be installed. The code's draws had no seed.

    Args:
        data_set: `yahoo`, `imdb`, `amazon` or `yelp`.
        root: where the corpora are.
        style: `paper` or `code`.
        source: which of the sources; default: the first there is, for Yahoo in the `code` style
            `xml` before `csv`.
        seed: of the draws.

    Returns:
        The configuration, for `prepare_stored`, or `load_corpus` where memory holds the corpus.

    Raises:
        DataError: unknown data set or source, nothing found; the message says what was looked for.

    Source: Serrano & Smith 2019, section 3 and Table 1, and their code.

    Example:
        >>> corpus_config("imdb", "corpora").draw  # doctest: +SKIP
        'independent'
    """
    if data_set not in _SOURCES:
        raise DataError(f"data_set: given {data_set!r}, needed one of {', '.join(_SOURCES)}")
    if style not in STYLES:
        raise DataError(f"style: given {style!r}, needed paper or code")
    sources = _SOURCES[data_set]
    if source is not None and source not in sources:
        raise DataError(
            f"source: given {source!r}, needed one of {', '.join(sources)} for {data_set}"
        )
    order = list(sources) if source is None else [source]
    if style == "code" and source is None and data_set == "yahoo":
        order.reverse()
    for name in order:
        path = _find(Path(root), sources[name].names, sources[name].split)
        if path is not None:
            config = sources[name].configure(path)
            break
    else:
        wanted = [name for source_name in order for name in sources[source_name].names]
        raise DataError(
            f"{root} has no corpus {data_set}: none of {', '.join(wanted)} is there, plain or "
            f"with {', '.join(COMPRESSIONS)}"
        )
    config = replace(config, seed=seed, min_count=5 if style == "code" else 6)
    if config.path is None:
        config = replace(config, draw="independent", fractions=(0.9, 0.1, 0.0))
    elif name == "json" and data_set == "imdb":
        config = replace(config, draw="independent", fractions=(0.8, 0.1, 0.1))
    else:
        config = replace(config, draw="quota", quota=_QUOTAS[name])
    if style == "code":
        config = replace(config, sentences="en_core_web_sm")
        if data_set in _LIMITS:
            sentences, words, splits = _LIMITS[data_set]
            config = replace(
                config,
                max_sentences=sentences,
                max_sentence_tokens=words,
                limited_splits=splits,
            )
    return config


def _find(root: Path, names: tuple[str, ...], split: bool = False) -> Path | None:
    """Find the first of some files or folders; with `split`, a folder that has a `train.csv`."""
    for name in names:
        for suffix in ("", *COMPRESSIONS):
            path = root / f"{name}{suffix}"
            if not path.exists():
                continue
            if split and _find(path, ("train.csv",)) is None:
                continue
            if not split and path.is_dir() and not any(path.glob("*.xml*")):
                continue
            return path
    return None
