"""Every figure of the report with few and many models and names of any length: nothing is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from report.layout import faults
from studies.serrano_smith.hand_made import HandMade

from fastattnerase.report.figures import fitted
from fastattnerase.studies.serrano_smith import (
    exact_figures,
    experiment,
    figures,
    full_figures,
    paper_figures,
)
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.exact import PARTS, describe
from fastattnerase.studies.serrano_smith.grid import arrange, places
from fastattnerase.studies.serrano_smith.result import Result

NAMES = {
    "short": "m{}",
    "long": "Model {} of seven layers trained on all reviews of 2019 to 2024, with attention",
    "wide": "{}" + "W" * 90,  # the widest letter, and nowhere to break
}
CORPORA = ("Films", "Opinions of travellers, translated from forty languages", "S" * 60)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    rows = [0, 1, 2, 3, 4, 0, 1, 2]
    config = Config(resamples=10, exhibits=0, random_orders=2, rankings=("greedy",))
    return experiment.run(HandMade(rows=rows), config, tmp_path_factory.mktemp("run"), name="run")


def own_runs(run: Result, count: int, name: str) -> list[Result]:
    """Runs of no study, side by side."""
    return [replace(run, run=replace(run.run, name=name.format(n))) for n in range(count)]


def of_study(run: Result, models: int, corpora: int, name: str) -> list[Result]:
    """Runs of a study, a model on each corpus but the last of the last."""
    made = []
    for corpus in CORPORA[:corpora]:
        for number in range(models):
            about = {"corpus": corpus, "architecture": name.format(number)}
            source = run.run.source | about
            made.append(replace(run, run=replace(run.run, name=f"{about}", source=source)))
    return made[:-1]


def drawn(results: list[Result]) -> Iterator[tuple[str, Figure]]:
    """Every figure of a report, once."""
    for name, draw in figures.FIGURES.items():
        yield name, figures.side_by_side(draw, results)
        yield f"panel {name}", figures.panel(draw, results[0])
    grid, seen = arrange(results), set()
    for name, figure in (*paper_figures.figures(grid), *full_figures.figures(grid)):
        if figure not in seen:
            yield name, figure
        seen.add(figure)
    said = dict.fromkeys((result.run.name for result in results), describe(results[0]))
    for _, name, figure in exact_figures.figures(grid, said, PARTS):
        yield name, figure


def check(results: list[Result]) -> None:
    found = {name: faults(figure) for name, figure in drawn(results)}
    assert {name: told for name, told in found.items() if told} == {}


@pytest.mark.parametrize(("count", "name"), [(1, "wide"), (3, "long")])
def test_nothing_is_cut(run: Result, count: int, name: str) -> None:
    check(own_runs(run, count, NAMES[name]))


@pytest.mark.long
@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_of_any_number_of_models(run: Result, count: int, name: str) -> None:
    check(own_runs(run, count, NAMES[name]))


@pytest.mark.long
@pytest.mark.parametrize(("models", "corpora"), [(1, 2), (2, 2), (5, 3), (8, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_of_a_study(run: Result, models: int, corpora: int, name: str) -> None:
    check(of_study(run, models, corpora, NAMES[name]))


def test_two_figures_stand_side_by_side(run: Result) -> None:
    """On a page of 1280 pixels, figures of own runs are at most 7.5 inches wide."""
    grid = arrange(own_runs(run, 3, NAMES["short"]))
    for name, figure in (*paper_figures.figures(grid), *full_figures.figures(grid)):
        assert figure.get_figwidth() <= 7.5, name


def test_places(run: Result) -> None:
    """A row a model and a column a corpus; with one of either, panels follow one another."""
    several = arrange(of_study(run, 2, 2, "m{}"))
    assert places(several, several.models, 2) == (
        (2, 2),
        {(0, 0): ("Films", "m0"), (0, 1): (CORPORA[1], "m0"), (1, 0): ("Films", "m1")},
    )
    one = arrange(own_runs(run, 3, "m{}"))
    [corpus] = one.corpora
    assert places(one, one.models, 2) == (
        (2, 2),
        {(0, 0): (corpus, "m0"), (0, 1): (corpus, "m1"), (1, 0): (corpus, "m2")},
    )


def test_what_is_cut_or_covered_is_found() -> None:
    """The test of the tests: a label beyond the canvas, a legend on a panel."""
    figure = Figure(figsize=(4, 2))
    figure.subplots_adjust(left=0.3, bottom=0.3)
    axes = figure.subplots()
    axes.plot([0, 1], label="line")
    assert faults(figure) == []
    axes.set_ylabel("a label that is far too long for a figure of two inches")
    figure.legend(loc="center")
    cut, covered = faults(figure)
    assert "panel 0" in cut
    assert "top" in cut
    assert covered.startswith("panel 0 '' lies on legend")


def test_labels_are_no_wider_than_they_may_be() -> None:
    """Random names of narrow, wide and missing letters: whole words where they fit, few lines."""
    chance = random.Random(0)
    for _ in range(300):
        name = "".join(chance.choices("abW 日 i$", k=chance.randrange(60)))
        width, lines = chance.randrange(3, 30), chance.randrange(1, 4)
        written = fitted(name, width, lines).replace(r"\$", "$").split("\n")
        assert len(written) <= lines
        assert max(map(len, written)) <= width  # a letter at least for each
        assert max(sum(1.5 * (c in "W日") + (c == "i") for c in line) for line in written) <= width
    assert fitted("a model of words", 9) == "a model\nof words"
    assert fitted("W" * 8, 9).count("\n") == 1  # wide letters: six in a line of nine
