"""How a transformer's texts become items, and what erasing one means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from fastattnerase.fields import wrong_choices
from fastattnerase.models.errors import ModelError


@dataclass(frozen=True)
class TransformerConfig:
    """Choices about items; JSON-able.

    Attributes:
        unit: what an item is: `words` of the data, whose pieces are erased together, or `pieces`.
        special: whether special tokens are `kept` in every erasure, or `items` like others.
        pool: a word's score from its pieces': their `sum`, the `largest`, or that of the `first`.
        erasure: what erasing a word of the input does: its pieces are left out and the positions
            close up (`remove`), or each becomes the `mask` token.
        max_pieces: pieces of a text with its special tokens, at most; None: as many as the model
            and its tokenizer take. Longer texts are cut and counted.

    Raises:
        ModelError: another choice; fewer than three pieces.

    Example:
        >>> TransformerConfig(unit="pieces").to_dict()["special"]
        'kept'
    """

    unit: Literal["words", "pieces"] = "words"
    special: Literal["kept", "items"] = "kept"
    pool: Literal["sum", "largest", "first"] = "sum"
    erasure: Literal["remove", "mask"] = "remove"
    max_pieces: int | None = None

    def __post_init__(self) -> None:
        for problem in wrong_choices(self):
            raise ModelError(problem)
        if self.max_pieces is not None and self.max_pieces < 3:
            raise ModelError(
                f"max_pieces: given {self.max_pieces}, needed at least 3: two special tokens and a "
                "piece"
            )

    @property
    def kind(self) -> str:
        """What kind of model it is, beside those of `ModelConfig`."""
        return "transformer"

    def to_dict(self) -> dict[str, Any]:
        """Give the choices as a dictionary for JSON."""
        return {"kind": self.kind} | asdict(self)
