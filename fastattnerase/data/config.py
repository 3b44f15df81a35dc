"""Where a corpus comes from and how its text becomes numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fastattnerase.data.errors import DataError


@dataclass(frozen=True)
class DataConfig:
    """Everything that turns files into data sets; JSON-able.

    Either `path` alone (split by `split_column`, or drawn), or `train` with `dev` and `test` where
    there are such files. A split that is not given is drawn from the training rows, stratified by
    label, from a seed.

    Attributes:
        path: one file with all rows.
        train: a file of training rows.
        dev: a file of development rows.
        test: a file of test rows.
        reader: a registered reader's name; None chooses by the file's extension.
        text_column: the column of the texts.
        label_column: the column of the labels.
        split_column: the column that says train, dev (or val, valid, validation) or test.
        fractions: shares of train, dev and test among all rows, for drawn splits.
        seed: of the draw.
        min_count: a word of the vocabulary occurs at least so often in train and dev.
        max_tokens: longer documents are cut there, and counted; None keeps all.
        lower_case: words are compared in lower case.
        line_breaks: HTML line breaks (`<br />`) are white space.
        vectors: a file of word vectors in GloVe's text format; None starts from random ones.
        unit_vectors: scale each word vector to length 1.
    """

    path: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    reader: str | None = None
    text_column: str = "text"
    label_column: str = "label"
    split_column: str | None = None
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)
    seed: int = 0
    min_count: int = 2
    max_tokens: int | None = None
    lower_case: bool = True
    line_breaks: bool = True
    vectors: str | None = None
    unit_vectors: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fractions", tuple(self.fractions))
        if len(self.fractions) != 3 or min(self.fractions) < 0 or self.fractions[0] <= 0:
            raise DataError(
                f"fractions: got {self.fractions}; three shares of train, dev and test are needed, "
                "none negative, that of train positive"
            )
        if abs(sum(self.fractions) - 1) > 1e-6:
            raise DataError(f"fractions: {self.fractions} add to {sum(self.fractions)}, not to 1")
        if self.min_count < 1:
            raise DataError(f"min_count: got {self.min_count}; at least 1 is needed")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise DataError(f"max_tokens: got {self.max_tokens}; at least 1, or None, is needed")
        if self.path is not None and (self.train or self.dev or self.test):
            raise DataError("path: give either one file as path or files as train, dev and test")
        if self.split_column is not None and self.train is not None:
            raise DataError("split_column: goes with one file as path, not with separate files")

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as a dictionary for JSON."""
        return asdict(self) | {"fractions": list(self.fractions)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DataConfig:
        """Make a configuration from `to_dict`'s result; unknown names are refused."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise DataError(f"data configuration: unknown {', '.join(map(repr, unknown))}")
        return cls(**values)
