"""The tables of the tests, from the records and instance files of finished cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastattnerase.attention_tests.bins import BINS, bin_of
from fastattnerase.extras import needs
from fastattnerase.statistics.paired import compare
from fastattnerase.studies.wiegreffe_pinter.cells import Cells
from fastattnerase.studies.wiegreffe_pinter.options import DIAGNOSTIC, Cell
from fastattnerase.studies.wiegreffe_pinter.paper import number
from fastattnerase.studies.wiegreffe_pinter.results import CellResult

with needs("report"):
    import pandas as pd
with needs("text"):
    from scipy import stats


@dataclass(frozen=True)
class Family:
    """A base model with every model that is compared with it.

    Attributes:
        base: The base model.
        results: Of these cells, the base model's among them.
    """

    base: Cell
    results: dict[Cell, CellResult]

    def of_kind(self, kind: str) -> list[CellResult]:
        """Give the results of a kind, in the order of seeds, epochs and λ."""
        found = (result for cell, result in self.results.items() if cell.kind == kind)
        return sorted(
            found, key=lambda r: (r.cell.seed, r.cell.epochs or 0, r.cell.strength or 0.0)
        )

    def one(self, kind: str) -> CellResult | None:
        """Give the result of a kind of which there is one; None where it is not finished."""
        return next(iter(self.of_kind(kind)), None)

    @property
    def names(self) -> dict[str, str]:
        """The columns that say which base model it is."""
        return {name: getattr(self.base, name) for name in ("dataset", "encoder", "attention")}


def families(workspace: Cells) -> list[Family]:
    """Group what is finished in a folder by the base model, which has the options' base seed."""
    seed = workspace.options.base_seed
    found: dict[Cell, dict[Cell, CellResult]] = {}
    for cell, result in workspace.results().items():
        if cell.kind == "seed" or cell.seed == seed:
            base = Cell(cell.dataset, cell.encoder, cell.attention, "base", seed)
            found.setdefault(base, {})[cell] = result
    return [Family(base, results) for base, results in found.items() if base in results]


# --- Table 2: uniform weights --------------------------------------------------------------------


def uniform_table(workspace: Cells, of: Sequence[Family]) -> pd.DataFrame:
    """Compare each base model with its twin of uniform attention (Table 2)."""
    rows = []
    for family in of:
        uniform = family.one("uniform")
        if uniform is None:
            continue
        base = family.results[family.base]
        right = [
            (rows["decision"] == rows["label"]).to_numpy()
            for rows in map(workspace.instances, (base.cell, uniform.cell))
        ]
        test = compare(int((right[0] & ~right[1]).sum()), int((~right[0] & right[1]).sum()))
        dataset = family.base.dataset
        rows.append(
            family.names
            | {
                "classes": base.classes,
                "jain_wallace_f1": number("Jain & Wallace", dataset, "f1"),
                "paper_base_f1": number("Table 2", dataset, "base"),
                "paper_uniform_f1": number("Table 2", dataset, "uniform"),
                "base_f1": base.f1,
                "uniform_f1": uniform.f1,
                "drop_f1": _difference(base.f1, uniform.f1),
                "base_accuracy": base.accuracy,
                "uniform_accuracy": uniform.accuracy,
                "drop_accuracy": base.accuracy - uniform.accuracy,
                "base_alone_right": test.first,
                "uniform_alone_right": test.second,
                "p_mcnemar": test.p_mcnemar,
                "majority": base.majority,
                "largest_weight": None if base.attention is None else base.attention.largest_weight,
                "test_documents": base.documents["test"],
            }
        )
    return _numbers(rows)


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


# --- Figure 3: seeds -----------------------------------------------------------------------------


