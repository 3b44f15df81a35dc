"""Files that are either complete or not there: safetensors for numbers, JSON for the rest."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fastattnerase.extras import needs
from fastattnerase.models.errors import ModelError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a restart after a crash, sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or made, before anything is computed for it.

    Raises:
        OSError: naming the folder, or the nearest one above it that is there.
    """
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
    try:  # permissions are not enough: some file systems take no folders
        os.rmdir(tempfile.mkdtemp(dir=nearest))
    except OSError as error:
        raise OSError(
            error.errno, f"cannot be written to ({error.strerror})", str(nearest)
        ) from error


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ModelError: no such file, or damaged.
    """
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged ({error})") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} is damaged: it holds no JSON object")
    return values


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors atomically as safetensors."""
    with needs("text"):
        from safetensors.torch import save
    write_atomically(path, save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Raises:
        ModelError: no such file, or damaged.
    """
    with needs("text"):
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    try:
        return load_file(path)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (SafetensorError, OSError) as error:  # OSError: a folder, or not to be read
        raise ModelError(f"{path} is damaged ({error})") from error
