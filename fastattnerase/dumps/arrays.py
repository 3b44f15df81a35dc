"""Arrays in files of NumPy and safetensors, padded or packed, as batches."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.dumps.numbers import whole_numbers
from fastattnerase.dumps.writing import Beside
from fastattnerase.extras import needs
from fastattnerase.item_texts import list_of_texts
from fastattnerase.plurals import counted
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import identity

_BYTES = 1 << 26  # of padded values that are read at a time
_EACH = ("scores", "weights", "lengths", "mask", "labels", "ids", "logits")  # a row an instance
_NAMES = ("values", "offsets", *_EACH, "head_weight", "head_bias")
_ENDINGS = (".npz", ".npy", ".safetensors")
# What NumPy raises of a damaged file, or of one of another kind.
# RuntimeError is of a zip with a password or a compression that Python has not.
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


class _Rows(Protocol):
    """An array of which rows are read."""

    shape: tuple[int, ...]

    def read(self, start: int, stop: int | None) -> Tensor:
        """Read the rows from start to stop, all from there on where stop is None."""


class ArrayFile:
    """A layer of attention in a file of arrays, read some instances at a time.

    `.npz` and `.safetensors` hold the arrays by name: `values`; `scores` or `weights`; `lengths` or
    `mask` where values are padded; `head_weight` and, where there is one, `head_bias`; `labels`,
    `ids` and `logits` where they are known. A `.npy` holds the values, and the others lie beside
    it under their names: `scores.npy`, `lengths.npy`, `head_weight.npy`, … Values are padded,
    [B, N, D] or [B, N, H, D], or packed, [T, D] or [T, H, D], with `offsets` [B + 1].

    Args:
        path: the file. Of an `.npz` each array is in memory as a whole, of the others the rows that
            are being read.

    Raises:
        RunError: no such file, one of another kind, or a damaged one; an array that is missing,
            unknown, or of objects, which only pickle could read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "layer.npz"
        ...     np.savez(path, values=np.zeros((1, 3, 2), np.float32), lengths=np.array([2]),
        ...              scores=np.zeros((1, 3), np.float32), head_weight=np.eye(2))
        ...     [(batch, _)] = ArrayFile(path).batches(0)
        ...     batch.num_items
        2
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrays, self._files, self.classes = _open(path)
        names = set(self._arrays)
        needed = {"values", "head_weight"} - names
        if needed or names - set(_NAMES) or len(names & {"scores", "weights"}) != 1:
            raise RunError(
                f"{path}: given {', '.join(sorted(names))}, needed values, head_weight and one of "
                "scores, weights; lengths, mask or offsets, head_bias, labels, ids, logits may be "
                "there, nothing else"
            )
        self._packed = "offsets" in names
        heads = names & {"head_weight", "head_bias"}
        self._head = {name: self._all(name) for name in heads}
        self._offsets = torch.empty(0)
        if self._packed:
            self._offsets = whole_numbers(f"{path}: offsets", self._all("offsets"))
        if self._packed and names & {"lengths", "mask"}:
            raise RunError(f"{path}: given offsets and lengths or mask, needed one of these")
        self._check_rows()

    def _check_rows(self) -> None:
        """Refuse arrays that have not a row for each instance, or each item."""
        values = self._arrays["values"].shape
        if not self._packed and len(values) not in (3, 4):
            raise RunError(
                f"{self.path}: values: given {list(values)}, needed [B, N, D] or [B, N, H, D], or "
                "offsets where they are packed"
            )
        if self._packed and len(values) not in (2, 3):
            raise RunError(
                f"{self.path}: values: given {list(values)} with offsets, needed [T, D] or "
                "[T, H, D]"
            )
        items, ends = values[0], self._offsets
        if self._packed and (
            ends.ndim != 1
            or not len(ends)
            or (int(ends[0]), int(ends[-1])) != (0, items)
            or bool((ends[1:] < ends[:-1]).any())  # differences might wrap around
        ):
            raise RunError(
                f"{self.path}: offsets: given {list(ends.shape)}, needed [B + 1] that never "
                f"decrease, from 0 to the {counted(items, 'row')} of values"
            )
        rows = len(self)
        for name in _EACH:
            if name in self._arrays:
                wanted = items if self._packed and name in ("scores", "weights") else rows
                given = self._arrays[name].shape
                if not given or given[0] != wanted:
                    raise RunError(
                        f"{self.path}: {name}: given {list(given)}, needed "
                        f"{counted(wanted, 'row')} as values have it"
                    )
        bias = self._head.get("head_bias")
        if bias is not None and bias.ndim == 2 and len(bias) != rows:
            raise RunError(
                f"{self.path}: head_bias: given {list(bias.shape)}, needed [C], or "
                f"{counted(rows, 'row')} as values have it"
            )

    def __len__(self) -> int:
        """The number of instances."""
        return len(self._offsets) - 1 if self._packed else self._arrays["values"].shape[0]

    def describe(self) -> dict[str, Any]:
        """Say which files these are, as data for JSON."""
        return {"from": [identity("path", path) for path in self._files]}

    def batches(self, start: int) -> Iterator[tuple[AttentionBatch, Beside]]:
        """Yield the instances from number `start` on, with labels and logits where known.

        Raises:
            RunError: arrays that do not fit together, naming one, what it is and what is needed.
        """
        while start < len(self):
            stop = self._stop(start)
            try:
                batch = self._batch(start, stop)
            except (ValueError, TypeError) as error:
                raise RunError(f"{self.path}: {error} (instances {start} to {stop - 1})") from error
            yield batch, {name: self._optional(name, start, stop) for name in ("labels", "logits")}
            start = stop

    def _stop(self, start: int) -> int:
        shape = self._arrays["values"].shape
        if self._packed:
            inner = max(1, int(np.prod(shape[1:])))
            limit = int(self._offsets[start]) + _BYTES // 4 // inner
            stop = int(torch.searchsorted(self._offsets, limit, right=True)) - 1
            return max(start + 1, min(stop, len(self)))
        inner = max(1, int(np.prod(shape[1:])))
        return min(start + max(1, _BYTES // 4 // inner), len(self))

    def _batch(self, start: int, stop: int) -> AttentionBatch:
        ids = self._optional("ids", start, stop)
        ids = torch.arange(start, stop) if ids is None else whole_numbers("ids", ids)
        bias = self._head.get("head_bias")
        head: dict[str, Tensor | None] = {
            "head_weight": self._head["head_weight"],
            "head_bias": bias[start:stop] if bias is not None and bias.ndim == 2 else bias,
        }
        if self._packed:
            begin, end = int(self._offsets[start]), int(self._offsets[stop])
            return AttentionBatch(
                self._arrays["values"].read(begin, end),
                self._offsets[start : stop + 1] - begin,
                scores=self._optional("scores", begin, end),
                weights=self._optional("weights", begin, end),
                head_weight=head["head_weight"],
                head_bias=head["head_bias"],
                ids=ids,
            )
        lengths = self._optional("lengths", start, stop)
        if lengths is not None and lengths.dtype != torch.bool:  # which would be a mask
            lengths = whole_numbers("lengths", lengths)
        return AttentionBatch.from_padded(
            self._arrays["values"].read(start, stop),
            scores=self._optional("scores", start, stop),
            weights=self._optional("weights", start, stop),
            lengths=lengths,
            mask=self._optional("mask", start, stop),
            head_weight=head["head_weight"],
            head_bias=head["head_bias"],
            ids=ids,
        )

    def _optional(self, name: str, start: int, stop: int) -> Tensor | None:
        return self._arrays[name].read(start, stop) if name in self._arrays else None

    def _all(self, name: str) -> Tensor:
        return self._arrays[name].read(0, None)


def read_head(path: Path) -> tuple[Tensor, Tensor | None]:
    """Read a linear head alone: `head_weight` and, where there is one, `head_bias` [C].

    Raises:
        RunError: as of `ArrayFile`; no `head_weight`.
    """
    arrays, _, _ = _open(path)
    if "head_weight" not in arrays:
        given = ", ".join(sorted(arrays))
        raise RunError(f"{path}: given {given}, needed head_weight, and head_bias or none")
    bias = arrays["head_bias"].read(0, None) if "head_bias" in arrays else None
    return arrays["head_weight"].read(0, None), bias


# --- the three kinds of files --------------------------------------------------------------------


def _open(path: Path) -> tuple[Mapping[str, _Rows], list[Path], tuple[str, ...]]:
    """Open a file: its arrays by name, all files that hold them, and names of the classes."""
    if path.suffix not in _ENDINGS:
        raise RunError(
            f"{path}: given {path.suffix or 'no ending'}, needed .npz, .npy or .safetensors"
        )
    if not path.is_file():
        raise RunError(f"{path}: no such file")
    ways = {".npz": _of_npz, ".npy": _of_npy, ".safetensors": _of_safetensors}
    arrays, files, classes = ways[path.suffix](path)
    for name in sorted(arrays):
        if not arrays[name].shape:
            raise RunError(f"{path}: {name}: given one number, needed an array")
    return arrays, files, classes


def _of_npz(path: Path) -> tuple[Mapping[str, _Rows], list[Path], tuple[str, ...]]:
    with open(path, "rb") as stream:  # closed also where NumPy refuses it
        try:
            file = np.load(stream, allow_pickle=False)
        except _UNREADABLE as error:
            # What is no file of NumPy's is taken for a pickle, which nobody should be told to trust
            reason = "" if "pickle" in str(error) else f": {error}"
            raise RunError(f"{path}: given no .npz file{reason}") from error
        if isinstance(file, np.ndarray):
            raise RunError(
                f"{path}: given one array, needed several by name, or a name that ends in .npy"
            )
        with file:
            arrays = {
                name: _Numpy(f"{path}: {name}", partial(file.__getitem__, name))
                for name in file.files
            }
    return arrays, [path], ()


def _of_npy(path: Path) -> tuple[Mapping[str, _Rows], list[Path], tuple[str, ...]]:
    beside = {name: path.with_name(f"{name}.npy") for name in _NAMES[1:]}
    places = {"values": path} | {name: p for name, p in beside.items() if p.is_file()}
    arrays = {
        name: _Numpy(str(place), partial(np.load, place, mmap_mode="r", allow_pickle=False))
        for name, place in places.items()
    }
    return arrays, list(places.values()), ()


def _of_safetensors(path: Path) -> tuple[Mapping[str, _Rows], list[Path], tuple[str, ...]]:
    with needs("text"):
        from safetensors import SafetensorError, safe_open
    try:
        file: Any = safe_open(path, framework="pt")  # has no types
    except SafetensorError as error:
        raise RunError(f"{path}: given no safetensors file: {error}") from error
    named = (file.metadata() or {}).get("classes")
    place = f"{path}: classes in the metadata"
    classes = () if named is None else tuple(list_of_texts(named, place))
    return {name: _Safetensors(file, name) for name in sorted(file.keys())}, [path], classes


class _Numpy:
    """An array of NumPy, in memory or mapped from a file.

    Raises:
        RunError: an array of objects or texts, or no array.
    """

    def __init__(self, name: str, load: Callable[[], np.ndarray[Any, Any]]) -> None:
        try:
            array = load()
        except _UNREADABLE as error:
            if "pickle" in str(error) or "Python objects" in str(error):
                raise RunError(
                    f"{name}: given an array of objects, which only pickle can read, needed numbers"
                ) from error
            raise RunError(f"{name}: given no array of NumPy: {error}") from error
        except MemoryError as error:
            raise RunError(
                f"{name}: {error}; arrays in .npy and .safetensors are read in parts"
            ) from error
        if not isinstance(array, np.ndarray):  # another file in the zip, as it is, or a zip
            if isinstance(array, np.lib.npyio.NpzFile):
                array.close()
            raise RunError(f"{name}: given no array of NumPy, needed numbers")
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise RunError(f"{name}: given {array.dtype}, needed numbers of at most 64 bits")
        self.array, self.shape = array, array.shape

    def read(self, start: int, stop: int | None) -> Tensor:
        """Copy rows, in the byte order of this machine."""
        rows = self.array[start:stop]
        return torch.from_numpy(np.array(rows, dtype=rows.dtype.newbyteorder("="), order="C"))


class _Safetensors:
    """A tensor of a safetensors file."""

    def __init__(self, file: Any, name: str) -> None:
        self._rows = file.get_slice(name)
        self.shape = tuple(self._rows.get_shape())

    def read(self, start: int, stop: int | None) -> Tensor:
        """Copy rows."""
        rows: Tensor = self._rows[start:stop] if stop is not None else self._rows[start:]
        return rows
