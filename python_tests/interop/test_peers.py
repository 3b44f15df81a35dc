"""What ferret and inseq computed of tiny models, in environments of their own, and the same here.

`peers/` is what `benchmarks/peers.sh` gave back for the models and texts of `peer_model.py`.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface.tiny import texts_of, tiny
from interop.peer_model import TEXTS, classifier, lines
from safetensors.torch import save

from fastattnerase.data import DataError
from fastattnerase.huggingface import TransformerClassifier, TransformerConfig
from fastattnerase.input_erasure import Direction, erase_inputs
from fastattnerase.interop import read_inseq, scores_of_tokens
from fastattnerase.measures.aopc import aopc_comprehensiveness, aopc_sufficiency
from fastattnerase.measures.plausibility import plausibility
from fastattnerase.measures.thresholds import PRESETS

PEERS = Path(__file__).parent / "peers"
DIRECTIONS: list[Direction] = ["erase", "keep"]


@cache
def ferret() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((PEERS / "ferret.json").read_text())["texts"]
    return found


@cache
def given() -> tuple[Any, Any, Any]:
    """Give the model, its documents of pieces, and the scores that ferret was given."""
    model = TransformerClassifier(*classifier(), TransformerConfig(unit="pieces"))
    dataset = texts_of(model, [row["text"].split() for row in ferret()])
    explained = [row["explanations"][0] for row in ferret()]
    return model, dataset, scores_of_tokens(explained, dataset, model.words)


def keeps_its_pieces(model: Any, pieces: list[int], kept: list[int]) -> bool:
    """Whether pieces that are left come back when their text is tokenised again, as in ferret."""
    tokenizer = model.words.tokenizer
    left = [pieces[place] for place in sorted(kept)]
    again: list[int] = tokenizer(tokenizer.decode(left), add_special_tokens=False)["input_ids"]
    return again == left


def test_ferret_was_given_these_texts_and_scores() -> None:
    tokenizer = classifier()[1]
    rows = lines(tokenizer)
    assert [row["text"] for row in rows] == [row["text"] for row in ferret()]
    assert [text for text, _ in TEXTS] == [row["text"] for row in ferret()]
    for row, theirs in zip(rows, ferret(), strict=True):
        assert [0.0, *row["scores"], 0.0] == theirs["explanations"][0]["scores"]
        assert row["rationale"] == theirs["rationale"]


def test_the_model_says_what_it_said_there() -> None:
    model, dataset, packed = given()
    found = erase_inputs(model, dataset, {"given": packed.scores}, at="ferret")
    assert found.decision.tolist() == [row["target"] for row in ferret()]
    for row, theirs in zip(found.probabilities, ferret(), strict=True):
        assert float(row[theirs["target"]]) == pytest.approx(theirs["probability"], abs=1e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_comprehensiveness_and_sufficiency_are_those_of_ferret(direction: Direction) -> None:
    model, dataset, packed = given()
    found = erase_inputs(model, dataset, {"given": packed.scores}, at="ferret", direction=direction)
    of, name = {
        "erase": (aopc_comprehensiveness, "comprehensiveness"),
        "keep": (aopc_sufficiency, "sufficiency"),
    }[direction]
    ours = of(
        found.curves["label_prob"].numpy(),
        found.curve_offsets.numpy(),
        "ferret",
        positive=found.positive.numpy(),
    ).values[0]
    compared = other = 0
    for b, (document, theirs) in enumerate(zip(dataset, ferret(), strict=True)):
        pieces = document.token_ids.tolist()
        scores = packed.scores[packed.offsets[b] : packed.offsets[b + 1]]
        order = scores.argsort(descending=True).tolist()
        counts = PRESETS["ferret"].counts([len(pieces)], [int((scores > 0).sum())])[1].tolist()
        left = [order[k:] if direction == "erase" else order[:k] for k in counts]
        if all(keeps_its_pieces(model, pieces, kept) for kept in left):
            assert ours[b] == pytest.approx(theirs["explanations"][0][name], abs=1e-4), b
            compared += 1
        else:  # such as "##s" without the piece before it, which is read as unknown
            other += 1
    assert (compared, other) == (5, 3)


def test_auprc_and_token_f1_are_those_of_ferret() -> None:
    _, _, packed = given()
    spans = [[(i, i + 1) for i, one in enumerate(row["rationale"]) if one] for row in ferret()]
    ours = plausibility(packed.scores.numpy(), spans, packed.offsets.numpy(), preset="ferret")
    compared = 0
    for b, theirs in enumerate(ferret()):
        explained = theirs["explanations"][0]
        if 0 < np.mean(theirs["rationale"]) < 1:
            assert ours.auprc.values[b] == pytest.approx(explained["auprc"], abs=1e-9)
            assert ours.token_f1.values[b] == pytest.approx(explained["token_f1"], abs=1e-9)
            compared += 1
        else:  # nothing is marked, or everything: undefined here, whatever ferret says
            assert np.isnan([ours.auprc.values[b], ours.token_f1.values[b]]).all()
    assert compared == 5


def test_scores_that_inseq_saved_are_words_scores() -> None:
    explained = read_inseq(PEERS / "inseq.json")
    assert [one["tokens"] for one in explained][:3] == [
        ["the", "good", "film"],
        ["the", "film", "##s"],
        ["un", "##believ", "##ably", "good"],
    ]
    # As inseq 0.7 reads them itself.
    assert explained[1]["scores"] == pytest.approx(
        [0.5800819396972656, 0.17491833865642548, 0.2449997514486313], abs=0
    )
    model = tiny("bert")
    texts = ["the good film", "the films", "unbelievably good", TEXTS[6][0]]
    dataset = texts_of(model, [text.split() for text in texts])
    found = scores_of_tokens(explained, dataset, model.words)
    assert found.offsets.tolist() == [0, 3, 5, 7, 16]
    assert found.scores[4].item() == pytest.approx(0.17491833865642548 + 0.2449997514486313)
    other = texts_of(model, [text.split() for text in ["the bad film", *texts[1:]]])
    with pytest.raises(ValueError, match="given 'good' at 1 of text 0, needed 'bad'"):
        scores_of_tokens(explained, other, model.words)


def coded(scores: Any) -> str:
    return base64.b64encode(save({"attribution": torch.as_tensor(scores)})).decode()


def source_and_target() -> dict[str, Any]:
    """Make what inseq saves as primitives of a model with an encoder, and two generated tokens."""
    return {
        "info": {},
        "sequence_attributions": [
            {
                "source": [{"id": 2, "token": "[CLS]"}, {"id": 5, "token": "good"}],
                "target": [{"id": 6, "token": "bad"}, {"id": 7, "token": "film"}],
                "source_attributions": coded([[0.0, 1.0], [0.5, 0.25]]),
                "target_attributions": None,
                "attr_pos_start": 0,
            }
        ],
        "step_attributions": None,
    }


def test_a_source_is_read_as_primitives_or_compressed(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps(source_and_target()))
    assert read_inseq(path) == [{"tokens": ["[CLS]", "good"], "scores": [0.0, 0.5]}]
    assert read_inseq(path, generated=1)[0]["scores"] == [1.0, 0.25]
    model = tiny("bert")
    found = scores_of_tokens(read_inseq(path), texts_of(model, [["good"]]), model.words)
    assert found.scores.tolist() == [0.5]
    packed = tmp_path / "out.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_inseq(packed) == read_inseq(path)


def change(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda output: output["sequence_attributions"][0].update({name: value})


# A tensor of a type that safetensors has and torch has not.
_HEADER = json.dumps(
    {"attribution": {"dtype": "F6_E2M3", "shape": [2, 2], "data_offsets": [0, 3]}}
).encode()
OF_SIX_BITS = base64.b64encode(
    len(_HEADER).to_bytes(8, "little") + _HEADER + b"\1\1\1"
).decode()  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda o: o.pop("sequence_attributions"), r"sequence_attributions: given none, needed it"),
        (lambda o: o.update(sequence_attributions=3), r"sequence_attributions: given 3, needed a"),
        (lambda o: o["sequence_attributions"].append(7), r"\[1\].source_attributions: given 7"),
        (lambda o: o["sequence_attributions"][0].pop("source"), r"\[0\].source: given none"),
        (change("source", "good"), r"\[0\].source: given 'good', needed a list of tokens"),
        (change("source", [{"id": 1}]), r"source\[0\].token: given none, needed it"),
        (change("source", [{"token": None}]), r"source\[0\].token: given None, needed a text"),
        (change("source_attributions", [[1]]), r"given \[\[1\]\], needed safetensors in base64"),
        (change("source_attributions", "AAAA"), r"given 'AAAA' \(.*needed safetensors"),
        (change("source_attributions", coded([[1.0]])), r"given 1 row, needed 2, one a token"),
        (change("source_attributions", coded([[1j], [2j]])), r"given torch.complex64, needed real"),
        (change("source_attributions", OF_SIX_BITS), r"\('F6_E2M3'\), needed safetensors in base"),
        (
            change("source_attributions", coded([[[1.0]], [[2.0]]])),
            r"given \[2, 1, 1\], needed \[tokens, generated tokens\], which output.aggregate\(\)",
        ),
        (
            lambda o: o["sequence_attributions"][0].update(
                source_attributions=None, target_attributions=coded([[1.0], [2.0]]),
                attr_pos_start=9,
            ),
            r"attr_pos_start: given 9, needed 0 to 2",
        ),
    ],
)  # fmt: skip
def test_what_inseq_does_not_save_is_named(wrong: Any, match: str, tmp_path: Path) -> None:
    output = source_and_target()
    wrong(output)
    path = tmp_path / "out.json"
    path.write_text(json.dumps(output))
    with pytest.raises(DataError, match=match) as caught:
        read_inseq(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_what_is_no_file_of_inseq_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with pytest.raises(DataError, match="cannot be read"):
        read_inseq(path)
    path.write_text("{")
    with pytest.raises(DataError, match=r"given no JSON .*, needed inseq's saved output"):
        read_inseq(path)
    path.write_text(json.dumps(source_and_target()))
    for generated in (2, -1, True, 0.5):
        with pytest.raises(DataError, match=f"generated: given {generated}, needed 0 to 1"):
            read_inseq(path, generated=generated)  # type: ignore[arg-type]
    packed = bytearray(gzip.compress(path.read_bytes(), mtime=0))
    packed[14] ^= 255  # within the first deflate block
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"cannot be read \(Error -3 while decompressing"):
        read_inseq(path)
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"given no JSON \(maximum recursion depth exceeded"):
        read_inseq(path)
