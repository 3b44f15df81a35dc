"""Scores of words from anywhere, in packed form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastattnerase.tensor_checks import check_devices, check_float, check_tensor, shape_of
from fastattnerase.tensor_checks import offsets_of as offsets_from


class PackedScores(NamedTuple):
    """Scores of the words of texts, one text after another.

    `fae.rank(batch, packed.scores)`, `erase_inputs(model, dataset, {"mine": packed.scores})` and
    the measures take them.

    Attributes:
        scores: [T], the float type that was given.
        offsets: [B + 1], int64: where each text begins, and the end of the last.
    """

    scores: Tensor
    offsets: Tensor


def pack_scores(
    scores: Tensor,
    *,
    offsets: Tensor | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
) -> PackedScores:
    """Pack scores; those with a number a feature, as Captum's of embeddings, are summed over them.

    Args:
        scores: of one text [n] or [n, E]; with `offsets` [T] or [T, E]; with `mask` or `lengths`
            padded, [B, N] or [B, N, E]. A float type.
        offsets: [B + 1], int64: where each text begins, from 0 to T.
        mask: [B, N], bool or integers 0 and 1: where words are.
        lengths: [B], integers: words of each text, which stand first.

    Returns:
        The scores by word, and where each text begins.

    Raises:
        ValueError, TypeError: scores of another shape, more than one of `offsets`, `mask` and
            `lengths`, or NaN, naming the text.

    Example:
        >>> import torch
        >>> from fastattnerase.interop import pack_scores
        >>> found = pack_scores(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), mask=torch.eye(2).bool())
        >>> found.scores.tolist(), found.offsets.tolist()
        ([1.0, 0.0], [0, 1, 2])
        >>> pack_scores(torch.ones(3, 4)).scores.tolist()  # of Captum: [n, E]
        [4.0, 4.0, 4.0]
    """
    check_float("scores", scores)
    ways = {"offsets": offsets, "mask": mask, "lengths": lengths}
    given = [name for name, way in ways.items() if way is not None]
    if len(given) > 1:
        raise ValueError(f"{', '.join(given)}: given {len(given)} of them, needed at most one")
    padded = bool(given) and given != ["offsets"]
    if scores.ndim not in ((2, 3) if padded else (1, 2)):
        needed = "[B, N] or [B, N, E]" if padded else "[T] or [T, E]"
        raise ValueError(f"scores: given {shape_of(scores)}, needed {needed}")
    scores = scores.detach()
    if scores.ndim > (2 if padded else 1):
        scores = scores.sum(-1)
    if offsets is not None:
        check_tensor("offsets", offsets, torch.int64)
        ends = offsets.tolist()
        if offsets.ndim != 1 or not ends or ends[0] != 0 or ends[-1] != len(scores):
            raise ValueError(f"offsets: given {ends!s:.60}, needed [B + 1] from 0 to {len(scores)}")
        if (offsets.diff() < 0).any():
            raise ValueError(f"offsets: given {ends!s:.60}, needed no smaller than before")
        packed = PackedScores(scores, offsets)
    elif not padded:
        packed = PackedScores(scores, torch.tensor([0, len(scores)], device=scores.device))
    else:
        packed = _of_padded(scores, mask, lengths)
    wrong = packed.scores.isnan()  # [T]
    if wrong.any():
        place = int(wrong.int().argmax())
        text = int(torch.searchsorted(packed.offsets, place, right=True)) - 1
        raise ValueError(
            f"scores: given NaN in text {text} at {place - int(packed.offsets[text])}, needed "
            "numbers"
        )
    return packed


def _of_padded(scores: Tensor, mask: Tensor | None, lengths: Tensor | None) -> PackedScores:
    """Pack `[B, N]` by a mask or by lengths."""
    if mask is not None:
        check_tensor("mask", mask)
        check_devices(scores, mask=mask)
        if mask.shape != scores.shape or mask.is_floating_point() or mask.is_complex():
            raise ValueError(
                f"mask: given {mask.dtype} {shape_of(mask)}, needed bool {shape_of(scores)}"
            )
        if mask.dtype != torch.bool and bool(((mask != 0) & (mask != 1)).any()):
            raise ValueError("mask: given others than 0 and 1, needed these")
        keep = mask != 0
    else:
        assert lengths is not None
        check_tensor("lengths", lengths)
        check_devices(scores, lengths=lengths)
        columns = torch.arange(scores.shape[1], device=scores.device)
        no_counts = lengths.is_floating_point() or lengths.is_complex()
        if lengths.shape != scores.shape[:1] or no_counts or lengths.dtype == torch.bool:
            raise ValueError(
                f"lengths: given {lengths.dtype} {shape_of(lengths)}, needed integers "
                f"[{len(scores)}]"
            )
        if ((lengths < 0) | (lengths > scores.shape[1])).any():
            raise ValueError(f"lengths: given others than 0 to {scores.shape[1]}, needed these")
        keep = columns < lengths[:, None]
    return PackedScores(scores[keep], offsets_from(keep.sum(1)))
