"""ERASER's results, written and read, and what its code makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastattnerase.data import DataError, Example, Vocabulary, encode
from fastattnerase.input_erasure import erase_inputs
from fastattnerase.interop import (
    EraserRationale,
    EraserResult,
    EraserThreshold,
    eraser_results,
    read_eraser,
    write_eraser,
)
from fastattnerase.measures.aopc import aopc_comprehensiveness, aopc_sufficiency
from fastattnerase.models import ModelConfig, build_model

# A line as another program may write it, with a field that the format does not name.
THEIRS = {
    "annotation_id": "neg_1.txt",
    "rationales": [
        {
            "docid": "neg_1.txt",
            "hard_rationale_predictions": [{"start_token": 2, "end_token": 5}],
            "soft_rationale_predictions": [0.1, 0, 0.9, 0.8, 0.7],
            "soft_sentence_predictions": [1.0],
        }
    ],
    "classification": "NEG",
    "classification_scores": {"NEG": 0.9, "POS": 0.1},
    "thresholded_scores": [
        {
            "threshold": 0.2,
            "comprehensiveness_classification_scores": {"NEG": 0.4, "POS": 0.6},
            "sufficiency_classification_scores": {"NEG": 0.8, "POS": 0.2},
        }
    ],
    "tokens_to_flip": 3,
}


def test_their_line_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(THEIRS) + "\n\n")
    ours = EraserResult(
        "neg_1.txt",
        (EraserRationale("neg_1.txt", (0.1, 0, 0.9, 0.8, 0.7), ((2, 5),)),),
        "NEG",
        {"NEG": 0.9, "POS": 0.1},
        (EraserThreshold(0.2, {"NEG": 0.4, "POS": 0.6}, {"NEG": 0.8, "POS": 0.2}),),
        3,
    )
    assert read_eraser(file) == [ours]
    assert write_eraser(file, [ours, EraserResult("b", (EraserRationale("b"),))]) == 2
    written = [json.loads(line) for line in file.read_text().splitlines()]
    del THEIRS["rationales"][0]["soft_sentence_predictions"]  # type: ignore[index]
    assert written == [THEIRS, {"annotation_id": "b", "rationales": [{"docid": "b"}]}]
    assert read_eraser(file)[1] == EraserResult("b", (EraserRationale("b"),))


def test_marks_within_texts_are_no_ends_of_lines(tmp_path: Path) -> None:
    """JSON may have U+2028 and U+0085 as they are; editors of Windows write a mark ahead."""
    file = tmp_path / "results.jsonl"
    names = ["a\u2028b", "c\x85d"]
    lines = [
        json.dumps({"annotation_id": name, "rationales": []}, ensure_ascii=False) for name in names
    ]
    file.write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    assert [found.annotation_id for found in read_eraser(file)] == names


def test_what_a_method_did_as_erasers_code_reads_it(tmp_path: Path) -> None:
    """AOPC as `metrics.py` has it: the mean over thresholds of what the decision's class loses."""
    words = Vocabulary([f"w{i}" for i in range(8)])
    texts = ["w0 w1 w2 w3 w4 w5 w6", "w7 w1"]
    dataset = encode([Example(i, text, 0) for i, text in enumerate(texts)], words)
    torch.manual_seed(2)
    config = ModelConfig(kind="flan", encoder="rnn", embedding_size=4, hidden_size=3)
    model = build_model(config, words, 3)
    scores = torch.tensor([0.3, 0.1, 0.9, 0.2, 0.5, 0.4, 0.8, 0.25, 0.75])
    erased = erase_inputs(model, dataset, {"a": scores}, at="every")
    kept = erase_inputs(model, dataset, {"a": scores}, at="eraser", direction="keep")
    chosen = scores > 0.45
    made = eraser_results(
        ["a_0", "a_1"], scores, [0, 7, 9], docids=["a", "b"], chosen=chosen, erased=erased,
        kept=kept, classes=["x", "y", "z"],
    )  # fmt: skip
    write_eraser(tmp_path / "results.jsonl", made)
    found = read_eraser(tmp_path / "results.jsonl")
    assert found == made
    assert found[0].rationales[0].hard == ((2, 3), (4, 5), (6, 7))
    assert found[1].rationales[0].hard == ((1, 2),)
    for result in found:
        assert [at.threshold for at in result.thresholded_scores] == [0.01, 0.05, 0.1, 0.2, 0.5]
    for measure, curve, side in (
        (aopc_comprehensiveness, erased, "without"), (aopc_sufficiency, kept, "only"),
    ):  # fmt: skip
        drops = []
        for result in found:
            assert result.classification_scores is not None
            y = str(result.classification)
            drops.append(
                [result.classification_scores[y] - getattr(at, side)[y]
                 for at in result.thresholded_scores]
            )  # fmt: skip
        ours = measure(curve.curves["label_prob"], curve.curve_offsets)
        np.testing.assert_allclose(ours.values[0], np.mean(drops, axis=1), atol=1e-12)
    flips = [None if k < 0 else k for k in erased.first_flip[0].tolist()]
    assert [result.tokens_to_flip for result in found] == flips


