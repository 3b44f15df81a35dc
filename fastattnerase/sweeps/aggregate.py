"""From the parts of a sweep to what `erase` says of a run: its records, and tables as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.runs import rundir
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.aggregates import aggregate
from fastattnerase.studies.serrano_smith.config import FORMAT, KIND, Config
from fastattnerase.studies.serrano_smith.instance_tables import SCHEMAS
from fastattnerase.studies.serrano_smith.paper_claims import over_half
from fastattnerase.studies.serrano_smith.result import Aggregates, Head, Result, Run, load
from fastattnerase.studies.serrano_smith.tables import number_tables
from fastattnerase.sweeps.aggregate_large import LargeSweep
from fastattnerase.sweeps.histograms import write_histograms, write_sample
from fastattnerase.sweeps.names import AGGREGATE, LARGE, LEAST_MEMORY
from fastattnerase.sweeps.records import (
    TABLES,
    digest_of_records,
    manifest_of,
    part_path,
    read_shards,
    read_state,
    record_path,
)
from fastattnerase.sweeps.wide import Columns, database, fill

with needs("text"):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

BOOTSTRAPPED = 50_000  # instances at most of which the bootstrap of `erase` draws the intervals
MEMORY = 1 << 30  # bytes by default


@dataclass(frozen=True)
class Swept:
    """What is known of a sweep beside its parts.

    Attributes:
        name: for reports.
        config: of the experiment.
        head: of the classifier.
        classes: names of the classes.
        source: what the instances are; goes into the record.
        instances: in all parts.
    """

    name: str
    config: Config
    head: Head
    classes: tuple[str, ...]
    source: dict[str, Any]
    instances: int


def aggregate_parts(
    parts: Sequence[Mapping[str, Path]],
    swept: Swept,
    folder: Path,
    *,
    memory: int = MEMORY,
    bootstrapped: int = BOOTSTRAPPED,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Aggregate the parts of a sweep, and write records and tables.

    Up to `bootstrapped` instances the folder becomes a run directory as `erase` writes one, by the
    same code, so that all numbers are those of `erase`, bit for bit. Of more instances DuckDB goes
    through the parts: counts, shares and quantiles are exact and the same, means but for the order
    of summation; intervals of quantiles lie between order statistics, those of shares are Wilson's,
    those of means and ratios follow from the variance over instances. Results depend on the parts
    and their order alone.

    Args:
        parts: for each part, in the order of the instances, the files of `TABLES`.
        swept: what is known beside them.
        folder: where to: `run.json`, `result.json`, `tables/*.csv`; of up to `bootstrapped`
            instances the tables as Parquet, of more `histograms.csv` and `sample.parquet`.
        memory: bytes that this process may take.
        bootstrapped: instances at most of which the bootstrap draws the intervals.
        report: told how many samples have their intervals, of how many.

    Returns:
        The records; where the bootstrap drew the intervals with tables instance by instance.

    Raises:
        ValueError: less memory than needed.
        RunError: a part is missing or damaged, or the disk is full.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.sweeps.aggregate import aggregate_parts
        >>> aggregate_parts(parts, swept, Path("out/aggregate"))  # doctest: +SKIP
    """
    if memory < LEAST_MEMORY:
        raise ValueError(
            f"memory: given {memory >> 20} MiB, needed at least {LEAST_MEMORY >> 20} MiB"
        )
    large = swept.instances > bootstrapped
    folder.mkdir(parents=True, exist_ok=True)
    (folder / rundir.RESULT).unlink(missing_ok=True)
    record = {
        "kind": LARGE if large else KIND,
        "format": FORMAT,
        "config": swept.config.to_dict(),
        "source": swept.source,
        "name": swept.name,
        "classes": list(swept.classes),
        **rundir.provenance(),
    }
    rundir.write_json(folder / rundir.RUN, record)
    if large:
        return _large(parts, swept, folder, memory)
    for table in TABLES:
        _join([part[table] for part in parts], SCHEMAS[table], folder / f"{table}.parquet")
    found = aggregate(folder, swept.config, swept.head, (), report)
    rundir.write_json(folder / rundir.RESULT, to_json(found))
    result = load(folder)
    _write_tables(result, over_half)
    return result


