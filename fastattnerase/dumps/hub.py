"""Attention layers in data sets of Hugging Face `datasets`: a row an instance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.dumps.arrays import read_head
from fastattnerase.dumps.facts import digest_of_tensors
from fastattnerase.dumps.writing import Beside
from fastattnerase.extras import needs
from fastattnerase.runs.rundir import RunError

_ITEMS, _ROWS = 65_536, 1_024  # of a batch, at most one longer row more
_FLOATS = ("float16", "float32", "float64")
_WHOLE = ("labels", "ids")  # quantities that are whole numbers


@dataclass(frozen=True)
class Columns:
    """Which column holds what.

    Attributes:
        values: [n, D] or [n, H, D], of each row as many as it has items.
        scores: [n] or [n, H].
        weights: instead of scores.
        labels: a whole number, -1 for none.
        ids: a whole number; the number of the row where it is None.
        logits: [C], the model's own.
    """

    values: str = "values"
    scores: str | None = None
    weights: str | None = None
    labels: str | None = None
    ids: str | None = None
    logits: str | None = None

    def named(self) -> dict[str, str]:
        """Give the column of each quantity that has one; scores where neither is named."""
        attention = {} if self.scores or self.weights else {"scores": "scores"}
        return {name: own for name, own in vars(self).items() if own is not None} | attention


class HubRows:
    """The rows of one split of a data set, streamed.

    Args:
        name: `owner/name`, `owner/name:configuration`, or a folder that the library can load.
        split: of the data set.
        columns: which column holds what.
        head: a file with `head_weight` [C, D] and `head_bias` [C]: see `arrays.read_head`.

    Attributes:
        classes: names of the classes, where the column of labels has them.

    Raises:
        RunError: no such data set, split or column.
        MissingPackageError: the package `datasets` is not installed.
    """

    def __init__(self, name: str, split: str, columns: Columns, head: Path) -> None:
        with needs("hub"):
            import datasets
        self.name, self.split, self.columns = name, split, columns.named()
        if "scores" in self.columns and "weights" in self.columns:
            raise RunError("--scores-column, --weights-column: given both, needed one of them")
        self._head = read_head(head)
        owner, configuration = name, ""
        if not Path(name).exists():  # a folder may have a colon in its name
            owner, _, configuration = name.partition(":")
        try:
            self._rows: Any = datasets.load_dataset(
                owner, configuration or None, split=split, streaming=True
            )
            builder: Any = datasets.load_dataset_builder(owner, configuration or None)
        except Exception as error:  # whatever the library's readers raise of a file
            raise RunError(f"the data set {name!r} cannot be loaded: {_told(error)}") from error
        # By split names of files and what tells them from others: a commit, or when they changed.
        files = sorted(
            (str(part), list(own), own.origin_metadata)
            for part, own in (builder.config.data_files or {}).items()
        )
        self._files = hashlib.sha256(repr(files).encode()).hexdigest()
        features: Mapping[str, Any] = self._rows.features or {}
        if features:
            self._require(list(features))
        self._dtypes = {key: _dtype(features.get(own)) for key, own in self.columns.items()}
        named = getattr(features.get(self.columns.get("labels", "")), "names", None)
        self.classes: tuple[str, ...] = tuple(named or ())

    def _require(self, there: list[str]) -> None:
        missing = [own for own in self.columns.values() if own not in there]
        if missing:
            raise RunError(
                f"{self.name}: given the columns {', '.join(there)}, needed {', '.join(missing)} "
                "(--values-column, --scores-column or --weights-column and the like name others)"
            )

    def __len__(self) -> int:
        """The number of rows, 0 where the data set does not say."""
        splits = self._rows.info.splits or {}
        return int(splits[self.split].num_examples or 0) if self.split in splits else 0

    def describe(self) -> dict[str, Any]:
        """Say which rows these are, as data for JSON."""
        version = self._rows.info.version
        weight, bias = self._head
        return {
            "dataset": self.name,
            "split": self.split,
            "columns": self.columns,
            "version": None if version is None else str(version),
            "files": self._files,
            "head": digest_of_tensors([weight] if bias is None else [weight, bias]),
        }

    def batches(self, start: int) -> Iterator[tuple[AttentionBatch, Beside]]:
        """Yield the rows from number `start` on, with labels and logits where known.

        Raises:
            RunError: a row that cannot be read or holds something else, naming it; one whose shapes
                do not fit, naming the rows that it is among.
        """
        rows: list[dict[str, Tensor]] = []
        given = iter(self._rows.skip(start) if start else self._rows)
        while True:
            try:
                row = next(given)
            except StopIteration:
                break
            except Exception as error:  # whatever the library's readers raise of a file
                number = start + len(rows)
                raise RunError(f"{self.name}: row {number}: {_told(error)}") from error
            self._require(list(row))
            rows.append(self._tensors(row, start + len(rows)))
            if len(rows) == _ROWS or sum(len(own["values"]) for own in rows) >= _ITEMS:
                yield self._batch(rows, start)
                start += len(rows)
                rows.clear()
        if rows:
            yield self._batch(rows, start)

    def _tensors(self, row: Mapping[str, Any], number: int) -> dict[str, Tensor]:
        found = {"ids": torch.tensor(number)}
        for key, own in self.columns.items():
            needed = "integers" if key in _WHOLE else "numbers"
            try:
                array = np.asarray(row[own], dtype="i8" if key in _WHOLE else self._dtypes[key])
                if key in _WHOLE and not np.array_equal(array, row[own]):  # 1.5 has become 1
                    raise ValueError
                if key == "values" and not array.ndim:
                    raise ValueError
            except (TypeError, ValueError, OverflowError) as error:
                raise RunError(
                    f"{self.name}: {own}: given {row[own]!r:.60} in row {number}, needed {needed}"
                ) from error
            found[key] = torch.from_numpy(np.array(array))
        inner = self._head[0].shape[1:]
        for key, shape in (("values", inner), ("scores", inner[:-1]), ("weights", inner[:-1])):
            if key in found and not found[key].numel():  # lists without items have no widths
                found[key] = found[key].reshape(0, *shape)
        return found

    def _batch(self, rows: list[dict[str, Tensor]], start: int) -> tuple[AttentionBatch, Beside]:
        weight, bias = self._head
        try:
            batch = AttentionBatch.from_list(
                [row["values"] for row in rows],
                scores=[row["scores"] for row in rows] if "scores" in self.columns else None,
                weights=[row["weights"] for row in rows] if "weights" in self.columns else None,
                head_weight=weight,
                head_bias=bias,
                ids=torch.stack([row["ids"] for row in rows]),
            )
            known = [name for name in ("labels", "logits") if name in self.columns]
            return batch, {name: torch.stack([row[name] for row in rows]) for name in known}
        except (ValueError, TypeError, RuntimeError) as error:
            stop = start + len(rows) - 1
            raise RunError(f"{self.name}: {error} (instance 0 is row {start} of {stop})") from error


def _told(error: Exception) -> str:
    """Give an error's text in one line, its kind where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def _dtype(feature: Any) -> str:
    """Find the float type of a column's numbers: float32 where the data set names none."""
    while feature is not None:
        dtype = getattr(feature, "dtype", "")
        if dtype in _FLOATS:
            return str(dtype)
        feature = getattr(feature, "feature", None)
    return "float32"
