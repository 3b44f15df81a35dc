"""Killing a resumable command at random moments, and saying what each kill hit."""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LOOK = 0.02  # seconds between two looks at the manifest


@dataclass(frozen=True)
class Kill:
    """What one kill hit.

    Args:
        done: units that were done.
        units: all units.
        hit: those that had been begun and were not done.
        seconds: from the begin of the unit that was waited for to the kill.
        ended: the command was done before it could be killed.
    """

    done: int
    units: int
    hit: list[str]
    seconds: float
    ended: bool

    def __str__(self) -> str:
        if self.ended:
            return "the command had ended"
        nothing = "what follows them" if self.done == self.units else "no unit begun"
        where = ", ".join(self.hit) or nothing
        return f"{self.done} of {self.units} units done, {self.seconds:.2f} s into {where}"


def run(arguments: list[str]) -> float:
    """Run a command to its end; give the seconds it took."""
    started = time.monotonic()
    finished = subprocess.run(arguments, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return time.monotonic() - started


def units_of(out: Path) -> dict[str, float | None]:
    """The units of a study's manifest with the seconds they took, None where not done."""
    units = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["units"]
    if isinstance(units, list):
        units = {unit["unit"]: unit for unit in units}
    return {key: unit["seconds"] if unit["done"] else None for key, unit in units.items()}


def kill_at_random(
    command: list[str],
    out: Path,
    durations: list[float],
    kills: int,
    chance: random.Random,
    jobs: int = 1,
) -> Iterator[Kill]:
    """Start a command and kill it, again and again; each kill at a random moment of a random unit.

    Only processes started here are killed; those that they start end by themselves.

    Args:
        command: does a study.
        out: the study's folder.
        durations: seconds of each unit in a run that nobody killed.
        kills: how many.
        chance: of the moments.
        jobs: units at a time; so much sooner is the next one done.

    Yields:
        What each kill hit.
    """
    places = sorted(chance.randrange(len(durations)) for _ in range(kills))
    for place in places:
        launched = time.time()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not _has_done(out, place, launched):
            time.sleep(_LOOK)
        delay = chance.uniform(0, durations[place] / jobs)
        try:
            process.wait(timeout=delay)
            ended = True
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            ended = False
        found = units_of(out)
        pending = [key for key, seconds in found.items() if seconds is None]
        hit = [key for key in pending if (out / key).exists() or (out / key.lower()).exists()]
        yield Kill(len(found) - len(pending), len(found), hit, delay, ended)


def unfinished(out: Path) -> list[str]:
    """Name the units of a study's manifest that are not done."""
    return [key for key, seconds in units_of(out).items() if seconds is None]


def compare_killed(
    command: Callable[[Path], list[str]],
    numbers: Callable[[Path], Mapping[str, str | bytes]],
    folder: Path,
    kills: int,
    jobs: int = 1,
    seed: int = 0,
    *,
    alike: bool = True,
    least: float = 0.0,
) -> tuple[int, list[str]]:
    """Run a command once whole and once with kills; compare what it ends with.

    Args:
        command: makes the command that does a study in a folder.
        numbers: reads the results in that folder.
        folder: where both are done.
        kills: how many.
        jobs: units at a time, as in the command.
        seed: of the moments.
        alike: whether units take much the same; the first of a process imports what all need.
        least: seconds of a unit, at least.

    Returns:
        How many results were compared, and the names of those that differ.
    """
    whole, killed = folder / "whole", folder / "killed"
    run(command(whole))
    durations = [seconds or 0.0 for seconds in units_of(whole).values()]
    if alike:
        durations = [max(statistics.median(durations), least)] * len(durations)
    hits = kill_at_random(command(killed), killed, durations, kills, random.Random(seed), jobs)
    for number, hit in enumerate(hits, start=1):
        print(f"kill {number}: {hit}", flush=True)  # noqa: T201
    run(command(killed))
    for out in (whole, killed):
        assert not unfinished(out), unfinished(out)
    expected, found = numbers(whole), numbers(killed)
    return len(expected), sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )


def main(
    document: str, kill_and_compare: Callable[..., tuple[int, list[str]]], **options: Any
) -> None:
    """Kill and compare as the command line says, print what differs, and end with 1 where it does.

    Args:
        document: of the script.
        kill_and_compare: takes a folder, `kills`, `jobs`, `seed` and the options.
        options: further ones, whole numbers, with their defaults.
    """
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    for name, default in {"kills": 10, "jobs": 2, "seed": 0, **options}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as temporary:
        compared, differences = kill_and_compare(Path(temporary), **given)
    print(f"{compared} results compared, differences: {', '.join(differences) or 'none'}")  # noqa: T201
    sys.exit(bool(differences))


def _has_done(out: Path, count: int, since: float) -> bool:
    """Whether the command that was launched then has looked round and so many units are done."""
    manifest = out / "manifest.json"
    if not manifest.exists() or manifest.stat().st_mtime < since:
        return False
    return sum(seconds is not None for seconds in units_of(out).values()) >= count
