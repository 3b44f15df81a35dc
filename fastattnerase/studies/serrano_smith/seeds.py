"""The runs of one model with several seeds as one run, and how its numbers differ over them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.runs import rundir
from fastattnerase.runs.progress import Report, silent, tracked
from fastattnerase.runs.records import to_json
from fastattnerase.statistics.resampled import Floats
from fastattnerase.statistics.two_level import SeedBootstrap, spread
from fastattnerase.studies.serrano_smith.aggregates import aggregate
from fastattnerase.studies.serrano_smith.columns import flips_so, fractions
from fastattnerase.studies.serrano_smith.config import (
    FORMAT,
    INTERVALS,
    KIND,
    LEAST_DIFFERENCE,
    RANKINGS,
    TABLES,
    Config,
)
from fastattnerase.studies.serrano_smith.documents import DOCUMENTS
from fastattnerase.studies.serrano_smith.instance_tables import read_columns, schemas
from fastattnerase.studies.serrano_smith.result import (
    Aggregates,
    Head,
    OverSeeds,
    Result,
    load,
)

with needs("text"):
    import pyarrow as pa
    import pyarrow.parquet as pq

COSTS = {TABLES: 1.0, INTERVALS: 3.0}
_OF_ONE_SEED = ("seed", "dev_accuracy", "best_epoch")  # what a source says of one model


def join(results: Sequence[Result], folder: Path, *, name: str, report: Report = silent) -> Result:
    """Join the runs of one model with several seeds into one run, all their instances together.

    Tables are those of the runs one after the other, with rows counted on. Statistics are over all
    instances of all seeds, intervals and levels of tests by the bootstrap of seeds and instances
    (`statistics.two_level`). Documents to look at are those of the first seed.

    Args:
        results: finished runs of a study, in the order of the seeds, of one configuration.
        folder: the run directory to write.
        name: of the model, for reports.
        report: told how far each stage of `COSTS` is.

    Returns:
        The run; its `over_seeds` says how numbers differ from seed to seed.

    Source:
        Seeds of training: the issue is N. Reimers and I. Gurevych, Reporting Score Distributions
        Makes a Difference, 2017.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.seeds import join
        >>> join([load(Path("a-0")), load(Path("a-1"))], Path("a"), name="a")  # doctest: +SKIP
    """
    first = results[0]
    state = {
        "kind": KIND,
        "format": FORMAT,
        "config": first.run.config.to_dict(),
        "source": _source(results),
    }
    if not rundir.begin(folder, state, name=name, about={"classes": first.run.classes}):
        config, sizes = first.run.config, [result.counts.analysed for result in results]
        # Runs of versions that lacked a table leave it out of what they are joined to.
        kinds = [
            (table, schema)
            for table, schema in schemas(config).items()
            if all((result.folder / f"{table}.parquet").exists() for result in results)
        ]
        for table, schema in tracked(kinds, len(kinds), TABLES, report):
            _concatenate(results, folder, table, schema)
        if (first.folder / DOCUMENTS).exists():
            shutil.copyfile(first.folder / DOCUMENTS, folder / DOCUMENTS)
        found = aggregate(
            folder, config, _head(results), first.exhibits, partial(report, INTERVALS), sizes
        )
        over = (*_over_seeds(results, config), *_skills(results, found))
        found = replace(found, over_seeds=over)
        rundir.write_json(folder / rundir.RESULT, to_json(found))
    return load(folder)


def _source(results: Sequence[Result]) -> dict[str, Any]:
    """Say of the joined run what holds for all seeds, and which they are."""
    source = dict(results[0].run.source)
    seeds = [result.run.source["seed"] for result in results]
    for key in ("model_config", "train_config"):
        if isinstance(source.get(key), dict):
            source[key] = {k: v for k, v in source[key].items() if k != "seed"}
    return {k: v for k, v in source.items() if k not in _OF_ONE_SEED} | {"seeds": seeds}


def _head(results: Sequence[Result]) -> Head:
    """Give the head that all seeds share: its classes; a bias only where it is that of all."""
    heads = {result.head for result in results}
    return heads.pop() if len(heads) == 1 else Head(results[0].head.classes, None)


def _concatenate(results: Sequence[Result], folder: Path, table: str, schema: pa.Schema) -> None:
    """Write a table of all runs, one group of rows at a time."""
    target, before = folder / f"{table}.parquet", 0
    partial_file = target.with_suffix(".partial")
    with pq.ParquetWriter(partial_file, schema, compression="zstd") as writer:
        for result in results:
            with pq.ParquetFile(result.folder / f"{table}.parquet") as file:
                for group in range(file.num_row_groups):
                    part = file.read_row_group(group, use_threads=False)
                    columns = {
                        # Runs of versions that lacked a column have nothing there.
                        name: part[name] if name in part.schema.names else pa.nulls(len(part), kind)
                        for name, kind in zip(schema.names, schema.types, strict=True)
                    }
                    columns["row"] = pa.array(part["row"].to_numpy() + before, pa.int64())
                    writer.write_table(pa.table(columns, schema=schema))
            before += result.counts.instances
    partial_file.replace(target)


# --- how numbers differ from seed to seed --------------------------------------------------------


def _over_seeds(results: Sequence[Result], config: Config) -> Iterator[OverSeeds]:
    """Describe the headline numbers over the seeds, with the interval of seeds and instances."""
    for quantity, ranking, statistic, columns in _columns(results, config):
        bootstrap = SeedBootstrap(
            [len(column) for column in columns],
            seed=config.seed,
            resamples=config.resamples,
            confidence=config.confidence,
        )
        width = max(column.shape[1] for column in columns)
        if not bootstrap.sizes or any(column.shape[1] != width for column in columns):
            continue
        estimate = bootstrap.summarise(np.concatenate(columns))[statistic]
        values = tuple(_alone(column, statistic) for column in columns)
        known = [value for value in values if value is not None]
        if known:
            yield OverSeeds(quantity, ranking, estimate, values, spread(known))


def _skills(results: Sequence[Result], found: Aggregates) -> Iterator[OverSeeds]:
    """Describe each ranking's skill over the seeds, and over all of them as `found` has it."""
    for record in found.multi:
        ranking = record.ranking
        if ranking in ("random", "minimal"):  # these are 0 and 1
            continue
        skills = (result.multi[ranking].counted.skill.overall.value for result in results)
        values = tuple(skills)
        known = [value for value in values if value is not None]
        if known:
            estimate = record.counted.skill.overall
            yield OverSeeds("skill", ranking, estimate, values, spread(known))


