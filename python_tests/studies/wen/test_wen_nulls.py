"""Learned attention against its nulls, k-means' spread and its criterion, on rows made up here."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from test_wen_claims import CELL, measured

from fastattnerase.data.prepared import PreparedData
from fastattnerase.studies.wen.null_tables import (
    DataRow,
    cluster_rows,
    null_rows,
    repeat_rows,
)
from fastattnerase.studies.wen.repeats import Repeats, repeats_of
from fastattnerase.studies.wen.rows import GumbelRow, Measured, Tau


def model(tau: float, seed: int = 0, dataset: str = "sst", **repeats: float) -> Measured:
    own = measured(tau, cell=replace(CELL, seed=seed, dataset=dataset))
    return replace(own, plain=Tau(tau, tau, repeats=Repeats(**repeats)))


def test_models_are_paired_with_each_null() -> None:
    rows = [
        model(0.9, 0, permuted=0.5, equal=0.9),
        model(0.7, 1, permuted=0.8, equal=0.2),
        model(0.8, 2, permuted=0.4),
        model(float("nan"), 3, permuted=0.1, equal=0.1),
    ]
    permuted, equal = null_rows(rows, [])
    assert (permuted.null, permuted.tau) == ("permuted", "plain")
    assert (permuted.models, permuted.exceeds, permuted.below) == (3, 2, 1)
    assert permuted.learned == pytest.approx(0.8)
    assert permuted.null_mean == pytest.approx(1.7 / 3)
    assert permuted.difference == pytest.approx(0.7 / 3)
    # Differences 0.4, -0.1, 0.4: their deviation is 0.2887, over the root of three 1/6.
    assert permuted.error == pytest.approx(1 / 6)
    assert permuted.p_sign == 1  # two of three: 2 · P(X ≤ 1) = 1
    assert permuted.sentence == (
        "With learned attention plain tau is higher than with weights permuted within each "
        "instance (outputs recomputed) in 2 of 3 models and lower in 1: mean 0.80 against 0.57, a "
        "difference of 0.23 ± 0.17, sign test p = 1."
    )
    assert (equal.models, equal.exceeds, equal.below) == (2, 1, 0)
    # With Gumbel noise on equal scores as the null: softmax against it.
    noise = GumbelRow(*(measured(tau) for tau in (0.9, 0.1, 0.1, 0.4)))
    weighted, plain = null_rows([], [noise])
    assert (weighted.null, weighted.difference) == ("gumbel_noise", pytest.approx(0.5))
    assert (plain.tau, plain.exceeds, str(plain.error)) == ("plain", 1, "nan")


def test_the_spread_of_k_means() -> None:
    rows = [
        model(0.9, kmeans_low=0.7, kmeans_high=0.9, kmeans_difference=0.1),
        model(0.9, 1, "imdb", kmeans_low=0.9, kmeans_high=0.95, kmeans_difference=0.02),
        model(0.9, 2),
    ]
    every, sst, imdb = repeat_rows(rows)
    assert (every.dataset, every.models, sst.models, imdb.dataset) == ("all", 2, 1, "imdb")
    assert (every.difference, every.largest) == (pytest.approx(0.06), pytest.approx(0.2))
    assert str(every.paper_difference) == "nan"  # these are plain taus
    weighted = replace(every, tau="weighted")
    assert (weighted.paper_difference, weighted.paper_largest) == (0.02, 0.05)


def test_repeats_are_read_from_the_table_of_a_run() -> None:
    rows = [("kmeans", 0, 0.5), ("kmeans", 1, 0.9), ("kmeans", 2, 0.6), ("permuted", 0, 0.2),
            ("permuted", 1, 0.4), ("equal", 0, float("nan"))]  # fmt: skip
    table = pd.DataFrame(
        [
            {"measurement": name, "draw": draw, "statistic": "kendall", "value": value}
            for name, draw, value in rows
        ]
    )
    found = repeats_of(table, "kendall")
    assert (found.kmeans_low, found.kmeans_high) == (0.5, 0.9)
    assert found.kmeans_difference == pytest.approx((0.4 + 0.1 + 0.3) / 3)
    assert (found.permuted, found.permuted_low, found.permuted_high) == (
        pytest.approx(0.3), 0.2, 0.4,
    )  # fmt: skip
    assert str(found.equal) == str(found.untrained) == "nan"
    alone = repeats_of(table[table["draw"] == 0], "kendall")
    assert str(alone.kmeans_low) == "nan"  # one seed has no spread


def test_where_the_criterion_of_clusters_fails() -> None:
    rows = [replace(model(0.9), singletons=0.1), replace(model(0.9, 1), clusters=75)]
    every, sst = cluster_rows([*rows, replace(model(0.9, 2), clusters=None)])
    assert (every.models, every.failed, every.fewest, every.most) == (2, 1, 50, 75)
    assert sst.dataset == "sst"


def test_table_1_has_counts_lengths_and_accuracy_beside_the_paper_s() -> None:
    about = PreparedData(
        "SST", "", 100, 19.5, {"train": {"no": 3, "yes": 4}, "test": {"no": 1, "yes": 2}}, {}, {}
    )
    row = DataRow("sst", about, 0.81)
    assert (row.counts("train"), row.counts("test")) == ("3 / 4", "1 / 2")
    assert [row.reported(name) for name in ("words", "length", "accuracy")] == [16175, 19, 0.82]
    assert str(DataRow("mine", about, 0.5).reported("words")) == "nan"
