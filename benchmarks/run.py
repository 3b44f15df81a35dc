"""The CPU benchmarks: every problem set, the engine against every baseline, in one process.

    python benchmarks/run.py                                  # all sets, one and two threads
    python benchmarks/run.py --smoke                          # seconds; what CI runs
    python benchmarks/run.py --sets flan_imdb --threads 1 --isa avx2
    python benchmarks/run.py --json benchmarks/results/cpu.json

Results are compared before anything is timed: labels, first flips, flip labels and masses of every
baseline on the engine's orders must equal the engine's outside near-ties, or the run fails. Times
are medians of alternating calls with a pause before each. A baseline too slow for the whole set
runs on the set's first instances and is scaled by the number of prefixes; its row says so. The
batch is built and its values are in memory before the clock starts, for the engine as for the
baselines; results are allocated inside. A row repeats the sweep with a bias that keeps every
decision, since rankings that flip late or never take longer. Extras (singles, minimal set, curves)
are measured on every instruction set, each beside a sweep of its own; a table gives the speed of
two threads against one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
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
    alternate,
    compare,
    duration,
    head_of,
    keys_from_orders,
    machine,
    markdown,
    peak_extra_bytes,
    quantity,
    versions,
)
from problems import RANKINGS, Data
from roofline import cpu_read_bandwidth

LOOP_ITEMS = 2_000  # items of the subset that one-by-one baselines run on, four prefixes each
SMOKE_LOOP_ITEMS = 300
FEATURE_ITEMS = 70_000  # items of the subset for suffix sums over the features
SMOKE_FEATURE_ITEMS = 2_000
ATTRIBUTION_LIMIT = 1_024  # longest instance that attribution libraries are timed on
MASK_LIMIT = 8_192  # longest instance whose n x n masks are built
SPACED_PREFIXES = 16  # prefixes a ranking of a long instance on which the loop is timed
ISA_VARIABLE = "FASTATTNERASE_CPU_ISA"


def subset(data: Data, items: int) -> Data:
    """The first instances with at most `items` items in all, at least one instance."""
    fitting = int((data.offsets[1:] <= items).sum())
    return data if fitting == data.instances else data.head(max(1, fitting))


def check(data: Data, engine: Engine, smoke: bool, with_compile: bool) -> dict[str, Any]:
    """Compare the engine with every baseline; raises `Disagreement`."""
    ours, near = engine.result()
    orders = engine.orders()
    keys = keys_from_orders(orders, data.offsets)
    expected = problems.random_keys(0, 0, data.offsets)
    random_orders = baselines.orders_of(data, expected.expand(len(RANKINGS), -1))[0]
    if not torch.equal(orders[0], random_orders):
        raise Disagreement("the random ranking differs from the documented generator's")
    facts: dict[str, Any] = compare("torch", ours, baselines.torch_sweep(data, keys), near)

    # Rankings computed in float32 torch may order nearly equal keys otherwise: counted, bounded.
    own = baselines.torch_sweep(data)
    other = (own.first_flip != ours.first_flip)[1:]  # without the random ranking
    facts["own_order_differences"] = int(other.sum())
    if other.float().mean() > 1e-3:
        raise Disagreement(f"torch's own rankings differ in {int(other.sum())} first flips")
    if with_compile:
        compare("torch.compile", ours, baselines.compiled_sweep(data, keys), near)

    few = subset(data, SMOKE_LOOP_ITEMS if smoke else LOOP_ITEMS)
    cut, few_keys = few.instances, keys[:, : few.items].contiguous()
    if few.items <= MASK_LIMIT:
        for function in (baselines.forward_loop, baselines.mask_product):
            compare(function.__name__, head_of(ours, cut), function(few, few_keys), near[:cut])
    else:
        curve = engine.sweep(curves=("decision",)).prefixes.curves["decision"]  # [R, T + B]
        points, found = spaced_loop(few, orders)
        if not bool(near[0]) and not torch.equal(curve[:, points], found):
            raise Disagreement("forward loop: decisions of a long instance differ")
    some = subset(data, SMOKE_FEATURE_ITEMS if smoke else FEATURE_ITEMS)
    cut, some_keys = some.instances, keys[:, : some.items].contiguous()
    compare(
        "suffix sums over features",
        head_of(ours, cut), baselines.feature_suffix_sums(some, some_keys), near[:cut],
    )  # fmt: skip
    one = data.head(1)
    if one.items <= ATTRIBUTION_LIMIT:
        if importlib.util.find_spec("captum"):
            drop = engine.each().label_prob_drop[: one.items]
            close("captum", baselines.captum_single(one), drop)
        if importlib.util.find_spec("quantus"):
            curve = engine.sweep(curves=("label_prob",)).prefixes.curves["label_prob"]
            found = baselines.quantus_label_probability(one, keys[:, : one.items].contiguous())
            close("quantus", found, curve[:, 1 : one.items + 1])
    return facts


def close(what: str, found: torch.Tensor, ours: torch.Tensor) -> None:
    """Probabilities through float32 forward passes agree to a few units of float32."""
    error = float((found - ours).abs().max())
    if not error < 2e-5:
        raise Disagreement(f"{what}: probabilities differ by {error:.2g}")


def spaced_loop(data: Data, orders: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Evenly spaced prefixes of instance 0 and the loop's decisions there, `[P]` and `[R, P]`."""
    end = int(data.offsets[1])
    points = torch.linspace(1, end - 1, SPACED_PREFIXES).long()
    decisions = [
        baselines.forward_decisions(data, 0, orders[row, :end], points)
        for row in range(len(RANKINGS))
    ]
    return points, torch.stack(decisions)


