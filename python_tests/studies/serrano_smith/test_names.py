"""Nothing is decided from a name: what a run is about comes from its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from studies.serrano_smith.hand_made import HandMade

from fastattnerase.studies.serrano_smith import experiment, paper_figures, records
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.findings import findings, tally
from fastattnerase.studies.serrano_smith.grid import arrange
from fastattnerase.studies.serrano_smith.presets import published_accuracy
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.summary import summarise
from fastattnerase.studies.serrano_smith.tables import paper_tables, tables

FAST = Config(resamples=5, exhibits=0)


class Own(HandMade):
    """Instances with a record of one's choice."""

    def __init__(self, rows: list[int], **about: Any) -> None:
        super().__init__(rows=rows)
        self.about = about

    def describe(self) -> dict[str, Any]:
        return super().describe() | self.about


def model(kind: str, encoder: str, **parts: str) -> dict[str, str]:
    return {"kind": kind, "encoder": encoder} | parts


def data(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "text_column": "text", "label_column": "label"} | more


# One's own models, called as `train` calls them by default, and a file of tensors.
OWN = {
    "FLANrnn on ade": {"model_config": model("flan", "rnn"), "data": data("data/ade.csv")},
    "FLANnoenc on ade": {"model_config": model("flan", "noenc"), "data": data("data/ade.csv")},
    "FLANrnn on so": {"model_config": model("flan", "rnn"), "data": data("data/so.csv")},
    "layer": {"tensors": "layer.safetensors"},
}
OF_STUDY = {
    f"{kind.upper()}{encoder} on {corpus}": {
        "corpus": corpus,
        "architecture": f"{kind.upper()}{encoder}",
        "model_config": model(kind, encoder),
        "paper": "Yahoo",
    }
    for corpus, kind, encoder in (
        ("Films", "han", "rnn"),
        ("Films", "han", "noenc"),
        ("Topics", "flan", "conv"),
        ("Topics", "flan", "noenc"),
    )
}
ROWS = ([0, 1, 2, 3, 4], [0, 1, 4], [0, 1, 2, 2], [2, 1, 3, 4])


