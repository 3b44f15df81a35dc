"""Aggregates of the tables of a run, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastattnerase as fae
from fastattnerase.extras import needs
from fastattnerase.statistics.bootstrap import Bootstrap, Estimate
from fastattnerase.statistics.paired import Paired, compare
from fastattnerase.statistics.shares import majority
from fastattnerase.statistics.together import Later
from fastattnerase.statistics.two_level import SeedBootstrap
from fastattnerase.studies.serrano_smith.config import (
    CELLS,
    EXCLUSIONS,
    LEAST_DIFFERENCE,
    RANKINGS,
    SINGLE_RANKINGS,
    Config,
)
from fastattnerase.studies.serrano_smith.counted import (
    choosable,
    count_all,
    largest_weight,
    smallest_sets,
    spread,
)
from fastattnerase.studies.serrano_smith.instance_tables import read_columns
from fastattnerase.studies.serrano_smith.result import (
    Aggregates,
    CountedShare,
    Counts,
    Exhibit,
    Head,
    MultiWeight,
    NeverFlip,
    Pair,
    SingleWeight,
    SmallestSets,
    Uniform,
    without_never,
)

with needs("text"):
    import pandas as pd
    from threadpoolctl import threadpool_limits

# How many samples each function describes.
_UNIFORM, _SINGLE, _MULTI, _SKILL = 3, 10, 9, 2

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def aggregate(
    folder: Path,
    config: Config,
    head: Head,
    exhibits: tuple[Exhibit, ...],
    report: Callable[[int, int], None] = lambda done, total: None,
    sizes: Sequence[int] = (),
) -> Aggregates:
    """Summarise the per-instance tables of a run directory, with bootstrap intervals.

    Args:
        folder: holds `instances.parquet`, `single.parquet` and `multi.parquet`.
        config: resampling.
        head: of the classifier.
        exhibits: documents to show.
        report: told how many samples have their intervals, of how many.
        sizes: analysed instances of each seed, where the tables hold those of several, one seed
            after the other. Intervals and the levels of tests are then those of seeds and
            instances (`statistics.two_level`).

    Returns:
        The aggregates. Instances that never flip are left out of fraction, mass and gap for each
        ranking separately, as the paper's box plots do, unless `never_flips` is `one`; `counted`,
        contingency tables and ΔJS keep them.
    """
    # Products of matrices on several threads add up otherwise, and differ in the last bits; blocks
    # of resamples run side by side as it is.
    with threadpool_limits(limits=1, user_api="blas"):
        return _aggregate(folder, config, head, exhibits, report, sizes)


def _aggregate(
    folder: Path,
    config: Config,
    head: Head,
    exhibits: tuple[Exhibit, ...],
    report: Callable[[int, int], None],
    sizes: Sequence[int],
) -> Aggregates:
    done = 0
    smallest = smallest_sets(folder)
    flips = {name: _first_flips(folder, name) for name in (*RANKINGS, *config.rankings, "minimal")}
    rankings = (*RANKINGS, *config.rankings, *(() if smallest.empty else ("minimal",)))
    of_ranking = _MULTI + (0 if smallest.empty else _SKILL)
    samples = _UNIFORM + _SINGLE * len(SINGLE_RANKINGS) + of_ranking * len(rankings)
    samples += len(config.pairs)

    def tell() -> None:
        nonlocal done
        done += 1
        report(done, samples)

    bootstrap = (partial(SeedBootstrap, sizes) if len(sizes) > 1 else Bootstrap)(
        seed=config.seed, resamples=config.resamples, confidence=config.confidence, tell=tell
    )
    report(done, samples)
    # First read what is to be described, then describe it: what is of the same instances together.
    later = Later(bootstrap)
    uniform = _uniform(folder, later)
    single = [_single(folder, ranking, flips["minimal"], later) for ranking in SINGLE_RANKINGS]
    multi = list(_multi(folder, rankings, flips, choosable(smallest), later))
    pairs = list(_pairs(config, flips, later))
    return Aggregates(
        _counts(folder, flips, smallest),
        uniform(),
        tuple(described() for described in single),
        tuple(described() for described in multi),
        tuple(described() for described in pairs),
        head,
        exhibits,
    )


def _first_flips(folder: Path, ranking: str) -> Ints:
    """Read the first flips of a ranking, of the first order where there are several; `[N]`."""
    table = read_columns(folder, "multi", ["order", "first_flip"], ranking)
    return np.asarray(table.loc[table["order"] == 0, "first_flip"].to_numpy(), dtype=np.int64)


def _counts(folder: Path, flips: dict[str, Ints], smallest: pd.Series) -> Counts:
    columns = ["gold", "label", "model_label", "bias_label", "status", "excluded"]
    everything = read_columns(folder, "instances", columns)
    analysed = everything[everything["excluded"] == ""]
    known = everything.dropna(subset=["gold"])
    compared = everything.dropna(subset=["model_label"])
    changed = np.stack([flips[ranking] > 0 for ranking in RANKINGS])  # [4, N]
    return Counts(
        instances=len(everything),
        excluded={reason: int((everything["excluded"] == reason).sum()) for reason in EXCLUSIONS},
        analysed=len(analysed),
        label_is_bias_label=int((analysed["label"] == analysed["bias_label"]).sum()),
        near_ties=int(((analysed["status"] & int(fae.Status.NEAR_TIE)) != 0).sum()),
        accuracy=None if known.empty else float((known["label"] == known["gold"]).mean()),
        compared_with_model=len(compared),
        label_differs_from_model=int((compared["label"] != compared["model_label"]).sum()),
        label_counts=_by_class(analysed["label"]),
        bias_label_counts=_by_class(analysed["bias_label"]),
        smallest_set=SmallestSets(
            known=len(smallest),
            none=int(smallest.isna().sum()),
            everything=int((smallest == 1).sum()),
            some=int((smallest < 1).sum()),
        ),
        never_flip=NeverFlip(
            paper=int((~changed.any(axis=0)).sum()),
            code={
                ranking: int((~flip).sum()) for ranking, flip in zip(RANKINGS, changed, strict=True)
            },
            flip_under_all=int(changed.all(axis=0).sum()),
        ),
        majority=majority(known["gold"]),
    )


def _by_class(labels: pd.Series) -> dict[str, int]:
    return {str(label): int(count) for label, count in labels.value_counts().items()}


def _uniform(folder: Path, later: Later) -> Callable[[], Uniform]:
    table = read_columns(folder, "instances", ["excluded", "uniform_kl", "uniform_js"])
    table = table[table["excluded"] == ""]
    kl, js = (spread(table[f"uniform_{name}"].to_numpy(), later) for name in ("kl", "js"))
    largest = largest_weight(folder, later)
    return lambda: Uniform(kl(), js(), largest())


def _pairs(config: Config, flips: dict[str, Ints], later: Later) -> Iterator[Callable[[], Pair]]:
    """Compare rankings two by two: which needs fewer items, instance by instance.

    Judged are the instances that at least one of the two flips; a ranking that flips where the
    other never does wins (Serrano and Smith 2019, section 5.4, and their code).
    """
    optimal = flips["minimal"]
    for first, second in config.pairs:
        a, b = flips[first], flips[second]
        judged = (a > 0) | (b > 0)
        never = np.iinfo(np.int64).max
        x, y = np.where(a > 0, a, never), np.where(b > 0, b, never)
        outcome = np.stack([judged & (x < y), judged & (y < x), judged & (x == y)], axis=1)
        wins, losses, ties = (int(count) for count in outcome.sum(axis=0))
        sign = _test(outcome[:, 0], outcome[:, 1], later.bootstrap)
        mcnemar = _test((a > 0) & (b < 0), (b > 0) & (a < 0), later.bootstrap)
        shares = later.of(judged).means(outcome[judged])
        best = optimal[judged] if len(optimal) else np.zeros(int(judged.sum()), dtype=np.int64)
        found = partial(
            Pair,
            first=first,
            second=second,
            instances=len(a),
            judged=int(judged.sum()),
            first_smaller=wins,
            second_smaller=losses,
            ties=ties,
            share_of_all=None if len(a) == 0 else wins / len(a),
            times_as_many=None if losses == 0 else wins / losses,
            p_sign=sign.p_sign,
            mcnemar=mcnemar.statistic,
            p_mcnemar=mcnemar.p_mcnemar,
            flips_only_first=mcnemar.first,
            flips_only_second=mcnemar.second,
            # The gold standard: how often the better of the two is as short as possible.
            share_optimal=None
            if not len(best) or not len(optimal)
            else float((np.minimum(x, y)[judged] == best).mean()),
        )
        yield partial(_with_share, found, shares)


def _with_share(found: Callable[..., Pair], shares: Callable[[], list[Estimate]]) -> Pair:
    """Finish the comparison of two rankings."""
    return found(share_first_smaller=shares()[0])


def _test(first: NDArray[np.bool_], second: NDArray[np.bool_], bootstrap: Bootstrap) -> Paired:
    """Test which of two happens in more instances; of several seeds by the bootstrap's level."""
    test = compare(int(first.sum()), int(second.sum()))
    if isinstance(bootstrap, SeedBootstrap) and len(first):
        p = bootstrap.finer.against(first.astype(np.float64) - second, 0.0).p
        assert p is not None  # a mean of numbers is one
        return test._replace(p_mcnemar=p, p_sign=p, exact=False)
    return test


