"""Where a corpus comes from and how its text becomes numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fastattnerase.data.errors import DataError


@dataclass(frozen=True)
class DataConfig:
    """Everything that turns files into data sets; JSON-able.

    Either `path` alone (split by `split_column`, or drawn), or `train` with `dev` and `test` where
    there are such files. A split that is not given is drawn from the training rows, from a seed;
    every draw is a hash of the seed and the row's number, the same everywhere and in any order of
    reading.

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
        classes: the labels to keep, in their order; rows with another label or none are left out
            and counted. None keeps all labels, and refuses rows without one.
        draw: `stratified`: by label, of exact size; `independent`: each row by a draw of its own,
            with the shares as probabilities (Serrano & Smith 2019, code); `quota`: so many rows of
            each class as `quota` says.
        quota: with that draw, rows of each class in train, dev and test, at most; also of splits
            that have files. Where a class has too few rows, drawn splits shrink alike. Test is
            drawn first, then dev, then train, and a row that a length limit leaves out is replaced
            by the next.
        max_sentences: documents with more sentences are left out of `limited_splits`, and counted.
        max_sentence_tokens: so are documents with a longer sentence.
        limited_splits: the splits in which those two limits hold.
        sentences: where sentences end: `rules` (spaCy's rule-based sentencizer, nothing to
            download), or the name or folder of an installed spaCy pipeline that finds them, such as
            `en_core_web_sm` (the published code's); or `spaces`: the text is one sentence whose
            words white space separates.
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
    classes: tuple[str, ...] | None = None
    draw: Literal["stratified", "independent", "quota"] = "stratified"
    quota: tuple[int, int, int] | None = None
    max_sentences: int | None = None
    max_sentence_tokens: int | None = None
    limited_splits: tuple[str, ...] = ("train",)
    sentences: str = "rules"
    min_count: int = 2
    max_tokens: int | None = None
    lower_case: bool = True
    line_breaks: bool = True
    vectors: str | None = None
    unit_vectors: bool = False

    def __post_init__(self) -> None:
        for name in ("fractions", "limited_splits", "classes", "quota"):  # JSON gives lists
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))
        # Written so that NaN is refused too.
        if len(self.fractions) != 3 or not (
            all(0 <= share <= 1 for share in self.fractions) and self.fractions[0] > 0
        ):
            raise DataError(
                f"fractions: got {self.fractions}; three shares of train, dev and test are needed, "
                "none negative, that of train positive"
            )
        if abs(sum(self.fractions) - 1) > 1e-6:
            raise DataError(f"fractions: {self.fractions} add to {sum(self.fractions)}, not to 1")
        if not 0 <= self.seed < 2**63:
            raise DataError(f"seed: got {self.seed}; 0 to 2**63 - 1 is needed")
        if self.min_count < 1:
            raise DataError(f"min_count: got {self.min_count}; at least 1 is needed")
        for name in ("max_tokens", "max_sentences", "max_sentence_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name}: got {value}; at least 1, or None, is needed")
        if self.classes is not None and len(set(self.classes)) < max(2, len(self.classes)):
            raise DataError(f"classes: got {self.classes}; at least two distinct labels are needed")
        if self.draw not in ("stratified", "independent", "quota"):
            raise DataError(f"draw: got {self.draw!r}; stratified, independent or quota is needed")
        if (self.draw == "quota") != (self.quota is not None):
            raise DataError("quota: goes with draw='quota', and that draw needs it")
        if self.quota is not None and (len(self.quota) != 3 or min(self.quota) < 0):
            raise DataError(
                f"quota: got {self.quota}; three numbers of rows of each class in train, dev and "
                "test are needed, none negative"
            )
        unknown = sorted(set(self.limited_splits) - {"train", "dev", "test"})
        if unknown:
            raise DataError(f"limited_splits: got {unknown}; of train, dev and test are needed")
        if self.path is not None and (self.train or self.dev or self.test):
            raise DataError("path: give either one file as path or files as train, dev and test")
        if self.split_column is not None and self.train is not None:
            raise DataError("split_column: goes with one file as path, not with separate files")

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as a dictionary for JSON."""
        values = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @property
    def length_limited(self) -> bool:
        """Whether a length limit is set."""
        return self.max_sentences is not None or self.max_sentence_tokens is not None

    def fits(self, sentence_lengths: Sequence[int]) -> bool:
        """Whether a document with sentences of these many words keeps to the length limits."""
        if self.max_sentences is not None and len(sentence_lengths) > self.max_sentences:
            return False
        longest = max(sentence_lengths, default=0)
        return self.max_sentence_tokens is None or longest <= self.max_sentence_tokens

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DataConfig:
        """Make a configuration from `to_dict`'s result; unknown names are refused."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise DataError(f"data configuration: unknown {', '.join(map(repr, unknown))}")
        return cls(**values)
