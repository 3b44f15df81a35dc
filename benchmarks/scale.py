"""A sweep over a dump that is larger than memory: rate, memory, aggregation.

    python benchmarks/scale.py --folder scale                     # 100 million items, 16 GB
    python benchmarks/scale.py --folder scale --items 1_000_000   # the same in little
    python benchmarks/scale.py --folder scale --jobs 2 --json benchmarks/results/scale.json

Instances of 100 to 300 items, D = 64, C = 5, values bfloat16 and scores float32, are made up piece
by piece and written as a dump; its compact form is made from it. Dumps of the same `--items` that
are in the folder are used again; results of an earlier sweep are removed. Of each form these are
measured, each in a process of its own, files dropped from the page cache before it:

- `engine`: items a second of what a sweep does with batches, `erased` and `tables_of`, on
  batches that are in memory, and which share of it is the native engine, the rest tables;
- `reader`: items a second of the sweep's reader, checksums compared, without the engine;
- `results`: instances a second of writing these tables as the sweep writes them;
- `sweep`: items a second of `fastattnerase sweep` from its first shard that is done to the end of
  its last, and anonymous memory (`RssAnon`) of its processes while it runs, by tenths of shards;
- `aggregate`: the greatest `RssAnon` of `fastattnerase sweep --aggregate --memory`.

It ends with 1 where memory of the last tenth is not within 10 % of that of the first, the sweep has
less than 85 % of the smaller of the first two rates, or aggregation takes more than its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from harness import machine, markdown, quantity, versions

import fastattnerase as fae
from fastattnerase import _C
from fastattnerase.dumps.manifest import read_manifest
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import erased, tables_of
from fastattnerase.sweeps.parts import PartWriter
from fastattnerase.sweeps.reading import ahead, read_chunks

ITEMS = 100_000_000
SHORTEST, LONGEST = 100, 300  # items of an instance
WIDTH, CLASSES = 64, 5
PIECE = 500  # instances that are made up at a time
IN_MEMORY = 2_000_000  # items on which the engine alone is timed
ROUNDS = 9  # of these, of which the median counts
MEMORY = 1 << 30  # of the aggregation
PAUSE = 0.1  # seconds between two looks at memory
MOST_GROWTH, LEAST_RATE = 0.10, 0.85
CALL = [sys.executable, "-m", "fastattnerase"]


def pieces(items: int) -> Iterator[fae.AttentionBatch]:
    """Make up instances: noise plus a multiple of one class's direction, as `problems.make`."""
    head = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(0))
    head /= head.norm(dim=1, keepdim=True)  # [C, D]
    bias = torch.linspace(-0.1, 0.1, CLASSES)
    instances = items * 2 // (SHORTEST + LONGEST)
    for begin in range(0, instances, PIECE):
        rng = torch.Generator().manual_seed(1 + begin)
        count = min(PIECE, instances - begin)
        lengths = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=rng)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        total = int(offsets[-1])
        strength = 0.1 + 0.5 * torch.rand(count, generator=rng)
        favoured = torch.randint(CLASSES, (count,), generator=rng)
        drift = strength[:, None] * head[favoured]  # [B, D]
        values = torch.randn(total, WIDTH, generator=rng)  # [T, D]
        values += drift.repeat_interleave(lengths, dim=0)
        yield fae.AttentionBatch(
            values.bfloat16(),
            offsets,
            scores=1.5 * torch.randn(total, generator=rng),
            head_weight=head.bfloat16(),
            head_bias=bias.bfloat16(),
            ids=torch.arange(begin, begin + count),
        )


