"""The GPU benchmarks: the fused sweep against torch on the same GPU and against the copy bandwidth.

    python benchmarks/gpu.py --json results/gpu-h100.json   # an NVIDIA GPU
    python benchmarks/gpu.py --quick                        # one set, float32
    python benchmarks/gpu.py --emulated                     # dry run on a CPU, toy sizes, no times

Values are far larger than the L2 cache, small sets rotate among copies; times are medians of CUDA
events around calls that follow each other without waiting. Results are compared before times are
taken: labels, first flips, flip labels and masses of the torch version on the same orders must
equal the engine's outside near-ties. The torch version is baseline (4) with the best of several
bucket sizes and its buckets made beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import baselines
import numpy as np
import problems
import torch
from harness import (
    Disagreement,
    Engine,
    compare,
    duration,
    head_of,
    keys_from_orders,
    load_emulator,
    machine,
    markdown,
    quantity,
    versions,
)
from problems import RANKINGS, Data
from roofline import gpu_copy_bandwidth

BUCKETS = (1 << 16, 1 << 18, 1 << 20, 1 << 22)  # padded items a bucket, the torch version's best
LOOP_ITEMS = 400  # items of the subset for one forward per prefix, four prefixes each
L2_COPIES_BYTES = 512 << 20  # rotate among copies of a set until they are this large together
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WANTED: dict[str, dict[str, Any]] = {
    "sweep": {},
    "sweep + singles + minimal set": {"single": True, "minimal": True},
    "sweep + JS curves": {"curves": ("js",)},
}
QUICK_SETS = ("flan_imdb", "transformer")


def event_seconds(functions: list[Callable[[], object]], repeats: int) -> float:
    """Median seconds of a call on the GPU, rotating among `functions`."""
    for function in functions[:2]:
        function()
    torch.cuda.synchronize()
    pairs = []
    for index in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        functions[index % len(functions)]()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) / 1e3 for begin, end in pairs)


def host_seconds(functions: list[Callable[[], object]], repeats: int) -> float:
    """Median seconds of a call on the host's clock: what a dry run on a CPU reports."""
    times = []
    for index in range(repeats):
        begin = time.perf_counter()
        functions[index % len(functions)]()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def toy(name: str, dtype: torch.dtype) -> Data:
    """A problem set's width and classes on three short instances: kernels run as Python here."""
    spec = problems.SETS[name]
    return problems.make(name, np.array([3, 20, 9]), spec.width, spec.classes, 0, dtype)


