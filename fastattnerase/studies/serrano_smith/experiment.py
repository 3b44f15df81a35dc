"""The erasure experiments of Serrano and Smith, "Is Attention Interpretable?" (ACL 2019).

Single-weight test (section 4): the top item of a ranking against a random other one, each erased
alone. Multi-weight test (section 5): how many items of a ranking must go before the decision
changes, and which of two rankings needs fewer (section 5.4). Beyond the paper: the exact
expectation over the random item under each rule of drawing it, and the exact minimal set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.fields import wrong_choices
from fastattnerase.rankings.random import random_keys
from fastattnerase.runs import rundir
from fastattnerase.runs.shape import ERASURE, RUN, check_shape
from fastattnerase.sources import Chunk, Source
from fastattnerase.statistics.attention import (
    attention_weights,
    divergences_from_uniform,
    head_weights,
)
from fastattnerase.statistics.bootstrap import UNDEFINED, Estimate, means, summarise
from fastattnerase.statistics.paired import compare

RANKINGS = ("random", "attention", "gradient", "product")
SINGLE_RANKINGS = ("attention", "gradient", "product")
ASCENDING = "ascending"  # attention, least first: what the published code measured beside these
PAIRS = (
    ("gradient", "attention"),
    ("product", "attention"),
    ("product", "gradient"),
    ("attention", "random"),
    ("gradient", "random"),
    ("product", "random"),
)
RULES = ("different", "uniform", "legacy")
CELLS = ("both", "only_top", "only_random", "neither")
EXCLUSIONS = ("empty", "length_1", "non_finite")
KIND = "serrano_smith"
# Raised when what run.json or result.json hold changes.
FORMAT = 2

RandomItem = Literal["different", "uniform", "legacy"]
NeverFlips = Literal["left_out", "minus_one", "one"]
_NEVER: dict[str, float] = {"left_out": np.nan, "minus_one": -1.0, "one": 1.0}

_PART = 2048  # instances in one part of the tables, and at most one more batch
_ITEM_DRAWS = 1 << 32  # random orders number from 0, draws of single items from here
_NEGATIVE = 1e-9  # smaller differences of two divergences are rounding

_INSTANCES = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.int64()),
        ("n", pa.int64()),
        ("gold", pa.int64()),
        ("label", pa.int64()),
        ("model_label", pa.int64()),
        ("bias_label", pa.int64()),
        ("probabilities", pa.list_(pa.float64())),
        ("logits", pa.list_(pa.float64())),
        ("uniform_kl", pa.float64()),
        ("uniform_js", pa.float64()),
        ("status", pa.int64()),
        ("excluded", pa.string()),
    ]
)
_SINGLE = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("item", pa.int64()),
        ("alpha", pa.float64()),
        ("js", pa.float64()),
        ("kl", pa.float64()),
        ("flip_label", pa.int64()),
        ("r_item", pa.int64()),
        ("r_alpha", pa.float64()),
        ("r_js", pa.float64()),
        ("r_kl", pa.float64()),
        ("r_flip_label", pa.int64()),
        ("delta_alpha", pa.float64()),
        ("delta_js", pa.float64()),
        ("others_alpha", pa.float64()),
        ("others_js", pa.float64()),
        ("others_flip_share", pa.float64()),
        ("later_flip_share", pa.float64()),
    ]
)
_ERASED = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("order", pa.int64()),
        ("place", pa.int64()),
        ("item", pa.int64()),
        ("alpha", pa.float64()),
        ("js", pa.float64()),
        ("kl", pa.float64()),
        ("flip_label", pa.int64()),
    ]
)
_MULTI = pa.schema(
    [
        ("row", pa.int64()),
        ("ranking", pa.string()),
        ("order", pa.int64()),
        ("first_flip", pa.int64()),
        ("flip_label", pa.int64()),
        ("fraction", pa.float64()),
        ("mass", pa.float64()),
        ("gap", pa.float64()),
    ]
)
# The last marks a part as complete.
SCHEMAS = {"multi": _MULTI, "single": _SINGLE, "erased": _ERASED, "instances": _INSTANCES}

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Config:
    """How the experiment is run.

    Attributes:
        seed: Seed of random rankings, random items and resampling; 0 to 2⁶³ - 1.
        random_orders: Random rankings of each instance; the paper plots one.
        random_item: How the random item of the single-weight test is drawn. `different`: uniformly
            over all items but the top one, the paper's stated requirement. `uniform`: over all
            items. `legacy`: over the positions from the second on, as the published code does.
        never_flips: What the table `multi` says of the fraction and mass of an instance that a
            ranking never flips, where first_flip is -1. `left_out` (NaN) and `minus_one` (-1, as
            the published code) stay out of summaries and figures; `one` (1) counts as erased
            wholly.
        backend: Backend of the engine: auto, or a name that `fastattnerase info` prints.
        resamples: Resamples of the bootstrap.
        confidence: Confidence of the intervals.
        exhibits: Documents shown in the report.

    Raises:
        ValueError: a value out of range, naming it.

    Source:
        Serrano and Smith 2019, sections 4 and 5.

    Example:
        >>> from fastattnerase.studies.serrano_smith.experiment import Config
        >>> Config(random_orders=5).random_item
        'different'
    """

    seed: int = 0
    random_orders: int = 1
    random_item: RandomItem = "different"
    never_flips: NeverFlips = "left_out"
    backend: str = "auto"
    resamples: int = 1000
    confidence: float = 0.95
    exhibits: int = 6

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed: given {self.seed}, needed 0 to 2**63 - 1")
        for name, least in (("random_orders", 1), ("resamples", 1), ("exhibits", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: given {getattr(self, name)}, needed at least {least}")
        for problem in wrong_choices(self):
            raise ValueError(problem)
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence: given {self.confidence}, needed a number in (0, 1)")


@dataclass(frozen=True)
class Result:
    """A finished run, read from its directory.

    Args:
        folder: the run directory.
        run: configuration, source, versions and machine.
        result: counts, aggregates with intervals, and documents to show.
    """

    folder: Path
    run: dict[str, Any]
    result: dict[str, Any]

    def table(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Read a per-instance table: `instances`, `single`, `multi` or `erased`."""
        return rundir.read_table(self.folder / f"{name}.parquet", columns)

    def fractions(self, column: str = "fraction") -> pd.DataFrame:
        """Read row, ranking, order and one column of `multi`; NaN where it is to be left out."""
        table = self.table("multi", ["row", "ranking", "order", column])
        table[column] = _known(table[column])
        return table

    def gaps(self, ranking: str) -> Floats:
        """Read a ranking's gaps to the smallest set, over the instances of `choosable`.

        Args:
            ranking: its name.

        Returns:
            `[K]`, one for each instance (and random order): items erased over items of the smallest
            set, infinite where the ranking never flips.
        """
        table = self.table("multi", ["row", "ranking", "first_flip", "fraction", "gap"])
        minimal = table[(table["ranking"] == "minimal") & (table["first_flip"] > 0)]
        rows = minimal.loc[choosable(minimal["fraction"]), "row"]
        own = table[(table["ranking"] == ranking) & table["row"].isin(rows)]
        return own["gap"].fillna(np.inf).to_numpy(dtype=np.float64)