def make(folder: Path, items: int, shard_bytes: int) -> None:
    """Write the dump and its compact form, where they are not there; refuse those of other items.

    Raises:
        RunError: a dump is there of another number of items.
    """
    full, compact = folder / "values", folder / "compact"
    made_by = {"benchmark": "scale", "items": items}
    for dump in (full, compact):
        if (dump / "manifest.json").is_file():
            there = read_manifest(dump).made_by.get("items")
            if there != items:
                raise RunError(
                    f"{dump}: given a dump of --items {there}, needed one of {items}, or another "
                    "--folder"
                )
    if not (full / "manifest.json").is_file():
        fae.save_batches(pieces(items), full, shard_bytes=shard_bytes, made_by=made_by)
    if not (compact / "manifest.json").is_file():
        fae.save_batches(
            fae.open_batches(full),
            compact,
            compact=True,
            shard_bytes=max(1, shard_bytes // 8),
            made_by=made_by,
        )


def forget(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_memory(dump: Path) -> list[Chunk]:
    """Read the first batches of a dump into memory."""
    chunks, items = [], 0
    for chunk in fae.open_batches(dump).chunks():
        own = fae.AttentionBatch.cat([chunk.batch])  # a copy: the file is mapped
        chunks.append(Chunk(own, chunk.gold, chunk.model_label))
        items += own.num_items
        if items >= IN_MEMORY:
            break
    return chunks


def time_engine(dump: Path) -> dict[str, float]:
    """Measure the experiment on batches in memory, and writing its tables; medians of `ROUNDS`."""
    chunks, config = in_memory(dump), Config()
    items = sum(chunk.batch.num_items for chunk in chunks)
    instances = sum(len(chunk.batch) for chunk in chunks)
    tables_of(erased(chunks[0], config), config, with_curves=False)
    native, original = 0.0, _C.cpu_sweep

    def timed(*given: Any, **options: Any) -> Any:
        nonlocal native
        begin = time.perf_counter()
        found = original(*given, **options)
        native += time.perf_counter() - begin
        return found

    _C.cpu_sweep = timed
    rounds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        native, begin = 0.0, time.perf_counter()
        tables = [tables_of(erased(chunk, config), config, with_curves=False) for chunk in chunks]
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        with (
            tempfile.TemporaryDirectory(dir=dump.parent) as out,
            PartWriter(Path(out), "s") as writer,
        ):
            for own in tables:
                writer.append(own)
            writer.finish()
            written = time.perf_counter() - begin
        rates = {
            "engine_items_per_second": items / seconds,
            "engine_native_share": native / seconds,
            "results_instances_per_second": instances / written,
        }
        for name, rate in rates.items():
            rounds.setdefault(name, []).append(rate)
    return {name: statistics.median(own) for name, own in rounds.items()}


def time_reader(dump: Path) -> dict[str, float]:
    """Measure reading as the sweep reads, checksums compared, every value looked at."""
    begin, items = time.perf_counter(), 0
    opened = fae.open_batches(dump)
    for shard in opened.shards:
        for chunk in ahead(read_chunks(opened, shard)):
            values = chunk.batch.values
            values.view(torch.int16 if values.element_size() == 2 else torch.int32).sum()
            items += chunk.batch.num_items
    return {"reader_items_per_second": items / (time.perf_counter() - begin)}


RATES = {"engine": time_engine, "reader": time_reader}


def alone(what: str, dump: Path) -> dict[str, float]:
    """Measure rates in a process of its own, the files dropped from the page cache."""
    forget(dump)
    command = [sys.executable, __file__, "--only", what, "--folder", str(dump)]
    found: dict[str, float] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return found


def anonymous(process: int) -> int:
    """Read `RssAnon` of a process and its children, in bytes; 0 where it has ended."""
    total = 0
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total = int(line.split()[1]) * 1024
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return total
    return total + sum(anonymous(int(child)) for child in children)


def watch(command: list[str], shards: Path | None = None) -> list[tuple[float, int, int]]:
    """Run a command; give seconds, shards that are done and anonymous memory as it goes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    begin, seen = time.perf_counter(), []
    while process.poll() is None:
        done = len(list(shards.glob("*.json"))) if shards is not None else 0
        seen.append((time.perf_counter() - begin, done, anonymous(process.pid)))
        time.sleep(PAUSE)
    if process.returncode:
        assert process.stderr is not None
        raise RuntimeError(f"{' '.join(command)} failed: {process.stderr.read().decode()}")
    return seen


def sweep(dump: Path, out: Path, jobs: int) -> dict[str, Any]:
    """Sweep a dump; give its rate, and anonymous memory in the first and the last tenth."""
    if out.exists():  # what a sweep before has done would count as done now
        shutil.rmtree(out)
    forget(dump)
    manifest = read_manifest(dump)
    command = [*CALL, "sweep", str(dump), "--out", str(out), "--jobs", str(jobs)]
    seen = watch(command, out / "shards")
    total = len(manifest.shards)
    # Where that was not seen, as of one shard alone: all that the process takes.
    first, begun = next(((now, done) for now, done, _ in seen if 0 < done < total), (0.0, 0))
    last = next((now for now, done, _ in seen if done == total), seen[-1][0])
    items = sum(shard.items for shard in manifest.shards[begun:])
    tenths = [
        [memory for _, done, memory in seen if low * total / 10 <= done < (low + 1) * total / 10]
        for low in range(10)
    ]
    # Before the first shard is done the process still grows: imports, and buffers of a shard.
    tenths[0] = [memory for _, done, memory in seen if 0 < done < max(2, total / 10)]
    return {
        "items_per_second": items / (last - first),
        "seconds": seen[-1][0],
        "rss_anon_by_tenth": [statistics.median(own) if own else None for own in tenths],
        "rss_anon_peak": max(memory for *_, memory in seen),
        "result_bytes": sum(path.stat().st_size for path in (out / "parts").rglob("*.parquet")),
    }


def aggregate(dump: Path, out: Path) -> dict[str, Any]:
    """Aggregate a sweep; give the time, and the greatest anonymous memory."""
    forget(out)
    memory = f"{MEMORY >> 20}MiB"
    command = [*CALL, "sweep", str(dump), "--out", str(out), "--aggregate", "--memory", memory]
    seen = watch(command)
    return {
        "seconds": seen[-1][0],
        "rss_anon_peak": max(memory for *_, memory in seen),
        "memory": MEMORY,
    }


def measured(folder: Path, form: str, jobs: int) -> dict[str, Any]:
    """Measure one form of the dump."""
    dump, out = folder / form, folder / f"{form}-out"
    manifest = read_manifest(dump)
    row: dict[str, Any] = {
        "form": form,
        "instances": manifest.instances,
        "items": manifest.items,
        "shards": len(manifest.shards),
        "bytes": sum(shard.bytes for shard in manifest.shards),
        "jobs": jobs,
        **alone("engine", dump),
        **alone("reader", dump),
    }
    row["sweep"] = sweep(dump, out, jobs)
    row["aggregate"] = aggregate(dump, out)
    return row


def complaints(row: dict[str, Any]) -> Iterator[str]:
    """Say where what was measured is not what is promised."""
    known = [memory for memory in row["sweep"]["rss_anon_by_tenth"] if memory is not None]
    growth = known[-1] / known[0] - 1 if known else 0.0
    if abs(growth) > MOST_GROWTH:
        yield f"{row['form']}: anonymous memory changes by {100 * growth:.0f} %"
    slower = min(row["engine_items_per_second"], row["reader_items_per_second"])
    share = row["sweep"]["items_per_second"] / slower
    if share < LEAST_RATE:
        yield f"{row['form']}: the sweep has {100 * share:.0f} % of the rate it could have"
    if row["aggregate"]["rss_anon_peak"] > MEMORY:
        yield f"{row['form']}: aggregation takes {row['aggregate']['rss_anon_peak'] >> 20} MiB"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the dumps are, or go")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--shard-bytes", type=int, default=1 << 28, help="compact: an eighth")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the sweep")
    parser.add_argument("--forms", default="values,compact")
    parser.add_argument("--make", action="store_true", help="write the dumps and nothing else")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--only", choices=RATES, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.only:
        print(json.dumps(RATES[arguments.only](arguments.folder)))
        return 0
    arguments.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    try:
        make(arguments.folder, arguments.items, arguments.shard_bytes)
    except RunError as error:
        parser.error(str(error))
    print(f"dumps: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    if arguments.make:
        return 0
    rows = []
    for form in arguments.forms.split(","):
        rows.append(measured(arguments.folder, form, arguments.jobs))
        if arguments.json is not None:  # what is measured is kept, whatever happens next
            record = {"machine": machine(), "versions": versions(), "scale": rows}
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    print(
        markdown(
            ["form", "items", "bytes", "engine", "reader", "sweep", "RssAnon, tenths", "aggregate"],
            [
                [
                    row["form"],
                    f"{row['items']:,}",
                    quantity(row["bytes"], "B"),
                    quantity(row["engine_items_per_second"], "/s"),
                    quantity(row["reader_items_per_second"], "/s"),
                    quantity(row["sweep"]["items_per_second"], "/s"),
                    " ".join(
                        "-" if memory is None else f"{memory / 1e6:.0f}"
                        for memory in row["sweep"]["rss_anon_by_tenth"]
                    ),
                    f"{row['aggregate']['seconds']:.0f} s, "
                    + quantity(row["aggregate"]["rss_anon_peak"], "B"),
                ]
                for row in rows
            ],
        )
    )
    problems = [problem for row in rows for problem in complaints(row)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