def _alone(column: Floats, statistic: str) -> float | None:
    """Compute a statistic of one seed's instances, `[n, K]`; None where it is undefined."""
    one = SeedBootstrap((len(column),), seed=0, resamples=1)
    return one.summarise(column)[statistic].value


def _columns(
    results: Sequence[Result], config: Config
) -> Iterator[tuple[str, str, str, list[Floats]]]:
    """Yield name, ranking and statistic of each number, and its instances by seed, `[n, K]`."""

    def of_instances(column: str) -> list[Floats]:
        tables = (result.table("instances", [column, "excluded"]) for result in results)
        return [
            table.loc[table["excluded"] == "", [column]].to_numpy(np.float64) for table in tables
        ]

    yield "accuracy", "", "mean", [_right(result) for result in results]
    yield "uniform_kl", "", "mean", of_instances("uniform_kl")
    singles = [
        read_columns(result.folder, "single",
                     ["alpha", "flip_label", "r_flip_label", "delta_js"], "attention")
        for result in results
    ]  # fmt: skip
    yield "largest_weight", "", "mean", [t[["alpha"]].to_numpy(np.float64) for t in singles]
    for ranking in (*RANKINGS, "minimal", *config.rankings):
        erased = [fractions(result, ranking) for result in results]
        yield "flips", ranking, "mean", [np.isfinite(f).astype(np.float64) for f in erased]
        # What never flips counts, as beyond every fraction.
        yield "fraction_median", ranking, "median", erased
    yield (
        "negative_delta_js",
        "attention",
        "mean",
        [
            np.asarray(t[["delta_js"]].to_numpy() < -LEAST_DIFFERENCE, dtype=np.float64)
            for t in singles
        ],
    )
    for name, top, other in (("only_top", True, False), ("only_random", False, True)):
        yield name, "attention", "mean", [flips_so(table, top, other) for table in singles]
    for ranking in ("gradient", "product"):
        yield f"{ranking}_first", ranking, "mean", [_wins(result, ranking) for result in results]


def _right(result: Result) -> Floats:
    """Say of each instance whether it is decided right, `[n, 1]`; NaN without a label."""
    table = result.table("instances", ["gold", "label"])
    right = (table["gold"] == table["label"]).to_numpy(np.float64)
    return np.where(table["gold"].isna(), np.nan, right)[:, None]


def _wins(result: Result, ranking: str) -> Floats:
    """Say where a ranking needs fewer items than attention, `[n, 1]`; NaN where neither flips."""
    first, second = (fractions(result, name)[:, :1] for name in (ranking, "attention"))
    judged = np.isfinite(first) | np.isfinite(second)
    return np.where(judged, (first < second).astype(np.float64), np.nan)
