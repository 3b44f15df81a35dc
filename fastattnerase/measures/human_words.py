"""Words that people marked, and words that a method chooses: what plausibility compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fastattnerase.measures.base import Bools, Floats, Ints, orders_of, read_offsets, read_scores
from fastattnerase.plurals import counted
from fastattnerase.statistics.bootstrap import Bootstrap, Estimate
from fastattnerase.statistics.resampled import Counts

RationalePreset = Literal["eraser", "ferret"]
FERRET_WORDS = 5  # that ferret chooses unless told otherwise
_SLACK = 1e-9  # of a product share · n, whose rounding shall not add a word


@dataclass(frozen=True, eq=False)
class F1:
    """Precision, recall and F1 of what was chosen, an instance each; all NaN where undefined.

    Attributes:
        values: `[N]`, float64: F1, 0 where nothing is a hit.
        precision: `[N]`, float64: hits / chosen, 0 where nothing is chosen.
        recall: `[N]`, float64: hits / marked.
        hits: `[N]`, int64: chosen and marked; 0 where undefined.
        chosen: `[N]`, int64: likewise.
        marked: `[N]`, int64: likewise.
        undefined: from each reason to how many instances have it.
        mean_of: what the macro average is: the mean of the instances' F1 ("f1"), or the F1 of mean
            precision and mean recall ("parts").
    """

    values: Floats
    precision: Floats
    recall: Floats
    hits: Ints
    chosen: Ints
    marked: Ints
    undefined: dict[str, int]
    mean_of: Literal["f1", "parts"]

    @property
    def micro(self) -> float:
        """`2 Σ hits / (Σ chosen + Σ marked)`; NaN where no instance is defined."""
        total = int(self.chosen.sum() + self.marked.sum())
        return 2 * int(self.hits.sum()) / total if total else float("nan")

    @property
    def macro(self) -> float:
        """The average over instances that `mean_of` says; NaN where none is defined."""
        defined = ~np.isnan(self.values)
        if not defined.any():
            return float("nan")
        if self.mean_of == "f1":
            return float(self.values[defined].mean())
        return f1_of(float(self.precision[defined].mean()), float(self.recall[defined].mean()))

    def intervals(
        self, *, seed: int = 0, resamples: int = 1000, confidence: float = 0.95
    ) -> dict[str, Estimate]:
        """Estimate the averages, instances resampled.

        Args:
            seed: of the resampling.
            resamples: how many.
            confidence: coverage of the intervals.

        Returns:
            Estimates of "micro" and "macro", and of the means of instances' "precision", "recall"
            and "f1".
        """
        bootstrap = Bootstrap(seed=seed, resamples=resamples, confidence=confidence)
        both = (self.chosen + self.marked).astype(np.float64)
        found = {"micro": bootstrap.ratio(2 * self.hits.astype(np.float64), both)}
        rows = (("precision", self.precision), ("recall", self.recall), ("f1", self.values))
        found |= {name: bootstrap.summarise(row)["mean"] for name, row in rows}
        if self.mean_of == "f1":
            return found | {"macro": found["f1"]}
        statistic = _F1OfMeans(self.precision, self.recall)
        [[macro]] = bootstrap.intervals([statistic], len(self.values))
        return found | {"macro": macro}


class _F1OfMeans:
    """The F1 of mean precision and mean recall, as a statistic that is resampled.

    Args:
        precision: `[N]`, NaN where undefined.
        recall: `[N]`, NaN at the same places.
    """

    count = 1

    def __init__(self, precision: Floats, recall: Floats) -> None:
        defined = ~np.isnan(precision)
        self.columns = np.stack(
            [np.where(defined, precision, 0), np.where(defined, recall, 0), defined], axis=1
        )  # [N, 3]

    def own(self) -> Floats:
        """Give that of the sample, `[1]`."""
        return np.asarray(self._of(self.columns.sum(axis=0, keepdims=True))[0])

    def resampled(self, counts: Counts, sums: Floats, rows: Floats) -> Floats:
        """Give those of resamples, `[C, 1]`."""
        return self._of(sums)

    def _of(self, sums: Floats) -> Floats:
        """Give `2 P R / (P + R)`, `[C, 1]`; 0 where both are 0, NaN where nothing is defined."""
        precision, recall, number = sums[:, :1], sums[:, 1:2], sums[:, 2:]
        below = number * (precision + recall)
        found = np.where(number > 0, 0.0, np.nan)
        np.divide(2 * precision * recall, below, out=found, where=below > 0)
        return found


def f1_of(precision: float, recall: float) -> float:
    """Give `2 P R / (P + R)`; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def compared(
    hits: Ints, precision: Floats, recall: Floats, chosen: Ints, marked: Ints,
    undefined: dict[str, Bools], mean_of: Literal["f1", "parts"],
) -> F1:  # fmt: skip
    """Put together what was compared, leaving out the instances that are undefined, by reason."""
    out = np.logical_or.reduce(list(undefined.values()))  # [N]
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    counts = {why: int(which.sum()) for why, which in undefined.items()}
    return F1(
        np.where(out, np.nan, f1),
        np.where(out, np.nan, precision),
        np.where(out, np.nan, recall),
        np.where(out, 0, hits),
        np.where(out, 0, chosen),
        np.where(out, 0, marked),
        undefined={why: count for why, count in counts.items() if count},
        mean_of=mean_of,
    )


