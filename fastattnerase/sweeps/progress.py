"""How far a sweep is, for who watches, and as a file of JSON lines."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import IO, Protocol

from fastattnerase.runs.records import to_json
from fastattnerase.sweeps.records import Manifest, ShardRecord


@dataclass
class Progress:
    """How far a call is.

    Attributes:
        shards: that this call has to do, with those before it.
        done: of them, at its begin or by now, set aside or not.
        items: that this call has to do.
        items_done: by now.
        seconds: since its begin.
    """

    shards: int
    done: int
    items: int
    items_done: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float | None:
        """Items a second; None as long as there were none."""
        return self.items_done / self.seconds if self.items_done and self.seconds else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left at this rate."""
        if self.items_done >= self.items:
            return 0.0
        return (self.items - self.items_done) / self.rate if self.rate else None


class Watcher(Protocol):
    """Who is told how far a sweep is."""

    def begin(self, progress: Progress) -> None:
        """Shards will be done."""

    def finished(self, record: ShardRecord, progress: Progress) -> None:
        """A shard is done, or set aside."""


class Log:
    """Writes what happens as JSON, a line an event: time, shard, how far, how fast.

    Args:
        file: open for appending.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def begin(self, progress: Progress) -> None:
        """Shards will be done."""
        self._write("begin", progress)

    def finished(self, record: ShardRecord, progress: Progress) -> None:
        """A shard is done, or set aside."""
        about = {"shard": record.shard, "instances": record.instances, "items": record.items}
        self._write(record.state, progress, **about, reason=record.reason)

    def end(self, manifest: Manifest) -> None:
        """The call has ended."""
        line = {"event": "end", "time": round(time.time(), 3), **to_json(manifest)}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _write(self, event: str, progress: Progress, **about: object) -> None:
        rate, seconds = progress.rate, progress.seconds_left
        line = {
            "event": event,
            "time": round(time.time(), 3),
            **about,
            "shards_done": progress.done,
            "shards": progress.shards,
            "items_done": progress.items_done,
            "items_of_call": progress.items,
            "items_per_second": None if rate is None else round(rate, 1),
            "seconds": round(progress.seconds, 3),
            "seconds_left": None if seconds is None else round(seconds, 1),
        }
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()
