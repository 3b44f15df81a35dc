"""Does it matter which word has which weight? Weights shuffled within a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import fastattnerase as fae
from fastattnerase.attention_tests.instances import described
from fastattnerase.choices import BackendName
from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier


@dataclass(frozen=True)
class Permuted:
    """What shuffling its weights does to a document's output.

    Attributes:
        row: Number of the document in the data set.
        id: Its id.
        predicted: Class that the model predicts.
        words: Number of its words.
        largest_weight: Largest attention weight.
        median_tvd: Median over the permutations of the total variation distance of the outputs.
        flips: Number of permutations with another decision.
    """

    row: int
    id: int
    predicted: int
    words: int
    largest_weight: float
    median_tvd: float
    flips: int


def permuted_outputs(
    model: AttentionClassifier,
    dataset: Dataset,
    *,
    permutations: int = 100,
    seed: int = 0,
    backend: BackendName = "auto",
    progress: Callable[[float], None] = lambda share: None,
) -> Iterator[Permuted]:
    """Shuffle each document's weights and compute the output anew; the values stay.

    The model runs once over each document, never for a permutation: see `fae.permute`.

    Args:
        model: a model whose items are words.
        dataset: the documents.
        permutations: of each document.
        seed: of the permutations.
        backend: of the engine.
        progress: told the share of the documents that is done.

    Yields:
        A row for each document, in order.

    Source:
        Jain & Wallace 2019, section 4.2.1.

    Example:
        >>> list(permuted_outputs(model, prepared.test))[0].median_tvd  # doctest: +SKIP
        0.12
    """
    row = 0
    for batch, logits in model.attention_outputs(dataset):
        found = fae.permute(batch, permutations=permutations, seed=seed, backend=backend)
        rows = range(row, row + len(logits))
        row += len(logits)
        for (one, _), median, flips in zip(
            described(batch, logits, rows),
            found.median.tolist(),
            found.flips.tolist(),
            strict=True,
        ):
            yield Permuted(
                one.row, one.id, one.predicted, one.words, one.largest_weight, median, flips
            )
        progress(row / len(dataset))
