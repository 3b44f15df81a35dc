"""Words as indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastattnerase.data.errors import DataError


class Vocabulary:
    """Known words as indices from 1; index 0 is padding, the last one is every unknown word.

    No text is ever read as padding: a word "pad" or "<pad>" is a word like any other.

    Args:
        words: the known words, distinct; word `i` has index `i + 1`.
        lower_case: words are compared in lower case.

    Raises:
        DataError: a word occurs twice.

    Example:
        >>> vocabulary = Vocabulary(["good", "pad"])
        >>> vocabulary.indices(["Good", "pad", "film"]), len(vocabulary)
        ([1, 2, 3], 4)
    """

    PADDING = 0

    def __init__(self, words: Sequence[str], *, lower_case: bool = True) -> None:
        self.words = list(words)
        self.lower_case = lower_case
        self._index = {word: index for index, word in enumerate(self.words, start=1)}
        if len(self._index) != len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise DataError(f"words: given {twice!r} twice, needed distinct words")

    @classmethod
    def build(
        cls, texts: Iterable[Iterable[str]], *, min_count: int = 1, lower_case: bool = True
    ) -> Vocabulary:
        """Collect the words that occur often enough, in the order of their first occurrence.

        Args:
            texts: the words of each text.
            min_count: a known word occurs at least so often.
            lower_case: words are compared, and kept, in lower case.

        Returns:
            The vocabulary.
        """
        counts: Counter[str] = Counter()
        for words in texts:
            counts.update(word.lower() for word in words) if lower_case else counts.update(words)
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(kept, lower_case=lower_case)

    @property
    def unknown(self) -> int:
        """The index of every unknown word."""
        return len(self.words) + 1

    def __len__(self) -> int:
        """The number of indices: the words, padding and unknown."""
        return len(self.words) + 2

    def __contains__(self, word: str) -> bool:
        return (word.lower() if self.lower_case else word) in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def indices(self, words: Iterable[str]) -> list[int]:
        """Give each word's index."""
        unknown, find = self.unknown, self._index.get
        if self.lower_case:
            return [find(word.lower(), unknown) for word in words]
        return [find(word, unknown) for word in words]

    def to_dict(self) -> dict[str, Any]:
        """Give the vocabulary as a dictionary for JSON."""
        return {"lower_case": self.lower_case, "words": self.words}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Vocabulary:
        """Make a vocabulary from `to_dict`'s result."""
        return cls(values["words"], lower_case=values["lower_case"])
