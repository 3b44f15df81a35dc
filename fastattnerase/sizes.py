"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """Read a size: a number of bytes, or of KiB, MiB, GiB or TiB.

    Args:
        text: `268435456`, `256MiB`, `256M` or `1.5 GiB`; units are powers of 1024.

    Returns:
        The bytes, at least 1.

    Raises:
        ValueError: something else.

    Example:
        >>> from fastattnerase.sizes import bytes_of
        >>> bytes_of("256MiB"), bytes_of("1.5 k")
        (268435456, 1536)
    """
    found = _SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * 1024 ** _UNITS[found[2].lower()]) if found else 0
    if size < 1:
        raise ValueError(f"given {text!r}, needed a size such as 256MiB or 1GiB")
    return size
