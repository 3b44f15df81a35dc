"""Kill `fastattnerase reproduce jain-wallace` at random moments, restart, compare the numbers.

    python python_tests/studies/jain_wallace/kill_jain_wallace.py --kills 10

Prints a line for each kill and ends with 1 where a number differs from an uninterrupted run's.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runs.kills import compare_killed, main
from studies.wen.wen_study import treebank


def command(root: Path, jobs: int, out: Path) -> list[str]:
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
    return compare_killed(
        partial(command, root, jobs), numbers, folder, kills, jobs, seed, least=0.5
    )


if __name__ == "__main__":
    main(__doc__, kill_and_compare)
