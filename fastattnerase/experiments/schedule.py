"""Running a study's units, one after another or in processes side by side."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fastattnerase.experiments import rundir
from fastattnerase.experiments.stages import Unit, Workspace

# Relative costs: how long the units of a small study took against each other.
_STAGE_COST = {"prepare": 1.0, "embed": 0.3, "erase": 0.7, "report": 1.0}
_TRAIN_COST = {"rnn": 5.0, "conv": 3.0, "noenc": 1.5}
_SILENCE = 0.2  # seconds between two looks at the children


class Watcher(Protocol):
    """Who is told how far the units are."""

    def plan(self, costs: dict[Unit, float], done: int) -> None:
        """Units will run at these costs; so many more were finished before."""

    def at(self, unit: Unit, share: float) -> None:
        """A unit has come so far."""

    def finished(self, unit: Unit, record: dict[str, Any]) -> None:
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
        RunError: another call works in the folder; what a unit raises.
    """
    if jobs < 1:
        raise rundir.RunError(f"jobs is {jobs}; at least 1 is needed")
    workspace.out.mkdir(parents=True, exist_ok=True)
    with _alone(workspace.out):
        units = workspace.units()
        done = {unit for unit in units if workspace.done(unit) is not None}
        left = {unit: _cost(unit) for unit in units if unit not in done}
        watcher.plan(left, len(done))
        workspace.write_manifest()
        runner = _here if jobs == 1 else _side_by_side
        for unit, record in runner(workspace, units, done, jobs, watcher):
            workspace.write_manifest()
            watcher.finished(unit, record)
        return workspace.write_manifest()


def _cost(unit: Unit) -> float:
    if unit.stage != "train":
        return _STAGE_COST[unit.stage]
    return next(cost for encoder, cost in _TRAIN_COST.items() if unit.model.endswith(encoder))


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
    workspace: Workspace, units: dict[Unit, list[Unit]], done: set[Unit], _: int, watcher: Watcher
) -> Iterator[tuple[Unit, dict[str, Any]]]:
    for unit in units:  # listed after their needs
        if unit not in done:
            watcher.at(unit, 0.0)
            yield unit, workspace.run(unit, lambda share, unit=unit: watcher.at(unit, share))


def _side_by_side(
    workspace: Workspace,
    units: dict[Unit, list[Unit]],
    done: set[Unit],
    jobs: int,
    watcher: Watcher,
) -> Iterator[tuple[Unit, dict[str, Any]]]:
    # Forked children of a process with threads can hang, so they are started anew.
    context = multiprocessing.get_context("spawn")
    messages = context.SimpleQueue()
    done = set(done)
    waiting = [unit for unit in units if unit not in done]
    running: dict[Future[dict[str, Any]], Unit] = {}
    pool = ProcessPoolExecutor(jobs, context, _start_child, (messages, os.getpid()))
    try:
        while waiting or running:
            ready = [unit for unit in waiting if done.issuperset(units[unit])]
            # The longest first, so that none is left alone at the end.
            for unit in sorted(ready, key=_cost, reverse=True)[: jobs - len(running)]:
                waiting.remove(unit)
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
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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


def _run_in_child(workspace: Workspace, unit: Unit) -> dict[str, Any]:
    told = time.monotonic()

    def report(share: float) -> None:
        nonlocal told
        if time.monotonic() - told >= _SILENCE:
            told = time.monotonic()
            _messages.put((unit, share))

    return workspace.run(unit, report)
