"""What a reader must know of numbers that come from a dump."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastattnerase.plurals import are, counted


def of_dump(source: Mapping[str, Any]) -> list[str]:
    """Say what near-ties were judged on, what computed it, and what is missing: a sentence each.

    Args:
        source: of the run, as a sweep's aggregation writes it; that of another run says nothing.

    Example:
        >>> of_dump({"aside": {"shard-000001": "it is damaged"}})
        ['1 shard of the dump is set aside: not in any number.']
    """
    texts = []
    if source.get("near_ties") == "contributions":
        texts.append("The dump is compact: near-ties were judged on contributions.")
    if len(engines := source.get("engines", {})) > 1:
        by = ", ".join(f"{name} {count:,}" for name, count in engines.items())
        texts.append(f"Shards by what computed them: {by}; last bits may differ between these.")
    if aside := source.get("aside"):
        told = counted(len(aside), "shard")
        texts.append(f"{told} of the dump {are(len(aside))} set aside: not in any number.")
    return texts
