"""A tiny study of attention as explanation, on sentences made up here."""

from __future__ import annotations

import random
from pathlib import Path

from studies.wen.wen_study import Quiet

from fastattnerase.runs import schedule
from fastattnerase.studies.jain_wallace.options import Options
from fastattnerase.studies.jain_wallace.units import JainWallace

OPTIONS = Options(
    datasets=("sst",),
    encoders=("bilstm", "mlp"),
    embedding_size=8,
    hidden_size=4,
    epochs=2,
    permutations=7,
    adversary_steps=12,
    adversary_instances=9,
    loo_instances=11,
)


def stories(root: Path) -> Path:
    """Write stories of bAbI's first task, in which somebody goes somewhere."""
    people, places = ("Mary", "John", "Daniel"), ("garden", "kitchen", "office", "hall")
    folder = root / "babi"
    folder.mkdir(parents=True)
    draw = random.Random(0)
    for split, count in (("train", 40), ("test", 12)):
        lines = []
        for _ in range(count):
            went = {}
            for number in (1, 2):
                who, where = draw.choice(people), draw.choice(places)
                went[who] = (where, number)
                lines.append(f"{number} {who} went to the {where}.")
            who, (where, number) = draw.choice(list(went.items()))
            lines.append(f"3 Where is {who}? \t{where}\t{number}")
        (folder / f"qa1_single-supporting-fact_{split}.txt").write_text("\n".join(lines) + "\n")
    return root


def run(workspace: JainWallace, jobs: int = 1) -> Quiet:
    """Run a study to its end."""
    watcher = Quiet()
    schedule.run(workspace, jobs, watcher)
    return watcher


def study(root: Path, out: Path, options: Options = OPTIONS) -> JainWallace:
    """Run a study of the data in a folder."""
    workspace = JainWallace(options, root, out)
    run(workspace)
    return workspace
