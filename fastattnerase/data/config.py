"""Where a corpus comes from and how its text becomes numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fastattnerase.data.errors import DataError
from fastattnerase.fields import wrong_choices


@dataclass(frozen=True)
class DataConfig:
    """Everything that turns files into data sets; JSON-able.

    Either `path` alone (split by `split_column`, or drawn), or `train` with `dev` and `test` where
    there are such files. A split that is not given is drawn from the training rows, from a seed;
    every draw is a hash of the seed and the row's number, the same everywhere and in any order of
    reading.

    Attributes:
        path: File with all rows: CSV or TSV with a header line (columns separated by commas,
            semicolons, tabs or `|`), JSON (an object a line, or an array of them) or Parquet, also
            compressed (`.gz`, `.xz`, `.zst`).
        train: File of training rows, instead of one with all rows.
        dev: File of development rows; they are drawn from the training rows where it is not given.
        test: File of test rows; they are drawn from the training rows where it is not given.
        reader: Name of a registered reader; by default the file's extension chooses.
        text_column: Column of the texts.
        label_column: Column of the labels.
        query_column: Column of a second text for models that take two, such as a question about the
            text or a hypothesis; by default there is none. Rows without words in it, and dev or
            test rows whose label no training row has, are left out and counted.
        answers_column: Column of the labels that are allowed in a row: a list, or a text with
            semicolons between; by default all are. Rows whose own label is not among them are left
            out and counted.
        spans_column: Column of the words of the text that are marked, such as supporting facts or
            the words by which people explained a label: pairs of numbers, or a text such as
            `3:8;10:14` (from the word number 3, counted from 0, to before number 8). They are kept,
            and cut as the text is.
        spans_unit: What those numbers count: `words`, which white space separates, with `sentences`
            = `spaces`; or `characters` of the text, from which the words that they touch are found;
            what does not fit the words is counted.
        split_column: Column that says train, dev (or val, valid, validation) or test.
        fractions: Shares of train, dev and test among all rows, for splits that are drawn; three
            numbers with spaces between, such as 0.8 0.1 0.1.
        seed: Seed of the splits that are drawn.
        classes: Labels to keep, with commas between, in their order; rows with another label or
            none are left out and counted. By default all labels are kept, and rows without one are
            refused.
        draw: How splits are drawn: `stratified`, by label, of exact size; `independent`, each row
            by a draw of its own, with the shares as probabilities (Serrano & Smith 2019, code);
            `quota`, so many rows of each class as `quota` says.
        quota: Largest numbers of rows of each class in train, dev and test, also of splits that
            have files. Where a class has too few rows, drawn splits shrink alike. Test is drawn
            first, then dev, then train, and a row that a length limit leaves out is replaced by the
            next.
        max_sentences: Documents with more sentences are left out of `limited_splits`, and counted.
        max_sentence_tokens: Documents with a longer sentence are left out of `limited_splits`, and
            counted.
        limited_splits: Splits in which those two limits hold.
        sentences: Where sentences end: `rules` (spaCy's rule-based sentencizer, nothing to
            download), or the name or folder of an installed spaCy pipeline that finds them, such as
            `en_core_web_sm` (the published code's); or `spaces`: the text is one sentence whose
            words white space separates.
        language: Language by whose rules words are cut: a code of spaCy's, nothing to download,
            such as `en`, `de`, `fr`, `es`, `ru` or `zh`, or `xx` for no language in particular.
            Pipelines have a language of their own.
        min_count: Words that occur less often than this in train and dev are unknown words.
        max_tokens: Longer documents are cut after so many words, and counted; by default none is.
        lower_case: Whether words are compared in lower case.
        line_breaks: Whether HTML line breaks (`<br />`) are white space.
        vectors: File of word vectors in GloVe's text format; by default embeddings start from
            random numbers.
        unit_vectors: Whether each word vector is scaled to length 1.
    """

    path: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    reader: str | None = None
    text_column: str = "text"
    label_column: str = "label"
    query_column: str | None = None
    answers_column: str | None = None
    spans_column: str | None = None
    spans_unit: Literal["words", "characters"] = "words"
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
    language: str = "en"
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
                f"fractions: given {self.fractions}, needed three shares of train, dev and test, "
                "none negative, that of train positive"
            )
        if abs(sum(self.fractions) - 1) > 1e-6:
            raise DataError(
                f"fractions: given {self.fractions}, which add to {sum(self.fractions):g}, needed "
                "shares that add to 1"
            )
        if not 0 <= self.seed < 2**63:
            raise DataError(f"seed: given {self.seed}, needed 0 to 2**63 - 1")
        if self.min_count < 1:
            raise DataError(f"min_count: given {self.min_count}, needed at least 1")
        for name in ("max_tokens", "max_sentences", "max_sentence_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name}: given {value}, needed at least 1, or None")
        if self.classes is not None and len(set(self.classes)) < max(2, len(self.classes)):
            raise DataError(f"classes: given {self.classes}, needed at least two distinct labels")
        if self.language != "en" and self.sentences != "rules":
            raise DataError(
                f"language: given {self.language!r} with sentences {self.sentences!r}, needed with "
                "sentences 'rules' and only with them"
            )
        for problem in wrong_choices(self):
            raise DataError(problem)
        if self.answers_column is not None and self.query_column is None:
            raise DataError(
                f"answers_column: given {self.answers_column!r} without query_column, needed with "
                "it"
            )
        in_words = self.spans_column is not None and self.spans_unit == "words"
        if in_words and self.sentences != "spaces":
            raise DataError(
                f"spans_column: given {self.spans_column!r} with sentences {self.sentences!r}, "
                "needed 'spaces', where words are what white space separates, or spans_unit "
                "'characters'"
            )
        if (self.draw == "quota") != (self.quota is not None):
            given = "none" if self.quota is None else str(self.quota)
            raise DataError(
                f"quota: given {given} with draw {self.draw!r}, needed with draw 'quota' and only "
                "with it"
            )
        if self.quota is not None and (len(self.quota) != 3 or min(self.quota) < 0):
            raise DataError(
                f"quota: given {self.quota}, needed three numbers of rows of each class, in train, "
                "dev and test, none negative"
            )
        unknown = sorted(set(self.limited_splits) - {"train", "dev", "test"})
        if unknown:
            raise DataError(f"limited_splits: given {unknown}, needed some of train, dev and test")
        if self.path is not None and (self.train or self.dev or self.test):
            files = [name for name in ("train", "dev", "test") if getattr(self, name)]
            raise DataError(
                f"path: given with {' and '.join(files)}, needed alone: it has all rows"
            )
        if self.split_column is not None and self.train is not None:
            raise DataError(
                "split_column: given with separate files, needed with one file that has all rows"
            )

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as a dictionary for JSON.

        `language` is there only where it is not English, the columns of a query, of what belongs to
        it and of spans only where they are given: data and runs of versions that had no such
        options go on and open as before.
        """
        values = asdict(self)
        if self.language == "en":
            del values["language"]
        for name in ("query_column", "answers_column", "spans_column"):
            if values[name] is None:
                del values[name]
        if self.spans_unit == "words":
            del values["spans_unit"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @property
    def tokenisation(self) -> dict[str, Any]:
        """How texts are cut into words and sentences: the arguments of `tokenise`."""
        names = ("line_breaks", "sentences", "language", "spans_unit")
        return {name: getattr(self, name) for name in names}

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
