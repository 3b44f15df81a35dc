"""`fastattnerase dump`: from a model, and from files of arrays; what is refused."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import invoke, one_line
from full_disk import at_most
from safetensors.torch import save_file

import fastattnerase as fae
from fastattnerase import sources
from fastattnerase.dumps import making, writing
from fastattnerase.dumps.checksums import digest_of
from fastattnerase.sources import TensorSource

# Two instances of three and one items, D = 2, C = 2; what is padding is NaN.
NAN = float("nan")
VALUES = np.array([[[1, 2], [3, 4], [5, 6]], [[7, 8], [NAN, NAN], [NAN, NAN]]], dtype=np.float32)
PADDED = {
    "values": VALUES,
    "scores": np.array([[0.5, 1, 0], [2, NAN, NAN]], dtype=np.float32),
    "lengths": np.array([3, 1], dtype=np.int32),
    "head_weight": np.eye(2, dtype=np.float64),
    "labels": np.array([1, -1]),
}


def as_npz(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    path = folder / "layer.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def as_npy(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    for name, array in arrays.items():
        np.save(folder / f"{'hidden' if name == 'values' else name}.npy", array)
    return folder / "hidden.npy"


def as_safetensors(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    path = folder / "layer.safetensors"
    tensors = {name: torch.from_numpy(array).contiguous() for name, array in arrays.items()}
    save_file(tensors, path, {"classes": '["no", "yes"]'})
    return path


WRITERS = [as_npz, as_npy, as_safetensors]
Write = Callable[[Path, dict[str, np.ndarray]], Path]


@pytest.mark.parametrize("write", WRITERS)
def test_padded_arrays_become_packed_instances(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, PADDED)
    told = invoke("dump", "--from", path, "--out", tmp_path / "dump").stdout
    assert "2 instances, 4 items in 1 shard" in told
    dump = fae.open_batches(tmp_path / "dump", verify=True)
    [chunk] = dump.chunks()
    assert chunk.batch.values.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert chunk.batch.offsets.tolist() == [0, 3, 4]
    assert chunk.batch.ids.tolist() == [0, 1]
    assert chunk.gold is not None
    assert chunk.gold.tolist() == [1, -1]
    assert dump.manifest.dtypes["values"] == "float32"
    named = ("no", "yes") if write is as_safetensors else ("0", "1")
    assert dump.manifest.classes == named


def test_the_commands_that_follow_can_be_pasted(tmp_path: Path) -> None:
    """Each command but the last prints the next one, whole."""
    path, folder = as_npz(tmp_path, PADDED), tmp_path / "of words"
    printed = invoke("dump", "--from", path, "--out", folder / "dump").stdout
    for command in ("sweep", "report"):
        last = printed.splitlines()[-1]
        assert last.startswith(f"Next: fastattnerase {command} ")
        printed = invoke(*shlex.split(last.removeprefix("Next: fastattnerase "))).stdout
    assert (folder / "dump-sweep" / "report" / "report.html").is_file()


def test_a_dump_may_be_written_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = as_npz(tmp_path, PADDED), tmp_path / "dump" / "below"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for out, place in ((".", folder), ("..", folder.parent), ("../../x", Path("../../x"))):
        last = invoke("dump", "--from", path, "--out", out).stdout.splitlines()[-1]
        assert last == f"Next: fastattnerase sweep {out} --out {place}-sweep"


@pytest.mark.parametrize("write", WRITERS)
def test_packed_arrays_and_a_mask_give_the_same(write: Write, tmp_path: Path) -> None:
    keep = np.array([[1, 1, 1], [1, 0, 0]], dtype=bool)
    shapes = {
        "packed": {
            **{name: PADDED[name][keep] for name in ("values", "scores")},
            "offsets": np.array([0, 3, 4]),
        },
        "mask": {"values": VALUES, "scores": PADDED["scores"], "mask": keep.astype(np.int64)},
        "lengths": PADDED,
    }
    digests = set()
    for name, arrays in shapes.items():
        folder = tmp_path / name
        folder.mkdir()
        both = arrays | {key: PADDED[key] for key in ("head_weight", "labels")}
        invoke("dump", "--from", write(folder, both), "--out", folder / "dump")
        digests.add(fae.open_batches(folder / "dump").manifest.digest)
    assert len(digests) == 1


def test_classes_can_be_named(tmp_path: Path) -> None:
    invoke(
        *("dump", "--from", as_npz(tmp_path, PADDED), "--classes", "bad, good"),
        *("--out", tmp_path / "dump", "--compact", "--shard-bytes", "1"),
    )
    manifest = fae.open_batches(tmp_path / "dump").manifest
    assert manifest.classes == ("bad", "good")
    assert (manifest.compact, len(manifest.shards)) == (True, 2)
    assert TensorSource(tmp_path / "dump" / "shard-000001.safetensors").classes == ["bad", "good"]


def test_a_finished_dump_is_not_made_again(tmp_path: Path) -> None:
    path, folder = as_npz(tmp_path, PADDED), tmp_path / "dump"
    invoke("dump", "--from", path, "--out", folder)
    before = (folder / "manifest.json").stat().st_mtime_ns
    assert "2 instances" in invoke("dump", "--from", path, "--out", folder).stdout
    assert (folder / "manifest.json").stat().st_mtime_ns == before
    for other in (("--compact",), ("--classes", "bad,good")):
        told = one_line("dump", "--from", path, *other, "--out", folder)
        assert "given a folder with a finished dump, needed another (--out)" in told
    shard = folder / "shard-000000.safetensors"
    for content in (shard.read_bytes()[:-8], None):
        if content is None:
            shard.unlink()
        else:
            shard.write_bytes(content)
        told = one_line("dump", "--from", path, "--out", folder)
        assert f"error: {shard}: given no file of 568 bytes, needed the one that" in told


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scores": None}, "needed values, head_weight and one of scores, weights"),
        ({"head_weight": None}, "needed values, head_weight and one of scores, weights"),
        ({"lengths": np.array([3, 4])}, "lengths: given 4 for instance 1, needed 0 to 3"),
        ({"lengths": np.array([3])}, "lengths: given [1], needed 2 rows as values have it"),
        ({"values": VALUES[0]}, "needed [B, N, D] or [B, N, H, D]"),
        ({"values": np.ones((2, 3, 2), dtype=np.int64)}, "values: given torch.int64"),
        ({"head_weight": np.ones((2, 3))}, "head_weight: given [2, 3], needed [C, 2]"),
        ({"head_weight": np.ones((1, 2))}, "given a head of one class"),
        ({"ids": np.array([5, 5])}, "ids: given 5 a second time"),
        ({"labels": np.array([0, 7])}, "labels: given 7 for instance 1"),
        ({"weights": PADDED["scores"] + 1}, "one of scores, weights"),
        ({"offsets": np.array([0, 3, 4])}, "given offsets and lengths or mask"),
        ({"ids": np.array([5, 6.5])}, "ids: given 6.5, needed integers"),
        ({"labels": np.array([0, 0.5])}, "labels: given 0.5, needed integers"),
        ({"labels": np.array([0, NAN])}, "labels: given nan, needed integers"),
        ({"ids": np.array([5, np.inf])}, "ids: given inf, needed integers"),
        (
            {"ids": np.array([0, 2**24 + 2], dtype=np.float32)},
            "ids: given 1.67772e+07, needed integers, up to 16,777,216 as they are",
        ),
        ({"head_weight": np.array([[1, NAN], [0, 1]])}, "head_weight: given NaN or infinity"),
        ({"head_bias": np.array([1, np.inf])}, "head_bias: given NaN or infinity, needed finite"),
        ({"lengths": np.array([3, 1.5])}, "lengths: given 1.5, needed integers"),
        ({"lengths": np.array([True, False])}, "lengths: given torch.bool [2], needed integers"),
        ({"ids": np.array([2**64 - 1, 0], dtype=np.uint64)}, "ids: given an integer of 9,223,372"),
        # A row more than instances would give each of a later part another's.
        ({"head_bias": np.ones((3, 2))}, "head_bias: given [3, 2], needed [C], or 2 rows"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_a_line(
    write: Write, change: dict[str, np.ndarray], told: str, tmp_path: Path
) -> None:
    arrays = {name: array for name, array in (PADDED | change).items() if array is not None}
    assert told in one_line("dump", "--from", write(tmp_path, arrays), "--out", tmp_path / "dump")


def test_pickles_are_not_read(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None], dtype=object)
    np.savez(tmp_path / "x.npz", **(PADDED | {"labels": objects}))  # type: ignore[arg-type]
    told = one_line("dump", "--from", tmp_path / "x.npz", "--out", tmp_path / "dump")
    assert "labels: given an array of objects, which only pickle can read, needed numbers" in told
    np.save(tmp_path / "x.npy", objects)
    told = one_line("dump", "--from", tmp_path / "x.npy", "--out", tmp_path / "dump")
    assert "given an array of objects, which only pickle can read, needed numbers" in told


def test_other_files_are_refused(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "dump")
    (tmp_path / "x.pt").touch()
    assert "given .pt, needed .npz, .npy or .safetensors" in one_line(
        "dump", "--from", tmp_path / "x.pt", *out
    )
    for ending, told in ((".npz", "no .npz file"), (".safetensors", "no safetensors file")):
        path = tmp_path / f"x{ending}"
        assert "no such file" in one_line("dump", "--from", path, *out)
        path.write_bytes(b"nothing of the kind")
        assert told in one_line("dump", "--from", path, *out)
    np.savez(tmp_path / "t.npz", **(PADDED | {"labels": np.array(["a", "b"])}))  # type: ignore[arg-type]
    assert "labels: given <U1, needed numbers" in one_line(
        "dump", "--from", tmp_path / "t.npz", *out
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"offsets": np.array([], dtype=int)}, "offsets: given [0], needed [B + 1] that never"),
        ({"offsets": np.array([0, 2**63 - 1, -2, 3])}, "offsets: given [4], needed [B + 1] that"),
        ({"offsets": np.array([0, 1.5, 3])}, "offsets: given 1.5, needed integers"),
        ({"values": np.array(1.0)}, "values: given one number, needed an array"),
        ({"offsets": np.array(0)}, "offsets: given one number, needed an array"),
        ({"head_bias": np.array(0.5)}, "head_bias: given one number, needed an array"),
        ({"values": np.ones(3)}, "values: given [3] with offsets, needed [T, D] or [T, H, D]"),
    ],
)
def test_packed_arrays_that_do_not_fit_are_refused_in_a_line(
    change: dict[str, np.ndarray], told: str, tmp_path: Path
) -> None:
    packed = {
        "values": VALUES[0],
        "offsets": np.array([0, 1, 3]),
        "scores": np.zeros(3, dtype=np.float32),
        "head_weight": np.eye(2),
    }
    path = as_npz(tmp_path, packed | change)
    assert told in one_line("dump", "--from", path, "--out", tmp_path / "dump")


def test_whole_numbers_that_are_stored_as_floats_are_integers(tmp_path: Path) -> None:
    path = as_npz(tmp_path, PADDED | {"labels": np.array([1.0, -1.0]), "ids": np.array([7.0, 3.0])})
    invoke("dump", "--from", path, "--out", tmp_path / "dump")
    [chunk] = fae.open_batches(tmp_path / "dump").chunks()
    assert chunk.batch.ids.tolist() == [7, 3]


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "f4"])
def test_integers_of_any_type_are_read(dtype: str, tmp_path: Path) -> None:
    names = {"lengths": [3, 1], "ids": [7, 3], "labels": [1, 0]}
    whole = {name: np.array(values, dtype=dtype) for name, values in names.items()}
    invoke("dump", "--from", as_npz(tmp_path, PADDED | whole), "--out", tmp_path / "dump")
    [chunk] = fae.open_batches(tmp_path / "dump").chunks()
    assert chunk.gold is not None
    found = (chunk.batch.lengths, chunk.batch.ids, chunk.gold)
    assert [own.tolist() for own in found] == list(names.values())


@pytest.mark.parametrize("name", ["lengths", "ids", "labels"])
def test_numbers_that_hold_no_integers_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    own = {key: torch.from_numpy(array) for key, array in PADDED.items()}
    for dtype in (torch.float8_e5m2, torch.complex64):
        save_file(own | {name: torch.ones(2).to(dtype)}, path)
        told = one_line("dump", "--from", path, "--out", tmp_path / "dump")
        assert f"{name}: given {dtype}, needed integers" in told


def test_numbers_longer_than_those_of_torch_are_refused(tmp_path: Path) -> None:
    path = as_npz(tmp_path, PADDED | {"labels": np.zeros(2, dtype=np.longdouble)})
    told = one_line("dump", "--from", path, "--out", tmp_path / "dump")
    assert "labels: given float128, needed numbers of at most 64 bits" in told


def test_where_no_shard_is_nothing_is_begun(tmp_path: Path) -> None:
    """A file that was refused can be mended, and the same command called again."""
    call = ("dump", "--out", tmp_path / "dump", "--from")
    told = one_line(*call, as_npz(tmp_path, PADDED | {"labels": np.array([0, 7])}))
    assert "labels: given 7" in told
    assert "2 instances" in invoke(*call, as_npz(tmp_path, PADDED), "--shard-bytes", "1M").stdout


def test_damaged_archives_are_refused_in_a_line(tmp_path: Path) -> None:
    def told(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return one_line("dump", "--from", tmp_path / name, "--out", tmp_path / "dump")

    whole = as_npz(tmp_path, PADDED).read_bytes()
    assert "cut.npz: given no .npz file" in told("cut.npz", whole[: len(whole) // 2])
    begin = whole.index(VALUES.tobytes())
    flipped = whole[:begin] + bytes([whole[begin] ^ 1]) + whole[begin + 1 :]
    assert "values: given no array of NumPy" in told("flipped.npz", flipped)
    np.save(tmp_path / "one.npy", VALUES)
    one = (tmp_path / "one.npy").read_bytes()
    assert "given one array, needed several by name" in told("renamed.npz", one)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("notes.txt", "no array")
    content = (tmp_path / "other.zip").read_bytes()
    assert "notes.txt: given no array of NumPy" in told("other.npz", content)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2**58, 3, 2)}
    )
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as large:
        large.writestr("values.npy", header.getvalue())
    content = (tmp_path / "large.zip").read_bytes()
    said = told("large.npz", content)
    assert "large.npz: values: Unable to allocate 6.00 EiB" in said
    assert said.endswith("arrays in .npy and .safetensors are read in parts")
    # The first bit of the flags, in a member's header and in the list, asks for a password.
    locked = bytearray(whole)
    for begin, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[whole.index(begin) + flags] |= 1
    assert "given no array of NumPy: File 'values.npy' is encrypted" in told("locked.npz", locked)
    assert "given no array of NumPy" in told("zip.npy", whole)
    text = told("text.npz", b"nothing of the kind")
    assert text.endswith("given no .npz file")
    assert "unsafe" not in text


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "dump")
    assert "given none, needed one of them" in one_line("dump", *out)
    path = as_npz(tmp_path, PADDED)
    both = one_line("dump", "--model", tmp_path, "--from", path, *out)
    assert "given --model and --from, needed one of them" in both
    assert "--data" in one_line("dump", "--from", path, "--data", path, *out)
    assert "--classes" in one_line("dump", "--model", tmp_path, "--classes", "a,b", *out)
    size = one_line("dump", "--from", path, "--shard-bytes", "much", *out)
    assert "--shard-bytes: given 'much', needed a size such as 256MiB" in size


ROWS = [
    f"a {'good' if i % 2 else 'bad'} film that is {'very ' * (i % 7)}long,{i % 2}"
    for i in range(60)
]
TINY = ("--embedding-size", "4", "--hidden-size", "4", "--epochs", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumped")
    (folder / "x.csv").write_text("\n".join(["text,label", *ROWS]) + "\n")
    invoke(
        "train", "--data", folder / "x.csv", *TINY, "--encoder", "rnn", "--out", folder / "model"
    )
    return folder / "model"


def test_a_model_is_dumped_with_labels_and_logits(model: Path, tmp_path: Path) -> None:
    data = model.parent / "x.csv"
    invoke("dump", "--model", model, "--data", data, "--device", "cpu", "--out", tmp_path / "dump")
    dump = fae.open_batches(tmp_path / "dump", verify=True)
    assert dump.instances == 60
    assert dump.manifest.made_by["source"]["data"]["path"] == str(data)
    [chunk] = dump.chunks()
    assert chunk.gold is not None
    assert chunk.logits is not None
    assert chunk.gold.tolist() == [0, 1] * 30
    found = fae.sweep(chunk.batch, ["attention"], logits=True).prefixes.logits
    assert found is not None
    torch.testing.assert_close(found.float(), chunk.logits.float(), rtol=1e-4, atol=1e-5)
    assert not (tmp_path / "dump" / "documents.safetensors").exists()


def test_a_full_disk_is_one_line_where_documents_are_kept(model: Path, tmp_path: Path) -> None:
    """Before the first shard is written."""
    call = ("dump", "--model", model, "--data", model.parent / "x.csv", "--device", "cpu")
    with at_most(2000):
        told = one_line(*call, "--out", tmp_path / "dump")
    assert "File too large; what is finished is kept, the same command goes on from" in told
    assert "60 instances" in invoke(*call, "--out", tmp_path / "dump").stdout


def test_a_killed_dump_of_a_model_goes_on_with_the_same_bits(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed within a block of documents, which are then computed again, in the same batches."""
    for module in (sources, making):
        monkeypatch.setattr(module, "DOCUMENTS", 16)
    call = ("dump", "--model", model, "--data", model.parent / "x.csv", "--shard-bytes", "6K")
    invoke(*call, "--device", "cpu", "--out", tmp_path / "whole")
    whole = fae.open_batches(tmp_path / "whole").manifest
    assert len(whole.shards) > 5
    calls = 0

    def kill(path: Path) -> str:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return digest_of(path)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "digest_of", kill)
        invoke(*call, "--device", "cpu", "--out", tmp_path / "killed", code=130)
    kept = sorted(path.name for path in (tmp_path / "killed").glob("*.safetensors"))
    assert kept == ["documents.safetensors", *(shard.file for shard in whole.shards[:2])]
    invoke(*call, "--device", "cpu", "--out", tmp_path / "killed")
    assert fae.open_batches(tmp_path / "killed").manifest.digest == whole.digest


