"""Kill `fastattnerase reproduce serrano-smith` at random moments, restart, compare the numbers.

    python python_tests/studies/serrano_smith/kill_serrano_smith.py --kills 10

Prints a line for each kill and ends with 1 where a number differs from an uninterrupted run's.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runs.kills import kill_at_random, run, units_of
from studies.serrano_smith.small_study import write_small_study


def command(study: Path, out: Path, jobs: int, until: str) -> list[str]:
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
        assert unit["done"], f"{unit['unit']} is not done"
        found[unit["unit"]] = json.dumps(unit["numbers"])
    return found


def kill_and_compare(
    folder: Path, kills: int, jobs: int = 2, seed: int = 0, rows: int = 80, until: str = "report"
) -> list[str]:
    """Run once whole and once with kills; give what differs."""
    study = write_small_study(folder, rows)
    whole, killed = folder / "whole", folder / "killed"
    run(command(study, whole, jobs, until))
    durations = [seconds or 0.0 for seconds in units_of(whole).values()]
    chance = random.Random(seed)
    arguments = command(study, killed, jobs, until)
    hits = kill_at_random(arguments, killed, durations, kills, chance, jobs)
    for number, hit in enumerate(hits, start=1):
        print(f"kill {number}: {hit}", flush=True)  # noqa: T201
    run(command(study, killed, jobs, until))
    expected, found = numbers(whole), numbers(killed)
    print(f"{len(expected)} results compared")  # noqa: T201
    return sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=80, help="of the corpus")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        differences = kill_and_compare(
            Path(temporary), arguments.kills, arguments.jobs, arguments.seed, arguments.rows
        )
    print(f"differences: {', '.join(differences) or 'none'}")  # noqa: T201
    sys.exit(bool(differences))
