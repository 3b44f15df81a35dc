"""Peak memory of the erase stage of a study, by the number of test instances.

    python benchmarks/erase_memory.py                         # 1,000, 10,000 and 50,000 instances
    python benchmarks/erase_memory.py --smoke                 # seconds; what the tests run
    python benchmarks/erase_memory.py --json benchmarks/results/erase-memory.json

For each size a corpus of made-up documents is written, whose class a share of its words gives away;
`reproduce serrano-smith` prepares it and trains a FLANrnn on the same 500 documents; then the erase
stage runs in a process of its own, whose peak resident memory (`ru_maxrss`) the system tells. The
same command once more, with nothing left to do, shows what Python, torch and pandas take by
themselves. The smallest size does not fill one part of the result tables; where the largest peaks
more than a quarter above the one before it, the script ends with 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import machine, markdown, quantity, versions

SIZES, SMOKE_SIZES = (1_000, 10_000, 50_000), (50, 100, 200)
TRAIN, DEV = 500, 100
WORDS = 2_000  # of the vocabulary; the first tenth tells class 0, the second class 1
LENGTHS = (10, 30)  # words of a document, evenly
MOST_GROWTH = 1.25
BETWEEN = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
STUDY = """
name = "memory"
[model]
embedding_size = 50
[training]
epochs = 1
learning_rate = 0.01
[erase]
resamples = 20
[[corpora]]
name = "Made up"
models = ["FLANrnn"]
[corpora.data]
path = "corpus.csv"
split_column = "split"
min_count = 1
"""


def write_corpus(folder: Path, test: int) -> None:
    """Write `corpus.csv` and `study.toml`; all sizes train on the same documents."""
    chance = random.Random(0)
    with open(folder / "corpus.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "split"])
        for split, count in (("train", TRAIN), ("dev", DEV), ("test", test)):
            for number in range(count):
                label = number % 2
                words = [chance.randrange(WORDS) for _ in range(chance.randint(*LENGTHS))]
                tell = [chance.randrange(WORDS // 10) + label * WORDS // 10 for _ in range(3)]
                words = [*words, *tell]
                chance.shuffle(words)
                writer.writerow([" ".join(f"w{word}" for word in words), label, split])
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")


def reproduce(folder: Path, until: str) -> dict[str, Any]:
    """Run stages in a process of their own; give its peak memory and time."""
    command = [
        *(sys.executable, "-m", "fastattnerase", "reproduce", "serrano-smith", "--device", "cpu"),
        *("--data-root", str(folder), "--study", str(folder / "study.toml")),
        *("--out", str(folder / "out"), "--until", until),
    ]
    begin = time.perf_counter()
    # A process starts with the peak of the one that it was forked from: a small one stands between.
    between = [sys.executable, "-c", BETWEEN, *command]
    process = subprocess.run(between, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} failed: {process.stderr}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes, or kibibytes
    peak = int(process.stdout.splitlines()[-1]) * unit
    return {"peak_bytes": peak, "seconds": time.perf_counter() - begin}


def measured(test: int) -> dict[str, Any]:
    """Measure one size."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_corpus(folder, test)
        reproduce(folder, "train")
        erased = reproduce(folder, "erase")
        idle = reproduce(folder, "erase")
        manifest = json.loads((folder / "out" / "manifest.json").read_text(encoding="utf-8"))
        [numbers] = [unit["numbers"] for unit in manifest["units"] if unit["stage"] == "erase"]
        tables = sum(file.stat().st_size for file in (folder / "out").glob("erase/*/*/*.parquet"))
    if numbers["instances"] != test:
        raise RuntimeError(f"{numbers['instances']} instances were erased, not {test}")
    return {
        "instances": test,
        "peak_bytes": erased["peak_bytes"],
        "idle_bytes": idle["peak_bytes"],
        "tables_bytes": tables,
        "seconds": erased["seconds"],
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    rows = [measured(size) for size in (SMOKE_SIZES if arguments.smoke else SIZES)]
    print(
        markdown(
            ["test instances", "peak of the erase stage", "with nothing to do", "result tables"],
            [
                [
                    f"{row['instances']:,}",
                    quantity(row["peak_bytes"], "B"),
                    quantity(row["idle_bytes"], "B"),
                    quantity(row["tables_bytes"], "B"),
                ]
                for row in rows
            ],
        )
    )
    if arguments.json is not None:
        record = {
            "machine": machine(),
            "versions": versions(),
            "smoke": arguments.smoke,
            "memory": rows,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    growth = rows[-1]["peak_bytes"] / rows[-2:][0]["peak_bytes"]
    if growth > MOST_GROWTH:
        print(f"the peak grows by a factor of {growth:.2f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
