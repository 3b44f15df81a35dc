"""Where an experiment's instances come from: a trained model with data, or a file of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.extras import needs
from fastattnerase.item_texts import ItemTexts, list_of_texts, texts_of_instances
from fastattnerase.plurals import counted
from fastattnerase.runs.rundir import RunError

if TYPE_CHECKING:
    from fastattnerase.data import Dataset
    from fastattnerase.models import AttentionClassifier
else:  # imported where they are used; hints that are read at run time say Any
    AttentionClassifier = Dataset = Any

_ITEMS = 65_536  # items of a batch read from a file; one longer instance makes a batch of its own
_INSTANCES = 2_048
DOCUMENTS = 1_024  # documents read at a time, from a data set that may be on disk
_UNEVEN = 0.01  # off 1, a sum of weights that is no rounding, also of half-precision ones
_REQUIRED = ("values", "offsets", "head_weight", "head_bias")
_OPTIONAL = ("scores", "weights", "labels", "ids", "logits")
# What safetensors calls the dtypes that are read.
_FLOATS = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_INTEGERS = {"U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64"}
_NAMES = _FLOATS | _INTEGERS


@dataclass(frozen=True)
class Chunk:
    """A batch of instances with what is known of them beside the attention layer.

    Attributes:
        batch: the attention layer's values, scores or weights, offsets and head.
        gold: `[B]` int64, labels of the data, -1 for none; None where all are unknown.
        model_label: `[B]` int64, the model's own decisions; None where unknown.
        texts: for each instance the text of each item; None where unknown.
        queries: for each instance its second text; None where there is none.
        logits: `[B, C]`, the model's own; None where unknown.
        keeps_last: whether the last item of each instance is never erased, as the special tokens of
            a transformer; texts and results are of the others.
    """

    batch: AttentionBatch
    gold: Tensor | None = None
    model_label: Tensor | None = None
    texts: list[list[str]] | None = None
    queries: list[str] | None = None
    logits: Tensor | None = None
    keeps_last: bool = False


class Source(Protocol):
    """Where instances come from: a trained model with data, or somebody's tensors."""

    classes: list[str]

    def __len__(self) -> int:
        """Count the instances."""

    def chunks(self, start: int) -> Iterable[Chunk]:
        """Yield the instances from number `start` on, in order."""

    def select(self, rows: list[int]) -> Iterable[Chunk]:
        """Yield the instances of these numbers, in this order."""

    def describe(self) -> dict[str, Any]:
        """Say what the instances are, as JSON-able data: goes into the run's record."""


