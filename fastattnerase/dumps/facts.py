"""What must be the same in all shards of a dump."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from fastattnerase.sources import TensorSource


def facts_of(source: TensorSource) -> dict[str, Any]:
    """Say what a file of tensors is like, under the names that the manifest has for it.

    Args:
        source: the open file.

    Returns:
        `attention`, `dtypes`, `inner`, `classes`, `head`, `bias_by_instance` and
        `head_bias`: see `Manifest`.
    """
    by_instance = source.head_bias.ndim == 2
    shared = [source.head_weight] if by_instance else [source.head_weight, source.head_bias]
    return {
        "attention": source.attention,
        "dtypes": source.dtypes,
        "inner": tuple(source.head_weight.shape[1:]),
        "classes": tuple(source.classes),
        "head": digest_of_tensors(shared),
        "bias_by_instance": by_instance,
        "head_bias": None if by_instance else tuple(source.head_bias.double().tolist()),
    }


def digest_of_tensors(tensors: list[Tensor]) -> str:
    """Compute the SHA-256 of tensors, with their types and shapes."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
