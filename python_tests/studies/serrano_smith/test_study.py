"""Studies from files: what they hold, and one clear error for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies.serrano_smith.small_study import write_small_study

from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.study import MODELS, CorpusSpec, Study, read_study, slug

STUDIES = Path(__file__).parents[3] / "benchmarks" / "studies"


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
    with pytest.raises(RunError, match="--only: given 'yelp'"):
        chosen("yelp")


def test_names_as_folders() -> None:
    assert slug("IMDB (8 stars)") == "imdb-8-stars"


WHOLE = "[[corpora]]\nname = 'A'\n[corpora.data]\n"
TRAINED = "[[corpora]]\nname = 'A'\nmodels = ['FLANrnn']\ndata.path = 'a'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corpora = 3 = 4", "study.toml"),
        ("name = 'x'", "corpora of study 'x': given none"),
        ("[[corpora]]\nname = 'A'", "data"),
        ("[[corpora]]\nname = '!'\n[corpora.data]", "letter or a digit"),
        (
            "speed = 1\n[[corpora]]\nname = 'A'\n[corpora.data]",
            "keys: given 'speed', needed some of name",
        ),
        (
            "[[corpora]]\nname = 'A'\nmodels = ['HANrnn', 'HANrnn']\n[corpora.data]",
            "given HANrnn more than once, needed distinct names",
        ),
        ("[[corpora]]\nname = 'A'\nmodels = ['LSTM']\n[corpora.data]", "HANrnn"),
        ("[[corpora]]\nname = 'A'\nrows = 0\n[corpora.data]", "rows of corpus 'A': given 0"),
        ("[[corpora]]\nname = 'A'\nlabel_pattern = '('\n[corpora.data]", "label_pattern"),
        (
            "[[corpora]]\nname = 'A'\nlabel_pattern = 'a'\n[corpora.data]",
            "needed a group in brackets",
        ),
        (
            "[erase]\nseeds = 1\n[[corpora]]\nname = 'A'\n[corpora.data]",
            "erase: given 'seeds', needed some of seed",
        ),
        ("corpora = 1", "corpora: given 1, needed a list of tables"),
        ("corpora = [2]", r"corpora: given \[2\], needed a list of tables"),
        ("name = 5\n" + WHOLE, "name: given 5, needed a text"),
        ("model = 3\n" + WHOLE, "model: given 3, needed a table"),
        ("[[corpora]]\nname = 'A'\ndata = 5", r"corpora\[1\].data: given 5, needed a table"),
        ("[[corpora]]\nname = 5\n[corpora.data]", r"corpora\[1\].name: given 5, needed a text"),
        ("[[corpora]]\n[corpora.data]", r"corpora\[1\].name: given nothing, needed a text"),
        (WHOLE + "path = 7", r"corpora\[1\].data.path: given 7, needed a text"),
        (
            WHOLE + "train = 'a'\nshuffle = true",
            r"corpora\[1\].data: given 'shuffle', needed some of",
        ),
        (WHOLE + "path = 'a'\nlower_case = 1", "data.lower_case: given 1, needed true or false"),
        (
            WHOLE + "path = 'a'\nfractions = [1, 2]",
            "data.fractions: given .*, needed a list of 3 numbers",
        ),
        (WHOLE + "path = 'a'\nmin_count = 0", r"corpora\[1\].data: min_count: given 0"),
        (WHOLE, r"corpora\[1\].data: given neither path nor train, needed a file"),
        (
            TRAINED + "training.epochs = 'two'",
            "training.epochs: given 'two', needed a whole number",
        ),
        (TRAINED + "training.epochs = 2.5", "training.epochs: given 2.5, needed a whole number"),
        (TRAINED + "training.epochs = true", "training.epochs: given True, needed a whole number"),
        (
            TRAINED + "training.epochs = 0",
            "A, FLANrnn, training: epochs: given 0, needed at least 1",
        ),
        (TRAINED + "training.loss = 'max'", "training.loss: given 'max', needed 'mean' or 'sum'"),
        (
            TRAINED + "model.hidden_size = 'x'",
            "model.hidden_size: given 'x', needed a whole number",
        ),
        (TRAINED + "model.dropout_output = nan", "A, FLANrnn, model: dropout_output: given nan"),
        (TRAINED + "model.attention = 'odd'", "A, FLANrnn, model: .*'odd'"),
        (
            TRAINED + "model.size = 3",
            r"corpora\[1\].model: given 'size', needed some of kind, encoder",
        ),
        (TRAINED + "each.FLANrnn.training.epochs = ''", r"each.FLANrnn.training.epochs: given ''"),
        (TRAINED + "word2vec.window = 'a'", "word2vec.window: given 'a', needed a whole number"),
        (TRAINED + "rows = 'all'", r"corpora\[1\].rows: given 'all', needed a whole number"),
        (
            "erase.random_orders = 'a'\n" + WHOLE,
            "erase.random_orders: given 'a', needed a whole number",
        ),
        (
            "erase.backend = 'abacus'\n" + TRAINED,
            "erase.backend: given 'abacus', needed one that can run",
        ),
        ("models.HANrnn = 3\n" + WHOLE, "models: given .*, needed a table"),
        (
            "[models.X.model]\n[[corpora]]\nname = 'A'\n[corpora.data]",
            "models: given 'X', needed some of HANrnn",
        ),
        ("[models.HANrnn.sizes]\n[[corpora]]\nname = 'A'\n[corpora.data]", "sizes"),
        (
            "[[corpora]]\nname = 'A'\n[corpora.data]\n[[corpora]]\nname = 'a'\n[corpora.data]",
            "needed distinct ones",
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


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_study_files_of_the_benchmarks_are_read(path: Path) -> None:
    study = read_study(path)
    assert len(study.corpora) == 3
    assert study.seeds == ((0, 1, 2, 3, 4) if path.stem == "serrano_smith_seeds" else ())
