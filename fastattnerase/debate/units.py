"""The steps: the text, the models of Wiegreffe and Pinter's tests, what the base model is asked."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

from fastattnerase.attention_tests.correlation import agreements
from fastattnerase.attention_tests.instances import evenly
from fastattnerase.attention_tests.permutation import permuted_outputs
from fastattnerase.attention_tests.tables import read_rows, write_rows
from fastattnerase.data import DataConfig, PreparedCorpus
from fastattnerase.data.presets import read_prepared
from fastattnerase.debate.data import write_texts
from fastattnerase.debate.options import TEXTS, Options
from fastattnerase.extras import needs
from fastattnerase.models import AttentionClassifier, load_model
from fastattnerase.plurals import plural
from fastattnerase.runs.workspace import Report, Unit
from fastattnerase.sources import ModelSource
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.wiegreffe_pinter.cells import Cells
from fastattnerase.studies.wiegreffe_pinter.options import DIAGNOSTIC, Cell

with needs("report"):
    import pandas as pd

TESTS = ("erasure", "correlation", "permutation")
RUN = "run"  # of the erasure: the folder of its run
_COSTS = {"erasure": 1.0, "correlation": 1.0, "permutation": 0.2}
_RESAMPLES = 200  # of the erasure's intervals, which no rule looks at


class Debate(Cells):
    """Both sides in a folder.

    Args:
        options: sizes of models and tests.
        data: the files of texts.
        title: of the texts.
        out: the folder of everything that is made.
        device: where models are trained.

    Example:
        >>> from pathlib import Path
        >>> debate = Debate(Options(), DataConfig(path="reviews.csv"), "reviews", Path("out"))
        >>> len(debate.units())  # the text, 12 models, 4 tests
        17
    """

    options: Options

    def __init__(
        self, options: Options, data: DataConfig, title: str, out: Path, device: str = "cpu"
    ) -> None:
        super().__init__(options, out, device)
        self.data_config = data
        self.title = title

    @property
    def base(self) -> Cell:
        """The model that is asked about."""
        o = self.options
        return Cell(TEXTS, o.encoder, o.attention, "base", o.base_seed)

    def cells(self) -> list[Cell]:
        """List the cells, each after those that it needs."""
        o = self.options
        of = partial(dataclasses.replace, self.base)
        adversaries = [
            of(kind="adversary", strength=strength, epochs=o.adversary_epochs)
            for strength in o.strengths
        ]
        lender = max(adversaries, key=lambda cell: cell.strength or 0.0)
        lent = [
            dataclasses.replace(lender, kind=kind) if kind == "mlp_adversary" else of(kind=kind)
            for kind in DIAGNOSTIC
        ]
        seeds = [of(kind="seed", seed=seed) for seed in o.seeds]
        return [self.base, of(kind="uniform"), *seeds, *adversaries, *lent]

    def units(self) -> list[Unit]:
        """List the text, the models, and what the base model is asked."""
        asked = [self.sought_unit(self.base), *map(self.test_unit, TESTS)]
        return [*super().units(), *asked]

    def data_unit(self, dataset: str) -> Unit:
        """Give the unit that prepares the text."""
        return Unit(f"data/{TEXTS}", self._prepare, self._data_state, cost=0.3)

    def test_unit(self, test: str) -> Unit:
        """Give the unit of a test of the base model: one of `TESTS`."""
        make = {
            "erasure": self._erase,
            "correlation": self._correlate,
            "permutation": self._permute,
        }[test]
        return Unit(
            f"tests/{test}",
            make,
            partial(self._test_state, test),
            (self.base.key,),
            cost=_COSTS[test],
        )

    def _data_state(self) -> dict[str, Any]:
        state = self.data_config.to_dict() | {"vectors": None}
        sizes = {
            name: Path(state[name]).stat().st_size
            for name in ("path", "train", "dev", "test")
            if state[name] is not None and Path(state[name]).is_file()
        }
        return {"data": state, "bytes": sizes}

    def _test_state(self, test: str) -> dict[str, Any]:
        o = self.options
        used = {
            "erasure": {},
            "correlation": {"loo_instances": o.loo_instances},
            "permutation": {"permutations": o.permutations},
        }[test]
        return {"before": self.digest(self.unit_of(self.base))} | used

    def load_data(self, dataset: str) -> tuple[PreparedCorpus, DataConfig]:
        """Load the prepared text, with the word vectors."""
        return read_prepared(
            self.folder(f"data/{TEXTS}") / "prepared", vectors=self.options.vectors
        )

    def found(self, test: str) -> pd.DataFrame:
        """Read the table of a test other than the erasure."""
        return read_rows(self.folder(f"tests/{test}"))

    # --- the steps -------------------------------------------------------------------------------

    def _prepare(self, folder: Path, report: Report) -> dict[str, Any]:
        """Read and split the text."""
        return {"about": write_texts(self.data_config, folder / "prepared", self.title)}

    def _load(self) -> tuple[AttentionClassifier, PreparedCorpus]:
        """Load the base model and its data."""
        folder = self.folder(self.base.key) / "model"
        return load_model(folder, device=self.device).model, self.load_data(TEXTS)[0]

    def _erase(self, folder: Path, report: Report) -> dict[str, Any]:
        """Erase words, most important first, until each decision changes."""
        model, prepared = self._load()
        source = ModelSource(model, prepared.test, prepared.classes, {"cell": self.base.key})
        config = Config(resamples=_RESAMPLES, seed=self.options.base_seed)
        result = experiment.run(source, config, folder / RUN, name=self.title)
        return {"found": _documents(result.counts.analysed)}

    def _correlate(self, folder: Path, report: Report) -> dict[str, Any]:
        """Correlate attention, gradients and leave-one-out within the test documents."""
        model, prepared = self._load()
        rows = evenly(len(prepared.test), self.options.loo_instances)
        taus = agreements(model, prepared.test, rows=rows, progress=report)
        count = len(write_rows(taus, folder))
        return {"found": f"{count:,} {plural(count, 'tau')}"}

    def _permute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Permute the weights of the test documents."""
        model, prepared = self._load()
        found = permuted_outputs(
            model,
            prepared.test,
            permutations=self.options.permutations,
            seed=self.options.base_seed,
            progress=report,
        )
        return {"found": _documents(len(write_rows(found, folder)))}


def _documents(count: int) -> str:
    return f"{count:,} {plural(count, 'document')}"
