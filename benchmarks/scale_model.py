"""How long a trillion items take, and what holds them up: from measured rates and assumptions.

    python benchmarks/scale_model.py                                        # prints Markdown
    python benchmarks/scale_model.py --write benchmarks/results/scale-model.md

A sweep is stages that run beside one another; the slowest decides. A worker is a process with a
reader thread. Its engine and its tables follow one another, on one core, or on a GPU and one core;
reading goes on beside them. `results/scale.json` has the rates measured by `scale.py` on one
machine, `results/h100-first/gpu.json` the kernel's on an H100. What was not measured is `ASSUMED`.

The prediction for the machine of `scale.json` uses rates of parts alone: the engine on batches in
memory, the reader without the engine, writing tables. Beside it stands what the sweep took.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import markdown, quantity

RESULTS = Path(__file__).parent / "results"
TRILLION = 10**12
ORDERS = 5  # that the experiment follows: random, attention, gradient, product, least attention
NEAR = 0.20  # of what was measured, within which the prediction is to be
BILLION_PREFIXES = 10**9


@dataclass(frozen=True)
class Assumed:
    """What was not measured.

    Attributes:
        disk: bytes a second that a node reads from storage.
        copy: bytes a second from pinned memory to a GPU.
        written: bytes a second that a node writes.
        workers: processes for each GPU; each makes tables on a core of its own.
        gpus: of a node.
    """

    disk: float = 10e9
    copy: float = 50e9
    written: float = 2e9
    workers: int = 1
    gpus: int = 8


ASSUMED = Assumed()


@dataclass(frozen=True)
class Rates:
    """Measured rates of one form of a dump.

    Attributes:
        item_bytes: of an item in the dump.
        instance_items: items of an instance.
        result_bytes: of an instance's results.
        reader: items a second, one process.
        engine: items a second of engine and tables on batches in memory, one process.
        native: share of the engine's time that the native engine takes.
        results: instances a second of writing tables, one process.
        kernel: items a second of the kernels on one GPU.
    """

    item_bytes: float
    instance_items: float
    result_bytes: float
    reader: float
    engine: float
    native: float
    results: float
    kernel: float

    @property
    def tables(self) -> float:
        """Instances a second for which one core makes and writes tables."""
        making = self.instance_items / self.engine * (1 - self.native)
        return 1 / (making + 1 / self.results)


def kernel_rate(gpu: dict[str, Any]) -> float:
    """Give items a second of what the experiment asks of the kernels on an H100.

    That is a sweep with single items, the smallest set and two curves, and a second pass over five
    given orders for a curve of decisions: `sweep + singles + minimal set`, what `sweep + JS curves`
    takes beyond `sweep`, and `sweep + JS curves` once more.
    """
    shape = gpu["sets"]["flan_imdb"]
    seconds = {
        what: next(
            row["seconds"]
            for row in gpu["rows"]
            if row["set"] == "flan_imdb" and row["backend"] == "cuda" and row["what"] == what
        )
        for what in ("sweep", "sweep + singles + minimal set", "sweep + JS curves")
    }
    total = seconds["sweep + singles + minimal set"] + 2 * seconds["sweep + JS curves"]
    return float(shape["items"] / (total - seconds["sweep"]))


def rates_of(row: dict[str, Any], kernel: float) -> Rates:
    """Read the rates of a form from what `scale.py` measured."""
    return Rates(
        item_bytes=row["bytes"] / row["items"],
        instance_items=row["items"] / row["instances"],
        result_bytes=row["sweep"]["result_bytes"] / row["instances"],
        reader=row["reader_items_per_second"],
        engine=row["engine_items_per_second"],
        native=row["engine_native_share"],
        results=row["results_instances_per_second"],
        kernel=kernel,
    )


def predicted(rates: Rates, items: int, jobs: int = 1) -> float:
    """Predict the seconds of a sweep on the machine that the rates are of.

    The engine was measured on all its cores, which several processes share; reading and writing
    were measured in one process, and each has a thread for them.
    """
    computing = 1 / rates.engine + 1 / (rates.results * rates.instance_items * jobs)
    return items * max(1 / (rates.reader * jobs), computing)


def stages(rates: Rates, items: float, gpus: int, assumed: Assumed) -> dict[str, float]:
    """Give the seconds that each stage takes on GPUs, all of its kind at work."""
    nodes = -(-gpus // assumed.gpus)
    instances = items / rates.instance_items
    moved = items * rates.item_bytes
    return {
        "storage read": moved / (assumed.disk * nodes),
        "checksum and reader": items / (rates.reader * gpus * assumed.workers),
        "copy to the GPU": moved / (assumed.copy * gpus),
        "kernels": items / (rates.kernel * gpus),
        "tables on the host": instances / (rates.tables * gpus * assumed.workers),
        "results written": instances * rates.result_bytes / (assumed.written * nodes),
    }


def clock(seconds: float) -> str:
    """Write a time as people say it.

    >>> clock(90), clock(7200), clock(500_000)
    ('1.5 min', '2.0 h', '5.8 days')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def report(scale: dict[str, Any], gpu: dict[str, Any]) -> tuple[str, list[str]]:
    """Write the model as Markdown, and complain where a prediction is not near enough."""
    kernel = kernel_rate(gpu)
    forms = {row["form"]: rates_of(row, kernel) for row in scale["scale"]}
    lines = ["# A trillion items", "## The run that was measured"]
    rows, wrong = [], []
    for row in scale["scale"]:
        rates = forms[row["form"]]
        expected = predicted(rates, row["items"], row["jobs"])
        took = row["items"] / row["sweep"]["items_per_second"]
        error = expected / took - 1
        rows.append(
            [
                row["form"],
                f"{row['items']:,}",
                clock(expected),
                clock(took),
                f"{100 * error:+.0f} %",
            ]
        )
        if abs(error) > NEAR:
            wrong.append(f"{row['form']}: predicted {clock(expected)}, measured {clock(took)}")
    machine = scale["machine"]
    lines += [
        f"{machine['cpu']}, {machine['cores']} cores.",
        markdown(["form", "items", "predicted", "measured", "error"], rows),
        "## Rates",
        markdown(
            ["of one worker", *forms],
            [
                ["bytes an item", *(f"{r.item_bytes:.1f}" for r in forms.values())],
                [
                    "bytes an instance",
                    *(f"{r.item_bytes * r.instance_items:,.0f}" for r in forms.values()),
                ],
                ["bytes an instance, results", *(f"{r.result_bytes:,.0f}" for r in forms.values())],
                ["reader, items/s", *(quantity(r.reader) for r in forms.values())],
                ["engine and tables, items/s", *(quantity(r.engine) for r in forms.values())],
                ["of it native engine", *(f"{100 * r.native:.0f} %" for r in forms.values())],
                ["tables, instances/s", *(quantity(r.tables) for r in forms.values())],
                ["kernels on an H100, items/s", *(quantity(r.kernel) for r in forms.values())],
                [
                    "seconds a billion prefixes, this machine",
                    *(f"{predicted(r, BILLION_PREFIXES // ORDERS):.0f}" for r in forms.values()),
                ],
                [
                    "GPU-seconds a billion prefixes, kernels",
                    *(f"{BILLION_PREFIXES / ORDERS / r.kernel:.1f}" for r in forms.values()),
                ],
            ],
        ),
        "## A trillion items on H100s",
        f"Assumed: a node of {ASSUMED.gpus} GPUs reads {quantity(ASSUMED.disk, 'B/s')} and writes "
        f"{quantity(ASSUMED.written, 'B/s')}; copies take {quantity(ASSUMED.copy, 'B/s')} a GPU; "
        "cores as fast as those of the machine above. Workers: processes for each GPU.",
    ]
    table = []
    for name, rates in forms.items():
        for gpus in (8, 256):
            for workers in (1, 8):
                found = stages(rates, TRILLION, gpus, replace(ASSUMED, workers=workers))
                slowest = max(found, key=lambda stage: found[stage])
                rest = max(value for stage, value in found.items() if stage != slowest)
                table.append(
                    [
                        name,
                        str(gpus),
                        str(workers),
                        clock(found[slowest]),
                        slowest,
                        clock(rest),
                        f"{found['kernels'] / found[slowest]:.1%}",
                    ]
                )
    columns = ["form", "GPUs", "workers", "time", "bottleneck", "without it", "GPU busy"]
    lines += [markdown(columns, table), "## Storage"]
    storage = [
        [
            name,
            quantity(TRILLION * rates.item_bytes, "B"),
            quantity(TRILLION / rates.instance_items * rates.result_bytes, "B"),
        ]
        for name, rates in forms.items()
    ]
    lines += [markdown(["form", "dump", "results"], storage), "## Stage by stage"]
    each = [
        [
            name,
            str(gpus),
            *(clock(seconds) for seconds in stages(rates, TRILLION, gpus, ASSUMED).values()),
        ]
        for name, rates in forms.items()
        for gpus in (8, 256)
    ]
    names = list(stages(next(iter(forms.values())), 1, 8, ASSUMED))
    lines += [
        markdown(["form", "GPUs", *names], each),
        "The time is that of the slowest stage: twice its rate halves it until the next one is the "
        "slowest. Checksums and tables are made on the host, so more workers for each GPU "
        "(`--jobs`, or several ranks a GPU) come first; then storage, where the compact "
        "form reads less; the kernels come last. Rates of a machine that others share are a part "
        "of its own, and so are those of the host's stages here.",
    ]
    return "\n\n".join(lines) + "\n", wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=Path, default=RESULTS / "scale.json")
    parser.add_argument("--gpu", type=Path, default=RESULTS / "h100-first" / "gpu.json")
    parser.add_argument("--write", type=Path, help="a Markdown file")
    arguments = parser.parse_args(argv)
    text, wrong = report(
        json.loads(arguments.scale.read_text()), json.loads(arguments.gpu.read_text())
    )
    print(text)
    if arguments.write is not None:
        arguments.write.write_text(text)
    for complaint in wrong:
        print(complaint, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
