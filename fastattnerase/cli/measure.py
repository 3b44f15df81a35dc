"""`fastattnerase measure`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from fastattnerase.cli.console import Stages, counted, out
from fastattnerase.cli.inputs import (
    LOADING,
    OPENING,
    Device,
    Input,
    Name,
    Out,
    choose_backend,
    open_source,
)
from fastattnerase.cli.options import command
from fastattnerase.mi.config import COSTS, Config

if TYPE_CHECKING:
    from fastattnerase.mi import Result

_STATISTICS = {
    "kendall": "plain tau",
    "weighted_product": "weighted tau, products",
    "weighted_sum": "weighted tau, sums",
}


@command("fastattnerase measure --model runs/flanrnn --out runs/flanrnn/measure")
def measure(
    given: Input,
    config: Config,
    device: Device = "auto",
    name: Name = None,
    out_folder: Out = None,
) -> None:
    """Measure the mutual information between ranked hidden states and outputs, nothing else.

    Wen, Subbalakshmi and Yang's question: does information follow attention? Writes a run directory
    with its tables as CSV and Parquet and its summary as JSON. A finished measurement is not
    repeated.
    """
    from fastattnerase import mi

    stages = Stages(OPENING | COSTS)
    with stages:
        stages(LOADING, 0, 1)
        choose_backend(config.backend)
    source, own, folder = open_source(given, device, "measure", stages)
    with stages:
        result = mi.run(source, config, out_folder or folder, name=name or own, report=stages)
    files = mi.export(result)
    _show(result)
    for file in files:
        out.print(str(file), soft_wrap=True)


def _show(result: Result) -> None:
    """Print what a measurement found."""
    found = result.measurement
    summary, first = found.summary, found.ranks.iloc[0]
    sizes = ", ".join(
        (
            counted(summary.ranks, "rank"),
            counted(summary.clusters, "cluster"),
            counted(summary.output_labels, "output label"),
        )
    )
    for notice in summary.notices:  # before any number
        out.print(f"Note: {notice}", soft_wrap=True)
    instances = counted(summary.instances, "instance")
    out.print(f"{result.run.name}: {summary.used:,} of {instances}, {sizes}")
    control = _interval(first["control_low"], first["control_high"], ".3f")
    out.print(
        f"Rank 1: {first['plug_in']:.3f} nats of at most {first['bound']:.3f}"
        + (f"; {control} with outputs shuffled" if control else "")
    )
    rows = {
        (str(row["estimator"]), str(row["statistic"])): row
        for row in found.correlations.to_dict("records")
    }
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("information with attention")
    for title in ("as in the paper", "shuffled", "bias corrected"):
        table.add_column(title, justify="right")
    for statistic, title in _STATISTICS.items():
        own = found.correlation(statistic)
        corrected = found.correlation(statistic, "miller_madow")
        row = rows["plug_in", statistic]
        table.add_row(
            title,
            own.reason if own.value is None else f"{own.value:+.3f}",
            _interval(row["control_low"], row["control_high"], "+.2f"),
            "" if corrected.value is None else f"{corrected.value:+.3f}",
        )
    out.print(table)


def _interval(low: float, high: float, form: str) -> str:
    """Write an interval; nothing where it is undefined."""
    return f"{low:{form}} to {high:{form}}" if low <= high else ""
