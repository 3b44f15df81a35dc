"""What tests of sweeps share: a tiny dump, and what a sweep that nothing disturbed makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeps import tiny


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_dump(tmp_path_factory.mktemp("dump") / "dump")


@pytest.fixture(scope="module")
def whole(dump: Path) -> dict[str, str]:
    """The parts of a sweep in one process."""
    return tiny.swept(dump, dump.parent / "whole")
