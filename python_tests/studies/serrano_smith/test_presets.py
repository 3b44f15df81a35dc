"""The 24 models of the paper: its appendix, and what its code did, written out again here."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastattnerase.data import DataError, Vocabulary, load_corpus
from fastattnerase.models import ModelError, build_model
from fastattnerase.studies.serrano_smith.presets import MODEL_PRESETS, STYLES, corpus_config, preset

# Appendix A.1: learning rate; dropout before the sentence encoder, before the document encoder, in
# the classification layer.
APPENDIX = {
    "yahoo-han": (4e-4, 0.4445, 0.2202, 0.3749),
    "imdb-han": (4e-4, 0.4445, 0.2202, 0.2457),
    "amazon-han": (2e-4, 0.6, 0.2, 0.4),
    "yelp-han": (1e-4, 0.7, 0.1, 0.7),
    "yahoo-flan": (4e-4, 0.4445, None, 0.4457),
    "imdb-flan": (4e-4, 0.4445, None, 0.3457),
    "amazon-flan": (2e-4, 0.6, None, 0.4),
    "yelp-flan": (1e-4, 0.7, None, 0.7),
}


def test_names() -> None:
    assert len(set(MODEL_PRESETS)) == 24
    assert MODEL_PRESETS[0] == "yahoo-hanrnn"
    assert MODEL_PRESETS[-1] == "yelp-flannoenc"
    assert preset("amazon-hanconv").title == "HANconv"
    assert preset("amazon-hanconv").published_accuracy == pytest.approx(0.553)
    assert preset("yahoo-flannoenc").published_accuracy == pytest.approx(0.723)
    assert preset("yelp-flanrnn").published_accuracy == pytest.approx(0.623)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_appendix(name: str, style: str) -> None:
    found = preset(name, style=style)  # type: ignore[arg-type]
    model, train = found.model, found.train
    rate, word, sentence, output = APPENDIX[name.removesuffix(model.encoder)]
    assert name == f"{found.data_set}-{model.kind}{model.encoder}"
    assert train.learning_rate == rate
    assert model.dropout_embedding == word
    assert sentence is None or model.dropout_sentence == sentence
    assert model.dropout_output == output
    assert train.patience == (10 if model.encoder == "noenc" else 5)
    assert train.batch_size == 64
    assert model.attention == "additive"
    built = build_model(model, Vocabulary(["a"]), 5)
    assert built.embedding.embedding_dim == 200
    width = 200 if model.encoder == "noenc" else 100
    assert built.classifier.in_features == width
    assert built.words.attention.project.weight.shape == (width, width)  # type: ignore[attr-defined,union-attr]


@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_paper_style(name: str) -> None:
    found = preset(name, seed=7)
    assert found.train.clip_norm == 10.0
    assert found.train.clip_value is None
    assert found.train.lr_factor == 1.0
    assert found.train.batch_unit == "document"
    assert found.model.dropout_style == "paper"
    assert found.model.conv_dropout == 0.0
    assert found.model.embedding_max_norm is None
    assert found.model.initialisation == "plain"
    assert found.word2vec.workers == 1
    assert found.model.seed == found.train.seed == found.word2vec.seed == 7


@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_code_style(name: str) -> None:
    found = preset(name, style="code")
    model, train = found.model, found.train
    small = found.data_set in ("yahoo", "imdb")
    clamped = not small and model.encoder != "conv"
    assert (train.clip_norm, train.clip_value) == ((None, 50.0) if clamped else (10.0, None))
    assert (train.lr_factor, train.lr_patience) == (0.5, 0)
    assert train.epochs == (15 if small and model.encoder != "noenc" else 60)
    assert model.dropout_style == "code"
    assert model.conv_dropout == 0.3
    assert model.initialisation == "code"
    assert (model.embedding_max_norm == 1.0) == (name in ("yelp-hanrnn", "yelp-hannoenc"))
    assert train.batch_unit == ("sentence" if model.kind == "han" else "document")
    caps = {
        "yahoo": (1_000, 15_000),
        "imdb": (2_000, 20_000),
        "amazon": (9_000, 135_000),
        "yelp": (6_000, 90_000),
    }
    assert train.batch_tokens == caps[found.data_set][model.kind == "flan"]
    assert found.word2vec.workers == 4
    seeds = {"yahoo": (370, 972), "imdb": (370, 972), "amazon": (9, 218), "yelp": (217, 781)}
    wanted = (122, 458) if name.startswith("yahoo-han") else seeds[found.data_set]
    assert (train.seed, model.seed) == wanted


def test_unknown_names() -> None:
    with pytest.raises(ModelError, match="preset: given 'yahoo-rnn', needed one of yahoo-hanrnn, "):
        preset("yahoo-rnn")
    with pytest.raises(ModelError, match="style: given 'old'"):
        preset("yahoo-hanrnn", style="old")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="data_set: given 'sst'"):
        corpus_config("sst", ".")
    with pytest.raises(DataError, match="style: given 'old'"):
        corpus_config("imdb", ".", style="old")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="source: given 'xml', needed one of json for imdb"):
        corpus_config("imdb", ".", source="xml")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """All four corpora, tiny, some of them in two forms."""
    for folder, classes in (
        ("yahoo_answers_csv", 10),
        ("amazon_review_full_csv", 5),
        ("yelp_review_full_csv", 5),
    ):
        (tmp_path / folder).mkdir()
        rows = [f'"{i % classes + 1}","word word"\n' for i in range(300)]
        (tmp_path / folder / "train.csv").write_text("".join(rows))
        (tmp_path / folder / "test.csv.gz").write_bytes(gzip.compress("".join(rows[:20]).encode()))
    reviews = [{"rating": i % 10 + 1, "review": "word"} for i in range(400)]
    (tmp_path / "imdb").mkdir()
    (tmp_path / "imdb" / "data.json").write_text(json.dumps(reviews))
    (tmp_path / "review.json").write_text(
        "\n".join(json.dumps({"stars": float(i % 5 + 1), "text": "word"}) for i in range(50))
    )
    (tmp_path / "yahoo_l6").mkdir()
    xml = "".join(
        f"<document><subject>{i}</subject><maincat>Health</maincat></document>" for i in range(9)
    )
    (tmp_path / "yahoo_l6" / "FullOct2007.xml.part1").write_text(f"<ystfeed>{xml}")
    (tmp_path / "yahoo_l6" / "FullOct2007.xml.part2").write_text("</ystfeed>")
    return tmp_path


def test_corpora_as_the_paper_has_them(root: Path) -> None:
    for data_set in ("yahoo", "amazon", "yelp"):
        config = corpus_config(data_set, root)
        assert (config.min_count, config.length_limited, config.sentences) == (6, False, "rules")
        corpus = load_corpus(config)
        assert len(corpus.test) == 20
        assert len(corpus.train) + len(corpus.dev) == 300
        assert 15 < len(corpus.dev) < 50  # a tenth, within three standard deviations
        assert len(corpus.classes) == (10 if data_set == "yahoo" else 5)
    imdb = load_corpus(preset("imdb-flanrnn").data(root, seed=2))
    assert imdb.classes == [str(i) for i in range(1, 11)]
    assert 22 <= len(imdb.test) <= 58  # .1 of 400, within three standard deviations
    yelp = corpus_config("yelp", root, source="json")
    assert yelp.quota == (117_000, 13_000, 10_000)
    corpus = load_corpus(replace(yelp, quota=(7, 2, 1)))
    assert [len(s) for s in (corpus.train, corpus.dev, corpus.test)] == [35, 10, 5]


def test_corpora_as_the_code_had_them(root: Path) -> None:
    yahoo = corpus_config("yahoo", root, style="code")
    assert yahoo.reader == "yahoo_l6"
    assert yahoo.quota == (126_000, 14_000, 5_000)
    assert (yahoo.max_sentences, yahoo.max_sentence_tokens) == (50, 350)
    assert yahoo.limited_splits == ("train", "dev")
    assert yahoo.classes is not None
    assert len(yahoo.classes) == 10
    assert corpus_config("yahoo", root, style="code", source="csv").reader == "zhang_csv"
    amazon = corpus_config("amazon", root, style="code")
    assert (amazon.max_sentences, amazon.max_sentence_tokens) == (15, 130)
    yelp = corpus_config("yelp", root, style="code")
    assert (yelp.max_sentences, yelp.max_sentence_tokens) == (43, 200)
    assert yelp.limited_splits == amazon.limited_splits == ("train",)
    imdb = corpus_config("imdb", root, style="code")
    assert not imdb.length_limited
    for config in (yahoo, amazon, yelp, imdb):
        assert (config.min_count, config.sentences) == (5, "en_core_web_sm")


def test_missing_corpora_say_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no corpus yelp: none of yelp_review_full_csv, yelp, yelp"
    ):
        corpus_config("yelp", tmp_path)
    folder = tmp_path / "amazon_review_full_csv"
    folder.mkdir()
    (folder / "train.csv").write_text('"1","a"\n')
    with pytest.raises(DataError, match=r"amazon_review_full_csv lacks test\.csv"):
        corpus_config("amazon", tmp_path)
