"""Cells: a model is trained, compared with the base model on each document, and kept.

A cell that needs another's model, or the weights it gave, waits for it; the rest run in any order.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fastattnerase.attention_tests.adversaries import published_limit, published_search, sought
from fastattnerase.attention_tests.instances import evenly
from fastattnerase.data import DataConfig, Dataset, PreparedCorpus
from fastattnerase.data.prepared import DataResult, PreparedData
from fastattnerase.extras import needs
from fastattnerase.models import (
    AttentionClassifier,
    Evaluation,
    Objective,
    build_model,
    evaluate,
    load_model,
    save_trained,
    train,
)
from fastattnerase.models.adversary import adversary_objective
from fastattnerase.models.checkpoint import CHECKPOINT
from fastattnerase.models.fixed_attention import given_attention
from fastattnerase.models.predictions import Predictions
from fastattnerase.models.storage import read_tensors, write_tensors
from fastattnerase.plurals import counted
from fastattnerase.runs import rundir
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import RunError
from fastattnerase.runs.undrawn import Reporting
from fastattnerase.runs.workspace import Report, Unit, Workspace
from fastattnerase.statistics.divergence import attention_shape, divergence, divergences
from fastattnerase.statistics.shares import f1, majority
from fastattnerase.studies.wiegreffe_pinter.options import CELLS, DIAGNOSTIC, Cell, Options
from fastattnerase.studies.wiegreffe_pinter.results import (
    INSTANCES,
    PREDICTIONS,
    SOUGHT,
    WEIGHTS,
    CellResult,
    describe,
)

with needs("report"):
    import pandas as pd

T = TypeVar("T")
_KEPT = ("base", "adversary")  # kinds whose models and predictions others use


class Cells(Workspace):
    """Cells in a folder, whatever data they are of.

    Args:
        options: how models are trained.
        out: the folder of everything that is made.
        device: where models are trained.
    """

    scratch = (CHECKPOINT,)

    def __init__(self, options: Options, out: Path, device: str = "cpu") -> None:
        super().__init__(out)
        self.options = options
        self.device = device

    @abstractmethod
    def cells(self) -> list[Cell]:
        """List the cells, each after those that it needs."""

    @abstractmethod
    def data_unit(self, dataset: str) -> Unit:
        """Give the unit that prepares a data set."""

    @abstractmethod
    def load_data(self, dataset: str) -> tuple[PreparedCorpus, DataConfig]:
        """Load a prepared data set, with the word vectors."""

    def units(self) -> list[Unit]:
        """List the data sets and the cells, each after those that it needs."""
        units: dict[Unit, None] = {}
        for cell in self.cells():
            units[self.data_unit(cell.dataset)] = None
            units[self.unit_of(cell)] = None
        return list(units)

    def unit_of(self, cell: Cell) -> Unit:
        """Give the unit of a cell."""
        before = [one.key for one in cell.needs(self.options.base_seed)]
        return Unit(
            cell.key,
            partial(self._cell, cell),
            partial(self._state, cell),
            (self.data_unit(cell.dataset).key, *before),
            cost=cell.cost,
            about={"cell": dataclasses.asdict(cell)},
        )

    def _state(self, cell: Cell) -> dict[str, Any]:
        """Say what a cell's numbers depend on."""
        before = [self.data_unit(cell.dataset)]
        before += [self.unit_of(one) for one in cell.needs(self.options.base_seed)]
        return {
            "cell": dataclasses.asdict(cell),
            "options": self.options.used(cell) | {"device": self.device},
            "before": [self.digest(unit) for unit in before],
        }

    def describe(self, numbers: Mapping[str, Any]) -> str:
        """Say in a few words what a finished unit found."""
        return describe(numbers)

    def about(self) -> dict[str, Any]:
        """Say in the manifest which options were given last."""
        return {"options": to_json(self.options)}

    def sought_unit(self, base: Cell) -> Unit:
        """Give the unit that seeks Jain & Wallace's adversaries of a base model's documents."""
        return Unit(
            f"{SOUGHT}/{base.dataset}/{base.encoder}-{base.attention}",
            partial(self._seek, base),
            partial(self._sought_state, base),
            (base.key,),
            cost=base.cost,
        )

    def _sought_state(self, base: Cell) -> dict[str, Any]:
        """Say what these adversaries depend on."""
        instances = self.options.adversary_instances
        return {"before": self.digest(self.unit_of(base)), "adversary_instances": instances}

    # --- what was found --------------------------------------------------------------------------

    def results(self) -> dict[Cell, CellResult]:
        """Read every finished cell in the folder, those of earlier calls with other options too."""
        paths = sorted((self.out / CELLS).glob(f"*/*/*/{self.record_name}"))
        found = [self._read(CellResult, path) for path in paths]
        return {result.cell: result for result in found}

    def data(self) -> dict[str, PreparedData]:
        """Read what the prepared data sets in the folder are."""
        paths = sorted((self.out / "data").glob(f"*/{self.record_name}"))
        return {path.parent.name: self._read(DataResult, path).about for path in paths}

    def predictions(self, cell: Cell) -> Predictions:
        """Read what a cell's model gives documents: of base and adversary, all; else the tests."""
        return Predictions.load(self.folder(cell.key) / PREDICTIONS)

    def instances(self, cell: Cell) -> pd.DataFrame:
        """Read a cell's row for each test document."""
        return pd.read_parquet(self.folder(cell.key) / INSTANCES)

    def sought(self, base: Cell) -> pd.DataFrame | None:
        """Read Jain & Wallace's adversaries of a base model's test documents; None without them.

        Returns:
            A row for each document that was looked at: `document`, `words`, `jsd` of its most
            different admissible attention, 0 where there is none but its own, and `tvd`.
        """
        folder = self.folder(self.sought_unit(base).key)
        if not (folder / self.record_name).exists():
            return None
        return pd.read_parquet(folder / INSTANCES)

    def sought_weights(self, base: Cell) -> dict[int, Tensor]:
        """Read the weights `[n]` of these adversaries, by the document."""
        path = self.folder(self.sought_unit(base).key) / WEIGHTS
        tensors = read_tensors(path)
        parts = torch.split(tensors["weights"], tensors["lengths"].tolist())
        return dict(zip(tensors["ids"].tolist(), parts, strict=True))

    def _read(self, kind: type[T], path: Path) -> T:
        """Read a unit's record."""
        record = self.read_record(rundir.read_json(path), path)
        return read_record(kind, record.numbers, path)

    # --- making it -------------------------------------------------------------------------------

    def _cell(self, cell: Cell, folder: Path, report: Report) -> dict[str, Any]:
        """Train a cell's model, compare it with the base model, and keep what others need."""
        prepared, data_config = self.load_data(cell.dataset)
        two = len(prepared.classes) == 2
        if cell.kind not in ("base", "uniform") and not two:
            raise RunError(
                f"tested: given {cell.dataset}, of {counted(len(prepared.classes), 'class')}, "
                "needed data of two: outputs are compared by the probability of class 1"
            )
        model, objective = self._untrained(cell, prepared)
        training = self.options.training(cell)
        trained = train(
            model,
            prepared.train,
            prepared.dev,
            training,
            folder,
            progress=Reporting(lambda share: report(0.9 * share), training.epochs),
            device=self.device,
            description={"cell": dataclasses.asdict(cell)},
            objective=objective,
        )
        tested = evaluate(model, prepared.test)
        splits: tuple[Dataset, ...] = (prepared.test,)
        if cell.kind in _KEPT:
            splits = (prepared.train, prepared.dev, prepared.test)
            save_trained(
                folder / "model",
                model,
                trained,
                name=f"{cell.dataset} {cell.encoder} {cell.attention} {cell.kind}",
                test_accuracy=tested.accuracy,
                prepared=prepared,
                data_config=data_config,
                train_config=training,
            )
        own = Predictions.of(model, splits)
        own.save(folder / PREDICTIONS)
        result = CellResult(
            cell=cell,
            classes=len(prepared.classes),
            accuracy=tested.accuracy,
            majority=majority(tested.labels.numpy()),
            f1=f1(tested.decisions.numpy(), tested.labels.numpy()) if two else None,
            auc=tested.auc if two and math.isfinite(tested.auc) else None,
            dev_accuracy=trained.dev_accuracy,
            best_epoch=trained.best_epoch,
            epochs=len(trained.history),
            max_epochs=training.epochs,
            documents={split: len(getattr(prepared, split)) for split in ("train", "dev", "test")},
            vectors_found=prepared.vectors_found,
        )
        return self._compared(result, own, prepared, tested, folder).to_json()

    def _seek(self, base: Cell, folder: Path, report: Report) -> dict[str, Any]:
        """Seek other attention with the same output, document by document."""
        prepared, _ = self.load_data(base.dataset)
        model = load_model(self.folder(base.key) / "model", device=self.device).model
        rows = evenly(len(prepared.test), self.options.adversary_instances)
        search = published_search("code", one_logit=True, seed=base.seed)
        limit = published_limit("code")
        table: list[dict[str, Any]] = []
        weights: list[Tensor] = []
        for one, own, found in sought(model, prepared.test, search, rows=rows, progress=report):
            chosen, jsd, tvd = found.selected(limit, own)
            table.append({"document": one.id, "words": one.words, "jsd": jsd, "tvd": tvd})
            weights.append(torch.from_numpy(chosen.astype(np.float32)))
        tensors = {
            "ids": torch.tensor([row["document"] for row in table]),
            "lengths": torch.tensor([len(part) for part in weights]),
            "weights": torch.cat(weights),
        }
        write_tensors(folder / WEIGHTS, tensors)
        rows_of = pd.DataFrame(table)
        rows_of.to_parquet(folder / INSTANCES, index=False)
        return {"found": f"median JSD {rows_of['jsd'].median():.3f}"}

    def _untrained(
        self, cell: Cell, prepared: PreparedCorpus
    ) -> tuple[AttentionClassifier, Objective | None]:
        """Make the model of a cell, and its loss where that is not the cross-entropy."""
        config = self.options.model(cell)
        if cell.kind in ("mlp_base", "mlp_adversary"):
            lender = cell.needs(self.options.base_seed)[-1]
            return given_attention(config, prepared, self.predictions(lender).weights), None
        size = len(prepared.classes)
        model = build_model(config, prepared.vocabulary, size, prepared.embeddings)
        if not cell.is_adversary:
            return model, None
        [base] = cell.needs(self.options.base_seed)
        assert cell.strength is not None
        imitated = self.predictions(base)
        return model, adversary_objective(imitated, cell.strength, self.options.tvd)

    def _compared(
        self,
        result: CellResult,
        own: Predictions,
        prepared: PreparedCorpus,
        tested: Evaluation,
        folder: Path,
    ) -> CellResult:
        """Compare a model with the base model on each test document; write these rows."""
        cell = result.cell
        keys = [document.id for document in prepared.test]
        rows = pd.DataFrame(
            {
                "document": keys,
                "label": tested.labels.numpy(),
                "decision": tested.decisions.numpy(),
                "largest_weight": [float(own.weights[key].max()) for key in keys],
            }
        )
        if result.classes == 2:
            rows = rows.assign(probability=[own.probability[key] for key in keys])
        if cell.kind not in DIAGNOSTIC:
            result = dataclasses.replace(result, attention=attention_shape(own, keys))
            if cell.kind != "base" and result.classes == 2:
                [lender] = cell.needs(self.options.base_seed)
                base = self.predictions(lender)
                found = divergences(own, base, keys)
                rows = rows.assign(tvd=found.tvd, attention_jsd=found.attention_jsd)
                result = dataclasses.replace(result, divergence=divergence(own, base, keys))
                if cell.is_adversary:
                    seen = [document.id for document in prepared.train]
                    result = dataclasses.replace(
                        result, train_divergence=divergence(own, base, seen)
                    )
        rows.to_parquet(folder / INSTANCES, index=False)
        return result
