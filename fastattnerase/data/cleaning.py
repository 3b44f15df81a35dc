"""Cleaners of the published data sets: functions from a text to its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastattnerase.extras import needs

if TYPE_CHECKING:
    from spacy.language import Language
else:  # imported where they are used; hints that are read at run time say Any
    Language = Any

Clean = Callable[[str], list[str]]


@lru_cache(maxsize=1)
def _tokeniser() -> Language:
    with needs("text"):
        import spacy  # slow to import, and needed only where text is cleaned

    language = spacy.blank("en")
    language.max_length = 2**31 - 1
    return language


def clean_text(text: str) -> list[str]:
    """Cut a text into words: white space collapsed, spaCy's tokens, lower case, digits hidden.

    A token with a digit becomes `qqq`.

    Example:
        >>> clean_text("It's  5pm, Bob.")
        ['it', "'s", 'qqq', 'pm', ',', 'bob', '.']
    """
    tokens = (token.text.lower() for token in _tokeniser()(" ".join(text.split())))
    return ["qqq" if any(c.isdigit() for c in token) else token for token in tokens]


def clean_sentiment(text: str) -> list[str]:
    """Cut a text into words without punctuation: bracket markers dropped, digits left.

    Example:
        >>> clean_sentiment("Is n't -LRB- 1 -RRB- it ?")
        ['is', 'n', 't', '1', 'it']
    """
    text = re.sub(r"\W", " ", re.sub(r"-?(LRB|RRB)-?", " ", text))
    return [token.text.lower() for token in _tokeniser()(" ".join(text.split()))]


def clean_post(text: str) -> list[str]:
    """Clean as `clean_text`, then set every punctuation mark apart.

    Example:
        >>> clean_post("e-mail me...")
        ['e', '-', 'mail', 'me', '.', '.', '.']
    """
    return re.sub(r"([^\w\s])", r" \1 ", " ".join(clean_text(text))).split()


_FILTERS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))


def clean_review(text: str) -> list[str]:
    """Cut a text as Keras does for its IMDB data: lower case, punctuation but apostrophes dropped.

    Example:
        >>> clean_review("Great!<br />It's <i>good</i>.")
        ['great', "it's", 'i', 'good', 'i']
    """
    return re.sub(r"<br\s*/?>", " ", text).lower().translate(_FILTERS).split()


_HIDDEN = re.compile(r"\[ ?\* ?\*.*?\* ?\* ?\]")  # MIMIC's [**2151-8-4**], whose marks spaCy cuts
_RUN = re.compile(r"([^\w\s]|_)(?: ?\1)+")


def clean_note(text: str) -> list[str]:
    """Cut a note of MIMIC into words: what it hides is `<de>`, runs of a mark are one mark.

    Else as `clean_text`: spaCy's tokens, lower case, a token with a digit is `qqq`.

    Example:
        >>> clean_note("Seen [**2151-8-4**] ------ BP 120 ... OK")
        ['seen', '<de>', '-', 'bp', 'qqq', '.', 'ok']
    """
    words = " ".join(token.text.lower() for token in _tokeniser()(" ".join(text.split())))
    words = _RUN.sub(r"\1", _HIDDEN.sub(" <de> ", words))
    return ["qqq" if any(c.isdigit() for c in word) else word for word in words.split()]


def clean_words(text: str) -> list[str]:
    """Cut a text at its spaces, as it is delivered.

    Example:
        >>> clean_words("Where is  Mary")
        ['Where', 'is', 'Mary']
    """
    return text.split()
