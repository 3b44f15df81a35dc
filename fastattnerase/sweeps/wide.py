"""One row for each analysed instance of a sweep, made of its parts one at a time, in DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from fastattnerase.extras import needs
from fastattnerase.studies.serrano_smith.config import RANKINGS, SINGLE_RANKINGS, Config

# What the process takes beside DuckDB: the interpreter, tables and values that are being sorted.
_SHARE = 0.5
_OF_MULTI = {"flip": "first_flip", "fraction": "fraction", "mass": "mass", "gap": "gap"}
_OF_SINGLE = (
    "item",
    "alpha",
    "js",
    "flip_label",
    "r_flip_label",
    "delta_alpha",
    "delta_js",
    "others_js",
    "others_flip_share",
    "later_flip_share",
    "others_larger_share",
)
_OF_INSTANCES = ("n", "label", "bias_label", "status", "uniform_kl", "uniform_js")


@contextmanager
def database(folder: Path, memory: int) -> Iterator[Any]:
    """Open a database that spills into a folder and is deleted in the end.

    Everything runs on one thread, so that sums are added up in the order of the rows and come out
    the same, bit for bit.

    Args:
        folder: where its files lie while it is open.
        memory: bytes that this process may take.
    """
    with needs("scale"):
        import duckdb

    work = folder / "aggregate.partial"
    rmtree(work, ignore_errors=True)  # of a process that was killed
    work.mkdir(parents=True)
    connection = duckdb.connect(str(work / "instances.duckdb"))
    try:
        for setting in (
            f"memory_limit='{int(memory * _SHARE)}B'",
            f"temp_directory={text(work / 'spill')}",
            "threads=1",
            "preserve_insertion_order=true",
            "enable_progress_bar=false",
        ):
            connection.execute(f"SET {setting}")
        yield connection
    finally:
        connection.close()
        rmtree(work, ignore_errors=True)


def text(value: object) -> str:
    """Write a text for SQL."""
    return "'" + str(value).replace("'", "''") + "'"


class Columns:
    """The names of the columns of the table `analysed`.

    Args:
        config: of the sweep.
        smallest: whether smallest sets are known.
    """

    def __init__(self, config: Config, smallest: bool) -> None:
        self.orders = {"random": config.random_orders}
        rankings = (*RANKINGS, *config.rankings, *(("minimal",) if smallest else ()))
        self.numbers = {ranking: number for number, ranking in enumerate(rankings)}

    def multi(self, ranking: str, column: str, order: int = 0) -> str:
        """Name a column of a ranking's order: `flip`, `fraction`, `mass` or `gap`.

        NULL is what the run's tables leave out: NaN, and negative numbers but for `flip`.
        """
        return f"m{self.numbers[ranking]}_{order}_{column}"

    def each(self, ranking: str, column: str) -> list[str]:
        """Name a column of all random orders of a ranking."""
        return [self.multi(ranking, column, order) for order in range(self.orders.get(ranking, 1))]

    @staticmethod
    def single(ranking: str, column: str) -> str:
        """Name a column of the single-weight test of a ranking."""
        return f"s{SINGLE_RANKINGS.index(ranking)}_{column}"


def fill(connection: Any, parts: Sequence[Mapping[str, Path]], columns: Columns) -> None:
    """Make the table `analysed`, a row for each analysed instance in the order of the parts.

    Args:
        connection: of `database`.
        parts: for each part the files of `instances`, `multi` and `single`.
        columns: which rankings and orders.
    """
    for number, part in enumerate(parts):
        begin = "INSERT INTO analysed" if number else "CREATE TABLE analysed AS"
        connection.execute(f"{begin} {_pivot(part, columns)}")


def _pivot(part: Mapping[str, Path], columns: Columns) -> str:
    """Write the query that turns the rows of a part into one row an instance."""
    multi, single = [], []
    for ranking in columns.numbers:
        for order, _ in enumerate(columns.each(ranking, "flip")):
            chosen = f'ranking = {text(ranking)} AND "order" = {order}'
            for name, column in _OF_MULTI.items():
                # A comparison with NaN is none of DuckDB's, where it is beyond every number.
                usable = "" if name == "flip" else f" AND NOT isnan({column}) AND {column} >= 0"
                multi.append(
                    f"max({column}) FILTER ({chosen}{usable}) AS "
                    f"{columns.multi(ranking, name, order)}"
                )
    for ranking in SINGLE_RANKINGS:
        for column in _OF_SINGLE:
            single.append(
                f"max({column}) FILTER (ranking = {text(ranking)}) AS "
                f"{columns.single(ranking, column)}"
            )
    return (
        f"SELECT i.*, m.* EXCLUDE row, s.* EXCLUDE row FROM "
        f"(SELECT row, {', '.join(_OF_INSTANCES)} FROM read_parquet({text(part['instances'])}) "
        "WHERE excluded = '') i "
        f"JOIN (SELECT row, {', '.join(multi)} FROM read_parquet({text(part['multi'])}) "
        "GROUP BY row) m USING (row) "
        f"JOIN (SELECT row, {', '.join(single)} FROM read_parquet({text(part['single'])}) "
        "GROUP BY row) s USING (row) ORDER BY row"
    )
