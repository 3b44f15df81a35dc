"""`fae.explain`: a model's decisions on texts, with numbers worked out by hand."""

from __future__ import annotations

import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastattnerase as fae
from fastattnerase.data import DataConfig, Example, Vocabulary, encode
from fastattnerase.explanation.page import _heat_map
from fastattnerase.models import (
    MECHANISMS,
    AttentionClassifier,
    LoadedModel,
    ModelConfig,
    ModelError,
    build_model,
    load_model,
    save_model,
)
from fastattnerase.runs.rundir import RUN, RunError

VOCABULARY = Vocabulary(["good", "bad", "so"])
WORTH = [0.0, 2.0, -3.0, 0.5, 0.25]  # of padding, the three words, and every unknown one
CLASSES = ["no", "yes"]


def by_hand(kind: str = "flan", bias: float = 0.0) -> AttentionClassifier:
    """Make a model whose logits are 0 and the mean worth of the words (of the sentences' means)."""
    config = ModelConfig(
        kind=kind, encoder="noenc", attention="uniform", embedding_size=1, head="sigmoid"
    )
    model = build_model(config, VOCABULARY, 2)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.tensor(WORTH)[:, None])
        model.classifier.weight.fill_(1.0)
        model.classifier.bias.fill_(bias)
    return model


def loaded(kind: str = "flan", **data: Any) -> LoadedModel:
    return LoadedModel(
        by_hand(kind), VOCABULARY, CLASSES, DataConfig(path="none.csv", **data), None, {}
    )


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def test_words_of_a_flat_model() -> None:
    # Worth 2, -3, 2: a mean of 1/3. Without the first word it is -1/2, without the second 2.
    [found] = fae.explain(loaded(), ["Good bad good"])
    assert found.items == ("Good", "bad", "good")
    assert found.positions.tolist() == [0, 1, 2]
    assert found.weights == pytest.approx([1 / 3] * 3)
    assert (found.decision, found.probability) == ("yes", pytest.approx(sigmoid(1 / 3)))
    assert found.probabilities == pytest.approx({"no": 1 - sigmoid(1 / 3), "yes": sigmoid(1 / 3)})
    # All weights are alike, so that attention's order is the text's.
    assert found.flips["attention"] == (1, pytest.approx(1 / 3), "no")
    assert found.curves["attention"] == pytest.approx([sigmoid(z) for z in (1 / 3, -0.5, 2, 0)])
    assert found.smallest == (("Good",), (0,), "no")
    assert found.alone == ("no", None, "no")
    assert found.drop == pytest.approx([sigmoid(1 / 3) - sigmoid(z) for z in (-0.5, 2, -0.5)])
    assert found.rank("attention").tolist() == [1, 2, 3]
    assert found.rank("gradient").tolist() == [1, 3, 2]  # the worth decides
    assert (found.status, found.notes) == (0, ())


def test_sentences_of_a_hierarchical_model() -> None:
    # Sentences are worth 2 and -1/2: a mean of 3/4; without the first -1/2, the second 2.
    [found] = fae.explain(loaded("han"), ["Good! Bad good. "], rankings="product")
    assert found.items == ("Good!", "Bad good.")
    cut = [[["good"], ["bad", "good"]], [["good"], [], ["bad", "good"]]]
    for text, places in zip(cut, ([0, 1], [0, 2]), strict=True):
        [found] = fae.explain(loaded("han"), [text], rankings=["product"])
        assert found.items == ("good", "bad good")
        assert found.positions.tolist() == places
        assert found.probability == pytest.approx(sigmoid(0.75))
        assert found.flips == {"product": (1, 0.5, "no")}
        assert found.smallest == (("good",), (0,), "no")
        assert found.unknown.tolist() == [False, False]


