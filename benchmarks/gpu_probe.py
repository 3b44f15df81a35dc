"""Where a sweep's time goes on this GPU: each problem set with more and more of the work asked for.

    python benchmarks/gpu_probe.py [--scale 1.0]

Prints a row a set and a request: microseconds (median of 20, values far larger than the L2 cache or
evicted between runs), bytes of values a second, and the share of the bandwidth of a plain copy.
"""

from __future__ import annotations

import argparse
import sys

import torch

from fastattnerase.backends.cuda import BACKEND
from fastattnerase.problem import BIT, Problem, RankingKind, allocate, as_outputs

K = RankingKind
FOUR = (K.ATTENTION, K.GRADIENT, K.PRODUCT, K.RANDOM)
SINGLES = BIT["single_flip_label"] | BIT["single_js"] | BIT["single_drop"]
MINIMAL = BIT["minimal_size"] | BIT["minimal_flip_label"] | BIT["minimal_order"]
REQUESTS = {
    "label": ((), 0),
    "random": ((K.RANDOM,), 0),
    "attention": ((K.ATTENTION,), 0),
    "four": (FOUR, 0),
    "four+singles": (FOUR, SINGLES),
    "four+minimal": (FOUR, MINIMAL),
    "four+both": (FOUR, SINGLES | MINIMAL),
    "four+js curve": (FOUR, BIT["curve_js"]),
}
# name: items of an instance (mean), D, C, items in all
SETS = {
    "n300 D100 C10": (300, 100, 10, 2_400_000),
    "n7 D100 C5": (7, 100, 5, 2_400_000),
    "n180 D256 C2": (180, 256, 2, 1_000_000),
    "n128 D768 C2": (128, 768, 2, 400_000),
    "n65536 D100 C10": (65_536, 100, 10, 2_097_152),
}


def time_us(run, repeats: int = 20) -> float:
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(repeats + 3):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times[3:])[repeats // 2]


def make(n: int, D: int, C: int, T: int, dtype: torch.dtype) -> Problem:
    g = torch.Generator(device="cuda").manual_seed(0)
    B = max(T // n, 1)
    lengths = torch.randint(max(n // 2, 1), n + n // 2 + 1, (B,), generator=g, device="cuda")
    if n > 10_000:
        lengths[:] = n
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    T = int(offsets[-1])
    head = torch.randn(C, 1, D, generator=g, device="cuda") / D**0.5
    return Problem(
        values=torch.randn(T, 1, D, generator=g, device="cuda").to(dtype),
        offsets=offsets,
        attention=torch.randn(T, 1, generator=g, device="cuda"),
        is_scores=True,
        head_weight=head,
        head_bias=torch.zeros(C, device="cuda"),
        ids=torch.arange(B, device="cuda"),
        rankings=(),
        ranking_args=(),
        validate=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of items")
    parser.add_argument("--sets", default="", help="only sets whose name has this text")
    args = parser.parse_args()
    say = sys.stdout.write
    say(f"{torch.cuda.get_device_name()}\n")
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").zero_()
    target = torch.empty_like(source)
    copy = 2 * source.numel() / time_us(lambda: target.copy_(source)) * 1e6
    say(f"copy {copy / 1e12:.2f} TB/s\n")
    for name, (n, D, C, T) in SETS.items():
        if args.sets not in name:
            continue
        base = make(n, D, C, int(T * args.scale), torch.float32)
        size = base.values.numel() * base.values.element_size()
        for request, (kinds, wants) in REQUESTS.items():
            problem = Problem(
                **{**vars(base), "rankings": kinds, "ranking_args": (0,) * len(kinds)}
            )
            out = as_outputs(allocate(problem.values, problem.offsets, C, len(kinds), wants), wants)
            us = time_us(lambda p=problem, o=out: BACKEND.sweep(p, o))
            rate = size / us * 1e6
            say(
                f"{name:16} {size / 1e6:6.0f} MB {request:14} {us:9.1f} us "
                f"{rate / 1e12:5.2f} TB/s {100 * rate / copy:5.1f} %\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