def aggregate_sweep(
    out: Path,
    *,
    memory: int = MEMORY,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Aggregate a sweep of which every shard is done or set aside, into its folder `aggregate`.

    Args:
        out: the folder of the sweep.
        memory: bytes that this process may take.
        report: told how many samples have their intervals, of how many.

    Returns:
        What `aggregate_parts` gives.

    Raises:
        RunError: no sweep, shards that are not done, or none that is not set aside, a part that is
            missing, damaged or of another size than its record says.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.sweeps.aggregate import aggregate_sweep
        >>> aggregate_sweep(Path("out"), memory=1 << 30)  # doctest: +SKIP
    """
    state, records = read_state(out), read_shards(out)
    manifest = manifest_of(state, records)
    if not manifest.complete:
        left = manifest.shards - manifest.done - len(manifest.aside)
        raise RunError(
            f"{out}: given a sweep of which {left} of {manifest.shards} shards are not done, "
            "needed a finished one; run the same `fastattnerase sweep` again"
        )
    if not manifest.done:
        raise RunError(
            f"{out}: given a sweep of which every shard is set aside, needed one that is done; "
            "`fastattnerase sweep --retry` does them again, once the reason is gone"
        )
    parts = []
    for record in records:
        if record.state == "done":
            parts.append({table: part_path(out, table, record.shard) for table in TABLES})
            for table, path in parts[-1].items():
                found = path.stat().st_size if path.is_file() else None
                if found != record.tables[table].bytes:
                    raise RunError(
                        f"{path}: given {'no file' if found is None else f'{found} bytes'}, needed "
                        f"the {record.tables[table].bytes} bytes that were written; delete "
                        f"{record_path(out, record.shard)} and run the same sweep again"
                    )
    swept = Swept(
        name=state.name,
        config=Config(**state.config),
        head=Head(len(state.classes), state.head_bias),
        classes=state.classes,
        source={
            "dump": state.dump,
            "near_ties": state.near_ties,
            "aside": manifest.aside,
            "engines": manifest.engines,
            "records": digest_of_records(records),
        },
        instances=manifest.instances,
    )
    return aggregate_parts(
        parts,
        swept,
        out / AGGREGATE,
        memory=memory,
        bootstrapped=BOOTSTRAPPED,
        report=report,
    )


def is_aggregated(out: Path) -> bool:
    """Say whether what `aggregate_sweep` wrote is of the records that are there now."""
    folder = out / AGGREGATE
    if not (folder / rundir.RESULT).is_file():
        return False
    try:
        source = rundir.read_json(folder / rundir.RUN).get("source")
    except (RunError, FileNotFoundError):
        return False
    digest = digest_of_records(read_shards(out))
    return isinstance(source, dict) and source.get("records") == digest


def load_aggregate(folder: Path) -> Result:
    """Read what `aggregate_parts` wrote.

    Raises:
        RunError: nothing, or something else, is there.
    """
    path = folder / rundir.RUN
    if not path.is_file() or rundir.read_json(path).get("kind") != LARGE:
        return load(folder)
    run, result = rundir.finished(folder, kind=LARGE, again="`fastattnerase sweep --aggregate`")
    found = read_record(Aggregates, result, folder / rundir.RESULT)
    return _result(folder, read_record(Run, run, path), found)


def _result(folder: Path, run: Run, found: Aggregates) -> Result:
    return Result(
        folder,
        run,
        found.counts,
        found.uniform,
        {record.ranking: record for record in found.single},
        {record.ranking: record for record in found.multi},
        {(record.first, record.second): record for record in found.pairs},
        found.head,
        found.exhibits,
    )


def _large(parts: Sequence[Mapping[str, Path]], swept: Swept, folder: Path, memory: int) -> Result:
    """Aggregate with DuckDB."""
    with needs("scale"):
        import duckdb
    try:
        with database(folder, memory) as connection:
            columns = Columns(swept.config, smallest=_knows_smallest(parts))
            fill(connection, parts, columns)
            sweep = LargeSweep(connection, parts, columns, swept.config, memory)
            found = sweep.aggregate(swept.head)
            write_histograms(connection, columns, folder / "histograms.csv")
            write_sample(connection, columns, swept.config.seed, folder / "sample.parquet")
    except duckdb.Error as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{folder}: given parts that cannot be aggregated: {reason}") from error
    rundir.write_json(folder / rundir.RESULT, to_json(found.aggregates))
    result = load_aggregate(folder)
    _write_tables(result, lambda result, ranking: found.halves[ranking])
    return result


def _knows_smallest(parts: Sequence[Mapping[str, Path]]) -> bool:
    """Say whether the parts have smallest sets; the first one with an analysed instance tells."""
    for part in parts:
        rankings = _read(part["multi"], ["ranking"])["ranking"].unique().to_pylist()
        if rankings:
            return "minimal" in rankings
    return False


def _join(files: Sequence[Path], schema: pa.Schema, target: Path) -> None:
    """Put the parts of a table together, one of them in memory at a time."""
    aside = target.with_suffix(".partial")
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with pq.ParquetWriter(aside, schema, compression="zstd", use_dictionary=texts) as writer:
        for file in files:
            writer.write_table(_read(file))
    aside.replace(target)


def _read(file: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a part, or some of its columns."""
    try:
        with pq.ParquetFile(file) as part:
            return part.read(columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:  # OSError: of damaged pages, too
        reason = " ".join(str(error).split())
        raise RunError(f"{file} is missing or damaged: {reason}") from error


def _write_tables(
    result: Result, halves: Callable[[Result, str], tuple[float | None, float | None]]
) -> None:
    """Write the tables of a report as CSV."""
    folder = result.folder / "tables"
    folder.mkdir(exist_ok=True)
    for name, rows in number_tables([result], halves).items():
        path = folder / f"{name}.csv"
        aside = path.with_suffix(".partial")
        pd.DataFrame(rows).to_csv(aside, index=False)
        aside.replace(path)
