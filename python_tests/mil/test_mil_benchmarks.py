"""The benchmark of slides compares before it times; the study's page says what its tables hold."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def _benchmarks_on_path() -> Iterator[None]:
    """The benchmark scripts import their neighbours, as scripts do."""
    sys.path.append(str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_flipping_and_greedy_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = load("mil")
    for name, size in (("D", 12), ("H", 6), ("A", 4)):
        monkeypatch.setattr(benchmark, name, size)
    found = benchmark.flips(200, 1)
    assert found["largest_difference"] < 1e-5
    assert found["points_of_the_engine"] == 201
    assert benchmark.greedily(20, 2, 1)["steps_of_the_engine"] == 20
    monkeypatch.setattr(benchmark, "WITHIN", 0.0)
    with pytest.raises(load("harness").Disagreement, match="probabilities differ"):
        benchmark.flips(200, 1)
    monkeypatch.setattr(benchmark.fae, "greedy_order", lambda batch: _Wrong())
    with pytest.raises(load("harness").Disagreement, match="greedy, n = 20"):
        benchmark.greedily(20, 2, 1)


class _Wrong:
    """An order by position."""

    order = torch.arange(20)


def test_the_loop_steps_by_rank() -> None:
    benchmark = load("mil")
    seen: list[int] = []

    def run(rows: torch.Tensor) -> torch.Tensor:
        seen.append(len(rows))
        return rows.sum(0)

    benchmark.flipping(run, torch.zeros(250, 2), torch.arange(250))
    assert seen == [250 - 250 * j // 100 for j in range(100)]


@pytest.mark.long
def test_a_slide_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load("mil").large(500)
    assert found["patches"] == 500
    assert 0 < found["peak_anonymous_bytes_beyond_the_start"] < 2**30


def test_committed_numbers_of_the_large_slide_keep_the_limit() -> None:
    record = json.loads((FOLDER / "results" / "mil.json").read_text(encoding="utf-8"))
    assert record["smoke"] is False
    assert (record["large"]["patches"], record["large"]["width"]) == (200_000, 1_024)
    assert record["large"]["peak_anonymous_bytes_beyond_the_start"] < 2**30
    assert [row["patches"] for row in record["flipping"]] == [1_000, 10_000]
    assert record["greedy"]["patches"] == 400


# --- the study ------------------------------------------------------------------------------------


def test_the_study_s_page_is_made_of_its_tables() -> None:
    study = load("mil_study")
    kept = {name: pd.read_csv(study.RESULTS / f"{name}.csv") for name in study.FILES}
    seeds = kept["models"]["seed"].nunique()
    assert (study.RESULTS / "README.md").read_text(encoding="utf-8") == study.readme(kept, seeds)
    assert set(kept["models"]["data"]) == {"digits", "reviews"}


def table(**rows: tuple[float, float, float]) -> pd.DataFrame:
    """Means over attention's with their intervals."""
    columns = ["over_attention", "over_low", "over_high"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def test_what_is_better_and_worse_by_the_rule() -> None:
    study = load("mil_study")
    rows = table(
        attention=(0, 0, 0), single=(0.2, 0.1, 0.3), shapley=(-0.2, -0.3, -0.1),
        product=(0.1, -0.1, 0.3), random=(-0.5, -0.6, -0.4),
    )  # fmt: skip
    told = study._beside(rows, "gain")
    assert told == "By gain, better than attention: single instances; worse: Shapley values."


def test_bags_of_digits_have_a_nine_where_they_are_positive() -> None:
    data = load("mil_study").digits(10, 6)
    for vectors, label, key in (*data.train, *data.test):
        assert 20 <= len(vectors) <= 60
        assert vectors.shape[1] == 64
        assert 0 <= vectors.min() <= vectors.max() <= 1
        assert key.any() == (label == 1)
        assert key.sum() <= 3


@pytest.mark.long
def test_the_study_at_toy_size(tmp_path: Path) -> None:
    study = load("mil_study")
    assert study.main(["--smoke", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "README.md", *(f"{name}.csv" for name in study.FILES)
    }  # fmt: skip
    measures = pd.read_csv(tmp_path / "measures.csv")
    assert {"auroc", "auprc", "symmetric_relevance_gain"} <= set(measures["measure"])
