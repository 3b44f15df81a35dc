"""Intervals of shares."""

from __future__ import annotations

import math


def wilson(count: int, total: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Give Wilson's interval of a share.

    Args:
        count: successes.
        total: trials, at least 1.
        z: of the coverage; default: 95 %.

    Returns:
        Its ends.

    Source:
        E. B. Wilson 1927.

    Example:
        >>> from fastattnerase.statistics.shares import wilson
        >>> [round(end, 3) for end in wilson(0, 10)]
        [0.0, 0.278]
    """
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, float((middle - half) / scale)), min(1.0, float((middle + half) / scale))
