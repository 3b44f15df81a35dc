"""Running a study's units, one after another or in processes side by side."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fastattnerase.runs import rundir

_SILENCE = 0.2  # seconds between two looks at the children


class Unit(Protocol):
    """A step of a study; equal steps are the same."""

    @property
    def key(self) -> str:
        """Its name."""

    @property
    def cost(self) -> float:
        """How long it takes, roughly, against others."""

    def __hash__(self) -> int: ...


U = TypeVar("U", bound=Unit)
U_contra = TypeVar("U_contra", bound=Unit, contravariant=True)


class Workspace(Protocol[U]):
    """A study in a folder; it is sent to other processes."""

    @property
    def out(self) -> Path:
        """The folder."""

    def units(self) -> dict[U, list[U]]:
        """The units, each after, and with, those that must be done before it."""

    def done(self, unit: U) -> dict[str, Any] | None:
        """A finished unit's record; None where it is not finished."""

    def run(self, unit: U, report: Callable[[float], None]) -> dict[str, Any]:
        """Do a unit, and tell which share of it is done."""

    def write_manifest(self) -> dict[str, Any]:
        """Write which units are done."""


class Watcher(Protocol[U_contra]):
    """Who is told how far the units are."""

    def plan(self, costs: dict[Any, float], done: int) -> None:
        """Units will run at these costs; so many more were finished before."""

    def at(self, unit: U_contra, share: float) -> None:
        """A unit has come so far."""

    def finished(self, unit: U_contra, record: dict[str, Any]) -> None:
        """A unit is finished."""


def run(workspace: Workspace[U], jobs: int, watcher: Watcher[U]) -> dict[str, Any]:
    """Run all units of a workspace that are not done, as soon as those before them are.

    Args:
        workspace: the study, its data and its folder.
        jobs: processes; more than one use one thread each, one uses torch's own number.
        watcher: who is told how far the units are.

    Returns:
        The manifest; the file is brought up to date after every unit.

    Raises:
        RunError: another call works in the folder; what a unit raises.
    """
    if jobs < 1:
        raise rundir.RunError(f"jobs is {jobs}; at least 1 is needed")
    workspace.out.mkdir(parents=True, exist_ok=True)
    with _alone(workspace.out):
        units = workspace.units()
        done = {unit for unit in units if workspace.done(unit) is not None}
        left = {unit: unit.cost for unit in units if unit not in done}
        watcher.plan(left, len(done))
        workspace.write_manifest()
        runner = _here if jobs == 1 else _side_by_side
        for unit, record in runner(workspace, units, done, jobs, watcher):
            workspace.write_manifest()
            watcher.finished(unit, record)
        return workspace.write_manifest()


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    import fcntl

    with open(out / ".lock", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise rundir.RunError(
                f"another call works in {out}; wait for it, or choose another --out"
            ) from None
        yield


def _here(
    workspace: Workspace[U], units: dict[U, list[U]], done: set[U], _: int, watcher: Watcher[U]
) -> Iterator[tuple[U, dict[str, Any]]]:
    for unit in units:  # listed after their needs
        if unit not in done:
            watcher.at(unit, 0.0)
            yield unit, workspace.run(unit, partial(watcher.at, unit))


def _side_by_side(
    workspace: Workspace[U],
    units: dict[U, list[U]],
    done: set[U],
    jobs: int,
    watcher: Watcher[U],
) -> Iterator[tuple[U, dict[str, Any]]]:
    # Forked children of a process with threads can hang, so they are started anew.
    context = multiprocessing.get_context("spawn")
    messages = context.SimpleQueue()
    done = set(done)
    waiting = [unit for unit in units if unit not in done]
    running: dict[Future[dict[str, Any]], U] = {}
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, context, _start_child, (messages, os.getpid()))
    try:
        while waiting or running:
            ready = [unit for unit in waiting if done.issuperset(units[unit])]
            # The longest first, so that none is left alone at the end.
            for unit in sorted(ready, key=lambda unit: unit.cost, reverse=True)[
                : jobs - len(running)
            ]:
                waiting.remove(unit)
                with _ctrl_c_held():
                    running[pool.submit(_run_in_child, workspace, unit)] = unit
                watcher.at(unit, 0.0)
            finished, _ = wait(running, timeout=_SILENCE, return_when=FIRST_COMPLETED)
            while not messages.empty():
                watcher.at(*messages.get())
            for future in finished:
                unit = running.pop(future)
                record = future.result()
                done.add(unit)
                yield unit, record
    except (KeyboardInterrupt, GeneratorExit):
        # Nobody waits for what is at work: it goes on next time, as after a kill.
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Start children that Ctrl-C, which reaches all of a terminal, does not interrupt.

    They inherit the mask from their first moment on, and are ended by the process that reads it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_messages: Any = None  # of a child: where it tells how far it is


def _start_child(messages: Any, parent: int) -> None:
    """Prepare a child: one thread, and no life without the parent."""
    import torch

    global _messages
    _messages = messages
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SILENCE)
    os._exit(1)  # the parent was killed: nobody waits for the result


def _run_in_child(workspace: Workspace[U], unit: U) -> dict[str, Any]:
    told = time.monotonic()

    def report(share: float) -> None:
        nonlocal told
        if time.monotonic() - told >= _SILENCE:
            told = time.monotonic()
            _messages.put((unit, share))

    return workspace.run(unit, report)
