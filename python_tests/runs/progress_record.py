"""A progress that is written down instead of shown."""

from __future__ import annotations

from collections.abc import Iterable


class Recorded:
    """What stages reported, by stage, in the order in which they began."""

    def __init__(self) -> None:
        self.stages: dict[str, list[tuple[int, int]]] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.stages.setdefault(stage, []).append((done, total))

    def check(self, stages: Iterable[str]) -> None:
        """Every stage has begun, in this order, has gone forward only, and has come to its end."""
        assert list(self.stages) == list(stages)
        for name, reports in self.stages.items():
            shares = [done / total if total else 1.0 for done, total in reports]
            assert shares == sorted(shares), name
            assert shares[-1] == 1.0, name
