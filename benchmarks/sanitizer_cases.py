"""The smallest call of every CUDA kernel, for compute-sanitizer to watch.

    compute-sanitizer --tool memcheck python benchmarks/sanitizer_cases.py
    compute-sanitizer --tool racecheck python benchmarks/sanitizer_cases.py --smallest

Inputs are made on the CPU so that nearly every kernel that runs is the library's own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import problems
import torch
from harness import Engine, load_emulator
from problems import RANKINGS, Data

CURVES = ("js", "kl", "label_prob", "mass", "decision", "logits")


def cases(smallest: bool, emulated: bool) -> Iterator[tuple[str, Data]]:
    """A case for each path: a lane an instance, a warp, a block, a large block, several blocks."""
    lengths = {"warp": [1, 2, 7, 31], "block": [70, 300], "large": [2_500], "long": [9_001]}
    if not emulated:
        lengths["pack"] = [7] * 4_500  # more than a GPU has warps, so that packs fill up
    if not smallest:
        lengths["edges"] = [0, 1, 32, 33, 64, 65, 127, 129, 1023, 1024, 1025]
    for name, sizes in lengths.items():
        for dtype in (torch.float32,) if smallest else (torch.float32, torch.bfloat16):
            width, classes = (129, 10) if name == "edges" else (20, 3)
            data = problems.make(name, np.array(sizes), width, classes, seed=1, dtype=dtype)
            yield f"{name} {dtype}", data


def to(data: Data, device: str) -> Data:
    return replace(
        data,
        values=data.values.to(device),
        scores=data.scores.to(device),
        offsets=data.offsets.to(device),
        head_weight=data.head_weight.to(device),
        head_bias=data.head_bias.to(device),
    )


def run(name: str, data: Data, smallest: bool, backend: str) -> None:
    engine = Engine(to(data, "cuda" if backend == "cuda" else "cpu"), backend)
    fae, batch = engine.fae, engine.batch
    engine.sweep()
    engine.sweep(single=True, minimal=True, curves=CURVES)
    if not smallest:
        order = fae.rank(batch, "attention", backend=backend)
        for direction in ("erase", "keep"):
            rankings = [*RANKINGS, "renormalized_gradient", "leave_one_out", "minimal", order]
            fae.erase_prefixes(batch, rankings, direction=direction, backend=backend)
        engine.each()
        engine.minimal()
        if data.items < 400:
            fae.erase_prefixes(batch, ["greedy"], backend=backend)
            pooled_head = fae.AttentionBatch(
                batch.values,
                batch.offsets,
                scores=batch.scores,
                head=lambda pooled, instance: pooled.float()[:, :4].contiguous(),
            )
            fae.erase_prefixes(pooled_head, ["attention", order], backend=backend)
    if backend == "cuda":
        torch.cuda.synchronize()
    print(f"ran {name}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smallest", action="store_true", help="one dtype and two calls a path, for slow tools"
    )
    parser.add_argument("--emulated", action="store_true", help="on the host emulator, no GPU")
    options = parser.parse_args()
    if options.emulated:
        load_emulator()
    for case, problem in cases(options.smallest, options.emulated):
        run(case, problem, options.smallest, "cuda-emulated" if options.emulated else "cuda")