def test_dump_and_sweep_give_the_tables_of_erase(model: Path, tmp_path: Path) -> None:
    of = ("--model", model, "--data", model.parent / "x.csv", "--device", "cpu")
    same = ("--random-orders", "2", "--resamples", "5", "--device", "cpu")
    invoke("erase", *of, "--random-orders", "2", "--resamples", "5", "--out", tmp_path / "run")
    invoke("dump", *of, "--shard-bytes", "8K", "--out", tmp_path / "dump")
    invoke("sweep", tmp_path / "dump", *same, "--out", tmp_path / "out")
    assert len(fae.open_batches(tmp_path / "dump")) > 2
    for table in ("instances", "multi", "single", "erased"):
        wanted, found = (
            pd.read_parquet(folder / f"{table}.parquet")
            for folder in (tmp_path / "run", tmp_path / "out" / "aggregate")
        )
        keys = [key for key in ("row", "ranking", "order", "place") if key in wanted]
        wanted, found = (
            frame.sort_values(keys, kind="stable").reset_index(drop=True)
            for frame in (wanted, found)
        )
        pd.testing.assert_frame_equal(found, wanted, check_exact=True)


def test_a_model_whose_head_is_no_matrix_is_refused(tmp_path: Path) -> None:
    lines = [
        "text,query,label",
        *(f"a {w} film,is it {w},{i % 2}" for i, w in enumerate(["bad", "good"] * 30)),
    ]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    model = tmp_path / "model"
    invoke(
        *("train", "--data", tmp_path / "x.csv", "--query-column", "query", *TINY),
        *("--decoder", "tanh", "--out", model),
    )
    told = one_line("dump", "--model", model, "--device", "cpu", "--out", tmp_path / "dump")
    assert "given a callable head, which has no place in a file, needed a linear one" in told
    assert "`fastattnerase erase` takes any model" in told
