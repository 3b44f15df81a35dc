"""Reading a dump: batches of bounded size in a fixed order, from files mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import SupportsIndex

from fastattnerase.batch import AttentionBatch
from fastattnerase.dumps.checksums import digest_of
from fastattnerase.dumps.facts import facts_of
from fastattnerase.dumps.manifest import Manifest, Shard, read_manifest
from fastattnerase.plurals import counted
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk, TensorSource


def open_batches(folder: Path | str, *, verify: bool = False) -> Dump:
    """Open a dump that `save_batches` or `fastattnerase dump` wrote.

    Args:
        folder: of the dump.
        verify: whether the checksum of each file is compared before its first batch is given.

    Returns:
        The dump: it is gone through batch by batch, in the order of its instances, as often as is
        wanted; `dump[2]` and `dump[2:5]` are dumps of some of its shards.

    Raises:
        RunError: no dump, an unfinished one, or one of another format; a shard, once it is read,
            that is damaged or does not fit the manifest.

    Example:
        >>> import tempfile, torch
        >>> import fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.eye(3), torch.tensor([0, 2, 3]), scores=torch.zeros(3),
        ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = fae.save_batches([batch], folder, shard_bytes=1)
        ...     dump = fae.open_batches(folder, verify=True)
        ...     len(dump), dump.instances, [read.num_items for read in dump[1]]
        (2, 2, [1])
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    return Dump(folder, manifest, manifest.shards, verify=verify)


class Dump:
    """Shards of a dump, in order; made by `open_batches`.

    Attributes:
        folder: of the dump.
        manifest: of the whole dump.
        shards: what this goes through.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, shards: tuple[Shard, ...], *, verify: bool
    ) -> None:
        self.folder, self.manifest, self.shards = folder, manifest, shards
        self._verify = verify

    def __len__(self) -> int:
        """The number of shards."""
        return len(self.shards)

    def __getitem__(self, wanted: SupportsIndex | slice) -> Dump:
        """The dump of one shard, or of a slice of the shards."""
        if not isinstance(wanted, slice):
            number = range(len(self))[wanted]  # raises what a list does
            wanted = slice(number, number + 1)
        return Dump(self.folder, self.manifest, self.shards[wanted], verify=self._verify)

    @property
    def instances(self) -> int:
        """Instances in these shards."""
        return sum(shard.instances for shard in self.shards)

    @property
    def items(self) -> int:
        """Items in these shards."""
        return sum(shard.items for shard in self.shards)

    def __iter__(self) -> Iterator[AttentionBatch]:
        """Yield batches of at most 65,536 items and 2,048 instances, or of one longer instance."""
        return (chunk.batch for chunk in self.chunks())

    def chunks(self) -> Iterator[Chunk]:
        """Yield batches with what is known beside them: labels, and the model's decisions."""
        for shard in self.shards:
            if self._verify:
                self.verify(shard)
            yield from self.open(shard).chunks(0)

    def verify(self, shard: Shard) -> None:
        """Compare the checksum of a shard's file with the manifest's.

        Raises:
            RunError: they differ.
            OSError: the file cannot be read.
        """
        path = self.folder / shard.file
        check_digest(path, "SHA-256", digest_of(path), shard.sha256)

    def open(self, shard: Shard) -> TensorSource:
        """Open the file of a shard, and see that it is the one that the manifest tells of.

        Raises:
            RunError: `erase --tensors` would refuse the file, or it does not fit the manifest.
            OSError: the file may not be read.
        """
        path = self.folder / shard.file
        if path.is_file() and path.stat().st_size != shard.bytes:
            raise RunError(
                f"{path}: given {counted(path.stat().st_size, 'byte')}, needed {shard.bytes} as in "
                "the manifest"
            )
        source = TensorSource(path)
        own = facts_of(source) | {"instances": len(source), "items": int(source.offsets[-1])}
        needed = {
            **{name: getattr(self.manifest, name) for name in own},
            "instances": shard.instances,
            "items": shard.items,
        }
        for name, given in own.items():
            if given != needed[name]:
                raise RunError(
                    f"{path}: {name}: given {_told(given)}, needed {_told(needed[name])} as in the "
                    "manifest"
                )
        return source


def check_digest(path: Path, kind: str, digest: str, needed: str) -> None:
    """Refuse a file whose checksum is not the manifest's."""
    if digest != needed:
        raise RunError(
            f"{path}: given a file with {kind} {_told(digest)}, needed {_told(needed)} as in the "
            "manifest: it is damaged"
        )


def _told(value: object) -> str:
    """Write a value for an error: of a checksum the beginning."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in sorted(value.items()))
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value[:16]}…" if isinstance(value, str) and len(value) == 64 else str(value)
