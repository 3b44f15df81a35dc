"""Checksums of a dump's files and of results: SHA-256 to keep, CRC-32 to compare while sweeping."""

from __future__ import annotations

import hashlib
from pathlib import Path

try:  # Prefer ISA-L's carry-less multiplication to zlib's tables, which take many times as long.
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32", "crc32_of", "digest_of"]

_PIECE = 1 << 22  # bytes that are read at a time


def digest_of(path: Path) -> str:
    """Compute the SHA-256 of a file, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def crc32_of(path: Path) -> str:
    """Compute the CRC-32 of a file, as `crc32` and gzip have it."""
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            crc = crc32(piece, crc)
    return f"{crc:08x}"