class Bench:
    """Settings, the clock and the rows of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = "cpu" if options.emulated else "cuda"
        self.seconds = host_seconds if options.emulated else event_seconds
        self.repeats = 1 if options.emulated else options.repeats
        self.bandwidth = None if options.emulated else gpu_copy_bandwidth()
        self.rows: list[dict[str, Any]] = []
        self.sets: dict[str, Any] = {}
        self.failures: list[str] = []

    def add(self, data: Data, backend: str, dtype: str, what: str, seconds: float, **more: Any):
        row = {
            "set": data.name,
            "backend": backend,
            "dtype": dtype,
            "what": what,
            "seconds": seconds,
            "prefixes_per_second": data.prefixes() / seconds,
            "bytes_per_second": data.value_bytes / seconds,
            **more,
        }
        if self.bandwidth:
            row["bandwidth_share"] = row["bytes_per_second"] / self.bandwidth
        self.rows.append(row)
        print(" | ".join(cells(row)), flush=True)

    def copies(self, data: Data) -> list[Data]:
        """The set and as many copies as it takes to leave no part of it in the L2 cache."""
        count = 1 if self.options.emulated else max(1, L2_COPIES_BYTES // data.value_bytes)
        return [data, *(data.head(data.instances) for _ in range(min(count, 32) - 1))]

    def memory(self, function: Callable[[], object]) -> int | None:
        """Peak bytes that torch allocated during a call beyond those before it."""
        if self.options.emulated:
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def run_set(self, name: str, dtype: str) -> None:
        emulated = self.options.emulated
        if emulated:
            data = toy(name, DTYPES[dtype])
        else:
            data = problems.build(name, gpu=True, dtype=DTYPES[dtype], device=self.device)
        self.sets[name] = {
            "what": problems.SETS[name].what,
            "instances": data.instances,
            "items": data.items,
            "width": data.values.shape[1],
            "classes": data.head_weight.shape[0],
        }
        copies = self.copies(data)
        torch_seconds = self.torch(data, copies, dtype)
        loop_seconds = self.loop(data, dtype)
        for backend in self.options.backends:
            try:
                self.engine(data, copies, dtype, backend, torch_seconds, loop_seconds)
            except (Disagreement, RuntimeError) as error:
                # Another backend may still be measured; the run ends with an error all the same.
                self.failures.append(f"{name} {dtype} {backend}: {error}")
                print(f"FAILED {self.failures[-1]}", flush=True)

    def torch(self, data: Data, copies: list[Data], dtype: str) -> float:
        """The strongest torch version: the best bucket size, buckets made beforehand."""
        best, size = float("inf"), 0
        longest = int(data.offsets.diff().max())
        for bucket_items in BUCKETS:
            if bucket_items < longest and bucket_items != BUCKETS[-1]:
                continue
            plan = list(baselines.buckets(data.offsets, bucket_items))
            calls = [partial(baselines.torch_sweep, copy, plan=plan) for copy in copies]
            seconds = self.seconds(calls, min(self.repeats, 5))
            if seconds < best:
                best, size, call = seconds, bucket_items, calls[0]
            if len(plan) == 1:
                break
        self.add(
            data, "torch", dtype, "(4) torch", best,
            bucket_items=size, extra_bytes=self.memory(call),
        )  # fmt: skip
        return best

    def loop(self, data: Data, dtype: str) -> float:
        """One forward pass per prefix, on evenly spaced prefixes of the first instance, scaled."""
        end = int(data.offsets[1])
        points = torch.linspace(1, end, min(end, LOOP_ITEMS // 4)).long()
        orders = baselines.orders_of(data.head(1), None)
        calls = [
            partial(baselines.forward_decisions, data, 0, orders[row, :end], points)
            for row in range(len(RANKINGS))
        ]
        seconds = self.seconds(calls, 4) / len(points) * data.prefixes()
        self.add(data, "torch", dtype, "(1) one forward per prefix", seconds, scaled=True)
        return seconds

    def engine(
        self,
        data: Data,
        copies: list[Data],
        dtype: str,
        backend: str,
        torch_seconds: float,
        loop_seconds: float,
    ) -> None:
        engines = [Engine(copy, backend) for copy in copies]
        engine = engines[0]
        # Compared on as many instances as 2^22 items; at full size the torch version was run above.
        part = data.head(max(1, int((data.offsets[1:] <= 1 << 22).sum())))
        small = Engine(part, backend)
        ours, near = small.result()
        keys = keys_from_orders(small.orders(), part.offsets)
        facts = compare(
            f"{backend} against torch", ours, baselines.torch_sweep(part, keys, BUCKETS[1]), near
        )
        whole, _ = engine.result()
        alone = head_of(whole, part.instances)
        same = torch.equal(alone.first_flip, ours.first_flip) and torch.equal(
            alone.removed_mass.nan_to_num(-1.0), ours.removed_mass.nan_to_num(-1.0)
        )
        if not same:
            raise Disagreement("results depend on the batch's other instances")
        for what, wanted in WANTED.items():
            calls = [partial(one.sweep, **wanted) for one in engines]
            seconds = self.seconds(calls, self.repeats)
            self.add(
                data, backend, dtype, what, seconds,
                extra_bytes=self.memory(calls[0]),
                ratio_to_torch=torch_seconds / seconds,
                ratio_to_loop=loop_seconds / seconds,
                **facts,
            )  # fmt: skip

    def end_to_end(self, backend: str) -> None:
        """A BiGRU flat attention network: its forward and the sweep in one stream."""
        emulated = self.options.emulated
        batch, length, words, width, classes = (4, 12, 50, 100, 10) if emulated else (
            2_000, 300, 20_000, 100, 10
        )  # fmt: skip
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(words, width).to(self.device)
        encoder = torch.nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        encoder = encoder.to(self.device)
        query = torch.randn(width, device=self.device)
        key = torch.nn.Linear(width, width).to(self.device)
        head = torch.nn.Linear(width, classes).to(self.device)
        tokens = torch.randint(words, (batch, length), device=self.device)
        offsets = torch.arange(batch + 1, device=self.device) * length

        def forward() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            with torch.no_grad():
                states, _ = encoder(embedding(tokens))  # [B, n, D]
                scores = torch.tanh(key(states)) @ query  # [B, n]
                weights = scores.softmax(1)
                logits = head((weights[..., None] * states).sum(1))  # [B, C]
            return states, scores, logits

        def both() -> object:
            states, scores, logits = forward()
            data = Data(
                "flan_model",
                states.reshape(-1, width),
                scores.reshape(-1),
                offsets,
                head.weight.detach(),
                head.bias.detach(),
            )
            return logits, Engine(data, backend).sweep()

        logits, found = both()
        differing = found.prefixes.label != logits.argmax(1)
        if differing.float().mean() > 1e-2:  # the model's own float32 pooling may tie otherwise
            raise Disagreement(f"{int(differing.sum())} labels differ from the model's")
        model = self.seconds([forward], self.repeats)
        total = self.seconds([both], self.repeats)
        row = {
            "set": "flan_model",
            "backend": backend,
            "dtype": "float32",
            "what": "BiGRU FLAN forward and sweep",
            "instances": batch,
            "length": length,
            "seconds": total,
            "forward_seconds": model,
            "sweep_share": (total - model) / total,
        }
        self.rows.append(row)
        print(" | ".join(cells(row)), flush=True)


def cells(row: dict[str, Any]) -> list[str]:
    def times(key: str) -> str:
        return f"{row[key]:.3g}" if row.get(key) is not None else "-"

    what = row["what"]
    if "sweep_share" in row:
        what += f" ({100 * row['sweep_share']:.1f} %)"
    share = row.get("bandwidth_share")
    return [
        row["set"],
        row["backend"],
        row["dtype"],
        what,
        duration(row["seconds"]),
        quantity(row.get("prefixes_per_second")),
        f"{row['bytes_per_second'] / 1e9:.0f}" if "bytes_per_second" in row else "-",
        f"{100 * share:.0f} %" if share is not None else "-",
        times("ratio_to_loop"),
        times("ratio_to_torch"),
        quantity(row.get("extra_bytes"), "B"),
    ]


COLUMNS = [
    "set", "backend", "dtype", "what", "median", "prefixes/s", "GB/s", "of copy bandwidth",
    "times (1)", "times (4)", "extra memory",
]  # fmt: skip


def report(results: dict[str, Any]) -> str:
    about = results["machine"]
    lines = [
        "# GPU benchmarks",
        "",
        f"{about.get('gpu', 'no GPU: a dry run, times mean nothing')}; "
        + ", ".join(f"{name} {version}" for name, version in results["versions"].items())
        + ".",
    ]
    if results["copy_bandwidth"]:
        lines.append(
            f"Copy bandwidth measured in the same process: {results['copy_bandwidth'] / 1e9:.0f} "
            f"GB/s read plus written. Medians of {results['repeats']} calls."
        )
    lines += ["", markdown(COLUMNS, [cells(row) for row in results["rows"]])]
    lines += ["", *(f"FAILED {failure}" for failure in results["failures"])]
    return "\n".join(lines).rstrip() + "\n"


def short(results: dict[str, Any]) -> str:
    """The engine's rows alone, narrow: the last thing a run prints."""
    rows = [row for row in results["rows"] if row["backend"] != "torch"]
    columns = ("set", "backend", "dtype", "what", "median", "of copy", "x (1)", "x (4)")
    table = []
    for row in rows:
        full = dict(zip(COLUMNS, cells(row), strict=True))
        keys = [*COLUMNS[:5], "of copy bandwidth", "times (1)", "times (4)"]
        table.append([full[key] for key in keys])
    lines = [markdown(list(columns), table)]
    if results["copy_bandwidth"]:
        lines.append(f"copy bandwidth {results['copy_bandwidth'] / 1e9:.0f} GB/s")
    return "\n".join([*lines, *(f"FAILED {failure}" for failure in results["failures"])])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", help="comma-separated, default all but tiny (emulated: short)")
    parser.add_argument("--backends", help="default cuda,triton; emulated: cuda-emulated,triton")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="of the values")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="two sets, float32, cuda")
    parser.add_argument("--emulated", action="store_true", help="dry run on a CPU")
    parser.add_argument("--json", type=Path, help="write results here, and Markdown beside")
    options = parser.parse_args(arguments)
    first = "cuda-emulated" if options.emulated else "cuda"
    if options.sets is None:
        left_out = ("tiny", "long", "long_one") if options.emulated else ("tiny",)
        options.sets = ",".join(name for name in problems.SETS if name not in left_out)
    if options.quick:
        options.sets, options.dtypes = ",".join(QUICK_SETS), "float32"
        options.backends = options.backends or first
    options.backends = (options.backends or f"{first},triton").split(",")
    options.sets, options.dtypes = options.sets.split(","), options.dtypes.split(",")
    for given, known in ((options.sets, problems.SETS), (options.dtypes, DTYPES)):
        for name in given:
            if name not in known:
                parser.error(f"unknown {name!r}; known: {', '.join(known)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.emulated:
        torch.set_num_threads(1)
        if "triton" in options.backends:
            os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel module is imported
        if "cuda-emulated" in options.backends:
            load_emulator()
    elif not torch.cuda.is_available():
        print("torch finds no GPU; --emulated is the dry run for a CPU", file=sys.stderr)
        return 2
    bench = Bench(options)
    for name in options.sets:
        for dtype in options.dtypes:
            bench.run_set(name, dtype)
    for backend in options.backends:
        try:
            bench.end_to_end(backend)
        except (Disagreement, RuntimeError) as error:
            bench.failures.append(f"end to end {backend}: {error}")
    results = {
        "machine": machine(),
        "versions": versions(),
        "emulated": options.emulated,
        "repeats": bench.repeats,
        "copy_bandwidth": bench.bandwidth,
        "sets": bench.sets,
        "rows": bench.rows,
        "failures": bench.failures,
    }
    print(f"\n{short(results)}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
        options.json.with_suffix(".md").write_text(report(results))
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
