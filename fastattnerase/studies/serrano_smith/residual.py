"""What erasing in a transformer's last layer leaves: the residual, and special tokens."""

from __future__ import annotations

from fastattnerase.plurals import plural
from fastattnerase.studies.serrano_smith.result import Result


def is_transformer(result: Result) -> bool:
    """Whether a run is of a transformer."""
    model = result.run.source.get("model_config")
    return isinstance(model, dict) and model.get("kind") == "transformer"


def left(result: Result) -> str:
    """Name what decides once every item is erased."""
    return "residual with special tokens" if is_transformer(result) else "bias alone"


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
    return (
        "Erased is in a transformer’s last layer: its residual keeps the classifying position’s "
        "own state, which earlier layers have filled from all words, and special tokens are never "
        f"erased. Erasing every word leaves {same:,} of {len(analysed):,} "
        f"{plural(len(analysed), 'decision')}{share} as they are."
    )
