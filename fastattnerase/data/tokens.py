"""Words and sentences, by spaCy's rules for a language: no model to download."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from fastattnerase.data.errors import DataError
from fastattnerase.data.examples import Example
from fastattnerase.data.spans import SpansUnit, align, with_words, without_breaks
from fastattnerase.extras import needs

if TYPE_CHECKING:
    from spacy.language import Language
else:  # imported where they are used; hints that are read at run time say Any
    Language = Any

_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TokenisedText:
    """A text as sentences of words.

    Attributes:
        id: the example's id.
        label: the example's class.
        sentences: for each sentence its words, at least one, in the case of the text.
        sentence_texts: for each sentence its text.
        query: the words of the second text; None where there is none.
        answers: the example's, the classes that are allowed; None where all are.
        spans: the words of the text that are marked.
        unfit: a line for each marked span that has no word or does not fit the words.
    """

    id: int
    label: int
    sentences: list[list[str]]
    sentence_texts: list[str]
    query: list[str] | None = None
    answers: tuple[int, ...] | None = None
    spans: tuple[tuple[int, int], ...] = ()
    unfit: tuple[str, ...] = ()


def has_words(text: str, *, line_breaks: bool = True, sentences: str = "rules") -> bool:
    """Say whether `tokenise` finds any word in a text, without tokenising it.

    Args:
        text: the text.
        line_breaks: as there.
        sentences: as there.

    Returns:
        Whether anything but white space is left.

    Example:
        >>> has_words("<br /> "), has_words("<br /> ", line_breaks=False)
        (False, True)
    """
    return bool(_clean(text, line_breaks and sentences != "spaces").strip())


def _clean(text: str, line_breaks: bool) -> str:
    return _LINE_BREAK.sub("\n", text) if line_breaks else text


@lru_cache(maxsize=2)
def find_language(sentences: str = "rules", language: str = "en") -> Language | None:
    """Give what cuts texts, nothing for `spaces`; the arguments are those of `tokenise`.

    Raises:
        DataError: no such language or pipeline.
    """
    if sentences == "spaces":
        return None
    with needs("text"):
        import spacy  # slow to import, and needed only where text is read

    if sentences == "rules":
        try:
            found = spacy.blank(language)
        except ImportError as error:
            raise DataError(
                f"language: given {language!r}, needed a code of a language that spaCy has here, "
                f"such as en, de or xx for none ({' '.join(str(error).split())}); or sentences "
                "'spaces', where white space separates words"
            ) from error
        found.add_pipe("sentencizer")
    else:
        try:
            found = spacy.load(sentences, exclude=["ner", "lemmatizer", "attribute_ruler"])
        except (OSError, ImportError) as error:
            raise DataError(
                f"sentences: spaCy has no pipeline {sentences!r} ({' '.join(str(error).split())}); "
                f"install it with `python -m spacy download {sentences}`, or take 'rules'"
            ) from error
    found.max_length = 2**31 - 1  # the limit protects parsers, and there is none
    return found


def tokenise(
    examples: Iterable[Example],
    *,
    line_breaks: bool = True,
    sentences: str = "rules",
    language: str = "en",
    spans_unit: SpansUnit = "words",
) -> Iterator[TokenisedText]:
    """Cut texts into sentences and words.

    Words are spaCy's tokens of a language without white space; sentences end where its rule-based
    sentencizer, or a pipeline's parser, says, on the text's own case. Sentences without words are
    left out. A query is cut into words alike.

    Args:
        examples: the texts.
        line_breaks: HTML line breaks (`<br />`) are white space.
        sentences: `rules`, or the name or folder of an installed spaCy pipeline; or `spaces`: words
            are what white space separates, and the text is one sentence.
        language: with `rules`, a code of spaCy's for the language, such as `en`, `de` or `xx` (none
            in particular).
        spans_unit: what the examples' spans count; those of characters become spans of words.

    Yields:
        One tokenised text an example, in order.

    Raises:
        DataError: no such pipeline or language.

    Example:
        >>> [text] = tokenise([Example(7, "Isn't it? <br />No.", 1)])
        >>> text.sentences
        [['Is', "n't", 'it', '?'], ['No', '.']]
        >>> [text] = tokenise([Example(7, "L'ami n'est pas là.", 1)], language="fr")
        >>> text.sentences
        [["L'", 'ami', "n'", 'est', 'pas', 'là', '.']]
    """
    cutter = find_language(sentences, language)
    cut_text: Callable[[str], Iterable[tuple[list[str], str]]]
    if cutter is None:
        cut_text, line_breaks = _by_spaces, False  # there `<br />` is two words
    else:
        cut_text = _Rules(cutter) if sentences == "rules" else partial(_by_pipeline, cutter)
    for example in examples:
        pairs = [pair for pair in cut_text(_clean(example.text, line_breaks)) if pair[0]]
        found, texts = [words for words, _ in pairs], [text for _, text in pairs]
        query = None
        if example.query is not None:
            parts = cut_text(_clean(example.query, line_breaks))
            query = [word for words, _ in parts for word in words]
        spans = with_words(example.spans)
        if spans_unit == "characters" and example.spans:
            whole = without_breaks(example.text, _LINE_BREAK) if line_breaks else example.text
            spans = align(whole, [word for words in found for word in words], example.spans)
        yield TokenisedText(example.id, example.label, found, texts, query, example.answers, *spans)


def _by_spaces(text: str) -> list[tuple[list[str], str]]:
    """Cut a text at white space: one sentence."""
    words = text.split()
    return [(words, " ".join(words))]


def _by_pipeline(cutter: Language, text: str) -> Iterator[tuple[list[str], str]]:
    """Cut a text with a pipeline of spaCy; yield the words and the text of each sentence."""
    for sentence in cutter(text).sents:
        words = [token.text for token in sentence if not token.is_space]
        yield words, " ".join(sentence.text.split())


class _Rules:
    """Cuts texts as a blank pipeline of spaCy with its sentencizer does, in a third of the time.

    What the sentencizer asks of each token depends on its text alone, so it is asked once a word.

    Args:
        cutter: the pipeline.
    """

    def __init__(self, cutter: Language) -> None:
        self._cutter = cutter
        sentencizer: Any = cutter.get_pipe("sentencizer")
        self._ends: set[str] = sentencizer.punct_chars
        # By spaCy's number of a word: text, ends a sentence, is punctuation, is white space.
        self._words: dict[int, tuple[str, bool, bool, bool]] = {}

    def __call__(self, text: str) -> Iterator[tuple[list[str], str]]:
        """Yield the words and the text of each sentence."""
        words: list[str] = []
        pieces: list[str] = []
        ended = False
        for number, spaced in self._cutter.make_doc(text).to_array(["ORTH", "SPACY"]).tolist():
            word, ends, is_punctuation, is_space = self._words.get(number) or self._look_up(number)
            if ended and not is_punctuation and not ends:
                yield words, " ".join("".join(pieces).split())
                words, pieces, ended = [], [], False
            elif ends:
                ended = True
            if not is_space:
                words.append(word)
            pieces.append(word)
            if spaced:
                pieces.append(" ")
        yield words, " ".join("".join(pieces).split())

    def _look_up(self, number: int) -> tuple[str, bool, bool, bool]:
        lexeme = self._cutter.vocab[number]
        word = lexeme.text
        about = word, word in self._ends, lexeme.is_punct, lexeme.is_space
        self._words[number] = about
        return about
