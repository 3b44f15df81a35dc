"""`fastattnerase measure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fastattnerase.cli.console import counted, number_or_name, progress
from fastattnerase.cli.console import out as _console
from fastattnerase.cli.inputs import (
    Backend,
    Device,
    Out,
    choose_backend,
    choose_device,
    model_source,
    require_one_of_both,
    stem,
    tensor_source,
)

if TYPE_CHECKING:
    from fastattnerase.mi import Result
    from fastattnerase.sources import Source

_STATISTICS = {
    "kendall": "plain tau",
    "weighted_product": "weighted tau, products",
    "weighted_sum": "weighted tau, sums",
}


def measure(
    model: Annotated[
        Path | None, typer.Option(help="A folder that `train` wrote.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="All rows of this file; default: the model's own test split."),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the texts; default: as in training.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the labels; default: as in training.")
    ] = None,
    unlabelled: Annotated[bool, typer.Option(help="--data has no labels.")] = False,
    tensors: Annotated[
        Path | None,
        typer.Option(help="Instead of a model, a safetensors file as `erase` takes it."),
    ] = None,
    ranks: Annotated[
        str,
        typer.Option(
            help="How many attention ranks are measured: a number, or by weights (--weight-share "
            "of the instances have a k-th weight above --weight-threshold), by length (the "
            "--length-percentile of the lengths), or both, the smaller."
        ),
    ] = "both",
    weight_rule: Annotated[
        str,
        typer.Option(help="The share is of instances (kth) or of all weights chosen (selected)."),
    ] = "kth",
    weight_share: Annotated[float, typer.Option(help="See --ranks.")] = 0.8,
    weight_threshold: Annotated[float, typer.Option(help="See --ranks.")] = 1e-5,
    length_percentile: Annotated[float, typer.Option(help="See --ranks.")] = 10.0,
    max_ranks: Annotated[int | None, typer.Option(help="No rank beyond it.")] = None,
    instances: Annotated[
        str,
        typer.Option(help="Those that have all_ranks, or for each_rank all that have it."),
    ] = "all_ranks",
    exclude: Annotated[
        str, typer.Option(help="Items not ranked: masked, zero_weight or none.")
    ] = "masked",
    clusters: Annotated[
        str,
        typer.Option(
            help="Of states: a number, or the largest or smallest of --candidates that leaves two "
            "samples to each."
        ),
    ] = "largest",
    candidates: Annotated[str, typer.Option(help="Numbers, commas between.")] = "50,75,100,150,200",
    codebook: Annotated[
        str, typer.Option(help="rank: one for each; shared: one for all.")
    ] = "rank",
    codebook_samples: Annotated[int, typer.Option(help="Of a shared codebook's fit.")] = 20_000,
    algorithm: Annotated[str, typer.Option(help="Of k-means: full or mini_batch.")] = "full",
    restarts: Annotated[int, typer.Option(help="Of k-means, at most 1,000.")] = 1,
    output: Annotated[
        str,
        typer.Option(
            help="The model's outputs as clusters, as classes, or auto: clusters of two classes, "
            "else classes."
        ),
    ] = "auto",
    output_space: Annotated[
        str, typer.Option(help="What is clustered of outputs: logit or probability.")
    ] = "logit",
    output_clusters: Annotated[int, typer.Option(help="Of outputs.")] = 5,
    shuffles: Annotated[
        int, typer.Option(help="Of the control: 0 for none, or 20 and more.")
    ] = 100,
    confidence: Annotated[float, typer.Option(help="Of the control's intervals.")] = 0.95,
    constant_attention: Annotated[
        str,
        typer.Option(help="Where all weights are equal: error, undefined or by_position."),
    ] = "error",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = 0,
    backend: Backend = "auto",
    device: Device = "auto",
    name: Annotated[
        str | None, typer.Option(help="For reports; default: the model's.", show_default=False)
    ] = None,
    out: Out = None,
) -> None:
    """Measure the mutual information between ranked hidden states and outputs, nothing else.

    Wen, Subbalakshmi and Yang's question: does information follow attention? Writes a run directory
    with its tables as CSV and Parquet and its summary as JSON. A finished measurement is not
    repeated.
    """
    from fastattnerase import mi
    from fastattnerase.runs.rundir import RunError

    require_one_of_both(model, data, tensors)
    numbers = [part.strip() for part in candidates.split(",")]
    if not all(part.isdecimal() for part in numbers):
        raise RunError(f"--candidates is {candidates!r}; numbers with commas between are needed")
    try:
        config = mi.Config(
            seed=seed,
            ranks=number_or_name(ranks),  # type: ignore[arg-type]
            weight_rule=weight_rule,  # type: ignore[arg-type]
            weight_share=weight_share,
            weight_threshold=weight_threshold,
            length_percentile=length_percentile,
            max_ranks=max_ranks,
            instances=instances,  # type: ignore[arg-type]
            exclude=exclude,  # type: ignore[arg-type]
            clusters=number_or_name(clusters),  # type: ignore[arg-type]
            candidates=tuple(map(int, numbers)),
            codebook=codebook,  # type: ignore[arg-type]
            codebook_samples=codebook_samples,
            algorithm=algorithm,  # type: ignore[arg-type]
            restarts=restarts,
            output=output,  # type: ignore[arg-type]
            output_space=output_space,  # type: ignore[arg-type]
            output_clusters=output_clusters,
            shuffles=shuffles,
            confidence=confidence,
            constant_attention=constant_attention,  # type: ignore[arg-type]
            backend=choose_backend(backend),
        )
    except ValueError as error:
        raise RunError(str(error)) from error
    device = choose_device(device)
    source: Source
    if model is not None:
        source, own = model_source(model, data, text_column, label_column, unlabelled, device)
        default = model / ("measure" if data is None else f"measure-{stem(data)}")
    else:
        source, own = tensor_source(tensors, device), stem(tensors)
        default = Path("runs") / f"{own}-measure"
    with progress() as bars:
        task = bars.add_task("reading", total=len(source))

        def show(done: int, total: int) -> None:
            what = "reading" if done < total else "clustering"
            bars.update(task, completed=done, total=total, description=what)

        result = mi.run(source, config, out or default, name=name or own, on_progress=show)
    files = mi.export(result)
    _show(result)
    for file in files:
        _console.print(str(file), soft_wrap=True)


def _show(result: Result) -> None:
    """Print what a measurement found."""
    found = result.measurement
    summary, first = found.summary, found.ranks.iloc[0]
    sizes = ", ".join(
        counted(summary[key], thing)
        for key, thing in (
            ("ranks", "rank"),
            ("clusters", "cluster"),
            ("output_labels", "output label"),
        )
    )
    used, all_ = summary["used"], summary["instances"]
    _console.print(f"{result.run['name']}: {used:,} of {counted(all_, 'instance')}, {sizes}")
    control = _interval(first["control_low"], first["control_high"], ".3f")
    _console.print(
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
    _console.print(table)
    for notice in summary["notices"]:
        _console.print(f"Note: {notice}", soft_wrap=True)


def _interval(low: float, high: float, form: str) -> str:
    """Write an interval; nothing where it is undefined."""
    return f"{low:{form}} to {high:{form}}" if low <= high else ""
