"""How long the command line lets one wait, and how long in silence.

    python benchmarks/waiting.py                       # 30,000 instances; minutes
    python benchmarks/waiting.py --smoke               # seconds; what the tests run
    python benchmarks/waiting.py --json benchmarks/results/waiting.json --name after
    python benchmarks/waiting.py --python OTHER/.venv/bin/python --name before   # another checkout

Documents are made up, as for `erase_memory.py`. A FLANnoenc is trained on 500 of them and `erase`d
on 30,000 in a file of their own: once from nothing to its end, once stopped when 26,500 of 30,000
are reported done, and gone on with. `report` is timed on three and on four runs of 200 instances.
`--help` is the median of five calls.

Each command runs in a process of its own, which notes every call that moves, adds or names a
progress bar. `silence` is the longest time between two of these, from the command's first moment to
its end. torch computes on one thread, resamples and tables on all cores. The package's bytecode is
written first, as pip writes it; where Python may not keep it, each command would compile all files
anew. Wall time is that of a shared machine, where processor time says more. With `--json` the
numbers are kept under `--name` beside those that are there.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import machine, markdown, versions

WORDS = 2_000  # of the vocabulary; the first tenth tells class 0, the second class 1
LENGTHS = (10, 30)  # words of a document, evenly
TRAIN, DEV = 500, 100
INSTANCES, SMOKE_INSTANCES = 30_000, 150
FEW, SMOKE_FEW = 200, 20  # instances of a run that is reported on
STOPPED_AT = 26_500 / 30_000  # of the instances
HELPS = 5

# What `pip install` does with the files of a package.
COMPILE = """
import compileall, fastattnerase
compileall.compile_dir(fastattnerase.__path__[0], quiet=1)
"""

# Notes when bars move, and stops the command where it is told to. The command's own output goes to
# standard error, so that the numbers stand alone.
PROBE = """
import json, sys, time
begin = time.perf_counter()
stop, arguments = float(sys.argv[1]), sys.argv[2:]
from rich.progress import Progress
moments = [begin]
def noted(name):
    method = getattr(Progress, name)
    def note(self, *given, **options):
        made = method(self, *given, **options)
        moments.append(time.perf_counter())
        for task in self.tasks:
            if "erasing" in task.description and task.total and task.completed >= stop * task.total:
                raise KeyboardInterrupt
        return made
    setattr(Progress, name, note)
for name in ("add_task", "update", "reset"):
    noted(name)
sys.argv = ["fastattnerase", *arguments]
sys.stdout, numbers = sys.stderr, sys.stdout
from fastattnerase.cli import main
try:
    main()
except SystemExit as ended:
    code = ended.code or 0
else:
    code = 0
now = time.perf_counter()
moments.append(now)
gaps = [(b - a, a - begin) for a, b in zip(moments, moments[1:])]
silence, since = max(gaps)
print(json.dumps({
    "seconds": now - begin, "processor_seconds": time.process_time(), "silence": silence,
    "silence_from": since, "reports": len(moments) - 2, "code": code,
}), file=numbers)
"""


def write_documents(path: Path, count: int, seed: int) -> None:
    """Write a file of texts of two classes."""
    chance = random.Random(seed)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(count):
            label = number % 2
            words = [chance.randrange(WORDS) for _ in range(chance.randint(*LENGTHS))]
            words += [chance.randrange(WORDS // 10) + label * WORDS // 10 for _ in range(3)]
            chance.shuffle(words)
            writer.writerow([" ".join(f"w{word}" for word in words), ("bad", "good")[label]])


class Bench:
    """The commands of one installation, in one folder."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.cases: dict[str, dict[str, Any]] = {}

    def timed(self, *arguments: str, stop: float = 2.0, code: int = 0) -> dict[str, Any]:
        """Run a command of the package; it is stopped at a share of the instances."""
        process = subprocess.run(
            [self.python, "-c", PROBE, str(stop), *arguments],
            cwd=self.folder, capture_output=True, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if process.returncode or not process.stdout:
            raise RuntimeError(f"{' '.join(arguments)} failed: {process.stderr}")
        numbers: dict[str, Any] = json.loads(process.stdout)
        if numbers.pop("code") != code:
            raise RuntimeError(f"{' '.join(arguments)} ended otherwise: {process.stderr}")
        return numbers

    def help(self) -> dict[str, Any]:
        """Time `--help` as a user calls it."""
        times = []
        for _ in range(HELPS):
            begin = time.perf_counter()
            subprocess.run(
                [self.python, "-m", "fastattnerase", "--help"], capture_output=True, check=True
            )
            times.append(time.perf_counter() - begin)
        return {"seconds": statistics.median(times)}

    def run(self, instances: int, few: int) -> dict[str, dict[str, Any]]:
        """Measure everything; give the numbers of each case."""
        subprocess.run([self.python, "-c", COMPILE], check=True)
        for name, count, seed in (
            ("train", TRAIN, 0), ("dev", DEV, 1), ("many", instances, 2), ("few", few, 3),
        ):  # fmt: skip
            write_documents(self.folder / f"{name}.csv", count, seed)
        cases = {"--help": self.help()}
        files = (f"--{name}={name}.csv" for name in ("train", "dev"))
        self.timed(
            "train", *files, "--test=few.csv", "--encoder=noenc", "--epochs=4", "--out=model",
            "--text-column=text", "--label-column=label", "--device=cpu",
        )  # fmt: skip
        erase = ("erase", "--model=model", "--device=cpu")
        many = f"{instances:,} instances"
        cases[f"erase, {many}"] = self.timed(*erase, "--data=many.csv", "--out=whole")
        self.timed(*erase, "--data=many.csv", "--out=stopped", stop=STOPPED_AT, code=130)
        left = f"the last of {many} after an interruption"
        cases[f"erase, {left}"] = self.timed(*erase, "--data=many.csv", "--out=stopped")
        runs = [f"run{number}" for number in range(4)]
        for run in runs:
            self.timed(*erase, f"--out={run}", f"--name={run}")
        for count in (3, 4):
            cases[f"report, {count} runs of {few}"] = self.timed(
                "report", *runs[:count], f"--out=report{count}"
            )
        return cases


def table(measured: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Show every case, once for each name."""

    def shown(numbers: dict[str, Any], key: str) -> str:
        return f"{numbers[key]:.1f} s" if key in numbers else ""

    return markdown(
        ["command", "", "wall", "processor", "longest silence"],
        [
            [case, name, *(shown(cases[case], key) for key in
                           ("seconds", "processor_seconds", "silence"))]
            for case in next(iter(measured.values()))
            for name, cases in measured.items()
        ],
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--python", default=sys.executable, help="of the installation to measure")
    parser.add_argument("--name", default="now", help="what the numbers are called")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    sizes = (SMOKE_INSTANCES, SMOKE_FEW) if arguments.smoke else (INSTANCES, FEW)
    # A relative path would be looked for in the folder of the measurement.
    python = arguments.python if "/" not in arguments.python else str(
        Path(arguments.python).absolute()
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        cases = Bench(python, Path(folder)).run(*sizes)
    record: dict[str, Any] = {"measured": {}}
    if arguments.json is not None and arguments.json.exists():
        record = json.loads(arguments.json.read_text())
    record = {"machine": machine(), "versions": versions(), "smoke": arguments.smoke} | {
        "measured": record["measured"] | {arguments.name: cases}
    }
    print(table(record["measured"]))
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
        arguments.json.with_suffix(".md").write_text(table(record["measured"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
