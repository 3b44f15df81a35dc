"""A small dump to sweep, and what its sweep must be."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

import fastattnerase as fae
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.sweeps.options import Options
from fastattnerase.sweeps.records import PARTS, TABLES
from fastattnerase.sweeps.run import sweep_dump

CONFIG = Config(random_orders=2, resamples=5)


def batches(count: int = 30) -> list[fae.AttentionBatch]:
    """Make batches of five instances: lengths from 0 to 9, one of NaN, biases that decide."""
    chance = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(3, 4, generator=chance), torch.tensor([0.5, 0.0, -0.25])
    found = []
    for first in range(0, count, 5):
        lengths = torch.randint(0, 10, (5,), generator=chance)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        items = int(offsets[-1])
        values = torch.randn(items, 4, generator=chance)
        scores = torch.randn(items, generator=chance)
        if first == 10 and items:
            scores[0] = float("nan")
        ids = torch.arange(first, first + 5) * 7
        found.append(
            fae.AttentionBatch(
                values.bfloat16(),
                offsets,
                scores=scores,
                head_weight=weight,
                head_bias=bias,
                ids=ids,
            )
        )
    return found


def make_dump(folder: Path, shard_bytes: int = 4096 + 400) -> Path:
    """Write a dump of 30 instances in some ten shards."""
    fae.save_batches(batches(), folder, shard_bytes=shard_bytes, classes=("a", "b", "c"))
    return folder


def digests(out: Path) -> dict[str, str]:
    """Compute the SHA-256 of every part of a sweep."""
    parts = sorted((out / PARTS).rglob("*.parquet"))
    return {
        path.relative_to(out / PARTS).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in parts
    }


def swept(dump: Path, out: Path, **options: object) -> dict[str, str]:
    """Sweep a dump to its end; give the digests of its parts."""
    found = sweep_dump(dump, out, CONFIG, Options(**options), name="tiny")  # type: ignore[arg-type]
    assert found.complete
    assert not found.aside
    parts = digests(out)
    assert len(parts) == found.shards * len(TABLES)
    return parts
