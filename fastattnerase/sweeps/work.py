"""Shards of a sweep, from file to record: what every engine has its workers do."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from fastattnerase.backends import choose
from fastattnerase.dumps.manifest import Shard
from fastattnerase.dumps.reading import Dump, open_batches
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import Erased, erased, tables_of
from fastattnerase.sweeps.parts import PartWriter
from fastattnerase.sweeps.reading import DamagedError, ahead, read_chunks
from fastattnerase.sweeps.records import ShardRecord, write_shard
from fastattnerase.sweeps.transfer import Moved, Mover, taken_off


@dataclass(frozen=True)
class Job:
    """What a worker needs to know; it is sent to other processes and machines.

    Attributes:
        dump: folder of the dump.
        out: folder of the sweep.
        config: of the experiment.
        device: where to compute: `cpu`, `cuda` or `cuda:N`; of Ray `auto`, too.
        threads: of the engine on the CPU; as many as torch takes where it is None.
    """

    dump: Path
    out: Path
    config: Config
    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True)
class _End:
    """There are no further batches of a shard.

    Attributes:
        reason: why it is damaged; None where it is whole.
    """

    reason: str | None = None


class Worker:
    """Erases shards of a dump, one after another, each the same whoever does it.

    Args:
        job: dump, options and where results go.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def _dump(self) -> Dump:
        return open_batches(self.job.dump)

    @cached_property
    def _drops(self) -> bool:
        """Whether the file of a shard is dropped from the page cache once it is swept.

        So it is where the dump has more than half the bytes of the machine's memory: it would push
        out all else, and its beginning before anybody read it again. New pages cost more than those
        that have just been given back.
        """
        if not hasattr(os, "posix_fadvise"):
            return False
        try:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError):  # the system does not tell
            return False
        size = sum(shard.bytes for shard in self._dump.manifest.shards)
        return 2 * size > memory > 0

    @cached_property
    def _engine(self) -> str:
        """Name what computes: of one of another name the last bits may be others."""
        device = torch.device(self.job.device).type
        name = choose(self.job.config.backend, device).name
        if name == "cpu":
            from fastattnerase import _C

            return f"cpu-{_C.cpu_variant()}"
        return name if name == device else f"{name}-{device}"

    @cached_property
    def _mover(self) -> Mover:
        return Mover(self.job.device)

    def run(self, shard: Shard) -> ShardRecord:
        """Erase a shard and write its parts and its record; a damaged one is set aside.

        Raises:
            RunError: no dump at the job's path.
            OSError: the results cannot be written, as where the disk is full; nothing of the shard
                is there then.
        """
        [record] = self.run_all([shard])
        return record

    def run_all(self, shards: Sequence[Shard]) -> Generator[ShardRecord, None, None]:
        """Erase shards one after another, see `run`; yield the record of each once it is written.

        Three threads: one reads, one has the engine erase, this one makes and writes tables. The
        first two go on with the next shard while this one ends the files of a shard.
        """
        if self.job.threads is not None:
            torch.set_num_threads(self.job.threads)
        with closing(ahead(self._erase(shards))) as results:
            for before, shard in zip([None, *shards], shards, strict=False):
                yield self._write(shard, results)
                if before is not None:  # this shard's file is mapped until another is begun
                    self._drop(before)
        for last in shards[-1:]:
            self._drop(last)

    def _drop(self, shard: Shard) -> None:
        """Drop the file of a shard that is swept from the page cache, see `_drops`."""
        if self._drops:
            # A file that cannot be opened has been set aside with its reason.
            with suppress(OSError), open(self.job.dump / shard.file, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _write(self, shard: Shard, results: Iterator[Erased | _End]) -> ShardRecord:
        """Write the parts and the record of the shard whose results come next."""
        record = ShardRecord(
            shard.name, "aside", "", shard.instances, shard.items, first_row=shard.first_row
        )
        with PartWriter(self.job.out, shard.name) as writer:
            row = shard.first_row
            for found in results:
                if isinstance(found, _End):
                    if found.reason is None:
                        record = replace(
                            record, state="done", tables=writer.finish(), engine=self._engine
                        )
                    else:
                        record = replace(record, reason=found.reason)
                    break
                writer.append(tables_of(found, self.job.config, first_row=row, with_curves=False))
                row += len(found.chunk.batch)
        write_shard(self.job.out, record)
        return record

    def _read(self, shards: Iterable[Shard]) -> Iterator[Moved | _End]:
        for shard in shards:
            try:
                for chunk in read_chunks(self._dump, shard):
                    yield self._mover(chunk)
            except DamagedError as error:
                yield _End(str(error))
            else:
                yield _End()

    def _erase(self, shards: Iterable[Shard]) -> Iterator[Erased | _End]:
        """Yield what the engine finds, a batch late: a GPU works on one while tables are made."""
        before = None
        with closing(ahead(self._read(shards))) as batches:
            for batch in batches:
                now = None
                if isinstance(batch, Moved):
                    found = erased(batch.ready(), self.job.config, batch.host.batch)
                    now = taken_off(found, batch.host)
                if before is not None:
                    yield before.wait()
                if isinstance(batch, _End):
                    yield batch
                before = now