def test_as_the_engine_says_of_every_kind() -> None:
    texts = ["So good a film. So bad an end!", "Bad, bad film. Good."]
    dataset = encode([Example(i, text, -1) for i, text in enumerate(texts)], VOCABULARY)
    configs = [
        ModelConfig(kind=kind, encoder=encoder, mechanism=mechanism, embedding_size=4, seed=3)
        for kind, encoder in (("flan", "rnn"), ("han", "conv"), ("sequence", "bilstm"))
        for mechanism in MECHANISMS
    ]
    for config in configs:
        model = build_model(config, VOCABULARY, 3)
        found = fae.explain(model, texts, vocabulary=VOCABULARY, rankings=("greedy", "random"))
        [batch] = model.attention_batches(dataset)
        result = fae.sweep(
            batch, ("greedy", "random"), curves=("label_prob",), orders=True, weights=True
        )
        curves = result.prefixes.curves["label_prob"]
        ends = result.prefixes.curve_offsets
        assert np.concatenate([text.weights for text in found]).tolist() == (
            result.prefixes.weights.tolist()
        )
        for b, text in enumerate(found):
            assert text.decision == str(int(result.prefixes.label[b]))
            for row, ranking in enumerate(("greedy", "random")):
                span = slice(int(ends[b]), int(ends[b + 1]))
                assert text.curves[ranking].tolist() == curves[row, span].tolist()
                assert text.flips[ranking].first == int(result.prefixes.first_flip[row, b])
            size = int(result.minimal.size[b])
            assert (0 if text.smallest is None else len(text.smallest.items)) == max(size, 0)
        items = found.to_pandas()
        assert items["position"].tolist() == batch.positions.tolist()
        assert items["js"].to_numpy() == pytest.approx(result.single.js.numpy())


@pytest.mark.parametrize(
    ("data", "items"),
    [
        ({}, ("do", "n't", "good", ".", "Bad", "so")),
        ({"sentences": "spaces"}, ("don't", "good.", "Bad", "so")),
        ({"language": "xx"}, ("don't", "good", ".", "Bad", "so")),
    ],
)
def test_texts_are_cut_as_in_training(data: dict[str, str], items: tuple[str, ...]) -> None:
    [found] = fae.explain(loaded(**data), ["don't good. Bad so"])
    assert found.items == items


def test_the_table_has_a_row_an_item() -> None:
    found = fae.explain(loaded(), ["Good bad good", "", ["so", "odd"]], rankings=["attention"])
    table = found.to_pandas()
    assert table["text"].tolist() == [0, 0, 0, 2, 2]
    assert table["position"].tolist() == [0, 1, 2, 0, 1]
    assert table["item"].tolist() == ["Good", "bad", "good", "so", "odd"]
    assert table["unknown"].tolist() == [False, False, False, False, True]
    assert table["weight"].tolist() == pytest.approx([1 / 3] * 3 + [1 / 2] * 2)
    assert table["alone"].tolist() == ["no", None, "no", None, None]
    assert table["smallest"].tolist() == [True, False, False, True, True]
    assert table["rank_attention"].tolist() == [1, 2, 3, 1, 2]
    assert len(fae.explain(loaded(), [""]).to_pandas()) == 0


def test_what_a_reader_has_to_know() -> None:
    texts = ["", "odd words", "good", [], "good bad good so"]
    nothing, odd, one, empty, long = fae.explain(loaded(max_tokens=3), texts)
    for text in (nothing, empty):
        assert text.notes == ("the text has no words: the decision is that of the bias alone",)
        assert (text.items, text.decision, text.probability) == ((), "no", 0.5)
        assert text.curves["attention"].tolist() == [0.5]
        assert text.smallest is None
        assert text.status == fae.Status.EMPTY
    assert odd.notes == ("the model knows none of the 2 words",)
    assert odd.unknown.tolist() == [True, True]
    assert one.notes == ()
    assert one.smallest == (("good",), (0,), "no")  # 0 for both classes, of nothing: the first
    assert long.notes == ("cut after 3 of 4 words, as in training",)
    assert long.positions.tolist() == [0, 1, 2]


