"""Sweeps in one process: tables as of `erase`, damage set aside, going on after a kill."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pandas as pd
import pyarrow.parquet as pq
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

import fastattnerase as fae
from fastattnerase import sources
from fastattnerase.dumps.checksums import crc32_of, digest_of
from fastattnerase.dumps.manifest import Shard
from fastattnerase.dumps.reading import Dump, open_batches
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk, TensorSource
from fastattnerase.studies.serrano_smith.erasure import measure
from fastattnerase.studies.serrano_smith.experiment import run
from fastattnerase.sweeps import reading, work
from fastattnerase.sweeps.options import Options
from fastattnerase.sweeps.records import (
    TABLES,
    Manifest,
    part_path,
    read_manifest,
    read_shard,
    record_path,
    write_manifest,
)
from fastattnerase.sweeps.run import sweep_dump


def copied(dump: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dump, tmp_path / "dump"))


def sweep_of(dump: Path, out: Path, *, retry: bool = False) -> Manifest:
    return sweep_dump(dump, out, tiny.CONFIG, Options(retry=retry), name="tiny")


def test_tables_are_those_of_erase(dump: Path, whole: dict[str, str], tmp_path: Path) -> None:
    """Of one file with the same instances, whatever the shards and batches."""
    one = tmp_path / "one"
    tiny.make_dump(one, shard_bytes=1 << 28)
    source = TensorSource(one / "shard-000000.safetensors")
    run(source, replace(tiny.CONFIG, exhibits=0), tmp_path / "run", name="one")
    out = dump.parent / "whole"
    shards = open_batches(dump).shards
    assert len(shards) > 5
    for table in TABLES:
        wanted = pq.read_table(tmp_path / "run" / f"{table}.parquet").to_pandas()
        parts = [pq.read_table(part_path(out, table, s.name)).to_pandas() for s in shards]
        found = pd.concat(parts, ignore_index=True)
        keys = [k for k in ("row", "ranking", "order", "place") if k in wanted]
        own, other = (
            frame.sort_values(keys, kind="stable").reset_index(drop=True)
            for frame in (found, wanted)
        )
        for column in wanted:
            for a, b in zip(own[column], other[column], strict=True):
                assert repr(a) == repr(b), (table, column)


def test_records_count_and_prove_the_parts(dump: Path, whole: dict[str, str]) -> None:
    out = dump.parent / "whole"
    manifest = read_manifest(out)
    assert manifest.complete
    assert manifest.instances == 30
    assert manifest.rows["instances"] == 30
    for shard in open_batches(dump).shards:
        record = read_shard(out, shard.name)
        assert record is not None
        assert (record.instances, record.items) == (shard.instances, shard.items)
        for table, part in record.tables.items():
            assert part.sha256 == whole[f"{table}/{shard.name}.parquet"]
            assert part.bytes == part_path(out, table, shard.name).stat().st_size
            assert part.rows == pq.read_metadata(part_path(out, table, shard.name)).num_rows


def test_the_manifest_is_rebuilt_from_the_records_alone(dump: Path, tmp_path: Path) -> None:
    tiny.swept(dump, tmp_path)
    before = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").unlink()
    write_manifest(tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == before


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("place", ["parts", "record", "batch"])
def test_a_killed_sweep_goes_on(
    place: str, dump: Path, whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the fourth shard is erased, before its parts are in place, or its record."""
    calls = 0

    def kill(*_: object, **__: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Killed
        return real(*_, **__)  # type: ignore[no-any-return]

    where, name = {
        "parts": (work.PartWriter, "finish"),
        "record": (work, "write_shard"),
        "batch": (work, "tables_of"),
    }[place]
    real = getattr(where, name)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, kill)
        with pytest.raises(Killed):
            sweep_of(dump, tmp_path)
    found = read_manifest(tmp_path)
    assert not found.complete
    assert 0 < found.done < found.shards
    times = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "shards").iterdir()}
    assert tiny.swept(dump, tmp_path) == whole
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "shards").iterdir()}
    assert times.items() <= after.items()  # what was done is not done again
    assert not list(tmp_path.rglob("*.partial"))


