"""Small made-up documents."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fastattnerase.data import Dataset, TokenisedText, Vocabulary, encode

WORDS = ["good", "fine", "bad", "poor", *(f"w{i}" for i in range(12))]


@pytest.fixture
def vocabulary() -> Vocabulary:
    """Sixteen words; the first two mean class 1, the next two class 0."""
    return Vocabulary(WORDS)


@pytest.fixture
def make_dataset(vocabulary: Vocabulary) -> Callable[..., Dataset]:
    """A function `(count, seed) -> Dataset` of documents whose class a word gives away."""

    def make(count: int, seed: int = 0, lengths: list[list[int]] | None = None) -> Dataset:
        draw = random.Random(seed)
        texts = []
        for index in range(count):
            label = index % 2
            if lengths is None:
                sizes = [draw.randint(1, 6) for _ in range(draw.randint(1, 4))]
            else:
                sizes = lengths[index]
            sentences = [[draw.choice(WORDS[4:]) for _ in range(size)] for size in sizes]
            if sentences:
                sentence = draw.choice(sentences)
                sentence[draw.randrange(len(sentence))] = draw.choice(
                    WORDS[:2] if label else WORDS[2:4]
                )
            joined = [" ".join(sentence) for sentence in sentences]
            texts.append(TokenisedText(100 + index, label, sentences, joined))
        return encode(texts, vocabulary)

    return make
