"""Kill `fastattnerase reproduce serrano-smith` at random moments, restart, compare the numbers.

    python python_tests/studies/serrano_smith/kill_serrano_smith.py --kills 10

Prints a line for each kill and ends with 1 where a number differs from an uninterrupted run's.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runs.kills import compare_killed, main
from studies.serrano_smith.small_study import write_small_study


def command(study: Path, jobs: int, until: str, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "fastattnerase", "reproduce", "serrano-smith"),
        *("--data-root", str(study.parent), "--study", str(study)),
        *("--out", str(out), "--jobs", str(jobs), "--device", "cpu", "--until", until),
    ]


def numbers(out: Path) -> dict[str, str]:
    """All results that are numbers: aggregates, and every table of the report."""
    found = {}
    for path in [*out.glob("erase/*/*/result.json"), *out.glob("report/*/*.csv")]:
        found[path.relative_to(out).as_posix()] = path.read_text(encoding="utf-8")
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    for unit in manifest["units"]:
        found[unit["unit"]] = json.dumps(unit["numbers"])
    return found


def kill_and_compare(
    folder: Path, kills: int, jobs: int = 2, seed: int = 0, rows: int = 80, until: str = "report"
) -> tuple[int, list[str]]:
    """Run once whole and once with kills; give how much was compared, and what differs."""
    made = partial(command, write_small_study(folder, rows), jobs, until)
    return compare_killed(made, numbers, folder, kills, jobs, seed, alike=False)


if __name__ == "__main__":
    main(__doc__, kill_and_compare, rows=80)
