"""Tables of the erasure experiments, one row a model and ranking, from saved results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fastattnerase.experiments.serrano_smith import CELLS, Result

STATISTICS = ("mean", "q1", "median", "q3")


def tables(results: Sequence[Result]) -> dict[str, pd.DataFrame]:
    """Make every table of a report.

    Args:
        results: finished runs.

    Returns:
        By name: `models`, `multi_weight`, `single_weight`, `contingency`. Estimates take three
        columns: the value, `…_low` and `…_high`, the ends of its interval.

    Example:
        >>> from fastattnerase.report.tables import tables
        >>> sorted(tables([]))
        ['contingency', 'models', 'multi_weight', 'single_weight']
    """
    rows: dict[str, list[dict[str, Any]]] = {
        "models": [],
        "multi_weight": [],
        "single_weight": [],
        "contingency": [],
    }
    for result in results:
        name = {"model": result.run["name"]}
        rows["models"].append(name | _model(result))
        rows["multi_weight"] += [name | row for row in _multi(result)]
        rows["single_weight"] += [name | row for row in _single(result)]
        rows["contingency"] += [name | row for row in _contingency(result)]
    return {table: pd.DataFrame(records) for table, records in rows.items()}


def _flat(name: str, estimate: Mapping[str, float | None]) -> dict[str, float | None]:
    return {
        name: estimate["value"],
        f"{name}_low": estimate["low"],
        f"{name}_high": estimate["high"],
    }


def _model(result: Result) -> dict[str, Any]:
    counts = result.result["counts"]
    return {
        "instances": counts["instances"],
        "accuracy": counts["accuracy"],
        **{f"excluded_{reason}": count for reason, count in counts["excluded"].items()},
        "analysed": counts["analysed"],
        "label_is_bias_label": counts["label_is_bias_label"],
        "near_ties": counts["near_ties"],
        "compared_with_model": counts["compared_with_model"],
        "label_differs_from_model": counts["label_differs_from_model"],
    }


def _multi(result: Result) -> Iterator[dict[str, Any]]:
    for record in result.result["multi"]:
        row = {key: record[key] for key in ("ranking", "orders", "instances", "flipped", "never")}
        row |= _flat("share_flipped", record["share_flipped"])
        row |= _flat("share_optimal", record["share_optimal"])
        for quantity in ("fraction", "mass", "gap"):
            for statistic in STATISTICS:
                row |= _flat(f"{quantity}_{statistic}", record[quantity][statistic])
        yield row


def _single(result: Result) -> Iterator[dict[str, Any]]:
    for record in result.result["single"]:
        row = {"ranking": record["ranking"], "instances": record["instances"]}
        row |= _flat("negative_delta_js", record["negative_delta_js"])
        for quantity in ("delta_js", "delta_alpha", "expected_delta_js"):
            for statistic in STATISTICS:
                row |= _flat(f"{quantity}_{statistic}", record[quantity][statistic])
        yield row


def _contingency(result: Result) -> Iterator[dict[str, Any]]:
    for record in result.result["single"]:
        for cell in CELLS:
            drawn = record["contingency"][cell]
            yield {
                "ranking": record["ranking"],
                "random_item": result.run["config"]["random_item"],
                "cell": cell,
                "count": drawn["count"],
                **_flat("share", drawn),
                **_flat(
                    "expected_share",
                    record["expected_contingency"][result.run["config"]["random_item"]][cell],
                ),
            }