def test_bad_files_are_named_by_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for line, message in (
        ("{", "line 2: given {, which is no JSON (Expecting property name"),
        ("[]", "line 2: given [], in which something is of another type (list indices must be"),
        ('{"annotation_id": "a"}', "line 2: given an object without 'rationales', needed an object "
         "of ERASER's results, {\"annotation_id\""),
        ('{"annotation_id": "a", "rationales": [{"docid": "a", "hard_rationale_predictions": '
         '[{"start_token": 2, "end_token": 2}]}]}', "line 2: given a span of (2, 2)"),
        ('{"annotation_id": "a", "rationales": [{"docid": "a", "soft_rationale_predictions": '
         "[NaN]}]}", "line 2: given soft_rationale_predictions nan, which is no finite number, n"),
        ("[" * 100_000, "line 2: given maximum recursion depth exceeded"),
        *(('{"annotation_id": "a", "rationales": [], ' + field, f"line 2: given {wrong}, needed")
          for field, wrong in (
              ('"annotation_id": 5}', "annotation_id 5, which is no text"),
              ('"rationales": ""}', "rationales '', which is no list"),
              ('"rationales": [{"docid": null}]}', "docid None, which is no text"),
              ('"rationales": [{"docid": "a", "soft_rationale_predictions": "12"}]}',
               "soft_rationale_predictions '12', which is no list"),
              ('"rationales": [{"docid": "a", "hard_rationale_predictions": '
               '[{"start_token": 0.5, "end_token": 2}]}]}', "start_token 0.5, which is no whole nu"
               "mber"),
              ('"classification": 5}', "classification 5, which is no text"),
              ('"classification_scores": {"x": NaN}}',
               "classification_scores nan, which is no finite number"),
              ('"classification_scores": {"x": "0.5"}}',
               "classification_scores '0.5', which is no finite number"),
              ('"classification_scores": {"x": 1' + "0" * 400 + "}}",
               "classification_scores 1" + "0" * 39 + ", which is no finite number"),
              ('"classification_scores": [1]}', "classification_scores [1], which is no object"),
              ('"thresholded_scores": 0}', "thresholded_scores 0, which is no list"),
              ('"thresholded_scores": [{"threshold": Infinity}]}',
               "threshold inf, which is no finite number"),
              ('"tokens_to_flip": Infinity}', "tokens_to_flip inf, which is no whole number"),
              ('"tokens_to_flip": true}', "tokens_to_flip True, which is no whole number"),
          )),
    ):  # fmt: skip
        file.write_text('{"annotation_id": "a", "rationales": []}\n' + line)
        with pytest.raises(DataError, match=re.escape(message)):
            read_eraser(file)
    with pytest.raises(DataError, match=r"none\.jsonl cannot be read"):
        read_eraser(tmp_path / "none.jsonl")


