"""The steps of the miniature study: read the instances, erase by each ranking, report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from studies.miniature.options import Options
from studies.miniature.report import build

import fastattnerase as fae
from fastattnerase.models.storage import write_tensors
from fastattnerase.runs.workspace import Report, Unit, Workspace
from fastattnerase.sources import TensorSource

DATA = "instances.csv"  # an item a row: its instance, its attention and what it adds to the margin


class Miniature(Workspace):
    """A study of the instances in a file.

    Args:
        options: the study.
        data_root: the folder with `instances.csv`.
        out: the folder of everything that is made.
        device: where to erase.
    """

    def __init__(self, options: Options, data_root: Path, out: Path, device: str = "cpu") -> None:
        super().__init__(out)
        self.options = options
        self.data_root = data_root
        self.device = device

    def units(self) -> list[Unit]:
        """List the steps: what each needs, what its numbers depend on, and what does it."""
        return [
            Unit("instances", self.read, self.data_state),
            *map(self.erasure, self.options.rankings),
            Unit(
                "report",
                self.report,
                self.report_state,
                needs=tuple(f"erase/{ranking}" for ranking in self.options.rankings),
                renewed=True,  # made anew where another ranking has come
            ),
        ]

    def erasure(self, ranking: str) -> Unit:
        """Give the unit that erases by a ranking."""
        make, state = partial(self.erase, ranking), partial(self.erase_state, ranking)
        return Unit(f"erase/{ranking}", make, state, needs=("instances",), cost=2.0)

    def describe(self, numbers: Mapping[str, Any]) -> str:
        """Say what a finished unit found."""
        return f"{numbers['flipped']} flip" if "flipped" in numbers else ""

    # --- what the numbers depend on --------------------------------------------------------------

    def data_state(self) -> dict[str, Any]:
        """Name the file, with its size and time."""
        about = (self.data_root / DATA).stat()
        return {"files": {DATA: [about.st_size, about.st_mtime_ns]}}

    def erase_state(self, ranking: str) -> dict[str, Any]:
        """Name the instances, and the seed where it plays a part."""
        before = self.digest(self.units()[0])
        return {"before": before, "seed": self.options.seed if ranking == "random" else None}

    def report_state(self) -> dict[str, Any]:
        """Name all that is erased."""
        return {r: self.digest(self.erasure(r)) for r in self.options.rankings}

    # --- the steps -------------------------------------------------------------------------------

    def read(self, folder: Path, report: Report) -> dict[str, Any]:
        """Turn the rows into the tensors of an attention layer: logits are 0 and the margin."""
        rows = pd.read_csv(self.data_root / DATA)
        lengths = torch.tensor(rows.groupby("instance", sort=False).size().to_numpy())  # [B]
        layer = {
            "values": torch.tensor(rows[["margin"]].to_numpy(float)),  # [T, 1]
            "weights": torch.tensor(rows["attention"].to_numpy(float)),  # [T]
            "offsets": torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
            "head_weight": torch.tensor([[0.0], [1.0]], dtype=torch.float64),
            "head_bias": torch.zeros(2, dtype=torch.float64),
        }
        write_tensors(folder / "layer.safetensors", layer)
        return {"instances": len(lengths)}

    def erase(self, ranking: str, folder: Path, report: Report) -> dict[str, Any]:
        """Erase by one ranking, most important first, until each decision changes."""
        layer = TensorSource(self.folder("instances") / "layer.safetensors", device=self.device)
        parts = []
        for chunk in layer.chunks(0):
            erased = fae.erase_prefixes(chunk.batch, ranking, seed=self.options.seed)
            first = erased.first_flip[0].cpu()  # [B], -1 for never
            parts.append(pd.DataFrame({"items": chunk.batch.lengths.cpu(), "first_flip": first}))
            report(sum(map(len, parts)) / len(layer))
        table = pd.concat(parts)
        table.to_csv(folder / "flips.csv", index=False)
        flipped = table[table["first_flip"] > 0]
        share = (flipped["first_flip"] / flipped["items"]).median()
        return {"flipped": len(flipped), "median": None if flipped.empty else float(share)}

    def report(self, folder: Path, report: Report) -> dict[str, Any]:
        """Write the page."""
        rows = []
        for ranking in self.options.rankings:
            record = self.done(self.erasure(ranking))
            assert record is not None  # the report needs it
            rows.append({"ranking": ranking} | record.numbers)
        return {"page": build(pd.DataFrame(rows), folder).name}
