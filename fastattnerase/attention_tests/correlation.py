"""Does attention agree with what moves the output: gradients, and deleting words?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastattnerase.attention_tests.instances import chosen, instances
from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.saliency.batches import MAX_BYTES
from fastattnerase.saliency.gradient_importance import gradient_importance
from fastattnerase.saliency.leave_one_out import leave_one_out
from fastattnerase.statistics.correlation import kendall_tau

Floats = NDArray[np.float64]
Pair = Literal["attention_gradient", "attention_loo", "gradient_loo"]
PAIRS: tuple[Pair, ...] = get_args(Pair)
# What is constant where a tau is undefined, by the pair.
_NAMES: dict[Pair, tuple[str, str]] = {
    "attention_gradient": ("attention", "gradient"),
    "attention_loo": ("attention", "leave-one-out"),
    "gradient_loo": ("gradient", "leave-one-out"),
}
FEW = "fewer than two words"


@dataclass(frozen=True)
class Agreement:
    """How two importances of a document's words agree.

    Attributes:
        row: Number of the document in the data set.
        id: Its id.
        predicted: Class that the model predicts.
        words: Number of its words.
        pair: Which importances.
        tau: Kendall's tau-b; None where undefined.
        p: Its two-sided p-value; None where undefined.
        reason: Why it is undefined; empty where it is not.
    """

    row: int
    id: int
    predicted: int
    words: int
    pair: Pair
    tau: float | None
    p: float | None
    reason: str


def agreements(
    model: AttentionClassifier,
    dataset: Dataset,
    *,
    rows: Sequence[int] | None = None,
    max_bytes: int = MAX_BYTES,
    progress: Callable[[float], None] = lambda share: None,
) -> Iterator[Agreement]:
    """Correlate attention, gradient importance and leave-one-out within each document.

    Args:
        model: a model whose items are words.
        dataset: the documents.
        rows: documents that leave-one-out looks at, ascending; default: all.
        max_bytes: of a batch of the saliency methods, see there.
        progress: told the share of the documents that is done.

    Yields:
        For each document `attention_gradient`, and for those of `rows` the two pairs with
        leave-one-out. Undefined: fewer than two words, or an importance that is constant, such as
        the gradient of a saturated output (`gradient constant`).

    Source:
        Jain & Wallace 2019, section 4.1; SciPy's tau-b, as their code.

    Example:
        >>> list(agreements(model, prepared.test))[0].tau  # doctest: +SKIP
        0.37
    """
    wanted = range(len(dataset)) if rows is None else rows
    deleted = dict(
        zip(
            wanted,
            _watched(
                leave_one_out(model, chosen(dataset, wanted), max_bytes=max_bytes),
                len(wanted),
                progress,
            ),
            strict=True,
        )
    )
    gradients = gradient_importance(model, dataset, max_bytes=max_bytes)
    for (one, weights), gradient in zip(instances(model, dataset), gradients, strict=True):
        found: dict[Pair, tuple[Floats, Floats]] = {"attention_gradient": (weights, gradient)}
        loo = deleted.get(one.row)
        if loo is not None:
            found["attention_loo"] = (weights, loo)
            found["gradient_loo"] = (gradient, loo)
        for pair, (x, y) in found.items():
            yield Agreement(one.row, one.id, one.predicted, one.words, pair, *_tau(pair, x, y))


def _tau(pair: Pair, x: Floats, y: Floats) -> tuple[float | None, float | None, str]:
    found = kendall_tau(x, y)
    if found.value is not None:
        return found.value, found.p_value, ""
    if len(x) < 2:
        return None, None, FEW
    first, second = _NAMES[pair]
    return None, None, f"{first if (x == x[0]).all() else second} constant"


def _watched(
    scores: Iterator[Floats], count: int, progress: Callable[[float], None]
) -> Iterator[Floats]:
    for number, found in enumerate(scores, start=1):
        yield found
        progress(number / count)
