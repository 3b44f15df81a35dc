"""What is known of prepared documents, as studies keep it in their records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PreparedData:
    """A prepared data set: what `write_preset` says of it.

    Attributes:
        title: Name, for reports.
        note: What a reader of the numbers must know of it.
        words: Size of the vocabulary.
        mean_length: Mean number of words of a training document.
        documents: Number of documents by split and class.
        dropped: Number of documents that were not read, by the reason.
        filtered: Number of documents that the filter of lengths leaves out, by split.
        classes: Names of the classes.

    Example:
        >>> documents = {"train": {"no": 1200, "yes": 34}, "test": {"no": 5, "yes": 6}}
        >>> data = PreparedData("SST", "", 100, 19.5, documents, {"no_word": 2}, {"train": 3})
        >>> data.counts("train")
        '1,200 / 34'
        >>> data.told
        '1,234 train, 11 test; left out: 2 no word, 3 by the filter of lengths'
    """

    title: str
    note: str
    words: int
    mean_length: float
    documents: dict[str, dict[str, int]]
    dropped: dict[str, int]
    filtered: dict[str, int]
    classes: tuple[str, ...] = ()

    def counts(self, split: str) -> str:
        """Write the numbers of documents by class."""
        return " / ".join(f"{count:,}" for count in self.documents[split].values())

    @property
    def left_out(self) -> str:
        """Number of documents that are not used, by the reason in words; `none` without any."""
        counts = {reason.replace("_", " "): count for reason, count in self.dropped.items()}
        counts["by the filter of lengths"] = sum(self.filtered.values())
        return (
            ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count) or "none"
        )

    @property
    def told(self) -> str:
        """What it is in a line, for who watches."""
        used = ", ".join(f"{sum(n.values()):,} {split}" for split, n in self.documents.items())
        known = (
            ""
            if self.words
            else ("; no word is frequent enough for the vocabulary, so all are unknown words")
        )
        return f"{used}; left out: {self.left_out}{known}"


@dataclass(frozen=True)
class DataResult:
    """What the step of a study that prepares a data set leaves.

    Attributes:
        about: The data set.
    """

    about: PreparedData
