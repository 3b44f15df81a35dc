"""The page of a large sweep, and that of a small one, which is the page of `erase`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import invoke, one_line
from report.html_page import Page
from report.layout import faults
from sweeps.drawn import CONFIG, Drawn, sweep_of

from fastattnerase.sweeps import aggregate
from fastattnerase.sweeps.aggregate import aggregate_sweep, load_aggregate
from fastattnerase.sweeps.figures import figures
from fastattnerase.sweeps.page import notices


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("large")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregate, "BOOTSTRAPPED", 0)
        sweep_of(Drawn(), replace(CONFIG, rankings=("greedy",)), out)
        aggregate_sweep(out)
    return out


def test_the_page_of_a_large_sweep_is_one_file_with_the_numbers_of_its_tables(large: Path) -> None:
    invoke("report", large, "--out", large / "page")
    page = Page((large / "page" / "report.html").read_text())
    page.loads_nothing()
    result = load_aggregate(large / "aggregate")
    counts = result.counts
    words = page.words()
    assert f"{counts.analysed:,} instances analysed" in words
    assert "without any item left out" in words
    assert "95 % intervals" in words
    pair = result.pairs["gradient", "attention"]
    assert f"Gradient, Attention{pair.judged}{pair.first_smaller}" in words
    assert "Smallest set" in words
    assert len(page.of("numbers")) == 3
    assert page.source.count("<svg") == 3
    assert not (large / "page" / "figures").exists()
    invoke("report", large, "--figures", "--out", large / "files")
    names = sorted(path.name for path in (large / "files" / "figures").iterdir())
    assert names == [
        f"{name}.{kind}" for name in ("divergences", "fractions", "gaps") for kind in ("png", "svg")
    ]
    line = one_line("report", large, large)
    assert "a sweep of more than 50,000 instances among them, needed that alone" in line


def test_figures_of_a_large_sweep_are_whole(large: Path) -> None:
    drawn = list(figures(load_aggregate(large / "aggregate")))
    assert [name for name, _, _ in drawn] == ["fractions", "gaps", "divergences"]
    for _, _, figure in drawn:
        assert faults(figure) == []
    assert "of the 459 analysed instances, drawn with seed 0" in drawn[2][1]


def test_what_a_reader_must_know_stands_first(large: Path) -> None:
    result = load_aggregate(large / "aggregate")
    [chance] = notices(result)
    assert "always deciding the most frequent class is" in chance
    source = {
        "near_ties": "contributions",
        "aside": {"shard-000001": "truncated"},
        "engines": {"cpu-avx2": 3, "cuda": 1200},
    }
    result = replace(result, run=replace(result.run, source=source))
    assert notices(result)[1:] == [
        "The dump is compact: near-ties were judged on contributions.",
        "Shards by what computed them: cpu-avx2 3, cuda 1,200; last bits may differ between these.",
        "1 shard of the dump is set aside: not in any number.",
    ]


def test_a_small_sweep_has_the_page_of_erase(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    sweep_of(Drawn(), CONFIG, out)
    assert "given a sweep without an aggregate, needed one that ended" in one_line("report", out)
    aggregate_sweep(out)
    invoke("report", out)
    page = Page((out / "report" / "report.html").read_text())
    assert "drawn" in page.words()
    assert "skill" in page.words()
    # What both pages say of the dump, as if a shard were damaged.
    path = out / "aggregate" / "run.json"
    run = json.loads(path.read_text())
    run["source"] |= {"near_ties": "contributions", "aside": {"shard-000001": "truncated"}}
    path.write_text(json.dumps(run))
    invoke("report", out)
    words = Page((out / "report" / "report.html").read_text()).words()
    assert "1 shard of the dump is set aside: not in any number." in words
    assert "The dump is compact: near-ties were judged on contributions." in words
