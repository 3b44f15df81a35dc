"""All measures of the rankings of one sweep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastattnerase.extras import needs
from fastattnerase.measures import find  # of the package itself the public names would be asked
from fastattnerase.measures.base import Floats, Measured
from fastattnerase.measures.thresholds import Preset, Thresholds, thresholds

if TYPE_CHECKING:
    from pandas import DataFrame

    from fastattnerase.ops.envelope import Envelope
    from fastattnerase.ops.results import PrefixErasure
else:
    DataFrame = Envelope = PrefixErasure = Any

Of = Literal["probability", "logit"]

_RANDOM = re.compile(r"random(\[\d+\])?")
_BOTH = "direction='both'"


@dataclass(frozen=True, eq=False)
class SweepMeasures:
    """Measures of the rankings of a sweep: `R` rankings, `B` instances.

    Attributes:
        rankings: names of the R rows; "random" is one row, the mean over its orders.
        found: from a measure's name and its grid ("" where it has none) to its values, `[R, B]`.
        missing: from the name of each measure that is not there to the argument that it needs.

    Example:
        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[4.0], [-1.0], [1.0]]), torch.tensor([0, 3]),
        ...     weights=torch.tensor([0.5, 0.3, 0.2]), head_weight=torch.tensor([[1.0], [-1.0]]),
        ... )
        >>> swept = fae.sweep(batch, ["attention"], curves="label_prob", direction="both")
        >>> found = swept.measures()
        >>> found["symmetric_relevance_gain"].values.round(3).tolist()
        [[0.234]]
        >>> found.missing["aopc_over_random"]
        "rankings with 'random' among them, and random_orders=20 or so"
    """

    rankings: tuple[str, ...]
    found: dict[tuple[str, str], Measured]
    missing: dict[str, str]

    def __getitem__(self, name: str | tuple[str, str]) -> Measured:
        """Give a measure by its name, or by name and grid.

        Raises:
            ValueError: there is none; the message has what it needs, or those there are.
        """
        key = name if isinstance(name, tuple) else (name, "")
        if key in self.found:
            return self.found[key]
        if key[0] in self.missing:
            raise ValueError(f"{key[0]}: given a sweep without, needed {self.missing[key[0]]}")
        grids = [repr((measure, grid)) for measure, grid in self.found if measure == key[0]]
        known = grids or sorted({measure for measure, _ in self.found})
        raise ValueError(f"measure: given {name!r}, needed one of {', '.join(known)}")

    def to_pandas(self) -> DataFrame:
        """Make a table with a row per measure, ranking and instance.

        Columns: instance (the row of the batch), ranking, measure, grid, value.
        """
        with needs("text"):
            import pandas as pd
        R = len(self.rankings)
        parts = []
        for (measure, grid), of in self.found.items():
            B = of.values.shape[1]
            parts.append(
                pd.DataFrame(
                    {
                        "instance": np.tile(np.arange(B), R),
                        "ranking": np.repeat(np.array(self.rankings, dtype=object), B),
                        "measure": measure,
                        "grid": grid,
                        "value": of.values.ravel(),
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)

    def summary(
        self, *, seed: int = 0, resamples: int = 1000, confidence: float = 0.95
    ) -> DataFrame:
        """Make a table with a row per measure and ranking: means over instances, with intervals.

        Columns: ranking, measure, grid, better ("higher", "lower" or None), mean, low and high (of
        the bootstrap, instances resampled; all rankings see the same resamples), instances (that
        count).

        Args:
            seed: of the resampling.
            resamples: how many.
            confidence: coverage of the intervals.
        """
        with needs("text"):
            import pandas as pd
        rows = []
        for (measure, grid), of in self.found.items():
            estimates = of.intervals(seed=seed, resamples=resamples, confidence=confidence)
            for row, (ranking, mean) in enumerate(zip(self.rankings, estimates, strict=True)):
                rows.append(
                    {
                        "ranking": ranking,
                        "measure": measure,
                        "grid": grid,
                        "better": find(measure).better,
                        "mean": mean.value,
                        "low": mean.low,
                        "high": mean.high,
                        "instances": int(of.counted[row].sum()),
                    }
                )
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        """Rankings, measures, and what those that are not there need."""
        there = [f"{measure}/{grid}" if grid else measure for measure, grid in self.found]
        without = [f"{measure} (needs {what})" for measure, what in self.missing.items()]
        return (
            f"SweepMeasures(rankings={list(self.rankings)},\n  found={', '.join(there)},\n"
            f"  missing={', '.join(without) or 'none'})"
        )


def measure_sweep(
    result: PrefixErasure,
    *,
    of: Of = "probability",
    fraction: float = 0.2,
    grids: Sequence[Preset] = ("eraser", "ferret", "every"),
    envelope: Envelope | None = None,
) -> SweepMeasures:
    """Compute the measures that a sweep's curves allow; the arguments as of `Sweep.measures`."""
    erased, kept = _curves(result, of)
    bounds = result.curve_offsets.cpu().numpy()
    random = [row for row, name in enumerate(result.rankings) if _RANDOM.fullmatch(name)]
    rows = [row for row in range(len(result.rankings)) if row not in random]
    rankings = [result.rankings[row] for row in rows] + ["random"] * bool(random)
    chosen = {grid: _of_orders(grid) for grid in grids}
    found: dict[tuple[str, str], Measured] = {}
    missing: dict[str, str] = {}

    def gather(curves: Floats) -> Floats:
        """Put the mean of the random orders behind the others: all measures are linear."""
        parts = [curves[rows]] + ([curves[random].mean(0)[None]] if random else [])
        return np.concatenate(parts)

    for curves, measure, area in (
        (erased, "comprehensiveness", "deletion_area"),
        (kept, "sufficiency", "insertion_area"),
    ):
        if curves is None:
            missing |= dict.fromkeys((measure, f"aopc_{measure}", area), _BOTH)
            continue
        own = gather(curves)
        found[measure, ""] = find(measure)(own, bounds, fraction)
        for grid, at in chosen.items():
            found[f"aopc_{measure}", grid] = find(f"aopc_{measure}")(own, bounds, at)
        found[area, ""] = find(area)(own, bounds)
    if erased is not None and random:
        for grid, at in chosen.items():
            found["aopc_over_random", grid] = find("aopc_over_random")(
                gather(erased), erased[random], bounds, at
            )
    else:
        missing["aopc_over_random"] = (
            "rankings with 'random' among them, and random_orders=20 or so" if not random else _BOTH
        )
    if erased is not None and kept is not None:
        found["symmetric_relevance_gain", ""] = find("symmetric_relevance_gain")(
            gather(erased), gather(kept), bounds
        )
    else:
        missing["symmetric_relevance_gain"] = _BOTH
    if envelope is None:
        what = "envelope=fae.envelope(batch, rankings) with the same rankings"
        missing |= dict.fromkeys(("envelope_area", "normalized_area"), what)
    else:
        found |= _within(envelope, result, rankings)
    return SweepMeasures(tuple(rankings), found, missing)


