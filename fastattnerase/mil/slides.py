"""The rows that one slide adds to the tables of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.extras import needs
from fastattnerase.measures.of_sweep import SweepMeasures
from fastattnerase.mil.flipping import SCORES, STEPS, PatchFlipping, patch_flipping, patch_scores
from fastattnerase.mil.models import PoolModel
from fastattnerase.mil.options import RANDOM, SEARCHED, Options
from fastattnerase.mil.pooled import PooledBag
from fastattnerase.ops import (
    Envelope,
    MinimalFlipSet,
    envelope,
    minimal_flip_set,
    minimal_sufficient_set,
)
from fastattnerase.status import status_names

with needs("text"):
    import pyarrow as pa

BOUNDS = "bounds"  # in the table of curves: the least and the largest that any ranking can reach
# The last marks a slide as done.
TABLES = ("patches", "curves", "rankings", "slides")
_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()


def schemas(options: Options) -> dict[str, pa.Schema]:
    """Describe the tables: `slides` a row a slide, `rankings` a row a slide and ranking, ….

    `curves` has a row a slide, ranking and percent of the patches erased; `patches` one a patch.
    """
    scores = [name for name in options.all_rankings if name in SCORES]
    return {
        "patches": pa.schema(
            [("slide_id", _TEXT), ("patch", _WHOLE), ("x", _REAL), ("y", _REAL),
             *((name, _REAL) for name in scores), ("in_smallest_set", pa.bool_())]
        ),
        "curves": pa.schema(
            [("slide_id", _TEXT), ("ranking", _TEXT), ("percent", _WHOLE), ("most_first", _REAL),
             ("least_first", _REAL)]
        ),
        "rankings": pa.schema(
            [("slide_id", _TEXT), ("ranking", _TEXT), ("n", _WHOLE), ("first_flip", _REAL),
             ("fraction", _REAL), ("least_first_flip", _REAL), ("over_set", _REAL),
             *((name, _REAL) for name in MEASURES)]
        ),
        "slides": pa.schema(
            [("slide_id", _TEXT), ("file", _TEXT), ("bytes", _WHOLE), ("n", _WHOLE),
             ("has_coordinates", pa.bool_()), ("patch_size", _REAL),
             ("label", _WHOLE), ("decision", _WHOLE), ("probability", _REAL), ("status", _TEXT),
             ("minimal_size", _WHOLE), ("minimal_optimal", pa.bool_()),
             ("sufficient_size", _WHOLE), ("damaged", _TEXT)]
        ),
    }  # fmt: skip


# Names of columns, and of the measures and grids that they are.
MEASURES: dict[str, tuple[str, str]] = {
    "aopc": ("aopc_comprehensiveness", "every"),
    "aopc_percent": ("", ""),  # over the field's grid, which no measure has
    "aopc_over_random": ("aopc_over_random", "every"),
    "symmetric_relevance_gain": ("symmetric_relevance_gain", ""),
    "normalized_area": ("normalized_area", ""),
}


def damaged(slide_id: str, label: int, why: str, options: Options) -> dict[str, pa.Table]:
    """Make the rows of a slide that could not be read: one, which says why."""
    made = {name: schema.empty_table() for name, schema in schemas(options).items()}
    row = {"slide_id": slide_id, "label": label, "damaged": why}
    made["slides"] = pa.Table.from_pylist([row], schema=made["slides"].schema)
    return made


def rows_of(
    model: PoolModel, pooled: PooledBag, label: int, path: Path, options: Options
) -> dict[str, pa.Table]:
    """Erase one slide, and make its rows of every table."""
    batch = model.batch(pooled)
    names = options.all_rankings
    scores = patch_scores(batch, [name for name in names if name in SCORES])
    found = patch_flipping(
        batch, names, scores=scores, seed=options.seed, random_orders=options.random_orders,
        backend=options.backend,  # type: ignore[arg-type]
    )  # fmt: skip
    exact = batch.head is None and batch.num_heads == 1
    bounds = None
    if exact:
        bounds = envelope(
            batch, found.given, grid=STEPS + 1, seed=options.seed,
            random_orders=options.random_orders,
        )  # fmt: skip
    measured = found.measures(envelope=bounds)
    minimal = smallest_set(batch, found)
    kinds = schemas(options)
    made = {
        "patches": _patches(pooled, scores, minimal),
        "curves": _curves(pooled, found, measured.rankings, bounds),
        "rankings": _rankings(pooled, found, measured, minimal),
        "slides": [_slide(pooled, batch, found, minimal, label, path)],
    }
    return {name: pa.Table.from_pylist(rows, schema=kinds[name]) if isinstance(rows, list)
            else pa.Table.from_pydict(rows, schema=kinds[name])
            for name, rows in made.items()}  # fmt: skip


def smallest_set(batch: AttentionBatch, found: PatchFlipping) -> MinimalFlipSet | None:
    """Find the smallest flipping set: by one sort, or of several branches by search with a bound.

    None where the classifier is not linear, and of several branches beyond `SEARCHED` patches.
    """
    if found.swept.minimal is not None or batch.head is not None or batch.num_items > SEARCHED:
        return found.swept.minimal
    return minimal_flip_set(batch)


def _in_set(minimal: MinimalFlipSet | None, n: int) -> Tensor:
    """Mark the patches of the first slide's smallest flipping set: [n], bool."""
    marked = torch.zeros(n, dtype=torch.bool)
    if minimal is not None:
        marked[minimal.order[: max(int(minimal.size[0]), 0)]] = True
    return marked


