"""`fastattnerase debate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fastattnerase.cli.console import UsageError, out
from fastattnerase.cli.documents import advising
from fastattnerase.cli.inputs import Device, Jobs, Name, choose_device
from fastattnerase.cli.options import Offer, command
from fastattnerase.cli.train import OF_DATA
from fastattnerase.cli.watcher import Watcher
from fastattnerase.data.config import DataConfig
from fastattnerase.data.naming import data_name
from fastattnerase.debate.options import Options


@command(
    "fastattnerase debate --data reviews.csv --text-column review --label-column good "
    "--out runs/debate --jobs 2"
)
def debate(
    data: Annotated[
        DataConfig,
        replace(OF_DATA, without=("query_column", "answers_column")),  # one text has no query
    ],
    options: Annotated[
        Options,
        Offer(
            only=(
                *("encoder", "attention", "embedding_size", "hidden_size", "epochs"),
                *("base_seed", "seeds", "strengths", "adversary_epochs"),
                *("permutations", "loo_instances", "adversary_instances"),
            ),
            names={"base_seed": "seed", "seeds": "other_seeds"},
        ),
    ],
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder to write; an interrupted run goes on there.")
    ] = Path("runs/debate"),
    jobs: Jobs = 1,
    device: Device = "cpu",
    name: Name = None,
) -> None:
    """Ask both sides of the debate on attention of your two-class text.

    Trains a model, its twin of uniform attention, other seeds, MLPs that borrow its weights and
    adversaries that imitate it with other attention; erases; correlates, permutes and seeks
    adversarial attention. One page says what speaks against attention and what for it, each by a
    stated rule with its numbers. Without --data it asks of the sentences that ship with the
    package. The same command goes on after an interruption.
    """
    from fastattnerase.data import demo_config
    from fastattnerase.debate.report import SIDES, build
    from fastattnerase.debate.units import Debate
    from fastattnerase.runs import schedule

    given = data.path or data.train
    if data.vectors is not None and not Path(data.vectors).is_file():
        raise UsageError(f"--vectors: given {data.vectors}, which is no file, needed a file")
    own = "Sentences that ship with the package"
    title = name or (own if given is None else data_name(Path(given).absolute()))
    workspace = Debate(
        replace(options, vectors=data.vectors),
        demo_config() if given is None else replace(data, vectors=None),
        title,
        out_folder,
        choose_device(device),
    )
    with (
        advising("with --classes, rows that have none of the labels it names are left out"),
        Watcher(workspace.describe) as watcher,
    ):
        schedule.run(workspace, jobs, watcher)
    page, points = build(workspace, out_folder / "report")
    for side, heading in SIDES:
        for point in points:
            if point.side == side:
                out.print(f"{heading}: {point.question} {point.here}", soft_wrap=True)
    out.print(str(page.resolve()), style="bold", soft_wrap=True)
