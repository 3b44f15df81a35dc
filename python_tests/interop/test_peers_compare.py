"""The benchmark that holds a transformer's measures against ferret's, on the fixture's numbers."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface.tiny import save_tiny, texts_of, tiny
from interop.peer_model import TEXTS, classifier, lines

from fastattnerase.huggingface import TransformerClassifier, TransformerConfig
from fastattnerase.interop import scores_of_tokens

FOLDER = Path(__file__).parents[2] / "benchmarks"
FERRET = Path(__file__).parent / "peers" / "ferret.json"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    sys.path.append(str(FOLDER))
    yield importlib.import_module("peers_compare")
    sys.path.remove(str(FOLDER))


def given(script: Any) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
    """Give the model, the texts, their pieces' scores and what ferret said of them."""
    theirs = json.loads(FERRET.read_text())["texts"]
    model = TransformerClassifier(*classifier(), TransformerConfig(unit="pieces"))
    dataset = texts_of(model, [row["text"].split() for row in theirs])
    explained = [row["explanations"][0] for row in theirs]
    marks = [[bool(mark) for mark in row["rationale"]] for row in theirs]
    texts = script.Texts(dataset, [row["text"] for row in theirs], marks)
    return model, texts, scores_of_tokens(explained, dataset, model.words).scores, theirs


def test_every_text_is_compared_or_explained(script: Any) -> None:
    found = script.compare(*given(script))
    # The fixture's tokenizer writes "films" as "film ##s": in the third text both pieces are left.
    for name, changed in {"comprehensiveness": (2, 1), "sufficiency": (3, 0)}.items():
        assert found[name]["equal"] == 5
        assert found[name]["read_otherwise"] == dict(zip(script.CHANGES, changed, strict=True))
        assert found[name]["largest_difference"] < 1e-5
        assert found[name]["largest_difference_of_what_was_read"] < 1e-5
    assert found["plausibility"]["equal"] == 5
    assert found["plausibility"]["undefined"] == 3


@pytest.mark.parametrize(
    ("name", "text"), [("comprehensiveness", 0), ("sufficiency", 2), ("auprc", 0), ("token_f1", 1)]
)
def test_another_number_is_no_agreement(script: Any, name: str, text: int) -> None:
    model, texts, scores, theirs = given(script)
    theirs = copy.deepcopy(theirs)
    theirs[text]["explanations"][0][name] += 0.001
    with pytest.raises(script.Disagreement, match=f"{name} of text {text}"):
        script.compare(model, texts, scores, theirs)


def test_ferret_is_given_pieces_scores_and_marks(script: Any) -> None:
    model, texts, scores, theirs = given(script)
    decisions = [row["target"] for row in theirs]
    found = script.lines_of(texts, scores, decisions)
    expected = [
        {name: line[name] for name in ("text", "scores", "rationale")}
        for line in lines(model.words.tokenizer)
    ]
    assert [line.pop("target") for line in found] == decisions
    assert found == expected
    assert len(found) == len(TEXTS)


def test_marked_are_the_largest_phrases_stronger_than_all_inside(script: Any) -> None:
    # "not good" (1) is as strong as "good" (3) inside of it: single words, of which good alone is
    # not neutral. "a great film" (4) is stronger than "great" (3), and so is marked as a whole.
    weak, strong = "(1 (2 not) (3 good))", "(4 (2 a) (3 (3 great) (2 film)))"
    assert script.marked_words(script.read_tree(weak)) == [False, True]
    tree = script.read_tree(f"(2 {weak} {strong})")
    assert [leaf.word for leaf in tree.leaves()] == ["not", "good", "a", "great", "film"]
    assert script.marked_words(tree) == [False, True, True, True, True]
    model = tiny("bert", TransformerConfig(unit="pieces"))
    texts = script.texts_of(model, [script.read_tree("(3 (2 films) (3 unbelievably))")])
    assert texts.texts == ["films unbelievably"]
    assert texts.marks == [[False, False, True, True, True]]  # film ##s un ##believ ##ably
    assert texts.offsets == [0, 5]


def test_sentences_are_drawn_evenly_from_those_with_a_label(script: Any, tmp_path: Path) -> None:
    rows = [f"({label} (2 a) (2 b{row}))" for row, label in enumerate([0, 2, 4, 1, 3])]
    (tmp_path / "test.txt").write_text("\n".join(rows) + "\n")
    found = script.sentences(tmp_path, 2)
    assert [tree.parts[1].word for tree in found] == ["b0", "b3"]
    assert len(script.sentences(tmp_path, 100)) == 4


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_captum_agrees(script: Any, family: str) -> None:
    model = tiny(family, TransformerConfig(unit="pieces"))
    dataset = texts_of(model, [["films", "unbelievably", "good"], ["dull"]])
    found = script.against_captum(model, dataset)
    assert found["texts"] == 2
    assert max(found["largest_difference"].values()) <= 1e-4


def test_times_are_medians_of_turns(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts, scores, _ = given(script)
    asked: list[Any] = []
    turns = iter([3.0, 1.0, 2.0])

    def ferret(folder: Path, path: Path, rows: Any, *options: str) -> dict[str, Any]:
        asked.append((rows, options))
        return {"seconds": dict.fromkeys(script.MEASURES, next(turns))}

    monkeypatch.setattr(script, "ferret", ferret)
    found = script.times_of(model, Path(), Path(), texts, scores, ["lines"], 3)
    assert asked == [(["lines"], ("--seconds",))] * 3
    assert list(found) == ["comprehensiveness", "sufficiency"]
    for one in found.values():
        assert one["ferret_seconds"] == 2.0
        assert one["seconds"] > 0


def test_tokenizers_that_mind_where_a_word_stands_are_refused(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_tiny("roberta", tmp_path / "m")
    with pytest.raises(SystemExit):
        script.main(["--transformer", str(folder), "--trees", str(tmp_path)])
    assert "given roberta, needed bert or distilbert" in capsys.readouterr().err
