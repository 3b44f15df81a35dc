"""Scores of the items of texts by one method, as a record that can be saved and ranked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from fastattnerase.extras import needs
from fastattnerase.models.errors import ModelError
from fastattnerase.models.storage import write_atomically
from fastattnerase.plurals import counted
from fastattnerase.status import status_names

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = Any

Family = Literal["sensitivity", "saliency", "propagation", "occlusion", "attention"]
Items = Literal["words", "sentences"]

_FORMAT = "fastattnerase attribution 1"
_TENSORS = ("scores", "offsets", "ids", "target", "status")
_DETAIL = "detail:"  # before the names of details among the tensors of a file


@dataclass(frozen=True, eq=False)
class Attribution:
    """What one method says each item of each text is worth, packed: all items one after another.

    Attributes:
        scores: `[T]`, float64, in the order of the documents and their items; the most important
            item has the largest.
        offsets: `[B + 1]`, int64, where each document's items begin.
        ids: `[B]`, int64, the documents' ids.
        method: the method's name.
        family: what its scores say: `sensitivity`, how much a change would matter; `saliency`,
            `propagation` and `occlusion`, what the item contributed, by derivatives, by relevance
            passed down, or by taking it away; `attention`, of the attention layer alone.
        target: `[B]`, int64, the class that the scores are about, -1 of an empty document of a
            method that ran nothing.
        output: which number of that class: `logit`, `probability`, `margin`; `none` where the
            scores are of no output (attention weights).
        items: what the items are: `words`, or the `sentences` of a hierarchical model's attention.
        delta: `[B]`, float64, what the method's sum rule is off by: `Σ − (f(x) − f(b))` of
            integrated gradients, the relative conservation error of LRP; None of other methods.
        status: `[B]`, int64, bits of `fae.Status`: EMPTY, SINGLE, NON_FINITE.
        chunk: how many words a pass through the model had at most, by `max_bytes`.
        max_bytes: the budget of memory that it was made with.
        options: the method's options as they were used.
        details: other numbers of each document, `[B]` float64 by name: `output` (f_c(x)) of most
            methods, `baseline_output`, LRP's sinks.

    Example:
        >>> import torch
        >>> from fastattnerase.saliency import Attribution
        >>> found = Attribution(
        ...     scores=torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64),
        ...     offsets=torch.tensor([0, 2, 3]), ids=torch.tensor([7, 8]), method="mine",
        ...     family="saliency", target=torch.tensor([1, 0]), output="logit",
        ... )
        >>> [scores.tolist() for scores in found.split()], len(found)
        ([[0.5, -1.0], [2.0]], 2)
    """

    scores: Tensor
    offsets: Tensor
    ids: Tensor
    method: str
    family: Family
    target: Tensor
    output: str
    items: Items = "words"
    delta: Tensor | None = None
    status: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    chunk: int = 0
    max_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.status) == 0:
            object.__setattr__(self, "status", torch.zeros(len(self), dtype=torch.int64))
        wrong = {
            name: len(tensor)
            for name, tensor in (
                ("ids", self.ids),
                ("target", self.target),
                ("status", self.status),
                ("delta", self.ids if self.delta is None else self.delta),
                *self.details.items(),
            )
            if len(tensor) != len(self)
        }
        for name, given in wrong.items():
            raise ValueError(
                f"{name}: given {counted(given, 'number')}, needed {len(self)}, one an instance"
            )
        if int(self.offsets[-1]) != len(self.scores):
            raise ValueError(
                f"scores: given {len(self.scores)}, needed {int(self.offsets[-1])} as offsets say"
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def split(self) -> Sequence[Tensor]:
        """Give the scores of each document: `[n]` float64 each, views."""
        return torch.split(self.scores, self.offsets.diff().tolist())

    def part(self, start: int, stop: int) -> Attribution:
        """Give the documents from `start` up to `stop`, such as those of one batch of the engine.

        Args:
            start, stop: places of documents, `0 <= start <= stop <= B`.

        Returns:
            The record of these alone.

        Raises:
            ValueError: places outside.

        Example:
            >>> fae.rank(batch, attribution.part(0, len(batch)).scores)  # doctest: +SKIP
        """
        if not 0 <= start <= stop <= len(self):
            raise ValueError(
                f"start, stop: given {start} and {stop}, needed 0 <= start <= stop <= {len(self)}"
            )
        some = slice(start, stop)
        offsets = self.offsets[start : stop + 1]  # [b + 1]
        return Attribution(
            scores=self.scores[int(offsets[0]) : int(offsets[-1])],
            offsets=offsets - offsets[0],
            ids=self.ids[some],
            method=self.method,
            family=self.family,
            target=self.target[some],
            output=self.output,
            items=self.items,
            delta=None if self.delta is None else self.delta[some],
            status=self.status[some],
            chunk=self.chunk,
            max_bytes=self.max_bytes,
            options=self.options,
            details={name: tensor[some] for name, tensor in self.details.items()},
        )

    def to_pandas(self, by: Literal["item", "instance"] = "item") -> DataFrame:
        """Give a table: a row for each item, or for each instance.

        Args:
            by: `item`: columns instance, id, position, target, score; `instance`: instance, id,
                items, target, status, delta (NaN of methods without) and the details.

        Returns:
            The table.

        Raises:
            ValueError: another `by`.
        """
        with needs("text"):
            import pandas as pd
        lengths = self.offsets.diff()  # [B]
        rows = torch.arange(len(self))  # [B]
        if by == "item":
            row = rows.repeat_interleave(lengths)  # [T]
            columns = {
                "instance": row.numpy(),
                "id": self.ids[row].numpy(),
                "position": (torch.arange(len(row)) - self.offsets[row]).numpy(),
                "target": self.target[row].numpy(),
                "score": self.scores.numpy(),
            }
            return pd.DataFrame(columns)
        if by != "instance":
            raise ValueError(f"by: given {by!r}, needed 'item' or 'instance'")
        delta = torch.full((len(self),), torch.nan) if self.delta is None else self.delta
        table = {
            "instance": rows.numpy(),
            "id": self.ids.numpy(),
            "items": lengths.numpy(),
            "target": self.target.numpy(),
            "status": status_names(self.status),
            "delta": delta.double().numpy(),
        }
        return pd.DataFrame(table | {name: x.numpy() for name, x in self.details.items()})

    def save(self, path: Path | str) -> None:
        """Write one safetensors file, with what is no tensor as JSON in its metadata.

        Args:
            path: of the file; it is complete or not there.
        """
        with needs("text"):
            from safetensors.torch import save
        tensors = {name: getattr(self, name) for name in _TENSORS}
        if self.delta is not None:
            tensors["delta"] = self.delta
        tensors |= {_DETAIL + name: tensor for name, tensor in self.details.items()}
        words = {
            "method": self.method,
            "family": self.family,
            "output": self.output,
            "items": self.items,
            "chunk": self.chunk,
            "max_bytes": self.max_bytes,
            "options": dict(self.options),
        }
        content = save(
            {name: tensor.cpu().contiguous() for name, tensor in tensors.items()},
            {"format": _FORMAT, "attribution": json.dumps(words)},
        )
        write_atomically(Path(path), content)


def load_attribution(path: Path | str) -> Attribution:
    """Read what `Attribution.save` wrote, the same to the bit.

    Args:
        path: of the file.

    Returns:
        The record.

    Raises:
        ModelError: no such file, a damaged one, or one of something else.

    Example:
        >>> from fastattnerase.saliency import load_attribution
        >>> load_attribution("omission.safetensors").method  # doctest: +SKIP
        'omission'
    """
    with needs("text"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(str(path), "pt") as file:
            words = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged ({error})") from error
    missing = [name for name in _TENSORS if name not in tensors]
    if words.get("format") != _FORMAT or missing:
        raise ModelError(f"{path}: given another kind of file, needed one of Attribution.save")
    details = {
        name.removeprefix(_DETAIL): tensor
        for name, tensor in tensors.items()
        if name.startswith(_DETAIL)
    }
    return Attribution(
        **{name: tensors[name] for name in _TENSORS},
        delta=tensors.get("delta"),
        details=details,
        **json.loads(words["attribution"]),
    )
