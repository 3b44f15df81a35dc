"""The benchmark script of the measurement runs and writes what it says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("benchmark_of_mi", FOLDER / "mi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_smoke(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.SMOKE_INSTANCES, script.SMOKE_RANKS = 200, (1, 3)
    assert script.main(["--smoke", "--json", str(tmp_path / "mi.json")]) == 0
    record = json.loads((tmp_path / "mi.json").read_text())
    assert record["smoke"] is True
    assert record["time"][0]["chosen"] == 10
    assert record["time"][1]["clusters"] == "largest"
    assert [row["states_bytes"] for row in record["memory"]] == [204_800, 614_400]
    assert "200 instances, 3 ranks, width 256" in capsys.readouterr().out


def test_no_numbers_where_the_planted_rank_does_not_stand_out(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = script.stream

    def turned_round(instances: int, ranks: int):
        for batch, logits in real(instances, ranks):
            yield batch, logits.flip(0)  # the logits of other instances

    monkeypatch.setattr(script, "stream", turned_round)
    assert script.main(["--smoke"]) == 1
    assert "the planted rank does not stand out" in capsys.readouterr().err
