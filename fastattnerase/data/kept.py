"""Encoded documents beside what is made of them, so that going on encodes none again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from fastattnerase.data.dataset import Dataset
from fastattnerase.data.documents import PackedDocuments, pack
from fastattnerase.data.queries import LeftOut
from fastattnerase.extras import needs

KEPT = "documents.safetensors"
_FORMAT = 1
_COUNTS = ("truncated", "too_long", "spans_cut", "spans_unfit", "first_unfit")  # of `Dataset`
_PIECE = 1 << 20  # bytes of a file that are read at a time


class Kept(NamedTuple):
    """Documents with what else their reading gave.

    Attributes:
        dataset: the documents.
        about: what a run's record says of them, JSON-able; `dropped` counts what was left out.
    """

    dataset: Dataset
    about: dict[str, Any]


def identity(files: Iterable[Path], sentences: str, **state: Any) -> dict[str, str]:
    """Say what encoded documents depend on: the contents of files, options and versions.

    Args:
        files: the files of texts; of folders every file in them.
        sentences: what cuts texts, as in `tokenise`; a pipeline counts with its own files.
        state: JSON-able: vocabulary, columns and other options.

    Returns:
        What `keep` writes and `read_kept` compares.

    Example:
        >>> identity([], "rules", max_tokens=9) == identity([], "rules", max_tokens=8)
        False
    """
    digest = blake2b(digest_size=16)
    versions = {name: version(name) for name in ("fastattnerase", "spacy")}
    with suppress(PackageNotFoundError, ValueError):  # rules, or a folder
        versions[sentences] = version(sentences)
    digest.update(json.dumps([_FORMAT, versions, sentences, state], sort_keys=True).encode())
    for path in (*files, Path(sentences)):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                digest.update(f"|{file.relative_to(path)}|{file.stat().st_size}|".encode())
                with open(file, "rb") as opened:
                    while piece := opened.read(_PIECE):
                        digest.update(piece)
    return {"identity": digest.hexdigest()}


def keep(folder: Path, kept: Kept, known: Mapping[str, str]) -> None:
    """Write encoded documents into a folder, as a whole or not at all.

    Args:
        folder: made where it is missing.
        kept: the documents.
        known: their `identity`.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    with needs("text"):
        from safetensors.numpy import save

    dataset, dropped = kept.dataset, kept.about.get("dropped")
    about = {
        "about": kept.about,
        "first": dropped.first if isinstance(dropped, LeftOut) else {},
        "counts": {name: getattr(dataset, name) for name in _COUNTS},
    }
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{KEPT}.partial"
    content = save(pack(dataset.documents), {**known, "about": json.dumps(about)})
    try:  # of a full disk the library's own files would give an error without a number
        partial.write_bytes(content)
        partial.replace(folder / KEPT)
    finally:
        partial.unlink(missing_ok=True)


def read_kept(folder: Path, known: Mapping[str, str]) -> Kept | None:
    """Read what `keep` wrote, where it is there, whole, and of the same files and options.

    Args:
        folder: where it was kept.
        known: the `identity` of what is wanted.

    Returns:
        The documents; None where the texts have to be read.
    """
    with needs("text"):
        from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / KEPT, framework="np") as file:
            metadata = file.metadata() or {}
            if {name: metadata.get(name) for name in known} != dict(known):
                return None
            columns = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):  # not there, or cut off: reading the texts gives the same
        return None
    found = json.loads(metadata["about"])
    about = found["about"]
    if "dropped" in about:
        dropped = LeftOut()
        dropped.update(about["dropped"])
        dropped.first.update(found["first"])
        about["dropped"] = dropped
    return Kept(Dataset(PackedDocuments(columns), **found["counts"]), about)
