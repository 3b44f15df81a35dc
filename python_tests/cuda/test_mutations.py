"""The list of mutants fits the sources, and its table the list."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import mutations

TABLE = Path(__file__).with_name("MUTANTS.md").read_text()


def test_every_mutant_has_one_place_in_the_sources_and_one_row_in_the_table(tmp_path):
    """Instrumenting stops where a text is on no line or on several."""
    for folder in ("kernels/cuda", "csrc/include"):
        shutil.copytree(mutations.ROOT / folder, tmp_path / folder)
    found = mutations.instrument(tmp_path)
    rows = [line for line in TABLE.splitlines() if line.startswith("| `")]
    assert sorted(row.rsplit(" | ", 1)[0] for row in rows) == sorted(m.place for m in found)
    unexplained = set(mutations.EQUIVALENT) - {mutant.key for mutant in found}
    assert not unexplained, "EQUIVALENT explains what is no mutant"
    for mutant in found:
        verdict = mutations.EQUIVALENT.get(mutant.key, "killed by ")
        assert any(row.startswith(f"{mutant.place} | {verdict}") for row in rows), mutant


def test_the_table_counts_its_rows_and_names_tests_that_are_there():
    total, noticed, equivalent = map(
        int, re.search(r"(\d+) mutants: tests notice (\d+), (\d+) are equivalent", TABLE).groups()
    )
    assert total == TABLE.count("\n| `") == noticed + equivalent
    assert noticed == TABLE.count(" | killed by ")
    tests = Path(__file__).parents[1]
    sources = [Path(__file__).with_name("test_paths.py"), *(tests / "contract").glob("test_*.py")]
    known = set(re.findall(r"def (test_\w+)", "".join(path.read_text() for path in sources)))
    assert set(re.findall(r"killed by `(\w+)", TABLE)) <= known
