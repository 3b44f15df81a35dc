"""A dump of what is read instance by instance: a trained model on its data, or arrays in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fastattnerase.batch import AttentionBatch
from fastattnerase.dumps.manifest import Manifest
from fastattnerase.dumps.writing import Beside, Options, Writer
from fastattnerase.runs.progress import Report, silent
from fastattnerase.sources import DOCUMENTS, Source

WRITING = "writing shards"

# From the number of the first instance that is wanted to the batches from there on.
Reader = Callable[[int], Iterable[tuple[AttentionBatch, Beside]]]


def make_dump(
    read: Reader, total: int, folder: Path, options: Options, report: Report = silent
) -> Manifest:
    """Write a dump, or go on with it; a finished one is returned as it is.

    It must be of the same origin, form and names of classes; its files may have another size.

    Args:
        read: gives the instances from a number on.
        total: how many there are, 0 where that is unknown.
        folder: of the dump.
        options: see `save_batches`; `made_by` says what the instances come from.
        report: told how many instances are written.

    Returns:
        The manifest.

    Raises:
        RunError: as of `save_batches`.
    """
    with Writer(folder, options) as writer:
        if writer.finished is not None:
            return writer.finished
        done = writer.instances
        report(WRITING, done, total)
        for batch, beside in read(done):
            writer.add(batch, beside)
            done += len(batch)
            report(WRITING, done, total)
        return writer.finish()


def reader_of(source: Source) -> Reader:
    """Read the instances of a source of experiments.

    Batches begin where they would in a call that was not interrupted: what a model computes
    depends, by rounding, on the texts that it is given together.
    """

    def read(start: int) -> Iterator[tuple[AttentionBatch, Beside]]:
        row = start // DOCUMENTS * DOCUMENTS
        for chunk in source.chunks(row):
            skip = min(max(start - row, 0), len(chunk.batch))
            row += len(chunk.batch)
            if skip == len(chunk.batch):
                continue
            beside = {"labels": chunk.gold, "logits": chunk.logits}
            yield (
                chunk.batch[skip:],
                {name: None if x is None else x[skip:] for name, x in beside.items()},
            )

    return read
