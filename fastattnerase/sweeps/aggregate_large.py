"""Aggregates of a sweep that is too large for the bootstrap: the same records, in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fastattnerase as fae
from fastattnerase.statistics.bootstrap import UNDEFINED, Estimate
from fastattnerase.statistics.paired import compare
from fastattnerase.studies.serrano_smith.config import (
    CELLS,
    EXCLUSIONS,
    LEAST_DIFFERENCE,
    RANKINGS,
    SINGLE_RANKINGS,
    Config,
)
from fastattnerase.studies.serrano_smith.counted import Counted, Skills, Spread
from fastattnerase.studies.serrano_smith.paper import NUMBERS
from fastattnerase.studies.serrano_smith.result import (
    Aggregates,
    CountedShare,
    Counts,
    Head,
    MultiWeight,
    NeverFlip,
    Pair,
    SingleWeight,
    SmallestSets,
    Uniform,
)
from fastattnerase.sweeps.estimates import Estimates
from fastattnerase.sweeps.wide import Columns, text

_ROUNDED = 1e-12  # means of several orders: no set is larger than the smallest by less than this

Halves = dict[str, tuple[float | None, float | None]]


class Large(NamedTuple):
    """What is found of a large sweep.

    Attributes:
        aggregates: the records of `result.json`.
        halves: by ranking, what `paper_claims.over_half` gives.
    """

    aggregates: Aggregates
    halves: Halves


class LargeSweep:
    """Aggregates the table `analysed` of `wide`, statistic by statistic.

    Args:
        connection: of `wide.database`, with the table filled.
        parts: files of each part.
        columns: of the table.
        config: of the sweep.
        memory: bytes that this process may take.
    """

    def __init__(
        self,
        connection: Any,
        parts: Sequence[Mapping[str, Path]],
        columns: Columns,
        config: Config,
        memory: int,
    ) -> None:
        self._connection = connection
        self._parts = parts
        self._of = columns
        self._config = config
        self.estimates = Estimates(connection, confidence=config.confidence, memory=memory // 8)
        self._smallest = "NULL::DOUBLE"
        self._choice = "false"
        self._known = "minimal" in columns.numbers
        if self._known:
            flip, fraction = columns.multi("minimal", "flip"), columns.multi("minimal", "fraction")
            self._smallest = f"CASE WHEN {flip} > 0 THEN {fraction} END"
            # Where nothing less than everything flips, all rankings are equally good.
            self._choice = f"coalesce(({self._smallest}) < 1, false)"

    def aggregate(self, head: Head) -> Large:
        """Make all records.

        Args:
            head: of the classifier.

        Returns:
            The records, without documents to look at, and the shares over half.
        """
        aggregates = Aggregates(
            self._counts(),
            Uniform(
                self.estimates.spread(["uniform_kl"]),
                self.estimates.spread(["uniform_js"]),
                self.estimates.spread([self._of.single("attention", "alpha")]),
            ),
            tuple(map(self._single, SINGLE_RANKINGS)),
            tuple(map(self._multi, self._of.numbers)),
            tuple(self._pairs()),
            head,
            (),
        )
        return Large(aggregates, {ranking: self._half(ranking) for ranking in self._of.numbers})

    def _flips(self, ranking: str) -> str:
        return f"{self._of.multi(ranking, 'flip')} > 0"

    def _counts(self) -> Counts:
        files = ", ".join(text(part["instances"]) for part in self._parts)
        everything = Estimates(
            self._connection,
            confidence=self._config.confidence,
            memory=0,
            table=f"read_parquet([{files}])",
        )
        tie = int(fae.Status.NEAR_TIE)
        instances, known, right, compared, differ, *excluded = everything.count(
            "true",
            "gold IS NOT NULL",
            "gold = label",
            "model_label IS NOT NULL",
            "model_label <> label",
            *(f"excluded = {text(reason)}" for reason in EXCLUSIONS),
        )
        golds = self._connection.execute(
            f"SELECT count(*) FROM read_parquet([{files}]) WHERE gold >= 0 GROUP BY gold"
        ).fetchall()
        named = sum(count for (count,) in golds)
        flips = [f"({self._flips(ranking)})" for ranking in RANKINGS]
        analysed, as_bias, ties, none, everything_goes, some, paper, under_all, *never = (
            self.estimates.count(
                "true",
                "label = bias_label",
                f"(status & {tie}) <> 0",
                f"({self._smallest}) IS NULL",
                f"({self._smallest}) = 1",
                self._choice,
                f"NOT ({' OR '.join(flips)})",
                " AND ".join(flips),
                *(f"NOT {flip}" for flip in flips),
            )
        )
        return Counts(
            instances=instances,
            excluded=dict(zip(EXCLUSIONS, excluded, strict=True)),
            analysed=analysed,
            label_is_bias_label=as_bias,
            near_ties=ties,
            accuracy=right / known if known else None,
            compared_with_model=compared,
            label_differs_from_model=differ,
            label_counts=self._by_class("label"),
            bias_label_counts=self._by_class("bias_label"),
            smallest_set=SmallestSets(analysed, none, everything_goes, some)
            if self._known
            else SmallestSets(0, 0, 0, 0),
            never_flip=NeverFlip(paper, dict(zip(RANKINGS, never, strict=True)), under_all),
            majority=max(count for (count,) in golds) / named if named else None,
        )

    def _by_class(self, column: str) -> dict[str, int]:
        rows = self._connection.execute(
            f"SELECT {column}, count(*) FROM analysed GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return {str(label): count for label, count in rows.fetchall()}

    def _single(self, ranking: str) -> SingleWeight:
        estimates = self.estimates

        def of(column: str) -> str:
            return self._of.single(ranking, column)

        top, other = f"({of('flip_label')} >= 0)", f"({of('r_flip_label')} >= 0)"
        cells = [f"{top} AND {other}", f"{top} AND NOT {other}"]
        cells += [f"NOT {top} AND {other}", f"NOT {top} AND NOT {other}"]
        instances, *drawn = estimates.count("true", *cells)
        test = compare(drawn[1], drawn[2])
        # For each rule of drawing r: how often r flips, exactly, and how often r is the top item.
        others, after = of("others_flip_share"), of("later_flip_share")
        rules = {
            "different": (others, "0::DOUBLE"),
            "uniform": (f"(({others} * (n - 1) + {top}::INTEGER) / n)", "(1 / n)"),
            "legacy": (after, f"CASE WHEN {of('item')} > 0 THEN 1 / (n - 1) ELSE 0 END"),
        }
        expected = {}
        for rule, (share, same) in rules.items():
            one = f"{top}::INTEGER::DOUBLE"
            values = (
                f"{one} * {share}",
                f"{one} * (1 - {share})",
                f"(1 - {one}) * {share}",
                f"(1 - {one}) * (1 - {share})",
                same,
            )
            expected[rule] = {
                cell: estimates.mean(value)
                for cell, value in zip((*CELLS, "same_item"), values, strict=True)
            }
        counted = {}
        for cell, count in zip(CELLS, drawn, strict=True):
            found = estimates.share_of(count, instances)
            counted[cell] = CountedShare(count, found.value, found.low, found.high)
        return SingleWeight(
            ranking=ranking,
            instances=instances,
            contingency=counted,
            expected_contingency=expected,
            mcnemar=test.statistic,
            p_mcnemar=test.p_mcnemar,
            p_sign=test.p_sign,
            share_any_item_flips=estimates.share(f"{self._of.multi('minimal', 'flip')} = 1")
            if self._known
            else UNDEFINED,
            delta_js=estimates.spread([_number(of("delta_js"))]),
            delta_alpha=estimates.spread([_number(of("delta_alpha"))]),
            expected_delta_js=estimates.spread([_number(f"({of('js')} - {of('others_js')})")]),
            negative_delta_js=estimates.share(f"{of('delta_js')} < -{LEAST_DIFFERENCE!r}"),
            expected_negative=estimates.mean(of("others_larger_share")),
        )

    def _multi(self, ranking: str) -> MultiWeight:
        estimates, each = self.estimates, self._of.each
        flips, fractions = each(ranking, "flip"), each(ranking, "fraction")
        gaps, orders = each(ranking, "gap"), len(flips)
        instances, flipped, never = estimates.numbers(
            "count(*)",
            "coalesce(sum(" + " + ".join(f"({f} > 0)::INTEGER" for f in flips) + "), 0)",
            "coalesce(sum(" + " + ".join(f"({f} < 0)::INTEGER" for f in flips) + "), 0)",
        )
        common = " AND ".join(self._flips(name) for name in RANKINGS)
        return MultiWeight(
            ranking=ranking,
            orders=orders,
            instances=instances,
            flipped=int(flipped),
            never=int(never),
            fraction=estimates.spread(fractions),
            mass=estimates.spread(each(ranking, "mass")),
            gap=estimates.spread(gaps, self._choice),
            share_flipped=self._share_of_orders([f"{flip} > 0" for flip in flips], "true"),
            common=estimates.spread(fractions, common),
            share_optimal=self._share_of_orders(
                [f"coalesce({gap} <= 1, false)" for gap in gaps], self._choice
            ),
            counted=self._counted(ranking),
        )

    def _share_of_orders(self, conditions: Sequence[str], where: str) -> Estimate:
        """Estimate how often something holds, the mean over an instance's orders."""
        if len(conditions) == 1:
            return self.estimates.share(conditions[0], where)
        total = " + ".join(f"({condition})::INTEGER" for condition in conditions)
        return self.estimates.mean(f"(({total}) / {len(conditions)})", where)

    def _with_never(self, ranking: str, column: str) -> list[str]:
        """Give a column of each order, infinite where the order never flips."""
        pairs = zip(self._of.each(ranking, "flip"), self._of.each(ranking, column), strict=True)
        return [
            f"CASE WHEN {flip} > 0 AND {value} IS NOT NULL THEN {value} ELSE 'infinity'::DOUBLE END"
            for flip, value in pairs
        ]

    def _of_everything(self, ranking: str) -> str:
        """Give the fraction erased, what never flips as everything, the mean over the orders."""
        each = [
            f"CASE WHEN {flip} > 0 THEN {fraction} ELSE 1 END"
            for flip, fraction in zip(
                self._of.each(ranking, "flip"), self._of.each(ranking, "fraction"), strict=True
            )
        ]
        return f"(({' + '.join(each)}) / {len(each)})"

    def _counted(self, ranking: str) -> Counted:
        estimates = self.estimates
        own = self._of_everything(ranking)
        found = estimates.spread(self._with_never(ranking, "fraction"))
        gap = estimates.spread(self._with_never(ranking, "gap"), self._choice)
        fraction = Spread(estimates.mean(own), found.q1, found.median, found.q3)
        if not self._known:
            return Counted(fraction, gap)
        random = self._of_everything("random")
        gained = f"({random} - {own})"
        possible = f"({random} - coalesce({self._smallest}, 1))"
        possible = f"(CASE WHEN abs({possible}) < {_ROUNDED!r} THEN 0 ELSE {possible} END)"
        [undefined] = estimates.count(f"{possible} = 0")
        skill = f"(CASE WHEN {possible} <> 0 THEN {gained} / {possible} END)"
        return Counted(
            fraction,
            gap,
            Skills(estimates.ratio(gained, possible), undefined, estimates.spread([skill])),
        )

    def _half(self, ranking: str) -> tuple[float | None, float | None]:
        """Find the shares of which more than half is erased at the first flip, with never too."""
        tail = NUMBERS["tail"].value
        late, flipped, total = [], [], 0
        for flip, fraction in zip(
            self._of.each(ranking, "flip"), self._of.each(ranking, "fraction"), strict=True
        ):
            total += 1
            late.append(f"coalesce({fraction} > {tail} AND {flip} > 0, false)")
            flipped.append(f"({flip} > 0)")
        rows, *counts = self.estimates.count("true", *late, *flipped)
        lates, flips = sum(counts[:total]), sum(counts[total:])
        if not rows:
            return None, None
        never = rows * total - flips
        return lates / flips if flips else None, (lates + never) / (rows * total)

    def _pairs(self) -> Iterator[Pair]:
        """Compare rankings two by two, as `aggregates` does."""
        for first, second in self._config.pairs:
            a, b = self._of.multi(first, "flip"), self._of.multi(second, "flip")
            either = f"({a} > 0 OR {b} > 0)"
            wins_if = f"{a} > 0 AND ({b} <= 0 OR {a} < {b})"
            loses_if = f"{b} > 0 AND ({a} <= 0 OR {b} < {a})"
            best = self._of.multi("minimal", "flip") if self._known else "NULL"
            least = f"CASE WHEN {a} <= 0 THEN {b} WHEN {b} <= 0 THEN {a} ELSE least({a}, {b}) END"
            instances, judged, wins, losses, alone, other, optimal = self.estimates.count(
                "true",
                either,
                wins_if,
                loses_if,
                f"{a} > 0 AND {b} < 0",
                f"{b} > 0 AND {a} < 0",
                f"{either} AND {least} = {best}",
            )
            sign, mcnemar = compare(wins, losses), compare(alone, other)
            yield Pair(
                first=first,
                second=second,
                instances=instances,
                judged=judged,
                first_smaller=wins,
                second_smaller=losses,
                ties=judged - wins - losses,
                share_first_smaller=self.estimates.share_of(wins, judged),
                share_of_all=wins / instances if instances else None,
                times_as_many=wins / losses if losses else None,
                p_sign=sign.p_sign,
                mcnemar=mcnemar.statistic,
                p_mcnemar=mcnemar.p_mcnemar,
                flips_only_first=mcnemar.first,
                flips_only_second=mcnemar.second,
                share_optimal=optimal / judged if judged and self._known else None,
            )


def _number(value: str) -> str:
    """Read NaN as "does not apply"; DuckDB has it beyond every number."""
    return f"CASE WHEN NOT isnan({value}) THEN {value} END"
