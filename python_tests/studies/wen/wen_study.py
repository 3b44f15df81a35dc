"""A tiny study of information and attention, on sentences made up here."""

from __future__ import annotations

import random
from pathlib import Path

from fastattnerase.runs import schedule
from fastattnerase.runs.workspace import Record
from fastattnerase.studies.wen.options import Options
from fastattnerase.studies.wen.units import Wen

OPTIONS = Options(
    datasets=("sst",),
    seeds=(0,),
    encoders=("bilstm",),
    attentions=("additive",),
    small_datasets=("sst",),
    embedding_size=8,
    hidden_size=4,
    epochs=2,
    adversary_epochs=3,
    shuffles=20,
    clusters=4,
    ranks=5,
)


class Quiet:
    """Watches a schedule in silence; remembers what was finished."""

    def __init__(self) -> None:
        self.finished_units: list[str] = []
        self.before = 0

    def plan(self, costs: dict[str, float], done: int) -> None:
        self.before = done

    def at(self, key: str, share: float) -> None:
        assert 0 <= share <= 1

    def finished(self, key: str, record: Record) -> None:
        self.finished_units.append(key)


def treebank(root: Path, *, seed: int = 0) -> Path:
    """Write sentences whose class a word gives away, as SST's trees."""
    draw = random.Random(seed)
    folder = root / "sst"
    folder.mkdir(parents=True)
    for split, count in (("train", 80), ("dev", 30), ("test", 60)):
        lines = []
        for index in range(count):
            words = [draw.choice("abcdefghij") for _ in range(draw.randint(6, 9))]
            words[draw.randrange(len(words))] = "good" if index % 2 else "bad"
            leaves = " ".join(f"(2 {word})" for word in words)
            lines.append(f"({3 if index % 2 else 1} {leaves})\n")
        longest = " ".join("(2 k)" for _ in range(12))  # left out: the split's own maximum
        (folder / f"{split}.txt").write_text("".join(lines) + f"(3 {longest})\n")
    return root


def run(workspace: Wen) -> Quiet:
    """Run a study in this process."""
    watcher = Quiet()
    schedule.run(workspace, 1, watcher)
    return watcher
