"""The erasure experiments of Serrano and Smith, "Is Attention Interpretable?" (ACL 2019).

Single-weight test (section 4): the top item of a ranking against a random other one, each erased
alone. Multi-weight test (section 5): how many items of a ranking must go before the decision
changes. Beyond the paper: the exact expectation over all other items, and the exact minimal set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

import fastattnerase as fae
from fastattnerase.experiments import rundir
from fastattnerase.experiments.bootstrap import Estimate, means, summarise
from fastattnerase.rankings.random import random_keys

RANKINGS = ("random", "attention", "gradient", "product")
SINGLE_RANKINGS = ("attention", "gradient", "product")
CELLS = ("both", "only_top", "only_random", "neither")
EXCLUSIONS = ("empty", "length_1", "non_finite")
KIND = "serrano_smith"

RandomItem = Literal["different", "uniform", "legacy"]

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
        ("flip_label", pa.int64()),
        ("r_item", pa.int64()),
        ("r_alpha", pa.float64()),
        ("r_js", pa.float64()),
        ("r_flip_label", pa.int64()),
        ("delta_alpha", pa.float64()),
        ("delta_js", pa.float64()),
        ("others_alpha", pa.float64()),
        ("others_js", pa.float64()),
        ("others_flip_share", pa.float64()),
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
SCHEMAS = {"multi": _MULTI, "single": _SINGLE, "instances": _INSTANCES}  # the last marks a part

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Config:
    """How the experiment is run.

    Args:
        seed: of random rankings, random items and resampling; at least 0.
        random_orders: random rankings of each instance; the paper plots one.
        random_item: how the random item `r` of the single-weight test is drawn. `different`:
            uniformly over all items but the top one, the paper's stated requirement. `uniform`:
            over all items. `legacy`: over the positions 2 … n, as the published code does.
        backend: of the engine.
        resamples: of the bootstrap.
        confidence: of the intervals.
        exhibits: documents shown in the report.

    Raises:
        ValueError: a value out of range, naming it.

    Source:
        Serrano and Smith 2019, sections 4 and 5.

    Example:
        >>> from fastattnerase.experiments.serrano_smith import Config
        >>> Config(random_orders=5).random_item
        'different'
    """

    seed: int = 0
    random_orders: int = 1
    random_item: RandomItem = "different"
    backend: str = "auto"
    resamples: int = 1000
    confidence: float = 0.95
    exhibits: int = 6

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; it must be at least 0")
        if self.random_orders < 1:
            raise ValueError(f"random_orders is {self.random_orders}; it must be at least 1")
        if self.random_item not in ("different", "uniform", "legacy"):
            raise ValueError(
                f"random_item is {self.random_item!r}; it must be different, uniform or legacy"
            )
        if self.resamples < 1:
            raise ValueError(f"resamples is {self.resamples}; it must be at least 1")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence}; it must lie between 0 and 1")
        if self.exhibits < 0:
            raise ValueError(f"exhibits is {self.exhibits}; it must be at least 0")


@dataclass(frozen=True)
class Chunk:
    """A batch of instances with what the experiment wants to know beside the attention layer.

    Args:
        batch: the attention layer's values, scores or weights, offsets and head.
        gold: `[B]` int64, labels of the data, -1 for none; None where all are unknown.
        model_label: `[B]` int64, the model's own decisions; None where unknown.
        texts: for each instance the text of each item; None where unknown.
    """

    batch: fae.AttentionBatch
    gold: Tensor | None = None
    model_label: Tensor | None = None
    texts: list[list[str]] | None = None


class Source(Protocol):
    """Where instances come from: a trained model with data, or somebody's tensors."""

    classes: list[str]

    def __len__(self) -> int:
        """Count the instances."""

    def chunks(self, start: int) -> Iterable[Chunk]:
        """Yield the instances from number `start` on, in order."""

    def select(self, rows: list[int]) -> Iterable[Chunk]:
        """Yield the instances of these numbers, in this order."""

    def describe(self) -> dict[str, Any]:
        """Say what the instances are, as JSON-able data: goes into the run's record."""


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
        """Read a per-instance table: `instances`, `single` or `multi`."""
        return pd.read_parquet(self.folder / f"{name}.parquet", columns=columns)


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
        >>> from fastattnerase.experiments import serrano_smith
        >>> serrano_smith.load(Path("no-such-run"))
        Traceback (most recent call last):
        ...
        fastattnerase.experiments.rundir.RunError: no-such-run is not a run directory: it has no \
