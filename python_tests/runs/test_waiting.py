"""The benchmark of what one waits for runs and writes what it says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.long
def test_every_command_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    script = importlib.import_module("waiting")
    monkeypatch.setattr(script, "HELPS", 1)
    monkeypatch.setattr(script, "SMOKE_INSTANCES", 40)
    path = tmp_path / "waiting.json"
    assert script.main(["--smoke", "--json", str(path), "--name", "here"]) == 0
    cases = json.loads(path.read_text())["measured"]["here"]
    assert list(cases) == [
        "--help",
        "erase, 40 instances",
        "erase, the last of 40 instances after an interruption",
        "report, 3 runs of 20",
        "report, 4 runs of 20",
    ]
    for numbers in list(cases.values())[1:]:
        assert 0 < numbers["silence"] <= numbers["seconds"]
        assert numbers["reports"] > 10  # bars were seen
    assert "| report, 4 runs of 20 " in capsys.readouterr().out
    assert path.with_suffix(".md").read_text().startswith("| command")
