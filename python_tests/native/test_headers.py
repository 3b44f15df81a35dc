"""Every header of the CPU engine includes what it uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "csrc"
COMPILER = next(filter(shutil.which, (os.environ.get("CXX", "c++"), "c++", "g++", "clang++")), None)
HEADERS = sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / "cpu").rglob("*.h"))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header: str) -> None:
    assert COMPILER is not None
    options = [
        "-std=c++20",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-psabi",
        "-x",
        "c++",
        "-",
    ]
    done = subprocess.run(
        [COMPILER, f"-I{SOURCES}", f"-I{SOURCES / 'include'}", *options],
        input=f'#include "{header}"\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
