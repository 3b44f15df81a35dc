"""The list of studies, from which the command line and the tests learn of one.

A study is a folder here: `options.py` (what may be varied), `units.py` (the steps and how each is
done), `tables.py`, `report.py`, templates, and whatever else it needs. Nothing is imported until
it is asked for, so that `--help` answers soon. `compare`, which reproduces no paper but is asked of
any model, is a folder here and a command of its own; what several share are the modules beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Study:
    """A study in the list.

    Attributes:
        name: Of its command, `fastattnerase reproduce NAME`.
        package: Its folder, as a package.
        workspace: The `Workspace` in its module `units`.
        page: The file of its report, in the folder `report` of what it writes.
        command: `module:name` of a command of its own; by default one is made of the fields of
            `Options` in its module `options`.
    """

    name: str
    package: str
    workspace: str
    page: str = "report.html"
    command: str | None = None

    def load(self, module: str, name: str) -> Any:
        """Import a name from one of its modules."""
        return getattr(import_module(f"{self.package}.{module}"), name)


STUDIES = (
    Study(
        "serrano-smith",
        "fastattnerase.studies.serrano_smith",
        "SerranoSmith",
        command="fastattnerase.cli.reproduce_serrano_smith:serrano_smith",
    ),
    Study(
        "wen",
        "fastattnerase.studies.wen",
        "Wen",
        page="wen.html",
        command="fastattnerase.cli.reproduce_wen:wen",
    ),
    Study(
        "wiegreffe-pinter",
        "fastattnerase.studies.wiegreffe_pinter",
        "WiegreffePinter",
        page="wiegreffe-pinter.html",
        command="fastattnerase.cli.reproduce_wiegreffe_pinter:wiegreffe_pinter",
    ),
    Study(
        "jain-wallace",
        "fastattnerase.studies.jain_wallace",
        "JainWallace",
    ),
)