class Table:
    """The rows of one problem set at one thread count."""

    def __init__(self, data: Data, threads: int, bandwidth: float) -> None:
        self.data, self.threads, self.bandwidth = data, threads, bandwidth
        self.rows: list[dict[str, Any]] = []

    def add(
        self,
        what: str,
        seconds: float | None,
        *,
        part: float = 1.0,
        extra_bytes: int | None = None,
        note: str = "",
    ) -> None:
        """A row; `seconds` were measured on `part` of the set's prefixes (or items)."""
        row: dict[str, Any] = {"set": self.data.name, "threads": self.threads, "what": what}
        if seconds is not None:
            scaled = seconds / part
            row |= {
                "seconds": scaled,
                "measured_seconds": seconds,
                "part_of_set": part,
                "prefixes_per_second": self.data.prefixes() / scaled,
                "bytes_per_second": self.data.value_bytes / scaled,
                "bandwidth_share": self.data.value_bytes / scaled / self.bandwidth,
            }
        row |= {"extra_bytes": extra_bytes, "note": note}
        self.rows.append(row)

    def ratios(self) -> None:
        """How many times faster each row is than the loop and than the torch version."""
        by_name = {row["what"]: row for row in self.rows}
        for key, other in (("ratio_to_loop", LOOP), ("ratio_to_torch", TORCH)):
            if "seconds" in by_name.get(other, {}):
                for row in self.rows:
                    if "seconds" in row and not row.get("other_question"):
                        row[key] = by_name[other]["seconds"] / row["seconds"]


SWEEP = "sweep"
LOOP = "(1) one forward per prefix"
MASKS = "(2) all masks, matrix product"
FEATURES = "(3) suffix sums over features"
TORCH = "(4) torch: project, sort, suffix sums"
COMPILED = "(5) torch.compile of (4)"
CAPTUM = "(6) captum FeatureAblation"
QUANTUS = "(6) Quantus PixelFlipping"
STEADY = "sweep, no decision ever flips"
EXTRAS: dict[str, dict[str, Any]] = {
    "sweep + JS curves": {"curves": ("js",)},
    "sweep + singles": {"single": True},
    "sweep + minimal set": {"minimal": True},
    "sweep + singles + minimal set": {"single": True, "minimal": True},
}


