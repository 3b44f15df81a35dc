"""What a reader must know of numbers that come from a dump."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastattnerase.plurals import are


def of_dump(source: Mapping[str, Any]) -> list[str]:
    """Say what near-ties were judged on, and what is missing: one sentence each.

    Args:
        source: of the run, as a sweep's aggregation writes it; that of another run says nothing.

    Example:
        >>> of_dump({"aside": {"shard-000001": "it is damaged"}})
        ['1 damaged shard of the dump is set aside: not in any number.']
    """
    texts = []
    if source.get("near_ties") == "contributions":
        texts.append("The dump is compact: near-ties were judged on contributions.")
    if aside := source.get("aside"):
        told = "1 damaged shard" if len(aside) == 1 else f"{len(aside):,} damaged shards"
        texts.append(f"{told} of the dump {are(len(aside))} set aside: not in any number.")
    return texts