def _patches(
    pooled: PooledBag, scores: dict[str, Tensor], minimal: MinimalFlipSet | None
) -> dict[str, Any]:
    n = len(pooled)
    coords = pooled.coords
    xy = np.full((n, 2), np.nan) if coords is None else coords.double().numpy()
    return {
        "slide_id": pa.array([pooled.slide_id]).take(pa.array(np.zeros(n, dtype=np.int64))),
        "patch": np.arange(n),
        "x": xy[:, 0],
        "y": xy[:, 1],
        **{name: values.double().numpy() for name, values in scores.items()},
        "in_smallest_set": _in_set(minimal, n).numpy(),
    }


def _rows(found: PatchFlipping, ranking: str) -> list[int]:
    """Find the rows of a ranking, several of random orders."""
    return [r for r, name in enumerate(found.rankings) if name.split("[")[0] == ranking]


def _curves(
    pooled: PooledBag, found: PatchFlipping, rankings: tuple[str, ...], bounds: Envelope | None
) -> list[dict[str, Any]]:
    """Give each ranking's curves at every percent, of random orders the means."""
    n = len(pooled)
    erased = (2 * torch.arange(STEPS + 1) * n + STEPS) // (2 * STEPS)  # [101], as in the grid
    at = torch.searchsorted(found.erased, erased)  # [101]
    rows = []
    for ranking in rankings:
        own = _rows(found, ranking)
        curves = (
            x[own].double().mean(0)[at].tolist() for x in (found.most_first, found.least_first)
        )
        rows += _points(pooled.slide_id, ranking, *curves)
    if bounds is not None and found.swept.prefixes.probabilities.shape[1] == 2:
        # Of two classes the probability rises with the margin.
        at = torch.searchsorted(bounds.erased, erased)
        ends = (x.sigmoid()[at].tolist() for x in (bounds.least, bounds.largest))
        rows += _points(pooled.slide_id, BOUNDS, *ends)
    return rows


def _points(
    slide: str, ranking: str, most: list[float], least: list[float]
) -> list[dict[str, Any]]:
    return [
        {"slide_id": slide, "ranking": ranking, "percent": percent, "most_first": p,
         "least_first": q}
        for percent, (p, q) in enumerate(zip(most, least, strict=True))
    ]  # fmt: skip


def _rankings(
    pooled: PooledBag,
    found: PatchFlipping,
    measured: SweepMeasures,
    minimal: MinimalFlipSet | None,
) -> list[dict[str, Any]]:
    n = len(pooled)
    smallest = -1 if minimal is None else int(minimal.size[0])
    rows = []
    for place, ranking in enumerate(measured.rankings):
        own = _rows(found, ranking)
        first, least = (
            _median_flip(flips[own, 0]) for flips in (found.first_flip, found.least_first_flip)
        )
        steps = found.most_first[own].double()  # [r, P]
        row = {
            "slide_id": pooled.slide_id,
            "ranking": ranking,
            "n": n,
            "first_flip": first,
            "fraction": first / n,
            "least_first_flip": least,
            "over_set": first / smallest if smallest > 0 else np.nan,
            "aopc_percent": float((steps[:, :1] - steps[:, 1:]).mean()),
        }
        for column, key in MEASURES.items():
            if key in measured.found:
                row[column] = float(measured.found[key].values[place, 0])
        rows.append(row)
    return rows


def _median_flip(flips: Tensor) -> float:
    """Take the median of first flips [r] over random orders, -1 beyond all; NaN for never."""
    middle = float(np.median(torch.where(flips < 0, torch.inf, flips.double()).numpy()))
    return middle if np.isfinite(middle) else np.nan


def _slide(
    pooled: PooledBag, batch: AttentionBatch, found: PatchFlipping,
    minimal: MinimalFlipSet | None, label: int, path: Path,
) -> dict[str, Any]:  # fmt: skip
    prefixes = found.swept.prefixes
    exact = batch.head is None and batch.num_heads == 1
    proved = None
    if minimal is not None:  # as small as any, or there is none at all
        proved = bool(minimal.optimal[0]) or int(minimal.lower_bound[0]) < 0
    decision = int(prefixes.label[0])
    return {
        "slide_id": pooled.slide_id,
        "file": path.name,
        "bytes": path.stat().st_size,
        "n": len(pooled),
        "has_coordinates": pooled.coords is not None,
        "patch_size": pooled.patch_size,
        "label": label,
        "decision": decision,
        "probability": float(prefixes.probabilities[0, decision]),
        "status": status_names(prefixes.status)[0],
        "minimal_size": None if minimal is None else int(minimal.size[0]),
        "minimal_optimal": proved,
        "sufficient_size": int(minimal_sufficient_set(batch).size[0]) if exact else None,
    }


__all__ = ["BOUNDS", "MEASURES", "RANDOM", "TABLES", "damaged", "rows_of", "schemas"]