def runs_of(sources: dict[str, dict[str, Any]], folder: Path) -> list[Result]:
    return [
        experiment.run(Own(rows, **about), FAST, folder / str(number), name=name)
        for number, (rows, (name, about)) in enumerate(zip(ROWS, sources.items(), strict=False))
    ]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    return runs_of(OWN, tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def of_study(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    return runs_of(OF_STUDY, tmp_path_factory.mktemp("study"))


# Names that say the opposite of what the runs are.
LIES = ("FLANnoenc", "HANrnn on Films", "HANconv", "FLANrnn")


def renamed(results: Sequence[Result]) -> list[Result]:
    return [
        replace(result, run=replace(result.run, name=name))
        for result, name in zip(results, LIES, strict=False)
    ]


def cells(frames: dict[str, pd.DataFrame], names: dict[str, str]) -> dict[str, list[list[Any]]]:
    """Titles and cells of tables, with other names in the place of these."""
    return {
        name: [
            [names.get(text, text) for text in map(str, row)]
            for row in (list(frame.columns), *frame.itertuples(index=False, name=None))
        ]
        for name, frame in frames.items()
    }


@pytest.mark.parametrize("which", ["own", "of_study", "one_corpus"])
def test_a_renamed_run_is_the_same_but_for_its_name(
    which: str, own: list[Result], of_study: list[Result]
) -> None:
    before = {"own": own, "of_study": of_study, "one_corpus": own[:2]}[which]
    after = renamed(before)
    names = {a.run.name: b.run.name for a, b in zip(after, before, strict=True)}
    # Where models go by name. A file of tensors that is called as a model is none of its parts.
    shown = {"own": {"FLANrnn (run)": "layer"}, "of_study": {}, "one_corpus": names}[which]
    grid, other = arrange(before), arrange(after)
    assert tuple(shown.get(m, m) for m in other.models) == grid.models
    assert other.corpora == grid.corpora
    assert tally(findings(other)) == tally(findings(grid))
    assert cells(paper_tables(other), shown) == cells(paper_tables(grid), {})
    made, expected = tables(after), tables(before)
    found = {"findings": made.pop("findings")}
    compared = {"findings": expected.pop("findings")}
    found["findings"]["model"] = [
        ", ".join(shown.get(m, m) for m in text.split(", ")) for text in found["findings"]["model"]
    ]
    assert cells(found, {}) == cells(compared, {})
    for table in made.values():
        table["model"] = table["model"].map(names)
    assert cells(made, {}) == cells(expected, {})
    for figure in ("figure-03", "figure-05", "figure-06", "figure-10"):
        assert [shown.get(m, m) for m in paper_figures.models_of(figure, other)] == list(
            paper_figures.models_of(figure, grid)
        )
    assert [text for _, text in summarise(after).models] == [
        text for _, text in summarise(before).models
    ]


def test_the_record_says_which_model_has_an_encoder(own: list[Result]) -> None:
    found = findings(arrange(own))
    with_encoder = {(f.corpus, f.model) for f in found if f.claim.startswith("With an encoder")}
    assert with_encoder == {("ade", "FLANrnn"), ("so", "FLANrnn")}  # nothing is said of tensors
    assert {f.model for f in found if f.claim.startswith("Less contextualisation")} == {
        "FLANrnn, FLANnoenc"
    }


def test_figures_show_the_models_that_they_are_about(own: list[Result]) -> None:
    grid = arrange(own)
    assert grid.models == ("FLANrnn", "FLANnoenc", "layer")
    assert paper_figures.models_of("figure-05", grid) == ("FLANrnn",)
    assert paper_figures.models_of("figure-06", grid) == ("FLANnoenc",)
    tensors = arrange(own[3:])
    assert paper_figures.models_of("figure-06", tensors) == ("layer",)


def test_each_corpus_has_its_row(own: list[Result]) -> None:
    table = paper_tables(arrange(own))["table-3"].set_index("Dataset")
    assert table.index.tolist() == ["ade", "so", "not recorded"]
    assert set(tables(own)["findings"]["corpus"]) == {"ade", "so", "not recorded"}
    # Of the labels 1, 1, 1, 0, 0; the decisions 1, 0, 1, 1, 0 are right in three.
    assert table.loc["ade", "Always the most frequent class"] == 60
    assert table.loc["ade", "FLANrnn"] == 60
    assert table.loc["so", ["FLANnoenc", "layer"]].isna().all()


def test_names_of_data_tell_them_apart(own: list[Result]) -> None:
    def of(*sources: dict[str, Any]) -> list[str]:
        runs = [replace(own[0], run=replace(own[0].run, source=source)) for source in sources]
        return records.corpora(runs)

    one = {"data": data("a/reviews.csv"), "split": "test"}
    assert of(one, one) == ["reviews"] * 2
    assert of(one, {"data": data("b/reviews.csv"), "split": "test"}) == ["a/reviews", "b/reviews"]
    assert of(one, {"data": data("a/reviews.csv", label_column="stars"), "split": "test"}) == [
        "a/reviews by label",
        "a/reviews by stars",
    ]
    other = {"data": data("a/reviews.csv", seed=1), "split": "test"}
    assert of(one, other)[1] == "a/reviews by label, test of seed 1"
    folders = {"data": {"train": "yelp/train.csv", "test": "yelp/test.csv"}, "split": "test"}
    assert of(folders, {"corpus": "reviews"}, one, {}) == [
        "yelp", "reviews (of a study)", "a/reviews", "",
    ]  # fmt: skip
    # Two files of one folder that are called after splits; where the folder is not known, the file.
    test = {"data": data("yelp/test.csv"), "split": "all rows"}
    assert of(folders) == of(test) == ["yelp"]
    assert of(folders, test) == ["yelp/train", "yelp/test"]
    assert of({"data": data("train.csv"), "split": "test"}) == ["train"]


def test_two_models_of_the_same_parts_go_by_name(own: list[Result]) -> None:
    gumbel = {"model_config": model("flan", "rnn", mechanism="gumbel"), "data": data("data/so.csv")}
    runs = [
        *own[:3],
        replace(own[0], run=replace(own[0].run, name="other seed")),
        replace(own[2], run=replace(own[2].run, name="warm", source=gumbel)),
    ]
    grid = arrange(runs)
    assert grid.models == (
        "FLANrnn on ade", "FLANrnn", "other seed", "FLANnoenc", "FLANrnn gumbel",
    )  # fmt: skip
    assert grid.cells["so", "FLANrnn"] is own[2]


def test_published_numbers_are_found_by_the_record() -> None:
    assert published_accuracy("Yahoo Answers", "han", "rnn") == 74.6
    assert published_accuracy("yelp", "flan", "noenc") == 58.2
    assert published_accuracy("yahoo", "flan", "bilstm") is None
    assert published_accuracy("Yahoo news", "han", "rnn") is None