def test_bad_arguments_get_one_line(tmp_path: Path) -> None:
    row = EraserResult("a", (EraserRationale("a", (float("nan"),)),))
    with pytest.raises(ValueError, match="results: given a number that is not finite in a"):
        write_eraser(tmp_path / "results.jsonl", [row])
    tensor: Any = torch.ones(1)
    row = EraserResult("b", (EraserRationale("b", (0.5,)),), classification=tensor)
    with pytest.raises(TypeError, match=r"results: given .* in b, needed Python's numbers and te"):
        write_eraser(tmp_path / "results.jsonl", [row])
    for given, message in (
        (EraserResult("c", (EraserRationale("c", hard=((2, 2),)),)), "given a span of (2, 2) in c"),
        (EraserResult("c", (), "x", {"x": "high"}),  # type: ignore[dict-item]
         "given classification_scores 'high', which is no finite number in c, needed an object"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(f"results: {message}")):
            write_eraser(tmp_path / "results.jsonl", [given])
    with pytest.raises(TypeError, match="results: given str, needed EraserResult"):
        write_eraser(tmp_path / "results.jsonl", ["a"])  # type: ignore[list-item]
    assert not (tmp_path / "results.jsonl").exists()
    for arguments, options, message in (
        ((["a"], [1.0], [0, 2]), {}, "scores: given 1 score, needed 2, one for each word"),
        ((["a", "b"], [1.0], [0, 1]), {}, "annotation_ids, docids: given 2 and 2, needed 1"),
        ((["a"], [1.0], [0, 1]), {"chosen": [True, False]}, "chosen: given [2], needed [1]"),
        ((["a"], [1.0], [0, 1]), {"classes": ["x"]}, "erased, kept, classes: given some of them"),
        ((["a"], [[1.0]], [0, 1]), {}, "scores: given [1, 1], needed [T], those of one method"),
        ((["a"], [0.3], [0, 1]), {"chosen": [0.3]}, "chosen: given others than True and False"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            eraser_results(*arguments, **options)  # type: ignore[arg-type]


def test_what_was_erased_has_to_be_of_the_documents() -> None:
    def found(texts: int, direction: Any, *rankings: str) -> Any:
        words = Vocabulary(["good", "film"])
        model = build_model(ModelConfig(encoder="mlp", embedding_size=2), words, 2)
        dataset = encode([Example(i, "good film", 0) for i in range(texts)], words)
        scores = torch.zeros(2 * texts)
        return erase_inputs(model, dataset, dict.fromkeys(rankings, scores), direction=direction)

    erased, kept = found(1, "erase", "mine"), found(1, "keep", "mine")
    given: dict[str, Any] = {"erased": erased, "kept": kept, "classes": ["x", "y"]}
    [result] = eraser_results(["a"], [1.0, 0.0], [0, 2], **given)
    assert result.classification_scores is not None
    assert list(result.classification_scores) == ["x", "y"]
    for change, message in (
        ({"erased": found(2, "erase", "mine")},
         "erased: given documents with offsets [0, 2, 4], needed [0, 2], those of scores"),
        ({"kept": found(2, "keep", "mine")}, "kept: given documents with offsets [0, 2, 4], n"),
        ({"erased": kept}, "erased, kept: given directions keep and keep, needed erase and keep"),
        ({"row": 1}, "row: given 1, needed 0 to 0, the rankings of erased"),
        ({"row": -1}, "row: given -1, needed 0 to 0, the rankings of erased"),
        ({"erased": found(1, "erase", "mine", "other"), "row": 1}, "row: given 1, needed 0 to 0, "
         "the rankings of kept"),
        ({"kept": found(1, "keep", "other")},
         "erased, kept: given rankings 'mine' and 'other' in row 0, needed one"),
        ({"classes": ["x"]}, "classes: given 1, needed 2 names"),
        ({"classes": ["x", "x"]}, "classes: given ['x', 'x'], needed each name once"),
        ({"fractions": (0.0,)}, "fractions: given (0.0,), needed some in (0, 1]"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            eraser_results(["a"], [1.0, 0.0], [0, 2], **(given | change))
    few = torch.zeros(4)
    with pytest.raises(ValueError, match=r"erased: given documents with offsets \[0, 2\], needed"):
        eraser_results(["a", "b"], few, [0, 2, 4], **given)