def seed_instances(workspace: Cells, family: Family) -> pd.DataFrame:
    """Give each test document its median JSD and mean output difference over the seeds.

    Returns:
        A row for each document: `document`, `decision` and `largest_weight` of the base model, its
        `bin`, `jsd` (median over the seeds) and `difference` (mean over the seeds of |p − p'|);
        without rows where no further seed is finished.
    """
    seeds = family.of_kind("seed")
    base = workspace.instances(family.base)
    if not seeds:
        return base.iloc[:0].assign(bin=[], jsd=[], difference=[])
    found = [workspace.instances(result.cell) for result in seeds]
    for rows in found:
        if rows["document"].tolist() != base["document"].tolist():
            raise AssertionError("test documents of two seeds differ")  # of the same data
    return base.assign(
        bin=bin_of(base["largest_weight"]),
        jsd=np.median([rows["attention_jsd"] for rows in found], axis=0),
        difference=np.mean([rows["tvd"] for rows in found], axis=0),
    )


def adversary_instances(workspace: Cells, base: Cell, adversary: Cell) -> pd.DataFrame:
    """Give each test document an adversary's JSD and output difference, as `seed_instances`."""
    rows, own = workspace.instances(base), workspace.instances(adversary)
    return rows.assign(
        bin=bin_of(rows["largest_weight"]), jsd=own["attention_jsd"], difference=own["tvd"]
    )


def seed_table(workspace: Cells, of: Sequence[Family]) -> pd.DataFrame:
    """Summarise the seeds by the bin of the base model's largest weight and its decision."""
    found = []
    for family in of:
        rows = seed_instances(workspace, family)
        if rows.empty:
            continue
        groups: list[tuple[str, str, pd.DataFrame]] = [("all", "all", rows)]
        for place, label in enumerate(BINS):
            for decision, own in rows[rows["bin"] == place].groupby("decision"):
                groups.append((label, str(decision), own))
        for where, decision, own in groups:
            low, middle, high = np.quantile(own["jsd"], [0.25, 0.5, 0.75])
            found.append(
                family.names
                | {
                    "seeds": len(family.of_kind("seed")),
                    "largest_weight": where,
                    "decision": decision,
                    "documents": len(own),
                    "jsd_quarter": low,
                    "jsd_median": middle,
                    "jsd_three_quarters": high,
                    "output_difference": own["difference"].mean(),
                }
            )
    return _numbers(found)


# --- Table 3: the diagnostic ---------------------------------------------------------------------


def diagnostic_table(of: Sequence[Family], lender: float) -> pd.DataFrame:
    """Give the F1 of the MLP under each of the four weightings (Table 3).

    Where adversaries of several λ have lent their weights, it is told of the one of λ `lender`, or
    else of the smallest λ.
    """
    found = []
    for family in of:
        results = {kind: family.one(kind) for kind in DIAGNOSTIC}
        for adversary in family.of_kind("mlp_adversary"):
            if adversary.cell.strength == lender:
                results["mlp_adversary"] = adversary
        if not any(results.values()):
            continue
        row: dict[str, Any] = dict(family.names)
        for kind, result in results.items():
            column = kind.removeprefix("mlp_")
            row[f"paper_{column}_f1"] = number("Table 3", family.base.dataset, column)
            row[f"{column}_f1"] = None if result is None else result.f1
        for kind, result in results.items():
            column = kind.removeprefix("mlp_")
            row[f"{column}_accuracy"] = None if result is None else result.accuracy
        lent = results["mlp_adversary"]
        row["lender_strength"] = None if lent is None else lent.cell.strength
        row["lender_jsd"] = None if lent is None else _lender_jsd(family, lent)
        row["majority"] = family.results[family.base].majority
        found.append(row)
    return _numbers(found)


def _lender_jsd(family: Family, lent: CellResult) -> float | None:
    """Give the attention divergence of the adversary that lent its weights."""
    adversary = family.results.get(dataclasses.replace(lent.cell, kind="adversary"))
    if adversary is None or adversary.divergence is None:
        return None
    return adversary.divergence.attention_jsd


# --- Table 4 and the curve: adversaries ----------------------------------------------------------


