"""`fastattnerase measure`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    print_next,
)
from fastattnerase.cli.options import Offer, command
from fastattnerase.mi.config import COSTS, Config

if TYPE_CHECKING:
    from fastattnerase.mi import Measurement, Result
else:  # imported where they are used; hints that are read at run time say Any
    Measurement = Result = Any

_STATISTICS = {
    "kendall": "plain tau",
    "weighted_product": "weighted tau, products",
    "weighted_sum": "weighted tau, sums",
}
_REPEATS = {
    "kmeans": "{} seeds of k-means",
    "permuted": "weights permuted {} times",
    "equal": "outputs of equal weights",
    "untrained": "untrained attention",
}


@command("fastattnerase measure --model runs/flanrnn --out runs/flanrnn/measure")
def measure(
    given: Annotated[Input, Offer(without=("transformer", "unit", "max_pieces"))],
    config: Config,
    device: Device = "auto",
    name: Name = None,
    out_folder: Out = None,
) -> None:
    """Measure the mutual information between ranked hidden states and outputs, nothing else.

    Wen, Subbalakshmi and Yang's question: does information follow attention? What is said of tau is
    against a null: outputs shuffled (states tell nothing), weights permuted within each instance
    with the outputs recomputed (heavy items inform, whichever they are), outputs of equal weights,
    and, of a trained model, untrained attention. Writes a run directory
    with its tables as CSV and Parquet and its summary as JSON. A finished measurement is not
    repeated.
    """
    from fastattnerase import mi
    from fastattnerase.models.untrained import has_parameters, with_untrained_attention
    from fastattnerase.sources import ModelSource

    stages = Stages(OPENING | COSTS)
    with stages:
        stages(LOADING, 0, 1)
        choose_backend(config.backend)
    source, own, folder = open_source(given, device, "measure", out_folder, stages)
    with stages:
        untrained = None
        of_model = isinstance(source, ModelSource) and has_parameters(source.model)
        if isinstance(source, ModelSource) and of_model and config.permutations:
            model = with_untrained_attention(source.model)
            untrained = ModelSource(model, source.dataset, source.classes, {})
        result = mi.run(
            source,
            config,
            folder,
            name=name or own,
            untrained=untrained,
            report=stages,
        )
    files = mi.export(result)
    _show(result)
    for file in files:
        out.print(str(file), soft_wrap=True)
    out.print(conclusion(result.measurement), soft_wrap=True)
    option = "--model" if given.tensors is None else "--tensors"
    # Information is one question; whether decisions follow attention is the other.
    asked = given.model or given.tensors
    assert asked is not None  # one of both is given
    print_next(f"erase {option}", asked)


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
    out.print(f"{result.run.name}: {summary.used:,} of {instances}, {sizes}", soft_wrap=True)
    reasons = {
        f"of fewer than {counted(summary.ranks, 'item')}": summary.too_short,
        "without attention": summary.without_attention,
    }  # a note tells of those that are not finite
    if left_out := ", ".join(f"{count:,} {why}" for why, count in reasons.items() if count):
        out.print(f"Left out: {left_out}", soft_wrap=True)
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
    if found.repeats is not None:
        out.print(_repeats(found))


def conclusion(found: Measurement) -> str:
    """Say in a sentence what weighted tau tells, beside its nulls."""
    tau = found.correlation("weighted_product")
    if tau.value is None:
        return f"Whether information follows attention cannot be said: {tau.reason}."
    [row] = found.correlations.query(
        "estimator == 'plug_in' and statistic == 'weighted_product'"
    ).to_dict("records")
    low, high = row["control_low"], row["control_high"]
    if not low <= high:
        return "Whether information follows attention by chance was not compared."
    if low <= tau.value <= high:
        return "Information follows attention no more than chance, shuffled outputs, lets it."
    if tau.value < low:
        return "States of more attention tell less of the output than shuffled outputs let them."
    said = "States of more attention tell more of the output than shuffled outputs let them"
    permuted = _drawn(found, "permuted")
    if not permuted:
        return f"{said}."
    if tau.value <= max(permuted):
        return f"{said}; permuted weights do as much: it is weight, not which item has it."
    return f"{said}, and than permuted weights."


def _drawn(found: Measurement, name: str) -> list[float]:
    """Give weighted tau of what was measured again under a name; empty where it was not."""
    if found.repeats is None:
        return []
    rows = found.repeats[found.repeats["measurement"] == name]
    values = rows.loc[rows["statistic"] == "weighted_product", "value"].dropna()
    return [float(value) for value in values]


def _repeats(found: Measurement) -> Table:
    """Lay out tau under other seeds of k-means and the nulls, beside the model's own."""
    assert found.repeats is not None
    taus = {"weighted_product": "weighted tau", "kendall": "plain tau"}
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("again: mean (range)")
    for title in taus.values():
        table.add_column(title, justify="right")
    for name, title in _REPEATS.items():
        rows = found.repeats[found.repeats["measurement"] == name]
        draws = rows["draw"].nunique()
        if not draws or (name == "kmeans" and draws == 1):
            continue
        cells = []
        for statistic in taus:
            values = rows.loc[rows["statistic"] == statistic, "value"].dropna()
            if values.empty:
                cells.append("undefined")
            elif draws == 1:
                cells.append(f"{values.iloc[0]:+.3f}")
            else:
                cells.append(f"{values.mean():+.3f} ({_interval(*_ends(values), '+.2f')})")
        table.add_row(title.format(draws), *cells)
    return table


def _ends(values: Any) -> tuple[float, float]:
    """Give the smallest and the largest of some numbers."""
    return float(values.min()), float(values.max())


def _interval(low: float, high: float, form: str) -> str:
    """Write an interval; nothing where it is undefined."""
    return f"{low:{form}} to {high:{form}}" if low <= high else ""
