"""The report on the information studies: a page, figures, tables as CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastattnerase.report import page
from fastattnerase.report.figures import save as save_figure
from fastattnerase.report.tables import latex
from fastattnerase.runs import rundir
from fastattnerase.studies.wen.figures import figures
from fastattnerase.studies.wen.open_points import POINTS
from fastattnerase.studies.wen.tables import CHANCE_RULE, Claim, claims, collect
from fastattnerase.studies.wen.units import Wen

PAGE = "wen.html"
CHANCE = " *"  # after a tau that is not different from chance
_CAPTIONS = {
    "figure-2-weighted": "Figure 2 of the paper: weighted tau of every seed, by attention and "
    "encoder. Hollow: not different from chance.",
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
    "figure_2": (
        "Figure 2: tau over the seeds, and how many of them are not different from chance",
        {"dataset": "Data", "encoder": "Encoder", "attention": "Attention",
         "mechanism": "Weights by", "seeds": "Seeds", "fewest_ranks": "Ranks, fewest",
         "weighted_min": "Weighted, lowest",
         "weighted_mean": "Mean", "weighted_chance": "By chance", "plain_min": "Plain, lowest",
         "plain_mean": "Mean", "plain_chance": "By chance", "largest_weight": "Largest weight",
         "singletons": "Single-state clusters"},
    ),
    "table_2": (
        "Table 2: tau of the normal model less that of the special one",
        {"dataset": "Data", "setting": "Setting", "reading": "Reading", "seed": "Seed",
         "accuracy": "Accuracy", "ranks_normal": "Ranks, normal", "ranks": "Ranks, special",
         "weighted_normal": "Weighted, normal",
         "weighted": "Weighted, special", "delta_weighted": "Δ weighted",
         "plain_normal": "Plain, normal", "plain": "Plain, special", "delta_plain": "Δ plain",
         "paper_delta": "Paper, Δ weighted"},
    ),
    "table_3": (
        "Table 3: model-consistent adversaries",
        {"dataset": "Data", "seed": "Seed", "strength": "λ", "epochs": "Epochs",
         "most_epochs": "At most", "accuracy": "Accuracy", "f1": "F1", "tvd": "TVD",
         "half_tvd": "TVD / 2", "paper_tvd": "Paper, TVD / 2", "attention_jsd": "JSD of attention",
         "paper_jsd": "Paper, JSD", "output_jsd": "JSD of outputs"},
    ),
    "table_4": (
        "Table 4: tau of the normal model less the adversary's",
        {"dataset": "Data", "seed": "Seed", "ranks_normal": "Ranks, normal",
         "ranks": "Ranks, adversary", "weighted_normal": "Weighted, normal",
         "weighted": "Weighted, adversary", "delta_weighted": "Δ weighted",
         "plain_normal": "Plain, normal", "plain": "Plain, adversary", "delta_plain": "Δ plain",
         "paper_delta": "Paper, Δ weighted"},
    ),
    "table_5": (
        "Table 5: models whose tau does not fall with Gumbel-softmax, of those that can tell",
        {"attention": "Attention", "models": "Models",
         "weighted_noise_off": "Weighted, noise off", "weighted_noise_off_cases": "of",
         "weighted_noise_on": "Weighted, noise on", "weighted_noise_on_cases": "of",
         "plain_noise_off": "Plain, noise off", "plain_noise_off_cases": "of",
         "plain_noise_on": "Plain, noise on", "plain_noise_on_cases": "of",
         "weighted_equal_scores_mean": "Mean weighted tau of noise alone",
         "plain_equal_scores_mean": "Mean plain tau of noise alone",
         "paper_share": "Paper, share"},
    ),
}  # fmt: skip
# What a reader of a table must know, below it.
_NOTES = {
    "figure_2": "Taus of different numbers of ranks stand side by side.",
    "table_2": "A tau of few ranks is set against one of many where attention became more or less "
    "peaked: see the numbers of ranks. Fix Attn, uniform: tau is against positions.",
    "table_3": "TVD is the mean |p − p′| of the outputs. The code whose λ the paper takes over "
    "reports half of it, so the paper’s stands beside the half. Where epochs are as many as "
    "allowed, training stopped there, not at its least loss.",
    "table_4": "Taus of different numbers of ranks are compared.",
    "table_5": "Cannot tell: fewer than five ranks with softmax or with Gumbel-softmax, or chance "
    "with softmax. A tau that becomes chance has fallen.",
}
# Of each table the columns that a paper prints, by their head in LaTeX; all are in the CSV file.
_PRINTED: dict[str, dict[str, str]] = {
    "accuracy": {"dataset": "Data", "seeds": "Seeds", "accuracy": "Accuracy", "lowest": "Lowest",
                 "paper": "Paper"},
    "means": {"encoder": "Encoder", "attention": "Attention", "models": "Models",
              "weighted": "Weighted", "plain": "Plain", "weighted_chance": "Chance",
              "largest_weight": "Largest weight", "paper_weighted": "Paper"},
    "order": {"dataset": "Data", "encoder": "Encoder", "seed": "Seed",
              "weighted_additive": "Additive", "weighted_deep": "Deep", "weighted_dot": "Dot",
              "weighted_falls": "In order", "plain_falls": "In order, plain"},
    "highest": {"dataset": "Data", "seed": "Seed", "ranks": "Ranks", "weighted": "Weighted",
                "weighted_best_other": "Best other", "weighted_highest": "Highest",
                "plain": "Plain", "plain_highest": "Highest, plain"},
    "figure_2": {"dataset": "Data", "encoder": "Encoder", "attention": "Attention",
                 "seeds": "Seeds", "weighted_mean": "Weighted", "weighted_chance": "Chance",
                 "plain_mean": "Plain", "plain_chance": "Chance, plain"},
    "table_2": {"dataset": "Data", "setting": "Setting", "reading": "Reading", "seed": "Seed",
                "ranks": "Ranks", "delta_weighted": "Fall, weighted", "delta_plain": "Fall, plain",
                "paper_delta": "Paper"},
    "table_3": {"dataset": "Data", "seed": "Seed", "accuracy": "Accuracy", "half_tvd": "TVD / 2",
                "paper_tvd": "Paper", "attention_jsd": "JSD", "paper_jsd": "Paper, JSD"},
    "table_4": {"dataset": "Data", "seed": "Seed", "ranks_normal": "Ranks, normal",
                "ranks": "Ranks", "delta_weighted": "Fall, weighted", "delta_plain": "Fall, plain",
                "weighted_chance": "Chance", "paper_delta": "Paper"},
    "gumbel": {"dataset": "Data", "encoder": "Encoder", "attention": "Attention",
               "ranks_softmax": "Ranks", "weighted_softmax": "Softmax",
               "ranks_noise_off": "Ranks, Gumbel", "weighted_noise_off": "Noise off",
               "weighted_noise_on": "Noise on"},
    "table_5": {"attention": "Attention", "models": "Models", "weighted_noise_off": "Noise off",
                "weighted_noise_off_cases": "of", "weighted_noise_on": "Noise on",
                "weighted_noise_on_cases": "of", "weighted_equal_scores_mean": "Noise alone",
                "paper_share": "Paper, share"},
    "claims": {"text": "Statement", "agrees": "Verdict", "held": "Agree", "cases": "Of",
               "cannot_tell": "Cannot tell"},
}  # fmt: skip


def build(workspace: Wen, folder: Path) -> Path:
    """Write the report on a study's finished cells.

    Args:
        workspace: the study.
        folder: where to: `wen.html`, `figures/*.{png,svg,pdf}` and `tables/*.{csv,tex}`.

    Returns:
        The page's path.

    Raises:
        RunError: no cell is finished.

    Example:
        >>> from fastattnerase.studies.wen.report import build
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
    tables["claims"] = pd.DataFrame([claim.record() for claim in found])
    for name, table in tables.items():
        csv, tex = (folder / "tables" / f"{name}.{kind}" for kind in ("csv", "tex"))
        if table.empty:
            for file in (csv, tex):  # of an earlier report on more studies
                file.unlink(missing_ok=True)
            continue
        table.to_csv(csv, index=False)
        if name in _PRINTED:  # the others are too long for a page
            printed = _printed(table, _PRINTED[name], titles)
            tex.write_text(latex(printed, "%.3f"), encoding="utf-8")
    drawn = []
    for name, figure in figures(tables, titles):
        save_figure(figure, folder / "figures" / name)
        drawn.append((name, _CAPTIONS.get(name, f"Information by attention rank, {name}.")))
    return page.write(
        folder / PAGE,
        "fastattnerase.studies.wen",
        "wen.html.j2",
        claims=[_claim(claim) for claim in found],
        chance=CHANCE_RULE,
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
        wanted=len(workspace.cells()),
        files={name for name in tables if len(tables[name])},
        options=_options(workspace),
    )  # fmt: skip


