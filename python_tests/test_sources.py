"""Attention layers from files of tensors: slicing, and one message for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fastattnerase import sources
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import TensorSource

NAN, INF = float("nan"), float("inf")


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


def test_any_integers(tmp_path: Path) -> None:
    ids = torch.tensor([7, 8, 9, 3])
    wide = TensorSource(write(tmp_path / "wide.safetensors", ids=ids))
    narrow = TensorSource(
        write(tmp_path / "narrow.safetensors", ids=ids.int(), offsets=wide.offsets.int())
    )
    for one, other in zip(wide.chunks(0), narrow.chunks(0), strict=True):
        assert torch.equal(one.batch.offsets, other.batch.offsets)
        assert torch.equal(one.batch.ids, other.batch.ids)
        assert other.batch.ids.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_any_integers(dtype: torch.dtype, tmp_path: Path) -> None:
    """Of more classes than int8 has numbers."""
    path = write(
        tmp_path / "x.safetensors",
        head_weight=torch.ones(300, 2),
        head_bias=torch.zeros(300),
        logits=None,
        labels=torch.tensor([2, 0, 127, 5], dtype=dtype),
    )
    [chunk] = TensorSource(path).chunks(0)
    assert chunk.gold is not None
    assert chunk.gold.dtype == torch.int64
    assert chunk.gold.tolist() == [2, 0, 127, 5]
    path = write(path, labels=torch.tensor([2, 0, 5, 7], dtype=dtype))
    with pytest.raises(RunError, match=r"labels: given 5 .* 2, needed .* from 0 to 2"):
        TensorSource(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_bias": None}, "needed values, offsets, head_weight, head_bias"),
        ({"weights": None}, "one of scores, weights"),
        ({"scores": torch.zeros(6)}, "one of scores, weights"),
        ({"label": torch.zeros(4)}, "nothing else"),
        (
            {"values": torch.zeros(6, 2, dtype=torch.int64)},
            r"values: given int64 .*, needed f",
        ),
        (
            {"values": torch.zeros(6)},
            r"values: given float32 \[6\], needed .* \[T, D\] or \[T, H, D\]",
        ),
        (
            {"values": torch.zeros(6, 0), "head_weight": torch.ones(3, 0)},
            r"values: given .* \[6, 0\]",
        ),
        ({"values": torch.tensor(1.0)}, r"values: given float32 \[\]"),
        ({"values": torch.ones(6, 2, dtype=torch.complex64)}, "values: given C64"),
        (
            {"offsets": torch.tensor([0.0, 6.0])},
            r"offsets: given float32 \[2\], needed .*int32 or int64 \[B \+ 1\]",
        ),
        ({"offsets": torch.tensor(6)}, r"offsets: given int64 \[\]"),
        ({"offsets": torch.zeros(0, dtype=torch.int64)}, r"offsets: given int64 \[0\]"),
        ({"offsets": torch.tensor([0, 2, 1, 5, 6])}, "given 2 and then 1 at instance 1"),
        (
            {"offsets": torch.tensor([0, 2**63 - 1, -2, 5, 6])},
            "given 9223372036854775807 and then -2 at instance 1",
        ),
        ({"offsets": torch.tensor([0, 2, 2, 5, 5])}, "given 0 to 5, needed from 0 to the 6 rows"),
        ({"offsets": torch.tensor([1, 2, 2, 5, 6])}, "given 1 to 6"),
        (
            {"weights": torch.zeros(4)},
            r"weights: given float32 \[4\], needed .* \[6\], one for each item",
        ),
        (
            {"weights": torch.zeros(8)},
            r"weights: given float32 \[8\], needed .* \[6\], one for each item",
        ),
        ({"weights": torch.zeros(6, 2)}, r"weights: given float32 \[6, 2\]"),
        ({"weights": torch.tensor(1.0)}, r"weights: given float32 \[\]"),
        (
            {"weights": torch.tensor([0.5, 0.5, 0.2, -0.3, 0.5, 1.0])},
            "negative one for item 1 of instance 2",
        ),
        (
            {"head_weight": torch.ones(3, 5)},
            r"head_weight: given float32 \[3, 5\], needed .* \[C, 2\]",
        ),
        ({"head_weight": torch.ones(1, 2)}, r"head_weight: given .*, needed .* with C at least 2"),
        (
            {"head_weight": torch.tensor([[1, 1], [NAN, 1], [1, 1]])},
            "head_weight: given NaN or infinity for class 1",
        ),
        (
            {"head_bias": torch.tensor(1.0)},
            r"head_bias: given .* \[\], needed .* \[3\] or \[4, 3\]",
        ),
        (
            {"head_bias": torch.zeros(5, 3)},
            r"head_bias: given .* \[5, 3\], needed .* \[3\] or \[4, 3\]",
        ),
        ({"head_bias": torch.tensor([0, 0, -INF])}, "head_bias: given NaN or infinity for class 2"),
        (
            {"labels": torch.zeros(3, dtype=torch.int64)},
            r"labels: given int64 \[3\], needed .* \[4\], one",
        ),
        ({"labels": torch.zeros(4, 2, dtype=torch.int64)}, r"labels: given int64 \[4, 2\]"),
        ({"labels": torch.tensor([0.0, 1.0, 2.0, NAN])}, "labels: given float32 .* int32 or int64"),
        (
            {"labels": torch.tensor([0, 1, 3, 0])},
            "labels: given 3 for instance 2, needed .* from 0 to 2",
        ),
        ({"labels": torch.tensor([0, -2, 1, 0])}, "labels: given -2 for instance 1"),
        ({"ids": torch.zeros(4)}, "ids: given float32"),
        ({"logits": torch.zeros(4)}, r"logits: given float32 \[4\], needed .* \[4, 3\]"),
        ({"logits": torch.zeros(4, 9)}, r"logits: given float32 \[4, 9\], needed .* \[4, 3\]"),
        ({"logits": torch.zeros(4, 0)}, r"logits: given float32 \[4, 0\], needed .* \[4, 3\]"),
        (
            {"logits": torch.tensor([[0, 0, 0], [0, NAN, 0]] * 2)},
            "logits: given NaN for instance 1",
        ),
    ],
)
def test_files_that_do_not_fit(
    tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    path = write(tmp_path / "x.safetensors", **changes)
    with pytest.raises(RunError, match=message) as caught:
        TensorSource(path)
    assert "\n" not in str(caught.value)


def test_mistakes_are_found_in_any_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_ITEMS", 2)
    for changes, message in (
        ({"weights": torch.tensor([0.5, 0.5, 0.2, 0.3, 0.5, -1.0])}, "item 0 of instance 3"),
        ({"labels": torch.tensor([0, 1, 2, 3])}, "labels: given 3 for instance 3"),
        ({"logits": torch.tensor([[0.0] * 3] * 3 + [[NAN] * 3])}, "given NaN for instance 3"),
    ):
        path = write(tmp_path / "x.safetensors", **changes)
        with pytest.raises(RunError, match=message):
            TensorSource(path)


def test_instances_that_are_not_finite_are_read(tmp_path: Path) -> None:
    """They are the experiment's to leave out and to count, one by one."""
    path = write(
        tmp_path / "x.safetensors",
        values=torch.full((6, 2), NAN),
        weights=torch.tensor([NAN, 0.5, 0.2, INF, 0.5, 1.0]),
        head_bias=torch.tensor([[NAN] * 3, [0.0] * 3, [INF] * 3, [0.0] * 3]),
    )
    [chunk] = TensorSource(path).chunks(0)
    assert len(chunk.batch) == 4


def test_texts_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    whole = '["a", "\\ud83d\\ude00", "c"]'
    save_file(tensors(), path, {"classes": whole})
    assert TensorSource(path).classes == ["a", "\U0001f600", "c"]
    for name, content in (("classes", '["a", "\\ud83d", "c"]'), ("tokens", '[["\\ud83d"]]')):
        save_file(tensors(), path, {name: content})
        with pytest.raises(RunError, match=f"{name} in the metadata: given no JSON: .*surrogates"):
            TensorSource(path)


def test_no_file_and_no_safetensors_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        TensorSource(tmp_path / "absent")
    with pytest.raises(RunError, match="given a folder, needed a safetensors file"):
        TensorSource(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RunError, match="given no safetensors file"):
        TensorSource(tmp_path / "text")
