"""Studies: which corpora, which models, how trained and erased; read from TOML or JSON."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.runs.checked import check_table
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.config import Config

if sys.version_info >= (3, 11):
    import tomllib
else:
    with needs("text"):
        import tomli as tomllib

MODELS = tuple(kind + encoder for kind in ("HAN", "FLAN") for encoder in ("rnn", "conv", "noenc"))
_MODEL = re.compile(r"(HAN|FLAN)(rnn|conv|noenc)")


@dataclass(frozen=True)
class CorpusSpec:
    """One corpus of a study.

    Attributes:
        name: of the corpus, for reports.
        data: options of `DataConfig`; its files are relative to the data root.
        label_pattern: a regular expression; its first group, found in the label column, is the
            label. `_(\\d+)$` finds the stars in the id `5814_8`.
        rows: at most so many rows, drawn from each split and label in proportion.
        word2vec: options of the pre-training of word vectors on train and dev; None for none.
        models: names such as `HANrnn`; which models are trained.
        model: options of `ModelConfig` for all its models.
        training: options of `TrainConfig` for all its models.
        each: by name of a model: `model` and `training`, options for that one on this corpus.
        paper: the paper's name of the corpus, whose published numbers stand beside the results.
    """

    name: str
    data: Mapping[str, Any]
    label_pattern: str | None = None
    rows: int | None = None
    word2vec: Mapping[str, Any] | None = None
    models: tuple[str, ...] = MODELS
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    each: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    paper: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", tuple(self.models))
        if not self.slug:
            raise RunError(
                f"name of a corpus: given {self.name!r}, needed a letter or a digit in it"
            )
        unknown = [model for model in self.models if not _MODEL.fullmatch(model)]
        if unknown or not self.models:
            raise RunError(
                f"models of corpus {self.name!r}: given {', '.join(self.models) or 'none'}, "
                f"needed some of {', '.join(MODELS)}"
            )
        twice = [model for model in dict.fromkeys(self.models) if self.models.count(model) > 1]
        if twice:
            raise RunError(
                f"models of corpus {self.name!r}: given {', '.join(twice)} more than once, needed "
                "distinct names"
            )
        _check_each(f"corpus {self.name!r}: each", self.each)
        if self.rows is not None and self.rows < 1:
            raise RunError(f"rows of corpus {self.name!r}: given {self.rows}, needed at least 1")
        if self.label_pattern is not None:
            try:
                groups = re.compile(self.label_pattern).groups
            except re.error as error:
                raise RunError(f"label_pattern of corpus {self.name!r}: {error}") from error
            if groups < 1:
                raise RunError(
                    f"label_pattern of corpus {self.name!r}: given {self.label_pattern!r}, needed "
                    "a group in brackets"
                )

    @property
    def slug(self) -> str:
        """The name as a folder's name."""
        return slug(self.name)

    def to_dict(self) -> dict[str, Any]:
        """Give what is not as by default, as data for JSON."""
        return {
            f.name: _plain(getattr(self, f.name))
            for f in dataclasses.fields(self)
            if f.name == "name" or getattr(self, f.name) != _default(f)
        }


