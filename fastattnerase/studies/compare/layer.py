"""Erasing items at the attention layer, where nothing is encoded again: the engine's curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.choices import CurveName
from fastattnerase.data.dataset import Dataset
from fastattnerase.extras import needs
from fastattnerase.kept_items import sweep_beside_kept
from fastattnerase.models.base import AttentionClassifier

with needs("report"):
    import pyarrow as pa

Floats = NDArray[np.float64]
# From documents and their numbers of items to the scores of the items by ranking.
Ranked = Callable[[range, list[int]], dict[str, Floats]]

SCHEMAS = {
    "instances": pa.schema(
        [
            ("row", pa.int64()),
            ("decision", pa.int64()),
            ("probability", pa.float64()),
            ("items", pa.int64()),
            ("minimal", pa.int64()),
            ("has_minimal", pa.bool_()),
            ("nothing", pa.int64()),
        ]
    ),
    "curves": pa.schema(
        [
            ("row", pa.int64()),
            ("ranking", pa.string()),
            ("positive", pa.int64()),
            ("first_flip", pa.int64()),
            ("erased", pa.list_(pa.float64())),
            ("kept", pa.list_(pa.float64())),
        ]
    ),
}


def erase(
    model: AttentionClassifier,
    documents: Dataset,
    rows: range,
    ranked: Ranked,
    target: int | None,
    seed: int,
) -> dict[str, list[dict[str, Any]]]:
    """Erase items by several rankings, and keep them, one prefix after another.

    Args:
        model: the model.
        documents: the documents.
        rows: their numbers.
        ranked: gives the scores of the items of some of them.
        target: the class whose probability is followed; None: each document's decision.
        seed: of the engine, which draws nothing here.

    Returns:
        Rows of the tables of `SCHEMAS`. The first flip is the engine's, that of the decision;
        `nothing` is the decision once every word of a transformer's text is erased, -1 elsewhere.
    """
    found: dict[str, list[dict[str, Any]]] = {"instances": [], "curves": []}
    curve: CurveName = "label_prob" if target is None else "logits"
    keeps_last: bool = getattr(model, "keeps_last", False)
    begin = rows.start
    for batch, _ in model.attention_outputs(documents):
        count = len(batch.offsets) - 1
        own = range(begin, begin + count)
        begin += count
        items = (batch.offsets.diff() - int(keeps_last)).tolist()
        scores = ranked(own, items)
        given = [torch.from_numpy(one).to(batch.device) for one in scores.values()]
        nothing = [-1] * count
        if keeps_last:
            erased = sweep_beside_kept(batch, given, curves=(curve, "decision"), seed=seed)
            kept = sweep_beside_kept(
                batch, given, curves=(curve,), direction="keep", seed=seed
            ).prefixes
            ends = erased.prefixes.curve_offsets[1:] - 1  # [B]
            nothing = erased.prefixes.curves["decision"][0, ends].tolist()
        else:
            erased = fae.sweep(batch, given, curves=(curve,), single=False, seed=seed)
            kept = fae.erase_prefixes(batch, given, curves=(curve,), direction="keep", seed=seed)
        gone, stay = (
            _probability(one.curves[curve], target).double().cpu()
            for one in (erased.prefixes, kept)
        )  # [R, T + B]
        minimal = erased.minimal
        sizes = [-1] * count if minimal is None else minimal.size.tolist()
        bounds = erased.prefixes.curve_offsets.tolist()
        decisions = erased.prefixes.label.tolist()
        found["instances"] += [
            {"row": row, "decision": decisions[b], "probability": float(gone[0, bounds[b]]),
             "items": items[b], "minimal": sizes[b], "has_minimal": minimal is not None,
             "nothing": nothing[b]}
            for b, row in enumerate(own)
        ]  # fmt: skip
        flips = erased.prefixes.first_flip.tolist()
        starts = erased.prefixes.offsets.tolist()
        found["curves"] += [
            {"row": row, "ranking": name,
             "positive": int((values[starts[b] : starts[b + 1]] > 0).sum()),
             "first_flip": flips[r][b],
             "erased": gone[r, bounds[b] : bounds[b + 1]].tolist(),
             "kept": stay[r, bounds[b] : bounds[b + 1]].tolist()}
            for r, (name, values) in enumerate(scores.items())
            for b, row in enumerate(own)
        ]  # fmt: skip
    return found


def _probability(curve: Tensor, target: int | None) -> Tensor:
    """Give the followed class's probability, `[R, T + B]`, from what the engine gives."""
    return curve if target is None else curve.double().softmax(-1)[..., target]
