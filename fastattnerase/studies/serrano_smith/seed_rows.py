"""The numbers over seeds in the form that a report shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.sentences import PHRASES

LABELS = {
    "accuracy": "accuracy",
    "uniform_kl": "mean KL(α‖uniform)",
    "largest_weight": "mean largest weight",
    "flips": "share of decisions flipped",
    "fraction_median": "median fraction erased at the first flip",
    "skill": "skill",
    "negative_delta_js": "share with a negative ΔJS",
    "only_top": "share in which only the top item flips",
    "only_random": "share in which only the random item flips",
    "gradient_first": "share in which gradient needs fewer items than attention",
    "product_first": "share in which the product needs fewer items than attention",
}
_OF_RANKINGS = ("flips", "fraction_median", "skill")


def shown(result: Result) -> Iterator[tuple[str, tuple[int, ...], list[dict[str, Any]]]]:
    """Yield name, seeds and rows of a run that joins those of several seeds; nothing of another."""
    if result.over_seeds:
        rows = [
            {
                "label": LABELS[record.quantity]
                + (
                    f", {PHRASES.get(record.ranking, record.ranking)}"
                    if record.quantity in _OF_RANKINGS
                    else ""
                ),
                "estimate": record.estimate,
                "spread": record.spread,
            }
            for record in result.over_seeds
        ]
        yield result.run.name, result.seeds, rows


def endless(value: float) -> str:
    """Write a number that may be infinite, which stands for never.

    >>> endless(0.12345), endless(math.inf)
    ('0.123', 'never')
    """
    return f"{value:.3f}" if math.isfinite(value) else "never"