def marked_words(spans: Sequence[ArrayLike | None], lengths: ArrayLike) -> Bools:
    """Mark the words of spans.

    Args:
        spans: of each text `[K, 2]`, integers: the first word, and the one after the last; None for
            none.
        lengths: `[N]`, words of each text.

    Returns:
        `[T]`, bool, one text after another.

    Raises:
        ValueError: another number of texts; a span that is empty or outside its text, naming it.

    Example:
        >>> from fastattnerase.measures.human_words import marked_words
        >>> marked_words([[[1, 3]], None], [4, 2]).tolist()
        [False, True, True, False, False, False]
    """
    n = np.asarray(lengths, dtype=np.int64)
    if len(spans) != len(n):
        raise ValueError(f"spans: given {len(spans)}, needed {len(n)}, for each text its own")
    found = np.zeros(int(n.sum()), dtype=bool)
    begin = 0
    for number, (own, length) in enumerate(zip(spans, n.tolist(), strict=True)):
        pairs = np.empty((0, 2)) if own is None else np.asarray(own, dtype=np.int64).reshape(-1, 2)
        for first, end in pairs.tolist():
            if not 0 <= first < end <= length:
                raise ValueError(
                    f"spans: given {int(first)} to {int(end)} in text {number} of "
                    f"{counted(length, 'word')}, needed one inside it"
                )
            found[begin + int(first) : begin + int(end)] = True
        begin += length
    return found


def runs(words: Bools) -> Ints:
    """Give the spans of neighbouring words of one text that are True: `[n]` to `[K, 2]`.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.measures.human_words import runs
        >>> runs(np.array([True, True, False, True])).tolist()
        [[0, 2], [3, 4]]
    """
    edges = np.diff(words.astype(np.int8), prepend=0, append=0)  # [n + 1]
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)


def mean_share(human: ArrayLike, offsets: ArrayLike) -> float:
    """Compute the mean share of marked words over the texts that have some.

    ERASER takes that of the training split to choose as many words of a test text.

    Args:
        human: `[T]`, bool, one text after another.
        offsets: `[N + 1]`, integers.

    Returns:
        In (0, 1].

    Raises:
        ValueError: no text has a marked word.

    Example:
        >>> from fastattnerase.measures.human_words import mean_share
        >>> mean_share([True, False, False, False, True, True], [0, 2, 4, 6])
        0.75
    """
    words = np.asarray(human, dtype=bool)
    bounds = read_offsets(offsets, len(words))
    counts = np.diff(np.concatenate([[0], np.cumsum(words)])[bounds])  # [N]
    some = counts > 0
    if not some.any():
        raise ValueError("human: given no marked word, needed at least one text with some")
    return float((counts[some] / np.diff(bounds)[some]).mean())


def choose_words(
    scores: ArrayLike,
    offsets: ArrayLike,
    *,
    share: float | None = None,
    count: ArrayLike | None = None,
    preset: RationalePreset | None = None,
    only_positive: bool = False,
) -> Bools:
    """Choose the top `k` words of each text, ties by position.

    Args:
        scores: `[T]`, one text after another.
        offsets: `[N + 1]`, integers.
        share: `k = ceil(share · n)`, in (0, 1].
        count: `k`, a number or one for each text, `[N]`; more than a text has are all of it.
        preset: "eraser" (`share`, which has to be given: the training split's, see `mean_share`) or
            "ferret" (5 words, those of positive score alone, unless `count` says otherwise).
        only_positive: whether only words of a score above 0 are chosen.

    Returns:
        `[T]`, bool.

    Raises:
        ValueError: scores that do not fit or are NaN, naming the instance; neither or both of
            `share` and `count`; a share out of (0, 1], a negative count; an unknown preset.

    Source:
        DeYoung et al. 2020, ERASER, section 4.1 and code; Attanasio et al. 2023, ferret's code.

    Example:
        >>> from fastattnerase.measures.human_words import choose_words
        >>> choose_words([0.1, 0.9, 0.5, 0.2], [0, 4], share=0.3).tolist()
        [False, True, True, False]
    """
    values, bounds = read_scores("scores", scores, offsets)
    if values.ndim != 1:
        raise ValueError(f"scores: given {list(values.shape)}, needed [T]")
    if preset not in (None, "eraser", "ferret"):
        raise ValueError(f"preset: given {preset!r}, needed one of eraser, ferret")
    if preset == "ferret":
        only_positive = True
        count = FERRET_WORDS if count is None else count
    if (share is None) == (count is None):
        given = "neither" if share is None else "both"
        raise ValueError(f"share, count: given {given}, needed one of them")
    n = np.diff(bounds)  # [N]
    if count is not None:
        k = np.broadcast_to(np.asarray(count, dtype=np.int64), n.shape)
        if (k < 0).any():
            raise ValueError(f"count: given {int(k.min())}, needed 0 or more")
    else:
        assert share is not None
        if not 0 < share <= 1:
            raise ValueError(f"share: given {share}, needed more than 0 and at most 1")
        k = np.ceil(share * n - _SLACK).astype(np.int64)
    starts = np.repeat(bounds[:-1], n)  # [T]
    places = starts + orders_of(values, bounds)  # [T], the most important first
    top = np.arange(len(values)) - starts < np.repeat(k, n)
    chosen = np.zeros(len(values), dtype=bool)
    chosen[places[top]] = True
    return chosen & (values > 0) if only_positive else chosen
