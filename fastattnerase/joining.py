"""Which batches `AttentionBatch.cat` can join: those of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from fastattnerase.batch import AttentionBatch
else:  # imported where they are used; hints that are read at run time say Any
    AttentionBatch = Any


def why_apart(first: AttentionBatch, second: AttentionBatch) -> str:
    """Say why two batches cannot be joined; empty where they can."""
    values, _, attention, is_scores = first.packed
    other_values, _, other_attention, other_is_scores = second.packed
    if values.device != other_values.device:
        return f"are on different devices, {other_values.device} and {values.device}"
    if values.dtype != other_values.dtype or attention.dtype != other_attention.dtype:
        return "have different dtypes"
    if first.values.shape[1:] != second.values.shape[1:]:
        return "have values of different sizes"
    if is_scores != other_is_scores:
        return "have scores and weights, needed the same for all"
    if first.head is not second.head:
        return "have different heads"
    pairs = [(first.head_weight, second.head_weight)]
    bias, other_bias = first.head_bias, second.head_bias
    if bias is not None and other_bias is not None:
        if bias.dtype != other_bias.dtype:
            return "have biases of different dtypes"
        if bias.ndim == other_bias.ndim == 1:  # those of instances may differ
            pairs.append((bias, other_bias))
    for own, its in pairs:
        same = own is its or (own is not None and its is not None and torch.equal(own, its))
        if not same:
            return "have different heads"
    return ""
