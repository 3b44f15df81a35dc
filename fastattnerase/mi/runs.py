"""Measurements as run directories: what was measured on what, with its tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastattnerase as fae
from fastattnerase.data.kept import KEPT
from fastattnerase.mi.config import KIND, RANKING, TABLES, Config
from fastattnerase.mi.measurement import Measurement, Summary, measure
from fastattnerase.mi.nulls import repeat_measurement
from fastattnerase.plurals import are, plural
from fastattnerase.runs import rundir
from fastattnerase.runs.lock import alone
from fastattnerase.runs.progress import Report, silent
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.sources import Source
from fastattnerase.statistics.shares import disagrees

Ints = NDArray[np.int64]
REPEATS = "repeats"  # the table of repeats, which runs of the first version lack


@dataclass(frozen=True)
class Run:
    """What was measured, and where.

    Attributes:
        name: of the model, for reports.
        config: of the measurement, the fields of `Config`.
        source: what the source says of the instances.
        classes: names of the classes.
        versions: of Python and packages.
        machine: processor, cores, GPU.
    """

    name: str
    config: dict[str, Any]
    source: dict[str, Any]
    classes: tuple[str, ...]
    versions: dict[str, str]
    machine: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A finished run, read from its directory.

    Attributes:
        folder: the run directory.
        run: configuration, source, versions and machine.
        measurement: tables and summary.
    """

    folder: Path
    run: Run
    measurement: Measurement


def run(
    source: Source,
    config: Config,
    folder: Path,
    *,
    name: str,
    untrained: Source | None = None,
    report: Report = silent,
) -> Result:
    """Measure a source's instances and write everything into a run directory.

    A finished run with the same configuration and source is returned as it is; one that was
    interrupted starts again. Temporary files lie in the run directory.

    Args:
        source: the instances, as of the erasure experiments.
        config: the measurement.
        folder: the run directory; created where absent.
        name: of the model, for reports.
        untrained: the same instances under untrained attention, for that null.
        report: told how far each stage of `config.COSTS` is.

    Returns:
        The finished run: `run.json`, `result.json` and a Parquet file for each table.

    Raises:
        RunError: the directory holds a run of another kind, configuration or source, or the
            instances do not allow the measurement, or another process is writing there.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 3.2.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase import mi
        >>> result = mi.run(source, mi.Config(), Path("run"), name="sst")  # doctest: +SKIP
    """
    settings = dataclasses.asdict(config) | {"candidates": list(config.candidates)}
    state = {"kind": KIND, "config": settings, "source": source.describe()}
    with alone(folder):
        if not rundir.begin(folder, state, name=name, about={"classes": source.classes}):
            _write(source, config, folder, untrained, report)
    return load(folder)


def _write(
    source: Source, config: Config, folder: Path, untrained: Source | None, report: Report
) -> None:
    """Measure, and write the tables and the result."""

    decisions: list[Ints] = []

    def batches() -> Iterator[fae.AttentionBatch]:
        done = 0
        report(RANKING, done, len(source))
        for chunk in source.chunks(0):
            own, size = chunk.model_label, len(chunk.batch)
            decisions.append(np.full(size, -1) if own is None else own.cpu().numpy())
            yield chunk.batch
            done += size
            report(RANKING, done, len(source))

    measurement = measure(batches(), config, scratch=folder, report=report)
    summary = measurement.summary
    if notice := _not_the_model(measurement, np.concatenate(decisions)):
        summary = dataclasses.replace(summary, notices=(notice, *summary.notices))
    again = repeat_measurement(
        partial(_batches, source),
        measurement,
        config,
        untrained=None if untrained is None else partial(_batches, untrained),
        scratch=folder,
        report=report,
    )
    measurement = dataclasses.replace(measurement, repeats=again)
    for table in (*TABLES, REPEATS):
        file = folder / f"{table}.parquet"
        partial_file = file.with_suffix(".partial")
        getattr(measurement, table).to_parquet(partial_file, index=False, compression="zstd")
        partial_file.replace(file)
    rundir.write_json(folder / rundir.RESULT, to_json(summary))
    (folder / KEPT).unlink(missing_ok=True)


def _batches(source: Source) -> Iterator[fae.AttentionBatch]:
    """Stream a source's batches from the beginning."""
    return (chunk.batch for chunk in source.chunks(0))


def _not_the_model(measurement: Measurement, own: Ints) -> str:
    """Say so where the decisions measured are not the model's own, [N], -1 for unknown ones."""
    instances = measurement.instances
    own = own[instances["row"].to_numpy()]
    differ = int(((own >= 0) & (own != instances["predicted"].to_numpy())).sum())
    compared = int((own >= 0).sum())
    if not disagrees(differ, compared):
        return ""
    return (
        f"{differ:,} of {compared:,} {plural(compared, 'decision')} computed from these values, "
        f"weights and head {are(differ)} not the model's own, so the numbers are not about that "
        "model"
    )


def export(result: Result) -> list[Path]:
    """Write the tables of a finished run beside it as CSV, each file whole or not at all.

    Args:
        result: the run; `Measurement` describes the columns.

    Returns:
        The files.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase import mi
        >>> mi.export(mi.load(Path("run")))  # doctest: +SKIP
    """
    files = []
    for table in (*TABLES, REPEATS):
        content = getattr(result.measurement, table)
        if content is None:  # of the first version
            continue
        file = result.folder / f"{table}.csv"
        partial_file = file.with_suffix(".partial")
        content.to_csv(partial_file, index=False)
        partial_file.replace(file)
        files.append(file)
    return files


def load(folder: Path) -> Result:
    """Read a finished run.

    Args:
        folder: a run directory.

    Returns:
        The run with its tables.

    Raises:
        RunError: no such run, an unfinished one, or one of another kind.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase import mi
        >>> mi.load(Path("no-such-run"))
        Traceback (most recent call last):
        ...
        fastattnerase.runs.rundir.RunError: no-such-run is not a run directory: it has no \
run.json
    """
    record, found = rundir.finished(folder, kind=KIND, again="the same measurement")
    run_ = read_record(Run, record, folder / rundir.RUN)
    summary = read_record(Summary, found, folder / rundir.RESULT)
    there = [*TABLES, REPEATS] if (folder / f"{REPEATS}.parquet").exists() else TABLES
    tables = {table: rundir.read_table(folder / f"{table}.parquet") for table in there}
    return Result(folder, run_, Measurement(**tables, summary=summary))
