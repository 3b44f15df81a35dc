"""Options of the build that are refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def cmake() -> str | None:
    """A CMake that is new enough, beside this Python or in the path."""
    for place in (str(Path(sys.executable).parent), None):
        found = shutil.which("cmake", path=place)
        if found is not None:
            text = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
            major, minor = map(int, re.findall(r"\d+", text)[:2])
            if (major, minor) >= (3, 28):
                return found
    return None


@pytest.mark.skipif(cmake() is None, reason="needs CMake 3.28")
def test_cuda_is_auto_on_or_off(tmp_path: Path) -> None:
    command = [str(cmake()), "-S", str(ROOT), "-B", str(tmp_path), "-DFASTATTNERASE_CUDA=banana"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert "FASTATTNERASE_CUDA is 'banana'; AUTO, ON or OFF is needed" in result.stderr
