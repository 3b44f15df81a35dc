"""Kill `fastattnerase reproduce jain-wallace` at random moments, restart, compare the numbers.

    python python_tests/studies/jain_wallace/kill_jain_wallace.py --kills 10

Prints a line for each kill and ends with 1 where a number differs from an uninterrupted run's.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runs.kills import kill_at_random, run, units_of
from studies.wen.wen_study import treebank


def command(root: Path, out: Path, jobs: int) -> list[str]:
    return [
        *(sys.executable, "-m", "fastattnerase", "reproduce", "jain-wallace"),
        *("--data-root", str(root), "--datasets", "sst", "--encoders", "bilstm,mlp"),
        *("--embedding-size", "8", "--hidden-size", "4", "--epochs", "2"),
        *("--permutations", "7", "--adversary-steps", "12", "--out", str(out)),
        *("--jobs", str(jobs)),
    ]


def numbers(out: Path) -> dict[str, bytes]:
    """All results: what tests found, the adversaries, the tables of the report."""
    patterns = ("*/sst/*/instances.csv", "*/sst/*/*.safetensors", "report/tables/*")
    unfinished = [key for key, seconds in units_of(out).items() if seconds is None]
    assert not unfinished, unfinished
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for pattern in patterns
        for path in out.glob(pattern)
    }


def kill_and_compare(
    folder: Path, kills: int, jobs: int = 2, seed: int = 0
) -> tuple[int, list[str]]:
    """Run once whole and once with kills; give how much was compared, and what differs."""
    root = treebank(folder / "root")
    whole, killed = folder / "whole", folder / "killed"
    run(command(root, whole, jobs))
    taken = [seconds or 0.0 for seconds in units_of(whole).values()]
    # The first unit of a process imports what all need.
    durations = [max(statistics.median(taken), 0.5)] * len(taken)
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
