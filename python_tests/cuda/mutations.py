"""Shows how tight the net of the emulated tests is by breaking the kernels, one line at a time.

    python python_tests/cuda/mutations.py [--only TEXT] [--table FILE]

Every barrier is removed in turn, and the edits of EDITS shift an index, drop a bound or a rule.
Each mutant is built in a copy of the sources and must make a test of test_paths.py fail. Prints a
table (kernels/README.md holds the last one) and fails where a mutant survives that EQUIVALENT does
not explain.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import emulator

ROOT = emulator.ROOT
BARRIER = re.compile(r"^\s*(team\.sync\(\)|sync\(\)|__syncthreads\(\)|__syncwarp\(\));\s*$")


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    before: str
    after: str
    name: str


# file, text on the line, what it becomes
EDITS = [
    ("sort.cuh", "keep_larger ? v[e] : other[e]", ("mine_larger == keep_larger", "!mine_larger")),
    ("sort.cuh", "threads - 1, (team.rank", ("threads - 1", "threads >> 1")),
    ("sort.cuh", "i < n) v[e] = (word", ("i < n)", "i <= n)")),
    ("sort.cuh", "const bool first = flip &&", ("flip &&", "false &&")),
    ("sort.cuh", "wrong = wrong || (((a ^ b)", ("a < b", "false")),
    ("walk.cuh", "(m == 0 && c < y)));", ("(m == 0 && c < y)", "false")),
    ("walk.cuh", "order[keep ? t : n - 1 - t]", ("n - 1 - t", "n - t")),
    ("walk.cuh", "for (int k = 0; active && k < chunk; ++k)", ("k < chunk", "k <= chunk")),
    ("walk.cuh", "const bool full = t == n - 1;", ("t == n - 1", "t == n")),
    (
        "walk.cuh",
        "const int from = event_t + 1",
        ("event_t + 1 > begin ?", "event_t > begin ?"),
    ),
    ("facts.cuh", "if (chunk < 8) chunk = 8;", ("chunk < 8", "chunk < 0")),
    (
        "facts.cuh",
        "const int end = begin + chunk < m",
        ("begin + chunk < m ?", "true ?"),
    ),
    ("facts.cuh", "if (i < 0 || i >= v.n)", ("i >= v.n", "i > v.n")),
    ("facts.cuh", "atomicOr(&marks", ("wrong ||", "wrong &&")),
    ("rankings.cuh", "safe = a < 0.5", ("a < 0.5 * f.mass", "true")),
    ("rankings.cuh", "if (k > 0 && (margin", ("k > 0 &&", "k >= 0 &&")),
    ("rankings.cuh", "if (over + size * t < needed)", ("size * t", "0 * t")),
    ("rankings.cuh", "taken[i] != 0) continue;", ("taken[i] != 0", "false")),
    ("project.cuh", "if (i >= rows.n || c >= rows.C) return;", ("i >= rows.n ||", "false ||")),
    ("project.cuh", "if (i >= rows.n || c >= rows.C) return;", ("|| c >= rows.C", "")),
    ("project.cuh", "if (index < last) write", ("index < last", "true")),
    ("project.cuh", "for (int u = q; u < vectors", ("u = q;", "u = q + 1;")),
    ("sweep.cuh", "broken = t0 < 0", ("t0 < 0 ||", "")),
    ("sweep.cuh", "broken = t0 < 0", ("t1 > p.T ||", "")),
    ("sweep.cuh", "if (at >= count) break;", ("at >= count", "at > count")),
    ("layout.cuh", "l.cs = static_cast", ("(C | 1)", "(C - 1)")),
]

# Barriers that no schedule can show missing, and why.
EQUIVALENT: dict[str, str] = {}


def mutants() -> list[Mutant]:
    found = []
    folder = ROOT / "kernels" / "cuda"
    for path in sorted(folder.glob("*.cu*")):
        for number, line in enumerate(path.read_text().splitlines()):
            if BARRIER.match(line):
                found.append(Mutant(path.name, number, line, "", "barrier removed"))
    for name, text, (old, new) in EDITS:
        lines = (folder / name).read_text().splitlines()
        at = [i for i, line in enumerate(lines) if text in line]
        if len(at) == 0 or old not in lines[at[0]]:
            raise SystemExit(f"{name}: no line has {text!r} with {old!r}; update EDITS")
        line = lines[at[0]]
        found.append(Mutant(name, at[0], line, line.replace(old, new, 1), f"`{old}` to `{new}`"))
    return found


def check(mutant: Mutant, work: Path) -> str:
    """What the tests say of a mutant: killed by a test, by the build, or survived."""
    path = work / "kernels" / "cuda" / mutant.file
    original = path.read_text()
    lines = original.splitlines()
    assert lines[mutant.line] == mutant.before
    lines[mutant.line] = mutant.after
    path.write_text("\n".join(lines) + "\n")
    try:
        try:
            emulator.build(work / "build", work)
        except RuntimeError:
            return "killed by the compiler"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "test_paths.py"],
            cwd=ROOT / "python_tests" / "cuda",
            env=os.environ
            | {
                "FASTATTNERASE_EMU_BUILD": str(work / "build"),
                "FASTATTNERASE_EMU_SOURCE": str(work),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    except subprocess.TimeoutExpired:
        return "killed by the clock"
    finally:
        path.write_text(original)
    if done.returncode == 0:
        return "SURVIVED"
    failed = re.search(r"FAILED \S+::(\S+)", done.stdout)
    return f"killed by {failed.group(1)}" if failed else f"killed (status {done.returncode})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose file or line has this text")
    parser.add_argument("--table", type=Path, help="append rows to this file as they are known")
    args = parser.parse_args()
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(ROOT / "kernels", work / "kernels")
        shutil.copytree(ROOT / "csrc", work / "csrc")
        for mutant in mutants():
            if args.only not in f"{mutant.file} {mutant.before}":
                continue
            verdict = check(mutant, work)
            place = f"{mutant.file}:{mutant.line + 1}"
            if verdict == "SURVIVED":
                verdict = EQUIVALENT.get(place, verdict)
                survivors += verdict == "SURVIVED"
            row = f"| {place} | {mutant.name} | {verdict} |"
            sys.stdout.write(row + "\n")
            sys.stdout.flush()
            if args.table:
                with args.table.open("a") as table:
                    table.write(row + "\n")
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
