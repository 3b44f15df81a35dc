"""Files of tensors: those of the library safetensors, and what a full disk gives."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke, one_line
from full_disk import at_most
from safetensors.torch import save_file

import fastattnerase as fae
from fastattnerase.dumps.tensor_file import write_tensors

TENSORS = {
    "values": torch.arange(12.0).reshape(3, 4).bfloat16(),
    "scores": torch.arange(6.0).reshape(3, 2).T,  # not contiguous
    "logits": torch.ones(2, 3, dtype=torch.float64),
    "head_weight": torch.ones(3, 4, dtype=torch.float16),
    "head_bias": torch.empty(0, 3),
    "offsets": torch.tensor([0, 1, 3]),
    "ids": torch.tensor([2**63 - 1, -5]),
}


@pytest.mark.parametrize("metadata", [{}, {"classes": '["schlecht", "g\\u00fct", "\\"x\\""]'}])
def test_a_file_is_that_of_the_library(metadata: dict[str, str], tmp_path: Path) -> None:
    own = {name: tensor.contiguous() for name, tensor in TENSORS.items()}
    save_file(own, tmp_path / "library", metadata or None)
    write_tensors(tmp_path / "own", TENSORS, metadata)
    assert (tmp_path / "own").read_bytes() == (tmp_path / "library").read_bytes()


def batches() -> Iterator[fae.AttentionBatch]:
    for row, length in enumerate((10, 20, 1000)):
        yield fae.AttentionBatch(
            torch.ones(length, 2), torch.tensor([0, length]), scores=torch.zeros(length),
            head_weight=torch.eye(2), ids=torch.tensor([row]),
        )  # fmt: skip


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path) -> None:
    whole = fae.save_batches(batches(), tmp_path / "whole", shard_bytes=1)
    with at_most(4000), pytest.raises(OSError, match="File too large") as caught:
        fae.save_batches(batches(), tmp_path / "dump", shard_bytes=1)
    assert caught.value.errno == errno.EFBIG
    names = {path.name for path in (tmp_path / "dump").iterdir()}
    shards = {shard.file for shard in whole.shards[:2]}
    assert names == shards | {"shards.jsonl", ".lock"}  # nothing that is half
    assert fae.save_batches(batches(), tmp_path / "dump", shard_bytes=1).digest == whole.digest


def test_a_full_disk_is_one_line_of_the_command(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "layer.npz",
        values=np.ones((1, 1000, 2)), scores=np.ones((1, 1000)), head_weight=np.eye(2),
    )  # fmt: skip
    call = ("dump", "--from", tmp_path / "layer.npz", "--out", tmp_path / "dump")
    with at_most(4000):
        told = one_line(*call)
    assert told == (
        "error: File too large; what is finished is kept, the same command goes on from there"
    )
    assert "1 instance, 1,000 items" in invoke(*call).stdout


def test_others_may_read_a_shard_where_they_may_read_new_files(tmp_path: Path) -> None:
    manifest = fae.save_batches(batches(), tmp_path)
    (tmp_path / "any").touch()
    mode = os.stat(tmp_path / manifest.shards[0].file).st_mode
    assert mode == os.stat(tmp_path / "any").st_mode