def adversary_table(of: Sequence[Family]) -> pd.DataFrame:
    """Compare every adversary with its base model (Table 4, and the curve of Figure 5)."""
    found = []
    for family in of:
        dataset = family.base.dataset
        published = number("Table 4", dataset, "strength")
        for result in family.of_kind("adversary"):
            assert result.divergence is not None
            assert result.train_divergence is not None
            of_paper = result.cell.strength == published
            paper = {
                f"paper_{name}": number("Table 4", dataset, name) if of_paper else None
                for name in ("f1", "tvd", "jsd")
            }
            found.append(
                family.names
                | {"strength": result.cell.strength, "max_epochs": result.max_epochs}
                | paper
                | {
                    "f1": result.f1,
                    "base_f1": family.results[family.base].f1,
                    "tvd_halved": result.divergence.tvd / 2,
                    "tvd": result.divergence.tvd,
                    "jsd": result.divergence.attention_jsd,
                    "kl": result.divergence.attention_kl,
                    "train_tvd": result.train_divergence.tvd,
                    "train_jsd": result.train_divergence.attention_jsd,
                    "accuracy": result.accuracy,
                    "epochs": result.epochs,
                    "best_epoch": result.best_epoch,
                }
            )
    return _numbers(found)


def curve_table(adversaries: pd.DataFrame) -> pd.DataFrame:
    """Correlate λ with the divergence of attention, over adversaries of as many epochs each.

    Three or more values of λ make a curve.
    """
    found: list[dict[str, Any]] = []
    if adversaries.empty:
        return pd.DataFrame()
    for names, rows in adversaries.groupby(["dataset", "encoder", "attention", "max_epochs"]):
        if len(rows) < 3:
            continue
        constant = rows["jsd"].nunique() == 1
        spearman = None if constant else stats.spearmanr(rows["strength"], rows["jsd"]).statistic
        kendall = None if constant else stats.kendalltau(rows["strength"], rows["jsd"]).statistic
        found.append(
            dict(zip(("dataset", "encoder", "attention", "max_epochs"), names, strict=True))
            | {
                "values": len(rows),
                "least_strength": rows["strength"].min(),
                "largest_strength": rows["strength"].max(),
                "spearman": spearman,
                "kendall": kendall,
                "least_jsd": rows["jsd"].min(),
                "largest_jsd": rows["jsd"].max(),
            }
        )
    return _numbers(found)


def sought_table(workspace: Cells, of: Sequence[Family]) -> pd.DataFrame:
    """Summarise Jain & Wallace's adversaries, which are sought document by document."""
    rows = []
    for family in of:
        found = workspace.sought(family.base)
        if found is None:
            continue
        rows.append(
            family.names
            | {
                "documents": len(found),
                "jsd_mean": found["jsd"].mean(),
                "jsd_median": found["jsd"].median(),
                "tvd": found["tvd"].mean(),
                "none": int((found["jsd"] == 0).sum()),
            }
        )
    return _numbers(rows)


# --- Figure 5: all models against the base model -------------------------------------------------


def model_table(of: Sequence[Family]) -> pd.DataFrame:
    """List every model with how far its outputs and attention are from the base model's."""
    found: list[dict[str, Any]] = []
    for family in of:
        for result in family.results.values():
            d = result.divergence
            found.append(
                family.names
                | {
                    "kind": result.cell.kind,
                    "seed": result.cell.seed,
                    "strength": result.cell.strength,
                    "max_epochs": result.max_epochs,
                    "f1": result.f1,
                    "auc": result.auc,
                    "accuracy": result.accuracy,
                    "majority": result.majority,
                    "dev_accuracy": result.dev_accuracy,
                    "best_epoch": result.best_epoch,
                    "epochs": result.epochs,
                    "tvd_halved": None if d is None else d.tvd / 2,
                    "tvd": None if d is None else d.tvd,
                    "jsd": None if d is None else d.attention_jsd,
                }
            )
    return _numbers(found)


def _numbers(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Make a table whose missing numbers are NaN."""
    return pd.DataFrame(rows).fillna(value=np.nan).infer_objects() if rows else pd.DataFrame()
