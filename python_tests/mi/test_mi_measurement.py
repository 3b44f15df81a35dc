"""The measurement as a whole, on planted cases and at its edges."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from streams import planted, random_batch, split

import fastattnerase as fae
from fastattnerase.mi import Config, Measurement, MeasurementError, measure

SMALL = Config(clusters=8, shuffles=40)


def small(**options: Any) -> Config:
    return Config(**{"clusters": 8, "shuffles": 40} | options)


def equal(a: Measurement, b: Measurement) -> None:
    for table in ("ranks", "correlations", "outputs", "instances"):
        pd.testing.assert_frame_equal(getattr(a, table), getattr(b, table), check_exact=True)
    assert a.summary == b.summary


@pytest.mark.parametrize("codebook", ["rank", "shared"])
@pytest.mark.parametrize("algorithm", ["full", "mini_batch"])
def test_a_planted_state_of_rank_1_ranks_first(codebook: str, algorithm: str) -> None:
    batch, logits = planted(600, 6)
    found = measure(
        [(batch, logits)], small(clusters=20, codebook=codebook, algorithm=algorithm, restarts=3)
    )
    ranks = found.ranks
    first, rest = ranks.iloc[0], ranks.iloc[1:]
    sizes = found.outputs["instances"]
    entropy = -sum(n / 600 * math.log(n / 600) for n in sizes)
    assert len(sizes) == 5
    assert first["plug_in"] == pytest.approx(entropy, abs=1e-9)  # the state tells the output
    assert first["output_entropy"] == pytest.approx(entropy, abs=1e-12)
    assert first["p_value"] == 1 / 41
    assert ranks["plug_in"].idxmax() == 0
    # The rest is noise: about the bias, within the control's interval but for chance.
    assert (rest["plug_in"] < 0.3 * first["plug_in"]).all()
    inside = rest["plug_in"].between(rest["control_low"], rest["control_high"])
    assert inside.sum() >= 4
    assert (rest["excess"].abs() < 0.05).all()
    assert (rest["miller_madow"].abs() < 0.05).all()
    tau = found.correlation("weighted_product").value
    assert tau is not None
    plain = found.correlation("kendall").value
    assert plain is not None
    assert tau > plain


def test_a_planted_state_of_the_last_rank_turns_the_correlation_round() -> None:
    batch, logits = planted(600, 6, informative=6)
    found = measure([(batch, logits)], small())
    assert found.ranks["plug_in"].idxmax() == 5
    plain = found.correlation("kendall").value
    assert plain is not None
    assert plain < 0.5


def test_estimates_keep_their_bounds_and_tables_can_be_written(tmp_path) -> None:
    found = measure(split(random_batch(150, seed=1, longest=9), 13), small())
    ranks = found.ranks
    assert (ranks["plug_in"] >= 0).all()
    assert (ranks["plug_in"] <= ranks["bound"]).all()
    smaller = ranks[["state_entropy", "output_entropy"]].min(axis=1)
    assert ranks["bound"].tolist() == smaller.tolist()
    assert (ranks["bound"] <= math.log(8)).all()
    assert ranks["attention"].is_monotonic_decreasing
    assert ranks["rank"].tolist() == list(range(1, len(ranks) + 1))
    assert (ranks["control_low"] <= ranks["control_mean"]).all()
    assert (ranks["control_mean"] <= ranks["control_high"]).all()
    assert ranks["excess"].tolist() == (ranks["plug_in"] - ranks["control_mean"]).tolist()
    bias = (ranks["clusters"] - 1) * (len(found.outputs) - 1) / (2 * ranks["instances"])
    assert ranks["bias"].tolist() == pytest.approx(bias.tolist(), abs=1e-15)
    used = found.instances["used"]
    assert used.tolist() == (found.instances["length"] >= len(ranks)).tolist()
    assert (ranks["instances"] == used.sum()).all()
    assert found.summary.used + found.summary.too_short == 150
    assert found.outputs["instances"].sum() == used.sum()
    assert (found.instances["output"][~used] == -1).all()
    for table in ("ranks", "correlations", "outputs", "instances"):
        frame = getattr(found, table)
        frame.to_parquet(tmp_path / "table.parquet")
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table.parquet"), frame)


def test_neither_batches_nor_an_earlier_run_matter() -> None:
    batch = random_batch(120, seed=2)
    config = Config(candidates=(4, 6, 10), shuffles=20)
    whole = measure([batch], config)
    equal(whole, measure(split(batch, 7), config))
    equal(whole, measure(iter(split(batch, 50)), config))
    other = measure([batch], Config(candidates=(4, 6, 10), shuffles=20, seed=1))
    assert other.ranks["control_mean"].tolist() != whole.ranks["control_mean"].tolist()


def test_the_scale_of_the_states_does_not_matter() -> None:
    batch, logits = planted(200, 3)
    found = measure([(batch, logits)], SMALL)
    for scale in (2.0**-40, 2.0**60):
        scaled = fae.AttentionBatch(
            batch.values * scale, batch.offsets, scores=batch.scores, head_weight=torch.zeros(2, 4)
        )
        equal(found, measure([(scaled, logits)], SMALL))


def test_output_clusters_are_intervals_of_the_logit() -> None:
    batch = random_batch(90, seed=3, longest=3)
    logits = torch.linspace(-4, 5, 90)
    found = measure([(batch, logits)], small(ranks=1)).outputs
    assert found["label"].tolist() == [0, 1, 2, 3, 4]
    assert (found["low"] <= found["high"]).all()
    assert (found["high"].to_numpy()[:-1] < found["low"].to_numpy()[1:]).all()
    assert found["low"].iloc[0] == pytest.approx(-4)
    assert found["instances"].tolist() == pytest.approx([18] * 5, abs=3)
    probability = measure([(batch, logits)], small(ranks=1, output_space="probability")).outputs
    assert probability["high"].iloc[-1] == pytest.approx(1 / (1 + math.exp(-5)), abs=1e-6)
    assert probability["instances"].tolist() != found["instances"].tolist()


def test_predicted_classes() -> None:
    batch = random_batch(120, seed=4, classes=3)
    found = measure([batch], SMALL)
    predicted = found.instances["predicted"][found.instances["used"]]
    assert found.outputs["instances"].tolist() == predicted.value_counts().sort_index().tolist()
    assert found.outputs["low"].isna().all()
    two = measure([random_batch(120, seed=5)], small(output="classes"))
    assert two.summary.output_labels == 2
    many = measure([batch], small(output="clusters", output_clusters=4))
    assert many.summary.output_labels == 4


def test_classes_that_do_not_occur_get_no_label() -> None:
    batch = random_batch(60, seed=6)
    logits = torch.eye(5)[torch.arange(60) % 2 * 3]  # classes 0 and 3
    found = measure([(batch, logits)], SMALL)
    assert found.outputs["instances"].sum() == found.summary.used
    assert sorted(set(found.instances["output"])) == [-1, 0, 3]


def test_each_rank_may_have_its_own_instances() -> None:
    batch = random_batch(150, seed=7)
    found = measure([batch], small(ranks=5, instances="each_rank"))
    lengths = batch.lengths
    assert found.ranks["instances"].tolist() == [int((lengths >= r).sum()) for r in range(1, 6)]
    assert found.summary.too_short == 0
    assert (
        "ranks have different numbers of instances, so estimates differ in bias"
        in found.summary.notices
    )
    same = measure([batch], small(ranks=5))
    assert same.ranks["instances"].tolist() == [int((lengths >= 5).sum())] * 5
    # The last rank's instances are those of the other reading, quantised alike.
    assert same.ranks["clusters"].iloc[-1] == found.ranks["clusters"].iloc[-1]
    assert same.ranks["attention"].iloc[-1] == found.ranks["attention"].iloc[-1]


def uniform(instances: int = 80, ranks: int = 4) -> tuple[fae.AttentionBatch, torch.Tensor]:
    batch, logits = planted(instances, ranks)
    weights = torch.full((batch.num_items,), 1 / ranks)
    return (
        fae.AttentionBatch(
            batch.values, batch.offsets, weights=weights, head_weight=torch.zeros(2, 4)
        ),
        logits,
    )


@pytest.mark.parametrize("instances", ["all_ranks", "each_rank"])
def test_constant_attention(instances: str) -> None:
    stream = [uniform()]
    with pytest.raises(MeasurementError) as raised:
        measure(stream, small(instances=instances))
    assert "attention is constant" in str(raised.value)
    assert "set constant_attention to by_position" in str(raised.value)

    undefined = measure(stream, small(instances=instances, constant_attention="undefined"))
    assert undefined.correlations["value"].isna().all()
    assert set(undefined.correlations["reason"]) == {"attention is constant"}
    assert undefined.summary.constant_attention
    assert undefined.correlation("kendall").reason == "attention is constant"

    placed = measure(stream, small(instances=instances, constant_attention="by_position"))
    plain = placed.correlation("kendall")
    order = np.argsort(-placed.ranks["plug_in"].to_numpy())
    concordant = sum(order[i] < order[j] for i in range(4) for j in range(i + 1, 4))
    assert plain.value == pytest.approx((2 * concordant - 6) / 6)
    assert placed.correlation("weighted_sum").value == pytest.approx(plain.value)
    pd.testing.assert_frame_equal(placed.ranks, undefined.ranks)
    assert "attention is constant: ranks are positions" in placed.summary.notices


def test_correlations_are_those_of_the_table() -> None:
    found = measure([random_batch(150, seed=8, longest=9)], small())
    ranks = found.ranks
    from fastattnerase.mi import kendall_tau, weighted_tau

    for estimator in ("plug_in", "miller_madow", "excess"):
        x, a = ranks[estimator].to_numpy(), ranks["attention"].to_numpy()
        plain = kendall_tau(x, a)
        assert found.correlation("kendall", estimator) == plain
        assert found.correlation("weighted_product", estimator) == weighted_tau(x, a, a)
        assert found.correlation("weighted_sum", estimator) == weighted_tau(x, a, a, pairs="sum")
    table = found.correlations.set_index(["estimator", "statistic"])
    control = table.loc["plug_in"]
    assert (control["control_low"] <= control["control_mean"]).all()
    assert (control["control_mean"] <= control["control_high"]).all()
    assert (control["control_low"] < 0).all()
    assert table.loc["excess"]["control_mean"].isna().all()
    with pytest.raises(ValueError, match="given 'spearman' and 'plug_in', needed one of kendall"):
        found.correlation("spearman")


def test_one_rank_has_no_correlation() -> None:
    found = measure([random_batch(60, seed=9)], small(ranks=1))
    assert found.correlations["value"].isna().all()
    assert set(found.correlations["reason"]) == {"one rank, needed at least 2"}


def test_without_shuffles() -> None:
    found = measure([random_batch(60, seed=9)], small(shuffles=0, ranks=3))
    assert found.ranks[["control_mean", "control_low", "excess", "p_value"]].isna().all().all()
    assert found.correlation("kendall").value is not None
    assert "no control" in found.correlation("kendall", "excess").reason


def test_states_that_are_all_alike() -> None:
    batch = random_batch(60, seed=10)
    same = fae.AttentionBatch(
        torch.ones_like(batch.values), batch.offsets, scores=batch.scores,
        head_weight=torch.zeros(2, 3),
    )  # fmt: skip
    found = measure([(same, torch.linspace(-1, 1, 60))], small(ranks=3, clusters=3))
    assert found.ranks["plug_in"].tolist() == [0.0] * 3
    assert found.ranks["clusters"].tolist() == [1] * 3
    assert found.correlation("kendall").reason == "mutual information is the same at every rank"
    notices = " ".join(found.summary.notices)
    assert "3 ranks have fewer than 3 clusters that occur, the first rank 1 with 1" in notices
    assert "do not leave two samples to each: 0 hold one state" in notices


def test_equal_information_is_a_tie_whatever_the_rounding() -> None:
    generator = torch.Generator().manual_seed(1)
    code = torch.randint(0, 5, (203,), generator=generator)
    values = 20 * torch.eye(5)[code][:, None].expand(203, 4, 5)  # the same state at every rank
    batch = fae.AttentionBatch.from_padded(
        values, scores=torch.arange(4.0).expand(203, 4), head_weight=torch.zeros(2, 5)
    )
    found = measure([(batch, code.float())], small(clusters=5, restarts=5))
    assert found.ranks["plug_in"].min() > 1.5
    assert found.correlation("kendall").reason == "mutual information is the same at every rank"


def test_singletons_are_reported() -> None:
    batch, logits = planted(40, 3)
    found = measure([(batch, logits)], small(clusters=30))
    assert not found.summary.two_samples_each
    assert (found.ranks["singletons"] >= 20).any()
    total = found.ranks["singletons"].sum()
    assert (
        f"30 clusters do not leave two samples to each: {total} hold one state"
        in found.summary.notices
    )


def refused(message: str, stream: object, **options: Any) -> None:
    with pytest.raises(MeasurementError) as raised:
        measure(stream, small(**options))  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_errors_say_what_to_do() -> None:
    batch = random_batch(40, seed=11)
    refused(
        "clusters: given 41, needed at most 40, the instances of", [batch], clusters=41, ranks=1
    )
    refused(
        "clusters: given 41, needed at most 40, the instances of the union of all ranks",
        [batch], clusters=41, ranks=1, codebook="shared",
    )  # fmt: skip
    refused("all 40 instances fall into one output cluster", [(batch, torch.ones(40))], ranks=1)
    refused(
        "all 40 instances fall into one predicted class",
        [(batch, torch.linspace(1, 2, 40))], ranks=1, output="classes",
    )  # fmt: skip
    refused("output_clusters: given 5, needed at most 3, the vectors", [batch[:3]], ranks=1)
    refused("no instance to measure", [])
    refused("no rank is left", [batch], weight_threshold=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed: given -1"),
        ({"seed": 2**32}, "seed: given 4294967296, needed 0 to 2**32 - 1"),
        ({"ranks": 0}, "ranks: given 0, needed a number from 1"),
        ({"ranks": "all"}, "ranks: given 'all'"),
        ({"clusters": "minimal"}, "clusters: given 'minimal', needed largest, smallest or a"),
        ({"candidates": ()}, "candidates: given ()"),
        ({"candidates": (1, 50)}, "candidates: given (1, 50)"),
        ({"codebook": "one"}, "codebook: given 'one', needed rank or shared"),
        ({"output_clusters": 1}, "output_clusters: given 1, needed a number from 2"),
        ({"weight_threshold": np.inf}, "weight_threshold: given inf, needed a number from 0"),
        ({"weight_threshold": np.nan}, "weight_threshold: given nan, needed a number from 0"),
        ({"length_percentile": np.nan}, "length_percentile: given nan"),
        ({"shuffles": 10**9}, "shuffles: given 1000000000, needed 0, for no"),
        ({"shuffles": 1}, "shuffles: given 1, needed 0, for no control, or 20 to 100,000"),
        ({"shuffles": 19}, "shuffles: given 19, needed 0, for no control, or 20 to 100,000"),
        ({"clusters": 1}, "clusters: given 1, needed a number from 2"),
        ({"restarts": 10**9}, "restarts: given 1000000000, needed at most 1,000"),
        ({"weight_share": np.nan}, "weight_share: given nan"),
        ({"confidence": np.nan}, "confidence: given nan"),
        ({"weight_share": 0.0}, "weight_share: given 0.0"),
        ({"weight_threshold": float("nan")}, "weight_threshold: given nan"),
        ({"length_percentile": 101}, "length_percentile: given 101"),
        ({"confidence": 1.0}, "confidence: given 1.0"),
        ({"max_ranks": 0}, "max_ranks: given 0"),
        ({"shuffles": -1}, "shuffles: given -1"),
        ({"exclude": "zeros"}, "exclude: given 'zeros'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        Config(**options)
    assert message in str(raised.value)


def test_gumbel_noise_makes_a_correlation_where_nothing_is_attended_to() -> None:
    # Equal scores, temperature 0.8: the sample that ranks the items also makes the output.
    generator = torch.Generator().manual_seed(0)
    instances, n = 1500, 10
    values = torch.randn(instances, n, 2, generator=generator)
    noise = -torch.rand(instances, n, generator=generator).log().neg().log()
    head = torch.tensor([[0.0, 0.0], [1.0, 0.0]])

    def curve(scores: torch.Tensor) -> Measurement:
        batch = fae.AttentionBatch.from_padded(values, scores=scores, head_weight=head)
        return measure([batch], small(constant_attention="by_position", ranks=n))

    on, off = curve(noise / 0.8), curve(torch.zeros(instances, n))
    assert on.ranks["excess"].iloc[0] > 0.15
    assert on.ranks["excess"].iloc[0] > 5 * on.ranks["excess"].iloc[3:].max()
    noisy, flat = on.correlation("weighted_product"), off.correlation("weighted_product")
    assert noisy.value is not None
    assert noisy.value > 0.7
    assert flat.value is not None
    assert off.ranks["excess"].max() < 0.5 * on.ranks["excess"].max()


def test_memory_does_not_grow_with_the_number_of_ranks() -> None:
    instances, width = 500, 64

    def stream(longest: int) -> Iterator[tuple[fae.AttentionBatch, torch.Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(instances // 20):
            values = torch.randn(20, longest, width, generator=generator)
            scores = torch.randn(20, longest, generator=generator)
            yield (
                fae.AttentionBatch.from_padded(
                    values, scores=scores, head_weight=torch.zeros(2, width)
                ),
                torch.randn(20, generator=generator),
            )

    def peak(longest: int) -> int:
        tracemalloc.start()
        try:
            measure(stream(longest), small(ranks=longest, shuffles=20))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)  # what a first call allocates once
    of_one_rank = instances * width * 4
    assert peak(24) - peak(6) < of_one_rank  # 18 ranks more
