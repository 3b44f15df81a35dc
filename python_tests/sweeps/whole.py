"""Sweeps as commands: started, killed, started again; and all that they leave, to be compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

CALL = (sys.executable, "-m", "fastattnerase", "sweep")
_LOOK = 0.005  # seconds between two looks at the records
_LONGEST = 300  # seconds that anything here may take


def sweep(dump: Path, out: Path, *options: str) -> list[str]:
    """The command of a sweep with few resamples."""
    return [*CALL, str(dump), "--out", str(out), "--resamples", "20", *options]


def torchrun(count: int, command: Sequence[str]) -> list[str]:
    """The same command by as many ranks on this machine."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(count), "--no-python", *command]


def environment() -> dict[str, str]:
    """One thread a process, so that several share this machine."""
    return os.environ | {"OMP_NUM_THREADS": "1"}


def run(command: Sequence[str], code: int = 0) -> str:
    """Run a command that must end with a code; give what it said."""
    found = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=_LONGEST
    )
    assert found.returncode == code, found.stderr + found.stdout
    return found.stderr + found.stdout


def records(out: Path) -> int:
    """How many shards have a record."""
    return len(list((out / "shards").glob("*.json")))


def kill(
    command: Sequence[str],
    out: Path,
    done: int,
    victim: Callable[[subprocess.Popen[bytes]], int | None] = lambda process: process.pid,
) -> int:
    """Start a command, and kill it or another process once so many shards are done.

    Args:
        command: a sweep into `out`.
        out: its folder.
        done: shards with a record before the kill.
        victim: finds the process to kill; None while it is not there.

    Returns:
        The exit code of the command, negative where a signal ended it.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    end = time.monotonic() + _LONGEST
    while process.poll() is None and time.monotonic() < end:
        if records(out) >= done and (number := victim(process)) is not None:
            os.kill(number, signal.SIGKILL)
            break
        time.sleep(_LOOK)
    return process.wait(timeout=_LONGEST)


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def named(process: subprocess.Popen[bytes], *words: str) -> int | None:
    """The last descendant of a process whose command line holds some words."""
    for number in reversed(descendants(process.pid)):
        try:
            line = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if all(word in line for word in words):
            return number
    return None


def left_behind(out: Path) -> dict[str, bytes]:
    """All files of a finished sweep: parts, records, manifest, aggregate.

    But for locks, and for what tells of versions and machine.
    """
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
        and path.name not in ("sweep.json", "run.json")
        and not path.name.startswith(".")
    }


def differences(first: Path, second: Path) -> list[str]:
    """Name the files of two sweeps that are not the same, byte for byte."""
    one, other = left_behind(first), left_behind(second)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
