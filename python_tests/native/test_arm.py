"""The engine's native test, built for Arm and emulated."""

from __future__ import annotations

import subprocess

import pytest
from contract import served

NAME = "cpu-neon-emulated"


@pytest.mark.skipif(NAME not in served.here(), reason="an Arm processor: nothing to emulate")
def test_the_native_test_passes_on_arm() -> None:
    """Threads and callers at once give the bits of one thread, in every variant for Arm."""
    if why := served.lacking(NAME):
        pytest.skip(f"{NAME}: {why}")
    done = subprocess.run(
        [served.EMULATOR, served.build(NAME) / "stress"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"
