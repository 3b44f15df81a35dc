"""What a dump's folder holds, and its `manifest.json`.

```
DUMP/
  manifest.json              this module's `Manifest`, written last of all
  shard-000000.safetensors   a file that `erase --tensors` reads: values, offsets, scores or
  shard-000001.safetensors   weights, head_weight, head_bias, ids; labels, logits where known
  …
```

Every shard holds whole instances, in the order in which they were given; its rows are numbered in
the dump by `Shard.first_row` on. Ids are unique in the whole dump. A folder whose writer was killed
has `shards.jsonl` instead of the manifest: a line for each whole shard.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastattnerase.plurals import counted
from fastattnerase.runs.records import read_record, to_json
from fastattnerase.runs.rundir import RunError, read_json

MANIFEST = "manifest.json"
KIND = "fastattnerase dump"
FORMAT = 1  # raised when what is written cannot be read by what was there before
JOURNAL = "shards.jsonl"  # of a dump that is being written


@dataclass(frozen=True)
class Shard:
    """One file of a dump.

    Attributes:
        file: its name in the folder, such as `shard-000000.safetensors`.
        first_row: number of its first instance in the dump.
        instances: how many it holds.
        items: how many these have together.
        bytes: size of the file.
        sha256: of the file, in hexadecimal digits.
        crc32: of the file, eight hexadecimal digits: what a sweep compares, as it takes a small
            part of the time of `sha256`; None in dumps that were written before there was one.
    """

    file: str
    first_row: int
    instances: int
    items: int
    bytes: int
    sha256: str
    crc32: str | None = None

    @property
    def name(self) -> str:
        """The file's name without its extension: names the parts of a sweep, too."""
        return self.file.partition(".")[0]


@dataclass(frozen=True)
class Manifest:
    """What is the same in all shards of a dump, and the list of these.

    Attributes:
        kind: `KIND`.
        format: `FORMAT`.
        attention: `scores` or `weights`.
        dtypes: from the name of each tensor to its type, as torch names it: `bfloat16`.
        inner: shape of an item's values, `[D]` or `[H, D]`.
        classes: names of the classes, as many as rows of the head.
        head: SHA-256 of `head_weight` and of a bias that all instances share.
        bias_by_instance: whether `head_bias` is `[B, C]`.
        head_bias: `[C]`, that all instances share; None where each has its own.
        compact: whether values are contributions to the logits and the head is the identity.
        near_ties: what near-ties are judged on: `values`, or `contributions` of a compact dump.
        instances: in all shards.
        items: in all shards.
        made_by: what the dump was made from, and the versions.
        shards: the files, in order.
    """

    kind: str
    format: int
    attention: str
    dtypes: dict[str, str]
    inner: tuple[int, ...]
    classes: tuple[str, ...]
    head: str
    bias_by_instance: bool
    head_bias: tuple[float, ...] | None
    compact: bool
    near_ties: str
    instances: int
    items: int
    made_by: dict[str, Any]
    shards: tuple[Shard, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of what results depend on: everything but what made the dump."""
        own = to_json(self)
        del own["made_by"]
        for shard in own["shards"]:
            del shard["crc32"]  # says nothing that sha256 does not, and older dumps lack it
        return hashlib.sha256(repr(sorted(own.items())).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a dump, and check that it fits together.

    Raises:
        RunError: no such folder, no manifest, another kind or format; counts that do not add up; a
            shard's file that is no name, or one twice.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise RunError(f"{folder}: given no folder, needed a dump that `fastattnerase dump` wrote")
    if not path.is_file():
        unfinished = (folder / JOURNAL).is_file()
        why = "a dump that is not finished" if unfinished else f"a folder without {MANIFEST}"
        needed = "the same command again" if unfinished else "one that `fastattnerase dump` wrote"
        raise RunError(f"{folder}: given {why}, needed {needed}")
    content = read_json(path)
    if content.get("kind") != KIND:
        raise RunError(f"{path}: given kind {content.get('kind')!r}, needed {KIND!r}")
    if content.get("format") != FORMAT:
        raise RunError(
            f"{path}: given format {content.get('format')!r}, needed {FORMAT}, which this version "
            "of fastattnerase reads"
        )
    manifest = read_record(Manifest, content, path)
    row = items = 0
    names = {""}
    for shard in manifest.shards:
        named = Path(shard.file).name == shard.file and shard.file.isprintable()
        if not named or shard.name in names:
            raise RunError(
                f"{path}: given a shard's file {shard.file!r}, needed names of files beside it, "
                "each once"
            )
        names.add(shard.name)
    for shard in manifest.shards:
        if shard.first_row != row:
            raise RunError(
                f"{path}: {shard.file}: given first_row {shard.first_row}, needed {row}, the "
                "instances of the shards before it"
            )
        row, items = row + shard.instances, items + shard.items
    if (row, items) != (manifest.instances, manifest.items):
        raise RunError(
            f"{path}: given {counted(manifest.instances, 'instance')} and "
            f"{counted(manifest.items, 'item')}, needed {row} and {items}, those of its shards"
        )
    return manifest
