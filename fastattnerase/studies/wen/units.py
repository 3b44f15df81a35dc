"""The units of the studies of Wen et al.: the data of a data set, and a cell each.

A cell is one trained model with its measurements, in a folder of its own. Cells that need another's
model wait for it; the rest run in any order.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastattnerase import mi
from fastattnerase.data import PreparedCorpus
from fastattnerase.data.prepared import DataResult, PreparedData
from fastattnerase.models import (
    AttentionClassifier,
    Objective,
    TrainConfig,
    build_model,
    evaluate,
    load_model,
    save_trained,
    train,
)
from fastattnerase.models.adversary import adversary_objective
from fastattnerase.models.checkpoint import CHECKPOINT
from fastattnerase.models.fixed_attention import fixed_attention
from fastattnerase.models.predictions import Predictions
from fastattnerase.models.train_config import ADVERSARY_SEED, adversary_training
from fastattnerase.models.untrained import has_parameters, with_untrained_attention
from fastattnerase.runs import rundir
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.undrawn import Reporting
from fastattnerase.runs.workspace import MANIFEST, Record, Report, Unit
from fastattnerase.sources import ModelSource
from fastattnerase.statistics.divergence import attention_shape, divergence
from fastattnerase.statistics.shares import f1, majority
from fastattnerase.studies.published_data import PublishedData
from fastattnerase.studies.wen.models import fixed_representation
from fastattnerase.studies.wen.options import (
    BEST,
    VARIANTS,
    Cell,
    Options,
)
from fastattnerase.studies.wen.results import CellResult, Finding, describe

T = TypeVar("T")


@dataclass(frozen=True)
class _State:
    """What a unit's numbers depend on, as its file holds it."""

    options: dict[str, Any]


@dataclass(frozen=True)
class _Stated:
    """What the file of a unit holds beside its numbers."""

    state: _State
    seconds: float


