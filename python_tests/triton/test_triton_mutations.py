"""The list of mutants fits the sources, and its table the list."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = (HERE / "MUTANTS.md").read_text()


def load():
    """Import `mutations.py` of this folder; there is another of that name beside the CUDA tests."""
    spec = importlib.util.spec_from_file_location("triton_mutations", HERE / "mutations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_mutant_has_one_place_in_the_sources_and_one_row_in_the_table() -> None:
    rows = [line for line in TABLE.splitlines() if line.startswith("| `")]
    assert [row.rsplit(" | ", 1)[0] for row in rows] == load().places()
    assert f"all {len(rows)};" in TABLE


def test_the_table_names_tests_that_are_there() -> None:
    killers = re.findall(r" \| killed by `(\w+)(?:\[.*\])?` \|$", TABLE, re.MULTILINE)
    assert len(killers) == TABLE.count("\n| `")
    sources = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    assert set(killers) <= set(re.findall(r"def (test_\w+)", sources))