def test_something_not_finite_is_said_and_harms_no_other_text() -> None:
    model = by_hand()
    with torch.no_grad():
        model.embedding.weight[2] = math.nan
    found = fae.explain(model, ["bad good", "good so"], vocabulary=VOCABULARY, classes=CLASSES)
    [text, other] = found
    assert text.notes == ("a state, score or weight is not finite: nothing is decided",)
    assert (text.decision, text.smallest) == (None, None)
    assert math.isnan(text.probability)
    assert text.flips["attention"].first == -1
    assert np.isnan(text.curves["attention"]).all()
    assert np.isnan(text.js).all()
    assert other.probability == pytest.approx(sigmoid(1.25))
    assert found.to_pandas()["js"].isna().tolist() == [True, True, False, False]
    assert "undecided" in repr(text)


def test_a_model_that_decides_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = by_hand()
    outputs = model.attention_outputs
    monkeypatch.setattr(
        model, "attention_outputs", lambda data: ((b, -z) for b, z in outputs(data))
    )
    [found] = fae.explain(model, ["good"], vocabulary=VOCABULARY, classes=CLASSES)
    assert found.decision == "yes"
    assert found.notes == ("the model itself decides 'no'",)


def test_a_saved_model_its_folder_and_its_run(tmp_path: Path) -> None:
    folder = tmp_path / "train" / "reviews" / "flan"
    save_model(
        folder, by_hand(), vocabulary=VOCABULARY, classes=CLASSES,
        data_config=DataConfig(path="none.csv"),
    )  # fmt: skip
    runs = [folder / "erase", tmp_path / "erase" / "reviews" / "flan"]
    for run in runs:
        run.mkdir(parents=True)
        source = {"model_config": by_hand().config.to_dict()}
        (run / RUN).write_text(json.dumps({"source": source}))
    for model in (load_model(folder), folder, str(folder), *runs):
        [found] = fae.explain(model, "Good bad good")
        assert found.probability == pytest.approx(sigmoid(1 / 3))
    other = tmp_path / "other"
    other.mkdir()
    (other / RUN).write_text((runs[0] / RUN).read_text())
    with pytest.raises(RunError, match="whose model is not in the folder above it, needed the"):
        fae.explain(other, ["good"])
    (other / RUN).write_text(json.dumps({"source": {"tensors": "layer.safetensors"}}))
    with pytest.raises(RunError, match="given a run on tensors, needed one on a model"):
        fae.explain(other, ["good"])
    with pytest.raises(ModelError, match="holds no saved model"):
        fae.explain(tmp_path, ["good"])


