"""Kill `fastattnerase reproduce wiegreffe-pinter` at random moments, restart, compare the numbers.

    python python_tests/studies/wiegreffe_pinter/kill_wiegreffe_pinter.py --kills 10

Prints a line for each kill and ends with 1 where a number differs from an uninterrupted run's.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))

from runs.kills import kill_at_random, run, units_of
from studies.wen.wen_study import treebank


def command(root: Path, out: Path, jobs: int) -> list[str]:
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
    unfinished = [key for key, seconds in units_of(out).items() if seconds is None]
    assert not unfinished, unfinished
    return found


def kill_and_compare(
    folder: Path, kills: int, jobs: int = 2, seed: int = 0
) -> tuple[int, list[str]]:
    """Run once whole and once with kills; give how much was compared, and what differs."""
    root = treebank(folder / "root")
    whole, killed = folder / "whole", folder / "killed"
    run(command(root, whole, jobs))
    taken = [seconds or 0.0 for seconds in units_of(whole).values()]
    # The first cell of a process imports what all need; the others take much the same.
    durations = [statistics.median(taken)] * len(taken)
    arguments = command(root, killed, jobs)
    hits = kill_at_random(arguments, killed, durations, kills, random.Random(seed), jobs)
    for number, hit in enumerate(hits, start=1):
        print(f"kill {number}: {hit}", flush=True)  # noqa: T201
    run(arguments)
    expected, found = numbers(whole), numbers(killed)
    return len(expected), sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        compared, differences = kill_and_compare(
            Path(temporary), arguments.kills, arguments.jobs, arguments.seed
        )
    print(f"{compared} results compared, differences: {', '.join(differences) or 'none'}")  # noqa: T201
    sys.exit(bool(differences))
