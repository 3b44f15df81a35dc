"""The tables of a run, instance by instance: their columns, and reading some of these."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fastattnerase.choices import CurveName
from fastattnerase.extras import needs
from fastattnerase.studies.serrano_smith.config import ASCENDING, SINGLE_RANKINGS, Config

with needs("text"):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

_SMALL = 8 << 20  # bytes of a file whose table is kept in memory

INSTANCES = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.int64()),
        ("n", pa.int64()),
        ("gold", pa.int64()),
        ("label", pa.int64()),
        ("model_label", pa.int64()),
        ("bias_label", pa.int64()),
        ("probabilities", pa.list_(pa.float64())),
        ("logits", pa.list_(pa.float64())),
        ("uniform_kl", pa.float64()),
        ("uniform_js", pa.float64()),
        ("status", pa.int64()),
        ("excluded", pa.string()),
    ]
)
SINGLE = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("item", pa.int64()),
        ("alpha", pa.float64()),
        ("js", pa.float64()),
        ("kl", pa.float64()),
        ("flip_label", pa.int64()),
        ("r_item", pa.int64()),
        ("r_alpha", pa.float64()),
        ("r_js", pa.float64()),
        ("r_kl", pa.float64()),
        ("r_flip_label", pa.int64()),
        ("delta_alpha", pa.float64()),
        ("delta_js", pa.float64()),
        ("others_alpha", pa.float64()),
        ("others_js", pa.float64()),
        ("others_flip_share", pa.float64()),
        ("later_flip_share", pa.float64()),
        ("others_larger_share", pa.float64()),
    ]
)
ERASED = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("order", pa.int64()),
        ("place", pa.int64()),
        ("item", pa.int64()),
        ("alpha", pa.float64()),
        ("js", pa.float64()),
        ("kl", pa.float64()),
        ("flip_label", pa.int64()),
    ]
)
MULTI = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("order", pa.int64()),
        ("first_flip", pa.int64()),
        ("flip_label", pa.int64()),
        ("fraction", pa.float64()),
        ("mass", pa.float64()),
        ("gap", pa.float64()),
        ("stays_changed", pa.int64()),
    ]
)
CURVED: tuple[CurveName, ...] = ("js", "label_prob")
# Fractions of the items erased at which curves are kept: finer at both ends, where they bend.
PLACES = tuple(percent / 100 for percent in (*range(10), *range(10, 90, 5), *range(90, 101)))
CURVES = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("js_area", pa.float64()),
        ("js", pa.list_(pa.float32(), len(PLACES))),
        ("label_prob_area", pa.float64()),
        ("label_prob", pa.list_(pa.float32(), len(PLACES))),
    ]
)
# The last marks a part as complete.
SCHEMAS = {
    "multi": MULTI,
    "single": SINGLE,
    "erased": ERASED,
    "curves": CURVES,
    "instances": INSTANCES,
}


def schemas(config: Config) -> dict[str, pa.Schema]:
    """Give the tables of a run with their columns; the last marks a part as complete."""
    return ({"items": items_schema(config)} if config.items else {}) | SCHEMAS


def items_schema(config: Config) -> pa.Schema:
    """Give the columns of the table `items`; those of rankings depend on which are compared.

    `position` is the original column, `js` to `smallest` and ranks are null in instances that are
    not finite, `smallest` where several attention heads have no exact set.
    """
    ranks = [f"rank_{name}" for name in (*ranked(config), "minimal")]
    return pa.schema(
        [
            ("row", pa.int64()),
            ("id", pa.int64()),
            ("position", pa.int64()),
            ("item", pa.string()),
            ("weight", pa.float64()),
            ("js", pa.float64()),
            ("kl", pa.float64()),
            ("drop", pa.float64()),
            ("flip_label", pa.int64()),
            ("smallest", pa.bool_()),
            *((f"score_{name}", pa.float64()) for name in scored(config)),
            *((name, pa.int64()) for name in ranks),
        ]
    )


def ranked(config: Config) -> list[str]:
    """Name the orders of a run in the order of the engine's rows; several random ones by number."""
    draws = range(config.random_orders)
    random = ["random"] if config.random_orders == 1 else [f"random_{draw}" for draw in draws]
    return [*random, *SINGLE_RANKINGS, ASCENDING, *config.rankings]


def scored(config: Config) -> list[str]:
    """Name the rankings that sort by a number of each item: others choose step by step, or draw."""
    # Pages read these tables without torch.
    from fastattnerase.problem import RankingKind
    from fastattnerase.rankings import resolve
    from fastattnerase.rankings.base import ByKey

    return [
        name
        for name in (*SINGLE_RANKINGS, *config.rankings)
        if resolve(name).kind in (None, RankingKind.ATTENTION)
        or isinstance(resolve(name).order, ByKey)
    ]


def holds(folder: Path, table: str, column: str) -> bool:
    """Say whether a run has a column of a table as it is now; runs of versions before may not."""
    path = folder / f"{table}.parquet"
    if not path.is_file():
        return False
    schema = pq.read_schema(path)
    wanted = SCHEMAS[table].field(column).type
    return column in schema.names and bool(schema.field(column).type == wanted)


def read_columns(
    folder: Path, table: str, columns: list[str], ranking: str | None = None
) -> pd.DataFrame:
    """Read columns of a table, of one ranking.

    A small table is kept in memory, for rankings and columns are asked for one after another; of a
    large one no more than a part is there at a time.
    """
    path = folder / f"{table}.parquet"
    about = path.stat()
    empty = SCHEMAS[table].empty_table().select(columns)
    if about.st_size <= _SMALL:
        kept = _kept(path, about.st_mtime_ns, about.st_size)
        frame: pd.DataFrame = pa.concat_tables([empty, kept(ranking, columns)]).to_pandas()
        return frame
    parts = [empty]
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            wanted = columns if ranking is None else [*columns, "ranking"]
            part = file.read_row_group(group, wanted, use_threads=False)
            if ranking is not None:
                part = part.filter(pc.equal(part["ranking"], ranking))
            parts.append(part.select(columns))
    frame = pa.concat_tables(parts).to_pandas()
    return frame


class _Kept:
    """A table in memory, with the rows of each ranking once they were asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._of: dict[str | None, pa.Table] = {None: table}

    def __call__(self, ranking: str | None, columns: list[str]) -> pa.Table:
        """Give columns of the rows of a ranking, or of all rows."""
        if ranking not in self._of:
            every = self._of[None]
            self._of[ranking] = every.filter(pc.equal(every["ranking"], ranking))
        return self._of[ranking].select(columns)


@lru_cache(maxsize=4)
def _kept(path: Path, modified: int, size: int) -> _Kept:
    """Read a file as it was when it was last modified and of this size."""
    with pq.ParquetFile(path) as file:
        return _Kept(file.read(use_threads=False))
