"""The public names of `fastattnerase.interop`, which that package imports when one is used."""

from fastattnerase.interop.attention_model import AttentionModel
from fastattnerase.interop.eraser import (
    EraserRationale,
    EraserResult,
    EraserThreshold,
    eraser_results,
    read_eraser,
    write_eraser,
)
from fastattnerase.interop.inseq import read_inseq
from fastattnerase.interop.scores import PackedScores, pack_scores
from fastattnerase.interop.tokens import scores_of_tokens

__all__ = [
    "AttentionModel",
    "EraserRationale",
    "EraserResult",
    "EraserThreshold",
    "PackedScores",
    "eraser_results",
    "pack_scores",
    "read_eraser",
    "read_inseq",
    "scores_of_tokens",
    "write_eraser",
]
