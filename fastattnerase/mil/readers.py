"""Files of patch features, read in blocks: HDF5, weights of torch, NumPy, safetensors."""

from __future__ import annotations

import pickle
import struct
import tokenize
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastattnerase.extras import needs
from fastattnerase.fields import one_of
from fastattnerase.mil.errors import BagError

NAMES = ("features", "feats")  # what files call the features; CLAM and TRIDENT write the first
COORDS = "coords"
# What CLAM and TRIDENT say of the side of a patch, in the unit of the coordinates first.
_SIDES = ("patch_size_level0", "patch_size")
# What libraries raise of files that were cut or are of another kind than they say.
_OF_DAMAGE = (
    *(AssertionError, AttributeError, EOFError, IndexError, KeyError, MemoryError, OSError),
    *(OverflowError, RuntimeError, SyntaxError, TypeError, ValueError, struct.error),
    *(tokenize.TokenError, zipfile.BadZipFile),
)


@dataclass(frozen=True)
class Stored:
    """An open file of features.

    Attributes:
        shape: of the features as stored, [n, D] or [1, n, D]; other shapes are the caller's to
            refuse.
        read: rows from begin to end as a tensor [end - begin, D], of any float or integer type.
        coords: [n, 2] or [1, n, 2] as stored, None where the file has none.
        patch_size: side of a patch in the unit of the coordinates, None where the file says none.
    """

    shape: tuple[int, ...]
    read: Callable[[int, int], Tensor]
    coords: Tensor | None = None
    patch_size: float | None = None


def opened(path: Path) -> AbstractContextManager[Stored]:
    """Open a file of features by its suffix, one of `SUFFIXES`.

    Raises:
        BagError: no such file, one of another kind, or one that holds no features.
    """
    if path.suffix.lower() not in SUFFIXES:
        pickled = ": pickles are not read" if path.suffix.lower() in (".pkl", ".pickle") else ""
        raise BagError(
            f"{path}: given a file {path.suffix or 'without a suffix'}, needed "
            f"{one_of(list(SUFFIXES))}{pickled}"
        )
    if not path.is_file():
        raise BagError(f"{path}: given no file, needed one of features")
    return SUFFIXES[path.suffix.lower()](path)


@contextmanager
def _whole(path: Path, needed: str) -> Iterator[None]:
    """Turn what a library raises of a damaged file into one line that names it."""
    try:
        yield
    except BagError:
        raise
    except _OF_DAMAGE:
        raise BagError(f"{path}: given a damaged file, needed {needed}") from None


@contextmanager
def _hdf5(path: Path) -> Iterator[Stored]:
    """Open an HDF5 file with `features` and, where it has them, `coords`."""
    with needs("mil"):
        import h5py
    with _whole(path, "HDF5 with features"):
        file = h5py.File(path, "r")
    with file:
        coords, side = None, None
        with _whole(path, "HDF5 with features"):
            features = file[_name(path, file.keys())]
            if not isinstance(features, h5py.Dataset):
                raise BagError(f"{path}: given a group features, needed a dataset [n, D]")
            shape = tuple(features.shape)
            if COORDS in file:
                about = {**file.attrs, **file[COORDS].attrs}
                side = next((float(about[name]) for name in _SIDES if name in about), None)
                coords = _tensor(path, file[COORDS][()])

        def read(begin: int, end: int) -> Tensor:
            with _whole(path, "features that can be read to their end"):
                rows = features[0, begin:end] if len(shape) == 3 else features[begin:end]
            return _tensor(path, rows)

        yield Stored(shape, read, coords, side)


@contextmanager
def _torch(path: Path) -> Iterator[Stored]:
    """Open what `torch.save` wrote: a tensor, or a dictionary of tensors; nothing is unpickled."""
    content = load_weights(path, "a tensor, or a dictionary with features")
    features: Any = content
    coords: Any = None
    if isinstance(content, Mapping):
        features, coords = content[_name(path, content)], content.get(COORDS)
    if not isinstance(features, Tensor) or not (coords is None or isinstance(coords, Tensor)):
        raise BagError(
            f"{path}: given {type(content).__name__}, needed a tensor [n, D], or a dictionary of "
            "tensors with features"
        )
    if features.layout != torch.strided:
        raise BagError(f"{path}: given features {features.layout}, needed a dense tensor")
    yield Stored(tuple(features.shape), _rows_of(features), coords)


def load_weights(path: Path, what: str) -> Any:
    """Load what `torch.save` wrote, weights alone, from the file as it lies where that is possible.

    Raises:
        BagError: the file is damaged, or has objects in it that only unpickling would make.
    """
    try:
        with _whole(path, what):
            # Of the older form, which is no archive, all of it is read.
            mapped = zipfile.is_zipfile(path)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped or None)
    except pickle.UnpicklingError as error:
        given = "a damaged file"
        if "Weights only load failed" in str(error):
            given = "a pickle of other objects than tensors, or a damaged one"
            what = f"weights alone: {what}"
        raise BagError(f"{path}: given {given}, needed {what}") from None


@contextmanager
def _numpy(path: Path) -> Iterator[Stored]:
    """Open an array of NumPy; one of objects, which is a pickle, is refused."""
    with _whole(path, "an array [n, D] of numbers; pickles are not read"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)

    def read(begin: int, end: int) -> Tensor:
        rows = array[0, begin:end] if array.ndim == 3 else array[begin:end]
        return _tensor(path, np.array(rows))

    yield Stored(tuple(array.shape), read)


@contextmanager
def _safetensors(path: Path) -> Iterator[Stored]:
    """Open a safetensors file with `features` and, where it has them, `coords`."""
    with needs("mil"):
        from safetensors import SafetensorError, safe_open
    try:
        with _whole(path, "safetensors"):
            file: Any = safe_open(str(path), "pt")
    except SafetensorError:
        raise BagError(f"{path}: given a damaged file, needed safetensors") from None
    with file:
        names = list(file.keys())
        features = file.get_slice(_name(path, names))
        shape = tuple(features.get_shape())

        def read(begin: int, end: int) -> Tensor:
            rows: Tensor = features[:, begin:end][0] if len(shape) == 3 else features[begin:end]
            return rows

        coords = file.get_tensor(COORDS) if COORDS in names else None
        side = next((float(v) for k, v in (file.metadata() or {}).items() if k in _SIDES), None)
        yield Stored(shape, read, coords, side)


def _name(path: Path, names: Any) -> str:
    """Find what a file calls the features."""
    there = list(map(str, names))
    found = next((name for name in NAMES if name in there), None)
    if found is None:
        given = ", ".join(sorted(there)[:6]) or "nothing"
        raise BagError(f"{path}: given {given}, needed features [n, D]")
    return found


def _rows_of(features: Tensor) -> Callable[[int, int], Tensor]:
    return lambda begin, end: features[0, begin:end] if features.ndim == 3 else features[begin:end]


def _tensor(path: Path, array: Any) -> Tensor:
    """Turn an array of a file into a tensor."""
    try:
        return torch.from_numpy(np.asarray(array))
    except TypeError:
        kind = getattr(array, "dtype", type(array).__name__)
        raise BagError(f"{path}: given {kind}, needed numbers") from None


SUFFIXES: dict[str, Callable[[Path], AbstractContextManager[Stored]]] = {
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".pt": _torch,
    ".pth": _torch,
    ".npy": _numpy,
    ".safetensors": _safetensors,
}
