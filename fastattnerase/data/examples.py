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
    """

    id: int
    text: str
    label: int
