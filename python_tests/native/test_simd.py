"""What a target has of its own in csrc/cpu/simd does what the generic forms do."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from fastattnerase import _C

NATIVE = Path(__file__).parent
CSRC = NATIVE.parents[1] / "csrc"
AVX2 = ("-mavx2", "-mfma")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
TARGETS = {"plain": (), "wide": ("-DFAE_WIDE",)}
if platform.machine() in ("x86_64", "AMD64"):
    TARGETS |= {"avx2": AVX2, "avx512": AVX512, "wide": (*AVX2, "-DFAE_WIDE")}
NEEDED = {"avx2": "avx2", "wide": "avx2", "avx512": "avx512"}  # variants that tell of a processor


@pytest.mark.parametrize("target", TARGETS)
def test_forms_of_a_target(target: str, tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("neither g++ nor clang++")
    if len(TARGETS) > 2 and NEEDED.get(target, "plain") not in _C.cpu_variants():
        pytest.skip(f"this processor lacks {NEEDED[target]}")
    program = tmp_path / "simd"
    options = ["-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
    options += ["-Wno-psabi", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
    options += ["-I", str(CSRC), "-I", str(CSRC / "include"), *TARGETS[target]]
    source = str(NATIVE / "simd.cpp")
    subprocess.run([compiler, *options, source, "-o", str(program)], check=True)
    said = subprocess.run([str(program)], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout
