"""A pytest plugin: sanitize.sh's build of the native module in the place of the installed one."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def _use(folder: str) -> None:
    (library,) = Path(folder).glob("_C*.so")
    spec = importlib.util.spec_from_file_location("fastattnerase._C", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fastattnerase._C"] = module
    spec.loader.exec_module(module)


_use(os.environ["FASTATTNERASE_SANITIZED_EXTENSION"])
