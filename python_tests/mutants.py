"""What tests say of a broken program: shared by the mutation checks of cuda/ and triton/."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SECONDS_OF_A_TEST = 60


def parser(description: str) -> argparse.ArgumentParser:
    """The options that both checks have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--only", default="", help="mutants whose place or name has this text")
    options.add_argument("--table", type=Path, help="rows known and to come")
    options.add_argument("--seconds", type=float, default=1e9, help="start no mutant after these")
    return options


class Judge:
    """A pytest plugin that runs the collected tests once a mutant, up to the first that fails.

    Each time in a process of its own, in which `switch_on` broke the program.
    """

    def __init__(
        self,
        places: list[str],
        switch_on: Callable[[int], None],
        equivalent: dict[str, str],
        options: argparse.Namespace,
    ) -> None:
        self.places, self.switch_on, self.equivalent = places, switch_on, equivalent
        self.options = options
        self.survivors = 0
        self.pipe = -1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say to the parent process what a test did: a point, or its name where it failed."""
        text = report.nodeid.split("::")[-1] + "\n" if report.failed else "."
        os.write(self.pipe, text.encode()[:500])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Print a row for each place whose row is not in the table yet."""
        table = self.options.table
        known = table.read_text() if table and table.exists() else ""
        started, left = time.monotonic(), 0
        for number, place in enumerate(self.places):
            if self.options.only not in place or f"{place} |" in known:
                continue
            if time.monotonic() - started > self.options.seconds:
                left += 1
                continue
            said = self.verdict(number, session)
            if said == "SURVIVED":
                said = self.equivalent.get(place, said)
                self.survivors += said == "SURVIVED"
            row = f"{place} | {said} |\n"
            sys.stdout.write(row)
            sys.stdout.flush()
            if table:
                with table.open("a") as file:
                    file.write(row)
        if left:
            sys.stdout.write(f"{left} mutants left\n")
        return True

    def verdict(self, number: int, session: pytest.Session) -> str:
        """Killed by a test, a crash or the clock, or survived."""
        read, self.pipe = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            self.switch_on(number)
            for item, after in zip(session.items, [*session.items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if session.shouldfail:
                    break
            os._exit(0)
        os.close(self.pipe)
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


def judge_all(judge: Judge, tests: list[str]) -> int:
    """Collect the tests and let the judge run them; how many mutants survived."""
    status = pytest.main(["-x", "-q", "-s", "-p", "no:cacheprovider", *tests], plugins=[judge])
    if status != 0:
        raise SystemExit(f"pytest: status {int(status)}")
    return judge.survivors
