"""What `explain` gives: of each text its items, weights, decision, curves and smallest set."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fastattnerase.explanation.course import Course, Floats, Ints
from fastattnerase.extras import needs
from fastattnerase.plurals import counted
from fastattnerase.status import Status

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    # Hints that are read at run time say Any: what they name is imported when it is used.
    DataFrame = Any

_SHOWN = 60  # characters of a smallest set in a line


class Flip(NamedTuple):
    """When erasing items in the order of a ranking first changes the decision.

    Attributes:
        first: items erased then, -1 for never.
        fraction: of the items, NaN for never.
        decision: the class decided for then; None for never.
    """

    first: int
    fraction: float
    decision: str | None


class SmallestSet(NamedTuple):
    """The fewest items whose erasure changes the decision.

    Attributes:
        items: the words (sentences, of a hierarchical model), in the order of the text.
        positions: their places in the text, from 0.
        decision: the class decided for without them.
    """

    items: tuple[str, ...]
    positions: tuple[int, ...]
    decision: str


@dataclass(frozen=True, eq=False, repr=False)
class TextExplanation:
    """What attention says of the decision on one text, and what erasing its items does.

    Attributes:
        items: the `n` words, or sentences of a hierarchical model.
        positions: `[n]`, their places in the text, from 0: among its words (sentences), or in the
            list that was given.
        unknown: `[n]`, whether the model knows no word of the item.
        weights: `[n]`, float64, attention; sums to 1, NaN where something is not finite.
        decision: the name of the class decided for; None where something is not finite.
        probability: of that class; NaN where something is not finite.
        probabilities: from each class's name to its probability.
        flips: from each ranking to its first flip.
        curves: from each ranking to `[n + 1]`, float64: the probability of the decision's class
            when the ranking's first 0 … n items are erased.
        decisions: likewise, the class decided for, None where something is not finite: `[n + 1]`.
        decision_curves: likewise, the probability of that class: `[n + 1]`, float64.
        orders: from each ranking to `[n]`, indices into `items`, most important first.
        smallest: the smallest set that flips; None where no set does, or none was searched.
        smallest_first: what erasing does when that set goes first, None where none was searched;
            after as many items as it has, `decision_curve` has the probability of its decision.
        alone: `[n]`, the class decided for without the item alone, None where that is the same.
        js: `[n]`, JS divergence of the class probabilities with and without the item.
        drop: `[n]`, how much the decision's probability falls without the item.
        status: what the engine says of the instance.
        notes: what a reader has to know, such as that the text has no words.
        searched: whether the smallest set was searched, which is possible where the decoder is
            linear.
        query: the second text, of a model that reads two; None without one.
    """

    items: tuple[str, ...]
    positions: Ints
    unknown: NDArray[np.bool_]
    weights: Floats
    decision: str | None
    probability: float
    probabilities: dict[str, float]
    flips: dict[str, Flip]
    curves: dict[str, Floats]
    decisions: dict[str, tuple[str | None, ...]]
    decision_curves: dict[str, Floats]
    orders: dict[str, Ints]
    smallest: SmallestSet | None
    smallest_first: Course | None
    alone: tuple[str | None, ...]
    js: Floats
    drop: Floats
    status: Status
    notes: tuple[str, ...]
    searched: bool = True
    query: str | None = None

    def __len__(self) -> int:
        """The number of items."""
        return len(self.items)

    def __repr__(self) -> str:
        """Give decision, flips and smallest set in one line."""
        flips = ", ".join(
            f"{ranking} {'never' if flip.first < 0 else flip.first}"
            for ranking, flip in self.flips.items()
        )
        nothing = "none" if self.searched else "not known"
        smallest = nothing if self.smallest is None else repr([*self.smallest.items])
        if len(smallest) > _SHOWN:
            smallest = f"{smallest[:_SHOWN]}…"
        return (
            f"TextExplanation({self._decided()}, {counted(len(self), 'item')}; flips: {flips}; "
            f"smallest set: {smallest})"
        )

    def _decided(self) -> str:
        return "undecided" if self.decision is None else f"{self.decision!r} {self.probability:.3f}"

    @property
    def in_smallest(self) -> NDArray[np.bool_]:
        """Say of each item whether it belongs to the smallest set: `[n]`."""
        return np.isin(self.positions, () if self.smallest is None else self.smallest.positions)

    def rank(self, ranking: str) -> Ints:
        """Give the place of each item in a ranking's order, 1 the first to be erased: `[n]`."""
        places = np.empty(len(self), dtype=np.int64)
        places[self.orders[ranking]] = np.arange(1, len(self) + 1)
        return places


