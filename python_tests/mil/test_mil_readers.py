"""Files of patch features: what is read of them, and one line for each that cannot be."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fastattnerase import mil
from fastattnerase.mil import readers

FEATURES = torch.arange(12.0).reshape(4, 3)
COORDS = torch.tensor([[0, 0], [256, 0], [0, 256], [256, 256]])


def hdf5(path: Path, features: object = FEATURES, coords: object = COORDS, **about: object) -> None:
    """What CLAM and TRIDENT write."""
    with h5py.File(path, "w") as file:
        file["features"] = np.asarray(features)
        if coords is not None:
            file["coords"] = np.asarray(coords)
            file["coords"].attrs.update(about)


def write(path: Path, features: torch.Tensor = FEATURES, coords: object = COORDS) -> Path:
    """A bag of the kind that its suffix says."""
    both = {"features": features} | ({} if coords is None else {"coords": torch.as_tensor(coords)})
    if path.suffix == ".h5":
        hdf5(path, features, coords)
    elif path.suffix == ".pt":
        torch.save(both, path)
    elif path.suffix == ".safetensors":
        save_file(both, path)
    else:
        np.save(path, features.numpy())
    return path


@pytest.mark.parametrize("suffix", [".h5", ".pt", ".safetensors"])
@pytest.mark.parametrize("extra", [False, True])
def test_features_and_coordinates(tmp_path: Path, suffix: str, extra: bool) -> None:
    # [1, n, D] is what some extractors write.
    path = write(tmp_path / f"TCGA.a-1{suffix}", FEATURES[None] if extra else FEATURES)
    bag = mil.open_bag(path)
    assert (bag.slide_id, bag.n, bag.width) == ("TCGA.a-1", 4, 3)
    assert torch.equal(bag.features(), FEATURES)
    assert bag.coords is not None
    assert torch.equal(bag.coords, COORDS)
    assert [len(block) for block in bag.blocks(3)] == [3, 1]
    assert torch.equal(torch.cat(list(bag.blocks(3))), FEATURES)


@pytest.mark.parametrize("extra", [False, True])
def test_arrays_of_numpy_with_coordinates_beside_them(tmp_path: Path, extra: bool) -> None:
    array = FEATURES.numpy().astype("float16")
    np.save(tmp_path / "a.npy", array[None] if extra else array)
    np.save(tmp_path / "coords.npy", COORDS.numpy())
    bag = mil.open_bag(tmp_path / "a.npy", coords=tmp_path / "coords.npy")
    assert torch.equal(bag.features(), FEATURES)
    assert bag.coords is not None
    assert torch.equal(bag.coords, COORDS)
    assert mil.open_bag(tmp_path / "a.npy").coords is None


def test_tensors_alone_and_of_older_torch(tmp_path: Path) -> None:
    torch.save(FEATURES.bfloat16(), tmp_path / "a.pt")
    torch.save(FEATURES, tmp_path / "b.pt", _use_new_zipfile_serialization=False)
    for name in "ab":
        bag = mil.open_bag(tmp_path / f"{name}.pt")
        assert torch.equal(bag.features(), FEATURES)
        assert bag.coords is None


def test_doubles_stay_doubles_and_integers_become_floats(tmp_path: Path) -> None:
    hdf5(tmp_path / "a.h5", FEATURES.double(), COORDS.double())
    hdf5(tmp_path / "b.h5", FEATURES.to(torch.uint8))
    assert mil.open_bag(tmp_path / "a.h5").features().dtype == torch.float64
    assert mil.open_bag(tmp_path / "b.h5").features().dtype == torch.float32


@pytest.mark.parametrize(
    ("about", "side"),
    [({"patch_size": 256, "patch_size_level0": 512}, 512), ({"patch_size": 256}, 256), ({}, None)],
)
def test_the_side_of_a_patch(tmp_path: Path, about: dict[str, object], side: float | None) -> None:
    hdf5(tmp_path / "a.h5", **about)
    assert mil.open_bag(tmp_path / "a.h5").patch_size == side


def test_features_are_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening reads one patch; a block reads its own."""
    asked: list[tuple[int, int]] = []
    opened = readers.SUFFIXES[".h5"]

    def watched(path: Path) -> object:
        context = opened(path)

        class Watched:
            def __enter__(self) -> readers.Stored:
                stored = context.__enter__()

                def read(begin: int, end: int) -> torch.Tensor:
                    asked.append((begin, end))
                    return stored.read(begin, end)

                return readers.Stored(stored.shape, read, stored.coords)

            def __exit__(self, *error: object) -> None:
                context.__exit__(*error)  # type: ignore[arg-type]

        return Watched()

    hdf5(tmp_path / "a.h5")
    monkeypatch.setitem(readers.SUFFIXES, ".h5", watched)
    bag = mil.open_bag(tmp_path / "a.h5")
    assert asked == [(0, 1)]
    next(bag.blocks(2))
    assert asked == [(0, 1), (0, 2)]


