"""Builds and loads `_emu`, the CUDA kernels on the host emulator; see kernels/README.md.

register(load())        # the backend "cuda-emulated" takes tensors on the CPU
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fastattnerase.backends.cuda import CudaBackend

if TYPE_CHECKING:  # a script finds only what lies beside it
    from gpus import Gpu

ROOT = Path(__file__).resolve().parents[2]
# Another build folder and source tree, for sanitizers and mutation checks.
BUILD = Path(os.environ.get("FASTATTNERASE_EMU_BUILD", ROOT / "build" / "emu"))
SOURCE = Path(os.environ.get("FASTATTNERASE_EMU_SOURCE", ROOT))


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is needed to build the emulator: pip install {name}")
    return found


def build(folder: Path = BUILD, source: Path = SOURCE, sanitize: str = "") -> Path:
    """Bring `_emu` up to date and say where it is."""
    import pybind11

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one run may come here together
        if not (folder / "build.ninja").exists():
            command = [
                _tool("cmake"),
                "-S",
                str(source / "kernels" / "cuda" / "emulator"),
                "-B",
                str(folder),
                "-G",
                "Ninja",
                f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}",
                f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-DFASTATTNERASE_SANITIZE={sanitize}",
            ]
            _run(command)
        _run([_tool("cmake"), "--build", str(folder)])
    return folder / f"_emu{sysconfig.get_config_var('EXT_SUFFIX')}"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


@cache
def module() -> ModuleType:
    """The native module, built where needed."""
    spec = importlib.util.spec_from_file_location("_emu", build())
    if spec is None or spec.loader is None:
        raise RuntimeError("the built emulator module cannot be imported")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def use(gpu: Gpu) -> None:
    """Give the emulated device the limits of a GPU."""
    module().set_device(gpu.multiprocessors, gpu.shared_of_block, gpu.quarter)


@cache
def load() -> CudaBackend:
    """The backend "cuda-emulated"."""
    return CudaBackend("cuda-emulated", module())


if __name__ == "__main__":
    folder, sanitizers = sys.argv[1:] or (BUILD, "")
    build(ROOT / folder, sanitize=sanitizers)
