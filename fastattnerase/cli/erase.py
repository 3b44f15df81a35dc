"""`fastattnerase erase`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from fastattnerase.cli.console import out, progress
from fastattnerase.cli.inputs import (
    Device,
    Input,
    Name,
    Out,
    choose_backend,
    choose_device,
    find_rankings,
    open_source,
    print_next,
)
from fastattnerase.cli.options import Offer, command
from fastattnerase.studies.serrano_smith.config import Config

if TYPE_CHECKING:
    from fastattnerase.sources import Source
    from fastattnerase.studies.serrano_smith.result import Result


@command("fastattnerase erase --model runs/flanrnn --out runs/flanrnn/erase")
def erase(
    given: Input,
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

    Serrano and Smith's two tests with the exact smallest set. The same command goes on after an
    interruption.
    """
    choose_backend(config.backend)
    find_rankings(config.rankings)
    source, own, folder = open_source(given, choose_device(device), "erase")
    result = erase_and_print(source, config, out_folder or folder, name or own)
    print_next("report", result.folder)


def erase_and_print(source: Source, config: Config, folder: Path, name: str) -> Result:
    """Run the experiment with a progress bar, and print what it found."""
    from fastattnerase.studies.serrano_smith import experiment

    with progress() as bars:
        task = bars.add_task("erasing", total=len(source))

        def show(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        result = experiment.run(source, config, folder, name=name, on_progress=show)
    _summary(result)
    return result


def _summary(result: Result) -> None:
    from fastattnerase.studies.serrano_smith.figures import NAMES
    from fastattnerase.studies.serrano_smith.sentences import (
        notices,
        percent,
        premises,
        times,
        typical_gap,
        verdict,
    )

    failed = premises(result)
    for text in [*failed[:1], *(f"Note: {notice}" for notice in notices(result))]:
        out.print(text, soft_wrap=True)
    table = Table(title=result.run.name, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for title in ("ranking", "flip", "median erased", "over smallest set"):
        table.add_column(title, justify="left" if title == "ranking" else "right")
    for ranking, record in result.multi.items():
        table.add_row(
            NAMES.get(ranking, ranking),
            percent(record.share_flipped.value, 1),
            percent(record.fraction.median.value, 1),
            times(typical_gap(result, ranking)),
        )
    out.print(table)
    if not failed:
        out.print(verdict(result), soft_wrap=True)