class Explanation(Sequence[TextExplanation]):
    """What `explain` found, one `TextExplanation` a text, in the order of the texts.

    Attributes:
        texts: of each text what was found.
        rankings: names of the rankings.
        classes: names of the classes.
        sentences: whether items are sentences, of a hierarchical model, and not words.
    """

    def __init__(
        self,
        texts: Sequence[TextExplanation],
        rankings: Sequence[str],
        classes: Sequence[str],
        sentences: bool,
    ) -> None:
        self.texts = tuple(texts)
        self.rankings = tuple(rankings)
        self.classes = tuple(classes)
        self.sentences = sentences

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> TextExplanation: ...
    @overload
    def __getitem__(self, index: slice) -> Explanation: ...
    def __getitem__(self, index: int | slice) -> TextExplanation | Explanation:
        """Give one text's explanation, or some of them."""
        if isinstance(index, slice):
            return Explanation(self.texts[index], self.rankings, self.classes, self.sentences)
        return self.texts[index]

    def __repr__(self) -> str:
        """Give counts and decisions."""
        decided = [text._decided() for text in self.texts[:3]]
        more = ", …" if len(self) > len(decided) else ""
        count = sum(map(len, self.texts))
        return (
            f"Explanation({counted(len(self), 'text')}, {counted(count, 'item')}: "
            f"{', '.join(decided)}{more}; rankings {', '.join(self.rankings)})"
        )

    def to_pandas(self) -> DataFrame:
        """Make a table with a row an item; a text without words has none.

        Columns: text (its number, from 0), position (the item's original place in the text), item,
        unknown, weight, alone (the class decided for without the item alone, None where that is the
        same), js, drop, smallest (whether it belongs to the smallest set), and for each ranking
        rank_NAME (1 is erased first). Of a text with something that is not finite weight, js and
        drop are NaN.
        """
        with needs("text"):
            import pandas as pd

        def column(values: list[Any], dtype: Any) -> NDArray[Any]:
            return np.concatenate([np.zeros(0, dtype), *values]).astype(dtype)

        texts = self.texts
        columns: dict[str, Any] = {
            "text": np.repeat(np.arange(len(texts)), [len(text) for text in texts]),
            "position": column([text.positions for text in texts], np.int64),
            "item": [item for text in texts for item in text.items],
            "unknown": column([text.unknown for text in texts], np.bool_),
            "weight": column([text.weights for text in texts], np.float64),
            "alone": pd.Series([label for text in texts for label in text.alone], dtype=object),
            "js": column([text.js for text in texts], np.float64),
            "drop": column([text.drop for text in texts], np.float64),
            "smallest": column([text.in_smallest for text in texts], np.bool_),
        }
        for ranking in self.rankings:
            places = [text.rank(ranking) for text in texts]
            columns[f"rank_{ranking}"] = column(places, np.int64)
        table: DataFrame = pd.DataFrame(columns)
        return table

    def show(self, path: str | Path | None = None) -> None:
        """Show heat maps in a notebook, or write them into a file; elsewhere print lines.

        Each text has its decision, its items with attention as background and the smallest set
        framed, when each ranking flips it, and the probability of the decision over what is erased.

        Args:
            path: an HTML file to write instead, which needs nothing else.
        """
        from fastattnerase.explanation.page import lines, page

        if path is not None:
            Path(path).write_text(page(self), encoding="utf-8")
        elif (notebook := sys.modules.get("IPython")) is not None and notebook.get_ipython():
            import_module("IPython.display").display(self)
        else:
            sys.stdout.write(lines(self) + "\n")

    def _repr_html_(self) -> str:
        """Give the heat maps, as notebooks ask for them."""
        from fastattnerase.explanation.page import fragment

        return fragment(self)
