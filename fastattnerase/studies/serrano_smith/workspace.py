"""A study in stages: prepare, embed, train, erase, report; each goes on where it was stopped.

A unit is one stage of one corpus or model. Its folder gets a file `done.json` last; what it holds
before belongs to an unfinished unit, and the stage's own files say where to go on.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.runs import rundir
from fastattnerase.runs.shape import UNIT, check_shape
from fastattnerase.studies.serrano_smith.study import CorpusSpec, Study, slug

if TYPE_CHECKING:
    from rich.progress import Progress
    from torch import Tensor

    from fastattnerase.data import DataConfig, PreparedCorpus
    from fastattnerase.studies.serrano_smith.experiment import Result

# How long the units of a small study took against each other.
_STAGE_COST = {"prepare": 1.0, "embed": 0.3, "erase": 0.7, "report": 1.0}
_TRAIN_COST = {"rnn": 5.0, "conv": 3.0, "noenc": 1.5}

STAGES = ("prepare", "embed", "train", "erase", "report")
DONE = "done.json"
MANIFEST = "manifest.json"
_ROWS = 4096  # rows of a group of a file of chosen rows

Report = Callable[[float], None]  # called with the share of the unit that is done


@dataclass(frozen=True)
class Unit:
    """One stage of one corpus or model; the report has neither."""

    stage: str
    corpus: str = ""
    model: str = ""

    @property
    def key(self) -> str:
        """The name, as in the manifest and as a folder."""
        return "/".join(part for part in (self.stage, self.corpus, self.model) if part)

    @property
    def cost(self) -> float:
        """How long it takes, roughly, against others."""
        if self.stage != "train":
            return _STAGE_COST[self.stage]
        return next(cost for name, cost in _TRAIN_COST.items() if self.model.endswith(name))


@dataclass(frozen=True)
class Workspace:
    """A study, its data and its folder.

    Args:
        study: the study.
        data_root: what the study's files are relative to.
        out: the folder of everything that is made.
        only: patterns that choose corpora and models; see `Study.pairs`.
        until: the last stage to run.
        device: where to train and erase.
    """

    study: Study
    data_root: Path
    out: Path
    only: tuple[str, ...] = ()
    until: str = "report"
    device: str = "cpu"

    def units(self) -> dict[Unit, list[Unit]]:
        """List the units, each with those that must be done before it."""
        units: dict[Unit, list[Unit]] = {}
        erased = []
        for corpus, model in self.study.pairs(self.only):
            prepare, embed = Unit("prepare", corpus.slug), Unit("embed", corpus.slug)
            train, erase = Unit("train", corpus.slug, model), Unit("erase", corpus.slug, model)
            units[prepare] = []
            units[embed] = [prepare]
            units[train] = [embed]
            units[erase] = [train]
            erased.append(erase)
        units[Unit("report")] = erased
        last = STAGES.index(self.until)
        return {unit: needs for unit, needs in units.items() if STAGES.index(unit.stage) <= last}

    def others(self) -> list[Unit]:
        """List the study's units that are finished and not chosen: their results stay in place."""
        whole = dataclasses.replace(self, only=(), until=STAGES[-2])
        chosen = self.units()
        return [unit for unit in whole.units() if unit not in chosen and self._fits(unit)]

    def unfit(self) -> list[Unit]:
        """List the study's models that were erased once, but with other options or data."""
        whole = dataclasses.replace(self, only=())
        return [
            unit
            for unit in whole.units()
            if unit.stage == "erase"
            and (self.folder(unit) / DONE).exists()
            and not self._fits(unit)
        ]

    def _fits(self, unit: Unit) -> bool:
        try:
            return self.done(unit) is not None
        except rundir.RunError:
            return False

    def folder(self, unit: Unit) -> Path:
        """Give the folder of a unit."""
        return self.out.joinpath(*unit.key.lower().split("/"))

    def corpus(self, unit: Unit) -> CorpusSpec:
        """Find the corpus of a unit."""
        return next(corpus for corpus in self.study.corpora if corpus.slug == unit.corpus)

    # --- what a unit depends on ------------------------------------------------------------------

    def state(self, unit: Unit) -> dict[str, Any]:
        """Say what a unit's results depend on; a digest stands for the units before it."""
        if unit.stage == "report":
            about: dict[str, Any] = {before.key: self.digest(before) for before in self._erased()}
            return about | {"version": rundir.provenance()["versions"]["fastattnerase"]}
        corpus = self.corpus(unit)
        if unit.stage == "prepare":
            return {
                "data": _without(dict(corpus.data), ("vectors", "unit_vectors")),
                "label_pattern": corpus.label_pattern,
                "rows": corpus.rows,
                "files": self._files(corpus),
            }
        before = self.digest(_before(unit))
        if unit.stage == "embed":
            vectors = {k: corpus.data.get(k) for k in ("vectors", "unit_vectors")}
            return {"before": before, "vectors": vectors, "word2vec": corpus.word2vec}
        if unit.stage == "train":
            model, training = self.study.options(corpus, unit.model)
            return {"before": before, "model": model, "training": training, "device": self.device}
        return {"before": before, "config": dataclasses.asdict(self.study.config())}

    def _erased(self) -> list[Unit]:
        """List the models of the report: those that are erased, chosen or not, in their order."""
        whole = dataclasses.replace(self, only=(), until="erase")
        found = {*self.units(), *self.others()}
        return [unit for unit in whole.units() if unit.stage == "erase" and unit in found]

    def digest(self, unit: Unit) -> str:
        """Give the hash of a unit's state."""
        text = json.dumps(self.state(unit), sort_keys=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

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

    def done(self, unit: Unit) -> dict[str, Any] | None:
        """Read what a finished unit says of itself; None where it is not finished.

        Raises:
            RunError: the folder holds a unit of another study or of other data.
        """
        path = self.folder(unit) / DONE
        if not path.exists():
            return None
        record = rundir.read_json(path)
        check_shape(record, UNIT, path)
        if record["digest"] == self.digest(unit):
            return record
        if unit.stage == "report":
            return None  # made again in moments
        # Records of the first version have a digest alone.
        now = json.loads(json.dumps(self.state(unit)))
        changed = _changed(record["state"], now) if "state" in record else []
        raise rundir.RunError(
            f"{self.folder(unit)} was made with other options, data or device"
            f"{': ' if changed else ''}{'; '.join(changed)}; choose another --out, or delete that "
            "folder to make it anew"
        )

    # --- running a unit --------------------------------------------------------------------------

    def run(self, unit: Unit, report: Report) -> dict[str, Any]:
        """Run one unit to its end, or go on with it.

        Args:
            unit: whose needs are done.
            report: called now and then with the share that is done.

        Returns:
            Its record, with `seconds` of this call and `numbers`.
        """
        folder = self.folder(unit)
        folder.mkdir(parents=True, exist_ok=True)
        with rundir.locked(folder):
            before = self.done(unit)
            if before is not None:
                return before
            started = time.monotonic()
            numbers = getattr(self, f"_{unit.stage}")(unit, folder, report)
            record = {
                "unit": unit.key,
                "digest": self.digest(unit),
                "state": self.state(unit),
                "seconds": round(time.monotonic() - started, 2),
                "numbers": numbers,
            }
            rundir.write_json(folder / DONE, record)
            return record

    def _prepare(self, unit: Unit, folder: Path, report: Report) -> dict[str, Any]:
        config = self._choose_rows(unit, folder)
        rundir.write_json(folder / "config.json", config.to_dict())
        prepared = self._prepared(unit, reporting(report))
        statistics = _statistics(prepared)
        rundir.write_json(folder / "statistics.json", statistics)
        return statistics

    def _choose_rows(self, unit: Unit, folder: Path) -> DataConfig:
        """Write the rows that the study wants, where it wants fewer or other labels."""
        from fastattnerase.data import DataConfig

        corpus = self.corpus(unit)
        config = self._config(corpus)
        if corpus.rows is None and corpus.label_pattern is None:
            return config
        chosen = folder / f"rows-{self.digest(unit)[:12]}.parquet"
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
        from fastattnerase.data import DataConfig

        values = {"min_count": 5} | dict(corpus.data)
        for name in ("path", "train", "dev", "test", "vectors"):
            if values.get(name) is not None:
                values[name] = str(self.data_root / values[name])
        return DataConfig.from_dict(values)

    def _prepared(self, unit: Unit, progress: Progress | None = None) -> PreparedCorpus:
        from fastattnerase.data import DataConfig
        from fastattnerase.data.stored import prepare_stored

        folder = self.folder(Unit("prepare", unit.corpus))
        config = DataConfig.from_dict(
            rundir.read_json(folder / "config.json") | {"vectors": None, "unit_vectors": False}
        )
        return prepare_stored(config, folder / "documents", progress=progress)

    def _embed(self, unit: Unit, folder: Path, report: Report) -> dict[str, Any]:
        """Make the word vectors that the models start from."""
        from fastattnerase.models.storage import write_tensors

        corpus = self.corpus(unit)
        vectors, found = self._vectors(corpus, self._prepared(unit))
        if vectors is not None:
            write_tensors(folder / "vectors.safetensors", {"vectors": vectors})
        return {"words_with_vectors": found}

    def _vectors(self, corpus: CorpusSpec, prepared: PreparedCorpus) -> tuple[Tensor | None, int]:
        from fastattnerase.data import read_vectors
        from fastattnerase.data.word2vec import Word2VecConfig, train_word2vec

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

    def _train(self, unit: Unit, folder: Path, report: Report) -> dict[str, Any]:
        from fastattnerase.data import DataConfig
        from fastattnerase.models import (
            ModelConfig,
            TrainConfig,
            build_model,
            evaluate,
            save_model,
            train,
        )
        from fastattnerase.models.storage import read_tensors

        corpus = self.corpus(unit)
        prepared = self._prepared(unit)
        vectors = self.folder(Unit("embed", unit.corpus)) / "vectors.safetensors"
        embeddings = read_tensors(vectors)["vectors"] if vectors.exists() else None
        of_model, of_training = self.study.options(corpus, unit.model)
        model_config = ModelConfig.from_dict(of_model)
        train_config = TrainConfig.from_dict(of_training)
        classes = prepared.classes
        model = build_model(model_config, prepared.vocabulary, len(classes), embeddings)
        trained = train(
            model,
            prepared.train,
            prepared.dev,
            train_config,
            folder,
            progress=reporting(report, train_config.epochs),
            device=self.device,
            description={"before": self.digest(_before(unit))},
        )
        tested = evaluate(model, prepared.test)
        numbers = {
            "dev_accuracy": trained.dev_accuracy,
            "test_accuracy": tested.accuracy,
            "best_epoch": trained.best_epoch,
            "epochs": len(trained.history),
        }
        prepare = self.folder(Unit("prepare", unit.corpus))
        save_model(
            folder,
            model,
            vocabulary=prepared.vocabulary,
            classes=classes,
            data_config=DataConfig.from_dict(rundir.read_json(prepare / "config.json")),
            train_config=train_config,
            metadata=numbers | {"name": f"{unit.model} on {corpus.name}"} | rundir.provenance(),
        )
        return numbers

    def _erase(self, unit: Unit, folder: Path, report: Report) -> dict[str, Any]:
        from fastattnerase.models import load_model
        from fastattnerase.sources import ModelSource
        from fastattnerase.studies.serrano_smith import experiment

        corpus = self.corpus(unit)
        prepared = self._prepared(unit)
        loaded = load_model(self.folder(Unit("train", unit.corpus, unit.model)), device=self.device)
        prepare = self.folder(Unit("prepare", unit.corpus))
        source = ModelSource(
            loaded.model,
            prepared.test,
            loaded.classes,
            {
                "corpus": corpus.name,
                "architecture": unit.model,
                "paper": corpus.paper,
                "statistics": rundir.read_json(prepare / "statistics.json"),
                "data": corpus.to_dict(),
                "split": "test",
                "model_config": loaded.model.config.to_dict(),
                "train_config": None
                if loaded.train_config is None
                else loaded.train_config.to_dict(),
                "dev_accuracy": loaded.metadata["dev_accuracy"],
                "best_epoch": loaded.metadata["best_epoch"],
            },
        )
        result = experiment.run(
            source,
            self.study.config(),
            folder,
            name=f"{unit.model} on {corpus.name}",
            on_progress=lambda done, total: report(done / max(total, 1)),
        )
        counts = result.result["counts"]
        return {key: counts[key] for key in ("instances", "analysed", "accuracy")}

    def _report(self, unit: Unit, folder: Path, report: Report) -> dict[str, Any]:
        from fastattnerase.studies.serrano_smith.report import build

        page = build(self.results(), folder)
        return {"page": page.name}

    def results(self) -> list[Result]:
        """Load the finished runs of the study's models, also of those not chosen now."""
        from fastattnerase.studies.serrano_smith import experiment

        return [experiment.load(self.folder(unit)) for unit in self._erased()]

    # --- the manifest ----------------------------------------------------------------------------

    def write_manifest(self) -> dict[str, Any]:
        """Write `manifest.json`: the study, every unit with its state, time, numbers and files.

        Units that are not chosen are listed where they are finished.
        """
        units = []
        for unit in [*self.units(), *self.others()]:
            record = self.done(unit)
            folder = self.folder(unit)
            units.append(
                {
                    "unit": unit.key,
                    "stage": unit.stage,
                    "corpus": unit.corpus or None,
                    "model": unit.model or None,
                    "done": record is not None,
                    "seconds": None if record is None else record["seconds"],
                    "numbers": None if record is None else record["numbers"],
                    "folder": folder.relative_to(self.out).as_posix(),
                    "files": []
                    if record is None
                    else sorted(
                        path.relative_to(folder).as_posix()
                        for path in folder.rglob("*")
                        if path.is_file() and path.name not in (DONE, rundir.LOCK)
                    ),
                }
            )
        manifest = {"study": self.study.to_dict(), "only": list(self.only), "units": units}
        rundir.write_json(self.out / MANIFEST, manifest | rundir.provenance())
        return manifest


def _changed(before: Any, now: Any, name: str = "") -> list[str]:
    """Say which values of a unit's state differ."""
    if before == now:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys((*before, *now))
        nested = (
            _changed(before.get(key, "unset"), now.get(key, "unset"), f"{name}.{key}".strip("."))
            for key in keys
        )
        return [text for texts in nested for text in texts]
    if name == "before":
        return ["what comes before it was made anew"]
    if name.startswith("files."):
        return [f"{name.removeprefix('files.')} has changed"]
    return [f"{name} is {before!r} there and {now!r} here"]


def _before(unit: Unit) -> Unit:
    if unit.stage == "erase":
        return Unit("train", unit.corpus, unit.model)
    return Unit("embed" if unit.stage == "train" else "prepare", unit.corpus)


def _without(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in names}


def write_rows(corpus: CorpusSpec, config: DataConfig, path: Path) -> None:
    """Write the rows of a corpus that a study wants as Parquet: text, label, split.

    Labels are read by the corpus's pattern; of each split and label so many rows are taken that
    the whole has `corpus.rows`, those with the smallest hash of seed and row number.

    Args:
        corpus: the pattern and the number of rows.
        config: files and columns; `classes` are the labels to keep, after the pattern.
        path: where to; the file appears whole or not at all.

    Raises:
        RunError: a label in which the pattern finds nothing.
        DataError: as reading does.
    """
    import re

    import pyarrow as pa
    import pyarrow.parquet as pq

    from fastattnerase.data.corpus import read_rows

    pattern = None if corpus.label_pattern is None else re.compile(corpus.label_pattern)
    plain = dataclasses.replace(config, classes=None)

    def rows() -> Iterator[tuple[int, str, str, str]]:
        for row in read_rows(plain, Counter()):
            label = row.label
            if pattern is not None:
                match = pattern.search(label)
                if match is None:
                    raise rundir.RunError(
                        f"{row.where}: label_pattern {pattern.pattern!r} finds nothing in {label!r}"
                    )
                label = match[1]
            if config.classes is None or label in config.classes:
                yield row.id, row.text, label, row.split

    groups: dict[tuple[str, str], list[int]] = {}
    for number, _, label, split in rows():
        groups.setdefault((split, label), []).append(number)
    kept = _draw(groups, corpus.rows, config.seed)
    schema = pa.schema([("text", pa.string()), ("label", pa.string()), ("split", pa.string())])
    partial = path.with_suffix(".partial")
    pending: list[tuple[str, str, str]] = []
    with pq.ParquetWriter(partial, schema, compression="zstd") as writer:

        def flush() -> None:
            columns = [list(column) for column in zip(*pending, strict=True)]
            writer.write_table(pa.table(columns, schema=schema))
            pending.clear()

        for number, text, label, split in rows():
            if number in kept:
                pending.append((text, label, split))
            if len(pending) == _ROWS:
                flush()
        if pending:
            flush()
    partial.replace(path)


def _draw(groups: dict[tuple[str, str], list[int]], rows: int | None, seed: int) -> set[int]:
    total = sum(len(group) for group in groups.values())
    if rows is None or rows >= total:
        return {number for group in groups.values() for number in group}
    exact = {key: len(group) * rows / total for key, group in groups.items()}
    sizes = {key: int(share) for key, share in exact.items()}
    left = rows - sum(sizes.values())
    for key in sorted(exact, key=lambda key: (sizes[key] - exact[key], key))[:left]:
        sizes[key] += 1

    def drawn(number: int) -> bytes:
        return blake2b(f"{seed}:row:{number}".encode(), digest_size=8).digest()

    return {n for key, group in groups.items() for n in sorted(group, key=drawn)[: sizes[key]]}


def _statistics(prepared: PreparedCorpus) -> dict[str, Any]:
    """Describe a corpus as the paper's table 1 does: over all documents of all splits."""
    import numpy as np

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


def reporting(report: Report, epochs: int | None = None) -> Progress:
    """Make progress bars that nobody sees: they say how far the first of them is.

    Args:
        report: called with the share that is done.
        epochs: of a training, whose first bar counts epochs and second documents of one.
    """
    from rich.progress import Progress

    class Reporting(Progress):
        def update(self, *arguments: Any, **options: Any) -> None:
            super().update(*arguments, **options)
            tasks = [task for task in self.tasks if task.total]
            if not tasks:
                return
            share = tasks[0].completed / (tasks[0].total or 1)
            if epochs is not None and len(tasks) > 1:
                share += tasks[1].completed / (tasks[1].total or 1) / epochs
            report(min(share, 1.0))

    return Reporting(disable=True)


def describe(record: Mapping[str, Any]) -> str:
    """Say what a finished unit found, in a few words."""
    numbers = record["numbers"]
    if "test_accuracy" in numbers:
        return f"test accuracy {numbers['test_accuracy']:.3f}"
    if "documents" in numbers:
        sizes = numbers["documents"]
        return f"{sizes['train']:,} train, {sizes['dev']:,} dev, {sizes['test']:,} test"
    if "analysed" in numbers:
        return f"{numbers['analysed']:,} of {numbers['instances']:,} instances"
    return ""


__all__ = [
    "DONE",
    "MANIFEST",
    "STAGES",
    "Unit",
    "Workspace",
    "describe",
    "reporting",
    "slug",
    "write_rows",
]
