"""The documents that a run keeps, to look at: reading them needs no engine."""

from __future__ import annotations

from dataclasses import dataclass

from fastattnerase.report.heatmap import MINIMAL, HeatMap, Order
from fastattnerase.runs import rundir
from fastattnerase.runs.records import read_record
from fastattnerase.studies.serrano_smith.instance_tables import read_columns
from fastattnerase.studies.serrano_smith.result import Result

DOCUMENTS = "documents.json"  # beside result.json; runs of earlier versions lack it
KEPT = 60  # documents at most, where no more exhibits are asked for


@dataclass(frozen=True)
class Documents:
    """What documents.json holds: those of the exhibits first."""

    documents: tuple[HeatMap, ...]


def documents(result: Result) -> tuple[HeatMap, ...]:
    """Read the documents that a run keeps; of an earlier version's run, what it says of exhibits.

    Args:
        result: a finished run.

    Returns:
        The documents, the exhibits first.

    Raises:
        RunError: the file is damaged.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.documents import documents
        >>> from fastattnerase.studies.serrano_smith.result import load
        >>> [one.items for one in documents(load(Path("run")))]  # doctest: +SKIP
    """
    path = result.folder / DOCUMENTS
    if path.is_file():
        return read_record(Documents, rundir.read_json(path), path).documents
    if not result.exhibits:
        return ()
    table = result.table("instances", ["row", "probabilities"]).set_index("row")["probabilities"]
    flips = read_columns(result.folder, "multi", ["row", "flip_label"], MINIMAL)
    smallest = flips.set_index("row")["flip_label"]  # without rows where there is no smallest set
    return tuple(
        HeatMap(
            row=one.row,
            items=one.items,
            weights=one.weights,
            label=one.label,
            probability=float(table[one.row][one.label]),
            gold=known(one.gold),
            orders=(
                # Only the items that attention erases until the decision changes were kept.
                Order("attention", one.erased, one.first_flip, one.flip_label),
                *(
                    Order(MINIMAL, one.minimal, one.minimal_size, int(label))
                    for label in smallest[smallest.index == one.row]
                ),
            ),
        )
        for one in result.exhibits
    )


def known(label: int | None) -> int | None:
    """Give a label of the data; -1 is none."""
    return None if label is None or label < 0 else label
