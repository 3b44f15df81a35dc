"""Kill `fastattnerase reproduce wen` at random moments, restart, compare the numbers.

    python python_tests/studies/wen/kill_wen.py --kills 10

Prints a line for each kill and ends with 1 where a number differs from an uninterrupted run's.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))

from runs.kills import compare_killed, main
from studies.wen.wen_study import treebank


def command(root: Path, jobs: int, studies: str, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "fastattnerase", "reproduce", "wen", "--data-root", str(root)),
        *("--datasets", "sst", "--small-datasets", "sst", "--seeds", "1", "--studies", studies),
        *("--encoders", "bilstm", "--attentions", "additive", "--embedding-size", "8"),
        *("--hidden-size", "4", "--epochs", "2", "--adversary-epochs", "3", "--shuffles", "20"),
        *("--clusters", "4", "--ranks", "4", "--out", str(out), "--jobs", str(jobs)),
    ]


def numbers(out: Path) -> dict[str, str]:
    """All results but the time they took: of the cells, their measurements, and the report."""
    found = {}
    for path in out.glob("cells/*/*/result.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        del result["seconds"]
        found[path.relative_to(out).as_posix()] = json.dumps(result)
    for path in out.glob("cells/*/*/mi-*/*.parquet"):
        found[path.relative_to(out).as_posix()] = pd.read_parquet(path).to_csv()
    for path in out.glob("report/tables/*.csv"):
        table = pd.read_csv(path).drop(columns="seconds", errors="ignore")
        found[path.relative_to(out).as_posix()] = table.to_csv()
    return found


def kill_and_compare(
    folder: Path,
    kills: int,
    jobs: int = 2,
    seed: int = 0,
    studies: str = "grid,gumbel,fix,adversary",
) -> tuple[int, list[str]]:
    """Run once whole and once with kills; give how much was compared, and what differs."""
    root = treebank(folder / "root")
    return compare_killed(partial(command, root, jobs, studies), numbers, folder, kills, jobs, seed)


if __name__ == "__main__":
    main(__doc__, kill_and_compare)