def measure_set(
    data: Data, engine: Engine, threads: int, bandwidth: float, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Time the engine, its extras and every baseline on one set."""
    table, repeats = Table(data, threads, bandwidth), options.repeats
    calls = 100 if data.items < 100 and not options.smoke else 1  # tiny: many calls a sample

    def many(function: Callable[[], object]) -> Callable[[], object]:
        if calls == 1:
            return function
        return lambda: [function() for _ in range(calls)]

    contest = {SWEEP: many(engine.sweep), TORCH: many(lambda: baselines.torch_sweep(data))}
    for isa in options.other_isas:
        contest[f"{SWEEP}, {isa}"] = many(Engine(data, f"cpu-{isa}").sweep)
    if options.compile:
        contest[COMPILED] = many(lambda: baselines.compiled_sweep(data))
    for function in contest.values():
        function()  # warm up
    times = alternate(contest, repeats)
    for what, function in contest.items():
        memory = peak_extra_bytes(function) if calls == 1 else None
        table.add(what, times[what] / calls, extra_bytes=memory)

    targets = {"": engine}  # by what the names of their rows end in
    targets |= {f", {isa}": Engine(data, f"cpu-{isa}") for isa in options.other_isas}
    for end, target in targets.items():
        extras = {SWEEP: many(target.sweep)}
        for what, wanted in EXTRAS.items():
            extras[what] = many(partial(target.sweep, **wanted))
        if target is engine:
            extras[STEADY] = many(Engine(data.biased(), engine.backend).sweep)
        for function in extras.values():
            function()
        times = alternate(extras, repeats)
        for what in list(extras)[1:]:
            table.add(what + end, times[what] / calls)
            table.rows[-1]["relative_to_sweep"] = times[what] / times[SWEEP]
    if data.items < 100:
        calls_only = {"erase_prefixes call": many(engine.prefixes)}
        calls_only["sweep call, everything"] = many(lambda: engine.sweep(single=True, minimal=True))
        for what, seconds in alternate(calls_only, repeats).items():
            table.add(what, seconds / calls)

    few = subset(data, SMOKE_LOOP_ITEMS if options.smoke else LOOP_ITEMS)
    slow = 1 if options.smoke else min(repeats, 3)
    part = few.items / data.items
    scaled = f"measured on {few.instances} instances, {few.items} items" if part < 1 else ""
    if few.items <= MASK_LIMIT:
        for what, function in (
            (LOOP, baselines.forward_loop),
            (MASKS, baselines.mask_product),
        ):
            once = partial(function, few)
            once()
            seconds = alternate({what: once}, slow)[what]
            table.add(what, seconds, part=part, extra_bytes=peak_extra_bytes(once), note=scaled)
        if int(data.offsets[1]) <= ATTRIBUTION_LIMIT:
            captum_and_quantus(data, engine, table, slow)
    else:
        orders = baselines.orders_of(few, None)
        seconds = alternate({LOOP: lambda: spaced_loop(few, orders)}, slow)[LOOP]
        part = len(RANKINGS) * SPACED_PREFIXES / data.prefixes()
        note = f"measured on {SPACED_PREFIXES} evenly spaced prefixes of each ranking"
        table.add(LOOP, seconds, part=part, note=note)
        n = int(data.offsets.diff().max())
        table.add(
            MASKS, None, note=f"not run: one mask of {n}^2 floats is {4 * n * n / 1e9:.3g} GB"
        )
    some = subset(data, SMOKE_FEATURE_ITEMS if options.smoke else FEATURE_ITEMS)
    part = some.items / data.items
    scaled = f"measured on {some.instances} instances, {some.items} items" if part < 1 else ""
    once = partial(baselines.feature_suffix_sums, some)
    seconds = alternate({FEATURES: once}, slow)[FEATURES]
    table.add(FEATURES, seconds, part=part, extra_bytes=peak_extra_bytes(once), note=scaled)
    table.ratios()
    return table.rows


def captum_and_quantus(data: Data, engine: Engine, table: Table, repeats: int) -> None:
    """Attribution libraries, on the first instance, against the engine's call for the same thing.

    captum's FeatureAblation answers what `erase_each` does, Quantus' PixelFlipping gives the
    `label_prob` curve; both get the attention layer with its values already encoded.
    """
    one = data.head(1)
    part = one.items / data.items
    contests = (
        (CAPTUM, "captum", lambda: baselines.captum_single(one), engine.each, "erase_each"),
        (
            QUANTUS,
            "quantus",
            lambda: baselines.quantus_label_probability(one),
            lambda: engine.sweep(curves=("label_prob",)),
            "sweep with the label_prob curve",
        ),
    )
    for what, package, theirs, ours, name in contests:
        if importlib.util.find_spec(package) is None:
            table.add(what, None, note=f"not run: {package} is not installed beside these versions")
            continue
        theirs()
        ours()
        times = alternate({"theirs": theirs, "ours": ours}, repeats)
        ratio = times["theirs"] / part / times["ours"]
        note = f"measured on 1 instance, {one.items} items; {name} is {ratio:.3g} times faster"
        table.add(what, times["theirs"], part=part, note=note)
        table.rows[-1] |= {"other_question": True, "engine_times_faster": ratio}


def against_one_thread(rows: list[dict[str, Any]]) -> None:
    """Put into rows of several threads how many times the speed of the first count they have."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        one = first.setdefault((row["set"], row["what"]), row)
        if one is not row and "seconds" in row and "seconds" in one:
            row["times_first_thread_count"] = one["seconds"] / row["seconds"]


def time_per_item(options: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """The sweep's time per item against the length of the instances, D = 100, C = 10."""
    lengths = (300, 1024) if options.smoke else (300, 1024, 4096, 16_384, 65_536, 262_144)
    total = 3_000 if options.smoke else 524_288
    engines = {}
    for n in lengths:
        count = max(1, total // n)
        sizes = np.full(count, n, dtype=np.int64)
        engines[n] = Engine(problems.make("per_item", sizes, 100, 10, seed=0), options.backend)
    functions = {str(n): engine.sweep for n, engine in engines.items()}
    for function in functions.values():
        function()
    times = alternate(functions, options.repeats)
    return [
        {
            "length": n,
            "instances": engine.data.instances,
            "threads": threads,
            "nanoseconds_per_item": times[str(n)] / engine.data.items * 1e9,
            "relative_to_first": (times[str(n)] / engine.data.items)
            / (times[str(lengths[0])] / engines[lengths[0]].data.items),
        }
        for n, engine in engines.items()
    ]


def memory(options: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """Peak memory beyond inputs and results against the bound that the engine promises."""
    orders = 20 if options.smoke else 1_000
    data = problems.build("flan_imdb", smoke=options.smoke)
    data = data if options.smoke else data.head(200)
    engine = Engine(data, options.backend)
    longest, classes = int(data.offsets.diff().max()), data.head_weight.shape[0]
    cases: dict[str, tuple[Callable[[], object], int]] = {
        "sweep of four rankings": (engine.sweep, len(RANKINGS)),
        f"{orders} random orders": (
            lambda: engine.fae.erase_prefixes(
                engine.batch, ["random"], random_orders=orders, backend=options.backend
            ),
            orders,
        ),
    }
    rows = []
    for what, (function, rankings) in cases.items():
        results = data.instances * (rankings * 24 + classes * 4 + 16)
        peak = peak_extra_bytes(function)
        rows.append(
            {
                "what": what,
                "threads": threads,
                "extra_bytes": None if peak is None else max(0, peak - results),
                "result_bytes": results,
                "bound_bytes": threads * longest * (classes + 32) * 8 + (64 << 20),
            }
        )
    return rows


def row_cells(row: dict[str, Any]) -> list[str]:
    def times(key: str) -> str:
        return f"{row[key]:.3g}" if key in row else "-"

    speed = "seconds" in row
    note = row["note"]
    if "relative_to_sweep" in row:
        note = f"{row['relative_to_sweep']:.2f} times the sweep"
    return [
        row["set"],
        str(row["threads"]),
        row["what"],
        duration(row["seconds"]) if speed else "-",
        quantity(row["prefixes_per_second"]) if speed else "-",
        f"{row['bytes_per_second'] / 1e9:.3g}" if speed else "-",
        f"{100 * row['bandwidth_share']:.2g} %" if speed else "-",
        times("ratio_to_loop"),
        times("ratio_to_torch"),
        quantity(row["extra_bytes"], "B"),
        note,
    ]


COLUMNS = [
    "set", "threads", "what", "median", "prefixes/s", "GB/s", "of read bandwidth",
    "times (1)", "times (4)", "extra memory", "note",
]  # fmt: skip


def report(results: dict[str, Any]) -> str:
    """The Markdown report of one run."""
    about, lines = results["machine"], []
    lines.append(f"# CPU benchmarks, instruction set {results['isa']}")
    lines.append("")
    lines.append(
        f"{about.get('cpu', 'unknown CPU')} (family/model {about.get('cpu_family_model', '-')}), "
        f"{about['cores']} cores, {about.get('memory_gb', '-')} GB; "
        + ", ".join(f"{name} {version}" for name, version in results["versions"].items())
        + "."
    )
    reads = ", ".join(
        f"{value / 1e9:.1f} GB/s with {threads} thread{'s' * (int(threads) > 1)}"
        for threads, value in results["read_bandwidth"].items()
    )
    lines.append(f"Read bandwidth measured in the same process: {reads}. Medians of ")
    lines[-1] += f"{results['repeats']} alternating calls. GB/s counts one read of the values."
    if results["smoke"]:
        lines.append("Smoke sizes: these times mean nothing, only the comparisons do.")
    lines += ["", "## Sets", ""]
    sizes = [
        [
            name,
            facts["what"],
            str(facts["instances"]),
            str(facts["items"]),
            str(facts["width"]),
            str(facts["classes"]),
            str(facts["near_ties"]),
            str(facts["near_ties_that_differ"]),
            str(facts["own_order_differences"]),
        ]
        for name, facts in results["sets"].items()
    ]
    columns = ["set", "shape", "B", "T", "D", "C", "near-tie instances", "of them differing"]
    columns.append("first flips differing on torch's own orders")
    lines += [markdown(columns, sizes), "", "## Times", ""]
    lines.append(markdown(COLUMNS, [row_cells(row) for row in results["rows"]]))
    faster = [row for row in results["rows"] if "times_first_thread_count" in row]
    faster = [row for row in faster if row["what"].startswith(SWEEP)]
    if faster:
        lines += ["", f"## Speed against {results['rows'][0]['threads']} thread", ""]
        cells = [
            [row["set"], row["what"], str(row["threads"]), f"{row['times_first_thread_count']:.2f}"]
            for row in faster
        ]
        lines.append(markdown(["set", "what", "threads", "times the speed"], cells))
    if results["time_per_item"]:
        lines += ["", "## Time per item against length (D=100, C=10)", ""]
        cells = [
            [
                str(row["threads"]),
                str(row["length"]),
                f"{row['nanoseconds_per_item']:.1f}",
                f"{row['relative_to_first']:.2f}",
            ]
            for row in results["time_per_item"]
        ]
        lines.append(markdown(["threads", "n", "ns per item", "relative to the first"], cells))
    if results["memory"]:
        lines += ["", "## Peak memory beyond inputs and results", ""]
        cells = [
            [
                row["what"],
                str(row["threads"]),
                quantity(row["extra_bytes"], "B"),
                quantity(row["bound_bytes"], "B"),
            ]
            for row in results["memory"]
        ]
        lines.append(markdown(["call", "threads", "measured", "bound"], cells))
    return "\n".join(lines) + "\n"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", help="comma-separated (default 1,2; smoke 1)")
    parser.add_argument("--sets", default=",".join(problems.SETS), help="comma-separated")
    parser.add_argument("--backend", default="auto", help="a backend of fastattnerase.backends()")
    parser.add_argument(
        "--isa",
        default="",
        help=f"the CPU engine's instruction set ({ISA_VARIABLE}: plain, avx2, avx512, neon); "
        "default the best, with the others in rows of their own",
    )
    parser.add_argument("--repeats", type=int, help="alternating calls (default 9; smoke 2)")
    parser.add_argument("--smoke", action="store_true", help="a few instances of every set")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="skip (5)")
    parser.add_argument("--json", type=Path, help="write results here, and Markdown beside")
    options = parser.parse_args(arguments)
    threads = options.threads or ("1" if options.smoke else "1,2")
    options.threads = [int(part) for part in threads.split(",")]
    options.sets = [name for name in options.sets.split(",") if name]
    for name in options.sets:
        if name not in problems.SETS:
            parser.error(f"--sets: unknown {name!r}; known: {', '.join(problems.SETS)}")
    options.compile &= not options.smoke
    options.repeats = options.repeats or (2 if options.smoke else 9)
    return options


def instruction_sets(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The instruction set in force, and the others to measure beside it."""
    if options.backend not in ("auto", "cpu"):
        return options.backend, []
    from fastattnerase import _C
    from fastattnerase.backends import register
    from fastattnerase.backends.cpu import CpuBackend

    chosen = _C.cpu_variant()
    others = [] if options.isa else [isa for isa in _C.cpu_variants() if isa != chosen]
    for isa in others:
        register(CpuBackend(f"cpu-{isa}", isa))
    return chosen, others


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.isa:
        os.environ[ISA_VARIABLE] = options.isa  # read when the engine is loaded
    isa, options.other_isas = instruction_sets(options)
    results: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "isa": isa,
        "backend": options.backend,
        "smoke": options.smoke,
        "repeats": options.repeats,
        "read_bandwidth": {},
        "sets": {},
        "rows": [],
        "time_per_item": [],
        "memory": [],
    }
    size = 64 << 20 if options.smoke else 512 << 20
    for threads in options.threads:
        results["read_bandwidth"][str(threads)] = cpu_read_bandwidth(threads, size)
    try:
        for name in options.sets:
            data = problems.build(name, smoke=options.smoke)
            engine = Engine(data, options.backend)
            torch.set_num_threads(options.threads[0])
            facts = check(data, engine, options.smoke, options.compile)
            results["sets"][name] = {
                "what": problems.SETS[name].what,
                "instances": data.instances,
                "items": data.items,
                "width": data.values.shape[1],
                "classes": data.head_weight.shape[0],
                **facts,
            }
            for threads in options.threads:
                torch.set_num_threads(threads)
                bandwidth = results["read_bandwidth"][str(threads)]
                rows = measure_set(data, engine, threads, bandwidth, options)
                results["rows"] += rows
                print(markdown(COLUMNS, [row_cells(row) for row in rows]), flush=True)
                print()
    except Disagreement as error:
        print(f"DISAGREEMENT on {name}: {error}", file=sys.stderr)
        return 1
    against_one_thread(results["rows"])
    for threads in options.threads:
        torch.set_num_threads(threads)
        results["time_per_item"] += time_per_item(options, threads)
        results["memory"] += memory(options, threads)
    text = report(results)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
        options.json.with_suffix(".md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
