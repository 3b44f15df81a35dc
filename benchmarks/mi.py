"""Mutual information by attention rank: one model's measurement, its time and peak memory.

    python benchmarks/mi.py                                   # 4,000 instances, 60 ranks
    python benchmarks/mi.py --smoke                           # seconds; what CI runs
    python benchmarks/mi.py --json benchmarks/results/mi.json

States are as wide as a BiLSTM's (256), made batch by batch from 16 hidden factors while the
measurement reads them, so that neither they nor the model are in its memory. Before anything is
timed, the estimate of a rank whose state decides the output is checked to be the largest. Time is
one whole measurement after a small one that loads the code. Peak memory is how far resident memory
rises above its level before; the states of all ranks together are shown beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from harness import Disagreement, duration, machine, markdown, peak_extra_bytes, quantity, versions

import fastattnerase as fae
from fastattnerase.mi import Config, Measurement, measure

WIDTH = 256
FACTORS = 16
BATCH_ITEMS = 2_048  # so that a batch takes the same memory whatever the number of ranks
INSTANCES, RANKS, CLUSTERS = 4_000, (15, 30, 60), 50
SMOKE_INSTANCES, SMOKE_RANKS, SMOKE_CLUSTERS = 300, (2, 4, 8), 10


def stream(instances: int, ranks: int) -> Iterator[tuple[fae.AttentionBatch, torch.Tensor]]:
    """Batches of `ranks` items an instance, with logits that the item of rank 1 decides."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(FACTORS, WIDTH, generator=generator) / FACTORS**0.5
    head = torch.zeros(2, WIDTH)
    for begin in range(0, instances, BATCH_ITEMS // ranks):
        size = min(BATCH_ITEMS // ranks, instances - begin)
        factors = torch.randn(size, ranks, FACTORS, generator=generator)
        factors[..., 0] *= 3
        noise = torch.randn(size, ranks, WIDTH, generator=generator)
        values = (factors @ mixing + 0.1 * noise).tanh()  # [size, ranks, D]
        scores = torch.arange(ranks, 0, -1).expand(size, ranks) * (4 / ranks)
        scores = scores + 0.1 * torch.rand(size, ranks, generator=generator) / ranks
        batch = fae.AttentionBatch.from_padded(values, scores=scores, head_weight=head)
        yield batch, factors[:, 0, 0]


def measured(instances: int, ranks: int, clusters: int | str) -> Measurement:
    """One measurement of all ranks."""
    return measure(stream(instances, ranks), Config(ranks=ranks, clusters=clusters))


def check(instances: int, ranks: int, clusters: int) -> None:
    """Raise unless the planted rank stands out and the others lie near their control."""
    found = measured(instances, ranks, clusters).ranks
    if found["plug_in"].idxmax() != 0 or found["plug_in"][0] <= 2 * found["control_high"][0]:
        raise Disagreement(f"the planted rank does not stand out: {found['plug_in'].tolist()}")
    near = found["excess"][1:].abs() <= 0.5 * found["control_mean"][1:]
    if not near.all():
        raise Disagreement(f"ranks of noise carry information: {found['excess'].tolist()}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    smoke = arguments.smoke
    instances = SMOKE_INSTANCES if smoke else INSTANCES
    ranks = SMOKE_RANKS if smoke else RANKS
    clusters = SMOKE_CLUSTERS if smoke else CLUSTERS
    try:
        check(SMOKE_INSTANCES, SMOKE_RANKS[-1], SMOKE_CLUSTERS)
    except Disagreement as error:
        print(f"no numbers: {error}", file=sys.stderr)
        return 1

    times: list[dict[str, Any]] = []
    for rule in (clusters, "largest"):
        begin = time.perf_counter()
        found = measured(instances, ranks[-1], rule)
        times.append(
            {
                "clusters": rule,
                "chosen": found.summary.clusters,
                "seconds": time.perf_counter() - begin,
            }
        )
    memory = [
        {
            "ranks": count,
            "peak_bytes": peak_extra_bytes(
                lambda count=count: measured(instances, count, clusters)
            ),
            "states_bytes": instances * count * WIDTH * 4,
        }
        for count in ranks
    ]

    print(f"{instances:,} instances, {ranks[-1]} ranks, width {WIDTH}")
    print(
        markdown(
            ["clusters", "chosen", "time"],
            [[str(row["clusters"]), str(row["chosen"]), duration(row["seconds"])] for row in times],
        )
    )
    print(f"\n{instances:,} instances, N = {clusters}")
    print(
        markdown(
            ["ranks", "peak memory", "all states"],
            [
                [
                    str(row["ranks"]),
                    quantity(row["peak_bytes"], "B"),
                    quantity(row["states_bytes"], "B"),
                ]
                for row in memory
            ],
        )
    )
    if arguments.json is not None:
        record = {
            "machine": machine(),
            "versions": versions(),
            "smoke": smoke,
            "instances": instances,
            "width": WIDTH,
            "time": times,
            "memory": memory,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