class Wen(PublishedData):
    """The studies in a folder.

    Args:
        options: the studies.
        root: the folder with a folder of each data set.
        out: the folder of everything that is made.
        device: where models are trained.

    Example:
        >>> from pathlib import Path
        >>> options = Options(datasets=("sst",), seeds=(0,), studies=("grid",))
        >>> len(Wen(options, Path("data"), Path("runs/wen")).units())
        10
    """

    record_name = rundir.RESULT
    scratch = (CHECKPOINT,)

    def __init__(self, options: Options, root: Path, out: Path, device: str = "cpu") -> None:
        super().__init__(out)
        self.options: Options = options
        self.root = root
        self.device = device

    def cells(self) -> list[Cell]:
        """List the cells, each after the one whose model it starts from."""
        cells: dict[Cell, None] = {}
        for cell in self._wanted():
            if cell.base is not None:
                cells[cell.base] = None
            cells[cell] = None
        return list(cells)

    def datasets(self) -> list[str]:
        """List the data sets of the cells."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells()))

    def _wanted(self) -> Iterator[Cell]:
        """List the cells that the options ask for, some more than once."""
        o = self.options
        if "grid" in o.studies:
            for seed in o.seeds:
                for dataset in o.datasets:
                    for mechanism in o.mechanisms:
                        for e in o.encoders:
                            for a in o.attentions:
                                yield Cell(dataset, e, a, mechanism, "normal", seed)
        for seed in o.small_seeds:
            for dataset in o.small_datasets:
                if "gumbel" in o.studies:
                    for e in o.encoders:
                        for a in o.attentions:
                            for mechanism in ("softmax", "gumbel"):
                                yield Cell(dataset, e, a, mechanism, "normal", seed)
                for variant in VARIANTS[1:]:
                    study = "adversary" if variant == "adversary" else "fix"
                    if study in o.studies:
                        yield Cell(dataset, *BEST, "softmax", variant, seed)

    # --- what the files hold ---------------------------------------------------------------------

    def units(self) -> list[Unit]:
        """List the data sets and the cells, each after those that it needs."""
        units: dict[Unit, None] = {}
        for cell in self.cells():
            data = self.data_unit(cell.dataset)
            units[data] = None
            units[self.unit_of(cell)] = None
        return list(units)

    def unit_of(self, cell: Cell) -> Unit:
        """Give the unit of a cell."""
        base = () if cell.base is None else (cell.base.key,)
        return Unit(
            cell.key,
            partial(self._cell, cell),
            partial(self._state, cell),
            (f"data/{cell.dataset}", *base),
            cost=cell.cost,
            # A first version drew other weights: such a cell alone is made anew in its folder.
            renewed=cell.variant == "attention_random",
        )

    def _data_state(self, dataset: str) -> dict[str, Any]:
        """Say what prepared data depend on, in the form that a cell's state has."""
        nothing = dict.fromkeys(("encoder", "attention", "mechanism", "variant"), "")
        return {
            "unit": {"dataset": dataset, **nothing, "seed": 0},
            "options": self.options.used_for_data(),
        }

    def _state(self, cell: Cell) -> dict[str, Any]:
        """Say what a cell's numbers depend on."""
        options = self.options.used(cell) | {"device": self.device}
        return {"unit": dataclasses.asdict(cell), "options": options}

    def write_record(self, unit: Unit, record: Record) -> dict[str, Any]:
        """Write the numbers with the state and the time beside them."""
        return record.numbers | {"state": unit.state(), "seconds": record.seconds}

    def read_record(self, content: dict[str, Any], path: Path) -> Record:
        """Read what a unit found; the state and the time are among its numbers.

        Raises:
            RunError: the file is damaged.
        """
        for kind in (_Stated, DataResult if "about" in content else CellResult):
            read_record(kind, content, path)
        return Record(content["seconds"], content)

    def changes(self, content: dict[str, Any], unit: Unit) -> list[str] | None:
        """Compare the options in a result's file with those of now."""
        state = content["state"]
        # Results of the first version name all options, the vectors' folder, and the device beside
        # the options.
        # They have one seed of k-means and no nulls.
        alone = {"kmeans_seeds": 1, "permutations": 0}
        before = alone | {"device": state.get("device")} | state["options"]
        if before.get("vectors") is not None:
            before["vectors"] = Path(before["vectors"]).name
        changed = [
            f"{name} is {before.get(name)!r} there and {value!r} here"
            for name, value in unit.state()["options"].items()
            if before.get(name) != value
        ]
        return changed or None

    def describe(self, numbers: Mapping[str, Any]) -> str:
        """Say in a few words what a finished unit found."""
        return describe(numbers)

    def write_manifest(self) -> dict[str, Any]:
        """Write which units there are and which are done."""
        units = {}
        for unit in self.units():
            record = self.done(unit)
            units[unit.key] = {
                "done": record is not None,
                "seconds": None if record is None else record.seconds,
            }
        manifest = {"options": to_json(self.options), "units": units}
        rundir.write_json(self.out / MANIFEST, manifest | rundir.provenance())
        return manifest

    def results(self) -> dict[Cell, CellResult]:
        """Read what the finished cells of this study found."""
        found = ((cell, self._read(CellResult, self.unit_of(cell))) for cell in self.cells())
        return {cell: result for cell, result in found if result is not None}

    def data(self) -> dict[str, PreparedData]:
        """Read what the prepared data sets of this study are."""
        found = ((name, self._read(DataResult, self.data_unit(name))) for name in self.datasets())
        return {name: result.about for name, result in found if result is not None}

    def _read(self, kind: type[T], unit: Unit) -> T | None:
        """Read a unit's file; None where it is not finished."""
        record, path = self.done(unit), self.folder(unit.key) / self.record_name
        return None if record is None else read_record(kind, record.numbers, path)

    # --- units -----------------------------------------------------------------------------------

    def _cell(self, cell: Cell, folder: Path, report: Report) -> dict[str, Any]:
        """Train a cell's model, measure it, and keep it where others start from it."""
        prepared, data_config = self.load_data(cell.dataset)
        base = None if cell.base is None else self._load(cell.base)
        model, objective, training = self._untrained(cell, prepared, base)
        trained = train(
            model,
            prepared.train,
            prepared.dev,
            training,
            folder,
            progress=Reporting(lambda share: report(0.8 * share), training.epochs),
            device=self.device,
            description={"variant": cell.variant},
            objective=objective,
        )
        report(0.8)
        tested = evaluate(model, prepared.test)
        result = CellResult(
            accuracy=tested.accuracy,
            f1=f1(tested.decisions.numpy(), tested.labels.numpy(), len(prepared.classes)),
            auc=None if len(prepared.classes) > 2 or math.isnan(tested.auc) else tested.auc,
            dev_accuracy=trained.dev_accuracy,
            best_epoch=trained.best_epoch,
            epochs=len(trained.history),
            documents={split: len(getattr(prepared, split)) for split in ("train", "dev", "test")},
            vectors_found=prepared.vectors_found,
            majority=majority(tested.labels.numpy()),
            measurements={
                name: self._measure(cell, name, measured, prepared, folder)
                for name, measured in self._measured(cell, model, prepared)
            },
        )
        keys = [document.id for document in prepared.test]
        if cell.mechanism == "softmax":
            outputs = Predictions.of(model, [prepared.test])
            if model.erases_scores:
                result = replace(result, attention=attention_shape(outputs, keys))
            if cell.variant == "adversary":
                assert base is not None
                result = replace(
                    result,
                    divergence=divergence(outputs, Predictions.of(base, [prepared.test]), keys),
                    strength=self.options.strength_on(cell.dataset),
                )
        if cell.variant in ("normal", "adversary"):
            save_trained(
                folder / "model",
                model,
                trained,
                name=f"{cell.dataset} {cell.encoder} {cell.attention} {cell.mechanism}",
                test_accuracy=tested.accuracy,
                prepared=prepared,
                data_config=data_config,
                train_config=training,
            )
        return result.to_json()

    def _load(self, cell: Cell) -> AttentionClassifier:
        """Load the trained model of a cell."""
        return load_model(self.folder(cell.key) / "model", device=self.device).model

    def _untrained(
        self, cell: Cell, prepared: PreparedCorpus, base: AttentionClassifier | None
    ) -> tuple[AttentionClassifier, Objective | None, TrainConfig]:
        """Make the model of a cell, its loss and its training."""
        config = self.options.model(cell)
        training = self.options.training(cell)
        if base is None:
            size = len(prepared.classes)
            model = build_model(config, prepared.vocabulary, size, prepared.embeddings)
            return model, None, training
        kind, _, reading = cell.variant.partition("_")
        if kind == "attention":
            model = fixed_attention(reading, config, prepared, base)
            return model, None, training
        if kind == "representation":
            model = fixed_representation(reading, config, prepared, base)
            return model, None, training
        config = replace(config, seed=config.seed + ADVERSARY_SEED)
        model = build_model(config, prepared.vocabulary, len(prepared.classes), prepared.embeddings)
        imitated = Predictions.of(base, [prepared.train])
        objective = adversary_objective(
            imitated, self.options.strength_on(cell.dataset), self.options.tvd
        )
        training = adversary_training(
            training,
            epochs=self.options.adversary_epochs,
            patience=self.options.adversary_patience,
        )
        return model, objective, training

    def _measured(
        self, cell: Cell, model: AttentionClassifier, prepared: PreparedCorpus
    ) -> Iterator[tuple[str, AttentionClassifier]]:
        """Name the models to measure: with Gumbel also with noise, and with equal scores."""
        if cell.mechanism != "gumbel":
            yield "main", model
            return
        yield "noise_off", model
        for name, attention in (("noise_on", cell.attention), ("equal_scores", "uniform")):
            config = replace(model.config, gumbel_evaluation="on", attention=attention)
            noisy = build_model(config, prepared.vocabulary, len(prepared.classes)).to(self.device)
            state = model.state_dict()
            noisy.load_state_dict({key: state[key] for key in noisy.state_dict()})
            yield name, noisy.eval()

    def _measure(
        self,
        cell: Cell,
        name: str,
        model: AttentionClassifier,
        prepared: PreparedCorpus,
        folder: Path,
    ) -> Finding:
        """Measure a model; what makes the measurement impossible is a result, too."""
        source = ModelSource(model, prepared.test, prepared.classes, {"cell": cell.key})
        run = folder / f"mi-{name}"
        if run.exists():  # of a killed call
            shutil.rmtree(run)
        accuracy = evaluate(model, prepared.test).accuracy
        try:
            config, untrained = self.options.measurement(cell), None
            if config.permutations and has_parameters(model):
                other = with_untrained_attention(model)
                untrained = ModelSource(other, prepared.test, prepared.classes, {})
            mi.run(source, config, run, name=f"{cell.key} {name}", untrained=untrained)
        except mi.MeasurementError as error:
            return Finding(accuracy, None, str(error))
        return Finding(accuracy, run.name, "")
