"""Texts with the scores of several methods above each other, and what people marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.attention_tests.instances import evenly
from fastattnerase.measures.human_words import marked_words

if TYPE_CHECKING:
    from fastattnerase.studies.compare.units import Compare
else:  # imported where they are used; hints that are read at run time say Any
    Compare = Any

_TEXTS = 6  # that a page shows
_WORDS = 90  # of a text that is shown
_FAINT = 0.04  # share of the largest score below which a word has no colour


@dataclass(frozen=True)
class Word:
    """A word as it is shown.

    Attributes:
        text: the word.
        style: its background, empty for none.
        human: whether people marked it.
        score: as text.
    """

    text: str
    style: str
    human: bool
    score: str


@dataclass(frozen=True)
class Text:
    """A document as it is shown.

    Attributes:
        row: its number.
        decision: the class decided.
        probability: of the explained class.
        gold: its label; None where unknown.
        query: its second text; None without one.
        begin: the first word shown, from 1.
        end: the last word shown.
        words: of the whole text.
        lines: for each method its words.
    """

    row: int
    decision: str
    probability: float
    gold: str | None
    query: str | None
    begin: int
    end: int
    words: int
    lines: list[tuple[str, list[Word]]]


def shown_texts(work: Compare) -> list[Text]:
    """Choose documents, evenly spaced among those with words, and colour them by every method.

    Where people marked words only such documents are shown, and of a long one the words around
    which most are marked.
    """
    documents = work.documents
    lengths = documents.sizes.words.tolist()
    marked = [document.spans is not None for document in documents]
    some = [n for n, own in enumerate(lengths) if own and (marked[n] or not any(marked))]
    rows = [some[i] for i in evenly(len(some), _TEXTS)]
    scores = {method: work.scores(method) for method in work.word_methods}
    instances = work.instances()
    decisions = instances["decision"].tolist()
    probabilities = instances["probability"].tolist()
    classes = work.subject.classes
    found = []
    for row in rows:
        document = documents[row]
        human = marked_words([document.spans], [len(document)])  # [n]
        begin = window(human, _WORDS)
        end = min(begin + _WORDS, len(document))
        found.append(
            Text(
                row,
                classes[decisions[row]],
                probabilities[row],
                classes[document.label] if document.label >= 0 else None,
                " ".join(document.query_tokens) if document.query_tokens else None,
                begin + 1,
                end,
                len(document),
                [
                    (method, coloured(document.tokens, every[row], human, begin, end))
                    for method, every in scores.items()
                ],
            )
        )
    return found


def window(human: NDArray[np.bool_], width: int) -> int:
    """Give where so many words begin that have most of the marked ones, the first such place.

    Example:
        >>> window(np.array([False, False, True, True, False]), 2)
        2
    """
    if len(human) <= width or not human.any():
        return 0
    sums = np.concatenate([[0], np.cumsum(human)])
    return int(np.argmax(sums[width:] - sums[:-width]))


def coloured(
    words: Sequence[str],
    scores: NDArray[np.float64],
    human: NDArray[np.bool_],
    begin: int,
    end: int,
) -> list[Word]:
    """Colour words: blue for what speaks for the class, orange against, by the largest score.

    Example:
        >>> one, two = coloured(["a", "b"], np.array([1.0, -0.5]), np.array([False, True]), 0, 2)
        >>> one.style, two.style, two.human
        ('--b:1.00', '--o:0.50', True)
    """
    strongest = float(np.abs(scores).max(initial=0.0)) or 1.0
    found = []
    for place in range(begin, end):
        share = float(scores[place]) / strongest
        side = "b" if share > 0 else "o"
        style = f"--{side}:{abs(share):.2f}" if abs(share) >= _FAINT else ""
        found.append(Word(words[place], style, bool(human[place]), f"{scores[place]:.3g}"))
    return found