run.json
    """
    if not (folder / rundir.RUN).is_file():
        raise rundir.RunError(f"{folder} is not a run directory: it has no {rundir.RUN}")
    run = rundir.read_json(folder / rundir.RUN)
    if run.get("kind") != KIND:
        raise rundir.RunError(f"{folder} is a run of kind {run.get('kind')!r}, not {KIND!r}")
    if not (folder / rundir.RESULT).is_file():
        raise rundir.RunError(
            f"{folder} is not finished; run the same `fastattnerase erase` command again"
        )
    return Result(folder, run, rundir.read_json(folder / rundir.RESULT))


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
    finished one with the same configuration and source is returned as it is.

    Args:
        source: the instances.
        config: the experiment.
        folder: the run directory; created where absent.
        name: of the model, for reports.
        on_progress: called with (instances done, all instances).

    Returns:
        The finished run.

    Raises:
        RunError: the directory holds a run of another configuration or source.

    Source:
        Serrano and Smith 2019, sections 4 and 5.

    Example:
        >>> import tempfile, torch
        >>> import fastattnerase as fae
        >>> from pathlib import Path
        >>> from fastattnerase.experiments import serrano_smith as s
        >>> class Two:
        ...     classes = ["no", "yes"]
        ...     def __len__(self):
        ...         return 1
        ...     def chunks(self, start):
        ...         if start == 0:
        ...             yield s.Chunk(fae.AttentionBatch(
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
        [1, 1, 1, 1]
    """
    state = {"kind": KIND, "config": dataclasses.asdict(config), "source": source.describe()}
    record = state | {"name": name, "classes": source.classes} | rundir.provenance()
    if (folder / rundir.RUN).exists():
        before = rundir.read_json(folder / rundir.RUN)
        changed = [key for key in state if before.get(key) != state[key]]
        if changed:
            raise rundir.RunError(
                f"{folder} holds a run with another {' and '.join(changed)}; choose another "
                f"directory or delete it"
            )
        if (folder / rundir.RESULT).exists():
            return load(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rundir.write_json(folder / rundir.RUN, record)

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
        shared = bias.dim() == 1
        return {"classes": bias.shape[-1], "bias": bias.tolist() if shared else None}
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
        ranking) and `multi` (for each analysed instance, ranking and order; the minimal set is
        the ranking `minimal`, absent with several attention heads). -1 and NaN mean "never";
        missing labels are null.

    Source:
        Serrano and Smith 2019, equation 1 and section 5.1.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.experiments.serrano_smith import Chunk, Config, measure
        >>> batch = fae.AttentionBatch(
        ...     torch.tensor([[2.0], [-1.0]]), torch.tensor([0, 2]),
        ...     weights=torch.tensor([0.5, 0.5]),
        ...     head_weight=torch.tensor([[0.0], [1.0]]), head_bias=torch.zeros(2))
        >>> measure(Chunk(batch), Config())["single"]["flip_label"].to_pylist()
        [0, 0, 0]
    """
    batch = chunk.batch
    minimal = batch.values.dim() == 2  # several heads have no exact minimal set
    w = fae.sweep(
        batch,
        rankings=RANKINGS,
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
            status,
            pa.array(excluded.tolist()),
        ],
        schema=_INSTANCES,
    )
    weights = attention_weights(batch)
    return {
        "instances": instances,
        "single": _single(w, batch, config, kept, rows, offsets, ids, weights),
        "multi": _multi(w, config, kept, rows, n, offsets, weights),
    }


def attention_weights(batch: fae.AttentionBatch) -> Floats:
    """Compute the weight of every item in float64: softmax of scores, or weights over their sum.

    Args:
        batch: `B` instances, `T` items; several heads are averaged.

    Returns:
        `[T]` float64; sums to 1 over each instance that has any mass.

    Example:
        >>> import torch
        >>> import fastattnerase as fae
        >>> from fastattnerase.experiments.serrano_smith import attention_weights
        >>> attention_weights(fae.AttentionBatch(
        ...     torch.zeros(2, 1), torch.tensor([0, 2]), weights=torch.tensor([1.0, 3.0]),
        ...     head_weight=torch.ones(2, 1), head_bias=torch.zeros(2))).tolist()
        [0.25, 0.75]
    """
    given = batch.weights if batch.scores is None else batch.scores
    assert given is not None  # a batch has one of the two
    values = given.reshape(-1, batch.num_heads).cpu().double().numpy()  # [T, H]
    instance = np.repeat(np.arange(len(batch.offsets) - 1), np.diff(_ints(batch.offsets)))
    if batch.scores is not None:
        highest = np.full((len(batch.offsets) - 1, values.shape[1]), -np.inf)
        np.maximum.at(highest, instance, values)
        # An instance whose scores are all -inf has no mass.
        highest[~np.isfinite(highest)] = 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            values = np.exp(values - highest[instance])
    total = np.zeros((len(batch.offsets) - 1, values.shape[1]))
    np.add.at(total, instance, values)
    total[total == 0] = 1.0
    with np.errstate(invalid="ignore"):
        return np.asarray((values / total[instance]).mean(axis=1))


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
        >>> from fastattnerase.experiments.serrano_smith import random_items
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


def _single(
    w: fae.Sweep,
    batch: fae.AttentionBatch,
    config: Config,
    kept: Ints,
    rows: Ints,
    offsets: Ints,
    ids: Ints,
    weights: Floats,
) -> pa.Table:
    assert w.single is not None  # asked for
    js = w.single.js.double().cpu().numpy()  # [T]
    flip_label = _ints(w.single.flip_label)  # [T]
    begin, n = offsets[kept], np.diff(offsets)[kept]
    tables = []
    for draw, ranking in enumerate(SINGLE_RANKINGS):
        top = _ints(fae.rank(batch, ranking, backend=config.backend))[begin]
        other = random_items(
            top, n, ids[kept], rule=config.random_item, seed=config.seed, draw=draw
        )
        i, r = begin + top, begin + other
        tables.append(
            pa.table(
                [
                    rows[kept],
                    pa.repeat(ranking, len(kept)),
                    top,
                    weights[i],
                    js[i],
                    flip_label[i],
                    other,
                    weights[r],
                    js[r],
                    flip_label[r],
                    weights[i] - weights[r],
                    js[i] - js[r],
                    _mean_of_others(weights, offsets, kept, i),
                    _mean_of_others(js, offsets, kept, i),
                    _mean_of_others((flip_label >= 0).astype(np.float64), offsets, kept, i),
                ],
                schema=_SINGLE,
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
    orders += [(ranking, 0) for ranking in SINGLE_RANKINGS]
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
                    items / n[kept],
                    np.where(flips, mass[row], np.nan),
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
        JSON-able: `counts`, `single` (a record for each ranking) and `multi` (likewise). Every
        estimate is `{"value", "low", "high"}`, None where undefined. Never-flipping instances are
        left out of fraction, mass and gap for each ranking separately, as the paper's box plots
        do; contingency tables and ΔJS keep them. Gaps and `share_optimal` are over the instances
        of `choosable`.
    """
    options: dict[str, Any] = {
        "seed": config.seed,
        "resamples": config.resamples,
        "confidence": config.confidence,
    }
    return {
        "counts": _counts(folder),
        "single": [_aggregate_single(folder, ranking, options) for ranking in SINGLE_RANKINGS],
        "multi": _aggregate_multi(folder, options),
    }


