"""Running a study's units, one after another or in processes side by side."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from typing import Any, Protocol

from fastattnerase.runs import rundir
from fastattnerase.runs.children import ctrl_c_held, end_with_parent
from fastattnerase.runs.lock import alone
from fastattnerase.runs.workspace import Record, Unit, Workspace

_SILENCE = 0.2  # seconds between two looks at the children


class Watcher(Protocol):
    """Who is told how far the units are; units are named by their keys."""

    def plan(self, costs: dict[str, float], done: int) -> None:
        """Units will run at these costs; so many more were finished before."""

    def at(self, key: str, share: float) -> None:
        """A unit has come so far."""

    def finished(self, key: str, record: Record) -> None:
        """A unit is finished."""


def run(workspace: Workspace, jobs: int, watcher: Watcher) -> dict[str, Any]:
    """Run all units of a workspace that are not done, as soon as those before them are.

    Args:
        workspace: the study, its data and its folder.
        jobs: processes; more than one use one thread each, one uses torch's own number.
        watcher: who is told how far the units are.

    Returns:
        The manifest; the file is brought up to date after every unit.

    Raises:
        RunError: another process is writing in the folder; what a unit raises.
    """
    if jobs < 1:
        raise rundir.RunError(f"jobs: given {jobs}, needed at least 1")
    with alone(workspace.out):
        units = workspace.units()
        left = [unit for unit in units if workspace.done(unit) is None]
        watcher.plan({unit.key: unit.cost for unit in left}, len(units) - len(left))
        workspace.write_manifest()
        runner = _here if jobs == 1 else _side_by_side
        for unit, record in runner(workspace, left, jobs, watcher):
            workspace.write_manifest()
            watcher.finished(unit.key, record)
        return workspace.write_manifest()


def _here(
    workspace: Workspace, units: list[Unit], _: int, watcher: Watcher
) -> Iterator[tuple[Unit, Record]]:
    for unit in units:  # listed after their needs
        watcher.at(unit.key, 0.0)
        yield unit, workspace.run(unit, partial(watcher.at, unit.key))


def _side_by_side(
    workspace: Workspace, units: list[Unit], jobs: int, watcher: Watcher
) -> Iterator[tuple[Unit, Record]]:
    # Forked children of a process with threads can hang, so they are started anew.
    context = multiprocessing.get_context("spawn")
    messages = context.SimpleQueue()
    waiting = list(units)
    pending = {unit.key for unit in units}
    running: dict[Future[Record], Unit] = {}
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, context, _start_child, (messages, os.getpid()))
    try:
        while waiting or running:
            ready = [unit for unit in waiting if pending.isdisjoint(unit.needs)]
            # The longest first, so that none is left alone at the end.
            for unit in sorted(ready, key=lambda unit: unit.cost, reverse=True)[
                : jobs - len(running)
            ]:
                waiting.remove(unit)
                with ctrl_c_held():
                    running[pool.submit(_run_in_child, workspace, unit)] = unit
                watcher.at(unit.key, 0.0)
            finished, _ = wait(running, timeout=_SILENCE, return_when=FIRST_COMPLETED)
            while not messages.empty():
                watcher.at(*messages.get())
            for future in finished:
                unit = running.pop(future)
                record = future.result()
                pending.remove(unit.key)
                yield unit, record
    except (KeyboardInterrupt, GeneratorExit):
        # Nobody waits for what is at work: it goes on next time, as after a kill.
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_messages: Any = None  # of a child: where it tells how far it is


def _start_child(messages: Any, parent: int) -> None:
    """Prepare a child: one thread, and no life without the parent."""
    import torch

    global _messages
    _messages = messages
    torch.set_num_threads(1)
    end_with_parent(parent)


def _run_in_child(workspace: Workspace, unit: Unit) -> Record:
    told = time.monotonic()

    def report(share: float) -> None:
        nonlocal told
        if time.monotonic() - told >= _SILENCE:
            told = time.monotonic()
            _messages.put((unit.key, share))

    return workspace.run(unit, report)
