"""The report on the information studies: a page, figures, tables as CSV and LaTeX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from fastattnerase.experiments import rundir
from fastattnerase.experiments.wen import DATA, Workspace
from fastattnerase.experiments.wen_tables import Claim, claims, collect
from fastattnerase.report import figures, wen_figures
from fastattnerase.report.tables import latex
from fastattnerase.report.wen_points import POINTS

PAGE = "wen.html"
_CAPTIONS = {
    "figure-2-weighted": "Figure 2 of the paper: weighted tau of every seed, by attention and "
    "encoder.",
    "figure-2-plain": "The same with plain tau, which does not depend on how skewed attention is.",
    "tau-and-skew": "Both taus against the skew of attention. Where weights are peaked, weighted "
    "tau asks little more than whether the first rank informs most.",
    "gumbel": "Softmax against Gumbel-softmax. Grey crosses: the noise alone, on equal scores, "
    "with the same sample for ranking and for the output.",
}
# Which columns the page shows of a table, and what they are called there.
_SHOWN: dict[str, tuple[str, dict[str, str]]] = {
    "accuracy": (
        "BiLSTM with additive attention, test accuracy",
        {"dataset": "Data", "seeds": "Seeds", "accuracy": "Mean", "lowest": "Lowest",
         "needed": "Needed", "paper": "Paper"},
    ),
    "means": (
        "Mean tau over data sets and seeds, softmax attention",
        {"encoder": "Encoder", "attention": "Attention", "models": "Models",
         "weighted": "Weighted tau", "plain": "Plain tau", "largest_weight": "Largest weight",
         "paper_weighted": "Paper, weighted"},
    ),
    "table_2": (
        "Table 2: tau of the normal model less that of the special one",
        {"dataset": "Data", "setting": "Setting", "reading": "Reading", "seed": "Seed",
         "accuracy": "Accuracy", "delta_weighted": "Δ weighted", "delta_plain": "Δ plain",
         "paper_delta": "Paper, weighted"},
    ),
    "table_3": (
        "Table 3: model-consistent adversaries",
        {"dataset": "Data", "seed": "Seed", "strength": "λ", "accuracy": "Accuracy", "f1": "F1",
         "tvd": "TVD", "half_tvd": "TVD / 2", "attention_jsd": "JSD of attention",
         "output_jsd": "JSD of outputs", "paper_tvd": "Paper, TVD", "paper_jsd": "Paper, JSD"},
    ),
    "table_4": (
        "Table 4: tau of the normal model less the adversary's",
        {"dataset": "Data", "seed": "Seed", "weighted_normal": "Weighted, normal",
         "weighted": "Weighted, adversary", "delta_weighted": "Δ weighted",
         "delta_plain": "Δ plain", "paper_delta": "Paper, weighted"},
    ),
    "table_5": (
        "Table 5: models whose tau does not fall with Gumbel-softmax",
        {"attention": "Attention", "models": "Models", "weighted_noise_off": "Weighted, noise off",
         "weighted_noise_on": "Weighted, noise on", "plain_noise_off": "Plain, noise off",
         "plain_noise_on": "Plain, noise on",
         "weighted_equal_scores_mean": "Mean weighted tau of noise alone",
         "plain_equal_scores_mean": "Mean plain tau of noise alone",
         "paper_share": "Paper, share"},
    ),
}  # fmt: skip


def build(workspace: Workspace, folder: Path) -> Path:
    """Write the report on a study's finished cells.

    Args:
        workspace: the study.
        folder: where to: `wen.html`, `figures/*.{png,svg,pdf}` and `tables/*.{csv,tex}`.

    Returns:
        The page's path.

    Raises:
        RunError: no cell is finished.

    Example:
        >>> from fastattnerase.report.wen import build
        >>> build(workspace, Path("runs/wen/report"))  # doctest: +SKIP
    """
    results = workspace.results()
    if not results:
        raise rundir.RunError(f"{workspace.out} has no finished cell to report on")
    tables = collect(results, workspace.out)
    found = claims(tables)
    about = _about(workspace)
    titles = {name: data["title"] for name, data in about.items()}
    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    tables["claims"] = pd.DataFrame([vars(claim) for claim in found])
    for name, table in tables.items():
        table.to_csv(folder / "tables" / f"{name}.csv", index=False)
        if len(table) and name not in ("curves", "measurements"):  # too long for a page
            (folder / "tables" / f"{name}.tex").write_text(latex(table, "%.3g"), encoding="utf-8")
    drawn = []
    for name, figure in wen_figures.figures(tables, titles):
        figures.save(figure, folder / "figures" / name)
        drawn.append((name, _CAPTIONS.get(name, f"Information by attention rank, {name}.")))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fastattnerase.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("wen.html.j2").render(
        claims=[_claim(claim) for claim in found],
        tables=[
            _shown(name, tables[name], titles) for name in _SHOWN if len(tables[name])
        ],
        figures=[item for item in drawn if not item[0].startswith("curves-")],
        curves=[(name, f"Information by rank: {titles[name[7:]]}, first seed.")
                for name, _ in drawn if name.startswith("curves-")],
        data=about.values(),
        points=POINTS,
        reasons=_reasons(tables["measurements"]),
        gumbel=bool(len(tables["gumbel"])),
        cells=len(results),
        wanted=sum(not unit.is_data for unit in workspace.units()),
        options=[
            (name.replace("_", " "), ", ".join(map(str, v)) if isinstance(v, tuple) else str(v))
            for name, v in vars(workspace.options).items()
        ],
    )  # fmt: skip
    partial = folder / f"{PAGE}.partial"
    partial.write_text(page, encoding="utf-8")
    partial.replace(folder / PAGE)
    return folder / PAGE


def _about(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Describe the data sets that are prepared."""
    found = {}
    for unit in workspace.units():
        if unit.is_data:
            result = workspace.done(unit)
            if result is not None:
                about = result["about"]
                found[unit.dataset] = {
                    "title": about["title"],
                    "note": about["note"],
                    "words": about["words"],
                    "mean_length": about["mean_length"],
                    "documents": {
                        split: " / ".join(f"{n:,}" for n in counts.values())
                        for split, counts in about["documents"].items()
                    },
                    "folder": f"{DATA}/{unit.dataset}",
                }
    return found


def _claim(claim: Claim) -> dict[str, str]:
    verdict = {True: "agrees", False: "disagrees", None: "no verdict"}[claim.agrees]
    return {"text": claim.text, "paper": claim.paper, "here": claim.here, "verdict": verdict}


def _shown(name: str, table: pd.DataFrame, titles: dict[str, str]) -> dict[str, Any]:
    title, columns = _SHOWN[name]

    def text(column: str, value: Any) -> str:
        if isinstance(value, float):
            if np.isnan(value):
                return "–"
            return f"{value:.2e}" if column == "strength" else f"{value:.3f}"
        if column == "dataset":
            return titles.get(str(value), str(value))
        return str(value).replace("_", " ")

    rows = [
        [text(column, value) for column, value in zip(columns, row, strict=True)]
        for row in table[list(columns)].itertuples(index=False)
    ]
    return {"name": name, "title": title, "head": list(columns.values()), "rows": rows}


def _reasons(measurements: pd.DataFrame) -> list[tuple[str, str]]:
    """Say which measurements have no correlation, and why."""
    missing = measurements[measurements["reason"] != ""]
    keys = ["dataset", "encoder", "attention", "mechanism", "variant", "seed", "measurement"]
    return [
        (" ".join(str(row[key]) for key in keys), str(row["reason"]))
        for _, row in missing.iterrows()
    ]