def _of_orders(grid: Preset) -> Thresholds:
    """Give a grid for orders, which do not say which items have a score above 0: all are taken."""
    at = thresholds(grid)
    return Thresholds(at.fractions, at.rounding, at.distinct, include_zero=at.include_zero)


def _curves(result: PrefixErasure, of: Of) -> tuple[Floats | None, Floats | None]:
    """Read the label's probability or logit at every prefix: as items are erased, and kept.

    Raises:
        ValueError: the sweep has no such curve; a probability of one output.
    """
    if of not in ("probability", "logit"):
        raise ValueError(f"of: given {of!r}, needed 'probability' or 'logit'")
    classes = result.probabilities.shape[1]
    if of == "probability" and classes == 1:
        raise ValueError(
            "of: given 'probability' of one output, which is always 1, needed of='logit' with "
            "curves='logits'"
        )
    if of == "logit" and "logits" not in result.curves:
        raise ValueError(
            f"curves: given {tuple(result.curves)}, needed 'logits' among them for of='logit'"
        )
    if of == "probability" and not {"label_prob", "logits"} & set(result.curves):
        raise ValueError(
            f"curves: given {tuple(result.curves)}, needed 'label_prob' among them (or 'logits')"
        )
    given = (
        (None, result.curves)
        if result.direction == "keep"
        else (result.curves, result.kept_curves or None)
    )
    both: list[Floats | None] = []
    for curves in given:
        if curves is None:
            both.append(None)
        elif of == "probability" and "label_prob" in curves:
            both.append(curves["label_prob"].double().cpu().numpy())
        else:
            own = curves["logits"].double()  # [R, P, C]
            own = own.log_softmax(2).exp() if of == "probability" else own
            label = result.label.repeat_interleave(result.offsets.diff() + 1)  # [P]
            column = label.clamp(min=0).expand(len(own), -1)[..., None]  # [R, P, 1]
            both.append(own.gather(2, column)[..., 0].cpu().numpy())
    return both[0], both[1]


def _within(
    envelope: Envelope, result: PrefixErasure, rankings: list[str]
) -> dict[tuple[str, str], Measured]:
    """Compute the measures that an envelope bounds, of a sweep's rankings.

    Raises:
        ValueError: an envelope of other instances or rankings.
    """
    if not np.array_equal(envelope.offsets.cpu().numpy(), result.offsets.cpu().numpy()):
        raise ValueError("envelope: given one of other instances, needed one of the same batch")
    rows: list[list[int]] = []
    for name in rankings:
        rows.append(
            [
                row
                for row, other in enumerate(envelope.rankings)
                if other == name or (name == "random" and _RANDOM.fullmatch(other))
            ]
        )
        if not rows[-1]:
            raise ValueError(
                f"envelope: given one of rankings {envelope.rankings}, needed {name!r} among them"
            )
    bounds, at = envelope.places
    least, largest, curves = (
        x.double().cpu().numpy() for x in (envelope.least, envelope.largest, envelope.curves)
    )
    area = find("envelope_area")(least, largest, bounds, shares=at)
    R = len(rankings)
    everywhere = Measured(
        np.tile(area.values, (R, 1)), {why: R * count for why, count in area.undefined.items()}
    )
    own = np.stack([curves[row].mean(0) for row in rows]) if rows else curves[:0]
    keep = envelope.direction == "keep"
    return {
        ("envelope_area", ""): everywhere,
        ("normalized_area", ""): find("normalized_area")(
            own, least, largest, bounds, shares=at, keep=keep
        ),
    }