def load(folder: Path) -> Result:
    """Read a finished run.

    Args:
        folder: a run directory.

    Returns:
        The run with its aggregates; per-instance tables are read on demand.

    Raises:
        RunError: no such run, an unfinished one, or one of another kind.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith import experiment
        >>> experiment.load(Path("no-such-run"))
        Traceback (most recent call last):
        ...
        fastattnerase.runs.rundir.RunError: no-such-run is not a run directory: it has no \
run.json
    """
    run, result = rundir.finished(folder, kind=KIND, again="the same `fastattnerase erase` command")
    if run.get("format") != FORMAT:
        raise rundir.RunError(
            f"{folder} was written in format {run.get('format')}, needed is {FORMAT}; erase again "
            "into another directory"
        )
    check_shape(run, RUN, folder / rundir.RUN)
    check_shape(result, ERASURE, folder / rundir.RESULT)
    return Result(folder, run, result)


def run(
    source: Source,
    config: Config,
    folder: Path,
    *,
    name: str,
    on_progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Erase, measure, aggregate, and write everything into a run directory.

    Instances stream through: memory does not grow with their number, but for one column of
    results at a time while aggregating. A run that was interrupted goes on where it stopped; a
    finished one with the same configuration and source is returned as it is, under the name given
    now.

    Args:
        source: the instances.
        config: the experiment.
        folder: the run directory; created where absent.
        name: of the model, for reports.
        on_progress: called with (instances done, all instances).

    Returns:
        The finished run.

    Raises:
        RunError: the directory holds results of another configuration or source.

    Source:
        Serrano and Smith 2019, sections 4 and 5.

    Example:
        >>> import tempfile, torch
        >>> import fastattnerase as fae
        >>> from pathlib import Path
        >>> from fastattnerase.sources import Chunk
        >>> from fastattnerase.studies.serrano_smith import experiment as s
        >>> class Two:
        ...     classes = ["no", "yes"]
        ...     def __len__(self):
        ...         return 1
        ...     def chunks(self, start):
        ...         if start == 0:
        ...             yield Chunk(fae.AttentionBatch(
        ...                 torch.tensor([[2.0], [-1.0]]), torch.tensor([0, 2]),
        ...                 weights=torch.tensor([0.5, 0.5]),
        ...                 head_weight=torch.tensor([[0.0], [1.0]]), head_bias=torch.zeros(2)))
        ...     def select(self, rows):
        ...         return self.chunks(0)
        ...     def describe(self):
        ...         return {"what": "two items"}
        >>> with tempfile.TemporaryDirectory() as tmp:
        ...     r = s.run(Two(), s.Config(resamples=10), Path(tmp) / "run", name="two")
        ...     [row["first_flip"] for _, row in r.table("multi").iterrows()][1:]
        [1, 1, 1, 1, 1]
    """
    state = {
        "kind": KIND,
        "format": FORMAT,
        "config": dataclasses.asdict(config),
        "source": source.describe(),
    }
    if rundir.begin(folder, state, name=name, about={"classes": source.classes}):
        return load(folder)
    tables = rundir.PartialTables(folder, list(SCHEMAS), state)
    done = tables.rows()
    report = on_progress or (lambda done, total: None)
    report(done, len(source))
    pending: list[dict[str, pa.Table]] = []
    for chunk in source.chunks(done):
        pending.append(measure(chunk, config, first_row=done))
        done += pending[-1]["instances"].num_rows
        if sum(part["instances"].num_rows for part in pending) >= _PART:
            tables.append(_concatenate(pending))
            pending.clear()
        report(done, len(source))
    if pending:
        tables.append(_concatenate(pending))
    tables.merge(SCHEMAS)
    result = aggregate(folder, config)
    result["head"] = _head(source)
    result["exhibits"] = _exhibits(source, config, folder)
    rundir.write_json(folder / rundir.RESULT, result)
    tables.discard()
    return load(folder)


def _head(source: Source) -> dict[str, Any]:
    """Say what of the head matters for reading the results: classes and bias."""
    for chunk in source.select([0]) if len(source) else ():
        bias = _head_bias(chunk.batch)
        # A bias that is not finite is no number in JSON, and nothing follows from it.
        usable = bias.dim() == 1 and bool(bias.isfinite().all())
        return {"classes": bias.shape[-1], "bias": bias.tolist() if usable else None}
    return {"classes": len(source.classes), "bias": None}


def _concatenate(parts: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([part[name] for part in parts]) for name in SCHEMAS}


# --- one batch -----------------------------------------------------------------------------------


def measure(chunk: Chunk, config: Config, *, first_row: int = 0) -> dict[str, pa.Table]:
    """Run both tests on one batch.

    Single-weight, with `i*` the top item of a ranking and `r` the random one:
    `ΔJS = JS(p, q_{i*}) − JS(p, q_r)` and `Δα = α_{i*} − α_r`; `others_*` are means over all
    items but `i*`. Multi-weight: first flip `k`, its fraction `k / n`, the original attention
    mass of the erased items, and the gap `k / minimal size`.

    Args:
        chunk: the batch, labels and decisions.
        config: the experiment.
        first_row: number of the first instance in its source.

    Returns:
        The tables `instances` (a row each), `single` (a row for each analysed instance and
        ranking), `multi` (for each analysed instance, ranking and order; the minimal set is the
        ranking `minimal`, absent with several attention heads; `ascending` is attention, least
        first) and `erased` (items erased alone: places 1, 2, -1 and -2 of attention, 1 and 2 of
        gradient and product, 1 of each random order). A first flip of -1 means "never"; missing
        labels are null. `kl` is KL(erased‖original), natural logarithm.

    Source:
        Serrano and Smith 2019, equation 1 and section 5.1.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.sources import Chunk
        >>> from fastattnerase.studies.serrano_smith.experiment import Config, measure
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[2.0], [-1.0]]), torch.tensor([0, 2]),
        ...     weights=torch.tensor([0.5, 0.5]),
        ...     head_weight=torch.tensor([[0.0], [1.0]]), head_bias=torch.zeros(2))
        >>> measure(Chunk(batch), Config())["single"]["flip_label"].to_pylist()
        [0, 0, 0]
    """
    batch = chunk.batch
    minimal = batch.values.dim() == 2  # several heads have no exact minimal set
    weights = attention_weights(batch)
    # Weights of an instance that is not finite are of no use, and no ranking either.
    least_first = torch.from_numpy(-np.nan_to_num(weights)).to(batch.device)
    w = fae.sweep(
        batch,
        rankings=(*RANKINGS, least_first),
        orders=True,
        seed=config.seed,
        random_orders=config.random_orders,
        single=True,
        minimal=minimal,
        backend=config.backend,
    )
    offsets = _ints(batch.offsets)
    n = np.diff(offsets)
    ids = _ints(batch.ids)
    status = _ints(w.prefixes.status)
    excluded = np.select(
        [n == 0, n == 1, (status & int(fae.Status.NON_FINITE | fae.Status.INVALID)) != 0],
        [*EXCLUSIONS],
        "",
    )
    kept = np.flatnonzero(excluded == "")
    rows = first_row + np.arange(len(n))
    head = _Head(batch)
    uniform_kl, uniform_js = divergences_from_uniform(weights, offsets)

    instances = pa.table(
        [
            rows,
            ids,
            n,
            _labels(chunk.gold, len(n)),
            _ints(w.prefixes.label),
            _labels(chunk.model_label, len(n)),
            _bias_labels(batch),
            pa.array(list(w.prefixes.probabilities.double().cpu().numpy())),
            pa.array(list(head.original.cpu().numpy())),
            uniform_kl,
            uniform_js,
            status,
            pa.array(excluded.tolist()),
        ],
        schema=_INSTANCES,
    )
    alone = _Alone(w, head, weights, offsets, kept)
    return {
        "instances": instances,
        "single": _single(alone, config, rows, ids),
        "multi": _multi(w, config, kept, rows, n, offsets, weights),
        "erased": _erased(alone, config, rows),
    }


class _Head:
    """The classifier on any selection of items, in float64."""

    def __init__(self, batch: fae.AttentionBatch) -> None:
        assert batch.head_weight is not None  # sources give linear heads
        shape = (batch.num_heads, batch.values.shape[-1])
        values = batch.values.double().reshape(len(batch.values), *shape)  # [T, H, D]
        weight = batch.head_weight.double()
        weight = weight.reshape(len(weight), *shape)  # [C, H, D]
        self.bias = _head_bias(batch).to(batch.device)  # [C] or [B, C]
        self.weights = torch.from_numpy(head_weights(batch)).to(batch.device)  # [T, H]
        contributions = torch.einsum("thd,chd->thc", values, weight)  # [T, H, C]
        self.weighted = contributions * self.weights[:, :, None]
        # Nothing comes from an item without weight, not even NaN.
        self.weighted[self.weights == 0] = 0.0
        lengths = batch.offsets.diff()
        self.instance = torch.repeat_interleave(
            torch.arange(len(lengths), device=batch.device), lengths
        )  # [T]
        self.count = len(lengths)
        self.original = self._logits(self.weights, self.weighted)  # [B, C]

    def _logits(self, weights: Tensor, weighted: Tensor) -> Tensor:
        shape = (self.count, *weighted.shape[1:])
        sums = weighted.new_zeros(shape).index_add_(0, self.instance, weighted)  # [B, H, C]
        mass = weights.new_zeros(shape[:2]).index_add_(0, self.instance, weights)  # [B, H]
        mean = torch.where(mass[:, :, None] > 0, sums / mass[:, :, None], 0.0)
        return mean.sum(1) + self.bias

    def without(self, items: Ints) -> Tensor:
        """Classify with these items [K] erased, at most one of each instance; `[B, C]`."""
        index = torch.from_numpy(items).to(self.weights.device)
        # Left out, not subtracted: nothing cancels.
        return self._logits(
            self.weights.index_fill(0, index, 0.0), self.weighted.index_fill(0, index, 0.0)
        )

    def kl(self, items: Ints) -> Floats:
        """Give KL(erased‖original) of each instance; `[B]`."""
        new = self.without(items).log_softmax(-1)
        divergence = (new.exp() * (new - self.original.log_softmax(-1))).sum(-1)
        return np.asarray(divergence.cpu().numpy()).clip(min=0.0)


class _Alone:
    """What erasing one item does, of the analysed instances of a batch."""

    def __init__(
        self, w: fae.Sweep, head: _Head, weights: Floats, offsets: Ints, kept: Ints
    ) -> None:
        assert w.single is not None  # asked for
        assert w.prefixes.order is not None
        self.orders = _ints(w.prefixes.order)  # [R, T]
        self.js = w.single.js.double().cpu().numpy()  # [T]
        self.flip_label = _ints(w.single.flip_label)  # [T]
        self.head, self.weights, self.offsets, self.kept = head, weights, offsets, kept
        self.begin, self.n = offsets[kept], np.diff(offsets)[kept]

    def place(self, row: int, place: int) -> Ints:
        """Find the item at a place of a ranking's order, 1 the first, -1 the last; `[K]`."""
        index = place - 1 if place > 0 else self.n + place
        return np.asarray(self.orders[row][self.begin + index])

    def columns(self, items: Ints) -> list[Any]:
        """Give alpha, js, kl and flip_label of positions [K]."""
        i = self.begin + items
        return [self.weights[i], self.js[i], self.head.kl(i)[self.kept], self.flip_label[i]]


