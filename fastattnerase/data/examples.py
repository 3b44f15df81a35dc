"""One labelled text."""

from __future__ import annotations

from typing import NamedTuple

NO_LABEL = -1


class Example(NamedTuple):
    """One labelled text.

    Attributes:
        id: the number of its row among all rows read, from 0; unique over the splits.
        text: the text, not empty.
        label: the index of its class; -1 where the data carry no label.
        query: the second text of models that take two, such as a question; None where there is
            none.
        answers: the indices of the classes that are allowed, in order; None where all are.
        spans: words of the text that are marked, such as supporting facts: the first, counted from
            0, and the one after the last; words are what white space separates. Or characters, as
            `DataConfig.spans_unit` says.
    """

    id: int
    text: str
    label: int
    query: str | None = None
    answers: tuple[int, ...] | None = None
    spans: tuple[tuple[int, int], ...] = ()
