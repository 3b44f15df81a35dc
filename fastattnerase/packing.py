"""Padded tensors and lists of tensors in packed form: all items one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fastattnerase.plurals import counted
from fastattnerase.tensor_checks import (
    check_devices,
    check_float,
    check_tensor,
    offsets_of,
    shape_of,
)


class Packed(NamedTuple):
    """What a batch is made from.

    Attributes:
        values: [T, D] or [T, H, Dh].
        offsets: where each instance's items begin, [B + 1], int64.
        scores: [T] or [T, H], or None.
        weights: [T] or [T, H], or None.
        positions: the column that each item had, [T], int64; None where nothing was padded.
        width: columns of the padded form; None where nothing was padded.
    """

    values: Tensor
    offsets: Tensor
    scores: Tensor | None
    weights: Tensor | None
    positions: Tensor | None = None
    width: int | None = None


def check_items(
    values: Tensor, offsets: Tensor, scores: Tensor | None, weights: Tensor | None
) -> tuple[str, Tensor]:
    """Check packed items, and find which attention was given: its name and [T] or [T, H]."""
    check_float("values", values)
    if values.ndim not in (2, 3):
        raise ValueError(f"values: given {shape_of(values)}, needed [T, D] or [T, H, D]")
    check_tensor("offsets", offsets, torch.int64)
    if offsets.ndim != 1 or offsets.shape[0] == 0:
        raise ValueError(f"offsets: given {shape_of(offsets)}, needed [B + 1]")
    if (scores is None) == (weights is None):
        given = "neither" if scores is None else "both"
        raise ValueError(f"scores, weights: given {given}, needed exactly one of them")
    attention = weights if scores is None else scores
    assert attention is not None
    name = "weights" if scores is None else "scores"
    check_float(name, attention)
    if attention.shape != values.shape[:-1]:
        raise ValueError(
            f"{name}: given {shape_of(attention)}, needed {shape_of(values[..., 0])}, one for each "
            "item (and head) of values"
        )
    return name, attention


def pack_padded(
    values: Tensor,
    scores: Tensor | None,
    weights: Tensor | None,
    lengths: Tensor | None,
    mask: Tensor | None,
) -> Packed:
    """Pack a padded batch; the arguments are those of `AttentionBatch.from_padded`."""
    check_float("values", values)
    if values.ndim not in (3, 4):
        raise ValueError(f"values: given {shape_of(values)}, needed [B, N, D] or [B, N, H, D]")
    B, N = values.shape[:2]
    device = values.device
    for name, attention in (("scores", scores), ("weights", weights)):
        if attention is not None:
            check_float(name, attention)
            if attention.shape != values.shape[:-1]:
                raise ValueError(
                    f"{name}: given {shape_of(attention)}, needed {shape_of(values[..., 0])}"
                )
            check_devices(values, **{name: attention})
    keep = torch.ones(B, N, dtype=torch.bool, device=device)
    columns = torch.arange(N, device=device)
    if lengths is not None:
        check_tensor("lengths", lengths)
        if lengths.shape != (B,) or lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise ValueError(
                f"lengths: given {lengths.dtype} {shape_of(lengths)}, needed integers [{B}]"
            )
        check_devices(values, lengths=lengths)
        wrong = (lengths < 0) | (lengths > N)  # [B]
        if bool(wrong.any()):
            b = int(wrong.long().argmax())
            raise ValueError(f"lengths: given {int(lengths[b])} for instance {b}, needed 0 to {N}")
        keep &= columns < lengths[:, None]
    if mask is not None:
        check_tensor("mask", mask)
        if mask.shape != (B, N):
            raise ValueError(f"mask: given {shape_of(mask)}, needed [{B}, {N}]")
        check_devices(values, mask=mask)
        keep &= _as_bool(mask)
    if lengths is None and mask is None:
        flat = [None if x is None else x.flatten(0, 1) for x in (values, scores, weights)]
    else:
        flat = [None if x is None else x[keep] for x in (values, scores, weights)]
    assert flat[0] is not None
    positions = columns.expand(B, N)[keep]
    return Packed(flat[0], offsets_of(keep.sum(1)), flat[1], flat[2], positions, N)


def _as_bool(mask: Tensor) -> Tensor:
    """Read a mask [B, N] of booleans or of integers 0 and 1."""
    if mask.dtype == torch.bool:
        return mask
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(
            f"mask: given {mask.dtype}, needed torch.bool, or integers that are 1 where an item is "
            "and 0 elsewhere"
        )
    wrong = (mask != 0) & (mask != 1)  # [B, N]
    if bool(wrong.any()):
        b, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"mask: given {int(mask[b, column])} for instance {b} at column {column}, needed 0 or 1"
        )
    return mask != 0


def pack_list(
    values: Sequence[Tensor] | Tensor,
    scores: Sequence[Tensor] | Tensor | None,
    weights: Sequence[Tensor] | Tensor | None,
) -> Packed:
    """Pack a list of instances; the arguments are those of `AttentionBatch.from_list`."""
    values = _as_list("values", values)
    if not len(values):
        raise ValueError("values: given an empty list, needed at least one instance")
    for b, tensor in enumerate(values):
        check_float(f"values[{b}]", tensor)
        if tensor.ndim not in (2, 3) or tensor.shape[1:] != values[0].shape[1:]:
            raise ValueError(
                f"values: given {shape_of(tensor)} for instance {b}, needed [n, D] or [n, H, D] "
                "with the same sizes but n for all"
            )
        check_devices(values[0], **{f"values[{b}]": tensor})
    flat: dict[str, Tensor | None] = {"scores": None, "weights": None}
    for name, attention in (("scores", scores), ("weights", weights)):
        if attention is None:
            continue
        attention = _as_list(name, attention)
        if len(attention) != len(values):
            raise ValueError(
                f"{name}: given {counted(len(attention), 'instance')}, needed {len(values)} as in "
                "values"
            )
        for b, tensor in enumerate(attention):
            check_float(f"{name}[{b}]", tensor)
            if tensor.shape != values[b].shape[:-1]:
                raise ValueError(
                    f"{name}: given {shape_of(tensor)} for instance {b}, needed "
                    f"{shape_of(values[b][..., 0])}"
                )
            check_devices(values[0], **{f"{name}[{b}]": tensor})
        flat[name] = torch.cat(list(attention))
    lengths = torch.tensor([len(tensor) for tensor in values], device=values[0].device)
    return Packed(torch.cat(list(values)), offsets_of(lengths), flat["scores"], flat["weights"])


def _as_list(name: str, given: Sequence[Tensor] | Tensor) -> Sequence[Tensor]:
    """Read a list of tensors, a nested tensor, or one tensor whose rows are the instances."""
    if isinstance(given, Tensor):
        if not given.is_nested:
            check_tensor(name, given)
            if not given.ndim:
                raise ValueError(f"{name}: given a scalar, needed a list with a tensor an instance")
        return given.unbind()
    if not isinstance(given, Sequence):
        raise TypeError(
            f"{name}: given {type(given).__name__}, needed a list with a tensor an instance"
        )
    return given
