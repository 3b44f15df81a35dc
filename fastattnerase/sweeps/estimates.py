"""Statistics of more instances than a bootstrap can go through, with intervals in closed form.

Quantiles are exact, and their intervals lie between order statistics; intervals of shares are
Wilson's, those of means and ratios follow from the variance over instances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from fastattnerase.statistics.bootstrap import UNDEFINED, Estimate
from fastattnerase.statistics.resampled import Floats, between
from fastattnerase.statistics.shares import wilson
from fastattnerase.studies.serrano_smith.counted import UNKNOWN, Spread

_BUCKETS = 1 << 12  # into which values are counted where they are too many to sort
_QUARTILES = {"q1": 0.25, "median": 0.5, "q3": 0.75}
_VALUE = 64  # bytes that a value takes while it is read and sorted, a few copies among them


class Estimates:
    """Describes columns of a table, an instance a row.

    Args:
        connection: of `wide.database`.
        confidence: coverage of the intervals.
        memory: bytes that values may take while they are sorted.
        table: its name.
    """

    def __init__(
        self, connection: Any, *, confidence: float, memory: int, table: str = "analysed"
    ) -> None:
        self._connection = connection
        self._z = NormalDist().inv_cdf((1 + confidence) / 2)
        self._tail = (1 - confidence) / 2
        self._most = max(1, memory // _VALUE)
        self._table = table

    def numbers(self, *expressions: str, where: str = "true") -> list[Any]:
        """Evaluate aggregates over the rows of which a condition holds."""
        query = f"SELECT {', '.join(expressions)} FROM {self._table} WHERE {where}"
        return list(self._connection.execute(query).fetchone())

    def count(self, *conditions: str, where: str = "true") -> list[int]:
        """Count the rows of which each of some conditions holds."""
        return self.numbers(
            *(f"count(*) FILTER (WHERE {condition})" for condition in conditions), where=where
        )

    def share(self, condition: str, where: str = "true") -> Estimate:
        """Estimate the share of rows of which a condition holds; Wilson's interval."""
        rows, count = self.count("true", condition, where=where)
        return self.share_of(count, rows)

    def share_of(self, count: int, rows: int) -> Estimate:
        """Estimate a share, from counts; undefined where there are no rows."""
        if not rows:
            return UNDEFINED
        value, (low, high) = count / rows, wilson(count, rows, self._z)
        # Of all or none an end is the share itself, but for rounding.
        return Estimate(value, min(low, value), max(high, value))

    def mean(self, value: str, where: str = "true") -> Estimate:
        """Estimate the mean of a column without NULL, between 0 and 1."""
        rows, mean, variance = self.numbers(
            "count(*)", f"favg({value})", f"var_pop({value})", where=where
        )
        if not rows:
            return UNDEFINED
        half = self._z * math.sqrt(variance / rows)
        return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half))

    def ratio(self, above: str, below: str) -> Estimate:
        """Estimate `Σ above / Σ below`; its interval by the delta method."""
        first, second, squares, products, seconds = (
            value or 0.0
            for value in self.numbers(
                f"fsum({above})",
                f"fsum({below})",
                f"fsum(({above}) * ({above}))",
                f"fsum(({above}) * ({below}))",
                f"fsum(({below}) * ({below}))",
            )
        )
        if not second:
            return UNDEFINED
        value = first / second
        return Estimate(value, *self._around(value, second, squares, products, seconds))

    def _around(
        self, ratio: float, below: float, squares: float, products: float, seconds: float
    ) -> tuple[float, float]:
        """Give the interval of a ratio of sums, from the sums of squares and products."""
        variance = squares - 2 * ratio * products + ratio * ratio * seconds
        half = self._z * math.sqrt(max(variance, 0.0)) / abs(below)
        return ratio - half, ratio + half

    def spread(self, values: Sequence[str], where: str = "true") -> Spread:
        """Describe columns of the same quantity, in which NULL is "does not apply".

        Args:
            values: an expression for each random order; infinite values are values.
            where: which rows.

        Returns:
            Mean and quartiles (linear interpolation), infinite where infinite values decide.
        """
        finite = [f"CASE WHEN isfinite({value}) THEN {value} END" for value in values]
        total = " + ".join(f"coalesce({value}, 0)" for value in finite)
        known = " + ".join(f"({value} IS NOT NULL)::INTEGER" for value in finite)
        endless = " + ".join(f"coalesce(isinf({value}), false)::INTEGER" for value in values)
        sums, number, never, squares, products, seconds = (
            value or 0
            for value in self.numbers(
                f"fsum({total})",
                f"sum({known})",
                f"sum({endless})",
                f"fsum(({total}) * ({total}))",
                f"fsum(({total}) * ({known}))",
                f"fsum((({known}) * ({known}))::DOUBLE)",
                where=where,
            )
        )
        number, never = int(number), int(never)
        if not number + never:
            return UNKNOWN
        mean = Estimate(math.inf, math.inf, math.inf)
        if number:
            value = sums / number
            low, high = self._around(value, number, squares, products, seconds)
            mean = Estimate(value, low, high)
            if never:  # a resample misses the infinite ones in so many cases
                missed = math.exp(-never) > self._tail
                mean = Estimate(math.inf, low if missed else math.inf, math.inf)
        return Spread(mean, *self._quartiles(values, finite, where, number, never))

    def _quartiles(
        self, values: Sequence[str], finite: Sequence[str], where: str, number: int, never: int
    ) -> list[Estimate]:
        """Find the quartiles of values, the infinite ones last, and their intervals."""
        total = number + never
        factors = dict.fromkeys(_QUARTILES, 1.0)
        if len(values) > 1:  # values of one instance are alike
            own = {share: share * (total - 1) for share in _QUARTILES.values()}
            found = self._at(finite, where, number, [int(place) for place in own.values()])
            factors = {
                name: self._alike(values, where, share, float(value), total)
                for (name, share), value in zip(_QUARTILES.items(), found, strict=True)
            }
        places: list[int] = []
        for name, share in _QUARTILES.items():
            below = int(share * (total - 1))
            half = self._z * math.sqrt(factors[name] * total * share * (1 - share))
            ends = (math.ceil(total * share - half) - 1, math.ceil(total * share + half) - 1)
            places += [below, min(below + 1, total - 1)]
            places += [min(max(end, 0), total - 1) for end in ends]
        at = self._at(finite, where, number, places).reshape(-1, 4)  # [3, 4]
        shares = np.array([share * (total - 1) % 1 for share in _QUARTILES.values()])
        own_values = between(at[:, 0], at[:, 1], shares)
        return [
            Estimate(float(value), float(low), float(high))
            for value, (low, high) in zip(own_values, at[:, 2:], strict=True)
        ]

    def _alike(
        self, values: Sequence[str], where: str, share: float, value: float, total: int
    ) -> float:
        """Say how many times the variance of a quantile's place grows, for orders are alike.

        It is that of the share of values below the quantile, of which values equal to it count in
        part, over instances against that of as many values drawn alone.
        """
        at = _number(value)
        below, equal = self.numbers(
            "sum(" + " + ".join(f"coalesce({v} < {at}, false)::INTEGER" for v in values) + ")",
            "sum(" + " + ".join(f"coalesce({v} = {at}, false)::INTEGER" for v in values) + ")",
            where=where,
        )
        part = (share * total - int(below)) / int(equal)
        each = [
            f"CASE WHEN {v} IS NULL THEN 0 WHEN {v} < {at} THEN {_number(1 - share)} "
            f"WHEN {v} = {at} THEN {_number(part - share)} ELSE {_number(-share)} END"
            for v in values
        ]
        together, alone = self.numbers(
            f"fsum(({' + '.join(each)}) * ({' + '.join(each)}))",
            "fsum(" + " + ".join(f"({one}) * ({one})" for one in each) + ")",
            where=where,
        )
        return max(1.0, together / alone) if alone else 1.0

    def _at(self, finite: Sequence[str], where: str, number: int, places: Sequence[int]) -> Floats:
        """Find the values at places of the ascending order, infinite ones from `number` on."""
        found = np.full(len(places), math.inf)
        wanted = [place for place in dict.fromkeys(places) if place < number]
        if wanted:
            expression = finite[0] if len(finite) == 1 else f"unnest([{', '.join(finite)}])"
            source = f"(SELECT {expression} AS x FROM {self._table} WHERE {where})"
            low, high = self._connection.execute(
                f"SELECT min(x), max(x) FROM {source} WHERE x IS NOT NULL"
            ).fetchone()
            of_place = self._select(source, low, high, number, 0, sorted(wanted))
            for index, place in enumerate(places):
                found[index] = of_place.get(place, math.inf)
        return found

    def _select(
        self, source: str, low: float, high: float, number: int, first: int, places: list[int]
    ) -> dict[int, float]:
        """Find values by their places, of the `number` values in [low, high], the first of which
        has the place `first`: sorted where they are few, else counted into buckets first."""
        inside = f"x BETWEEN {_number(low)} AND {_number(high)}"
        if low == high:
            return dict.fromkeys(places, low)
        if number <= self._most:
            values = self._connection.execute(f"SELECT x FROM {source} WHERE {inside}")
            ascending = np.sort(values.fetchnumpy()["x"])
            return {place: float(ascending[place - first]) for place in places}
        # A larger value has no lower bucket, whatever is rounded: order is kept.
        bucket = (
            f"least(floor((x - {_number(low)}) / {_number(high - low)} * {_BUCKETS}), "
            f"{_BUCKETS - 1})"
        )
        rows = self._connection.execute(
            f"SELECT {bucket} AS b, count(*), min(x), max(x) FROM {source} WHERE {inside} "
            "GROUP BY b ORDER BY b"
        ).fetchall()
        found: dict[int, float] = {}
        for _, count, least, largest in rows:
            own = [place for place in places if first <= place < first + count]
            if own:
                found |= self._select(source, least, largest, count, first, own)
            first += count
        return found


def _number(value: float) -> str:
    """Write a number for SQL, all of its digits, which it would take for a decimal one."""
    return f"'{'infinity' if value == math.inf else repr(float(value))}'::DOUBLE"
