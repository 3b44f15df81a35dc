"""The information studies on data sets of two texts: other decoders, no adversaries."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from wen_study import run

from fastattnerase.data.presets import read_prepared
from fastattnerase.models import ModelConfig, build_model
from fastattnerase.models.fixed_attention import given_attention
from fastattnerase.models.pair import PairClassifier
from fastattnerase.models.untrained import has_parameters
from fastattnerase.runs.rundir import RunError
from fastattnerase.statistics.shares import f1
from fastattnerase.studies.wen import paper
from fastattnerase.studies.wen.models import fixed_representation
from fastattnerase.studies.wen.options import Cell, Options
from fastattnerase.studies.wen.report import build
from fastattnerase.studies.wen.tables import collect
from fastattnerase.studies.wen.units import Wen

OPTIONS = Options(
    datasets=("snli",),
    seeds=(0,),
    encoders=("bilstm",),
    attentions=("additive",),
    studies=("grid", "gumbel", "fix"),
    small_datasets=("snli",),
    decoder="query",
    embedding_size=16,
    hidden_size=16,
    pair_epochs=2,
    shuffles=20,
    kmeans_seeds=1,
    permutations=1,
    clusters=3,
    ranks=4,
)
LABELS = ("entailment", "neutral", "contradiction")
WORDS = {"entailment": "yes", "neutral": "maybe", "contradiction": "no"}


def inference(root: Path) -> Path:
    """Write pairs of sentences whose class a word of the second gives away, as SNLI's."""
    draw = random.Random(0)
    (root / "snli").mkdir()
    for split, count in (("train", 60), ("dev", 20), ("test", 40)):
        lines = []
        for index in range(count):
            label = LABELS[index % 3]
            first = " ".join(draw.choice("abcdefgh") for _ in range(draw.randint(5, 8)))
            second = f"{draw.choice('abc')} {WORDS[label]} {draw.choice('abc')}"
            row = {"gold_label": label, "sentence1": first, "sentence2": second}
            lines.append(json.dumps(row) + "\n")
        (root / "snli" / f"snli_1.0_{split}.jsonl").write_text("".join(lines))
    return root


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Wen:
    root = inference(tmp_path_factory.mktemp("root"))
    workspace = Wen(OPTIONS, root, tmp_path_factory.mktemp("out"))
    run(workspace)
    return workspace


def test_cells_of_two_texts(finished: Wen, undrawn_figures: None) -> None:
    results = finished.results()
    assert len(results) == 2 + 4 + 3  # softmax, Gumbel, fixed attention, fixed representations
    for result in results.values():
        assert result.auc is None  # of three classes
        assert 0 <= result.f1 <= 1
        for found in result.measurements.values():
            # So few steps leave some models deciding one class always.
            assert found.run is not None or "fall into one predicted class" in found.reason
    tables = collect(results, finished.options, finished.out, finished.data())
    assert [row.attention for row in tables.table_5] == ["additive (NLI)", "all (NLI)"]
    assert tables.table_5[1].paper_share == 6 / 9
    [accuracy] = tables.accuracy
    assert (accuracy.paper.needed, accuracy.paper.accuracy) == (0.5, 0.78)
    page = build(finished, finished.out / "report").read_text()
    assert "snli" in page


def test_models_and_training_of_two_texts() -> None:
    options = Options(decoder="query")
    babi = Cell("babi_1", "cnn", "additive", "softmax", "normal", 4)
    model, training = options.model(babi), options.training(babi)
    assert (model.kind, model.decoder, model.head) == ("pair", "query", "softmax")
    assert (model.hidden_size, model.attention_size, model.embedding_size) == (8, 20, 50)
    assert (training.epochs, training.batch_size, training.seed) == (100, 50, 4)
    assert (training.selection, training.loss) == ("accuracy", "mean")
    assert options.vectors_on("babi_1") is None
    with_vectors = replace(options, vectors="glove.txt")
    assert with_vectors.vectors_on("babi_1") is None
    assert with_vectors.vectors_on("snli") == "glove.txt"
    snli = Cell("snli", "bilstm", "dot", "softmax", "normal")
    assert Options().model(snli).decoder == "linear"
    assert Options(pair_epochs=7).training(snli).epochs == 7
    assert Options().training(snli).batch_size == 128


def test_what_cells_depend_on() -> None:
    one, two = (Cell(data, "mlp", "dot", "softmax", "normal") for data in ("sst", "snli"))
    assert not {"decoder", "pair_epochs"} & set(Options().used(one))
    assert Options(decoder="tanh").used(one) == Options().used(one)
    assert Options(epochs=3, selection="accuracy").used(two) == Options().used(two)
    assert Options(pair_epochs=3).used(two)["pair_epochs"] == 3
    assert Options().used(two)["pair_epochs"] == 25


def test_adversaries_are_refused() -> None:
    with pytest.raises(RunError, match="small_datasets: given snli, of two texts, with the study"):
        Options(small_datasets=("sst", "snli"))
    assert Options(datasets=("sst", "snli")).small_datasets == ("sst", "20news_sports")


def test_given_weights_are_those_of_the_table(finished: Wen) -> None:
    prepared, _ = read_prepared(finished.folder("data/snli") / "prepared")
    draw = np.random.default_rng(0)
    splits = (prepared.train, prepared.dev, prepared.test)
    table = {
        d.id: torch.from_numpy(draw.dirichlet(np.ones(len(d)))).float() for s in splits for d in s
    }
    cell = Cell("snli", "bilstm", "additive", "softmax", "attention_trained")
    model = given_attention(OPTIONS.model(cell), prepared, table)
    assert isinstance(model, PairClassifier)
    assert not model.erases_scores
    for batch in model.attention_batches(prepared.test):
        assert batch.weights is not None
        wanted = torch.cat([table[number] for number in batch.ids.tolist()])
        assert torch.equal(batch.weights, wanted)


def test_fixed_representations_keep_both_encoders(finished: Wen) -> None:
    prepared, _ = read_prepared(finished.folder("data/snli") / "prepared")
    config = replace(OPTIONS.model(Cell("snli", "bilstm", "additive", "softmax", "normal")), seed=3)
    base = build_model(config, prepared.vocabulary, 3)
    model = fixed_representation("trained", config, prepared, base)
    for name, parameter in model.named_parameters():
        decides = name.startswith(("words.attention.", "classifier.", "query_classifier."))
        assert parameter.requires_grad == decides, name
        assert decides or torch.equal(parameter, base.get_parameter(name))


def test_untrained_attention_needs_parameters(finished: Wen) -> None:
    prepared, _ = read_prepared(finished.folder("data/snli") / "prepared")
    for attention, expected in (("dot", False), ("additive", True)):
        config = ModelConfig(kind="pair", encoder="mlp", attention=attention)
        assert has_parameters(build_model(config, prepared.vocabulary, 3)) == expected
    plain = build_model(ModelConfig(attention="uniform"), prepared.vocabulary, 3)
    assert has_parameters(plain)  # its null has always been measured


def test_f1_of_several_classes() -> None:
    # Class 0: 1 of 1 found, 2 decided so: 2/3; class 1: none of 1; class 2: right.
    assert f1([0, 0, 2], [0, 1, 2], 3) == pytest.approx((2 / 3 + 0 + 1) / 3)


def test_the_papers_numbers() -> None:
    assert paper.data_set("babi_3").accuracy == 0.57
    assert paper.data_set("snli").delta_fix_attention == 0.07
    assert paper.data_set("snli").strength is None
    assert paper.GUMBEL["dot (QA)"] == 6 / 9
