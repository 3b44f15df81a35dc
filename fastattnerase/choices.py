"""The names that arguments of the public functions take, as type checkers see them."""

from __future__ import annotations

from typing import Literal

BackendName = Literal["auto", "cuda", "triton", "cpu", "reference"]
CurveName = Literal["js", "kl", "label_prob", "mass", "decision", "logits"]
Direction = Literal["erase", "keep"]
Directions = Literal["erase", "keep", "both"]
FixedAttention = Literal["uniform", "trained", "random", "parameters"]
