"""Permuted attention weights: `fae.permute` against torch, and against calls of the decoder.

    python benchmarks/permute.py                              # 100 permutations of `bilstm`
    python benchmarks/permute.py --smoke                      # seconds; what CI runs
    python benchmarks/permute.py --json benchmarks/results/permute.json

The torch version projects the items once and then, for each permutation, sorts random keys,
gathers the weights and sums; instances of similar length share a padded bucket, and several
permutations are done at once where that is faster (the fastest is taken). A decoder call is what a
model does for one permutation and 32 instances: weights times states, summed, then the linear
layer. Before anything is timed, torch's distances and flips on the engine's own keys are compared
with the engine's. Memory is how far resident memory rises above its level before the call, less
the results. Times are of the processor, on one thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from baselines import buckets, project
from harness import (
    Disagreement,
    alternate,
    duration,
    machine,
    markdown,
    peak_extra_bytes,
    quantity,
    versions,
)
from problems import Data, build, random_keys
from torch import Tensor

import fastattnerase as fae

PERMUTATIONS, SMOKE_PERMUTATIONS = 100, 8
FIRST = 2**33  # the order number of permutation 0
DECODED = 32  # instances of a decoder call
TOGETHER = (1, 4, 20)  # permutations at a time
MEMORY = (10, 100, 1_000)  # permutations


def batch_of(data: Data) -> fae.AttentionBatch:
    return fae.AttentionBatch(
        data.values,
        data.offsets,
        scores=data.scores,
        head_weight=data.head_weight,
        head_bias=data.head_bias,
    )


def torch_permute(
    data: Data, permutations: int, together: int, dtype: torch.dtype, keys: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What a user would write: distances [P, B] and flips [B].

    `keys` [P, T], int64, rank descending; without them torch draws.
    """
    contributions = project(data).to(dtype)  # [T, C]
    bias = data.head_bias.to(dtype)
    tvd = torch.empty(permutations, data.instances)
    flips = torch.zeros(data.instances, dtype=torch.int64)
    for members, longest in buckets(data.offsets, 16_384):
        lengths = data.offsets.diff()[members]  # [b]
        columns = torch.arange(longest)
        index = (data.offsets[members][:, None] + columns).clamp_(max=data.items - 1)  # [b, n]
        outside = columns >= lengths[:, None]  # [b, n]
        scores = data.scores[index].masked_fill(outside, -torch.inf)
        weights = scores.to(dtype).softmax(1)  # [b, n]
        own = contributions[index].masked_fill(outside[..., None], 0)  # [b, n, C]
        original = torch.einsum("bn,bnc->bc", weights, own) + bias  # [b, C]
        y, shares = original.argmax(1), original.softmax(1)
        for p in range(0, permutations, together):
            count = min(together, permutations - p)
            if keys is None:
                drawn = torch.rand(count, *outside.shape)  # [p, b, n]
                order = drawn.masked_fill_(outside, 2.0).argsort(dim=2)
            else:
                lowest = torch.iinfo(torch.int64).min
                drawn = keys[p : p + count, index].masked_fill(outside, lowest)
                order = drawn.argsort(dim=2, descending=True, stable=True)
            moved = weights.expand(count, -1, -1).gather(2, order)  # [p, b, n]
            logits = torch.einsum("pbn,bnc->pbc", moved, own) + bias  # [p, b, C]
            tvd[p : p + count, members] = (logits.softmax(2) - shares).abs().sum(2).float() / 2
            flips[members] += (logits.argmax(2) != y).sum(0)
    return tvd, flips


def decoder_call(data: Data) -> Callable[[], Tensor]:
    """One permutation's output of the first 32 instances, padded, as a model computes it."""
    first = data.head(min(DECODED, data.instances))
    lengths = first.offsets.diff()
    columns = torch.arange(int(lengths.max()))
    index = (first.offsets[:-1, None] + columns).clamp_(max=first.items - 1)
    outside = columns >= lengths[:, None]
    states = first.values[index].masked_fill(outside[..., None], 0)  # [b, n, D]
    weights = first.scores[index].masked_fill(outside, -torch.inf).softmax(1)  # [b, n]
    decoder = torch.nn.Linear(data.values.shape[1], len(data.head_weight))

    def call() -> Tensor:
        with torch.no_grad():
            logits: Tensor = decoder((weights[:, :, None] * states).sum(1))
            return logits

    return call


