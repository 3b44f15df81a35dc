"""Scores from anywhere in packed form."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
import torch

from fastattnerase import interop
from fastattnerase.interop import pack_scores

PADDED = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
MASK = torch.tensor([[True, False, True], [False, True, False]])


def test_every_form_by_hand() -> None:
    for found, scores, offsets in (
        (pack_scores(torch.tensor([1.0, 2])), [1, 2], [0, 2]),
        (pack_scores(torch.tensor([[1.0, 2], [3, -4]])), [3, -1], [0, 2]),
        (
            pack_scores(torch.arange(4.0), offsets=torch.tensor([0, 1, 1, 4])),
            [0, 1, 2, 3], [0, 1, 1, 4],
        ),
        (pack_scores(PADDED, mask=MASK), [1, 3, 5], [0, 2, 3]),
        (pack_scores(PADDED, mask=MASK.int()), [1, 3, 5], [0, 2, 3]),
        (pack_scores(PADDED, lengths=torch.tensor([0, 2])), [4, 5], [0, 0, 2]),
        (pack_scores(torch.stack([PADDED, -PADDED, PADDED], 2), mask=MASK), [1, 3, 5], [0, 2, 3]),
    ):  # fmt: skip
        assert found.scores.tolist() == scores
        assert found.offsets.tolist() == offsets


def test_what_is_padding_is_not_read() -> None:
    scores = PADDED.masked_fill(~MASK, torch.nan).requires_grad_()
    found = pack_scores(scores, mask=MASK)
    assert found.scores.tolist() == [1, 3, 5]
    assert not found.scores.requires_grad


def test_bad_input_gets_one_line() -> None:
    nan = PADDED.clone()
    nan[1, 1] = torch.nan
    for scores, options, message in (
        (nan, {"mask": MASK}, "scores: given NaN in text 1 at 0, needed numbers"),
        (PADDED, {"mask": MASK[:1]}, "mask: given torch.bool [1, 3], needed bool [2, 3]"),
        (PADDED, {"mask": MASK.float()}, "mask: given torch.float32 [2, 3], needed bool [2, 3]"),
        (PADDED, {"lengths": torch.tensor([4, 1])}, "lengths: given others than 0 to 3, needed"),
        (PADDED, {"lengths": torch.tensor([1])}, "lengths: given torch.int64 [1], needed integ"),
        (PADDED, {"lengths": torch.ones(2)}, "given torch.float32 [2], needed integers [2]"),
        (PADDED, {"lengths": MASK[:, 0]}, "given torch.bool [2], needed integers [2]"),
        (PADDED, {"mask": MASK.cfloat()}, "mask: given torch.complex64 [2, 3], needed bool"),
        (PADDED[0], {"offsets": torch.tensor([0, 2])}, "offsets: given [0, 2], needed [B + 1]"),
        (PADDED[0], {"offsets": torch.tensor([0, 3, 2, 3])}, "needed no smaller than before"),
        (PADDED[0], {"mask": MASK}, "scores: given [3], needed [B, N] or [B, N, E]"),
        (PADDED[0, 0], {}, "scores: given [], needed [T] or [T, E]"),
        (
            PADDED, {"mask": MASK, "lengths": torch.tensor([1, 1])},
            "mask, lengths: given 2 of them, needed at most one",
        ),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            pack_scores(scores, **options)
    with pytest.raises(TypeError, match="scores: given list, needed a tensor"):
        pack_scores([1.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mask: given others than 0 and 1, needed these"):
        pack_scores(torch.ones(1, 2), mask=torch.tensor([[1, 2]]))


def test_forms_of_other_libraries_are_found_by_their_names() -> None:
    assert interop.captum is import_module("fastattnerase.interop.captum")
    assert interop.quantus is import_module("fastattnerase.interop.quantus")
    with pytest.raises(AttributeError, match="has no attribute 'lime'"):
        _ = interop.lime
