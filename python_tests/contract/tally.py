"""Counts what each backend ran and what it did not, says both, and judges the count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

# Why a test of a backend did not run; written to its report's user property "not_run". A variant's
# absence may have another reason, the tools that are missing, in what the test said as it skipped.
ABSENT = "built, not on this machine"
REFUSED = "refused"


@dataclass
class Tally:
    """Tests by backend; `pinned` says how many each backend refuses, 0 where it is silent."""

    required: list[str] = field(default_factory=list)
    pinned: Mapping[str, int] = field(default_factory=dict)
    ran: Counter[str] = field(default_factory=Counter)
    absent: Counter[str] = field(default_factory=Counter)
    lacking: dict[str, str] = field(default_factory=dict)  # why a variant is absent
    refused: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, set[str]] = field(default_factory=dict)  # of refusals
    skipped: Counter[str] = field(default_factory=Counter)  # for any other reason
    instances: Counter[str] = field(default_factory=Counter)
    near_ties: Counter[str] = field(default_factory=Counter)

    def add(self, properties: Mapping[str, object], skipped: bool, reason: str = "") -> None:
        """Count one test from its report's user properties."""
        backend = properties.get("backend")
        if not isinstance(backend, str):
            return
        if not skipped:
            self.ran[backend] += 1
            for name in ("instances", "near_ties"):
                count = properties.get(name, 0)
                assert isinstance(count, int)
                getattr(self, name)[backend] += count
        elif properties.get("not_run") == ABSENT:
            self.absent[backend] += 1
            self.lacking[backend] = reason.removeprefix(f"{backend}: ")
        elif properties.get("not_run") == REFUSED:
            self.refused[backend] += 1
            self.reasons.setdefault(backend, set()).add(reason)
        else:
            self.skipped[backend] += 1

    def backends(self) -> list[str]:
        """Every backend that was to run or was seen."""
        return list(dict.fromkeys((*self.required, *self.ran, *self.absent)))

    def faults(self) -> Iterator[str]:
        """What is wrong with the count of a run that left out no contract test."""
        for name in self.required:
            if not self.ran[name] and not self.absent[name]:
                yield f"{name} ran nothing"
        for name in self.backends():
            if not self.absent[name] and self.refused[name] != self.pinned.get(name, 0):
                yield (
                    f"{name} refused {self.refused[name]} tests, "
                    f"needed {self.pinned.get(name, 0)} (REFUSALS in contract/runners.py)"
                )

    def lines(self) -> Iterator[str]:
        """A line a backend: what it ran, compared and refused."""
        for name in self.backends():
            if self.absent[name]:
                yield f"{name:>14}: {self.absence(name)}"
                continue
            if not self.ran[name] and not self.skipped[name] + self.refused[name]:
                continue
            line = f"{name:>14}: {self.ran[name]:6d} tests"
            if self.instances[name]:
                line += f", {self.instances[name]} instances compared, {self.near_ties[name]} tied"
            if self.refused[name]:
                line += f", {self.refused[name]} refused"
            if self.skipped[name]:
                line += f", {self.skipped[name]} skipped"
            yield line

    def absence(self, name: str) -> str:
        """What to say of a variant that this machine lacks."""
        return f"{self.lacking[name]}: {self.absent[name]} tests not run"

    def not_run(self) -> Iterator[str]:
        """A line for each part that did not run, by whatever reason."""
        for name in self.backends():
            if self.absent[name]:
                yield f"{name}: {self.absence(name)}"
            if self.refused[name]:
                why = "; ".join(sorted(self.reasons[name]))
                yield f"{name}: {self.refused[name]} tests refused: {why}"


def counted(things: Iterable[str]) -> list[str]:
    """Equal lines once, with their number in front: `3x the same`."""
    return [f"{number}x {thing}" for thing, number in Counter(things).items()]
