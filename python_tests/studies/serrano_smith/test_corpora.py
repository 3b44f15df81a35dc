"""The paper's own study, in miniature, from the corpora as they are distributed."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from studies.serrano_smith.published_corpora import write_originals
from studies.serrano_smith.test_units import Quiet

from fastattnerase.runs import schedule
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.corpora import original_study
from fastattnerase.studies.serrano_smith.result import load
from fastattnerase.studies.serrano_smith.study import MODELS
from fastattnerase.studies.serrano_smith.units import SerranoSmith

pytest.importorskip("gensim", reason="word vectors are trained")
CORPORA = ("yahoo-answers", "imdb", "amazon", "yelp")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SerranoSmith:
    """All four corpora through all five stages: each with the FLANnoenc, Yelp with the HANconv."""
    root = write_originals(tmp_path_factory.mktemp("originals") / "corpora")
    only = ("*/FLANnoenc", "yelp/HANconv")
    study = original_study(root, "paper")
    workspace = SerranoSmith(study, root, root.parent / "out", only)
    watcher = Quiet()
    schedule.run(workspace, 1, watcher)
    assert len(watcher.keys) == 4 * 2 + 5 * 2 + 1
    return workspace


@pytest.mark.long
@pytest.mark.long
def test_each_corpus_is_read_in_its_own_format(finished: SerranoSmith) -> None:
    found = {}
    for corpus in CORPORA:
        folder = finished.out / "prepare" / corpus
        config = json.loads((folder / "config.json").read_text())
        statistics = json.loads((folder / "statistics.json").read_text())
        found[corpus] = (config["reader"], len(statistics["classes"]), statistics["documents"])
    # By quota: of 30 rows a class 30 · 5,000 / 145,000 = 1 is for test, and so on.
    assert found["yahoo-answers"] == ("yahoo_l6", 10, {"train": 270, "dev": 20, "test": 10})
    assert found["yelp"] == ("yelp_json", 5, {"train": 130, "dev": 10, "test": 10})
    reader, classes, documents = found["imdb"]
    assert (reader, classes, sum(documents.values())) == ("jmars", 10, 300)
    reader, classes, documents = found["amazon"]
    assert (reader, classes, documents["test"]) == ("zhang_csv", 5, 20)
    assert documents["train"] + documents["dev"] == 150


@pytest.mark.long
@pytest.mark.long
def test_models_are_those_of_the_paper(finished: SerranoSmith) -> None:
    about = json.loads((finished.out / "train" / "yelp" / "hanconv" / "model.json").read_text())
    assert (about["model"]["embedding_size"], about["model"]["hidden_size"]) == (200, 50)
    assert about["train"]["learning_rate"] == 1e-4
    assert about["train"]["patience"] == 5
    manifest = json.loads((finished.out / "manifest.json").read_text())
    embedded = [u["numbers"] for u in manifest["units"] if u["stage"] == "embed"]
    assert all(numbers["words_with_vectors"] > 10 for numbers in embedded)
    run = load(finished.out / "erase" / "imdb" / "flannoenc")
    assert run.run.config.random_orders == 5
    # A word tells each class: without an encoder, attention finds it.
    assert run.counts.accuracy > 0.9


@pytest.mark.long
@pytest.mark.long
def test_published_numbers_stand_beside(finished: SerranoSmith) -> None:
    paper = finished.out / "report" / "paper"
    table = pd.read_csv(paper / "table-3.csv").set_index("Dataset")
    assert table.loc["Yahoo Answers (paper)", "FLANnoenc"] == 72.3
    assert table.loc["Yelp (paper)", "HANconv"] == 61.0
    first = pd.read_csv(paper / "table-1.csv").set_index("Dataset")
    assert first["# Test"].to_dict() == {
        "Yahoo Answers": 10,
        "IMDB": pytest.approx(30, abs=12),  # independent draws with .1 of 300
        "Amazon": 20,
        "Yelp": 10,
    }
    assert (paper / "figure-10.pdf").stat().st_size > 10_000


def test_the_code_style_asks_for_what_the_code_did(tmp_path: Path) -> None:
    study = original_study(write_originals(tmp_path / "corpora"), "code")
    config = study.config()
    assert (config.random_item, config.never_flips) == ("legacy", "minus_one")
    assert [corpus.name for corpus in study.corpora] == ["Yahoo Answers", "IMDB", "Amazon", "Yelp"]
    assert len(study.pairs()) == 24
    _, training = study.options(study.corpora[3], "HANrnn")
    assert (training["clip_value"], training["clip_norm"]) == (50.0, None)
    assert {model for _, model in study.pairs()} == set(MODELS)


def test_some_of_the_corpora(tmp_path: Path) -> None:
    root = write_originals(tmp_path / "corpora")
    (root / "data.json").unlink()
    names = [corpus.name for corpus in original_study(root, "paper").corpora]
    assert names == ["Yahoo Answers", "Amazon", "Yelp"]
    with pytest.raises(RunError, match=r"no corpus yahoo: none of .*; .* no corpus imdb"):
        original_study(tmp_path, "paper")
