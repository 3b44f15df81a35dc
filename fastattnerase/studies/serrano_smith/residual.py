"""What erasing in a transformer's last layer leaves: the residual, and special tokens."""

from __future__ import annotations

from typing import Any

from fastattnerase.plurals import plural
from fastattnerase.studies.serrano_smith.result import Result


def is_transformer(result: Result) -> bool:
    """Whether a run is of a transformer."""
    return _config(result).get("kind") == "transformer"


def left(result: Result) -> str:
    """Name what decides once every item is erased."""
    if not is_transformer(result):
        return "bias alone"
    return "residual with special tokens" if _keeps_special(result) else "residual"


def residual(result: Result) -> str:
    """Say of a transformer what is never erased, and how often erasing every word changes nothing.

    Args:
        result: a finished run.

    Returns:
        Two sentences; empty of other models.
    """
    if not is_transformer(result):
        return ""
    table = result.table("instances", ["label", "bias_label", "excluded"])
    analysed = table[table["excluded"] == ""]
    same = int((analysed["label"] == analysed["bias_label"]).sum())
    share = f" ({100 * same / len(analysed):.1f}\u00a0%)" if len(analysed) else ""
    keeps = _keeps_special(result)
    kept, item = (", and special tokens are never erased", "word") if keeps else ("", "item")
    return (
        "Erased is in a transformer’s last layer: its residual keeps the classifying position’s "
        f"own state, which earlier layers have filled from all words{kept}. Erasing every {item} "
        f"leaves {same:,} of {len(analysed):,} {plural(len(analysed), 'decision')}{share} as they "
        "are."
    )


def _config(result: Result) -> dict[str, Any]:
    model = result.run.source.get("model_config")
    return model if isinstance(model, dict) else {}


def _keeps_special(result: Result) -> bool:
    return _config(result).get("special") != "items"
