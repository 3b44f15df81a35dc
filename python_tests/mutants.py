"""What tests say of a broken program: shared by the mutation checks of cuda/ and triton/."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

SECONDS_OF_A_TEST = 60


class Reporter:
    """A pytest plugin that says what each test did: a point, or the name of one that failed."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        text = report.nodeid.split("::")[-1] + "\n" if report.failed else "."
        os.write(self.pipe, text.encode()[:500])


def verdict(switch_on: Callable[[], None], suites: Iterable[list[str]]) -> str:
    """Run pytest on each suite, in a process of its own in which `switch_on` broke the program.

    Killed by a test, a crash or the clock, or survived.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        switch_on()
        for arguments in suites:
            options = ["-x", "-q", "-p", "no:cacheprovider", *arguments]
            if pytest.main(options, plugins=[Reporter(write)]) != 0:
                os.write(write, b"pytest\n")
                break
        os._exit(0)
    os.close(write)
    said = b""
    while True:
        # At the end of the pipe the child is done, whichever way.
        if not select.select([read], [], [], SECONDS_OF_A_TEST)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            return "killed by the clock: a test hangs"
        new = os.read(read, 4096)
        if not new:
            break
        said += new
    os.close(read)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    failed = said.decode().split("\n")[0].lstrip(".") if b"\n" in said else ""
    return f"killed by `{failed}`" if failed else "SURVIVED"


def parser(description: str) -> argparse.ArgumentParser:
    """The options that both checks have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--only", default="", help="mutants whose place or name has this text")
    options.add_argument("--table", type=Path, help="rows known and to come")
    options.add_argument("--seconds", type=float, default=1e9, help="start no mutant after these")
    return options


def judge_all(
    places: list[str],
    judge: Callable[[int], str],
    equivalent: dict[str, str],
    options: argparse.Namespace,
) -> int:
    """Print a row for each place whose row is not in the table yet; how many survived."""
    table = options.table.read_text() if options.table and options.table.exists() else ""
    started, survivors, left = time.monotonic(), 0, 0
    for number, place in enumerate(places):
        if options.only not in place or f"{place} |" in table:
            continue
        if time.monotonic() - started > options.seconds:
            left += 1
            continue
        said = judge(number)
        if said == "SURVIVED":
            said = equivalent.get(place, said)
            survivors += said == "SURVIVED"
        row = f"{place} | {said} |\n"
        sys.stdout.write(row)
        sys.stdout.flush()
        if options.table:
            with options.table.open("a") as file:
                file.write(row)
    if left:
        sys.stdout.write(f"{left} mutants left\n")
    return survivors
