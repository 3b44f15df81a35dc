"""Instances drawn by a seed, the parts of a sweep over them, and such a sweep's folder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

import fastattnerase as fae
from fastattnerase.runs.records import to_json
from fastattnerase.runs.rundir import write_json
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import measure
from fastattnerase.sweeps import records

MEMORY = 1 << 28
INSTANCES, STEP = 600, 70
BIAS = (0.25, 0.0, -0.125)
CONFIG = Config(resamples=60, random_orders=1, exhibits=0)


class Drawn:
    """Instances drawn by a seed: empty and single ones, ties, one that is not a number."""

    def __init__(self, heads: int = 1) -> None:
        rng = torch.Generator().manual_seed(5)
        self.classes = ["a", "b", "c"]
        self.lengths = torch.randint(0, 9, (INSTANCES,), generator=rng)
        self.offsets = torch.cat([torch.zeros(1, dtype=torch.int64), self.lengths.cumsum(0)])
        total = int(self.offsets[-1])
        shape = (total, 4) if heads == 1 else (total, heads, 4)
        self.values = torch.randn(shape, generator=rng).round(decimals=1)
        self.values[3] = math.nan
        self.scores = torch.randn(shape[:-1], generator=rng)
        self.weight = torch.randn((3, *shape[1:]), generator=rng)
        self.gold = torch.randint(-1, 3, (INSTANCES,), generator=rng)

    def __len__(self) -> int:
        return INSTANCES

    def describe(self) -> dict[str, Any]:
        return {"what": "drawn"}

    def chunks(self, start: int) -> Iterator[Chunk]:
        for begin in range(start, INSTANCES, STEP):
            end = min(begin + STEP, INSTANCES)
            items = slice(int(self.offsets[begin]), int(self.offsets[end]))
            yield Chunk(
                fae.AttentionBatch(
                    self.values[items],
                    self.offsets[begin : end + 1] - self.offsets[begin],
                    scores=self.scores[items],
                    head_weight=self.weight,
                    head_bias=torch.tensor(BIAS),
                    ids=torch.arange(begin, end),
                ),
                gold=self.gold[begin:end],
            )

    def select(self, rows: list[int]) -> Iterator[Chunk]:
        return iter(list(self.chunks(0))[:1])


def parts_of(source: Drawn, config: Config, folder: Path) -> list[dict[str, Path]]:
    """Write the parts of a sweep, a part a batch."""
    parts = []
    for number, chunk in enumerate(source.chunks(0)):
        tables = measure(chunk, config, first_row=number * STEP)
        part = {table: folder / f"{table}-{number}.parquet" for table in records.TABLES}
        for table, path in part.items():
            pq.write_table(tables[table], path)
        parts.append(part)
    return parts


def sweep_of(source: Drawn, config: Config, out: Path) -> None:
    """Write the folder of a sweep that is done, a shard a batch."""
    for folder in (*(records.PARTS + "/" + table for table in records.TABLES), records.SHARDS):
        (out / folder).mkdir(parents=True)
    state = records.SweepState(
        records.KIND,
        records.FORMAT,
        config.to_dict(),
        {"digest": "none", "shards": -(-INSTANCES // STEP), "instances": INSTANCES},
        "drawn",
        tuple(source.classes),
        BIAS,
        "values",
    )
    write_json(out / records.SWEEP, to_json(state))
    for number, chunk in enumerate(source.chunks(0)):
        shard = f"shard-{number:06d}"
        found = {}
        for table, rows in measure(chunk, config, first_row=number * STEP).items():
            if table in records.TABLES:
                path = records.part_path(out, table, shard)
                pq.write_table(rows, path)
                content = path.read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                found[table] = records.Part(rows.num_rows, len(content), digest)
        batch = chunk.batch
        records.write_shard(
            out,
            records.ShardRecord(
                shard, "done", "", len(batch), int(batch.offsets[-1]), found, number * STEP
            ),
        )


def dump_of(source: Drawn, folder: Path) -> Path:
    """Write a dump of some 40 shards."""
    batches = ((chunk.batch, {"labels": chunk.gold}) for chunk in source.chunks(0))
    fae.save_batches(batches, folder, shard_bytes=5_600, classes=source.classes)
    return folder