def _read(folder: Path, table: str, columns: list[str], ranking: str | None = None) -> pd.DataFrame:
    filters = None if ranking is None else [("ranking", "==", ranking)]
    return pd.read_parquet(folder / f"{table}.parquet", columns=columns, filters=filters)


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
    smallest = _read(folder, "multi", ["fraction"], "minimal")["fraction"]
    counts["smallest_set"] = {
        "known": len(smallest),
        "none": int(smallest.isna().sum()),
        "everything": int((smallest == 1).sum()),
        "some": int((smallest < 1).sum()),
    }
    return counts


def _aggregate_single(folder: Path, ranking: str, options: dict[str, Any]) -> dict[str, Any]:
    columns = ["alpha", "js", "flip_label", "r_flip_label", "delta_alpha", "delta_js"]
    columns += ["others_alpha", "others_js", "others_flip_share"]
    table = _read(folder, "single", columns, ranking)
    top = table["flip_label"].to_numpy() >= 0
    other = table["r_flip_label"].to_numpy() >= 0
    drawn = np.stack([top & other, top & ~other, ~top & other, ~top & ~other], axis=1)
    share = table["others_flip_share"].to_numpy()
    expected = np.stack([top * share, top * (1 - share), ~top * share, ~top * (1 - share)], axis=1)
    delta_js = table["delta_js"].to_numpy()
    expected_delta_js = (table["js"] - table["others_js"]).to_numpy()

    def describe(values: Floats, what: str) -> dict[str, Any]:
        estimates = summarise(values, name=f"single/{ranking}/{what}", **options)
        return _json({key: estimates[key] for key in ("mean", "q1", "median", "q3")})

    def shares(values: NDArray[Any], what: str) -> list[Estimate]:
        return means(values, name=f"single/{ranking}/{what}", **options)

    negative = (delta_js < -_NEGATIVE)[:, None]
    return {
        "ranking": ranking,
        "instances": len(table),
        "contingency": {
            cell: {"count": int(drawn[:, column].sum())} | estimate.to_json()
            for column, (cell, estimate) in enumerate(
                zip(CELLS, shares(drawn, "contingency"), strict=True)
            )
        },
        "expected_contingency": _json(
            dict(zip(CELLS, shares(expected, "expected_contingency"), strict=True))
        ),
        "delta_js": describe(delta_js, "delta_js"),
        "delta_alpha": describe(table["delta_alpha"].to_numpy(), "delta_alpha"),
        "expected_delta_js": describe(expected_delta_js, "expected_delta_js"),
        "negative_delta_js": shares(negative, "negative_delta_js")[0].to_json(),
    }


