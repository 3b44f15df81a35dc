"""A sweep of a dump on a GPU: what copies, kernels and results take of its time.

    python benchmarks/scale_gpu.py --json scale-gpu.json       # 2 GB, made up first
    python benchmarks/scale_gpu.py --device cpu --items 200000 # the same in little, without a GPU

The instances are those of `scale.py`. The sweep is measured from its first shard to the end of its
last, with its three threads. Each of its stages is then measured alone, on the first batches, the
device waited for at both ends: what it takes of the sweep's time for as many items. Stages go on at
the same time, so that the shares add up to more than the whole where the sweep has hidden any.

It ends with 1 where the sweep has set a shard aside.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from harness import machine, markdown, quantity, versions
from scale import SHORTEST, pieces

import fastattnerase as fae
from fastattnerase.dumps.reading import Dump
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import erased, tables_of
from fastattnerase.studies.serrano_smith.swept import erasable_weights
from fastattnerase.sweeps.options import Options
from fastattnerase.sweeps.parts import PartWriter
from fastattnerase.sweeps.reading import read_chunks
from fastattnerase.sweeps.run import sweep_dump
from fastattnerase.sweeps.transfer import Mover, taken_off
from fastattnerase.sweeps.work import Job, Worker

ITEMS = 15_000_000  # of 132 bytes each
BATCHES = 20  # on which the stages are measured
STAGES = {
    "reading": "reading, with the checksum",
    "copy": "copy to the device",
    "weights": "weights of attention, on the host",
    "kernels": "kernels",
    "results": "results to the host",
    "tables": "tables, on the host",
    "writing": "writing",
}
T = TypeVar("T")


class Clock:
    """Adds up what each stage takes, the device waited for before and after.

    Args:
        device: where batches are erased.
    """

    def __init__(self, device: str) -> None:
        self._gpu = device != "cpu"
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def now(self) -> float:
        if self._gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def time(self, stage: str, do: Callable[[], T]) -> T:
        begin = self.now()
        found = do()
        self.seconds[stage] += self.now() - begin
        return found


def time_stages(dump: Dump, device: str, out: Path) -> tuple[dict[str, float], int]:
    """Measure each stage alone on the first batches; give its seconds, and their items."""
    clock, config, mover, items = Clock(device), Config(), Mover(device), 0
    shard = dump.shards[0]
    chunks = read_chunks(dump, shard)
    with PartWriter(out, shard.name) as writer:
        for _ in range(BATCHES):
            host = clock.time("reading", lambda: next(chunks, None))
            if host is None:
                break
            items += host.batch.num_items
            moved = clock.time("copy", lambda host=host: mover(host))
            clock.time("weights", lambda host=host: erasable_weights(host))
            chunk = moved.ready()
            found = clock.time(
                "kernels", lambda chunk=chunk, host=host: erased(chunk, config, host.batch)
            )
            results = clock.time(
                "results", lambda found=found, host=host: taken_off(found, host).wait()
            )
            tables = clock.time(
                "tables", lambda results=results: tables_of(results, config, with_curves=False)
            )
            clock.time("writing", lambda tables=tables: writer.append(tables))
        clock.time("writing", writer.finish)
    clock.seconds["kernels"] -= clock.seconds["weights"]  # which are part of that call
    return clock.seconds, items


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--shard-bytes", type=int, default=1 << 28)
    parser.add_argument("--json", type=Path, help="where the numbers go")
    given = parser.parse_args(argv)
    if given.items < 2 * SHORTEST:
        parser.error(f"--items: given {given.items}, needed {2 * SHORTEST} or more")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        begin = time.perf_counter()
        fae.save_batches(pieces(given.items), folder / "dump", shard_bytes=given.shard_bytes)
        dump = fae.open_batches(folder / "dump")
        print(f"dump: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        # Kernels are loaded, and memory is got, before anything is measured.
        warm = Job(dump.folder, folder / "warm", Config(), given.device)
        Worker(warm).run(dump.shards[-1])
        begin = time.perf_counter()
        manifest = sweep_dump(
            dump.folder, folder / "out", Config(), Options(), name="scale", device=given.device
        )
        seconds = time.perf_counter() - begin
        stages, items = time_stages(dump, given.device, folder / "stages")
    size = sum(shard.bytes for shard in dump.shards)
    shares = {name: of / items * manifest.items / seconds for name, of in stages.items()}
    print(
        f"{manifest.items:,} items, {quantity(size, 'B')} in {seconds:.1f} s on {given.device}: "
        f"{quantity(manifest.items / seconds, ' items/s')}, {quantity(size / seconds, 'B/s')}\n"
    )
    rows = [
        [STAGES[name], quantity(items / stages[name], "/s"), f"{100 * share:.1f} %"]
        for name, share in shares.items()
        if stages[name] > 0
    ]
    print(markdown(["stage, alone", "items", "of the sweep's time"], rows))
    record = {
        "machine": machine(),
        "versions": versions(),
        "device": torch.cuda.get_device_name() if given.device != "cpu" else "cpu",
        "items": manifest.items,
        "bytes": size,
        "seconds": seconds,
        "stages": {
            name: {"items_per_second": items / stages[name] if stages[name] > 0 else None,
                   "share": share}
            for name, share in shares.items()
        },
    }  # fmt: skip
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(record, indent=2) + "\n")
    for shard, reason in manifest.aside.items():
        print(f"set aside: {shard}: {reason}", file=sys.stderr)
    return int(bool(manifest.aside))


if __name__ == "__main__":
    sys.exit(main())
