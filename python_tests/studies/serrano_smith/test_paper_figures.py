"""The paper's figures and tables from runs worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from studies.serrano_smith.hand_made import HandMade

from fastattnerase.report.tables import latex
from fastattnerase.studies.serrano_smith import experiment, full_figures, paper_figures
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.figures import FIGURES, panel
from fastattnerase.studies.serrano_smith.findings import findings, tally
from fastattnerase.studies.serrano_smith.grid import arrange, without_run, without_single_sentences
from fastattnerase.studies.serrano_smith.published_layout import export
from fastattnerase.studies.serrano_smith.report import build
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.tables import paper_tables, tables

FAST = Config(resamples=5, exhibits=0, random_orders=2)
STATISTICS = {
    "words_mean": 12.6,
    "words_sd": 3.2,
    "sentences_mean": 2.34,
    "sentences_sd": 1.0,
    "documents": {"train": 80, "dev": 10, "test": 8},
    "classes": ["bad", "good"],
}


class OfStudy(HandMade):
    def __init__(self, corpus: str, model: str, rows: list[int] | None = None) -> None:
        super().__init__(rows=rows)
        kind, encoder = re.fullmatch("(HAN|FLAN)([a-z]+)", model).groups()
        self.about = {
            "model_config": {"kind": kind.lower(), "encoder": encoder},
            "corpus": corpus,
            "architecture": model,
            "statistics": STATISTICS,
            "paper": "Yahoo Answers",
            "item": "sentences" if model.startswith("HAN") else "words",
        }

    def describe(self) -> dict[str, object]:
        return super().describe() | self.about


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for corpus, model, rows in (
        ("Films", "FLANnoenc", [0, 1, 2, 3, 4, 5]),
        ("Films", "HANrnn", [0, 1, 3, 4, 5, 2]),
        ("Topics", "FLANrnn", None),
    ):
        name = f"{model} on {corpus}"
        source = OfStudy(corpus, model, rows)
        made.append(experiment.run(source, FAST, folder / name, name=name))
    return made


def test_runs_by_corpus_and_model(results: list[Result]) -> None:
    grid = arrange(results)
    assert grid.corpora == ("Films", "Topics")
    assert grid.models == ("HANrnn", "FLANrnn", "FLANnoenc")  # as the paper orders them
    assert [corpus for corpus, _ in grid.row("FLANrnn")] == ["Topics"]
    assert grid.some(lambda parts: parts.kind == "han") == ("HANrnn",)
    assert grid.some(lambda parts: parts.encoder == "cnn") == grid.models  # none is one: all
    assert grid.title("Films", "HANrnn") == "Films HANrnn"
    table = pd.DataFrame({"id": [0, 1, 5, 2]})
    # Instance 5 has a single sentence; Topics has no hierarchical model to tell.
    assert without_single_sentences(grid, "Films")(table)["id"].tolist() == [0, 1, 2]
    assert len(without_single_sentences(grid, "Topics")(table)) == 4


def test_runs_of_no_study_are_models_by_name(tmp_path: Path) -> None:
    runs = [experiment.run(HandMade(), FAST, tmp_path / name, name=name) for name in ("b", "a")]
    grid = arrange(runs)
    assert (grid.corpora, grid.models) == (("",), ("b", "a"))
    assert grid.title("", "b") == "b"
    made = paper_tables(grid)
    assert made["table-1"].empty
    # No record says that both are on the same data.
    assert made["table-3"]["Dataset"].tolist() == ["not recorded"] * 2
    assert made["table-3"]["a"].isna().tolist() == [True, False]
    assert next(name for name, _ in paper_figures.figures(grid)) == "figure-03"


def test_tables_in_the_papers_form(results: list[Result]) -> None:
    made = paper_tables(arrange(results))
    assert made["table-1"].iloc[0].tolist() == ["Films", 13, 3, 2.3, 1.0, 90, 8, 2]
    assert made["table-2"]["Model"].tolist() == ["HANrnn"]
    of_han = made["table-2"].iloc[0]
    assert of_han[["both flip", "only i* flips", "only r flips", "neither"]].tolist() == [
        0.0, 40.0, 20.0, 40.0,
    ]  # fmt: skip
    assert of_han["some item flips"] == 60.0
    accuracy = made["table-3"].set_index("Dataset")
    assert accuracy.loc["Films", "HANrnn"] == pytest.approx(66.7)
    assert accuracy.loc["Yahoo Answers (paper)", "HANrnn"].tolist()[0] == 74.6
    first = made["section-5-4"].set_index(["Dataset", "Model"])
    # Gradient needs 1 where attention needs 2 in one of the five instances of several items.
    assert first.loc[("Films", "FLANnoenc"), "gradient first"] == 0.2
    assert first.loc[("Films", "FLANnoenc"), "documents"] == 5
    text = latex(made["table-3"], "%.1f")
    assert r"\toprule" in text
    assert "74.6" in text
    assert "--" in text


def test_tables_say_how_far_from_the_smallest_set(results: list[Result]) -> None:
    made = tables(results)
    assert made["multi_weight"]["gap_median"].notna().any()
    pairs = made["pairs"].set_index(["model", "first", "second"])
    assert pairs.loc[("FLANnoenc on Films", "product", "attention"), "share_optimal"] == 1
    cells = made["contingency"].set_index(["model", "ranking", "cell"])
    row = cells.loc[("FLANnoenc on Films", "attention", "same_item")]
    assert row["expected_uniform"] == pytest.approx((1 / 3 + 4 / 2) / 5)
    assert row["expected_different"] == 0
    exclusions = made["exclusions"]
    assert set(exclusions["convention"]) == {"paper and code", "paper", "code", "neither"}


def test_findings(results: list[Result]) -> None:
    found = findings(arrange(results))
    flips = [f for f in found if "i* alone flips more often" in f.claim]
    assert len(flips) == 3
    assert all(f.holds for f in flips)  # 40 % against 20 %
    assert all("40.0" in f.evidence for f in flips)
    assert {f.model for f in found if f.claim.startswith("With an encoder")} == {
        "HANrnn",
        "FLANrnn",
    }
    counted = {row["claim"]: (row["holds"], row["of"]) for row in tally(found)}
    assert counted[flips[0].claim] == (3, 3)


@pytest.mark.usefixtures("undrawn_figures")
def test_captions_name_the_models_that_are_shown(results: list[Result], tmp_path: Path) -> None:
    page = build(results[2:], tmp_path).read_text(encoding="utf-8")  # FLANrnn alone
    assert "Figure 3: ΔJS against Δα, FLANrnn, thinned" in page
    assert "Figure 6: fraction erased at the first flip, FLANrnn." in page
    assert "HANrnn" not in page.split("In the paper’s own form")[1].split("</ul>")[0]


def test_no_legend_covers_a_curve(results: list[Result]) -> None:
    for name, figure in full_figures.figures(arrange(results)):
        assert all(axes.get_legend() is None for axes in figure.axes), name
    [legend] = panel(FIGURES["gaps"], results[0]).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "Random", "Attention", "Gradient", "Product",
    ]  # fmt: skip


def test_small_differences_fill_the_density(results: list[Result]) -> None:
    class Small(Result):
        def table(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
            return (
                super().table(name, columns).assign(delta_alpha=[1e-4, 2e-4, 3e-4, 3e-4, 3e-4] * 3)
            )

    axes = Figure().subplots()
    result = results[0]
    full_figures.draw_density(axes, Small(**vars(result)))
    assert axes.get_xlim() == pytest.approx((0, 3.06e-4))
    [cells] = [c for c in axes.collections if isinstance(c, PolyCollection) and c.norm.vmin]
    assert cells.norm.vmin == 0.2  # a cell with one instance is not white
    assert cells.get_array().max() >= 1
    full_figures.draw_density(axes, result)
    assert axes.get_xlim()[1] <= 1


def test_a_model_without_run_on_a_corpus_says_so(results: list[Result]) -> None:
    grid = arrange(results)
    assert without_run(grid, ("FLANrnn", "FLANnoenc", "HANrnn")) == {
        (0, 0): ("Films", "FLANrnn"),
        (1, 1): ("Topics", "FLANnoenc"),
        (2, 1): ("Topics", "HANrnn"),
    }
    assert without_run(grid, ("FLANnoenc",)) == {}  # a panel for each run, one after another
    assert without_run(arrange(results[:2]), ("FLANnoenc", "HANrnn")) == {}  # one corpus

    drawn = dict([*full_figures.figures(grid), *paper_figures.figures(grid)])
    said = {
        name: sum(text.get_text() == "no such run" for axes in figure.axes for text in axes.texts)
        for name, figure in drawn.items()
    }
    # Figure 5 has the models with encoder, 6 those without, each a row with a place a corpus.
    assert said["figure-05"] == 2
    assert said["figure-06"] == 1
    for name in ("figure-03-density", "figure-05-curves", "figure-07", "figure-09", "figure-10"):
        assert said[name] == 3, name
    empty = {
        " ".join(axes.get_title(loc="left").split())
        for axes in drawn["figure-09"].axes
        if [text.get_text() for text in axes.texts] == ["no such run"]
    }
    assert empty == {"Films FLANrnn", "Topics FLANnoenc", "Topics HANrnn"}


def test_what_has_no_instance_says_so(tmp_path: Path) -> None:
    empty = experiment.run(HandMade(rows=[5, 6]), FAST, tmp_path, name="empty")
    grid = arrange([empty])
    drawn = dict([*full_figures.figures(grid), *paper_figures.figures(grid)])
    for name in ("figure-03-density", "figure-05-curves", "figure-09-rules", "figure-03",
                 "figure-04", "figure-10"):  # fmt: skip
        texts = [text.get_text() for text in drawn[name].axes[0].texts]
        assert "no data" in texts, name
    for draw in FIGURES.values():
        [axes] = panel(draw, empty).axes
        assert [text.get_text() for text in axes.texts] == ["no data"]


class TestThinning:
    def test_crowded_bins_keep_at_most_ten(self) -> None:
        x = np.concatenate([np.full(500, 0.1025), [0.5, 0.9]])
        y = np.linspace(0, 0.1, 502)
        shown = paper_figures.thin(x, y, 0)
        crowd = shown[shown < 500]
        assert 5 <= len(crowd) <= 10  # drawn with replacement
        assert 500 in shown
        assert 501 not in shown  # the largest y
        assert (paper_figures.thin(x, y, 0) == shown).all()

    def test_points_outside_are_left_out(self) -> None:
        x = np.array([-0.1, 0.0, 0.999, 1.0, 0.3])
        y = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
        assert paper_figures.thin(x, y, 0).tolist() == [1, 2]

    def test_nothing(self) -> None:
        assert paper_figures.thin(np.array([]), np.array([]), 0).tolist() == []


def test_bins_are_freedmans_and_diaconis_at_most_fifty() -> None:
    # Quartiles 24.75 and 74.25 of 0 … 99: width 99 / 100^⅓ = 21.33, range 99.
    assert paper_figures.bin_count(np.arange(100.0)) == 5
    skewed = np.concatenate([np.linspace(0, 0.001, 999), [1.0]])
    assert paper_figures.bin_count(skewed) == 50
    assert paper_figures.bin_count(np.zeros(16)) == 4


@pytest.mark.long
def test_everything_is_written(results: list[Result], tmp_path: Path) -> None:
    page = build(results, tmp_path).read_text(encoding="utf-8")
    for number in range(3, 14):
        for kind in ("png", "pdf"):
            assert (tmp_path / "paper" / f"figure-{number:02d}.{kind}").stat().st_size > 1000
    for number in (1, 2, 3):
        for kind in ("csv", "tex"):
            assert (tmp_path / "paper" / f"table-{number}.{kind}").exists()
    assert (tmp_path / "figures" / "figure-09-rules.pdf").exists()
    assert "Models and data sets compared" in page
    assert "Erasing i* alone flips more often than erasing r alone (4.2)" in page
    assert (tmp_path / "tables" / "pairs.tex").exists()


def test_the_layout_of_the_original_files(results: list[Result], tmp_path: Path) -> None:
    files = export(results[0], tmp_path)
    assert len(files) == 10
    made = {path.stem: pd.read_csv(path) for path in files}
    assert all(table["id"].tolist() == [1, 2, 3, 4, 5, 6] for table in made.values())
    stats = made["dec_flip_stats"]
    assert stats["seq_len"].tolist() == [3, 2, 2, 2, 2, 1]
    assert stats["needed_top"].tolist() == [1, 1, 2, 2, -1, -1]
    np.testing.assert_allclose(stats["probmass_top"], [0.5, 0.8, 1, 1, -1, -1], rtol=1e-6)
    np.testing.assert_allclose(stats["fraction_top"], [1 / 3, 0.5, 1, 1, -1, -1])
    original = made["original_results"]
    assert original["actual_label"].tolist() == [1, 1, 1, 0, 0, 1]
    assert original["orig_label_guessed"].tolist() == [1, 0, 1, 1, 0, 1]
    np.testing.assert_allclose(original["log_output_val_1"][:3], [0.6, -0.2, 0.5], atol=1e-6)
    np.testing.assert_allclose(original["ratio_1st_2nd"][:2], [5 / 3, 4], rtol=1e-6)
    half = -0.8 * np.log(0.8) - 0.2 * np.log(0.2)
    np.testing.assert_allclose(original["entropy_1st_last"][1], half, rtol=1e-6)
    np.testing.assert_allclose(original["attn_entropy"][1], half, rtol=1e-6)
    assert made["first_v_second"]["dec_flip_highest"].tolist() == [0, 1, -1, -1, -1, -1]
    assert made["random_nontop_attention"]["dec_flip"].tolist() == [-1, -1, 1, -1, -1, -1]
    assert [c for c in made["rand_samples"] if c.startswith("needed")] == ["needed_1", "needed_2"]
    assert made["gradient_stats"]["needed_gradmult"].tolist() == [1, 1, 1, 2, -1, -1]
    # Attention in ascending order, as the defect of the published code made it.
    assert made["sign_product_stats"]["needed_gradsignmult"].equals(stats["needed_bottom"])
