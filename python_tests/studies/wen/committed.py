"""The committed measurements of the information studies, read back into rows."""

from __future__ import annotations

import csv
import math
from dataclasses import fields
from pathlib import Path

from fastattnerase.statistics.divergence import AttentionShape, Divergence
from fastattnerase.studies.wen.options import Cell
from fastattnerase.studies.wen.repeats import Repeats
from fastattnerase.studies.wen.results import CellResult
from fastattnerase.studies.wen.rows import Measured, Tau

FOLDER = Path(__file__).parents[3] / "benchmarks" / "results" / "wen"
CHANCE = {"True": True, "False": False, "": None}


def number(text: str) -> float:
    return float(text) if text else math.nan


def measurements() -> list[Measured]:
    """Read `measurements.csv`; what is not in it is left empty."""
    with open(FOLDER / "measurements.csv", encoding="utf-8", newline="") as file:
        return [measured(row) for row in csv.DictReader(file)]


def measured(row: dict[str, str]) -> Measured:
    cell = Cell(
        row["dataset"], row["encoder"], row["attention"], row["mechanism"], row["variant"],
        int(row["seed"]),
    )  # fmt: skip
    distances = [row[name] for name in ("tvd", "output_jsd", "attention_jsd", "attention_kl")]
    share = row["entropy_share"]
    result = CellResult(
        accuracy=math.nan,
        f1=float(row["f1"]),
        auc=float(row["auc"]) if row["auc"] else None,  # of two classes alone
        dev_accuracy=math.nan,
        best_epoch=int(row["best_epoch"]),
        epochs=int(row["epochs"]),
        documents={},
        vectors_found=0,
        measurements={},
        attention=AttentionShape(math.nan, float(share)) if share else None,
        divergence=Divergence(*map(float, distances)) if all(distances) else None,
        strength=float(row["strength"]) if row["strength"] else None,
        seconds=float(row["seconds"]),
    )
    taus = {
        name: Tau(
            number(row[name]),
            number(row[f"{name}_corrected"]),
            number(row[f"{name}_control_low"]),
            number(row[f"{name}_control_high"]),
            CHANCE[row[f"{name}_chance"]],
            Repeats(*(number(row.get(f"{name}_{own.name}", "")) for own in fields(Repeats))),
        )
        for name in ("weighted", "weighted_sum", "plain")
    }
    return Measured(
        cell,
        row["measurement"],
        float(row["accuracy"]),
        int(row["max_epochs"]),
        result,
        int(row["ranks"]),
        int(row["clusters"]),
        int(row["instances"]),
        float(row["singletons"]),
        float(row["largest_weight"]),
        number(row["first_over_second"]),
        reason=row["reason"],
        **taus,
    )
