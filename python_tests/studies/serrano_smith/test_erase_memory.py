"""The benchmark of the erase stage's memory runs and writes what it says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.long
def test_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    script = importlib.import_module("erase_memory")
    monkeypatch.setattr(script, "SMOKE_SIZES", (40,))
    monkeypatch.setattr(script, "TRAIN", 60)
    assert script.main(["--smoke", "--json", str(tmp_path / "memory.json")]) == 0
    record = json.loads((tmp_path / "memory.json").read_text())
    assert record["smoke"] is True
    [row] = record["memory"]
    assert row["instances"] == 40
    # A process with torch and pandas: more than a hundred megabytes, in bytes.
    assert row["peak_bytes"] > row["idle_bytes"] > 100_000_000
    assert row["tables_bytes"] > 0
    assert "| 40 " in capsys.readouterr().out