def _aggregate_multi(folder: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    choice = choosable(_read(folder, "multi", ["fraction"], "minimal")["fraction"])
    records = []
    for ranking in (*RANKINGS, "minimal"):
        table = _read(folder, "multi", ["order", "first_flip", "fraction", "mass", "gap"], ranking)
        if ranking == "minimal" and table.empty:
            continue
        orders = 1 if table.empty else int(table["order"].max()) + 1

        def column(name: str, table: pd.DataFrame = table, orders: int = orders) -> Floats:
            # Rows of one instance and its orders: [N, orders].
            by_order = [
                table.loc[table["order"] == order, name].to_numpy(dtype=np.float64)
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
            "flipped": int(np.count_nonzero(~np.isnan(fraction))),
            "never": int(np.count_nonzero(np.isnan(fraction))),
        }
        for name in ("fraction", "mass", "gap"):
            values = column(name)[choice] if name == "gap" else column(name)
            estimates = summarise(values, name=f"multi/{ranking}/{name}", **options)
            if name == "fraction":
                record["share_flipped"] = estimates["share"].to_json()
            record[name] = _json({k: estimates[k] for k in ("mean", "q1", "median", "q3")})
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
    w = fae.sweep(batch, rankings=("attention",), minimal=minimal, backend=config.backend)
    order = _ints(fae.rank(batch, "attention", backend=config.backend))
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
