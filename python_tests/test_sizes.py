"""Sizes as people write them."""

from __future__ import annotations

import pytest

from fastattnerase.sizes import bytes_of


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("268435456", 1 << 28), ("256MiB", 1 << 28), ("256 mb", 1 << 28), ("1.5K", 1536),
     ("2GiB", 2 << 30), ("1T", 1 << 40)],
)  # fmt: skip
def test_a_size_is_read(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "0", "much", "-1", "1X", "0.1", "1 G B"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="needed a size such as 256MiB or 1GiB"):
        bytes_of(text)
