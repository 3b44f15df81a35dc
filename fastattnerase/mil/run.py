"""Erasing the slides of a folder: a part a slide, so that an interrupted run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastattnerase.mil.bags import open_bag
from fastattnerase.mil.errors import BagError
from fastattnerase.mil.labels import SlideLabels
from fastattnerase.mil.models import PoolModel
from fastattnerase.mil.options import COSTS, ERASING, FORMAT, INTERVALS, KIND, Options
from fastattnerase.mil.options import TABLES as WRITING
from fastattnerase.mil.slides import MEASURES, TABLES, damaged, rows_of, schemas
from fastattnerase.runs.lock import alone
from fastattnerase.runs.progress import Report, silent
from fastattnerase.runs.rundir import (
    RESULT,
    PartialTables,
    RunError,
    begin,
    finished,
    read_table,
    write_json,
)
from fastattnerase.statistics.bootstrap import Bootstrap
from fastattnerase.statistics.shares import majority

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = Any

_AGAIN = "`fastattnerase erase --bags`"


@dataclass(frozen=True)
class MilResult:
    """A finished run over slides.

    Attributes:
        folder: Where it is.
        name: Name in reports.
        about: What `run.json` says: options, what the model assumes, names of the classes, how
            many files had no label, versions and machine.
        summary: What `result.json` says: counts, accuracy, and means of the rankings with
            intervals over slides.
    """

    folder: Path
    name: str
    about: Mapping[str, Any]
    summary: Mapping[str, Any]

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by number."""
        return list(self.about["classes"])

    def table(self, name: str, columns: list[str] | None = None) -> DataFrame:
        """Read a table: `slides`, `rankings`, `curves` or `patches`.

        Raises:
            RunError: the file is missing or damaged.
        """
        return read_table(self.folder / f"{name}.parquet", columns)


def erase_slides(
    model: PoolModel,
    paths: Mapping[str, Path],
    labels: SlideLabels,
    options: Options,
    folder: Path,
    *,
    name: str,
    digest: str = "",
    coords: Path | None = None,
    report: Report = silent,
) -> MilResult:
    """Flip the patches of every labelled slide; write a run directory, or go on with it.

    Args:
        model: the trained pool.
        paths: from each slide to its file (`find_bags`).
        labels: which slides are taken, and of which class.
        options: how.
        folder: the run directory: `slides`, `rankings`, `curves` and `patches` as Parquet, and
            `result.json`.
        name: in reports.
        digest: of the model's weights; a run of another model is refused.
        coords: a folder of coordinates beside the features, a file a slide of the same name.
        report: told how far it is.

    Returns:
        A `MilResult`.

    Raises:
        BagError: a slide that cannot be read, unless `options.skip_damaged`; labels of another
            number of classes than the model has.
        RunError: the directory holds a run of something else.
    """
    if model.classes is not None:
        labels.check_classes(model.classes, model.name)
    source = blake2b(repr((digest, dict(labels.labels))).encode(), digest_size=16)
    state = {
        "kind": KIND,
        "format": FORMAT,
        "config": options.to_dict(),
        "source": {"hash": source.hexdigest()},
    }
    about = {
        "classes": _classes(labels, model),
        "model": model.name,
        "assumes": model.assumes,
        "without_label": len(paths.keys() - labels.labels.keys()),
    }
    with alone(folder):
        done_before = begin(folder, state, name=name, about=about)
        _check_unchanged(folder, paths)
        if not done_before:
            parts = PartialTables(folder, TABLES, state)
            slides = list(labels.labels.items())
            for done in range(parts.count, len(slides)):
                report(ERASING, done, len(slides))
                slide, label = slides[done]
                parts.append(_erase(model, paths, slide, label, labels.source, options, coords))
            report(ERASING, len(slides), len(slides))
            parts.merge(schemas(options), lambda done, total: report(WRITING, done, total))
            write_json(folder / RESULT, _summary(folder, options, report))
            parts.discard()
        for stage in COSTS:
            report(stage, 1, 1)
        return load(folder)


def _check_unchanged(folder: Path, paths: Mapping[str, Path]) -> None:
    """Refuse to go on where the file of a slide that is done has another size by now.

    Raises:
        RunError: naming the slide.
    """
    for table in (*sorted((folder / "parts").glob("slides-*.parquet")), folder / "slides.parquet"):
        if not table.is_file():
            continue
        done = read_table(table, ["slide_id", "bytes"]).dropna()
        for slide, size in zip(done["slide_id"], done["bytes"], strict=True):
            if slide not in paths or paths[slide].stat().st_size != size:
                raise RunError(
                    f"{folder} holds a run in which the file of {slide} had {int(size):,} bytes, "
                    "and it has others now; choose another directory (--out) or delete it"
                )