def _single(folder: Path, ranking: str, smallest: Ints, later: Later) -> Callable[[], SingleWeight]:
    columns = ["alpha", "js", "item", "flip_label", "r_flip_label", "delta_alpha", "delta_js"]
    columns += ["others_alpha", "others_js", "others_flip_share", "later_flip_share"]
    columns += ["others_larger_share"]
    table = read_columns(folder, "single", columns, ranking)
    top = table["flip_label"].to_numpy() >= 0
    other = table["r_flip_label"].to_numpy() >= 0
    drawn = np.stack([top & other, top & ~other, ~top & other, ~top & ~other], axis=1)
    instances = read_columns(folder, "instances", ["n", "excluded"])
    n = instances.loc[instances["excluded"] == "", "n"].to_numpy()
    # For each rule of drawing r: how often r flips, exactly, and how often r is the top item.
    others, after = table["others_flip_share"].to_numpy(), table["later_flip_share"].to_numpy()
    rules = {
        "different": (others, np.zeros(len(n))),
        "uniform": ((others * (n - 1) + top) / n, 1 / n),
        "legacy": (after, np.where(table["item"].to_numpy() > 0, 1 / (n - 1), 0.0)),
    }
    expected = {
        rule: np.stack([top * s, top * (1 - s), ~top * s, ~top * (1 - s), same], axis=1)
        for rule, (s, same) in rules.items()
    }
    delta_js = table["delta_js"].to_numpy()
    expected_delta_js = (table["js"] - table["others_js"]).to_numpy()

    any_item = (smallest == 1)[:, None]  # [N, 1], or [0, 1] where smallest sets are not known
    known = np.full(len(table), len(smallest) > 0)
    total, counts = len(table), drawn.sum(axis=0)
    test = _test(drawn[:, 1], drawn[:, 2], later.bootstrap)
    shares = later.means(drawn)
    of_rules = {rule: later.means(values) for rule, values in expected.items()}
    # The gold standard of this test: how often some item flips the decision alone.
    any_flips = later.of(known).means(any_item)
    js, alpha = spread(delta_js, later), spread(table["delta_alpha"].to_numpy(), later)
    expected_js = spread(expected_delta_js, later)
    negative = later.means((delta_js < -LEAST_DIFFERENCE)[:, None])
    expected_negative = later.means(table[["others_larger_share"]].to_numpy())

    def describe() -> SingleWeight:
        return SingleWeight(
            ranking=ranking,
            instances=total,
            contingency={
                cell: CountedShare(int(count), share.value, share.low, share.high)
                for cell, count, share in zip(CELLS, counts, shares(), strict=True)
            },
            expected_contingency={
                rule: dict(zip((*CELLS, "same_item"), of_rule(), strict=True))
                for rule, of_rule in of_rules.items()
            },
            mcnemar=test.statistic,
            p_mcnemar=test.p_mcnemar,
            p_sign=test.p_sign,
            share_any_item_flips=any_flips()[0],
            delta_js=js(),
            delta_alpha=alpha(),
            expected_delta_js=expected_js(),
            negative_delta_js=negative()[0],
            expected_negative=expected_negative()[0],
        )

    return describe


