"""Kills sweeps at random moments, ten times each engine; the tables must be those of one that ran.

    python python_tests/sweeps/kill_sweeps.py --kills 10 --engines local,ray,ranks

Killed are the driver of `local` with two processes, a worker of `ray`, and one of two ranks of
torchrun; where that ends the call it is made again, of ranks with three. It takes minutes.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sweeps.drawn import Drawn, dump_of
from sweeps.whole import differences, kill, named, records, run, sweep, torchrun


def killed(engine: str, dump: Path, out: Path, chance: random.Random) -> str:
    """Kill a sweep at a random moment and go on; say what was hit."""
    total = len(list(dump.glob("*.safetensors")))
    done = chance.randrange(total)
    command = sweep(dump, out)
    if engine == "local":
        command += ["--jobs", "2"]
        code = kill(command, out, done)
    elif engine == "ray":
        command += ["--engine", "ray", "--jobs", "2"]
        code = kill(command, out, done, lambda process: named(process, "ray::Worker"))
    else:
        command += ["--engine", "ranks"]

        def rank(process: subprocess.Popen[bytes]) -> int | None:
            return named(process, "fastattnerase", "ranks")

        code = kill(torchrun(2, command), out, done, rank)
        command = torchrun(3, command)
    found = records(out)
    if code:
        run(command)
    return f"{engine}: {found} of {total} shards done, exit code {code}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--engines", default="local,ray,ranks")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, wrong = random.Random(given.seed), 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dump, whole = dump_of(Drawn(), folder / "dump"), folder / "whole"
        run(sweep(dump, whole))
        for engine in given.engines.split(","):
            for number in range(given.kills):
                out = folder / f"{engine}-{number}"
                told = killed(engine, dump, out, chance)
                other = differences(whole, out)
                wrong += bool(other)
                same = f"differs: {', '.join(other)}" if other else "the same bytes"
                print(f"{told}; {same}", flush=True)  # noqa: T201
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
