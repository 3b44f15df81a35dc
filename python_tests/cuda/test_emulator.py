"""The emulator sees what it is there to see."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import emulator
import pytest


@pytest.fixture
def emu():
    module = emulator.module()
    yield module
    module.set_schedule("forward")


ORDERS = ("forward", "backward", "shuffled", "by_warp")


@pytest.mark.parametrize("order", ORDERS)
def test_a_right_kernel_is_right_under_every_order(emu, order):
    for seed in range(5):
        emu.set_schedule(order, seed)
        assert emu.reversed_by("none")


def test_a_missing_barrier_is_seen_under_every_order(emu):
    for order in ORDERS:
        emu.set_schedule(order, 1)
        assert not emu.reversed_by("no_barrier")


def test_a_barrier_that_some_threads_miss_is_an_error(emu):
    with pytest.raises(RuntimeError, match="not reached by all threads"):
        emu.reversed_by("half_barrier")


def test_a_write_behind_shared_memory_is_an_error(emu):
    with pytest.raises(RuntimeError, match="past its end, at byte 0"):
        emu.reversed_by("overrun")


def test_warp_intrinsics(emu):
    # Σ 0 … 31, the odd lanes' bits, lane 7's neighbours.
    assert emu.warp_numbers() == (496, 0xAAAAAAAA, 6, 8)


def test_an_unknown_order_is_refused(emu):
    with pytest.raises(ValueError, match="needed forward, backward, shuffled or by_warp"):
        emu.set_schedule("sideways")


@pytest.mark.long
def test_paths_under_sanitizers():
    """All results on all paths, orders and offsets that make no sense, in a process of its own."""
    compiler = shutil.which("c++") or "c++"
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip(f"{compiler} comes without sanitizers")
    folder = emulator.ROOT / "build" / "sanitize-emulator"
    emulator.build(folder, sanitize="address;undefined")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            str(Path(__file__).with_name("test_paths.py")),
            "-k",
            "(every_result and forward) or permutation or make_no_sense or both_sides",
        ],
        env=os.environ
        | {
            "LD_PRELOAD": " ".join(libraries),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "halt_on_error=1",
            "FASTATTNERASE_EMU_BUILD": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