class ModelSource:
    """The attention layer of a trained model on a data set, batch by batch.

    Args:
        model: a trained model; a `TransformerClassifier` will do, too.
        dataset: the documents, in the order of the result tables.
        classes: names of the classes.
        about: what the model and the data are; goes into the run's record and decides whether an
            interrupted run may go on.

    Example:
        >>> from fastattnerase.sources import ModelSource
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
        self.keeps_last: bool = getattr(model, "keeps_last", False)

    def __len__(self) -> int:
        return len(self.dataset)

    def describe(self) -> dict[str, Any]:
        """Say which model and data these are, with a hash of both."""
        digest = blake2b(digest_size=16)
        for tensor in self.model.state_dict().values():
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        queries = iter(self.dataset if self.dataset.has_queries else ())
        for own, label, tokens, lengths in self.dataset.numbered():
            digest.update(tokens.tobytes() + lengths.tobytes() + f"|{own}|{label}|".encode())
            if (document := next(queries, None)) is not None and document.query_ids is not None:
                digest.update(document.query_ids.tobytes())
                digest.update(repr(document.answers).encode())
        items = "words" if self.flat else "sentences"
        return self.about | {"item": items, "hash": digest.hexdigest()}

    def chunks(self, start: int) -> Iterator[Chunk]:
        """Yield the documents from number `start` on."""
        while start < len(self.dataset):
            # Blocks begin at the same documents wherever a run goes on, and so do batches.
            stop = min((start // DOCUMENTS + 1) * DOCUMENTS, len(self.dataset))
            yield from self._chunks(self.dataset[start:stop])
            start = stop

    def select(self, rows: list[int]) -> Iterator[Chunk]:
        """Yield the documents of these numbers."""
        # Only here: tensors need no texts.
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
                queries=[" ".join(d.query_tokens or ()) for d in documents]
                if dataset.has_queries
                else None,
                logits=logits,
                keeps_last=self.keeps_last,
            )


class TensorSource:
    """An attention layer dumped into a safetensors file, read slice by slice.

    The file holds `values` [T, D] (or [T, H, D]), `offsets` [B + 1], `scores` or `weights` [T] (or
    [T, H]), `head_weight` [C, D] (or [C, H, D]), `head_bias` [C] or [B, C]; and where known
    `labels` [B] (the data's, -1 for none), `ids` [B] and `logits` [B, C] (the model's own). What
    does not fit is refused here, before anything is computed; values, scores and weights that are
    not finite are not: the experiment leaves their instances out and counts them.

    Names of classes and texts of items may be in the file's metadata, too: `classes`, a JSON list,
    and `tokens`, a JSON list with a list of texts for each instance.

    Args:
        path: the file.
        device: where to compute.
        tokens: a file with the texts of the items, see `ItemTexts`, instead of the metadata's.
        classes: names of the classes, instead of the metadata's; 0, 1, … where none are given.

    Raises:
        RunError: no such file, not a safetensors file, a tensor is missing, unknown, or of another
            dtype, shape or range; names or texts are not as many as classes, instances and items.
        OSError: the file may not be read.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.sources import TensorSource
        >>> source = TensorSource(Path("layer.safetensors"))  # doctest: +SKIP
    """

    def __init__(
        self,
        path: Path,
        *,
        device: str = "cpu",
        tokens: Path | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        self.device = device
        with needs("text"):
            from safetensors import SafetensorError, safe_open
        if path.is_dir():
            raise RunError(f"{path}: given a folder, needed a safetensors file")
        if not path.is_file():
            raise RunError(f"{path}: no such file")
        self.path = path
        with open(path, "rb"):  # of a file that may not be read safetensors says there is none
            pass
        try:
            self._file = cast(Any, safe_open(path, framework="pt"))  # has no types
        except SafetensorError as error:
            raise RunError(f"{path}: given no safetensors file: {error}") from error
        names = set(self._file.keys())
        missing = [name for name in _REQUIRED if name not in names]
        unknown = sorted(names - set(_REQUIRED) - set(_OPTIONAL))
        if missing or unknown or len(names & {"scores", "weights"}) != 1:
            raise RunError(
                f"{path}: given the tensors {', '.join(sorted(names)) or '(none)'}, needed "
                f"{', '.join(_REQUIRED)} and one of scores, weights; labels, ids, logits may be "
                f"there, nothing else"
            )
        self.attention = "scores" if "scores" in names else "weights"
        self._per_instance = names & {"labels", "ids", "logits"}
        self._check_shapes()
        self.offsets: Tensor = self._file.get_tensor("offsets").long()
        self.head_weight: Tensor = self._file.get_tensor("head_weight")
        self._bias_shape = self._shape("head_bias")
        self._check_offsets()
        metadata: dict[str, str] = self._file.metadata() or {}
        self.named = list(classes)  # by the caller, not by the file
        self.classes = self._class_names(metadata)
        self._tokens = tokens
        self._texts = self._item_texts(metadata)
        self._check_head()
        if self.attention == "weights":
            self._check_weights()
        if "labels" in names:
            self._check_labels()
        if "logits" in names:
            self._check_logits()

    def _class_names(self, metadata: dict[str, str]) -> list[str]:
        """Find the names of the classes: as given, in the metadata, or numbers."""
        count, names, place = len(self.head_weight), self.named, "classes"
        if not names and "classes" in metadata:
            place = f"{self.path}: classes in the metadata"
            names = list_of_texts(metadata["classes"], place)
        elif not names:
            return [str(label) for label in range(count)]
        if len(names) != count or len(set(names)) != count:
            raise RunError(
                f"{place}: given {', '.join(names)}, needed {counted(count, 'distinct name')}, one "
                "for each row of head_weight"
            )
        return names

    def _item_texts(self, metadata: dict[str, str]) -> ItemTexts | list[list[str]] | None:
        """Find the texts of the items: in the file that is given, or in the metadata."""
        lengths = self.offsets.diff()
        if self._tokens is not None:
            return ItemTexts(self._tokens, lengths)
        if "tokens" not in metadata:
            return None
        name = f"{self.path}: tokens in the metadata"
        return texts_of_instances(metadata["tokens"], name, lengths)

    @property
    def dtypes(self) -> dict[str, str]:
        """The type of each tensor in the file, as torch names it."""
        names = sorted(self._file.keys())
        return {name: _NAMES[self._file.get_slice(name).get_dtype()] for name in names}

    @property
    def head_bias(self) -> Tensor:
        """The head's bias, [C] or [B, C]."""
        bias: Tensor = self._file.get_tensor("head_bias")
        return bias

    def _shape(self, name: str) -> list[int]:
        shape: list[int] = self._file.get_slice(name).get_shape()
        return shape

    def _check_shapes(self) -> None:
        """Refuse a tensor of another dtype or shape, before any is read."""
        values, offsets = self._shape("values"), self._shape("offsets")
        self._require(
            "values",
            _FLOATS,
            len(values) in (2, 3) and 0 not in values[1:],
            "[T, D] or [T, H, D] with D and H at least 1",
        )
        self._require("offsets", _INTEGERS, len(offsets) == 1 and offsets[0] >= 1, "[B + 1]")
        items, instances = values[:-1], offsets[0] - 1
        self._require(
            self.attention,
            _FLOATS,
            self._shape(self.attention) == items,
            f"{items}, one for each item (and head) of values",
        )
        weight = self._shape("head_weight")
        inner = ", ".join(map(str, values[1:]))
        self._require(
            "head_weight",
            _FLOATS,
            len(weight) == len(values) and weight[1:] == values[1:] and weight[0] >= 2,
            f"[C, {inner}] with C at least 2 (one logit is two classes, the first all zero)",
        )
        classes = weight[0]
        of_instances = [instances, classes]
        self._require(
            "head_bias",
            _FLOATS,
            self._shape("head_bias") in ([classes], of_instances),
            f"[{classes}] or {of_instances}",
        )
        each = ", one for each instance that offsets tell of"
        for name, dtypes, shape in (
            ("labels", _INTEGERS, [instances]),
            ("ids", _INTEGERS, [instances]),
            ("logits", _FLOATS, of_instances),
        ):
            if name in self._per_instance:
                self._require(name, dtypes, self._shape(name) == shape, f"{shape}{each}")

    def _require(self, name: str, dtypes: dict[str, str], fits: bool, shape: str) -> None:
        given = self._file.get_slice(name).get_dtype()
        if not fits or given not in dtypes:
            *others, last = dtypes.values()
            needed = f"{', '.join(others)} or {last}" if others else last
            raise RunError(
                f"{self.path}: {name}: given {_NAMES.get(given, given)} {self._shape(name)}, "
                f"needed {needed} {shape}"
            )

    def _check_offsets(self) -> None:
        offsets, total = self.offsets, self._shape("values")[0]
        falls = (offsets[1:] < offsets[:-1]).nonzero()  # differences might wrap around
        if len(falls):
            instance = int(falls[0])
            raise RunError(
                f"{self.path}: offsets: given {int(offsets[instance])} and then "
                f"{int(offsets[instance + 1])} at instance {instance}, needed what never decreases"
            )
        if offsets[0] != 0 or offsets[-1] != total:
            raise RunError(
                f"{self.path}: offsets: given {int(offsets[0])} to {int(offsets[-1])}, needed "
                f"from 0 to the {counted(total, 'row')} of values"
            )

    def _check_head(self) -> None:
        # A bias of one instance alone may be bad: that instance is then left out, and counted.
        shared = {"head_weight": self.head_weight}
        if len(self._bias_shape) == 1:
            shared["head_bias"] = self.head_bias
        for name, tensor in shared.items():
            bad = (~tensor.isfinite()).reshape(len(tensor), -1).any(dim=1).nonzero()
            if len(bad):
                raise RunError(
                    f"{self.path}: {name}: given NaN or infinity for class {int(bad[0])}, needed "
                    f"finite numbers"
                )

    def _check_weights(self) -> None:
        for begin, weights in self._pieces("weights"):
            negative = (weights < 0).reshape(len(weights), -1).any(dim=1).nonzero()
            if len(negative):
                item = begin + int(negative[0])
                instance = int(torch.searchsorted(self.offsets, item, right=True)) - 1
                raise RunError(
                    f"{self.path}: weights: given a negative one for item "
                    f"{item - int(self.offsets[instance])} of instance {instance}, needed 0 or more"
                )

    def uneven(self) -> int:
        """Count the instances whose weights do not sum to 1; they are divided by their sum."""
        if self.attention == "scores":
            return 0
        heads = tuple(self._shape("weights")[1:])
        sums = torch.zeros((len(self), *heads), dtype=torch.float64)  # [B] or [B, H]
        for begin, weights in self._pieces("weights"):
            items = torch.arange(begin, begin + len(weights))
            sums.index_add_(
                0, torch.searchsorted(self.offsets, items, right=True) - 1, weights.double()
            )
        off = ((sums - 1).abs() > _UNEVEN) & (sums > 0)
        return int(off.reshape(len(self), -1).any(dim=1).sum())

    def _check_labels(self) -> None:
        for begin, labels in self._pieces("labels"):
            labels = labels.long()  # uint8 has no -1, and int8 not every class
            bad = ((labels < -1) | (labels >= len(self.classes))).nonzero()
            if len(bad):
                row = int(bad[0])
                raise RunError(
                    f"{self.path}: labels: given {int(labels[row])} for instance {begin + row}, "
                    f"needed a class from 0 to {len(self.classes) - 1}, or -1 for none"
                )

    def _check_logits(self) -> None:
        for begin, logits in self._pieces("logits"):
            bad = logits.isnan().any(dim=1).nonzero()
            if len(bad):
                raise RunError(
                    f"{self.path}: logits: given NaN for instance {begin + int(bad[0])}, needed "
                    f"numbers (or no logits at all)"
                )

    def _pieces(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """Read a tensor some rows at a time, each piece with the number of its first row."""
        rows = self._file.get_slice(name)
        for begin in range(0, self._shape(name)[0], _ITEMS):
            yield begin, rows[begin : begin + _ITEMS]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def describe(self) -> dict[str, Any]:
        """Say which file this is, how large, and what is told of it beside."""
        beside: dict[str, Any] = {"classes": self.named} if self.named else {}
        if self._tokens is not None:
            beside["tokens"] = identity("path", self._tokens)
        return beside | {
            **identity("tensors", self.path),
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
        batch = AttentionBatch(
            self._file.get_slice("values")[begin:end],
            self.offsets[start : stop + 1] - begin,
            **{self.attention: attention},
            head_weight=self.head_weight,
            head_bias=bias[start:stop] if len(self._bias_shape) == 2 else bias[:],
            ids=rows.get("ids", torch.arange(start, stop)).long(),
        )
        logits, labels = rows.get("logits"), rows.get("labels")
        return Chunk(
            batch.to(self.device),
            gold=None if labels is None else labels.long(),
            model_label=None if logits is None else logits.argmax(dim=-1),
            texts=self._read_texts(start, stop),
            logits=logits,
        )

    def _read_texts(self, start: int, stop: int) -> list[list[str]] | None:
        texts = self._texts
        if isinstance(texts, ItemTexts):
            return texts.read(start, stop)
        return None if texts is None else texts[start:stop]


def identity(name: str, path: Path) -> dict[str, Any]:
    """Tell a file from another, and from itself after a change."""
    found = path.stat()
    return {name: str(path), "bytes": found.st_size, "modified": found.st_mtime_ns}
