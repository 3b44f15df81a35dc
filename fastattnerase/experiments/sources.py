"""Where an experiment's instances come from: a trained model with data, or a file of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

import fastattnerase as fae
from fastattnerase.experiments.rundir import RunError
from fastattnerase.experiments.serrano_smith import Chunk

if TYPE_CHECKING:
    from fastattnerase.data import Dataset
    from fastattnerase.models import AttentionClassifier

_ITEMS = 65_536  # items of a batch read from a file; one longer instance makes a batch of its own
_INSTANCES = 2_048
_DOCUMENTS = 1_024  # documents read at a time, from a data set that may be on disk
_REQUIRED = ("values", "offsets", "head_weight", "head_bias")
_OPTIONAL = ("scores", "weights", "labels", "ids", "logits")


class ModelSource:
    """The attention layer of a trained model on a data set, batch by batch.

    Args:
        model: a trained model.
        dataset: the documents, in the order of the result tables.
        classes: names of the classes.
        about: what the model and the data are; goes into the run's record and decides whether an
            interrupted run may go on.

    Example:
        >>> from fastattnerase.experiments.sources import ModelSource
        >>> source = ModelSource(model, dataset, ["neg", "pos"], {})  # doctest: +SKIP
    """

    def __init__(
        self,
        model: AttentionClassifier,
        dataset: Dataset,
        classes: list[str],
        about: dict[str, Any],
    ) -> None:
        self.model = model
        self.dataset = dataset
        self.classes = classes
        self.about = about
        self.flat = model.config.kind != "han"

    def __len__(self) -> int:
        return len(self.dataset)

    def describe(self) -> dict[str, Any]:
        """Say which model and data these are, with a hash of both."""
        digest = blake2b(digest_size=16)
        for tensor in self.model.state_dict().values():
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        for document in self.dataset:
            digest.update(document.token_ids.tobytes() + document.sentence_lengths.tobytes())
            digest.update(f"|{document.id}|{document.label}|".encode())
        items = "words" if self.flat else "sentences"
        return self.about | {"item": items, "hash": digest.hexdigest()}

    def chunks(self, start: int) -> Iterator[Chunk]:
        """Yield the documents from number `start` on."""
        while start < len(self.dataset):
            # Blocks begin at the same documents wherever a run goes on, and so do batches.
            stop = min((start // _DOCUMENTS + 1) * _DOCUMENTS, len(self.dataset))
            yield from self._chunks(self.dataset[start:stop])
            start = stop

    def select(self, rows: list[int]) -> Iterator[Chunk]:
        """Yield the documents of these numbers."""
        from fastattnerase.data import Dataset

        return self._chunks(Dataset([self.dataset[row] for row in rows]))

    def _chunks(self, dataset: Dataset) -> Iterator[Chunk]:
        done = 0
        for batch, logits in self.model.attention_outputs(dataset):
            documents = dataset[done : done + len(logits)].documents
            done += len(documents)
            gold = torch.tensor([document.label for document in documents])
            yield Chunk(
                batch,
                gold=gold,
                model_label=logits.argmax(dim=-1),
                texts=[d.tokens if self.flat else d.sentences for d in documents],
            )


class TensorSource:
    """An attention layer dumped into a safetensors file, read slice by slice.

    The file holds `values` [T, D] (or [T, H, D]), `offsets` [B + 1], `scores` or `weights` [T] (or
    [T, H]), `head_weight` [C, D] (or [C, H, D]), `head_bias` [C] or [B, C]; and where known
    `labels` [B] (the data's), `ids` [B] and `logits` [B, C] (the model's own).

    Args:
        path: the file.
        device: where to compute.

    Raises:
        RunError: no such file, not a safetensors file, a tensor is missing, unknown or of another
            shape.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.experiments.sources import TensorSource
        >>> source = TensorSource(Path("layer.safetensors"))  # doctest: +SKIP
    """

    def __init__(self, path: Path, *, device: str = "cpu") -> None:
        self.device = device
        if not path.is_file():
            raise RunError(f"{path}: no such file")
        self.path = path
        try:
            self._file = cast(Any, safe_open(path, framework="pt"))  # has no types
        except SafetensorError as error:
            raise RunError(f"{path} is not a safetensors file: {error}") from error
        names = set(self._file.keys())
        missing = [name for name in _REQUIRED if name not in names]
        unknown = sorted(names - set(_REQUIRED) - set(_OPTIONAL))
        if missing or unknown or len(names & {"scores", "weights"}) != 1:
            raise RunError(
                f"{path} holds the tensors {', '.join(sorted(names)) or '(none)'}; needed are "
                f"{', '.join(_REQUIRED)} and one of scores, weights; labels, ids, logits may be "
                f"there, nothing else"
            )
        self.attention = "scores" if "scores" in names else "weights"
        self.offsets = self._whole("offsets")
        self._check_offsets()
        self.head_weight = self._whole("head_weight")
        self._bias_shape = self._shape("head_bias")
        self.classes = [str(label) for label in range(self.head_weight.shape[0])]
        for name in ("labels", "ids", "logits"):
            if name in names and self._shape(name)[0] != len(self):
                raise RunError(
                    f"{path}: {name} has {self._shape(name)[0]} rows, offsets tell of {len(self)} "
                    f"instances"
                )
        self._per_instance = names & {"labels", "ids", "logits"}

    def _whole(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        if tensor.dim() == 0:
            raise RunError(f"{self.path}: {name} is a scalar")
        return tensor

    def _shape(self, name: str) -> list[int]:
        shape: list[int] = self._file.get_slice(name).get_shape()
        return shape or [0]

    def _check_offsets(self) -> None:
        offsets, total = self.offsets, self._shape("values")[0]
        if offsets.dtype != torch.int64 or offsets.dim() != 1 or len(offsets) < 1:
            raise RunError(
                f"{self.path}: offsets is {offsets.dtype} {list(offsets.shape)}; int64 [B + 1] is "
                f"needed"
            )
        if offsets[0] != 0 or offsets[-1] != total or bool((offsets.diff() < 0).any()):
            raise RunError(
                f"{self.path}: offsets must start at 0, never decrease and end at the {total} rows "
                f"of values; they start at {int(offsets[0])} and end at {int(offsets[-1])}"
            )

    def _check_weights(self, weights: Tensor, begin: int) -> None:
        negative = weights < 0  # [n] or [n, H]
        if negative.ndim > 1:
            negative = negative.any(1)
        if bool(negative.any()):
            item = begin + int(negative.long().argmax())
            instance = int(torch.searchsorted(self.offsets, item, right=True)) - 1
            raise RunError(
                f"{self.path}: weights of instance {instance} are negative at item "
                f"{item - int(self.offsets[instance])}; weights must be 0 or more"
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def describe(self) -> dict[str, Any]:
        """Say which file this is, and how large."""
        return {
            "tensors": str(self.path),
            "bytes": self.path.stat().st_size,
            "modified": self.path.stat().st_mtime_ns,
            "instances": len(self),
            "items": int(self.offsets[-1]),
            "attention": self.attention,
        }

    def chunks(self, start: int) -> Iterator[Chunk]:
        """Yield the instances from number `start` on."""
        while start < len(self):
            # As many instances as fit, at least one.
            limit = int(self.offsets[start]) + _ITEMS
            stop = int(torch.searchsorted(self.offsets, limit, right=True)) - 1
            stop = max(start + 1, min(stop, start + _INSTANCES, len(self)))
            yield self._chunk(start, stop)
            start = stop

    def select(self, rows: list[int]) -> Iterable[Chunk]:
        """Yield the instances of these numbers."""
        return (self._chunk(row, row + 1) for row in rows)

    def _chunk(self, start: int, stop: int) -> Chunk:
        begin, end = int(self.offsets[start]), int(self.offsets[stop])
        rows = {name: self._file.get_slice(name)[start:stop] for name in self._per_instance}
        bias = self._file.get_slice("head_bias")
        attention = self._file.get_slice(self.attention)[begin:end]
        if self.attention == "weights":
            self._check_weights(attention, begin)
        try:
            batch = fae.AttentionBatch(
                self._file.get_slice("values")[begin:end],
                self.offsets[start : stop + 1] - begin,
                **{self.attention: attention},
                head_weight=self.head_weight,
                head_bias=bias[start:stop] if len(self._bias_shape) == 2 else bias[:],
                ids=rows.get("ids", torch.arange(start, stop)),
            )
        except (ValueError, TypeError) as error:
            raise RunError(f"{self.path}: {error}") from error
        logits = rows.get("logits")
        return Chunk(
            batch.to(self.device),
            gold=rows.get("labels"),
            model_label=None if logits is None else logits.argmax(dim=-1),
        )
