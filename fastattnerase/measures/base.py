"""What every measure says of itself, and what those that have a number an instance return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Generic, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastattnerase.plurals import counted
from fastattnerase.statistics.bootstrap import Bootstrap, Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Better = Literal["higher", "lower"]

Given = ParamSpec("Given")
Found = TypeVar("Found", covariant=True)


class Measure(Generic[Given, Found]):
    """A measure: a plain function that also says which way is better, and in which range.

    Args:
        function: the function; its name is the measure's.
        better: which of two values is better; None where neither is.
        low: the smallest value there is.
        high: the largest.
        random: what a random order has on average; None where that depends on the model and the
            data.
        best: what the best order there is has; None likewise.

    Example:
        >>> from fastattnerase.measures.skill import skill
        >>> skill.name, skill.better, skill.random, skill.best
        ('skill', 'higher', 0.0, 1.0)
    """

    def __init__(
        self,
        function: Callable[Given, Found],
        *,
        better: Better | None,
        low: float,
        high: float,
        random: float | None = None,
        best: float | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.better = better
        self.low = low
        self.high = high
        self.random = random
        self.best = best

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Found:
        """Compute it."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Name, direction and range."""
        better = f"{self.better} is better" if self.better else "no direction"
        return f"Measure({self.name}, {better}, {self.low} to {self.high})"


def measure(
    *,
    better: Better | None,
    low: float,
    high: float,
    random: float | None = None,
    best: float | None = None,
) -> Callable[[Callable[Given, Found]], Measure[Given, Found]]:
    """Make a function a measure; the arguments are those of `Measure`."""

    def made(function: Callable[Given, Found]) -> Measure[Given, Found]:
        return Measure(function, better=better, low=low, high=high, random=random, best=best)

    return made


@dataclass(frozen=True, eq=False)
class Measured:
    """A number an instance, of one ranking or of several.

    Attributes:
        values: `[N]` or `[R, N]`, float64: NaN where undefined.
        undefined: from each reason to how many instances (of all rankings) have it.
        counted: as `values`, bool: which are part of means; default: those that are not NaN.
    """

    values: Floats
    undefined: Mapping[str, int] = field(default_factory=dict)
    counted: Bools = None  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        if self.counted is None:
            object.__setattr__(self, "counted", ~np.isnan(self.values))

    @property
    def mean(self) -> Floats:
        """`[]` or `[R]`, float64: the mean over the instances that count, NaN without any."""
        total = np.where(self.counted, self.values, 0.0).sum(-1)
        number = self.counted.sum(-1)
        return np.asarray(np.where(number > 0, total / np.maximum(number, 1), np.nan))

    def intervals(
        self, *, seed: int = 0, resamples: int = 1000, confidence: float = 0.95
    ) -> list[Estimate]:
        """Estimate the mean of each ranking, instances resampled; all see the same resamples.

        Args:
            seed: of the resampling.
            resamples: how many.
            confidence: coverage of the intervals.

        Returns:
            An estimate for each of the R rankings; for `[N]` a list of one.
        """
        bootstrap = Bootstrap(seed=seed, resamples=resamples, confidence=confidence)
        rows = np.atleast_2d(np.where(self.counted, self.values, np.nan))  # [R, N]
        return [bootstrap.summarise(row)["mean"] for row in rows]


def read_curves(curves: ArrayLike, offsets: ArrayLike) -> tuple[Floats, Ints]:
    """Read curves over prefixes, `[P]` or `[R, P]`, and where each instance begins, `[N + 1]`.

    Raises:
        ValueError: curves of another shape, or offsets that do not end where they do.
    """
    values = np.asarray(curves, dtype=np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"curves: given {list(values.shape)}, needed [P] or [R, P]")
    bounds = read_offsets(offsets, values.shape[-1])
    if (np.diff(bounds) < 1).any():
        raise ValueError("offsets: given an instance without a value, needed its n + 1")
    return values, bounds


def read_offsets(offsets: ArrayLike, size: int) -> Ints:
    """Read where each instance begins, and the end of the last: `[N + 1]`.

    Raises:
        ValueError: they do not rise from 0 to `size`.
    """
    bounds = np.asarray(offsets, dtype=np.int64)
    if bounds.ndim != 1 or not len(bounds) or bounds[0] != 0 or bounds[-1] != size:
        raise ValueError(f"offsets: given {bounds.tolist()!s:.60}, needed 0 to {size}")
    if (np.diff(bounds) < 0).any():
        raise ValueError(f"offsets: given {bounds.tolist()!s:.60}, needed no smaller than before")
    return bounds


def read_scores(name: str, scores: ArrayLike, offsets: ArrayLike) -> tuple[Floats, Ints]:
    """Read scores of the words of instances, `[T]` or `[R, T]`, and where each instance begins.

    Raises:
        ValueError: scores of another number than offsets say, or NaN, naming the instance.
    """
    values = np.asarray(scores, dtype=np.float64)
    bounds = np.asarray(offsets, dtype=np.int64)
    if values.ndim not in (1, 2) or bounds.ndim != 1 or not len(bounds):
        raise ValueError(
            f"{name}: given {list(values.shape)} with offsets {list(bounds.shape)}, needed [T] or "
            "[R, T] with offsets [N + 1]"
        )
    if values.shape[-1] != bounds[-1]:
        raise ValueError(
            f"{name}: given {counted(values.shape[-1], 'score')}, needed {bounds[-1]}, one for "
            f"each word of {counted(len(bounds) - 1, 'document')}"
        )
    bounds = read_offsets(bounds, values.shape[-1])
    wrong = np.isnan(values).any(axis=0) if values.ndim == 2 else np.isnan(values)  # [T]
    if wrong.any():
        place = int(wrong.argmax())
        instance = int(np.searchsorted(bounds, place, side="right")) - 1
        raise ValueError(
            f"{name}: given NaN in instance {instance} at {place - bounds[instance]}, needed "
            "numbers"
        )
    return values, bounds


def orders_of(scores: Floats, bounds: Ints) -> Ints:
    """Give places within each instance, the largest score first, ties by lower place.

    Args:
        scores: `[T]` or `[R, T]`.
        bounds: `[N + 1]`.

    Returns:
        As `scores`, int64.
    """
    instance = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))  # [T]
    rows = np.atleast_2d(scores)
    # lexsort is stable: by instance, then by score, then by place.
    starts = np.repeat(bounds[:-1], np.diff(bounds))  # [T]
    orders = [np.lexsort((-row, instance)) - starts for row in rows]
    return np.asarray(orders, dtype=np.int64).reshape(scores.shape)