def _multi(
    folder: Path,
    rankings: Sequence[str],
    flips: dict[str, Ints],
    choice: NDArray[np.bool_],
    later: Later,
) -> Iterator[Callable[[], MultiWeight]]:
    flipped_by = np.stack([flips[ranking] > 0 for ranking in RANKINGS])  # [4, N]
    common = np.asarray(flipped_by.all(axis=0))  # [N]
    read = count_all(folder, later)
    for ranking in rankings:
        table = read_columns(
            folder, "multi", ["order", "first_flip", "fraction", "mass", "gap"], ranking
        )
        orders = 1 if table.empty else int(table["order"].max()) + 1

        def column(name: str, table: pd.DataFrame = table, orders: int = orders) -> Floats:
            # Rows of one instance and its orders: [N, orders].
            by_order = [
                without_never(table.loc[table["order"] == order, name]).to_numpy(dtype=np.float64)
                for order in range(orders)
            ]
            return np.stack(by_order, axis=1)

        fraction = column("fraction")
        if len(choice) == 0:  # several attention heads: smallest sets are not known
            choice = np.zeros(len(fraction), dtype=bool)
        first_flip, gap = column("first_flip"), column("gap")[choice]
        flipped = (first_flip > 0).mean(axis=1, keepdims=True)
        optimal = (gap <= 1).mean(axis=1, keepdims=True)
        yield partial(
            _described,
            partial(
                MultiWeight,
                ranking=ranking,
                orders=orders,
                instances=len(fraction),
                flipped=int((table["first_flip"] > 0).sum()),
                never=int((table["first_flip"] < 0).sum()),
            ),
            {
                "fraction": spread(fraction, later),
                "mass": spread(column("mass"), later),
                "gap": spread(gap, later.of(choice)),
                "common": spread(fraction[common], later.of(common)),
                "counted": read(ranking),
            },
            {
                "share_flipped": later.means(flipped),
                "share_optimal": later.of(choice).means(optimal),
            },
        )


def _described(
    found: Callable[..., MultiWeight],
    spreads: dict[str, Callable[[], Any]],
    shares: dict[str, Callable[[], list[Estimate]]],
) -> MultiWeight:
    """Finish the record of a ranking."""
    return found(
        **{name: described() for name, described in spreads.items()},
        **{name: described()[0] for name, described in shares.items()},
    )
