"""Checksums of files, with and without the package that computes CRC-32 quickly."""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastattnerase.dumps import checksums


@pytest.fixture(params=["isal", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the module use one of the two."""
    name = str(request.param)
    if name == "isal":
        pytest.importorskip("isal")
    else:
        for hidden in ("isal", "isal.isal_zlib"):
            monkeypatch.setitem(sys.modules, hidden, None)
    importlib.reload(checksums)
    return name


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    importlib.reload(checksums)


def test_checksums_are_the_published_ones(library: str, tmp_path: Path) -> None:
    assert (checksums.crc32 is zlib.crc32) == (library == "zlib")
    path = tmp_path / "file"
    path.write_bytes(b"123456789")
    # The check value of CRC-32 in catalogues of such codes; SHA-256 as `sha256sum` prints it.
    assert checksums.crc32_of(path) == "cbf43926"
    assert checksums.digest_of(path) == (
        "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
    )


def test_a_checksum_of_pieces_is_that_of_the_whole(library: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 37_000  # longer than two pieces
    path = tmp_path / "file"
    path.write_bytes(content)
    assert checksums.crc32_of(path) == f"{zlib.crc32(content):08x}"
    path.write_bytes(b"")
    assert checksums.crc32_of(path) == "00000000"
