"""One shard of a sweep, from its file to its record: what every engine has its workers do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from fastattnerase.dumps.manifest import Shard
from fastattnerase.dumps.reading import Dump, open_batches
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import Erased, erased, tables_of
from fastattnerase.sweeps.parts import PartWriter
from fastattnerase.sweeps.reading import DamagedError, ahead, read_chunks
from fastattnerase.sweeps.records import ShardRecord, write_shard
from fastattnerase.sweeps.transfer import Mover, taken_off


@dataclass(frozen=True)
class Job:
    """What a worker needs to know; it is sent to other processes and machines.

    Attributes:
        dump: folder of the dump.
        out: folder of the sweep.
        config: of the experiment.
        device: where to compute: `cpu`, `cuda` or `cuda:N`.
        threads: of the engine on the CPU; as many as torch takes where it is None.
    """

    dump: Path
    out: Path
    config: Config
    device: str = "cpu"
    threads: int | None = None


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
    def _mover(self) -> Mover:
        return Mover(self.job.device)

    def run(self, shard: Shard) -> ShardRecord:
        """Erase a shard and write its parts and its record; a damaged one is set aside.

        Raises:
            RunError: no dump at the job's path.
            OSError: the results cannot be written, as where the disk is full; nothing of the shard
                is there then.
        """
        if self.job.threads is not None:
            torch.set_num_threads(self.job.threads)
        try:
            # Three threads: one reads, one has the engine erase, this one makes and writes tables.
            with (
                PartWriter(self.job.out, shard.name) as writer,
                closing(ahead(self._erase(shard))) as results,
            ):
                row = shard.first_row
                for found in results:
                    tables = tables_of(found, self.job.config, first_row=row, with_curves=False)
                    writer.append(tables)
                    row += len(found.chunk.batch)
                record = ShardRecord(
                    shard.name, "done", "", shard.instances, shard.items, writer.finish()
                )
        except DamagedError as error:
            record = ShardRecord(shard.name, "aside", str(error), shard.instances, shard.items)
        write_shard(self.job.out, record)
        return record

    def _erase(self, shard: Shard) -> Iterator[Erased]:
        """Yield what the engine finds, a batch late: a GPU works on one while tables are made."""
        before = None
        moved = (self._mover(chunk) for chunk in read_chunks(self._dump, shard))
        with closing(ahead(moved)) as batches:
            for batch in batches:
                found = erased(batch.ready(), self.job.config, batch.host.batch)
                now = taken_off(found, batch.host)
                if before is not None:
                    yield before.wait()
                before = now
        if before is not None:
            yield before.wait()
