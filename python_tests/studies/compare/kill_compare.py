"""Kill `fastattnerase compare` at random moments, restart, compare the numbers.

    python python_tests/studies/compare/kill_compare.py --kills 10

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
from studies.compare.small_comparison import reviews, saved


def command(model: Path, jobs: int, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "fastattnerase", "compare", "--model", str(model)),
        *("--rationales", "why", "--grids", "eraser,ferret,every", "--device", "cpu"),
        *("--resamples", "50", "--jobs", str(jobs), "--out", str(out)),
    ]


def numbers(out: Path) -> dict[str, str]:
    """All results but the time they took: of the steps, and the report's tables."""
    found = {}
    for path in out.rglob("done.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        found[path.relative_to(out).as_posix()] = json.dumps(content["numbers"])
    for path in out.rglob("*.parquet"):
        found[path.relative_to(out).as_posix()] = pd.read_parquet(path).to_csv()
    for path in out.glob("report/tables/*.csv"):
        found[path.relative_to(out).as_posix()] = path.read_text(encoding="utf-8")
    return found


def kill_and_compare(
    folder: Path, kills: int, jobs: int = 2, seed: int = 0
) -> tuple[int, list[str]]:
    """Run once whole and once with kills; give how much was compared, and what differs."""
    model = saved(folder / "model", reviews(folder / "data"))
    return compare_killed(partial(command, model, jobs), numbers, folder, kills, jobs, seed)


if __name__ == "__main__":
    main(__doc__, kill_and_compare)