def _about(workspace: Wen) -> dict[str, dict[str, Any]]:
    """Describe the data sets that are prepared."""
    found = {}
    for dataset in workspace.datasets():
        record = workspace.done(workspace.data_unit(dataset))
        if record is not None:
            about = record.numbers["about"]
            found[dataset] = {
                "title": about["title"],
                "note": about["note"],
                "words": about["words"],
                "mean_length": about["mean_length"],
                "documents": {
                    split: " / ".join(f"{n:,}" for n in counts.values())
                    for split, counts in about["documents"].items()
                },
                "left_out": ", ".join(f"{n:,} {why}" for why, n in left_out(about).items()),
            }
    return found


def left_out(about: dict[str, Any]) -> dict[str, int]:
    """Count the documents that a prepared data set does not use, by the reason."""
    counts = {reason.replace("_", " "): n for reason, n in about["dropped"].items()}
    counts["by the filter of lengths"] = sum(about["filtered"].values())
    return {reason: n for reason, n in counts.items() if n}


def _options(workspace: Wen) -> list[tuple[str, str]]:
    """Name every option with its value; with word vectors, the width that these have."""
    options = vars(workspace.options)
    if options["vectors"] is not None:
        models = (
            workspace.folder(cell.key) / "model" / "model.json" for cell in workspace.results()
        )
        width = next(
            rundir.read_json(path)["model"]["embedding_size"] for path in models if path.exists()
        )
        options = options | {
            "vectors": Path(options["vectors"]).name,
            "embedding_size": f"{width}, of the word vectors",
        }
    return [
        (name.replace("_", " "), ", ".join(map(str, v)) if isinstance(v, tuple) else str(v))
        for name, v in options.items()
    ]


