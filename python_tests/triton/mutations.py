"""Shows how tight the net of the Triton tests is by breaking the kernels, one place at a time.

    python python_tests/triton/mutations.py [--only TEXT] [--table FILE] [--seconds N]

Each mutant is a copy of a kernel's file with one edit, imported in the place of the original by a
process of its own that must fail a test of this folder. MUTANTS.md holds the last table.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))

import mutants

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "kernels" / "triton"
BUILD = HERE.parents[1] / "build" / "mutants-triton"
TESTS = [str(HERE / "test_triton_kernels.py"), str(HERE / "test_triton_sweep.py")]

# file, what is there once, what it becomes
EDITS = [
    ("project.py", "is_feature = d < D", "is_feature = d < D - 1"),
    ("project.py", "PANEL=32 * tile_features", "PANEL=1024 * tile_features"),
    ("project.py", "(squares > 1e-20)", "(squares > -1.0)"),
    ("project.py", "inside = rows < T", "inside = rows < T - 1"),
    ("decide.py", "top - bottom > UNDERFLOW_SPAN", "top - bottom > 6000.0"),
    ("decide.py", "tl.where((n > 0) & (positive == 0) & usable, ZERO_MASS, 0)", "0"),
    ("decide.py", "known & (invalid == 0), a", "known, a"),
    ("decide.py", 'tl.where(usable, logits, float("nan"))', "tl.where(n > 0, logits, 0.0)"),
    ("launch.py", '"first_row": first_row', '"first_row": 0'),
    ("common.py", "tl.exp(running_max - top), 0.0)", "1.0, 0.0)"),
    ("prefixes.py", "((margins == 0) & (c < y)[None, :])", "((margins == 0) & (c < 0)[None, :])"),
    ("prefixes.py", "bias_label == y) | (u == n)", "bias_label == y)"),
    ("prefixes.py", "counts % 65536 == 0, bias_label == y", "counts % 65536 == 0, True"),
    ("prefixes.py", "margin_carry += tl.sum(terms, axis=0)", "margin_carry += 0.0"),
    ("prefixes.py", "(here < NEVER) & (first == NEVER)", "here < NEVER"),
    ("prefixes.py", "margin_carry = margin_carry * factor", "margin_carry = margin_carry * 1.0"),
    ("prefixes.py", "(nearest <= first)", "(nearest < NEVER)"),
    ("sort.py", "& (other[:, None] < position[None, :])", "& (other[:, None] > position[None, :])"),
    ("sort.py", "(probe_key == key) & (left == 0)", "(probe_key == key) & left"),
    ("singles.py", "is_top = position == top_position", "is_top = position == -2"),
    ("singles.py", "kl = tl.where(weighted, kl, unweighted)", "kl = tl.where(labelled, js, kl)"),
    ("random_keys.py", "(position + 1)", "(position + 2)"),
    ("pooled.py", "tl.where(KEEP, high, n - low)", "tl.where(KEEP, high, n - low - 1)"),
    ("pooled.py", "(k <= high)", "(k < high)"),
]


def switch_on(number: int) -> None:
    """Import a copy of a kernel's file with one edit in the place of the original."""
    file, old, new = EDITS[number]
    name = f"fastattnerase.kernels.triton.{Path(file).stem}"
    if name in sys.modules:
        raise RuntimeError(f"{name} was imported before it was broken")
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{os.getpid()}-{file}"
    path.write_text((KERNELS / file).read_text().replace(old, new))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def places() -> list[str]:
    """Name every mutant as its row of the table begins."""
    named = []
    for file, old, new in EDITS:
        found = (KERNELS / file).read_text().count(old)
        if found != 1:
            raise SystemExit(f"{file}: {old!r} is there {found} times, needed once; update EDITS")
        edit = f"`{old}` becomes `{new}`".replace("|", "\\|")
        named.append(f"| `{file}` | {edit}")
    return named


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel module is imported
    options = mutants.parser(__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    survivors = mutants.judge_all(mutants.Judge(places(), switch_on, {}, options), TESTS)
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
