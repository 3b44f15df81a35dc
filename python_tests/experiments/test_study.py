"""Studies from files: what they hold, and one clear error for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from experiments.small_study import write_small_study

from fastattnerase.experiments.rundir import RunError
from fastattnerase.experiments.study import MODELS, CorpusSpec, Study, read_study, slug


def test_a_study_from_toml_and_from_json(tmp_path: Path) -> None:
    study = read_study(write_small_study(tmp_path))
    assert [corpus.slug for corpus in study.corpora] == ["films-2", "stars"]
    assert study.corpora[1].label_pattern == r"_(\d+)$"
    assert study.config().random_orders == 2
    path = tmp_path / "study.json"
    path.write_text(json.dumps(study.to_dict()))
    assert read_study(path) == study


def test_special_options_win() -> None:
    study = Study(
        "s",
        (
            CorpusSpec(
                "A",
                {"path": "a"},
                training={"epochs": 3},
                each={"HANrnn": {"training": {"epochs": 4}}},
            ),
        ),
        training={"epochs": 1, "seed": 7},
        models={"FLANconv": {"training": {"epochs": 2}, "model": {"hidden_size": 5}}},
    )
    corpus = study.corpora[0]
    assert study.options(corpus, "HANrnn")[1] == {"epochs": 4, "seed": 7}
    model, training = study.options(corpus, "FLANconv")
    assert training == {"epochs": 3, "seed": 7}
    assert model == {"kind": "flan", "encoder": "conv", "hidden_size": 5}
    assert corpus.models == MODELS


def test_only(tmp_path: Path) -> None:
    study = read_study(write_small_study(tmp_path))

    def chosen(*patterns: str) -> list[str]:
        return [f"{corpus.slug}/{model}" for corpus, model in study.pairs(patterns)]

    assert chosen() == ["films-2/FLANnoenc", "films-2/HANconv", "stars/FLANnoenc"]
    assert chosen("stars") == ["stars/FLANnoenc"]
    assert chosen("flan*") == ["films-2/FLANnoenc", "stars/FLANnoenc"]
    assert chosen("stars/*", "hanconv") == ["films-2/HANconv", "stars/FLANnoenc"]
    with pytest.raises(RunError, match="'yelp' names nothing"):
        chosen("yelp")


def test_names_as_folders() -> None:
    assert slug("IMDB (8 stars)") == "imdb-8-stars"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corpora = 3 = 4", "study.toml"),
        ("name = 'x'", "has no corpora"),
        ("[[corpora]]\nname = 'A'", "data"),
        ("[[corpora]]\nname = '!'\n[corpora.data]", "letter or a digit"),
        ("speed = 1\n[[corpora]]\nname = 'A'\n[corpora.data]", "unknown 'speed'"),
        ("[[corpora]]\nname = 'A'\nmodels = ['LSTM']\n[corpora.data]", "HANrnn"),
        ("[[corpora]]\nname = 'A'\nrows = 0\n[corpora.data]", "rows is 0"),
        ("[[corpora]]\nname = 'A'\nlabel_pattern = '('\n[corpora.data]", "label_pattern"),
        ("[[corpora]]\nname = 'A'\nlabel_pattern = 'a'\n[corpora.data]", "needs a group"),
        ("[erase]\nseeds = 1\n[[corpora]]\nname = 'A'\n[corpora.data]", "erase: .*seeds"),
        ("[models.X.model]\n[[corpora]]\nname = 'A'\n[corpora.data]", "unknown 'X'"),
        ("[models.HANrnn.sizes]\n[[corpora]]\nname = 'A'\n[corpora.data]", "sizes"),
        (
            "[[corpora]]\nname = 'A'\n[corpora.data]\n[[corpora]]\nname = 'a'\n[corpora.data]",
            "distinct names",
        ),
    ],
)
def test_mistakes(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(RunError, match=message):
        read_study(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        read_study(tmp_path / "study.toml")