def check(data: Data, permutations: int) -> None:
    """Raise unless torch, on the engine's keys, finds what the engine does."""
    found = fae.permute(batch_of(data), permutations, backend="cpu")
    keys = torch.stack([random_keys(0, FIRST + p, data.offsets) for p in range(permutations)])
    tvd, flips = torch_permute(data, permutations, 4, torch.float64, keys)
    worst = float((tvd - found.tvd).abs().max())
    if worst > 2e-6:
        raise Disagreement(f"distances differ by {worst:.3g}")
    near = (found.status & int(fae.Status.NEAR_TIE)) > 0
    wrong = (flips != found.flips) & ~near
    if bool(wrong.any()):
        b = int(wrong.nonzero()[0, 0])
        raise Disagreement(
            f"{int(wrong.sum())} instances have other flips outside near-ties, first instance {b}: "
            f"{int(found.flips[b])} against {int(flips[b])}"
        )


def fastest_torch(data: Data, permutations: int) -> tuple[str, Callable[[], object]]:
    """Find the fastest of torch's versions on a part of the instances."""
    part = data.head(max(1, data.instances // 8))
    forms = {
        f"{together} at a time, {str(dtype).removeprefix('torch.')}": (together, dtype)
        for together in TOGETHER
        for dtype in (torch.float32, torch.float64)
    }
    times = alternate(
        {
            name: lambda form=form: torch_permute(part, min(permutations, 20), *form)
            for name, form in forms.items()
        },
        3,
        clock=time.process_time,
    )
    best = min(times, key=lambda name: times[name])
    return best, lambda: torch_permute(data, permutations, *forms[best])


def memory_of(data: Data, permutations: int) -> dict[str, Any]:
    """Peak memory of a call, less its results."""
    batch = batch_of(data)
    peak = peak_extra_bytes(lambda: fae.permute(batch, permutations, backend="cpu"))
    results = permutations * data.instances * 4
    return {
        "permutations": permutations,
        "results_bytes": results,
        "peak_bytes": peak,
        "beyond_results_bytes": None if peak is None else max(0, peak - results),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=7, help="calls timed, of which the median")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    smoke = arguments.smoke
    data = build("bilstm", smoke=smoke)
    permutations = SMOKE_PERMUTATIONS if smoke else PERMUTATIONS
    repeats = 1 if smoke else arguments.repeats
    try:
        check(data.head(min(data.instances, 300)), permutations)
    except Disagreement as error:
        print(f"no numbers: {error}", file=sys.stderr)
        return 1

    batch, call = batch_of(data), decoder_call(data)
    form, best = fastest_torch(data, permutations)
    times = alternate(
        {
            "fae.permute": lambda: fae.permute(batch, permutations, backend="cpu"),
            "torch": best,
            "decoder": lambda: [call() for _ in range(10)],
        },
        repeats,
        clock=time.process_time,
    )
    decoder = times["decoder"] / 10
    share = times["fae.permute"] / permutations / data.instances * min(DECODED, data.instances)
    rows = {
        "fae.permute": (times["fae.permute"], share),
        f"torch ({form})": (times["torch"], times["torch"] * share / times["fae.permute"]),
        "decoder calls": (decoder * permutations * data.instances / DECODED, decoder),
    }
    print(
        f"{data.instances:,} instances of {data.items / data.instances:.0f} items, width "
        f"{data.values.shape[1]}, {permutations} permutations, one thread, "
        f"{variant()}"
    )
    print(
        markdown(
            ["", "all", "a permutation and 32 instances", "fae.permute is faster by"],
            [
                [name, duration(whole), duration(part), f"{part / share:.1f}"]
                for name, (whole, part) in rows.items()
            ],
        )
    )
    part = data.head(min(data.instances, 256))
    memory = [memory_of(part, count) for count in MEMORY]
    print(f"\n{part.instances} instances: memory beyond the results")
    print(
        markdown(
            ["permutations", "results", "beyond"],
            [
                [
                    f"{row['permutations']:,}",
                    quantity(row["results_bytes"], "B"),
                    quantity(row["beyond_results_bytes"], "B"),
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
            "variant": variant(),
            "instances": data.instances,
            "items": data.items,
            "permutations": permutations,
            "torch_form": form,
            "seconds": {"fae.permute": times["fae.permute"], "torch": times["torch"]},
            "decoder_call_seconds": decoder,
            "permutation_of_32_seconds": share,
            "faster_than_torch": times["torch"] / times["fae.permute"],
            "faster_than_decoder": decoder / share,
            "memory": memory,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def variant() -> str:
    """The instruction set that the engine runs here."""
    from fastattnerase import _C

    return _C.cpu_variant()


if __name__ == "__main__":
    sys.exit(main())