def random_items(top: Ints, n: Ints, ids: Ints, *, rule: RandomItem, seed: int, draw: int) -> Ints:
    """Draw the random item `r` of the single-weight test, one for each instance.

    The draw depends on (seed, draw, the instance's id) alone, so batches do not matter.

    Args:
        top: `[B]`, position of the top item `i*`.
        n: `[B]`, items of the instance, at least 2.
        ids: `[B]`, ids of the instances.
        rule: `different`: uniform over the positions but `i*`. `uniform`: over all positions.
            `legacy`: over the positions after the first, so that `r = i*` can happen and the first
            item is never drawn; with two items always the second.
        seed: of the draws.
        draw: number of the draw, one for each ranking.

    Returns:
        `[B]` positions.

    Source:
        Serrano and Smith 2019, sections 4.1, 4.2 and figure 9; `legacy`: their published code.

    Example:
        >>> import numpy as np
        >>> from fastattnerase.studies.serrano_smith.experiment import random_items
        >>> one = np.array([1])
        >>> random_items(one, one + 1, one, rule="different", seed=0, draw=0).tolist()
        [0]
        >>> random_items(one, one + 1, one, rule="legacy", seed=0, draw=0).tolist()
        [1]
    """
    choices = n if rule == "uniform" else n - 1
    drawn = np.array(
        [
            (random_keys(seed, _ITEM_DRAWS + draw, instance, 1)[0] * count) >> 64
            for instance, count in zip(ids.tolist(), choices.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    if rule == "different":
        return np.asarray(drawn + (drawn >= top))
    return drawn + 1 if rule == "legacy" else drawn


def _single(alone: _Alone, config: Config, rows: Ints, ids: Ints) -> pa.Table:
    kept, offsets, n = alone.kept, alone.offsets, alone.n
    flips = (alone.flip_label >= 0).astype(np.float64)
    tables = []
    for draw, ranking in enumerate(SINGLE_RANKINGS):
        top = alone.place(config.random_orders + draw, 1)
        other = random_items(
            top, n, ids[kept], rule=config.random_item, seed=config.seed, draw=draw
        )
        alpha, js, kl, flip_label = alone.columns(top)
        r_alpha, r_js, r_kl, r_flip_label = alone.columns(other)
        i = alone.begin + top
        tables.append(
            pa.table(
                [
                    rows[kept],
                    pa.repeat(ranking, len(kept)),
                    top,
                    alpha,
                    js,
                    kl,
                    flip_label,
                    other,
                    r_alpha,
                    r_js,
                    r_kl,
                    r_flip_label,
                    alpha - r_alpha,
                    js - r_js,
                    _mean_of_others(alone.weights, offsets, kept, i),
                    _mean_of_others(alone.js, offsets, kept, i),
                    _mean_of_others(flips, offsets, kept, i),
                    _mean_of_others(flips, offsets, kept, alone.begin),
                ],
                schema=_SINGLE,
            )
        )
    return pa.concat_tables(tables)


def _erased(alone: _Alone, config: Config, rows: Ints) -> pa.Table:
    places = [("random", order, order, 1) for order in range(config.random_orders)]
    for number, (ranking, wanted) in enumerate(
        (("attention", (1, 2, -1, -2)), ("gradient", (1, 2)), ("product", (1, 2)))
    ):
        places += [(ranking, 0, config.random_orders + number, place) for place in wanted]
    tables = []
    for ranking, order, row, place in places:
        items = alone.place(row, place)
        count = len(items)
        tables.append(
            pa.table(
                [
                    rows[alone.kept],
                    pa.repeat(ranking, count),
                    pa.repeat(order, count),
                    pa.repeat(place, count),
                    items,
                    *alone.columns(items),
                ],
                schema=_ERASED,
            )
        )
    return pa.concat_tables(tables)


def _mean_of_others(values: Floats, offsets: Ints, kept: Ints, left_out: Ints) -> Floats:
    """Average `values` [T] over all items of each kept instance but one; `[K]`."""
    others = values.copy()
    others[left_out] = 0.0  # left out, not subtracted: nothing cancels
    n = np.diff(offsets)
    totals = np.zeros(len(n))
    np.add.at(totals, np.repeat(np.arange(len(n)), n), others)
    return np.asarray(totals[kept] / (n[kept] - 1))


def _multi(
    w: fae.Sweep,
    config: Config,
    kept: Ints,
    rows: Ints,
    n: Ints,
    offsets: Ints,
    weights: Floats,
) -> pa.Table:
    first_flip = _ints(w.prefixes.first_flip)[:, kept]  # [R, K]
    flip_label = _ints(w.prefixes.flip_label)[:, kept]
    mass = w.prefixes.removed_mass.double().cpu().numpy()[:, kept]
    orders = [("random", order) for order in range(config.random_orders)]
    orders += [(ranking, 0) for ranking in (*SINGLE_RANKINGS, ASCENDING)]
    never = _NEVER[config.never_flips]
    smallest = np.full(len(kept), np.nan)
    if w.minimal is not None:
        size = _ints(w.minimal.size)[kept]
        smallest = np.where(size > 0, size, np.nan)
        orders.append(("minimal", 0))
        first_flip = np.concatenate([first_flip, size[None]])
        flip_label = np.concatenate([flip_label, _ints(w.minimal.flip_label)[kept][None]])
        erased = _prefix_mass(weights, _ints(w.minimal.order), offsets, kept, size)
        mass = np.concatenate([mass, erased[None]])
    tables = []
    for row, (ranking, order) in enumerate(orders):
        flips = first_flip[row] > 0
        items = np.where(flips, first_flip[row], np.nan)
        tables.append(
            pa.table(
                [
                    rows[kept],
                    pa.repeat(ranking, len(kept)),
                    pa.repeat(order, len(kept)),
                    first_flip[row],
                    flip_label[row],
                    np.where(flips, items / n[kept], never),
                    np.where(flips, mass[row], never),
                    items / smallest,
                ],
                schema=_MULTI,
            )
        )
    return pa.concat_tables(tables)


def _prefix_mass(weights: Floats, order: Ints, offsets: Ints, kept: Ints, size: Ints) -> Floats:
    """Sum the weights of the first `size` items of an order, 0 where size is -1; `[K]`."""
    n = np.diff(offsets)
    instance = np.repeat(np.arange(len(n)), n)
    place = np.arange(len(order)) - offsets[instance]  # place in the order
    sizes = np.zeros(len(n), dtype=np.int64)
    sizes[kept] = size
    chosen = np.flatnonzero(place < sizes[instance])
    totals = np.zeros(len(n))
    np.add.at(totals, instance[chosen], weights[offsets[instance[chosen]] + order[chosen]])
    return np.asarray(totals[kept])


def _ints(tensor: Tensor) -> Ints:
    return np.asarray(tensor.cpu().numpy(), dtype=np.int64)


def _labels(labels: Tensor | None, count: int) -> pa.Array:
    if labels is None:
        return pa.nulls(count, pa.int64())
    values = _ints(labels)
    return pa.array(values, mask=values < 0)  # -1 is no label


def _head_bias(batch: fae.AttentionBatch) -> Tensor:
    assert batch.head_bias is not None  # sources give linear heads
    return batch.head_bias.cpu().double()  # [C] or [B, C]


def _bias_labels(batch: fae.AttentionBatch) -> Ints:
    """Find the decision without any item, `argmax(b)`; `[B]`."""
    decisions = _head_bias(batch).argmax(dim=-1)  # [] or [B]
    return _ints(decisions.expand(len(batch.offsets) - 1))


# --- aggregates ----------------------------------------------------------------------------------


def aggregate(folder: Path, config: Config) -> dict[str, Any]:
    """Summarise the per-instance tables of a run directory, with bootstrap intervals.

    Args:
        folder: holds `instances.parquet`, `single.parquet` and `multi.parquet`.
        config: resampling.

    Returns:
        JSON-able: `counts`, `uniform`, `single` (a record for each ranking), `multi` (likewise)
        and `pairs` (a record for each of `PAIRS`). Every estimate is `{"value", "low", "high"}`,
        None where undefined. Never-flipping instances are left out of fraction, mass and gap for
        each ranking separately, as the paper's box plots do, unless `never_flips` is `one`;
        contingency tables and ΔJS keep them. Gaps and `share_optimal` are over the instances of
        `choosable`; `common` over those that flip under every ranking.
    """
    options: dict[str, Any] = {
        "seed": config.seed,
        "resamples": config.resamples,
        "confidence": config.confidence,
    }
    return {
        "counts": _counts(folder),
        "uniform": _aggregate_uniform(folder, options),
        "single": [_aggregate_single(folder, ranking, options) for ranking in SINGLE_RANKINGS],
        "multi": _aggregate_multi(folder, options),
        "pairs": _aggregate_pairs(folder, options),
    }


def _known(values: pd.Series[float]) -> pd.Series[float]:
    """Hide what stands for "never" and is to be left out."""
    return values.where(values >= 0)


def _first_flips(folder: Path, ranking: str) -> Ints:
    """Read the first flips of a ranking, of the first order where there are several; `[N]`."""
    table = _read(folder, "multi", ["order", "first_flip"], ranking)
    return np.asarray(table.loc[table["order"] == 0, "first_flip"].to_numpy(), dtype=np.int64)


def _smallest(folder: Path) -> pd.Series[float]:
    """Read the fractions of the smallest sets, NaN where there is none; empty where unknown."""
    table = _read(folder, "multi", ["first_flip", "fraction"], "minimal")
    return table["fraction"].where(table["first_flip"] > 0)


def _read(folder: Path, table: str, columns: list[str], ranking: str | None = None) -> pd.DataFrame:
    """Read columns of a table, of one ranking; part by part, so that no more is in memory."""
    parts = [SCHEMAS[table].empty_table().select(columns)]
    with pq.ParquetFile(folder / f"{table}.parquet") as file:
        for group in range(file.num_row_groups):
            wanted = columns if ranking is None else [*columns, "ranking"]
            part = file.read_row_group(group, wanted, use_threads=False)
            if ranking is not None:
                part = part.filter(pc.equal(part["ranking"], ranking))
            parts.append(part.select(columns))
    frame: pd.DataFrame = pa.concat_tables(parts).to_pandas()
    return frame


def _counts(folder: Path) -> dict[str, Any]:
    columns = ["gold", "label", "model_label", "bias_label", "status", "excluded"]
    everything = _read(folder, "instances", columns)
    analysed = everything[everything["excluded"] == ""]
    known = everything.dropna(subset=["gold"])
    compared = everything.dropna(subset=["model_label"])
    counts: dict[str, Any] = {
        "instances": len(everything),
        "excluded": {
            reason: int((everything["excluded"] == reason).sum()) for reason in EXCLUSIONS
        },
        "analysed": len(analysed),
        "label_is_bias_label": int((analysed["label"] == analysed["bias_label"]).sum()),
        "near_ties": int(((analysed["status"] & int(fae.Status.NEAR_TIE)) != 0).sum()),
        "accuracy": None if known.empty else float((known["label"] == known["gold"]).mean()),
        "compared_with_model": len(compared),
        "label_differs_from_model": int((compared["label"] != compared["model_label"]).sum()),
    }
    counts["label_counts"] = {
        str(label): int(count) for label, count in analysed["label"].value_counts().items()
    }
    counts["bias_label_counts"] = {
        str(label): int(count) for label, count in analysed["bias_label"].value_counts().items()
    }
    smallest = _smallest(folder)
    counts["smallest_set"] = {
        "known": len(smallest),
        "none": int(smallest.isna().sum()),
        "everything": int((smallest == 1).sum()),
        "some": int((smallest < 1).sum()),
    }
    flips = {ranking: _first_flips(folder, ranking) > 0 for ranking in RANKINGS}
    changed = np.stack(list(flips.values()))  # [4, N]
    counts["never_flip"] = {
        # The paper's words: instances whose decision never changed, whatever the ranking.
        "paper": int((~changed.any(axis=0)).sum()),
        # Its code: for each ranking those that it never flips.
        "code": {ranking: int((~flips[ranking]).sum()) for ranking in RANKINGS},
        "flip_under_all": int(changed.all(axis=0).sum()),
    }
    return counts


def _aggregate_uniform(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    table = _read(folder, "instances", ["excluded", "uniform_kl", "uniform_js"])
    table = table[table["excluded"] == ""]
    result = {}
    for name in ("kl", "js"):
        values = table[f"uniform_{name}"].to_numpy()
        estimates = summarise(values, name=f"uniform/{name}", **options)
        result[name] = _json({key: estimates[key] for key in ("mean", "q1", "median", "q3")})
    return result


def _aggregate_pairs(folder: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare rankings two by two: which needs fewer items, instance by instance.

    Judged are the instances that at least one of the two flips; a ranking that flips where the
    other never does wins (Serrano and Smith 2019, section 5.4, and their code).
    """
    flips = {ranking: _first_flips(folder, ranking) for ranking in RANKINGS}
    optimal = _first_flips(folder, "minimal")
    records = []
    for first, second in PAIRS:
        a, b = flips[first], flips[second]
        judged = (a > 0) | (b > 0)
        never = np.iinfo(np.int64).max
        x, y = np.where(a > 0, a, never), np.where(b > 0, b, never)
        outcome = np.stack([judged & (x < y), judged & (y < x), judged & (x == y)], axis=1)
        wins, losses, ties = (int(count) for count in outcome.sum(axis=0))
        sign, mcnemar = (
            compare(wins, losses),
            compare(int(((a > 0) & (b < 0)).sum()), int(((b > 0) & (a < 0)).sum())),
        )
        share, _, _ = means(outcome[judged], name=f"pairs/{first}/{second}", **options)
        best = optimal[judged] if len(optimal) else np.zeros(int(judged.sum()), dtype=np.int64)
        records.append(
            {
                "first": first,
                "second": second,
                "instances": len(a),
                "judged": int(judged.sum()),
                "first_smaller": wins,
                "second_smaller": losses,
                "ties": ties,
                "share_first_smaller": share.to_json(),
                "share_of_all": None if len(a) == 0 else wins / len(a),
                "times_as_many": None if losses == 0 else wins / losses,
                "p_sign": sign.p_sign,
                "mcnemar": mcnemar.statistic,
                "p_mcnemar": mcnemar.p_mcnemar,
                "flips_only_first": mcnemar.first,
                "flips_only_second": mcnemar.second,
                # The gold standard: how often the better of the two is as short as possible.
                "share_optimal": None
                if not len(best) or not len(optimal)
                else float((np.minimum(x, y)[judged] == best).mean()),
            }
        )
    return records


def _aggregate_single(folder: Path, ranking: str, options: dict[str, Any]) -> dict[str, Any]:
    columns = ["alpha", "js", "item", "flip_label", "r_flip_label", "delta_alpha", "delta_js"]
    columns += ["others_alpha", "others_js", "others_flip_share", "later_flip_share"]
    table = _read(folder, "single", columns, ranking)
    top = table["flip_label"].to_numpy() >= 0
    other = table["r_flip_label"].to_numpy() >= 0
    drawn = np.stack([top & other, top & ~other, ~top & other, ~top & ~other], axis=1)
    instances = _read(folder, "instances", ["n", "excluded"])
    n = instances.loc[instances["excluded"] == "", "n"].to_numpy()
    # For each rule of drawing r: how often r flips, exactly, and how often r is the top item.
    others, later = table["others_flip_share"].to_numpy(), table["later_flip_share"].to_numpy()
    rules = {
        "different": (others, np.zeros(len(n))),
        "uniform": ((others * (n - 1) + top) / n, 1 / n),
        "legacy": (later, np.where(table["item"].to_numpy() > 0, 1 / (n - 1), 0.0)),
    }
    expected = {
        rule: np.stack([top * s, top * (1 - s), ~top * s, ~top * (1 - s), same], axis=1)
        for rule, (s, same) in rules.items()
    }
    best = _first_flips(folder, "minimal")
    delta_js = table["delta_js"].to_numpy()
    expected_delta_js = (table["js"] - table["others_js"]).to_numpy()

    def describe(values: Floats, what: str) -> dict[str, Any]:
        estimates = summarise(values, name=f"single/{ranking}/{what}", **options)
        return _json({key: estimates[key] for key in ("mean", "q1", "median", "q3")})

    def shares(values: NDArray[Any], what: str) -> list[Estimate]:
        return means(values, name=f"single/{ranking}/{what}", **options)

    negative = (delta_js < -_NEGATIVE)[:, None]
    test = compare(int(drawn[:, 1].sum()), int(drawn[:, 2].sum()))
    by_rule = {
        rule: dict(zip((*CELLS, "same_item"), shares(values, f"expected/{rule}"), strict=True))
        for rule, values in expected.items()
    }
    return {
        "ranking": ranking,
        "instances": len(table),
        "contingency": {
            cell: {"count": int(drawn[:, column].sum())} | estimate.to_json()
            for column, (cell, estimate) in enumerate(
                zip(CELLS, shares(drawn, "contingency"), strict=True)
            )
        },
        "expected_contingency": {rule: _json(cells) for rule, cells in by_rule.items()},
        "mcnemar": test.statistic,
        "p_mcnemar": test.p_mcnemar,
        "p_sign": test.p_sign,
        # The gold standard of this test: how often some item flips the decision alone.
        "share_any_item_flips": shares((best == 1)[:, None], "any")[0].to_json()
        if len(best)
        else UNDEFINED.to_json(),
        "delta_js": describe(delta_js, "delta_js"),
        "delta_alpha": describe(table["delta_alpha"].to_numpy(), "delta_alpha"),
        "expected_delta_js": describe(expected_delta_js, "expected_delta_js"),
        "negative_delta_js": shares(negative, "negative_delta_js")[0].to_json(),
    }


def _aggregate_multi(folder: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    choice = choosable(_smallest(folder))
    common = np.stack([_first_flips(folder, r) > 0 for r in RANKINGS]).all(axis=0)  # [N]
    records = []
    for ranking in (*RANKINGS, "minimal"):
        table = _read(folder, "multi", ["order", "first_flip", "fraction", "mass", "gap"], ranking)
        if ranking == "minimal" and table.empty:
            continue
        orders = 1 if table.empty else int(table["order"].max()) + 1

        def column(name: str, table: pd.DataFrame = table, orders: int = orders) -> Floats:
            # Rows of one instance and its orders: [N, orders].
            by_order = [
                _known(table.loc[table["order"] == order, name]).to_numpy(dtype=np.float64)
                for order in range(orders)
            ]
            return np.stack(by_order, axis=1)

        fraction = column("fraction")
        if len(choice) == 0:  # several attention heads: smallest sets are not known
            choice = np.zeros(len(fraction), dtype=bool)
        record: dict[str, Any] = {
            "ranking": ranking,
            "orders": orders,
            "instances": len(fraction),
            "flipped": int((table["first_flip"] > 0).sum()),
            "never": int((table["first_flip"] < 0).sum()),
        }
        for name in ("fraction", "mass", "gap"):
            values = column(name)[choice] if name == "gap" else column(name)
            estimates = summarise(values, name=f"multi/{ranking}/{name}", **options)
            record[name] = _json({k: estimates[k] for k in ("mean", "q1", "median", "q3")})
        flipped = (column("first_flip") > 0).mean(axis=1, keepdims=True)
        record["share_flipped"] = means(flipped, name=f"multi/{ranking}/flipped", **options)[
            0
        ].to_json()
        of_common = summarise(fraction[common], name=f"multi/{ranking}/common", **options)
        record["common"] = _json({k: of_common[k] for k in ("mean", "q1", "median", "q3")})
        optimal = (column("gap")[choice] <= 1).mean(axis=1, keepdims=True)
        record["share_optimal"] = means(optimal, name=f"multi/{ranking}/optimal", **options)[
            0
        ].to_json()
        records.append(record)
    return records


def choosable(smallest: pd.Series[float]) -> NDArray[np.bool_]:
    """Find the instances in which a ranking can do better or worse than another.

    Where nothing less than erasing every item flips, or no set does, all rankings are equally
    good; gaps to the smallest set are summarised over the others.

    Args:
        smallest: `[N]`, fraction of the items in each smallest set, NaN where there is none.

    Returns:
        `[N]`: true where the smallest set exists and is not everything.
    """
    return np.asarray(smallest < 1)  # NaN is not


def _json(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    return {key: estimate.to_json() for key, estimate in estimates.items()}


# --- documents to look at ------------------------------------------------------------------------

_EXHIBIT_ITEMS = 250  # longer documents are not shown


def _exhibits(source: Source, config: Config, folder: Path) -> list[dict[str, Any]]:
    """Choose documents by rule, not by eye: evenly spaced in the gap of the attention ranking.

    One in six at least is a document that never flips under attention, where there is one.
    """
    n = _read(folder, "instances", ["row", "n"])
    table = _read(folder, "multi", ["row", "gap", "first_flip"], "attention").merge(n, on="row")
    table = table[table["n"] <= min(_EXHIBIT_ITEMS, 3 * table["n"].median())]
    flips = table[table["first_flip"] > 0].sort_values(["gap", "first_flip", "row"])
    never = table[table["first_flip"] < 0].sort_values("row")
    still = min(len(never), -(-config.exhibits // 6))
    moving = min(len(flips), config.exhibits - still)
    places = np.unique(np.linspace(0, max(len(flips) - 1, 0), moving).round().astype(int))
    rows = [*flips["row"].to_numpy()[places].tolist()] if moving else []
    rows += never["row"].to_numpy()[:still].tolist()
    shown: list[dict[str, Any]] = []
    for chunk in source.select(rows) if rows else ():
        if chunk.texts is None:
            return []
        shown += _show(chunk, config, rows[len(shown) :])
    return shown


def _show(chunk: Chunk, config: Config, rows: list[int]) -> Iterator[dict[str, Any]]:
    batch = chunk.batch
    texts = chunk.texts or []
    minimal = batch.values.dim() == 2
    w = fae.sweep(
        batch,
        rankings=("attention",),
        orders=True,
        single=False,
        minimal=minimal,
        backend=config.backend,
    )
    assert w.prefixes.order is not None  # asked for
    order = _ints(w.prefixes.order[0])
    smallest = None if w.minimal is None else _ints(w.minimal.order)
    weights = attention_weights(batch)
    offsets = _ints(batch.offsets)
    for b, items in enumerate(texts):
        span = slice(offsets[b], offsets[b + 1])
        flip = int(w.prefixes.first_flip[0, b])
        size = -1 if w.minimal is None else int(w.minimal.size[b])
        yield {
            "row": rows[b],
            "id": int(batch.ids[b]),
            "items": items,
            "weights": [round(float(a), 6) for a in weights[span]],
            "gold": None if chunk.gold is None else int(chunk.gold[b]),
            "label": int(w.prefixes.label[b]),
            "flip_label": int(w.prefixes.flip_label[0, b]),
            "first_flip": flip,
            "erased": [] if flip < 0 else order[span][:flip].tolist(),
            "minimal_size": size,
            "minimal": [] if smallest is None or size < 0 else smallest[span][:size].tolist(),
        }
