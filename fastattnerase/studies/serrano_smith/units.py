"""The units of the study: prepare, embed, train, erase, seeds, report.

A unit is one stage of one corpus or model, and of one seed where there are several, which `seeds`
joins; the report is one for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fastattnerase.data import DataConfig, PreparedCorpus, read_vectors
from fastattnerase.data.stored import prepare_stored
from fastattnerase.data.word2vec import Word2VecConfig, train_word2vec
from fastattnerase.models import (
    ModelConfig,
    TrainConfig,
    build_model,
    evaluate,
    load_model,
    save_model,
    train,
)
from fastattnerase.models.storage import read_tensors, write_tensors
from fastattnerase.plurals import plural
from fastattnerase.runs import rundir
from fastattnerase.runs.progress import as_share
from fastattnerase.runs.undrawn import Reporting
from fastattnerase.runs.workspace import Report, Unit, Workspace
from fastattnerase.sources import ModelSource
from fastattnerase.statistics.shares import accuracy_beside, majority
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import COSTS, REPORT_COSTS
from fastattnerase.studies.serrano_smith.result import Result, load
from fastattnerase.studies.serrano_smith.rows import write_rows
from fastattnerase.studies.serrano_smith.study import CorpusSpec, Study

STAGES = ("prepare", "embed", "train", "erase", "seeds", "report")
# How long the units of a small study took against each other.
_STAGE_COST = {"prepare": 1.0, "embed": 0.3, "erase": 0.7, "seeds": 0.7, "report": 1.0}
_TRAIN_COST = {"rnn": 5.0, "conv": 3.0, "noenc": 1.5}


@dataclass(frozen=True)
class _Model:
    """One model that is trained and erased: on which corpus, by which name, with which seed.

    Attributes:
        corpus: of the study.
        name: such as `HANrnn`.
        seed: one of the study's seeds; None where it has none.
    """

    corpus: CorpusSpec
    name: str
    seed: int | None

    @property
    def place(self) -> str:
        """Its part of the keys of its units, and so of its folders: `imdb/HANrnn-0`."""
        suffix = "" if self.seed is None else f"-{self.seed}"
        return f"{self.corpus.slug}/{self.name}{suffix}"

    @property
    def title(self) -> str:
        """The name of its run."""
        suffix = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.name} on {self.corpus.name}{suffix}"

    @property
    def carried(self) -> dict[str, int]:
        """What its records say of its seed; nothing in a study without seeds."""
        return {} if self.seed is None else {"seed": self.seed}


class SerranoSmith(Workspace):
    """A study, its data and its folder.

    Args:
        study: the study.
        data_root: what the study's files are relative to.
        out: the folder of everything that is made.
        only: patterns that choose corpora and models; see `Study.pairs`.
        until: the last stage to run.
        device: where to train and erase.
    """

    def __init__(
        self,
        study: Study,
        data_root: Path,
        out: Path,
        only: tuple[str, ...] = (),
        until: str = "report",
        device: str = "cpu",
    ) -> None:
        super().__init__(out)
        self.study = study
        self.data_root = data_root
        self.only = only
        self.until = until
        self.device = device

    # --- the units -------------------------------------------------------------------------------

    def units(self) -> list[Unit]:
        """List the units of the chosen corpora and models, up to the last stage."""
        units: dict[Unit, None] = {}
        erased = []
        for corpus, model in self.study.pairs(self.only):
            prepare, embed = self._prepare_unit(corpus), self._embed_unit(corpus)
            own = [_Model(corpus, model, seed) for seed in self.study.seeds or (None,)]
            for one in own:
                units |= dict.fromkeys(
                    (prepare, embed, self._train_unit(one), self._erase_unit(one))
                )
                erased.append(self._erase_unit(one).key)
            if len(own) > 1:
                joined = self._seeds_unit(own)
                units[joined] = None
                erased.append(joined.key)
        report = Unit(
            "report",
            self._report,
            self._report_state,
            tuple(erased),
            cost=_STAGE_COST["report"],
            renewed=True,  # it is made in moments
            about=_about("report"),
        )
        last = STAGES.index(self.until)
        return [unit for unit in [*units, report] if STAGES.index(stage_of(unit)) <= last]

    def others(self) -> list[Unit]:
        """List the study's units that are finished and not chosen: their results stay in place."""
        chosen = self.units()
        whole = self._chosen_and_until((), STAGES[-2])
        return [unit for unit in whole.units() if unit not in chosen and self.fits(unit)]

    def unfit(self) -> list[Unit]:
        """List the study's models that were erased once, but with other options or data."""
        whole = self._chosen_and_until((), "erase")
        return [
            unit
            for unit in whole.units()
            if stage_of(unit) == "erase"
            and (self.folder(unit.key) / self.record_name).exists()
            and not self.fits(unit)
        ]

    def _chosen_and_until(self, only: tuple[str, ...], until: str) -> SerranoSmith:
        return SerranoSmith(self.study, self.data_root, self.out, only, until, self.device)

    def _erased(self, stage: str = "erase") -> list[Unit]:
        """List the models of the report: those that are erased, chosen or not, in their order."""
        whole = self._chosen_and_until((), stage)
        found = {*self.units(), *self.others()}
        return [unit for unit in whole.units() if stage_of(unit) == stage and unit in found]

    # --- what the manifest holds -----------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Say what the manifest holds beside the units: the study, and what was chosen of it."""
        return {"study": self.study.to_dict(), "only": list(self.only)}

    def describe(self, numbers: Mapping[str, Any]) -> str:
        """Say what a finished unit found, in a few words."""
        if "test_accuracy" in numbers:
            return accuracy_beside("test", numbers["test_accuracy"], numbers.get("test_majority"))
        if "documents" in numbers:
            sizes = numbers["documents"]
            return f"{sizes['train']:,} train, {sizes['dev']:,} dev, {sizes['test']:,} test"
        if "analysed" in numbers:
            every = numbers["instances"]
            return f"{numbers['analysed']:,} of {every:,} {plural(every, 'instance')}"
        return ""

    def listed(self) -> list[Unit]:
        """List the chosen units, and those of the study that are finished all the same."""
        return [*self.units(), *self.others()]

    # --- prepare: texts to documents -------------------------------------------------------------

    def _prepare_unit(self, corpus: CorpusSpec) -> Unit:
        return Unit(
            f"prepare/{corpus.slug}",
            partial(self._prepare, corpus),
            partial(self._prepare_state, corpus),
            cost=_STAGE_COST["prepare"],
            about=_about("prepare", corpus),
        )

    def _prepare_state(self, corpus: CorpusSpec) -> dict[str, Any]:
        vectors = ("vectors", "unit_vectors")
        return {
            "data": {key: value for key, value in corpus.data.items() if key not in vectors},
            "label_pattern": corpus.label_pattern,
            "rows": corpus.rows,
            "files": self._files(corpus),
        }

    def _files(self, corpus: CorpusSpec) -> dict[str, list[int]]:
        files = {}
        for name in ("path", "train", "dev", "test"):
            relative = corpus.data.get(name)
            if relative is not None:
                path = self.data_root / relative
                members = sorted(path.rglob("*")) if path.is_dir() else [path]
                for member in members:
                    if not member.exists():
                        raise rundir.RunError(f"{member}: no such file (corpus {corpus.name})")
                    if member.is_file():
                        state = member.stat()
                        place = member.relative_to(self.data_root).as_posix()
                        files[place] = [state.st_size, state.st_mtime_ns]
        return files

    def _prepare(self, corpus: CorpusSpec, folder: Path, report: Report) -> dict[str, Any]:
        config = self._choose_rows(corpus, folder)
        rundir.write_json(folder / "config.json", config.to_dict())
        statistics = _statistics(self._prepared(corpus, Reporting(report)))
        rundir.write_json(folder / "statistics.json", statistics)
        return statistics

    def _choose_rows(self, corpus: CorpusSpec, folder: Path) -> DataConfig:
        """Write the rows that the study wants, where it wants fewer or other labels."""
        config = self._config(corpus)
        if corpus.rows is None and corpus.label_pattern is None:
            return config
        digest = self.digest(self._prepare_unit(corpus))
        chosen = folder / f"rows-{digest[:12]}.parquet"
        splits_given = config.train is not None or config.split_column is not None
        if not chosen.exists():
            write_rows(corpus, config, chosen)
        values = config.to_dict() | dict.fromkeys(("train", "dev", "test", "reader"))
        values |= {
            "path": str(chosen),
            "text_column": "text",
            "label_column": "label",
            "split_column": "split" if splits_given else None,
        }
        return DataConfig.from_dict(values)

    def _config(self, corpus: CorpusSpec) -> DataConfig:
        values = {"min_count": 5} | dict(corpus.data)
        for name in ("path", "train", "dev", "test", "vectors"):
            if values.get(name) is not None:
                values[name] = str(self.data_root / values[name])
        return DataConfig.from_dict(values)

    def _prepared(self, corpus: CorpusSpec, progress: Reporting | None = None) -> PreparedCorpus:
        folder = self.folder(f"prepare/{corpus.slug}")
        config = DataConfig.from_dict(
            rundir.read_json(folder / "config.json") | {"vectors": None, "unit_vectors": False}
        )
        return prepare_stored(config, folder / "documents", progress=progress)

    # --- embed: the word vectors that the models start from --------------------------------------

    def _embed_unit(self, corpus: CorpusSpec) -> Unit:
        return Unit(
            f"embed/{corpus.slug}",
            partial(self._embed, corpus),
            partial(self._embed_state, corpus),
            (f"prepare/{corpus.slug}",),
            cost=_STAGE_COST["embed"],
            about=_about("embed", corpus),
        )

    def _embed_state(self, corpus: CorpusSpec) -> dict[str, Any]:
        return {
            "before": self.digest(self._prepare_unit(corpus)),
            "vectors": {key: corpus.data.get(key) for key in ("vectors", "unit_vectors")},
            "word2vec": corpus.word2vec,
        }

    def _embed(self, corpus: CorpusSpec, folder: Path, report: Report) -> dict[str, Any]:
        vectors, found = self._vectors(corpus, self._prepared(corpus))
        if vectors is not None:
            write_tensors(folder / "vectors.safetensors", {"vectors": vectors})
        return {"words_with_vectors": found}

    def _vectors(self, corpus: CorpusSpec, prepared: PreparedCorpus) -> tuple[Tensor | None, int]:
        path = corpus.data.get("vectors")
        if path is not None:
            return read_vectors(
                self.data_root / path,
                prepared.vocabulary,
                unit=bool(corpus.data.get("unit_vectors", False)),
                seed=int(corpus.data.get("seed", 0)),
            )
        if corpus.word2vec is None:
            return None, 0
        table = train_word2vec(prepared, Word2VecConfig.from_dict(corpus.word2vec))
        return table, len(prepared.vocabulary.words)

    # --- train -----------------------------------------------------------------------------------

    def _train_unit(self, model: _Model) -> Unit:
        return Unit(
            f"train/{model.place}",
            partial(self._train, model),
            partial(self._train_state, model),
            (f"embed/{model.corpus.slug}",),
            cost=next(cost for name, cost in _TRAIN_COST.items() if model.name.endswith(name)),
            about=_about("train", model.corpus, model.name) | model.carried,
        )

    def _train_state(self, model: _Model) -> dict[str, Any]:
        of_model, of_training = self.study.options(model.corpus, model.name, model.seed)
        return {
            "before": self.digest(self._embed_unit(model.corpus)),
            "model": of_model,
            "training": of_training,
            "device": self.device,
        }

    def _train(self, model: _Model, folder: Path, report: Report) -> dict[str, Any]:
        corpus = model.corpus
        prepared = self._prepared(corpus)
        vectors = self.folder(f"embed/{corpus.slug}") / "vectors.safetensors"
        embeddings = read_tensors(vectors)["vectors"] if vectors.exists() else None
        of_model, of_training = self.study.options(corpus, model.name, model.seed)
        train_config = TrainConfig.from_dict(of_training)
        classes = prepared.classes
        classifier = build_model(
            ModelConfig.from_dict(of_model), prepared.vocabulary, len(classes), embeddings
        )
        trained = train(
            classifier,
            prepared.train,
            prepared.dev,
            train_config,
            folder,
            progress=Reporting(report, train_config.epochs),
            device=self.device,
            description={"before": self.digest(self._embed_unit(corpus))},
        )
        tested = evaluate(classifier, prepared.test)
        numbers = {
            "dev_accuracy": trained.dev_accuracy,
            "test_accuracy": tested.accuracy,
            "test_majority": majority(tested.labels.numpy()),
            "best_epoch": trained.best_epoch,
            "epochs": len(trained.history),
        }
        prepare = self.folder(f"prepare/{corpus.slug}")
        save_model(
            folder,
            classifier,
            vocabulary=prepared.vocabulary,
            classes=classes,
            data_config=DataConfig.from_dict(rundir.read_json(prepare / "config.json")),
            train_config=train_config,
            metadata=numbers | {"name": model.title} | rundir.provenance(),
        )
        return numbers

    # --- erase -----------------------------------------------------------------------------------

    def _erase_unit(self, model: _Model) -> Unit:
        return Unit(
            f"erase/{model.place}",
            partial(self._erase, model),
            partial(self._erase_state, model),
            (f"train/{model.place}",),
            cost=_STAGE_COST["erase"],
            about=_about("erase", model.corpus, model.name) | model.carried,
        )

    def _erase_state(self, model: _Model) -> dict[str, Any]:
        return {
            "before": self.digest(self._train_unit(model)),
            "config": self.study.config().to_dict(),
        }

    def _erase(self, model: _Model, folder: Path, report: Report) -> dict[str, Any]:
        corpus = model.corpus
        loaded = load_model(self.folder(f"train/{model.place}"), device=self.device)
        statistics = self.folder(f"prepare/{corpus.slug}") / "statistics.json"
        training = loaded.train_config
        source = ModelSource(
            loaded.model,
            self._prepared(corpus).test,
            loaded.classes,
            {
                "corpus": corpus.name,
                "architecture": model.name,
                **model.carried,
                "paper": corpus.paper,
                "statistics": rundir.read_json(statistics),
                "data": corpus.to_dict(),
                "split": "test",
                "model_config": loaded.model.config.to_dict(),
                "train_config": None if training is None else training.to_dict(),
                "dev_accuracy": loaded.metadata["dev_accuracy"],
                "best_epoch": loaded.metadata["best_epoch"],
            },
        )
        result = experiment.run(
            source,
            self.study.config(),
            folder,
            name=model.title,
            report=as_share(report, COSTS),
        )
        counts = result.counts
        return {
            "instances": counts.instances,
            "analysed": counts.analysed,
            "accuracy": counts.accuracy,
            "majority": counts.majority,
        }

    # --- seeds: the runs of one model with several seeds as one -----------------------------------

    def _seeds_unit(self, models: list[_Model]) -> Unit:
        model = replace(models[0], seed=None)
        return Unit(
            f"seeds/{model.place}",
            partial(self._join, models),
            partial(self._seeds_state, models),
            tuple(self._erase_unit(one).key for one in models),
            cost=_STAGE_COST["seeds"],
            about=_about("seeds", model.corpus, model.name) | {"seeds": [m.seed for m in models]},
            renewed=True,
        )

    def _seeds_state(self, models: list[_Model]) -> dict[str, Any]:
        return {"before": [self.digest(self._erase_unit(model)) for model in models]}

    def _join(self, models: list[_Model], folder: Path, report: Report) -> dict[str, Any]:
        from fastattnerase.studies.serrano_smith import seeds

        for left in (rundir.RUN, rundir.RESULT):  # of other seeds, or of a call that was killed
            (folder / left).unlink(missing_ok=True)
        runs = [load(self.folder(self._erase_unit(model).key)) for model in models]
        title = replace(models[0], seed=None).title
        joined = seeds.join(runs, folder, name=title, report=as_share(report, seeds.COSTS))
        return {"instances": joined.counts.instances, "analysed": joined.counts.analysed}

    # --- report ----------------------------------------------------------------------------------

    def _report_state(self) -> dict[str, Any]:
        reported = [*self._erased(), *self._erased("seeds")]
        about: dict[str, Any] = {unit.key: self.digest(unit) for unit in reported}
        return about | {"version": rundir.provenance()["versions"]["fastattnerase"]}

    def _report(self, folder: Path, report: Report) -> dict[str, Any]:
        # Only here, since drawing takes long to import.
        from fastattnerase.studies.serrano_smith.report import build

        progress = as_share(report, REPORT_COSTS)
        joined = [load(self.folder(unit.key)) for unit in self._erased("seeds")]
        of_seeds = self.results()
        if joined:
            return {"page": build(joined, folder, progress, of_seeds).name}
        return {"page": build(of_seeds, folder, progress).name}

    def results(self) -> list[Result]:
        """Load the finished runs of the study's models, one for each seed, also of those not chosen
        now."""
        return [load(self.folder(unit.key)) for unit in self._erased()]


def stage_of(unit: Unit) -> str:
    """Name the stage of a unit."""
    return unit.key.partition("/")[0]


def _about(
    stage: str, corpus: CorpusSpec | None = None, model: str | None = None
) -> dict[str, Any]:
    return {"stage": stage, "corpus": None if corpus is None else corpus.slug, "model": model}


def _statistics(prepared: PreparedCorpus) -> dict[str, Any]:
    """Describe a corpus as the paper's table 1 does: over all documents of all splits."""
    splits = {name: getattr(prepared, name) for name in ("train", "dev", "test")}
    sizes = [dataset.sizes for dataset in splits.values()]
    words = np.concatenate([size.words for size in sizes]).astype(np.float64)
    sentences = np.concatenate([size.sentences for size in sizes]).astype(np.float64)
    return {
        "words_mean": float(words.mean()),
        "words_sd": float(words.std()),
        "sentences_mean": float(sentences.mean()),
        "sentences_sd": float(sentences.std()),
        "documents": {name: len(dataset) for name, dataset in splits.items()},
        "classes": prepared.classes,
        "vocabulary": len(prepared.vocabulary.words),
        "truncated": {name: dataset.truncated for name, dataset in splits.items()},
        "dropped": dict(prepared.dropped),
    }
