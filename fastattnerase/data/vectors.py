"""Pre-trained word vectors in GloVe's text format."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.plurals import counted


class WordVectors(NamedTuple):
    """Word vectors for a vocabulary.

    Attributes:
        table: `[V, E]`, float32; a row an index of the vocabulary, that of padding zero.
        found: how many known words the file has.
    """

    table: Tensor
    found: int


def read_vectors(
    path: str | Path,
    vocabulary: Vocabulary,
    *,
    unit: bool = False,
    seed: int = 0,
    missing: Literal["random", "zero"] = "random",
) -> WordVectors:
    """Read the vectors of a vocabulary's words.

    One word a line with its numbers after it, separated by single spaces; a first line of two
    integers (word2vec's text format) is skipped. A word's first line counts.

    Args:
        path: the file, plain or `.xz`, `.gz`, `.zst`.
        vocabulary: the words wanted.
        unit: scale every row to length 1.
        seed: of the random numbers.
        missing: what words without a vector, and the unknown word, get: normal `random` numbers
            with the mean and the standard deviation of those found, or `zero`.

    Returns:
        The vectors and how many words were found.

    Raises:
        DataError: not UTF-8, a line of another width or without numbers, no word found.

    Example:
        >>> vectors = read_vectors("glove.6B.50d.txt.xz", vocabulary)  # doctest: +SKIP
        >>> vectors.table.shape  # doctest: +SKIP
        torch.Size([8123, 50])
    """
    path = Path(path)
    rows: dict[int, np.ndarray] = {}
    width = 0
    wanted = {word: index for index, word in enumerate(vocabulary, start=1)}
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\r\n ").split(" ")
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                continue
            if not width:
                width = len(fields) - 1
            # Some distributed words hold spaces: the numbers are the last fields.
            word = " ".join(fields[:-width]) if width else ""
            if not word:
                raise DataError(
                    f"{path}, line {number}: given {counted(len(fields), 'field')}, needed a word "
                    f"and {'its numbers' if width is None else counted(width, 'number')}"
                )
            index = wanted.get(word)
            if index is None or index in rows:
                continue
            try:
                rows[index] = np.array(fields[-width:], dtype=np.float32)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from error
    if not rows:
        raise DataError(
            f"{path} has a vector for none of {counted(len(vocabulary.words), 'known word')}"
        )
    found = np.stack(list(rows.values()))  # [F, E]
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(len(vocabulary), width, generator=generator)  # [V, E]
    table = table * float(found.std()) + float(found.mean())
    if missing == "zero":
        table.zero_()
    table[torch.tensor(list(rows))] = torch.from_numpy(found)
    if unit:
        table = torch.nn.functional.normalize(table, dim=1)
    table[Vocabulary.PADDING] = 0
    return WordVectors(table, len(rows))
