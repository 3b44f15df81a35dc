"""A study in a folder: its units, which of them are done, and how one is run to its end."""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from fastattnerase.runs import rundir
from fastattnerase.runs.lock import LOCK, alone
from fastattnerase.runs.records import read_record

MANIFEST = "manifest.json"

Report = Callable[[float], None]  # called with the share of the unit that is done


@dataclass(frozen=True)
class Unit:
    """A step of a study; two with the same key are the same.

    Attributes:
        key: its name, and its folder in the workspace: `train/imdb/HANrnn`.
        make: called with the unit's folder and a function to tell which share is done; writes files
            and returns the unit's numbers, JSON-able. What it finds in the folder is left of a call
            that was killed. It is sent to other processes: a method, or `functools.partial` of one.
        state: gives what the numbers depend on, JSON-able. A unit that was made in another state is
            refused.
        needs: keys of the units that must be done before it.
        cost: how long it takes, roughly, against others.
        renewed: whether a unit of another state is made anew instead of refused.
        about: what the manifest says of it.
    """

    key: str
    make: Callable[[Path, Report], Mapping[str, Any]] = field(compare=False, repr=False)
    state: Callable[[], dict[str, Any]] = field(compare=False, repr=False)
    needs: tuple[str, ...] = field(default=(), compare=False)
    cost: float = field(default=1.0, compare=False)
    renewed: bool = field(default=False, compare=False)
    about: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Record:
    """What a finished unit left.

    Attributes:
        seconds: that its last call took.
        numbers: what its `make` returned.
    """

    seconds: float
    numbers: dict[str, Any]


@dataclass(frozen=True)
class _File:
    """What the file of a finished unit holds.

    Attributes:
        digest: of the state.
        seconds: that its last call took.
        numbers: what its `make` returned.
        state: what the numbers depend on; files of the first version have the digest alone.
    """

    digest: str
    seconds: float
    numbers: dict[str, Any]
    state: dict[str, Any] | None = None


