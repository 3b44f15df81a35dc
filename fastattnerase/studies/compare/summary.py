"""From curves and scores to numbers: measures by document, means, and what differs surely."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastattnerase import measures
from fastattnerase.extras import needs
from fastattnerase.measures.agreement import agreement_matrix
from fastattnerase.measures.base import Measured
from fastattnerase.measures.human_words import choose_words, marked_words
from fastattnerase.plurals import plural
from fastattnerase.runs.workspace import Report
from fastattnerase.statistics.bootstrap import Bootstrap
from fastattnerase.statistics.resampled import Ratios
from fastattnerase.studies.compare.options import LAYER, RANDOM, WORDS

if TYPE_CHECKING:
    from fastattnerase.studies.compare.units import Compare
else:  # imported where they are used; hints that are read at run time say Any
    Compare = Any

with needs("report"):
    import pandas as pd

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HUMAN = "human words"  # what plausibility is about, beside what is erased


@dataclass
class Cell:
    """A measure of every ranking on every document.

    Attributes:
        level: what is erased, `words` or the `attention layer`, or `human words`.
        measure: name of the measure.
        grid: which prefixes are read; empty where that is no question.
        values: of each ranking `[N]`, NaN where undefined.
        undefined: of each ranking how many documents have no value, by reason.
    """

    level: str
    measure: str
    grid: str
    values: dict[str, Floats] = field(default_factory=dict)
    undefined: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, ranking: str, found: Measured) -> None:
        """Take a ranking's values; those that count are kept, the others are NaN."""
        self.values[ranking] = np.where(found.counted, found.values, np.nan)
        self.undefined[ranking] = dict(found.undefined)

    def joined(self, randoms: list[str]) -> Cell:
        """Give the cell with the random rankings as one, each document's mean over them."""
        kept = {name: own for name, own in self.values.items() if name not in randoms}
        rows = np.stack([self.values[name] for name in randoms])  # [S, N]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
            kept[RANDOM] = np.nanmean(rows, axis=0)
        reasons: dict[str, int] = {}
        for name in randoms:
            for why, count in self.undefined[name].items():
                reasons[why] = reasons.get(why, 0) + count
        shared = {why: -(-count // len(randoms)) for why, count in reasons.items()}
        undefined = {name: self.undefined[name] for name in kept if name != RANDOM}
        return Cell(self.level, self.measure, self.grid, kept, undefined | {RANDOM: shared})

    @property
    def better(self) -> str:
        """Whether `higher` or `lower` is better."""
        found = measures.find(self.measure).better
        assert found is not None
        return found


class Curves(NamedTuple):
    """Curves of one ranking over all documents, one document after another.

    Attributes:
        erased: `[P]`, the probability after the first k = 0 … n items are erased, NaN where it was
            not computed.
        kept: `[P]`, that of the first k alone.
        positive: `[N]`, items of a score above 0.
        first_flip: `[N]`, -1 for never; None where not every prefix was computed.
    """

    erased: Floats
    kept: Floats
    positive: Ints
    first_flip: Ints | None


def input_curves(work: Compare) -> Iterator[tuple[str, Curves]]:
    """Read the curves of erasing words of the input, ranking by ranking."""
    lengths = work.documents.sizes.words  # [N]
    starts = work.bounds[:-1] + np.arange(len(lengths))  # [N], in curves of n + 1 points
    every = "every" in work.options.grids
    decisions = work.instances()["decision"].to_numpy()  # [N]
    for of in (*work.word_methods, RANDOM):
        table = work.curves(of)
        scores = None if of == RANDOM else work.scores(of)
        for name, own in table.groupby("ranking", sort=False):
            size = int(lengths.sum()) + len(lengths)
            erased, kept = np.full(size, np.nan), np.full(size, np.nan)
            flips = np.full(len(lengths), -1)
            for row, k, gone, after, stay in zip(
                own["row"], own["k"], own["erased"], own["erased_decision"], own["kept"],
                strict=True,
            ):  # fmt: skip
                erased[starts[row] + k] = gone
                kept[starts[row] + k] = stay
                changed = k[(np.asarray(after) != decisions[row]) & (k > 0)]
                flips[row] = changed[0] if len(changed) else -1
            positive = lengths if scores is None else np.array([(s > 0).sum() for s in scores])
            yield str(name), Curves(erased, kept, positive, flips if every else None)


def layer_curves(work: Compare) -> Iterator[tuple[str, Curves]]:
    """Read the curves of erasing items at the attention layer, ranking by ranking."""
    _, table = work.layer_tables()
    for name, own in table.groupby("ranking", sort=False):
        erased, kept = (np.concatenate(own[column].tolist()) for column in ("erased", "kept"))
        yield (
            str(name),
            Curves(erased, kept, own["positive"].to_numpy(), own["first_flip"].to_numpy()),
        )


def erasing_cells(
    level: str,
    curves: Iterator[tuple[str, Curves]],
    lengths: Ints,
    grids: tuple[str, ...],
    minimal: Ints | None,
) -> list[Cell]:
    """Compute every measure of erasing for every ranking.

    Args:
        level: what is erased.
        curves: of the rankings.
        lengths: `[N]`, items of each document.
        grids: which prefixes are averaged over.
        minimal: `[N]`, the smallest set that flips, -1 for none; None where it is not known.
    """
    bounds = np.concatenate([[0], np.cumsum(lengths + 1)])  # [N + 1]
    cells: dict[tuple[str, str], Cell] = {}

    def add(measure: str, grid: str, ranking: str, found: Measured) -> None:
        cells.setdefault((measure, grid), Cell(level, measure, grid)).add(ranking, found)

    for name, own in curves:
        for grid in grids:
            for measure, curve in (
                ("aopc_comprehensiveness", own.erased),
                ("aopc_sufficiency", own.kept),
            ):
                of = measures.find(measure)
                add(measure, grid, name, of(curve, bounds, grid, positive=own.positive))
        if own.first_flip is None:
            continue
        add("deletion_area", "", name, measures.find("deletion_area")(own.erased, bounds))
        add("insertion_area", "", name, measures.find("insertion_area")(own.kept, bounds))
        flips = measures.find("flip_fraction")(own.first_flip, lengths, never=1.0)
        add("flip_fraction", "", name, flips)
        if minimal is not None:
            gap = measures.find("optimality_gap")(own.first_flip, minimal)
            add("optimality_gap", "", name, gap)
    return list(cells.values())


def human_cells(work: Compare) -> tuple[list[Cell], pd.DataFrame]:
    """Compare scores of words with the words that people marked.

    Returns:
        The cells, and ERASER's averages of F1: micro, and macro as it has them.
    """
    spans = [document.spans for document in work.documents]
    bounds = work.bounds
    human = marked_words(spans, np.diff(bounds))  # [T]
    share = work.subject.share if work.options.share == "train" else None
    starts = np.concatenate([[0], np.cumsum(human)])
    chosen: dict[str, Any] = {"share": share}
    if share is None:
        chosen = {"count": np.diff(starts[bounds])}
    cells = [Cell(HUMAN, name, "") for name in ("auprc", "token_f1", "iou_f1")]
    averages = []
    named = {name: np.concatenate(work.scores(name)) for name in work.word_methods}
    lengths = np.diff(bounds).tolist()
    for number, name in enumerate(work.randoms):
        drawn = [work.random_scores(number, row, n) for row, n in enumerate(lengths)]
        named[name] = np.concatenate(drawn)
    for name, scores in named.items():
        cells[0].add(name, measures.find("auprc")(scores, human, bounds))
        words = choose_words(scores, bounds, **chosen)
        for cell, f1 in (
            (cells[1], measures.find("token_f1")(words, human, bounds)),
            (cells[2], measures.find("iou_f1")(words, spans, bounds)),
        ):
            cell.add(name, Measured(f1.values, f1.undefined))
            averages.append(
                {"method": name, "measure": cell.measure, "micro": f1.micro, "macro": f1.macro}
            )
    return cells, pd.DataFrame(averages)


def summarise(work: Compare, report: Report) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Compute all numbers of a comparison.

    Returns:
        Tables: `instances`, a row for each document, ranking and measure; `means`, with intervals;
        `pairs`, differences of every two methods; `agreement`; `f1` where people marked words. And
        what the record says.
    """
    lengths = work.documents.sizes.words  # [N]
    cells = erasing_cells(WORDS, input_curves(work), lengths, work.options.grids, None)
    report(0.3)
    of_layer, _ = work.layer_tables()
    known = bool(of_layer["has_minimal"].all())
    items = of_layer["items"].to_numpy()
    minimal = of_layer["minimal"].to_numpy() if known else None
    grids = tuple(dict.fromkeys((*work.options.grids, "every")))
    cells += erasing_cells(LAYER, layer_curves(work), items, grids, minimal)
    report(0.5)
    tables: dict[str, pd.DataFrame] = {}
    if work.subject.marked:
        found, averages = human_cells(work)
        cells += found
        tables["f1"] = averages
    cells = [cell.joined(work.randoms) for cell in cells]
    report(0.6)
    bootstrap = Bootstrap(seed=work.options.seed, resamples=work.options.resamples)
    tables["means"] = pd.DataFrame([row for cell in cells for row in _means(cell, bootstrap)])
    tables["pairs"] = pd.DataFrame([row for cell in cells for row in _pairs(cell, bootstrap)])
    report(0.8)
    tables["agreement"] = _agreement(work, bootstrap)
    tables["instances"] = _instances(cells)
    return tables, {"found": f"{len(tables['means']):,} {plural(len(tables['means']), 'mean')}"}


def _ratios(columns: list[Floats], bootstrap: Bootstrap) -> list[Any]:
    """Estimate the mean of each column `[N]` over the documents where it is defined."""
    if not columns:
        return []
    values = np.stack(columns, axis=1)  # [N, K]
    defined = ~np.isnan(values)
    which = tuple(range(values.shape[1]))
    statistic = Ratios(np.where(defined, values, 0.0), defined.astype(np.float64), which)
    return bootstrap.intervals([statistic], len(values))[0]


def _means(cell: Cell, bootstrap: Bootstrap) -> Iterator[dict[str, Any]]:
    """List the mean of each ranking with its interval."""
    estimates = _ratios(list(cell.values.values()), bootstrap)
    for (name, values), estimate in zip(cell.values.items(), estimates, strict=True):
        reasons = cell.undefined[name]
        yield {
            "level": cell.level,
            "measure": cell.measure,
            "grid": cell.grid,
            "better": cell.better,
            "method": name,
            "mean": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "documents": int((~np.isnan(values)).sum()),
            "reasons": "; ".join(f"{why}: {count}" for why, count in reasons.items()),
        }


def _pairs(cell: Cell, bootstrap: Bootstrap) -> Iterator[dict[str, Any]]:
    """List the mean difference of every two rankings on the documents where both are defined."""
    names = list(cell.values)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    estimates = _ratios([cell.values[a] - cell.values[b] for a, b in pairs], bootstrap)
    for (a, b), estimate in zip(pairs, estimates, strict=True):
        yield {
            "level": cell.level,
            "measure": cell.measure,
            "grid": cell.grid,
            "method": a,
            "other": b,
            "difference": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
        }


def _agreement(work: Compare, bootstrap: Bootstrap) -> pd.DataFrame:
    """Correlate the scores of every two methods of words, and of the attention layer's items."""
    groups = {WORDS: {name: work.scores(name) for name in work.word_methods}}
    if not work.flat:
        groups[LAYER] = {name: work.scores_of_items(name) for name in work.methods}
    rows = []
    for level, own in groups.items():
        if len(own) < 2:
            continue
        names = list(own)
        lengths = [len(scores) for scores in own[names[0]]]
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        scores = np.stack([np.concatenate(one) for one in own.values()])  # [R, T]
        found = agreement_matrix(scores, bounds)
        pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
        estimates = _ratios([found.values[:, i, j] for i, j in pairs], bootstrap)
        rows += [
            {"level": level, "method": names[i], "other": names[j], "tau": estimate.value,
             "low": estimate.low, "high": estimate.high,
             "documents": len(lengths) - int(found.undefined[i, j]),
             "undefined": int(found.undefined[i, j])}
            for (i, j), estimate in zip(pairs, estimates, strict=True)
        ]  # fmt: skip
    columns = ["level", "method", "other", "tau", "low", "high", "documents", "undefined"]
    return pd.DataFrame(rows, columns=columns)


def _instances(cells: list[Cell]) -> pd.DataFrame:
    """Put the values of all documents into one table."""
    parts = [
        pd.DataFrame(
            {"level": cell.level, "measure": cell.measure, "grid": cell.grid, "method": name,
             "row": np.arange(len(values)), "value": values}
        )
        for cell in cells
        for name, values in cell.values.items()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def by_measure(means: pd.DataFrame) -> Mapping[tuple[str, str, str], pd.DataFrame]:
    """Group a table of means by level, measure and grid, in their order."""
    keys = means[["level", "measure", "grid"]].drop_duplicates()
    return {
        (level, measure, grid): means[
            (means["level"] == level) & (means["measure"] == measure) & (means["grid"] == grid)
        ]
        for level, measure, grid in keys.itertuples(index=False)
    }