def _claim(claim: Claim) -> dict[str, str]:
    verdict = {"yes": "agrees", "partly": "partly", "no": "disagrees", "": "no verdict"}
    cases = f"{claim.held} of {claim.cases}" if claim.cases else ""
    return {
        **{name: getattr(claim, name) for name in ("text", "rule", "paper", "here")},
        "verdicts": f" ({claim.verdicts})" if claim.verdicts else "",
        "verdict": verdict[claim.agrees],
        "cases": cases,
    }


def _shown(name: str, table: pd.DataFrame, titles: dict[str, str]) -> dict[str, Any]:
    title, columns = _SHOWN[name]

    def text(column: str, row: Mapping[Hashable, Any]) -> str:
        value = row[column]
        if isinstance(value, float):
            if np.isnan(value):
                return "–"
            mark = CHANCE if row.get(f"{column}_chance") is True else ""
            return (f"{value:.2e}" if column == "strength" else f"{value:.3f}") + mark
        if column == "dataset":
            return titles.get(str(value), str(value))
        return str(value).replace("_", " ")

    rows = [[text(column, row) for column in columns] for row in table.to_dict("records")]
    head = list(columns.values())
    return {"name": name, "title": title, "head": head, "rows": rows, "note": _NOTES.get(name, "")}


def _printed(table: pd.DataFrame, columns: dict[str, str], titles: dict[str, str]) -> pd.DataFrame:
    """Choose and name the columns of a table in LaTeX, in words that can be read."""

    def text(value: Any) -> Any:
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if isinstance(value, str):
            return titles.get(value, value.replace("_", " "))
        return value

    chosen = table[list(columns)].rename(columns=columns).astype(object)
    return chosen.map(text)


def _reasons(measurements: pd.DataFrame) -> list[tuple[str, str]]:
    """Say which measurements have no correlation, and why."""
    missing = measurements[measurements["reason"] != ""]
    keys = ["dataset", "encoder", "attention", "mechanism", "variant", "seed", "measurement"]
    return [
        (" ".join(str(row[key]) for key in keys), str(row["reason"]))
        for _, row in missing.iterrows()
    ]
