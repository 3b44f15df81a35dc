"""`fastattnerase info`."""

from __future__ import annotations

import importlib
from typing import Any

from rich.table import Table

from fastattnerase.cli.console import out
from fastattnerase.cli.options import command


@command("fastattnerase info")
def info() -> None:
    """Print versions, build, instruction sets, and what can run here and why the rest cannot."""
    import torch

    import fastattnerase as fae
    from fastattnerase.runs.rundir import provenance

    about = provenance()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for package, version in about["versions"].items():
        table.add_row(package, version)
    for key, value in about["machine"].items():
        table.add_row(key, "none" if value is None else str(value))
    if torch.cuda.is_available():
        table.add_row("compute capability", ".".join(map(str, torch.cuda.get_device_capability())))
    try:
        native: Any = importlib.import_module("fastattnerase._C")
    except ImportError as error:
        table.add_row("native module", f"cannot be loaded: {error}")
    else:
        cuda = "without CUDA kernels"
        if native.has_cuda:
            cuda = f"with CUDA kernels for {native.cuda_compiled_for()}"
        table.add_row("native module", f"{native.version}, built {cuda}")
        here = native.cpu_variants()
        sets = f"{', '.join(here)}; in use: {native.cpu_variant()}"
        if others := [name for name in native.cpu_variants_built() if name not in here]:
            sets += f"; built, not on this machine: {', '.join(others)}"
        table.add_row("instruction sets", sets)
    for backend, reasons in fae.backends().items():
        table.add_row(
            f"backend {backend}", "cannot run: " + "; ".join(reasons) if reasons else "ok"
        )
    out.print(table)
