"""Writing a dump: shards one after another, each whole or not there, and the manifest last."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.dumps.checksums import crc32_of, digest_of
from fastattnerase.dumps.compact import contributions
from fastattnerase.dumps.facts import facts_of
from fastattnerase.dumps.ids import UniqueIds, ids_of
from fastattnerase.dumps.journal import lines_of
from fastattnerase.dumps.manifest import (
    FORMAT,
    JOURNAL,
    KIND,
    MANIFEST,
    Manifest,
    Shard,
    read_manifest,
)
from fastattnerase.dumps.numbers import whole_numbers
from fastattnerase.dumps.tensor_file import write_tensors
from fastattnerase.extras import needs
from fastattnerase.joining import why_apart
from fastattnerase.models.storage import require_writable, write_atomically, write_json
from fastattnerase.plurals import counted
from fastattnerase.runs.lock import alone
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import RunError, provenance
from fastattnerase.sources import TensorSource
from fastattnerase.tensor_checks import FLOATS

Beside = Mapping[str, Tensor | None]  # labels [B] and logits [B, C]

_EACH = 3 * 8  # bytes of an instance beside its items: offset, id, label
_HEADER = 1 << 11  # bytes of a file's header, at most, but for names of classes
_SHARED = 1 << 12  # bytes kept for header and head, at least: all that a small head needs


def save_batches(
    batches: Iterable[AttentionBatch | tuple[AttentionBatch, Beside]],
    folder: Path | str,
    *,
    shard_bytes: int = 1 << 28,
    classes: Sequence[str] = (),
    compact: bool = False,
    renumber: bool = False,
    made_by: Mapping[str, Any] | None = None,
) -> Manifest:
    """Write batches of one model into a dump: a folder of safetensors shards and a manifest.

    A shard is a file that `fastattnerase erase --tensors` reads. It is written aside, synced and
    renamed; where the writer was killed, the same call goes on after the last whole shard, passing
    over the instances that are there.

    Args:
        batches: batches with a linear head, all with the same one, and the same types; or pairs of
            a batch and what is known beside it, `labels` [B] (integers, -1 for none) and `logits`
            [B, C]. They are gone through once.
        folder: made where it is missing; it takes one dump.
        shard_bytes: of a file, at most. Larger are files of one instance for which this is too
            little, and those with a head larger than half of it: they have as many instances as
            fit into half of it.
        classes: names of the classes; 0, 1, … where none are given.
        compact: whether to keep contributions `W h` (float32 [T, C]) instead of values [T, D], with
            the identity for a head: much smaller, and near-ties are then judged on these.
        renumber: whether instances get the numbers 0, 1, … instead of their ids.
        made_by: what the batches come from, for the manifest; data for JSON.

    Returns:
        The manifest.

    Raises:
        RunError: a callable head; batches of two models or of different types; an id that is given
            twice; a folder with another dump, or in which another process writes; other ids or
            lengths than those of the shards that are there, or fewer instances.
        OSError: the folder cannot be written to, or the disk is full.

    Example:
        >>> import tempfile, torch
        >>> import fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.eye(3), torch.tensor([0, 2, 3]), scores=torch.zeros(3),
        ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fae.save_batches([batch], folder).items
        ...     [read.ids.tolist() for read in fae.open_batches(folder)]
        3
        [[0, 1]]
    """
    options = Options(shard_bytes, tuple(classes), compact, renumber, dict(made_by or {}))
    with Writer(Path(folder), options) as writer:
        if writer.finished is not None:
            raise RunError(f"{folder}: given a folder with a finished dump, needed another")
        passed = writer.instances
        for given in batches:
            batch, beside = given if isinstance(given, tuple) else (given, {})
            skip = min(passed, len(batch))
            writer.passes_over(batch[:skip])
            passed -= skip
            if skip < len(batch):
                rest = {name: None if x is None else x[skip:] for name, x in beside.items()}
                writer.add(batch[skip:], rest)
        if passed:
            there = writer.instances
            raise RunError(
                f"{folder}: given {counted(there - passed, 'instance')}, needed the {there} of the "
                "shards that are there again and those after them, or a new folder"
            )
        return writer.finish()


@dataclasses.dataclass(frozen=True)
class Options:
    """What decides, with the instances, which files a dump has: see `save_batches`."""

    shard_bytes: int = 1 << 28
    classes: tuple[str, ...] = ()
    compact: bool = False
    renumber: bool = False
    made_by: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shard_bytes < 1:
            raise RunError(f"shard_bytes: given {self.shard_bytes}, needed at least 1")
        if len(set(self.classes)) != len(self.classes):
            raise RunError(f"classes: given {', '.join(self.classes)}, needed distinct names")
        try:  # of the command line, what is no UTF-8
            json.dumps([self.classes, self.made_by], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise RunError(
                f"classes, made_by: given {error.object[error.start : error.end]!a}, needed "
                "texts that can be written as UTF-8"
            ) from error


class Writer:
    """Writes shards as instances are added, and the manifest at the end.

    Args:
        folder: of the dump; nobody else writes there until the writer is left.
        options: see `save_batches`.

    Attributes:
        instances: in the shards that are whole, of this call or one before.
        finished: the manifest, where the folder holds the whole dump of the same `made_by`, form
            and names of classes.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder, self.options = folder, options
        self.instances = 0
        self.finished: Manifest | None = None
        self._shards: list[Shard] = []
        self._ids = UniqueIds()
        self._first: AttentionBatch | None = None  # what the others must be like
        self._beside: dict[str, torch.dtype] = {}
        self._count = 0  # batches of this call
        self._facts: dict[str, Any] | None = None  # of the shards that are whole
        self._pending: list[tuple[AttentionBatch, dict[str, Tensor]]] = []
        self._room = self._full = 0  # bytes for instances; known with the first batch
        self._passing: list[Shard] = []  # whose instances are still to be passed over
        self._passed: list[tuple[Tensor, int]] = []  # ids of the first of these, and their items
        names = json.dumps(options.classes)
        self._metadata = {"classes": names} if options.classes else {}

    def __enter__(self) -> Writer:
        require_writable(self.folder)
        self._lock = alone(self.folder)
        self._lock.__enter__()
        try:
            self._resume()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    # --- going on --------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Read what a call before has written, and begin the journal where there is none."""
        if (self.folder / MANIFEST).is_file():
            found = read_manifest(self.folder)
            own = _as_json(self.options)["made_by"]
            names = self.options.classes or tuple(map(str, range(len(found.classes))))
            if (
                not own
                or any(found.made_by.get(key) != own[key] for key in own)
                or (self.options.compact, names) != (found.compact, found.classes)
            ):
                raise RunError(
                    f"{self.folder}: given a folder with a finished dump, needed another (--out)"
                )
            for shard in found.shards:
                path = self.folder / shard.file
                if not path.is_file() or path.stat().st_size != shard.bytes:
                    raise RunError(
                        f"{path}: given no file of {counted(shard.bytes, 'byte')}, needed the one "
                        f"that {MANIFEST} tells of, or a new folder (--out)"
                    )
            self.finished = found
            return
        journal = self.folder / JOURNAL
        if not journal.is_file() and (other := next(self.folder.glob("shard-*.safetensors"), None)):
            raise RunError(
                f"{self.folder}: given a folder with {other.name} and neither {MANIFEST} nor "
                f"{JOURNAL}, needed a new folder (--out)"
            )
        whole = lines_of(journal) if journal.is_file() else []
        header = {"kind": KIND, "format": FORMAT, **_as_json(self.options)}
        if len(whole) > 1:  # where no shard is there, nothing is begun
            # Compared as texts, since NaN is not equal to itself.
            before, own = (
                {key: json.dumps(one.get(key), sort_keys=True) for key in header}
                for one in (whole[0], header)
            )
            if differ := [key for key in header if before[key] != own[key]]:
                raise RunError(
                    f"{self.folder}: given a dump begun of other instances or with other options "
                    f"({', '.join(differ)}), needed a new folder (--out)"
                )
        with needs("text"):
            from safetensors import SafetensorError
        for content in whole[1:]:
            shard = read_record(Shard, content, journal)
            path = self.folder / shard.file
            if not path.is_file() or path.stat().st_size != shard.bytes:
                break
            try:
                ids = ids_of(path)
            except SafetensorError:  # damaged: written again, as those after it
                break
            self._ids.add(ids)
            self._shards.append(shard)
        self.instances = sum(shard.instances for shard in self._shards)
        if self._shards:
            self._facts = facts_of(TensorSource(self.folder / self._shards[0].file))
        records = [header, *map(to_json, self._shards)]
        write_atomically(journal, "".join(json.dumps(line) + "\n" for line in records).encode())
        self._passing = list(self._shards)

    def passes_over(self, batch: AttentionBatch) -> None:
        """Check that instances which are passed over are those of the shards that are there.

        Raises:
            RunError: their ids or lengths are others.
        """
        while len(batch):
            shard = self._passing[0]
            skip = min(shard.instances - sum(len(own) for own, _ in self._passed), len(batch))
            self._passed.append((batch.ids[:skip].cpu(), batch[:skip].num_items))
            batch = batch[skip:]
            ids = torch.cat([own for own, _ in self._passed]).numpy()
            if len(ids) < shard.instances:
                return
            same = self.options.renumber or np.array_equal(ids, ids_of(self.folder / shard.file))
            if not same or sum(items for _, items in self._passed) != shard.items:
                raise RunError(
                    f"{self.folder}: given other ids or lengths than those in {shard.file}, needed "
                    "the same instances again, or a new folder"
                )
            self._passed.clear()
            self._passing.pop(0)

    # --- adding ----------------------------------------------------------------------------------

    def add(self, batch: AttentionBatch, beside: Beside) -> None:
        """Add instances; a shard is written as soon as it is full.

        Args:
            batch: the instances.
            beside: `labels` [B] and `logits` [B, C], in all calls the same of them.

        Raises:
            RunError: see `save_batches`.
        """
        known = self._check(batch, beside)
        if self.options.compact:
            batch = contributions(batch)
        batch = batch.to("cpu")
        if self._count == 1:
            weight, bias = batch.linear_head
            head = weight.nbytes + (bias.nbytes if bias.ndim == 1 else 0)
            head += len(json.dumps(self._metadata))
            size = self.options.shard_bytes
            # Beside a large head instances have half of the size: each file has the head again.
            room = size // 2 if head > size // 2 else size - max(_SHARED, _HEADER + head)
            self._room = self._full = room
        bytes_of = self._bytes(batch, known)  # [B]
        ends = bytes_of.cumsum(0)
        start = 0
        while start < len(batch):
            taken = int(ends[start - 1]) if start else 0
            limit = min(taken + self._room, int(ends[-1]))  # any size may be asked for
            stop = max(start, int(torch.searchsorted(ends, limit, right=True)))
            if stop == start and self._room == self._full:
                stop = start + 1  # larger than a shard: a file of its own
            if stop > start:
                self._pending.append(
                    (batch[start:stop], {name: x[start:stop] for name, x in known.items()})
                )
                self._room -= int(ends[stop - 1]) - taken
            if stop < len(batch):
                self._flush()
            start = stop

    def _check(self, batch: AttentionBatch, beside: Beside) -> dict[str, Tensor]:
        """Refuse a batch that is not like the first; give what is known beside it."""
        if batch.head is not None:
            raise RunError(
                "batches: given a callable head, which has no place in a file, needed a linear "
                "one; `fastattnerase erase` takes any model, instance by instance"
            )
        if batch.num_classes < 2:
            raise RunError(
                "batches: given a head of one class, needed at least 2 (`fae.binary_head` makes "
                "two of one logit)"
            )
        given = {name: x for name, x in beside.items() if x is not None}
        if unknown := set(given) - {"labels", "logits"}:
            raise RunError(f"batches: given {', '.join(sorted(unknown))}, needed labels or logits")
        for name, x in given.items():
            if not isinstance(x, Tensor):
                raise RunError(f"{name}: given {type(x).__name__}, needed a tensor")
        known = {name: x.detach().cpu() for name, x in given.items()}
        for name, shape in (("labels", [len(batch)]), ("logits", [len(batch), batch.num_classes])):
            if name in known and list(known[name].shape) != shape:
                raise RunError(f"{name}: given {list(known[name].shape)}, needed {shape}")
        if "logits" in known and known["logits"].dtype not in FLOATS:
            needed = ", ".join(map(str, FLOATS))
            raise RunError(f"logits: given {known['logits'].dtype}, needed one of {needed}")
        if "labels" in known:
            known["labels"] = whole_numbers("labels", known["labels"])
        if self.options.classes and len(self.options.classes) != batch.num_classes:
            raise RunError(
                f"classes: given {', '.join(self.options.classes)}, needed "
                f"{counted(batch.num_classes, 'name')}, one for each row of the head"
            )
        if self._first is None:
            for name, part in zip(("head_weight", "head_bias"), batch.linear_head, strict=True):
                # A bias of one instance alone may be bad: a sweep leaves that instance out.
                if name == "head_bias" and part.ndim > 1:
                    continue
                if not bool(part.isfinite().all()):  # every shard would be set aside
                    raise RunError(f"{name}: given NaN or infinity, needed finite numbers")
            self._first = batch[:0]
            self._beside = {name: x.dtype for name, x in known.items()}
        problem = why_apart(self._first, batch)
        if not problem and self._first.linear_head[1].ndim != batch.linear_head[1].ndim:
            problem = "have a bias of all instances and biases of each"
        if not problem and {name: x.dtype for name, x in known.items()} != self._beside:
            problem = "have not the same of labels and logits, or of different dtypes"
        if problem:
            raise RunError(
                f"batches: given number {self._count} and number 0, which {problem}, needed one "
                "model's"
            )
        self._count += 1
        return known

    def _bytes(self, batch: AttentionBatch, known: dict[str, Tensor]) -> Tensor:
        """Count the bytes of each instance in a file: [B]."""
        values, _, attention, _ = batch.packed
        item = values[:1].numel() * values.element_size() if len(values) else 0
        item += attention[:1].numel() * attention.element_size() if len(values) else 0
        each = _EACH
        if "logits" in known:
            each += batch.num_classes * known["logits"].element_size()
        bias = batch.linear_head[1]
        if bias.ndim == 2:
            each += batch.num_classes * bias.element_size()
        return batch.lengths * item + each

    def _flush(self) -> None:
        """Write the pending instances as a shard."""
        if not self._pending:
            return
        batches = [batch for batch, _ in self._pending]
        joined = AttentionBatch.cat(batches)
        tensors = _tensors_of(joined) | {
            name: torch.cat([known[name] for _, known in self._pending]) for name in self._beside
        }
        if self.options.renumber:
            tensors["ids"] = torch.arange(self.instances, self.instances + len(joined))
        self._ids.add(tensors["ids"].numpy())
        path = self.folder / f"shard-{len(self._shards):06d}.safetensors"
        shard = self._write(path, tensors, len(joined), joined.num_items)
        with open(self.folder / JOURNAL, "a", encoding="utf-8") as journal:
            journal.write(json.dumps(to_json(shard)) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
        self._shards.append(shard)
        self.instances += len(joined)
        self._pending.clear()
        self._room = self._full

    def _write(self, path: Path, tensors: dict[str, Tensor], instances: int, items: int) -> Shard:
        """Write a file aside, see that `erase --tensors` reads it, and rename it."""
        partial = path.with_suffix(".partial")
        try:
            write_tensors(partial, tensors, self._metadata)
            try:
                own = facts_of(TensorSource(partial))
            except RunError as error:
                named = f"batches (those of {path.name})"
                raise RunError(str(error).replace(str(partial), named)) from error
            self._facts = self._facts or own
            other = [name for name in own if own[name] != self._facts[name]]
            if other:
                raise RunError(
                    f"{self.folder}: given another {' and '.join(other)} than in the shards that "
                    "are there, needed the same model, or a new folder"
                )
            digests = digest_of(partial), crc32_of(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        size = path.stat().st_size
        return Shard(path.name, self.instances, instances, items, size, *digests)

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> Manifest:
        """Write the last shard and the manifest.

        Raises:
            RunError: there was no instance at all.
        """
        self._flush()
        if self._facts is None:
            raise RunError("batches: given no instance, needed at least one")
        manifest = Manifest(
            kind=KIND,
            format=FORMAT,
            compact=self.options.compact,
            near_ties="contributions" if self.options.compact else "values",
            instances=self.instances,
            items=sum(shard.items for shard in self._shards),
            made_by=_as_json(self.options)["made_by"] | provenance(),
            shards=tuple(self._shards),
            **self._facts,
        )
        write_json(self.folder / MANIFEST, to_json(manifest))
        (self.folder / JOURNAL).unlink()
        return manifest


def _as_json(options: Options) -> dict[str, Any]:
    """Give options as a file has them, lists for tuples."""
    content: dict[str, Any] = json.loads(json.dumps(to_json(options)))
    return content


def _tensors_of(batch: AttentionBatch) -> dict[str, Tensor]:
    """Give a batch the names of a file's tensors."""
    attention = batch.scores if batch.weights is None else batch.weights
    weight, bias = batch.head_weight, batch.head_bias
    assert attention is not None  # a batch has one of the two
    assert weight is not None  # callable heads are refused
    assert bias is not None
    return {
        "values": batch.values,
        "offsets": batch.offsets,
        "scores" if batch.is_scores else "weights": attention,
        "head_weight": weight,
        "head_bias": bias,
        "ids": batch.ids,
    }