class Workspace(ABC):
    """A study in a folder. A study is a subclass: it lists its units, and has a method for each.

    A unit's folder gets the file `record_name` last; what it holds before belongs to an unfinished
    unit. A killed study goes on where it stood.

    Args:
        out: the folder of everything that is made.

    Example:
        >>> import tempfile
        >>> class Squares(Workspace):
        ...     def units(self):
        ...         state = lambda: {"numbers": [1, 2, 3]}
        ...         return [Unit("squares", self.square, state)]
        ...     def square(self, folder, report):
        ...         return {"squares": [1, 4, 9]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     workspace = Squares(Path(folder))
        ...     [unit] = workspace.units()
        ...     workspace.run(unit, lambda share: None).numbers
        {'squares': [1, 4, 9]}
    """

    record_name: ClassVar[str] = "done.json"
    scratch: ClassVar[tuple[str, ...]] = ()  # folders of a unit that go once it is done

    def __init__(self, out: Path) -> None:
        self.out = out

    @abstractmethod
    def units(self) -> list[Unit]:
        """List the units, each after those that it needs."""

    def folder(self, key: str) -> Path:
        """Give the folder of a unit."""
        return self.out.joinpath(*key.lower().split("/"))

    def digest(self, unit: Unit) -> str:
        """Give the hash of a unit's state: stands for it in the states of units after it."""
        text = json.dumps(unit.state(), sort_keys=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    # --- one unit --------------------------------------------------------------------------------

    def done(self, unit: Unit) -> Record | None:
        """Read what a finished unit left; None where it is not finished.

        Raises:
            RunError: the folder holds a unit that was made with other options or of other data.
        """
        path = self.folder(unit.key) / self.record_name
        if not path.exists():
            return None
        content = rundir.read_json(path)
        record = self.read_record(content, path)
        changed = self.changes(content, unit)
        if changed is None:
            return record
        if unit.renewed:
            return None
        raise rundir.RunError(
            f"{path.parent} was made with other options, data or device"
            f"{': ' if changed else ''}{'; '.join(changed)}; choose another --out, or delete that "
            "folder to make it anew"
        )

    def fits(self, unit: Unit) -> bool:
        """Say whether a unit is finished, with the options and data of now."""
        try:
            return self.done(unit) is not None
        except rundir.RunError:
            return False

    def run(self, unit: Unit, report: Report) -> Record:
        """Run one unit to its end, or go on with it.

        Args:
            unit: whose needs are done.
            report: called now and then with the share that is done.

        Returns:
            Its record, with the seconds of this call.
        """
        folder = self.folder(unit.key)
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder, wait=True):  # a killed call's child may work there for a moment
            record = self.done(unit)
            if record is None:
                started = time.monotonic()
                numbers = dict(unit.make(folder, report))
                record = Record(time.monotonic() - started, numbers)
                rundir.write_json(folder / self.record_name, self.write_record(unit, record))
            for name in self.scratch:
                shutil.rmtree(folder / name, ignore_errors=True)  # not every unit has them
            return record

    # --- what the files hold ---------------------------------------------------------------------

    def write_record(self, unit: Unit, record: Record) -> dict[str, Any]:
        """Say what the record's file holds."""
        return {
            "unit": unit.key,
            "digest": self.digest(unit),
            "state": unit.state(),
            "seconds": round(record.seconds, 2),
            "numbers": record.numbers,
        }

    def read_record(self, content: dict[str, Any], path: Path) -> Record:
        """Read a record's file.

        Raises:
            RunError: it is damaged.
        """
        file = read_record(_File, content, path)
        return Record(file.seconds, file.numbers)

    def changes(self, content: dict[str, Any], unit: Unit) -> list[str] | None:
        """Compare the state in a record's file with that of now: what differs, None for nothing."""
        if content["digest"] == self.digest(unit):
            return None
        # Records of the first version have a digest alone.
        now = json.loads(json.dumps(unit.state()))
        return differences(content["state"], now) if "state" in content else []

    def describe(self, numbers: Mapping[str, Any]) -> str:
        """Say what a finished unit found, in a few words, for who watches."""
        return ""

    def about(self) -> dict[str, Any]:
        """Say what the manifest holds beside the units, versions and machine."""
        return {}

    def listed(self) -> list[Unit]:
        """List the units of the manifest."""
        return self.units()

    def write_manifest(self) -> dict[str, Any]:
        """Write `manifest.json`: every unit with its state, time, numbers and files."""
        units = [self._listing(unit) for unit in self.listed()]
        manifest = self.about() | {"units": units}
        rundir.write_json(self.out / MANIFEST, manifest | rundir.provenance())
        return manifest

    def _listing(self, unit: Unit) -> dict[str, Any]:
        record, folder = self.done(unit), self.folder(unit.key)
        files = (path for path in folder.rglob("*") if path.is_file()) if record else ()
        return {
            "unit": unit.key,
            **unit.about,
            "done": record is not None,
            "seconds": None if record is None else record.seconds,
            "numbers": None if record is None else record.numbers,
            "folder": folder.relative_to(self.out).as_posix(),
            "files": sorted(
                path.relative_to(folder).as_posix()
                for path in files
                if path.name not in (self.record_name, LOCK)
            ),
        }


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Say which values of two states differ, by name.

    A value called `before` stands for the units before this one, and `files.NAME` for a file.

    Example:
        >>> differences({"epochs": 2, "seed": 0}, {"epochs": 3, "seed": 0})
        ['epochs is 2 there and 3 here']
    """
    if before == now:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys((*before, *now))
        nested = (
            differences(before.get(key, "unset"), now.get(key, "unset"), f"{name}.{key}".strip("."))
            for key in keys
        )
        return [text for texts in nested for text in texts]
    if name == "before":
        return ["what comes before it was made anew"]
    if name.startswith("files."):
        return [f"{name.removeprefix('files.')} has changed"]
    return [f"{name} is {before!r} there and {now!r} here"]