def load(folder: Path) -> MilResult:
    """Read a finished run over slides.

    Raises:
        RunError: no such run, an unfinished one, or one of another kind.
    """
    run, result = finished(folder, kind=KIND, again=_AGAIN)
    return MilResult(folder, run["name"], run, result)


def _classes(labels: SlideLabels, model: PoolModel) -> list[str]:
    """Name the classes of a model; numbers where the labels are numbers."""
    C = model.classes or 0
    return [*labels.classes, *map(str, range(len(labels.classes), C))]


def _erase(
    model: PoolModel, paths: Mapping[str, Path], slide: str, label: int, source: str,
    options: Options, coords: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """Erase one slide; one that cannot be read is a row that says why, where that is asked for."""
    try:
        if slide not in paths:
            raise BagError(f"{source}: given {slide} without a file, needed one a slide")
        beside = None
        if coords is not None:
            beside = next(iter(sorted(coords.glob(f"{_literal(slide)}.*"))), None)
            if beside is None:
                raise BagError(f"{coords}: given no file of {slide}, needed its coordinates")
        pooled = model.pool(open_bag(paths[slide], coords=beside))
        return rows_of(model, pooled, label, paths[slide], options)
    except BagError as error:
        if not options.skip_damaged:
            raise
        told = str(error)
        for folder in {Path(source).parent, *(path.parent for path in paths.values()), coords}:
            told = told.replace(f"{folder}/", "")  # a run can be sent without telling where it was
        return damaged(slide, label, told, options)


def _literal(text: str) -> str:
    """Escape what a pattern of file names would read otherwise."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _summary(folder: Path, options: Options, report: Report) -> dict[str, Any]:
    """Average over slides, with intervals."""
    slides = read_table(folder / "slides.parquet")
    good = slides[slides["damaged"].isna()]
    rankings = read_table(folder / "rankings.parquet")
    right = (good["label"] == good["decision"]).to_numpy(dtype=np.float64)
    sizes = good["minimal_size"].dropna().to_numpy(dtype=np.float64)
    share = _never_beyond(sizes, good["n"].to_numpy()[good["minimal_size"].notna()])
    proved = good["minimal_optimal"].dropna().to_numpy(dtype=np.float64)
    bootstrap = Bootstrap(seed=options.seed, resamples=options.resamples)
    found: dict[str, Any] = {
        "slides": len(slides),
        "damaged": int(slides["damaged"].notna().sum()),
        "patches": int(good["n"].sum()),
        "accuracy": float(right.mean()) if len(right) else None,
        "majority": majority(good["label"].to_numpy()),
        "near_ties": int(good["status"].str.contains("NEAR_TIE").sum()),
        "exact": bool(len(sizes)),
        "proved": float(proved.mean()) if len(proved) else None,
        "minimal": None if not len(sizes) else _middle(share),
        "rankings": {},
    }
    of_attention = rankings[rankings["ranking"] == "attention"].sort_values("slide_id")
    attention = of_attention["symmetric_relevance_gain"].to_numpy(dtype=np.float64)
    for done, ranking in enumerate(options.all_rankings):
        report(INTERVALS, done, len(options.all_rankings))
        own = rankings[rankings["ranking"] == ranking].sort_values("slide_id")
        flips = own["fraction"].to_numpy(dtype=np.float64)
        gains = own["symmetric_relevance_gain"].to_numpy(dtype=np.float64)
        found["rankings"][ranking] = {
            "flipped": float(np.isfinite(flips).mean()) if len(flips) else None,
            "fraction": _middle(np.where(np.isnan(flips), np.inf, flips)),
            "over_set": _middle(own["over_set"].to_numpy(dtype=np.float64), drop=True),
            **{
                name: bootstrap.summarise(own[name].to_numpy(dtype=np.float64))["mean"].to_json()
                for name in MEASURES
            },
            "gain_over_attention": bootstrap.summarise(gains - attention)["mean"].to_json(),
        }
    return found


def _never_beyond(sizes: Any, n: Any) -> Any:
    """Give sizes as shares of the patches, infinite where no set flips."""
    return np.where(sizes < 0, np.inf, sizes / np.maximum(n, 1))


def _middle(values: Any, drop: bool = False) -> float | None:
    """Take the median; None where it is never, or there is none."""
    values = values[np.isfinite(values)] if drop else values
    if not len(values):
        return None
    middle = float(np.median(values))
    return middle if np.isfinite(middle) else None
