"""Kill `fastattnerase reproduce wiegreffe-pinter` at random moments, restart, compare the numbers.

    python python_tests/studies/wiegreffe_pinter/kill_wiegreffe_pinter.py --kills 10

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


def command(root: Path, jobs: int, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "fastattnerase", "reproduce", "wiegreffe-pinter"),
        *("--data-root", str(root), "--datasets", "sst", "--seeds", "1,2", "--curve", "0,0.01,0.1"),
        *("--embedding-size", "8", "--hidden-size", "4", "--epochs", "3", "--curve-epochs", "3"),
        *("--adversary-epochs", "4", "--out", str(out), "--jobs", str(jobs)),
    ]


def numbers(out: Path) -> dict[str, str]:
    """All results but the time they took: of the cells, their documents, and the report."""
    found = {}
    for path in out.glob("cells/*/*/*/done.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        found[path.relative_to(out).as_posix()] = json.dumps(content["numbers"])
    for path in out.glob("cells/*/*/*/*.parquet"):
        found[path.relative_to(out).as_posix()] = pd.read_parquet(path).to_csv()
    for path in out.glob("report/tables/*.csv"):
        found[path.relative_to(out).as_posix()] = path.read_text(encoding="utf-8")
    return found


def kill_and_compare(
    folder: Path, kills: int, jobs: int = 2, seed: int = 0
) -> tuple[int, list[str]]:
    """Run once whole and once with kills; give how much was compared, and what differs."""
    root = treebank(folder / "root")
    return compare_killed(partial(command, root, jobs), numbers, folder, kills, jobs, seed)


if __name__ == "__main__":
    main(__doc__, kill_and_compare)
