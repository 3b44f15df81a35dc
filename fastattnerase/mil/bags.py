"""Bags: the patches of one slide each, on disk or in memory, read in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fastattnerase.mil.errors import BagError
from fastattnerase.mil.readers import SUFFIXES, Stored, opened
from fastattnerase.tensor_checks import shape_of

BLOCK = 8_192  # patches read and embedded at a time; at D = 1,024 in float32 they take 32 MiB


@dataclass(frozen=True, eq=False)
class Bag:
    """The patches of one slide; features stay where they are until they are read.

    Attributes:
        slide_id: Name of the slide: the file's name without its suffix.
        source: The file, or what to call a bag in memory, for errors.
        n: Number of patches, 1 or more.
        width: Numbers a patch, D.
        coords: [n, 2], x and y of each patch, int64 or float64; None where unknown.
        patch_size: Side of a patch in the unit of the coordinates; None where unknown.
    """

    slide_id: str
    source: str
    n: int
    width: int
    coords: Tensor | None
    patch_size: float | None
    _open: Callable[[], AbstractContextManager[Stored]] = field(repr=False)

    def blocks(self, rows: int = BLOCK) -> Iterator[Tensor]:
        """Read the features in blocks, [m, D] with m <= `rows`, float32 (float64 where stored so).

        Raises:
            BagError: the file is damaged, or a number is not finite.

        Example:
            >>> import torch
            >>> from fastattnerase import mil
            >>> bag = mil.Bag.of(torch.zeros(5, 2))
            >>> [len(block) for block in bag.blocks(2)]
            [2, 2, 1]
        """
        with self._open() as stored:
            for begin in range(0, self.n, rows):
                block = stored.read(begin, min(begin + rows, self.n))
                block = block if block.dtype == torch.float64 else block.float()
                bad = ~block.isfinite().all(1)  # [m]
                if bool(bad.any()):
                    row = int(bad.long().argmax())
                    kind = "NaN" if bool(block[row].isnan().any()) else "an infinite number"
                    raise BagError(
                        f"{self.source}: given {kind} in the features of patch {begin + row}, "
                        "needed finite numbers"
                    )
                yield block

    def features(self) -> Tensor:
        """Read all features at once, [n, D], as `blocks` gives them."""
        return torch.cat(list(self.blocks()))

    @classmethod
    def of(
        cls,
        features: Tensor,
        coords: Tensor | None = None,
        *,
        slide_id: str = "bag",
        patch_size: float | None = None,
    ) -> Bag:
        """Make a bag of tensors in memory.

        Args:
            features: [n, D] or [1, n, D], any float or integer type.
            coords: [n, 2] or [1, n, 2], x and y of each patch; None where unknown.
            slide_id: its name, in errors, too.
            patch_size: side of a patch in the unit of the coordinates.

        Raises:
            BagError: no patches, another shape, coordinates of another length.

        Example:
            >>> import torch
            >>> from fastattnerase import mil
            >>> bag = mil.Bag.of(torch.zeros(1, 5, 2), slide_id="a")
            >>> bag.n, bag.width
            (5, 2)
        """
        rows = features[0] if features.ndim == 3 else features
        stored = Stored(tuple(features.shape), lambda i, j: rows[i:j], coords, patch_size)
        return _bag(slide_id, slide_id, lambda: nullcontext(stored))


def open_bag(path: Path | str, *, coords: Path | str | None = None) -> Bag:
    """Open the bag of one slide: its number of patches and coordinates; features are read later.

    HDF5 with `features` [n, D] and `coords` [n, 2] as CLAM and TRIDENT write them ([1, n, D], too),
    `.pt` (a tensor or a dictionary of tensors, weights only), `.npy`, and safetensors with the same
    names.

    Args:
        path: the file; its suffix says what it is.
        coords: a file of coordinates of any of these kinds beside it, as `torchmil` has them.

    Returns:
        A `Bag`.

    Raises:
        BagError: naming the file and what is needed: no patches, features of another shape,
            coordinates of another length, a damaged file, a pickle.

    Example:
        >>> import tempfile, numpy as np
        >>> from fastattnerase import mil
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/slide_1.npy", np.zeros((4, 3), "float32"))
        ...     bag = mil.open_bag(f"{folder}/slide_1.npy")
        >>> bag.slide_id, bag.n, bag.width
        ('slide_1', 4, 3)
    """
    path = Path(path)
    bag = _bag(path.stem, str(path), partial(opened, path))
    if coords is None:
        return bag
    with opened(Path(coords)) as stored:
        if len(stored.shape) not in (2, 3):
            raise BagError(f"{coords}: given {list(stored.shape)}, needed [{bag.n}, 2]")
        found = stored.read(0, stored.shape[-2])
    return replace(bag, coords=_coordinates(str(coords), found, bag.n))


def find_bags(folder: Path | str) -> dict[str, Path]:
    """List the files of bags in a folder, by slide: the name without its suffix.

    Raises:
        BagError: no file of a kind that is read, or two of one slide.

    Example:
        >>> import tempfile, numpy as np
        >>> from fastattnerase import mil
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/slide_1.npy", np.zeros((4, 3), "float32"))
        ...     list(mil.find_bags(folder))
        ['slide_1']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BagError(f"{folder}: given no folder, needed one with a file a slide")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in SUFFIXES or not path.is_file():
            continue
        if path.stem in found:
            raise BagError(f"{path}: given beside {found[path.stem].name}, needed one file a slide")
        found[path.stem] = path
    if not found:
        others = sorted({path.suffix for path in folder.iterdir() if path.is_file()} - {""})
        raise BagError(
            f"{folder}: given {', '.join(others) or 'no files'}, needed a file a slide: "
            f"{', '.join(SUFFIXES)}"
        )
    return found


