"""Mutual information between hidden states, grouped by attention rank, and the model's outputs.

Wen, Subbalakshmi and Yang, "Revisiting Attention Weights as Explanations from an Information
Theoretic Perspective" (2022).
"""

from typing import TYPE_CHECKING

from fastattnerase.lazy import public_names

if TYPE_CHECKING:
    from fastattnerase.mi.public import *  # noqa: F403
else:
    __getattr__, __dir__ = public_names(__name__)