@dataclass(frozen=True)
class Study:
    """What is trained on what, and how.

    Attributes:
        name: of the study.
        corpora: the corpora, with distinct names.
        model: options of `ModelConfig` for all models.
        training: options of `TrainConfig` for all models.
        models: by name of a model (`HANrnn`): `model` and `training`, options for that one.
        erase: options of the experiment's `Config`.
        seeds: each model is trained and erased once with each of these, which are the seeds of its
            initial parameters, batches and dropout, whatever other options say; none is once, with
            the seeds that the options say.

    Raises:
        RunError: no corpora, two of one name, unknown options, seeds that are not distinct numbers
            from 0 to 2⁶³ - 1.

    Example:
        >>> from fastattnerase.studies.serrano_smith.study import CorpusSpec, Study
        >>> study = Study("mine", (CorpusSpec("Reviews", {"path": "reviews.csv"}),))
        >>> study.options(study.corpora[0], "FLANrnn")[0]
        {'kind': 'flan', 'encoder': 'rnn'}
    """

    name: str
    corpora: tuple[CorpusSpec, ...]
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    erase: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", tuple(self.seeds))
        fits = all(0 <= seed < 2**63 for seed in self.seeds)
        if not fits or len(set(self.seeds)) < len(self.seeds):
            given = ", ".join(map(str, self.seeds))
            raise RunError(f"seeds: given {given}, needed distinct numbers from 0 to 2**63 - 1")
        if not self.corpora:
            raise RunError(f"corpora of study {self.name!r}: given none, needed at least one")
        slugs = [corpus.slug for corpus in self.corpora]
        if len(set(slugs)) < len(slugs):
            raise RunError(f"names of corpora: given {', '.join(slugs)}, needed distinct ones")
        _check_each("models", self.models)
        self.config()

    def config(self) -> Config:
        """Give the configuration of the erasure experiment."""
        check_table(Config, self.erase, "erase")
        try:
            return Config(**self.erase)
        except ValueError as error:
            raise RunError(f"erase: {error}") from error

    def options(
        self, corpus: CorpusSpec, model: str, seed: int | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Give the options of `ModelConfig` and `TrainConfig` of one model.

        The more special ones win: the study's, the model's, the corpus's, the model's on it, and
        over all `seed`, one of `seeds`.
        """
        match = _MODEL.fullmatch(model)
        assert match is not None  # checked when the study was made
        layers = (
            {"model": self.model, "training": self.training},
            self.models.get(model, {}),
            {"model": corpus.model, "training": corpus.training},
            corpus.each.get(model, {}),
        )
        options: dict[str, dict[str, Any]] = {
            "model": {"kind": match[1].lower(), "encoder": match[2]},
            "training": {},
        }
        for layer in layers:
            for part, values in layer.items():
                options[part].update(values)
        if seed is not None:
            for values in options.values():
                values["seed"] = seed
        return options["model"], options["training"]

    def pairs(self, only: Sequence[str] = ()) -> list[tuple[CorpusSpec, str]]:
        """List corpora and models, those that a pattern names.

        Args:
            only: patterns with `*` and `?`: `CORPUS/MODEL`, or one of the two alone; none is all.

        Returns:
            Pairs of corpus and model.

        Raises:
            RunError: a pattern that names nothing.
        """
        pairs = [(corpus, model) for corpus in self.corpora for model in corpus.models]
        if not only:
            return pairs
        chosen = set()
        for pattern in only:
            found = [
                i
                for i, (corpus, model) in enumerate(pairs)
                if any(
                    fnmatch.fnmatchcase(name.lower(), pattern.lower())
                    for place in (corpus.slug, corpus.name)
                    for name in (place, model, f"{place}/{model}")
                )
            ]
            if not found:
                names = ", ".join(f"{corpus.slug}/{model}" for corpus, model in pairs)
                raise RunError(f"--only: given {pattern!r}, needed what names some of {names}")
            chosen.update(found)
        return [pairs[i] for i in sorted(chosen)]

    def to_dict(self) -> dict[str, Any]:
        """Give the study as data for JSON."""
        return {
            "name": self.name,
            "model": _plain(self.model),
            "training": _plain(self.training),
            "models": _plain(self.models),
            "erase": _plain(self.erase),
            **({"seeds": list(self.seeds)} if self.seeds else {}),
            "corpora": [corpus.to_dict() for corpus in self.corpora],
        }


def read_study(path: Path) -> Study:
    """Read a study from a TOML or JSON file.

    Args:
        path: the file. Its keys are those of `Study`; `corpora` is a list of tables with the keys
            of `CorpusSpec`.

    Returns:
        The study.

    Raises:
        RunError: no such file, not TOML or JSON, unknown keys, bad values.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.study import read_study
        >>> read_study(Path("study.toml")).name  # doctest: +SKIP
        'serrano-smith-shared'
    """
    if not path.is_file():
        raise RunError(f"{path}: no such file")
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:  # both kinds of errors of syntax, and bytes that are not UTF-8
        raise RunError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: given {type(content).__name__}, needed a table")
    content.setdefault("name", path.stem)
    content.setdefault("corpora", [])
    try:
        check_table(Study, content)
        specs = []
        for number, corpus in enumerate(content["corpora"], 1):
            check_table(CorpusSpec, corpus, f"corpora[{number}]")
            specs.append(CorpusSpec(**corpus))
        study = Study(**content | {"corpora": tuple(specs)})
        _check_options(study)
    except ValueError as error:  # of studies, data and models
        raise RunError(f"{path}: {error}") from error
    return study


def _check_options(study: Study) -> None:
    """Check all options of data, models and training now, not at their stage."""
    # Only here: a report knows studies, and needs neither texts nor models.
    from fastattnerase import backends
    from fastattnerase.data import DataConfig
    from fastattnerase.data.vocabulary import Vocabulary
    from fastattnerase.data.word2vec import Word2VecConfig
    from fastattnerase.models import ModelConfig, TrainConfig
    from fastattnerase.models.build import build_model
    from fastattnerase.rankings import resolve

    able = ["auto", *(name for name, reasons in backends().items() if not reasons)]
    if study.config().backend not in able:
        raise RunError(
            f"erase.backend: given {study.config().backend!r}, needed one that can run here: "
            f"{', '.join(able)}"
        )
    for ranking in study.config().rankings:
        try:
            resolve(ranking)
        except ValueError as error:
            raise RunError(f"erase.{error}") from error
    kinds = {"model": ModelConfig, "training": TrainConfig}

    def check_layer(layer: Mapping[str, Any], place: str) -> None:
        for part, kind in kinds.items():
            check_table(kind, layer.get(part, {}), f"{place}{part}")

    check_layer(vars(study), "")
    for model, layer in study.models.items():
        check_layer(layer, f"models.{model}.")
    for number, corpus in enumerate(study.corpora, 1):
        place = f"corpora[{number}]."
        check_layer(vars(corpus), place)
        for model, layer in corpus.each.items():
            check_layer(layer, f"{place}each.{model}.")
        check_table(DataConfig, corpus.data, f"{place}data")
        check_table(Word2VecConfig, corpus.word2vec or {}, f"{place}word2vec")
        if corpus.data.get("path") is corpus.data.get("train") is None:
            raise RunError(f"{place}data: given neither path nor train, needed a file of texts")
        if corpus.data.get("vectors") is not None and corpus.word2vec is not None:
            raise RunError(f"{place}data.vectors: given with word2vec, needed either")
        _made(DataConfig, corpus.data, f"{place}data")
        _made(Word2VecConfig, corpus.word2vec or {}, f"{place}word2vec")
        for model in corpus.models:
            of_model, of_training = study.options(corpus, model)
            place = f"{corpus.name}, {model}"
            config = _made(ModelConfig, of_model, f"{place}, model")
            _made(TrainConfig, of_training, f"{place}, training")
            try:
                build_model(config, Vocabulary([]), 2)
            except ValueError as error:
                raise RunError(f"{place}, model: {error}") from error


def _made(kind: Any, values: Mapping[str, Any], place: str) -> Any:
    try:
        return kind.from_dict(values)
    except ValueError as error:
        raise RunError(f"{place}: {error}") from error


def slug(name: str) -> str:
    """Write a name in lower-case letters, digits and hyphens.

    >>> slug("IMDB (8 stars)")
    'imdb-8-stars'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _check_each(name: str, each: Mapping[str, Mapping[str, Any]]) -> None:
    for model, options in each.items():
        if not _MODEL.fullmatch(model):
            raise RunError(f"{name}: given {model!r}, needed some of {', '.join(MODELS)}")
        if set(options) - {"model", "training"}:
            raise RunError(
                f"{name}.{model}: given {', '.join(sorted(options))}, needed model or training"
            )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _default(f: dataclasses.Field[Any]) -> Any:
    if f.default_factory is not dataclasses.MISSING:
        return f.default_factory()
    return f.default
