"""The cells of the study of Jain and Wallace: data, models, and what each model is asked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fastattnerase.attention_tests.adversaries import (
    Rule,
    Search,
    published_limit,
    published_search,
    sought,
)
from fastattnerase.attention_tests.correlation import agreements
from fastattnerase.attention_tests.instances import evenly
from fastattnerase.attention_tests.permutation import permuted_outputs
from fastattnerase.attention_tests.tables import INSTANCES, read_rows, write_rows
from fastattnerase.data import PreparedCorpus
from fastattnerase.data.prepared import DataResult, PreparedData
from fastattnerase.extras import needs
from fastattnerase.models import (
    AttentionClassifier,
    build_model,
    evaluate,
    load_model,
    save_trained,
    train,
)
from fastattnerase.models.checkpoint import CHECKPOINT
from fastattnerase.models.published import pair
from fastattnerase.models.storage import write_tensors
from fastattnerase.plurals import plural
from fastattnerase.runs import rundir
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.undrawn import Reporting
from fastattnerase.runs.workspace import Report, Unit
from fastattnerase.statistics.shares import accuracy_beside, f1, majority
from fastattnerase.studies.jain_wallace.options import PAIR_EPOCHS, Cell, Options
from fastattnerase.studies.published_data import PublishedData

with needs("report"):
    import pandas as pd

TESTS = ("correlation", "permutation", "adversary")
RULES: tuple[Rule, ...] = ("code", "paper")
ADVERSARIES = "adversaries.safetensors"
_COSTS = {"correlation": 1.5, "permutation": 0.1, "adversary": 0.4}  # against a model


@dataclass(frozen=True)
class Trained:
    """A trained model of the study.

    Attributes:
        accuracy: Test accuracy.
        f1: F1 score of class 1 on test; None of more than two classes.
        auc: Area under the ROC curve on test; None of more than two classes or of one alone.
        majority: Share of the most frequent class of test; None where none is labelled.
        dev_accuracy: Dev accuracy of the epoch that was kept.
        best_epoch: The epoch that was kept.
        epochs: Epochs that were trained.
        vectors_found: Number of words with a given vector.
        classes: Names of the classes.
    """

    accuracy: float
    f1: float | None
    auc: float | None
    majority: float | None
    dev_accuracy: float
    best_epoch: int
    epochs: int
    vectors_found: int
    classes: tuple[str, ...]


class Cells(PublishedData):
    """The cells of a study in a folder.

    Args:
        options: the study.
        data_root: the folder with a folder of each data set.
        out: the folder of everything that is made.
        device: where models are trained and run.

    Example:
        >>> options = Options(datasets=("sst",), encoders=("mlp",))
        >>> [unit.key for unit in Cells(options, Path("data"), Path("out")).units()][:2]
        ['data/sst', 'model/sst/mlp-additive-0']
    """

    scratch = (CHECKPOINT,)

    def __init__(self, options: Options, data_root: Path, out: Path, device: str = "cpu") -> None:
        super().__init__(out)
        self.options: Options = options
        self.root = data_root
        self.device = device

    def units(self) -> list[Unit]:
        """List the steps, each after those that it needs."""
        cells = self.options.cells()
        units = [self.data_unit(dataset) for dataset in self.options.datasets]
        for cell in cells:
            units += [self.model_unit(cell), *(self.test_unit(cell, test) for test in TESTS)]
        return units

    def model_unit(self, cell: Cell) -> Unit:
        """Give the unit that trains a model."""
        return Unit(
            f"model/{cell.key}",
            partial(self._train, cell),
            partial(self._model_state, cell),
            (f"data/{cell.dataset}",),
            cost=cell.cost,
        )

    def test_unit(self, cell: Cell, test: str) -> Unit:
        """Give the unit of a test of a model's attention: one of `TESTS`."""
        make = {
            "correlation": self._correlate,
            "permutation": self._permute,
            "adversary": self._seek,
        }[test]
        return Unit(
            f"{test}/{cell.key}",
            partial(make, cell),
            partial(self._test_state, cell, test),
            (f"model/{cell.key}",),
            cost=_COSTS[test] * cell.cost,
        )

    # --- what the numbers depend on --------------------------------------------------------------

    def _data_state(self, dataset: str) -> dict[str, Any]:
        return {"dataset": dataset} | self.options.used_for_data()

    def _model_state(self, cell: Cell) -> dict[str, Any]:
        before = self.digest(self.data_unit(cell.dataset))
        return {"before": before, "device": self.device} | self.options.used_for_model(cell)

    def _test_state(self, cell: Cell, test: str) -> dict[str, Any]:
        return {"before": self.digest(self.model_unit(cell))} | self.options.used_for(test)

    def changes(self, content: dict[str, Any], unit: Unit) -> list[str] | None:
        """Compare a result's state with that of now; epochs go by the name of their option."""
        changed = super().changes(content, unit)
        for name in PAIR_EPOCHS:
            changed = changed and [text.replace(f"{name} is", "pair_epochs is") for text in changed]
        return changed

    # --- what was found --------------------------------------------------------------------------

    def describe(self, numbers: Mapping[str, Any]) -> str:
        """Say in a few words what a finished unit found."""
        if "accuracy" in numbers:
            return accuracy_beside("test", numbers["accuracy"], numbers["majority"])
        if "about" in numbers:
            return read_record(DataResult, numbers, Path(self.record_name)).about.told
        return str(numbers.get("found", ""))

    def finished(self) -> list[Cell]:
        """List the finished cells in the folder, those of earlier calls with other options too."""
        found = [
            Cell.of(f"{path.parent.parent.name}/{path.parent.name}")
            for path in (self.out / TESTS[0]).glob(f"*/*/{self.record_name}")
        ]
        return sorted(
            (c for c in found if all(self._path(f"{t}/{c.key}").exists() for t in TESTS)),
            key=lambda cell: cell.place,
        )

    def digests(self, cell: Cell) -> list[str]:
        """Read what stands for the options and data of a finished cell's tests."""
        return [rundir.read_json(self._path(f"{test}/{cell.key}"))["digest"] for test in TESTS]

    def trained(self, cell: Cell) -> Trained:
        """Read what training a cell's model gave."""
        key = f"model/{cell.key}"
        return read_record(Trained, self._numbers(key), self._path(key))

    def asked(self, cell: Cell, test: str) -> dict[str, Any]:
        """Read how a test was made: the numbers that `make` returned beside its table."""
        return self._numbers(f"{test}/{cell.key}")

    def about(self) -> dict[str, Any]:
        """Say in the manifest with which options the study was made."""
        return {"options": to_json(self.options)}

    def data(self, dataset: str) -> PreparedData:
        """Read what a prepared data set is."""
        key = f"data/{dataset}"
        return read_record(DataResult, self._numbers(key), self._path(key)).about

    def found(self, cell: Cell, test: str) -> pd.DataFrame:
        """Read the table of a test."""
        return read_rows(self.folder(f"{test}/{cell.key}"))

    def _path(self, key: str) -> Path:
        return self.folder(key) / self.record_name

    def _numbers(self, key: str) -> dict[str, Any]:
        """Read the numbers of a finished unit, whatever options it was made with."""
        path = self._path(key)
        return self.read_record(rundir.read_json(path), path).numbers

    # --- the steps -------------------------------------------------------------------------------

    def _train(self, cell: Cell, folder: Path, report: Report) -> dict[str, Any]:
        """Train a cell's model and keep it."""
        prepared, data_config = self.load_data(cell.dataset)
        training = self.options.training(cell)
        count = len(prepared.classes)
        model = build_model(
            self.options.model(cell), prepared.vocabulary, count, prepared.embeddings
        )
        trained = train(
            model,
            prepared.train,
            prepared.dev,
            training,
            folder,
            progress=Reporting(report, training.epochs),
            device=self.device,
        )
        tested = evaluate(model, prepared.test)
        two = count == 2
        auc = tested.auc if two else math.nan
        result = Trained(
            accuracy=tested.accuracy,
            f1=f1(tested.decisions.numpy(), tested.labels.numpy()) if two else None,
            auc=None if math.isnan(auc) else auc,
            majority=majority(tested.labels.numpy()),
            dev_accuracy=trained.dev_accuracy,
            best_epoch=trained.best_epoch,
            epochs=len(trained.history),
            vectors_found=prepared.vectors_found,
            classes=tuple(prepared.classes),
        )
        save_trained(
            folder / "model",
            model,
            trained,
            name=f"{cell.dataset} {cell.encoder} {cell.attention}",
            test_accuracy=tested.accuracy,
            prepared=prepared,
            data_config=data_config,
            train_config=training,
        )
        numbers: dict[str, Any] = to_json(result)
        return numbers

    def _load(self, cell: Cell) -> tuple[AttentionClassifier, PreparedCorpus]:
        """Load the trained model of a cell, and its data."""
        folder = self.folder(f"model/{cell.key}") / "model"
        return load_model(folder, device=self.device).model, self.load_data(cell.dataset)[0]

    def _correlate(self, cell: Cell, folder: Path, report: Report) -> dict[str, Any]:
        """Correlate attention, gradients and leave-one-out on the test documents."""
        model, prepared = self._load(cell)
        rows = evenly(len(prepared.test), self.options.loo_instances)
        taus = agreements(model, prepared.test, rows=rows, progress=report)
        count = len(write_rows(taus, folder))
        return {"found": f"{count:,} {plural(count, 'tau')}"}

    def _permute(self, cell: Cell, folder: Path, report: Report) -> dict[str, Any]:
        """Permute the weights of the test documents."""
        model, prepared = self._load(cell)
        found = permuted_outputs(
            model,
            prepared.test,
            permutations=self.options.permutations,
            seed=cell.seed,
            backend=self.options.backend,
            progress=report,
        )
        median = write_rows(found, folder)["median_tvd"].median()
        return {
            "found": f"median output difference {median:.3f}",
            "permutations": self.options.permutations,
        }

    def search(self, cell: Cell) -> Search:
        """Say how adversaries of a cell's model are sought."""
        o, query = self.options, pair(cell.dataset) is not None
        return published_search(
            o.adversary_rule,
            one_logit=not query,
            query=query,
            count=o.adversaries,
            steps=o.adversary_steps,
            seed=cell.seed,
        )

    def _seek(self, cell: Cell, folder: Path, report: Report) -> dict[str, Any]:
        """Seek adversarial attention; select by the code's limit and by the paper's."""
        model, prepared = self._load(cell)
        rows = evenly(len(prepared.test), self.options.adversary_instances)
        query = pair(cell.dataset) is not None
        limits = {rule: published_limit(rule, query=query) for rule in RULES}
        table: list[dict[str, Any]] = []
        weights: dict[str, list[torch.Tensor]] = {name: [] for name in ("own", *RULES)}
        for one, own, found in sought(
            model, prepared.test, self.search(cell), rows=rows, progress=report
        ):
            row = dataclasses.asdict(one)
            weights["own"].append(torch.from_numpy(own))
            for rule, limit in limits.items():
                chosen, jsd, tvd = found.selected(limit, own)
                row |= {f"jsd_{rule}": jsd, f"tvd_{rule}": tvd}
                row[f"admissible_{rule}"] = int((found.tvd <= limit).sum())
                weights[rule].append(torch.from_numpy(chosen))
            table.append(row)
        lengths = torch.tensor([len(own) for own in weights["own"]])
        write_tensors(
            folder / ADVERSARIES,
            {
                "rows": torch.tensor(rows),
                "offsets": torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
            }
            | {name: torch.cat(parts) for name, parts in weights.items()},
        )
        frame = pd.DataFrame(table)
        frame.to_csv(folder / INSTANCES, index=False)
        return {
            "found": f"mean JSD {frame['jsd_code'].mean():.3f}",
            "rule": self.options.adversary_rule,
            "search": dataclasses.asdict(self.search(cell)),
        }
