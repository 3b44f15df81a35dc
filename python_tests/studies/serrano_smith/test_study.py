"""Studies from files: what they hold, and one clear error for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies.serrano_smith.small_study import write_small_study

from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.study import MODELS, CorpusSpec, Study, read_study, slug


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


WHOLE = "[[corpora]]\nname = 'A'\n[corpora.data]\n"
TRAINED = "[[corpora]]\nname = 'A'\nmodels = ['FLANrnn']\ndata.path = 'a'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corpora = 3 = 4", "study.toml"),
        ("name = 'x'", "has no corpora"),
        ("[[corpora]]\nname = 'A'", "data"),
        ("[[corpora]]\nname = '!'\n[corpora.data]", "letter or a digit"),
        ("speed = 1\n[[corpora]]\nname = 'A'\n[corpora.data]", "unknown 'speed'"),
        (
            "[[corpora]]\nname = 'A'\nmodels = ['HANrnn', 'HANrnn']\n[corpora.data]",
            "names HANrnn more than once; distinct names are needed",
        ),
        ("[[corpora]]\nname = 'A'\nmodels = ['LSTM']\n[corpora.data]", "HANrnn"),
        ("[[corpora]]\nname = 'A'\nrows = 0\n[corpora.data]", "rows is 0"),
        ("[[corpora]]\nname = 'A'\nlabel_pattern = '('\n[corpora.data]", "label_pattern"),
        ("[[corpora]]\nname = 'A'\nlabel_pattern = 'a'\n[corpora.data]", "needs a group"),
        ("[erase]\nseeds = 1\n[[corpora]]\nname = 'A'\n[corpora.data]", "erase: unknown 'seeds'"),
        ("corpora = 1", "corpora is 1; a list of tables is needed"),
        ("corpora = [2]", r"corpora is \[2\]; a list of tables is needed"),
        ("name = 5\n" + WHOLE, "name is 5; a text is needed"),
        ("model = 3\n" + WHOLE, "model is 3; a table is needed"),
        ("[[corpora]]\nname = 'A'\ndata = 5", r"corpora\[1\].data is 5; a table is needed"),
        ("[[corpora]]\nname = 5\n[corpora.data]", r"corpora\[1\].name is 5; a text is needed"),
        ("[[corpora]]\n[corpora.data]", r"corpora\[1\].name is missing; a text is needed"),
        (WHOLE + "path = 7", r"corpora\[1\].data.path is 7; a text is needed"),
        (WHOLE + "train = 'a'\nshuffle = true", r"corpora\[1\].data: unknown 'shuffle'; known are"),
        (WHOLE + "path = 'a'\nlower_case = 1", "data.lower_case is 1; true or false is needed"),
        (
            WHOLE + "path = 'a'\nfractions = [1, 2]",
            "data.fractions is .*; a list of 3 numbers is needed",
        ),
        (WHOLE + "path = 'a'\nmin_count = 0", r"corpora\[1\].data: min_count: given 0"),
        (WHOLE, r"corpora\[1\].data: path or train, a file of texts, is needed"),
        (TRAINED + "training.epochs = 'two'", "training.epochs is 'two'; a whole number is needed"),
        (TRAINED + "training.epochs = 2.5", "training.epochs is 2.5; a whole number is needed"),
        (TRAINED + "training.epochs = true", "training.epochs is True; a whole number is needed"),
        (
            TRAINED + "training.epochs = 0",
            "A, FLANrnn, training: epochs: given 0, needed at least 1",
        ),
        (TRAINED + "training.loss = 'max'", "training.loss is 'max'; 'mean' or 'sum' is needed"),
        (TRAINED + "model.hidden_size = 'x'", "model.hidden_size is 'x'; a whole number is needed"),
        (TRAINED + "model.dropout_output = nan", "A, FLANrnn, model: dropout_output: given nan"),
        (TRAINED + "model.attention = 'odd'", "A, FLANrnn, model: .*'odd'"),
        (
            TRAINED + "model.size = 3",
            r"corpora\[1\].model: unknown 'size'; known are kind, encoder",
        ),
        (TRAINED + "each.FLANrnn.training.epochs = ''", r"each.FLANrnn.training.epochs is ''"),
        (TRAINED + "word2vec.window = 'a'", "word2vec.window is 'a'; a whole number is needed"),
        (TRAINED + "rows = 'all'", r"corpora\[1\].rows is 'all'; a whole number is needed"),
        ("erase.random_orders = 'a'\n" + WHOLE, "erase.random_orders is 'a'; a whole number"),
        ("erase.backend = 'abacus'\n" + TRAINED, "erase.backend is 'abacus'; one that can run"),
        ("models.HANrnn = 3\n" + WHOLE, "models is .*; a table is needed"),
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
