"""Whole tables that are written while the parts they are made of are still made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastattnerase.runs.rundir import Merging, PartialTables, RunError

SCHEMAS = {
    "words": pa.schema([("row", pa.int64()), ("word", pa.string())]),
    "rows": pa.schema([("row", pa.int64())]),
}


def part(*rows: int) -> dict[str, pa.Table]:
    words = {"row": [*rows, *rows], "word": [f"w{row}" for row in (*rows, *rows)]}
    return {
        "words": pa.table(words, schema=SCHEMAS["words"]),
        "rows": pa.table({"row": [*rows]}, schema=SCHEMAS["rows"]),
    }


def tables(folder: Path) -> PartialTables:
    return PartialTables(folder, list(SCHEMAS), {"seed": 0})


def test_parts_of_before_and_of_meanwhile_make_one_table(tmp_path: Path) -> None:
    before = tables(tmp_path)
    before.append(part(0, 1))
    before.append(part(2))
    again = tables(tmp_path)
    told: list[tuple[int, int]] = []
    with Merging(again, SCHEMAS) as merging:
        merging.go_on()
        again.append(part(3, 4, 5))
        merging.go_on()
        assert not list(tmp_path.glob("*.parquet"))  # whole or not at all
        merging.finish(lambda done, files: told.append((done, files)))
    assert pq.read_table(tmp_path / "rows.parquet")["row"].to_pylist() == [0, 1, 2, 3, 4, 5]
    words = pq.ParquetFile(tmp_path / "words.parquet")
    assert [words.read_row_group(g)["word"].to_pylist() for g in range(words.num_row_groups)] == [
        ["w0", "w1", "w0", "w1"], ["w2", "w2"], ["w3", "w4", "w5", "w3", "w4", "w5"],
    ]  # fmt: skip
    # What was copied meanwhile is counted from the first report on; each file once.
    assert [files for _, files in told] == [6] * len(told)
    assert [done for done, _ in told] == list(range(told[0][0], 7))


def test_it_is_the_same_file_as_merged_at_the_end(tmp_path: Path) -> None:
    files = []
    for name, beside in (("beside", True), ("after", False)):
        parts = tables(tmp_path / name)
        with Merging(parts, SCHEMAS) as merging:
            for rows in ((0, 1), (2, 3)):
                parts.append(part(*rows))
                if beside:
                    merging.go_on()
            merging.finish()
        files.append([(tmp_path / name / f"{table}.parquet").read_bytes() for table in SCHEMAS])
    assert files[0] == files[1]


def test_a_damaged_part_is_told_though_it_is_copied_beside(tmp_path: Path) -> None:
    parts = tables(tmp_path)
    parts.append(part(0))
    parts.file("words", 0).write_bytes(b"PAR1 of old")
    with Merging(parts, SCHEMAS) as merging:
        merging.go_on()
        with pytest.raises(RunError, match=r"words-000000\.parquet is missing or damaged"):
            merging.finish()
    assert not (tmp_path / "words.parquet").exists()


def test_what_ends_early_leaves_parts_that_are_gone_on_with(tmp_path: Path) -> None:
    parts = tables(tmp_path)
    parts.append(part(0))
    with Merging(parts, SCHEMAS) as merging:  # as Ctrl-C leaves it
        merging.go_on()
    assert not list(tmp_path.glob("*.parquet*"))
    again = tables(tmp_path)
    again.append(part(1))
    again.merge(SCHEMAS)
    assert pq.read_table(tmp_path / "rows.parquet")["row"].to_pylist() == [0, 1]
    again.discard()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "words.parquet"]


def test_without_parts_the_tables_are_empty(tmp_path: Path) -> None:
    tables(tmp_path).merge(SCHEMAS)
    assert pq.read_table(tmp_path / "words.parquet").schema == SCHEMAS["words"]
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 0
