"""The page of the debate: what speaks against attention, what for it, and the models behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fastattnerase.debate.options import TEXTS
from fastattnerase.debate.points import Point, collect, points
from fastattnerase.debate.units import Debate
from fastattnerase.extras import needs
from fastattnerase.report import page
from fastattnerase.report.tables import save as save_table
from fastattnerase.studies import pages
from fastattnerase.studies.wiegreffe_pinter.figures import figures
from fastattnerase.studies.wiegreffe_pinter.tables import model_table

with needs("report"):
    import pandas as pd

PAGE = "debate.html"
SIDES = (
    ("against", "Against attention"),
    ("for", "For attention"),
    ("neither", "Neither"),
    ("cannot tell", "Cannot tell"),
)
_ENCODERS = {"bilstm": "BiLSTM", "cnn": "CNN", "mlp": "MLP"}
_KINDS = {  # in the order of the table
    "base": "the model",
    "uniform": "uniform attention",
    "seed": "another seed",
    "adversary": "adversary",
    "mlp_uniform": "MLP, uniform weights",
    "mlp_learned": "MLP, its own weights",
    "mlp_base": "MLP, the model’s weights",
    "mlp_adversary": "MLP, the adversary’s weights",
}


def build(debate: Debate, folder: Path) -> tuple[Path, list[Point]]:
    """Write the page, with `points.csv`, `models.csv` and the figures beside it.

    Args:
        debate: all of whose units are done.
        folder: where to.

    Returns:
        The page's path, and the points on it.
    """
    evidence = collect(debate)
    found = points(evidence)
    about = debate.data()[TEXTS]
    pages.empty_folders(folder)
    models = model_table([evidence.family])
    save_table(pd.DataFrame([vars(point) for point in found]), folder / "tables" / "points")
    save_table(models, folder / "tables" / "models")
    found_figures = figures(debate, [evidence.family], {TEXTS: about.title})
    drawn = pages.save_drawn(folder, (_named(one, about.title) for one in found_figures))
    base = evidence.family.results[evidence.family.base]
    path = page.write(
        folder / PAGE,
        "fastattnerase.debate",
        "debate.html.j2",
        title=about.title,
        classes=about.classes,
        documents={split: sum(n.values()) for split, n in about.documents.items()},
        left_out=about.left_out,
        accuracy=f"{base.accuracy:.3f}",
        majority=f"{base.majority or 0:.3f}",
        encoder=_ENCODERS[debate.options.encoder],
        attention=debate.options.attention,
        sides=[
            (name, heading, [point for point in found if point.side == name])
            for name, heading in SIDES
        ],
        models=[_model(row) for row in sorted(models.to_dict("records"), key=_place)],
        csv=page.embedded(folder / "tables" / "models.csv"),
        points_csv=page.embedded(folder / "tables" / "points.csv"),
        figures=[shown for _, shown in drawn],
    )
    return path, found


def _named(one: pages.Drawn, title: str) -> pages.Drawn:
    """Leave the paper's number and the text's title out of a caption: the page is on one text."""
    caption = one.caption.partition(f"{title}: ")[2]
    return replace(one, caption=caption[:1].upper() + caption[1:])


def _place(row: Any) -> tuple[int, float, int]:
    """Say where a model stands in the table: by kind, λ and seed."""
    strength = 0.0 if pd.isna(row["strength"]) else row["strength"]
    return (list(_KINDS).index(row["kind"]), strength, row["seed"])


def _model(row: Any) -> list[str]:
    """Write a model as a row of the page's table."""
    name = _KINDS[row["kind"]]
    if row["kind"] == "seed":
        name = f"{name}, {row['seed']}"
    if pd.notna(row["strength"]):
        name = f"{name}, λ {row['strength']:g}"
    numbers = [row[column] for column in ("accuracy", "f1", "auc", "tvd", "jsd")]
    return [name, *("–" if pd.isna(value) else f"{value:.3f}" for value in numbers)]
