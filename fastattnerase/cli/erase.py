"""`fastattnerase erase`."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from fastattnerase.cli.bags import BagInput, erase_bags
from fastattnerase.cli.console import Stages, UsageError, counted, out
from fastattnerase.cli.inputs import (
    LOADING,
    OPENING,
    Device,
    Input,
    Name,
    Out,
    choose_backend,
    find_rankings,
    open_source,
    print_next,
)
from fastattnerase.cli.options import Offer, command
from fastattnerase.studies.serrano_smith.config import COSTS, EXCLUSIONS, Config

if TYPE_CHECKING:
    from fastattnerase.sources import Source
    from fastattnerase.studies.serrano_smith.result import Result
else:  # imported where they are used; hints that are read at run time say Any
    Result = Source = Any


@command("fastattnerase erase --model runs/flanrnn --out runs/flanrnn/erase")
def erase(
    given: Input,
    bags: BagInput,
    config: Annotated[
        Config,
        Offer(
            only=(
                "random_orders",
                "random_item",
                "rankings",
                "items",
                "resamples",
                "seed",
                "backend",
            )
        ),
    ],
    device: Device = "auto",
    name: Name = None,
    out_folder: Out = None,
) -> None:
    """Erase items, most important first, until each decision changes; write a run directory.

    Serrano and Smith's two tests with the exact smallest set; of slides (--bags) patch flipping
    in both directions with heat maps; of a transformer words are erased from its last layer,
    special tokens never. The same command goes on after an interruption.
    """
    if bags.bags is not None:
        erase_bags(given, bags, config, device, name, out_folder)
        return
    if given.transformer is not None and config.items:
        raise UsageError(
            "--items: given with --transformer, needed without it: the table is of linear heads"
        )
    stages = Stages(OPENING | COSTS)
    with stages:
        stages(LOADING, 0, 1)
        choose_backend(config.backend)
        find_rankings(config.rankings)
    source, own, folder = open_source(given, device, "erase", out_folder, stages)
    result = erase_and_print(source, config, folder, name or own, stages)
    print_next("report", result.folder)


def erase_and_print(
    source: Source, config: Config, folder: Path, name: str, stages: Stages
) -> Result:
    """Run the experiment with progress bars, and print what it found."""
    from fastattnerase.studies.serrano_smith import experiment

    with stages:
        result = experiment.run(source, config, folder, name=name, report=stages)
    _summary(result)
    return result


def _summary(result: Result) -> None:
    from fastattnerase.studies.serrano_smith.looks import title
    from fastattnerase.studies.serrano_smith.residual import left
    from fastattnerase.studies.serrano_smith.sentences import (
        median_fraction,
        notices,
        number,
        percent,
        premises,
        skew,
        times,
        typical_gap,
        verdict,
    )

    counts = result.counts
    if left_out := {reason: count for reason, count in counts.excluded.items() if count}:
        told = "; ".join(f"{count:,} {EXCLUSIONS[reason]}" for reason, count in left_out.items())
        out.print(
            f"{counts.analysed:,} of {counted(counts.instances, 'instance')}; left out: {told}",
            soft_wrap=True,
        )
    failed = premises(result)
    for text in [*failed[:1], *(f"Note: {notice}" for notice in notices(result))]:
        out.print(text, soft_wrap=True)
    table = Table(title=result.run.name, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("ranking", "flip", "median erased", "of those that flip", "over set", "skill"):
        table.add_column(column, justify="left" if column == "ranking" else "right")
    for ranking, record in result.multi.items():
        table.add_row(
            title(ranking),
            percent(record.share_flipped.value, 1),
            percent(median_fraction(result, ranking), 1),
            percent(record.fraction.median.value, 1),
            times(typical_gap(result, ranking)),
            number(record.counted.skill.overall.value),
        )
    out.print(table)
    out.print(
        "Medians are over all decisions, one that never flips as beyond everything; beside them as "
        "in the paper, which leaves these out. Over set: items erased over those of the smallest "
        "set. Skill: 0 at random, 1 the smallest sets. "
        f"Attention’s divergence from uniform: {skew(result)}.",
        soft_wrap=True,
    )
    gaps = [typical_gap(result, ranking) for ranking in result.multi]
    if inf in gaps:
        out.print(
            "Never over the set: half or more of the instances that some, not all, of their items "
            "can flip never flip under the ranking.",
            soft_wrap=True,
        )
    medians = (median_fraction(result, ranking) for ranking in result.multi)
    if any(median == 1 for median in medians):
        out.print(
            "A median of 100\u00a0%: half flip only when everything is erased and the "
            f"{left(result)} decides.",
            soft_wrap=True,
        )
    if not failed:
        out.print(verdict(result), soft_wrap=True)