def test_what_kills_left_half_written_is_deleted_by_the_next(
    dump: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    """Parts, a shard's record and the manifest are written under other names first."""
    sweep_of(dump, tmp_path)
    shard = next((tmp_path / "shards").glob("*.json"))
    part = next((tmp_path / "parts").glob("*/*.parquet"))
    for path in (shard, part, tmp_path / "manifest.json"):
        path.with_name(f"{path.name}.23493.partial").write_text("{")
    assert tiny.swept(dump, tmp_path) == whole
    assert not list(tmp_path.rglob("*.partial"))


def test_a_part_that_is_gone_is_made_again(
    dump: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    tiny.swept(dump, tmp_path)
    part_path(tmp_path, "multi", "shard-000002").unlink()
    part = part_path(tmp_path, "single", "shard-000003")
    part.write_bytes(part.read_bytes()[:-1])
    assert tiny.swept(dump, tmp_path) == whole


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_damaged_shards_are_set_aside_and_done_again(
    dump: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    own = copied(dump, tmp_path)
    shards = [own / shard.file for shard in open_batches(own).shards]
    kept = [path.read_bytes() for path in shards]
    flip(shards[1], -1)  # a bit of the values
    shards[2].write_bytes(kept[2][: len(kept[2]) // 2])
    flip(shards[4], 20)  # a letter of the header
    shards[5].unlink()
    found = sweep_of(own, tmp_path / "out")
    assert found.complete
    assert found.done == found.shards - 4
    reasons = [found.aside[shards[i].stem] for i in (1, 2, 4, 5)]
    assert "given a file with CRC-32" in reasons[0]
    assert "bytes, needed" in reasons[1]
    assert reasons[3] == f"{shards[5].name}: no such file"
    assert all(str(tmp_path) not in reason for reason in reasons)
    for path, content in zip(shards, kept, strict=True):
        path.write_bytes(content)
    assert sweep_of(own, tmp_path / "out").aside == found.aside  # only where asked
    assert not sweep_of(own, tmp_path / "out", retry=True).aside
    assert tiny.digests(tmp_path / "out") == whole


def test_a_damaged_record_costs_its_shard_alone(
    dump: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sweep_of(dump, out)
    manifest, path = read_manifest(out), record_path(out, "shard-000001")
    (out / "manifest.json").write_text("{")  # made of the records again
    assert sweep_of(dump, out) == read_manifest(out) == manifest
    path.write_text("{")
    with pytest.raises(RunError, match=f"{path} is damaged: .*; delete {path} and run again"):
        sweep_of(dump, out)
    path.unlink()
    assert sweep_of(dump, out) == manifest
    assert tiny.digests(out) == whole


@pytest.mark.parametrize("file", ["../dump/shard-000000.safetensors", "shard-000001.safetensors"])
def test_shards_of_a_dump_are_files_beside_its_manifest(
    file: str, dump: Path, tmp_path: Path
) -> None:
    own = copied(dump, tmp_path)
    content = json.loads((own / "manifest.json").read_text())
    content["shards"][0]["file"] = file
    (own / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"a shard's file .*, needed names of files beside it, each"):
        open_batches(own)


def test_a_dump_of_before_has_its_sha256_compared(
    dump: Path, whole: dict[str, str], tmp_path: Path
) -> None:
    """A sweep of it goes on where the manifest has the other checksum, too."""
    own = copied(dump, tmp_path)
    manifest = own / "manifest.json"
    now = manifest.read_text()
    content = json.loads(now)
    for shard in content["shards"]:
        assert shard.pop("crc32") == crc32_of(own / shard["file"])
    manifest.write_text(json.dumps(content))
    path = own / content["shards"][2]["file"]
    flip(path, -1)
    found = sweep_of(own, tmp_path / "out")
    assert list(found.aside) == [path.stem]
    assert "given a file with SHA-256" in found.aside[path.stem]
    flip(path, -1)
    manifest.write_text(now)
    assert not sweep_of(own, tmp_path / "out", retry=True).aside
    assert tiny.digests(tmp_path / "out") == whole


def test_a_file_is_read_for_its_checksum_before_it_is_looked_at(
    dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a disk cannot read is an error of reading, but the end of who looks at the mapped file.

    Here everything before the values, then these instance by instance.
    """
    opened = open_batches(dump)
    shard = opened.shards[1]
    content = (dump / shard.file).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    first, last = (begin + end for end in header["values"]["data_offsets"])
    assert last == len(content)
    reached = [0]
    real = reading._Digest.advance

    def advance(digest: reading._Digest, end: int) -> None:
        real(digest, end)
        reached.append(digest._done)

    def look(dump: Dump, shard: Shard) -> TensorSource:
        assert reached[-1] == first
        return opened_by(dump, shard)

    opened_by = Dump.open
    monkeypatch.setattr(reading._Digest, "advance", advance)
    monkeypatch.setattr(Dump, "open", look)
    monkeypatch.setattr(sources, "_INSTANCES", 1)
    done = 0
    for chunk in reading.read_chunks(opened, shard):
        done += chunk.batch.num_items
        assert reached[-1] == first + done * 4 * 2  # of four features in bfloat16
    assert (done, reached[-1]) == (shard.items, last)
    assert len(reached) == 1 + 1 + shard.instances + 1


def test_a_disk_that_cannot_read_a_file_has_its_shard_set_aside(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advance(digest: reading._Digest, end: int) -> None:
        if digest._path.name == "shard-000002.safetensors":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(digest, end)

    real = reading._Digest.advance
    monkeypatch.setattr(reading._Digest, "advance", advance)
    found = sweep_of(dump, tmp_path)
    assert found.aside == {"shard-000002": "shard-000002.safetensors: Input/output error"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"weights": torch.tensor([0.5, -1.0])}, "weights: given a negative one for item 1"),
        ({"values": torch.ones(2, 3)}, "needed"),
        ({"labels": torch.tensor([9])}, "labels: given 9 for instance 0"),
        ({"head_weight": torch.ones(2, 2)}, "head: given"),
        ({"values": torch.ones(2, 2).half()}, "dtypes: given"),
    ],
)
def test_what_erase_refuses_is_set_aside(
    change: dict[str, torch.Tensor], reason: str, tmp_path: Path
) -> None:
    """In a dump whose checksums are right: what wrote it was wrong."""
    from safetensors.torch import load_file, save_file

    batch = fae.AttentionBatch(
        torch.ones(2, 2), torch.tensor([0, 2]), weights=torch.ones(2), head_weight=torch.eye(2)
    )
    other = {"labels": torch.tensor([0])}
    fae.save_batches([(batch, other)], tmp_path / "dump")
    path = tmp_path / "dump" / "shard-000000.safetensors"
    save_file(load_file(path) | change, path)
    manifest = tmp_path / "dump" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["shards"][0] |= {"crc32": crc32_of(path), "bytes": path.stat().st_size}
    manifest.write_text(json.dumps(content))
    found = sweep_of(tmp_path / "dump", tmp_path / "out")
    assert reason in found.aside["shard-000000"]
    assert found.rows == dict.fromkeys(TABLES, 0)


def test_a_full_disk_leaves_whole_parts(
    dump: Path, whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from the fifth shard on."""
    from fastattnerase.sweeps import parts

    calls = 0

    def full(number: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 4 * len(TABLES):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(parts.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            sweep_of(dump, tmp_path)
    assert not list(tmp_path.rglob("*.partial"))
    assert tiny.digests(tmp_path).items() <= whole.items()
    assert tiny.swept(dump, tmp_path) == whole


def test_ids_that_two_shards_have_are_refused(dump: Path, tmp_path: Path) -> None:
    """Of a dump put together by hand; a file that is damaged as well is set aside all the same."""
    own = copied(dump, tmp_path)
    manifest = json.loads((own / "manifest.json").read_text())
    first, *_, last = manifest["shards"]
    tensors = load_file(own / last["file"])
    tensors["ids"][-1] = load_file(own / first["file"])["ids"][0]
    save_file(tensors, own / last["file"], {"classes": '["a", "b", "c"]'})
    named = f"given id 0 in {first['file']} and again in {last['file']}"
    last["sha256"], last["crc32"] = digest_of(own / last["file"]), crc32_of(own / last["file"])
    last["bytes"] = (own / last["file"]).stat().st_size
    (own / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=named):
        sweep_of(own, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    damaged = own / last["file"]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    assert list(sweep_of(own, tmp_path / "out").aside) == [last["file"].partition(".")[0]]


def test_parts_are_written_without_a_look_at_those_of_other_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which there may be hundreds of thousands, at every one of them."""

    def refuse(*_: object) -> None:
        raise AssertionError("all parts are listed")

    for where, name in ((os, "listdir"), (os, "scandir"), (Path, "glob"), (Path, "iterdir")):
        monkeypatch.setattr(where, name, refuse)
    with work.PartWriter(tmp_path, "shard-000001") as writer:
        found = writer.finish()
    assert {table: part.rows for table, part in found.items()} == dict.fromkeys(TABLES, 0)


def test_another_sweep_in_the_folder_is_refused(dump: Path, tmp_path: Path) -> None:
    tiny.swept(dump, tmp_path / "out")
    other = replace(tiny.CONFIG, seed=1)
    with pytest.raises(RunError, match=r"another sweep: config\.seed is 0 there and 1 here"):
        sweep_dump(dump, tmp_path / "out", other, Options(), name="tiny")
    tiny.make_dump(tmp_path / "other", shard_bytes=1 << 20)
    with pytest.raises(RunError, match=r"dump\.digest is"):
        sweep_of(tmp_path / "other", tmp_path / "out")


def test_measure_is_the_sum_of_its_halves() -> None:
    """What the engine finds, and tables a batch late, are what `erase` does at once."""
    from fastattnerase.studies.serrano_smith.erasure import erased, tables_of

    [first, second, *_] = tiny.batches()
    found = [erased(Chunk(batch), tiny.CONFIG) for batch in (first, second)]
    for one, batch in zip(found, (first, second), strict=True):
        assert tables_of(one, tiny.CONFIG, first_row=3).keys() == {*TABLES, "curves"}
        alone = measure(Chunk(batch), tiny.CONFIG, first_row=3)
        for name, table in tables_of(one, tiny.CONFIG, first_row=3).items():
            assert table.equals(alone[name]) or str(table.to_pydict()) == str(
                alone[name].to_pydict()
            )


def test_record_path_names_the_shard(tmp_path: Path) -> None:
    assert record_path(tmp_path, "shard-000007") == tmp_path / "shards" / "shard-000007.json"


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no such advice")
@pytest.mark.parametrize("at_once", [True, False])
def test_files_of_a_large_dump_are_dropped_from_the_page_cache(
    dump: Path,
    whole: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_once: bool,
) -> None:
    """Each once it is swept, where all are more than half of the memory; results are the same."""
    opened = open_batches(dump)
    names = [shard.file for shard in opened.shards]
    inodes = [(dump / name).stat().st_ino for name in names]
    size = sum(shard.bytes for shard in opened.shards)
    dropped: list[str] = []
    worker = work.Worker(work.Job(dump, tmp_path, tiny.CONFIG))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2 * size, "SC_PAGE_SIZE": 1}.get)
    assert not worker._drops

    def fadvise(file: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        dropped.append(names[inodes.index(os.fstat(file).st_ino)])

    worker = work.Worker(work.Job(dump, tmp_path, tiny.CONFIG))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2 * size - 1, "SC_PAGE_SIZE": 1}.get)
    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    if at_once:
        list(worker.run_all(opened.shards))
    else:
        for shard in opened.shards:
            worker.run(shard)
    assert dropped == names
    assert tiny.digests(tmp_path) == whole


@pytest.mark.parametrize("answer", [ValueError("unrecognized name"), OSError("invalid"), -1, None])
def test_files_stay_in_the_page_cache_where_the_memory_is_not_known(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Exception | int | None
) -> None:
    """Or, of the last case, where the system takes no advice on the cache."""

    def sysconf(name: str) -> int:
        if isinstance(answer, Exception):
            raise answer
        return -1 if name == "SC_PHYS_PAGES" and answer == -1 else 1

    monkeypatch.setattr(os, "sysconf", sysconf)
    if answer is None:
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    shards = open_batches(dump).shards[:2]
    records = list(work.Worker(work.Job(dump, tmp_path, tiny.CONFIG)).run_all(shards))
    assert [record.state for record in records] == ["done", "done"]


def test_a_file_that_may_not_be_read_is_set_aside_with_that_reason(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a missing one, which is what safetensors makes of it."""

    def refusing(path: Path, mode: str) -> BinaryIO:
        if path.name == "shard-000002.safetensors":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open(path, "rb")

    monkeypatch.setattr(sources, "open", refusing, raising=False)
    found = sweep_of(dump, tmp_path)
    assert found.aside == {"shard-000002": "shard-000002.safetensors: Permission denied"}
    assert found.done == found.shards - 1
