"""Writing a safetensors file through a file of Python's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

# In the order in which the library safetensors writes tensors: a file is the same, byte for byte.
_DTYPES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}
_ORDER = list(_DTYPES)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file and sync it.

    The library's own writer would go through a hidden file that a kill leaves behind, make a file
    that nobody else may read, and report a full disk as an error without a number. What it makes
    in memory instead would copy a shard twice more.

    Args:
        path: written over where it is there.
        tensors: int64 or floats, on the CPU.
        metadata: texts by name.

    Raises:
        OSError: the file cannot be written, or the disk is full.
    """
    names = sorted(tensors, key=lambda name: (_ORDER.index(tensors[name].dtype), name))
    sizes = [tensors[name].numel() * tensors[name].element_size() for name in names]
    ends = list(accumulate(sizes))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, size, end in zip(names, sizes, ends, strict=True):
        header[name] = {
            "dtype": _DTYPES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [end - size, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that tensors begin where their types want it
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(tensors[name].contiguous().flatten().view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
