"""Spans of a text: the words that people, or the makers of a data set, marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fastattnerase.data.errors import DataError
from fastattnerase.plurals import counted

Span = tuple[int, int]  # first word or character, counted from 0, and the one after the last
SpansUnit = Literal["words", "characters"]


class Aligned(NamedTuple):
    """Spans of characters as spans of words.

    Attributes:
        spans: words, the first and the one after the last, ascending.
        unfit: a line for each span that has no word, and is left out, or begins or ends inside of
            a word, and is widened to the whole word.
    """

    spans: tuple[Span, ...]
    unfit: tuple[str, ...]


def read_spans(
    value: object, length: int, where: str, column: str, unit: SpansUnit = "words"
) -> tuple[Span, ...]:
    """Read spans of words or characters: pairs of numbers, or a text such as `3:8;10:14`.

    A span goes from its first word, counted from 0, to before its second number. One that ends
    where it begins has no word, as a few of ERASER's; `tokenise` leaves it out and counts it.

    Args:
        value: what a reader gave; None and an empty text are no spans.
        length: words of the text, which white space separates, or its characters.
        where: file and row, for errors.
        column: for errors.
        unit: what is counted.

    Raises:
        DataError: no spans, or spans outside of the text.

    Example:
        >>> read_spans("3:5;0:2", 5, "a.csv, row 1", "spans")
        ((3, 5), (0, 2))
    """
    parts: object = value
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        parts = [part.split(":") for part in value.split(";")]
    try:
        assert isinstance(parts, Sequence)
        spans = tuple((int(begin), int(end)) for begin, end in parts)
    except (AssertionError, TypeError, ValueError):
        spans = ((0, -1),)
    if any(not 0 <= begin <= end <= length for begin, end in spans):
        raise DataError(
            f"{where}: given {value!r:.60} in column {column!r}, needed spans of the "
            f"{counted(length, unit.removesuffix('s'))} of the text: pairs of numbers, or a text "
            "such as '3:8;10:14'"
        )
    return spans


def align(text: str, words: Sequence[str], spans: Sequence[Span]) -> Aligned:
    """Find the words that spans of characters touch.

    Args:
        text: the text, in which words stand in their order, with white space between them at most.
        words: its words.
        spans: characters of the text.

    Returns:
        The words, and what does not fit them.

    Raises:
        DataError: a word that is not where it is looked for.

    Example:
        >>> align("A good film.", ["A", "good", "film", "."], [(2, 11), (9, 12), (1, 2)]).spans
        ((1, 3), (2, 4))
        >>> align("A good film.", ["A", "good", "film", "."], [(1, 2), (4, 6)]).unfit
        ("characters 1:2, ' ': no word", "characters 4:6, 'od': inside of words")
    """
    begins, ends = [], []
    place = 0
    for word in words:
        begin = text.find(word, place)
        if begin < 0 or text[place:begin].strip():
            raise DataError(f"text: given {text[place : place + 40]!r}, needed the word {word!r}")
        place = begin + len(word)
        begins.append(begin)
        ends.append(place)
    found: list[Span] = []
    unfit = []
    for begin, end in sorted(spans):
        name = f"characters {begin}:{end}, {text[begin:end]!r:.40}"
        first = int(np.searchsorted(ends, begin, side="right"))  # the first word that ends after
        last = int(np.searchsorted(begins, end, side="left"))  # the first that begins there
        if begin == end or first >= last:
            unfit.append(f"{name}: no word")
            continue
        if begins[first] < begin or ends[last - 1] > end:
            unfit.append(f"{name}: inside of words")
        found.append((first, last))
    return Aligned(tuple(found), tuple(unfit))


def with_words(spans: Sequence[Span]) -> Aligned:
    """Leave out spans of words that have none.

    Example:
        >>> with_words([(3, 5), (7, 7)])
        Aligned(spans=((3, 5),), unfit=('words 7:7: no word',))
    """
    return Aligned(
        tuple((begin, end) for begin, end in spans if begin < end),
        tuple(f"words {begin}:{end}: no word" for begin, end in spans if begin == end),
    )


def without_breaks(text: str, line_breaks: re.Pattern[str]) -> str:
    """Write white space over line breaks, so that the places of all other characters stay.

    Example:
        >>> without_breaks("a<br>b", re.compile("<br>"))
        'a    b'
    """
    return line_breaks.sub(lambda found: " " * len(found[0]), text)


def cut_spans(spans: Sequence[Span], words: int) -> tuple[list[Span], int]:
    """Cut spans at the end of a text of so many words; count those that lost words.

    Example:
        >>> cut_spans([(0, 2), (1, 4), (3, 4)], 3)
        ([(0, 2), (1, 3)], 2)
    """
    kept = [(begin, min(end, words)) for begin, end in spans if begin < words]
    return kept, sum(end > words for _, end in spans)


def as_pairs(spans: Sequence[Span]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Give spans as an array `[K, 2]`."""
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