class Anything:
    """What only unpickling would make."""


def of_objects(path: Path) -> None:
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


def nan(path: Path) -> None:
    features = FEATURES.clone()
    features[2, 1] = torch.nan
    hdf5(path, features)


def cut(path: Path) -> None:
    hdf5(path, torch.zeros(1000, 30))
    path.write_bytes(path.read_bytes()[:60_000])


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no file": ("a.h5", lambda path: None, "given no file, needed one of features"),
    "a pickle": ("a.pkl", lambda path: path.write_bytes(pickle.dumps([1])),
                 "given a file .pkl, needed .h5, .hdf5, .pt, .pth, .npy or .safetensors: pickles "
                 "are not read"),
    "a pickle of torch": ("a.pt", lambda path: torch.save({"features": Anything()}, path),
                          "given a pickle of other objects than tensors, or a damaged one, needed "
                          "weights alone"),
    "a pickle of numpy": ("a.npy", of_objects, "given a damaged file, needed an array [n, D] of "
                          "numbers; pickles are not read"),
    "no patches": ("a.h5", lambda path: hdf5(path, torch.zeros(0, 3), None),
                   "given no patches, needed one patch or more"),
    "no patches of numpy": ("a.npy", lambda path: np.save(path, np.zeros((0, 3))),
                            "given no patches, needed one patch or more"),
    "NaN": ("a.h5", nan, "given NaN in the features of patch 2, needed finite numbers"),
    "infinity": ("a.pt", lambda path: torch.save(FEATURES / 0, path),
                 "given NaN in the features of patch 0, needed finite numbers"),
    "other coordinates": ("a.h5", lambda path: hdf5(path, coords=COORDS[:3]),
                          r"given coords [3, 2], needed [4, 2], a pair for each patch"),
    "three coordinates": ("a.safetensors", lambda path: write(path, coords=torch.zeros(4, 3)),
                          "given coords [4, 3], needed [4, 2]"),
    "coordinates that are not there": (
        "a.pt", lambda path: write(path, coords=torch.full((4, 2), torch.nan)),
        "given coords that are not finite, needed numbers"),
    "one axis": ("a.npy", lambda path: np.save(path, np.zeros(3)),
                 "given features [3], needed [n, D] or [1, n, D]"),
    "two slides": ("a.npy", lambda path: np.save(path, np.zeros((2, 4, 3))),
                   "given features [2, 4, 3], needed [n, D] or [1, n, D]"),
    "other names": ("a.safetensors", lambda path: save_file({"x": FEATURES}, path),
                    "given x, needed features [n, D]"),
    "texts": ("a.npy", lambda path: np.save(path, np.array([["a"]])), "needed numbers"),
    "complex": ("a.npy", lambda path: np.save(path, np.zeros((2, 2), complex)),
                "given features of torch.complex128, needed floats or integers"),
    "damaged hdf5": ("a.h5", lambda path: path.write_bytes(b"\x89HDF"),
                     "given a damaged file, needed HDF5"),
    "cut hdf5": ("a.h5", cut, "damaged"),
    "damaged torch": ("a.pt", lambda path: path.write_bytes(b"nothing"), "given a"),
    "empty torch": ("a.pt", lambda path: path.write_bytes(b""), "given a damaged file"),
    "damaged numpy": ("a.npy", lambda path: path.write_bytes(b"\x93NUMPY"), "given a"),
    "empty numpy": ("a.npy", lambda path: path.write_bytes(b""), "given a damaged file"),
    "damaged safetensors": ("a.safetensors", lambda path: path.write_bytes(b"xx"), "damaged"),
    "a list": ("a.pt", lambda path: torch.save([FEATURES], path),
               "given list, needed a tensor [n, D], or a dictionary"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_line_with_their_name(tmp_path: Path, case: str) -> None:
    name, make, told = BAD[case]
    make(tmp_path / name)
    with pytest.raises(mil.BagError, match=re.escape(told)) as caught:
        list(mil.open_bag(tmp_path / name).blocks())
    assert str(caught.value).startswith(f"{tmp_path / name}: given ")
    assert "\n" not in str(caught.value)


def test_a_folder_of_slides(tmp_path: Path) -> None:
    with pytest.raises(mil.BagError, match="given no files, needed a file a slide"):
        mil.find_bags(tmp_path)
    write(tmp_path / "b.h5")
    write(tmp_path / "a.npy")
    (tmp_path / "notes.txt").write_text("")
    assert list(mil.find_bags(tmp_path)) == ["a", "b"]
    write(tmp_path / "a.pt")
    with pytest.raises(mil.BagError, match=r"a.pt: given beside a.npy, needed one file a slide"):
        mil.find_bags(tmp_path)
    with pytest.raises(mil.BagError, match="given no folder"):
        mil.find_bags(tmp_path / "absent")


def test_bags_of_different_widths(tmp_path: Path) -> None:
    write(tmp_path / "a.npy")
    write(tmp_path / "b.npy", FEATURES[:, :2])
    bags = [mil.open_bag(path) for path in mil.find_bags(tmp_path).values()]
    with pytest.raises(mil.BagError, match=r"b.npy: given D = 2, needed 3 as .*a.npy has"):
        mil.check_widths(bags)


# --- labels ---------------------------------------------------------------------------------------


def table(folder: Path, text: str, name: str = "labels.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_names_are_sorted_and_numbers_stand_for_themselves(tmp_path: Path) -> None:
    path = table(tmp_path, "case_id,slide_id,label\n1,a,tumour\n1,b,normal\n")
    found = mil.read_labels(path)
    assert (dict(found.labels), found.classes) == ({"a": 1, "b": 0}, ("normal", "tumour"))
    found = mil.read_labels(path, classes=("tumour", "normal"))
    assert dict(found.labels) == {"a": 0, "b": 1}
    found = mil.read_labels(table(tmp_path, "slide_id,label\na,2\nb,0\n"))
    assert (dict(found.labels), found.classes) == ({"a": 2, "b": 0}, ("0", "1", "2"))
    found.check_classes(3, "the model")
    found.check_classes(5, "the model")  # these slides may lack classes
    with pytest.raises(mil.BagError, match=r"given 3 classes .0, 1, 2., needed 2 as the model has"):
        found.check_classes(2, "the model")


def test_names_of_another_number_of_classes(tmp_path: Path) -> None:
    found = mil.read_labels(table(tmp_path, "slide_id,label\na,x\nb,y\n"))
    with pytest.raises(mil.BagError, match=r"labels.csv: given 2 classes \(x, y\), needed 3 as m"):
        found.check_classes(3, "model.pt")


def test_splits_of_a_column_and_of_files(tmp_path: Path) -> None:
    path = table(tmp_path, "slide_id,label,split\na,0,train\nb,1,test\nc,1,val\n")
    assert list(mil.read_labels(path, split="test").labels) == ["b"]
    clam = table(tmp_path, ",train,val,test\n0,a,c,b\n1,b,,\n", "splits_0.csv")
    assert list(mil.read_labels(path, split="train", splits=clam).labels) == ["a", "b"]
    own = table(tmp_path, "slide_id,split\na,test\n", "own.csv")
    assert list(mil.read_labels(path, split="test", splits=own).labels) == ["a"]
    with pytest.raises(mil.BagError, match="given no slide of the split dev, needed one"):
        mil.read_labels(path, split="dev")
    with pytest.raises(mil.BagError, match=r"splits_0.csv: given columns .*needed dev"):
        mil.read_labels(path, split="dev", splits=clam)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name,label\na,1\n", "given columns name, label, needed slide_id"),
        ("slide_id,class\na,1\n", "given columns slide_id, class, needed label"),
        ("slide_id,label\na,1\na,0\n", "given a with 1 and, in line 3, with 0, needed one label"),
        ("slide_id,label\na,\n", "given no label in line 2, needed one"),
        ("slide_id,label\n", "given no slide, needed one or more"),
        ("", "given columns nothing, needed slide_id and label"),
    ],
)
def test_bad_tables_of_labels(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(mil.BagError, match=told):
        mil.read_labels(table(tmp_path, text))


def test_labels_that_are_no_class_and_files_that_are_no_table(tmp_path: Path) -> None:
    path = table(tmp_path, "slide_id,label\na,z\n")
    with pytest.raises(mil.BagError, match="given the label z, needed one of x, y"):
        mil.read_labels(path, classes=("x", "y"))
    with pytest.raises(mil.BagError, match="given no file, needed a CSV with slide_id"):
        mil.read_labels(tmp_path / "absent.csv")
    path.write_bytes(b"slide_id,label\n\xff,1\n")
    with pytest.raises(mil.BagError, match="given a file that is no CSV in UTF-8"):
        mil.read_labels(path)
