"""Attention layers from files of tensors: slicing, and one message for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fastattnerase.experiments import sources
from fastattnerase.experiments.rundir import RunError
from fastattnerase.experiments.sources import TensorSource


def tensors(**changes: Tensor | None) -> dict[str, Tensor]:
    """Six items of four instances, one of them empty, in three classes."""
    content = {
        "values": torch.arange(12.0).reshape(6, 2),
        "offsets": torch.tensor([0, 2, 2, 5, 6]),
        "weights": torch.tensor([0.5, 0.5, 0.2, 0.3, 0.5, 1.0]),
        "head_weight": torch.ones(3, 2),
        "head_bias": torch.arange(12.0).reshape(4, 3),
        "labels": torch.tensor([2, 0, 1, -1]),
        "ids": torch.tensor([7, 8, 9, 10]),
        "logits": torch.eye(4)[:, :3].contiguous(),
    } | changes
    return {name: tensor for name, tensor in content.items() if tensor is not None}


def write(path: Path, **changes: Tensor | None) -> Path:
    save_file(tensors(**changes), path)
    return path


@pytest.mark.parametrize(("items", "sizes"), [(100, [4]), (2, [2, 1, 1]), (1, [1, 1, 1, 1])])
def test_slices_are_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, items: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(sources, "_ITEMS", items)
    source = TensorSource(write(tmp_path / "x.safetensors"))
    assert len(source) == 4
    assert source.classes == ["0", "1", "2"]
    chunks = list(source.chunks(0))
    assert [len(chunk.batch) for chunk in chunks] == sizes
    whole = tensors()
    for name in ("values", "weights", "head_bias", "ids"):
        joined = torch.cat([getattr(chunk.batch, name) for chunk in chunks])
        torch.testing.assert_close(joined, whole[name], rtol=0, atol=0)
    assert torch.cat([chunk.batch.lengths for chunk in chunks]).tolist() == [2, 0, 3, 1]
    gold = [label for chunk in chunks if chunk.gold is not None for label in chunk.gold.tolist()]
    assert gold == [2, 0, 1, -1]
    model = [x for chunk in chunks if chunk.model_label is not None for x in chunk.model_label]
    assert model == [0, 1, 2, 0]
    [later] = list(source.chunks(3))
    assert later.batch.ids.tolist() == [10]
    picked = [chunk.batch.ids.tolist() for chunk in source.select([2, 0])]
    assert picked == [[9], [7]]


def test_what_may_be_absent(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.safetensors",
        weights=None,
        scores=torch.zeros(6),
        head_bias=torch.zeros(3),
        labels=None,
        ids=None,
        logits=None,
    )
    [chunk] = TensorSource(path).chunks(1)
    assert chunk.gold is None
    assert chunk.model_label is None
    assert chunk.batch.is_scores
    assert chunk.batch.ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_bias": None}, "needed are values, offsets, head_weight, head_bias"),
        ({"weights": None}, "one of scores, weights"),
        ({"scores": torch.zeros(6)}, "one of scores, weights"),
        ({"label": torch.zeros(4)}, "nothing else"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "labels has 3 rows"),
        ({"offsets": torch.tensor([0, 2, 5, 6])}, "labels has 4 rows, offsets tell of 3"),
        ({"offsets": torch.tensor([0.0, 6.0])}, "offsets is torch.float32"),
        ({"offsets": torch.tensor([0, 2, 1, 5, 6])}, "never decrease"),
        ({"offsets": torch.tensor([0, 2, 2, 5, 5])}, "end at the 6 rows"),
        ({"offsets": torch.tensor(6)}, "offsets is a scalar"),
    ],
)
def test_files_that_do_not_fit(
    tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    path = write(tmp_path / "x.safetensors", **changes)
    with pytest.raises(RunError, match=message):
        TensorSource(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": torch.tensor([0.5, 0.5, 0.2, -0.3, 0.5, 1.0])}, "instance 2 .* at item 1"),
        ({"head_weight": torch.ones(3, 5)}, "head_weight"),
        ({"weights": torch.zeros(4)}, "weights"),
    ],
)
def test_contents_that_do_not_fit(
    tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    source = TensorSource(write(tmp_path / "x.safetensors", **changes))
    with pytest.raises(RunError, match=message):
        list(source.chunks(0))


def test_no_file_and_no_safetensors_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        TensorSource(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RunError, match="not a safetensors file"):
        TensorSource(tmp_path / "text")