def check_widths(bags: Iterable[Bag]) -> None:
    """Refuse bags of different D, naming the first that differs.

    Raises:
        BagError: a bag whose patches have another number of numbers than those of the first.

    Example:
        >>> import torch
        >>> from fastattnerase import mil
        >>> mil.check_widths([mil.Bag.of(torch.zeros(5, 2)), mil.Bag.of(torch.zeros(1, 2))])
    """
    first = None
    for bag in bags:
        first = first or bag
        check_width(bag, first.width, f"as {first.source} has")


def check_width(bag: Bag, width: int, why: str) -> None:
    """Refuse a bag of another D, in one line."""
    if bag.width != width:
        raise BagError(f"{bag.source}: given D = {bag.width:,}, needed {width:,} {why}")


def _bag(slide_id: str, source: str, open_: Callable[[], AbstractContextManager[Stored]]) -> Bag:
    """Look into a file: how many patches there are, how wide, and where."""
    with open_() as stored:
        shape = stored.shape
        whole = len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)
        if not whole:
            raise BagError(f"{source}: given features {list(shape)}, needed [n, D] or [1, n, D]")
        n, width = shape[-2:]
        if not n or not width:
            what = "no patches" if not n else "patches of D = 0"
            raise BagError(f"{source}: given {what}, needed one patch or more")
        kind = stored.read(0, 1).dtype
        if kind.is_complex or kind == torch.bool:
            raise BagError(f"{source}: given features of {kind}, needed floats or integers")
        coords = None if stored.coords is None else _coordinates(source, stored.coords, n)
        return Bag(slide_id, source, n, width, coords, stored.patch_size, open_)


def _coordinates(source: str, given: Tensor, n: int) -> Tensor:
    """Check coordinates and bring them to [n, 2], int64 or float64."""
    coords = given[0] if given.ndim == 3 and len(given) == 1 else given
    if coords.ndim != 2 or coords.shape[1] != 2 or len(coords) != n:
        raise BagError(
            f"{source}: given coords {shape_of(given)}, needed [{n}, 2], a pair for each patch"
        )
    if not coords.is_floating_point():
        return coords.long()
    if not bool(coords.isfinite().all()):
        raise BagError(f"{source}: given coords that are not finite, needed numbers")
    return coords.double()