def test_bad_input_is_told() -> None:
    model = by_hand()
    for error, words, arguments in (
        (ValueError, "texts: given an empty list, needed at least one", (loaded(), [])),
        (TypeError, "texts: given int, needed a list", (loaded(), 3)),
        (TypeError, "texts: given None as number 1, needed a string", (loaded(), ["a", None])),
        (TypeError, r"texts: given \['a', 1\] as number 0", (loaded(), [["a", 1]])),
        (ValueError, "list of words as number 0, needed strings or", (loaded("han"), [["good"]])),
        (TypeError, "model: given int, needed what load_model returns", (3, ["good"])),
        (ValueError, "vocabulary: given none with a model object", (model, ["good"])),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            fae.explain(*arguments)
    with pytest.raises(ValueError, match="vocabulary: given with a saved model"):
        fae.explain(loaded(), ["good"], vocabulary=VOCABULARY)
    with pytest.raises(ValueError, match="vocabulary: given 1 word, needed the 3 of the model"):
        fae.explain(model, ["good"], vocabulary=Vocabulary(["good"]))
    with pytest.raises(ValueError, match="classes: given 1 name, needed 2"):
        fae.explain(model, ["good"], vocabulary=VOCABULARY, classes=["no"])
    with pytest.raises(ValueError, match="rankings: given 'best', needed one of"):
        fae.explain(loaded(), ["good"], rankings=["best"])


def test_short_forms() -> None:
    found = fae.explain(loaded(), ["Good bad good", "so"], rankings=("attention", "minimal"))
    assert repr(found) == (
        "Explanation(2 texts, 4 items: 'yes' 0.583, 'yes' 0.622; rankings attention, minimal)"
    )
    assert repr(found[0]) == (
        "TextExplanation('yes' 0.583, 3 items; flips: attention 1, minimal 1; smallest set: "
        "['Good'])"
    )
    assert len(found[1:]) == 1
    assert found[1:].rankings == found.rankings


class Notebook(types.ModuleType):
    """Stands in for IPython: keeps what is displayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("IPython")
        self.shown: list[Any] = []
        monkeypatch.setitem(sys.modules, "IPython", self)
        display = types.ModuleType("IPython.display")
        vars(display)["display"] = self.shown.append
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def get_ipython(self) -> Any:
        return self


def test_heat_maps_in_a_notebook_and_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fae.explain(
        loaded(), [["Good", "<b>", "good"], "", "odd"], rankings=("attention", "random")
    )
    shown = found._repr_html_()
    assert shown.count("<article") == 3  # the text without words, too
    assert "</span>smallest set</th>" in shown
    assert "Good" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "<li>#1: the text has no words: the decision is that of the bias alone</li>" in shown
    assert "<li>#2: the model does not know its word</li>" in shown
    assert found[1:2]._repr_html_().count("<article") == 1
    found.show(tmp_path / "found.html")
    assert shown in (tmp_path / "found.html").read_text(encoding="utf-8")
    notebook = Notebook(monkeypatch)
    found.show()
    assert notebook.shown == [found]


def test_what_a_heat_map_is_given() -> None:
    # By attention 1/3, -1/2, 2 and nothing: the decisions yes, no, yes, no (of equal logits).
    found = fae.explain(loaded(), ["Good bad good"], rankings=["attention"])
    [text] = found
    assert text.decisions["attention"] == ("yes", "no", "yes", "no")
    expected = [sigmoid(1 / 3), 1 - sigmoid(-0.5), sigmoid(2), 0.5]
    assert text.decision_curves["attention"] == pytest.approx(expected)
    attention, minimal = _heat_map(0, text, CLASSES).orders
    assert (attention.items, attention.first_flip, attention.flip_label) == ((0, 1, 2), 1, 0)
    assert attention.decisions == (1, 0, 1, 0)
    assert (minimal.ranking, minimal.items[:1], minimal.first_flip) == ("minimal", (0,), 1)
    # Without the set the decision is no, as surely as by attention, which takes the same item.
    assert minimal.decisions[1] == 0
    assert minimal.decision_probabilities[1] == pytest.approx(1 - sigmoid(-0.5))
    assert text.smallest_first.decision_curve[1] == pytest.approx(1 - sigmoid(-0.5))
    [text] = fae.explain(loaded(), ["bad"], rankings=["minimal"])
    [minimal] = _heat_map(0, text, CLASSES).orders
    assert (minimal.items, minimal.first_flip, minimal.flip_label) == ((0,), -1, -1)


def test_lines_where_there_is_no_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    fae.explain(loaded(), ["Good bad good", ""], rankings="attention").show()
    assert capsys.readouterr().out.splitlines() == [
        "#0 TextExplanation('yes' 0.583, 3 items; flips: attention 1; smallest set: ['Good'])",
        "[Good] bad good",
        "#1 TextExplanation('no' 0.500, 0 items; flips: attention never; smallest set: none)",
        "the text has no words: the decision is that of the bias alone",
    ]


def test_sentences_and_texts_of_which_nothing_is_decided_are_shown() -> None:
    assert "fae-lines" in fae.explain(loaded("han"), ["Good. Bad."])._repr_html_()
    model = by_hand()
    with torch.no_grad():
        model.embedding.weight[2] = math.inf
    shown = fae.explain(model, ["bad"], vocabulary=VOCABULARY)._repr_html_()
    assert (
        shown == "<ul><li>#0: a state, score or weight is not finite: nothing is decided</li></ul>"
    )
