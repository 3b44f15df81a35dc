"""The lines of a dump that is being written, `shards.jsonl`: its options, then its whole shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines_of(journal: Path) -> list[Any]:
    """Read the lines of a journal up to the first that is cut or damaged."""
    found = []
    for line in journal.read_bytes().splitlines(keepends=True):
        try:
            found.append(json.loads(line) if line.endswith(b"\n") else None)
        except ValueError:
            found.append(None)
        if not isinstance(found[-1], dict):
            return found[:-1]
    return found
