"""The outputs of a model as labels: clusters of logits or probabilities, or classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastattnerase.extras import needs
from fastattnerase.mi.clusters import Codebook
from fastattnerase.mi.config import Config
from fastattnerase.mi.errors import MeasurementError
from fastattnerase.mi.frames import frame
from fastattnerase.mi.grouping import RankedStates

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = Any

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_OUTPUT_RESTARTS = 10  # logits are few and cheap


def output_labels(ranked: RankedStates, used: Ints, config: Config) -> tuple[Ints, DataFrame]:
    """Label the outputs of the used instances: `[n]`, -1 elsewhere, and the table of labels."""
    logits = ranked.logits[used]  # [U, C]
    C = logits.shape[1]
    values = _output_values(logits, config.output_space)  # [U, 1] or [U, C]
    if config.output == "classes" or (config.output == "auto" and C != 2):
        labels = ranked.labels[used]
        what = "predicted class"
    else:
        book = Codebook(
            values.copy(),
            config.output_clusters,
            restarts=_OUTPUT_RESTARTS,
            seed=config.seed,
            what="the set of outputs",
            option="--output-clusters",
        )
        labels = book.labels.astype(np.int64)
        if values.shape[1] == 1:
            labels = book.centres[:, 0].argsort(kind="stable").argsort()[labels]  # ascending
        labels = np.unique(labels, return_inverse=True)[1]  # without clusters that are empty
        what = "output cluster"
    names, sizes = np.unique(labels, return_counts=True)
    if len(names) < 2:
        fall = "the instance falls" if len(used) == 1 else f"all {len(used)} instances fall"
        raise MeasurementError(
            f"{fall} into one {what}, so that mutual information with it "
            f"is 0 whatever the states are; check that the model is trained and the instances are "
            f"of several classes, or quantise the outputs another way (--output, --output-space)"
        )
    single = values.shape[1] == 1
    table = frame(
        {
            "label": names.astype(np.int64),
            "instances": sizes.astype(np.int64),
            "low": [values[labels == x].min() if single else np.nan for x in names],
            "high": [values[labels == x].max() if single else np.nan for x in names],
        }
    )
    output = np.full(len(ranked), -1, dtype=np.int64)
    output[used] = labels
    return output, table


def _output_values(logits: Floats, space: Literal["logit", "probability"]) -> Floats:
    """Give what stands for an output: one number with two classes, else C: [U, C] to [U, 1|C]."""
    if logits.shape[1] == 2:
        difference = logits[:, 1:] - logits[:, :1]  # [U, 1]
        if space == "logit":
            return difference
        return np.asarray(0.5 * (1 + np.tanh(difference / 2)))
    if space == "logit":
        return np.asarray(logits - logits.mean(axis=1, keepdims=True))
    with needs("text"):
        from scipy.special import softmax
    return np.asarray(softmax(logits, axis=1))
