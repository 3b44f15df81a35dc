"""The measures of one sweep, against loops over sets of items from the definitions."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch

import fastattnerase as fae
from fastattnerase.measures.aopc_over_random import aopc_over_random
from fastattnerase.measures.envelope_area import envelope_area
from fastattnerase.measures.normalized_area import normalized_area
from fastattnerase.measures.symmetric_relevance_gain import symmetric_relevance_gain

LENGTHS = (7, 1, 12, 5)
NAMES = ("attention", "gradient", "random")


def made(classes: int = 3, lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> fae.AttentionBatch:
    """Instances in float64 with a linear head."""
    rng = torch.Generator().manual_seed(seed)
    T = sum(lengths)
    return fae.AttentionBatch(
        torch.randn(T, 4, generator=rng, dtype=torch.float64),
        torch.tensor([0, *np.cumsum(lengths)]),
        scores=torch.randn(T, generator=rng, dtype=torch.float64),
        head_weight=torch.randn(classes, 4, generator=rng, dtype=torch.float64),
        head_bias=torch.randn(classes, generator=rng, dtype=torch.float64),
    )


def logits_of(batch: fae.AttentionBatch, b: int, kept: list[int]) -> np.ndarray:
    """The logits of some items of an instance alone, from the definition."""
    one = batch[b]
    bias = batch.head_bias.numpy()
    if not kept:
        return bias
    weights = one.scores[kept].softmax(0)
    return (batch.head_weight @ (weights @ one.values[kept])).numpy() + bias


def output_of(batch: fae.AttentionBatch, b: int, kept: list[int], label: int, of: str) -> float:
    logits = logits_of(batch, b, kept)
    if of == "logit":
        return float(logits[label])
    shares = np.exp(logits - logits.max())
    return float(shares[label] / shares.sum())


def area(curve: list[float]) -> float:
    """The mean of the trapezia between values."""
    return float(np.mean([(x + y) / 2 for x, y in itertools.pairwise(curve)]))


def by_loops(
    batch: fae.AttentionBatch, b: int, order: list[int], of: str
) -> dict[tuple[str, str], float]:
    """Every measure of an order of one instance, sets of items written out."""
    n = len(order)
    everything = list(range(n))
    label = int(logits_of(batch, b, everything).argmax())
    erased = [output_of(batch, b, order[k:], label, of) for k in range(n + 1)]
    kept = [output_of(batch, b, order[:k], label, of) for k in range(n + 1)]
    whole = erased[0]
    at = {
        "eraser": [-(-n * q // 100) for q in (1, 5, 10, 20, 50)],
        "ferret": sorted({n * q // 100 for q in range(10, 101, 10)} - {0}),
        "every": list(range(1, n + 1)),
    }
    found = {
        ("comprehensiveness", ""): whole - erased[-(-n // 5)],
        ("sufficiency", ""): whole - kept[-(-n // 5)],
        ("deletion_area", ""): area(erased),
        ("insertion_area", ""): area(kept),
    }
    for grid, counts in at.items():
        found["aopc_comprehensiveness", grid] = float(np.mean([whole - erased[k] for k in counts]))
        found["aopc_sufficiency", grid] = float(np.mean([whole - kept[k] for k in counts]))
    last_first = [output_of(batch, b, order[: n - k], label, of) for k in range(1, n + 1)]
    found["symmetric_relevance_gain", ""] = float(np.mean(last_first) - np.mean(erased[1:]))
    return found


@pytest.mark.parametrize(("of", "curve"), [("probability", "label_prob"), ("logit", "logits")])
def test_against_loops_over_sets(of: Any, curve: Any) -> None:
    batch = made()
    swept = fae.sweep(
        batch, NAMES, curves=curve, direction="both", random_orders=3, orders=True, seed=4
    )
    found = swept.measures(of=of)
    assert found.rankings == NAMES
    assert swept.prefixes.rankings[2:] == ("random[0]", "random[1]", "random[2]")
    orders = swept.prefixes.order
    assert orders is not None
    for b in range(len(LENGTHS)):
        own = slice(int(batch.offsets[b]), int(batch.offsets[b + 1]))
        rows = [by_loops(batch, b, order[own].tolist(), of) for order in orders]
        drawn = {key: np.mean([row[key] for row in rows[2:]]) for key in rows[0]}
        for r, values in enumerate((rows[0], rows[1], drawn)):
            for key, value in values.items():
                np.testing.assert_allclose(found[key].values[r, b], value, atol=1e-9)
                if key[0] == "aopc_comprehensiveness":
                    over = found["aopc_over_random", key[1]].values[r, b]
                    np.testing.assert_allclose(over, value - drawn[key], atol=1e-9)
    assert set(found.missing) == {"envelope_area", "normalized_area"}
    assert np.isfinite(found["symmetric_relevance_gain"].values).all()


def test_probabilities_are_those_of_logits_too() -> None:
    batch = made()
    by_logits, by_probability = (
        fae.erase_prefixes(batch, NAMES, curves=curve).measures(grids=("every",))
        for curve in ("logits", "label_prob")
    )
    assert by_logits.found.keys() == by_probability.found.keys()
    for key, of in by_logits.found.items():
        np.testing.assert_allclose(of.values, by_probability.found[key].values, atol=1e-9)


def test_curves_of_both_directions_are_those_of_each() -> None:
    batch = made()
    names: Any = ("js", "logits")
    both = fae.sweep(batch, ["gradient", "leave_one_out"], curves=names, direction="both").prefixes
    for direction, curves in (("erase", both.curves), ("keep", both.kept_curves)):
        one = fae.erase_prefixes(
            batch, ["gradient", "leave_one_out"], curves=names, direction=direction
        )
        assert one.kept_curves == {}
        assert one.direction == direction
        for name in names:
            assert torch.equal(one.curves[name], curves[name])
    assert both.direction == "erase"
    assert both.to("cpu").kept_curves.keys() == both.curves.keys()
    assert "kept_curves['js']" in repr(both)
    head = fae.AttentionBatch(
        batch.values, batch.offsets, scores=batch.scores, head=lambda pooled: pooled[:, :3]
    )
    kept = fae.erase_prefixes(head, "attention", curves="label_prob", direction="keep")
    found = fae.erase_prefixes(head, "attention", curves="label_prob", direction="both")
    assert torch.equal(found.kept_curves["label_prob"], kept.curves["label_prob"])


def test_all_orders_of_an_instance_gain_nothing() -> None:
    """The mean over all orders is what a random order has: 0, and an order's reverse has −its."""
    batch = made(lengths=(4,), seed=2)
    orders = list(itertools.permutations(range(4)))
    given = [torch.tensor(order) for order in orders]
    swept = fae.erase_prefixes(batch, given, curves="label_prob", direction="both")
    gains = swept.measures()["symmetric_relevance_gain"].values[:, 0]
    assert abs(gains).max() > 0.01
    np.testing.assert_allclose(gains.mean(), 0, atol=1e-12)
    reverse = [orders.index(order[::-1]) for order in orders]
    np.testing.assert_allclose(gains, -gains[reverse], atol=1e-12)
    curves = swept.curves["label_prob"].numpy()
    over = aopc_over_random(curves, curves, [0, 5]).values[:, 0]
    np.testing.assert_allclose(over.mean(), 0, atol=1e-12)


def test_gain_and_random_orders_by_hand() -> None:
    """Erased .9 .5 .1, kept .1 .7 .9: from the end .7 and .1 are left, from the front .5, .1."""
    erased, kept, offsets = [0.9, 0.5, 0.1, 0.3], [0.1, 0.7, 0.9, 0.3], [0, 3, 4]
    gain = symmetric_relevance_gain(erased, kept, offsets)
    np.testing.assert_allclose(gain.values, [(0.7 + 0.1 - 0.5 - 0.1) / 2, np.nan])
    assert gain.undefined == {"no words": 1}
    # AOPC (.4 + .8) / 2 = .6; of two random orders (.2 + .8) / 2 and (.6 + .8) / 2: .6.
    random = [[0.9, 0.7, 0.1, 0.3], [0.9, 0.3, 0.1, 0.3]]
    np.testing.assert_allclose(
        aopc_over_random(erased, random, offsets).values, [0.0, np.nan], atol=1e-12
    )
    np.testing.assert_allclose(
        aopc_over_random(erased, random[0], offsets).values, [0.1, np.nan], atol=1e-12
    )
    assert symmetric_relevance_gain([], [], [0]).values.shape == (0,)
    nothing = symmetric_relevance_gain([0.5, np.nan], [0.5, 0.5], [0, 2])
    assert nothing.undefined == {"not finite": 1}


def test_areas_within_bounds_by_hand() -> None:
    """Two items: curves 2, c, 0 at shares 0, ½, 1; area (1 + c) / 2 + c / 4 − …: (2 + 2 c) / 4."""
    least, largest, offsets = [2.0, 1.0, 0.0, 4.0], [2.0, 2.0, 0.0, 4.0], [0, 3, 4]
    between = envelope_area(least, largest, offsets)
    np.testing.assert_allclose(between.values, [1.5 - 1.0, np.nan])
    assert between.undefined == {"no words": 1}
    curves = [[2.0, 1.25, 0.0, 4.0], [2.0, 2.0, 0.0, 4.0]]
    for keep, expected in ((False, [0.75, 0.0]), (True, [0.25, 1.0])):
        found = normalized_area(curves, least, largest, offsets, keep=keep)
        np.testing.assert_allclose(found.values, [[e, np.nan] for e in expected])
    # At shares 0, ¼, 1 the middle has half the width of (0 to ¼) and of (¼ to 1) together.
    shares = [0.0, 0.25, 1.0, 0.0]
    uneven = envelope_area(least, [3.0, 2.0, 0.0, 4.0], offsets, shares=shares)
    np.testing.assert_allclose(uneven.values, [(1 + 1) / 2 / 4 + (1 + 0) / 2 * 3 / 4, np.nan])
    same = normalized_area(least, least, least, offsets)
    assert same.undefined == {"no words": 1, "bounds meet": 1}
    assert normalized_area([], [], [], [0]).values.shape == (0,)


@pytest.mark.parametrize("grid", [None, 5])
@pytest.mark.parametrize("direction", ["erase", "keep"])
def test_with_an_envelope(direction: Any, grid: int | None) -> None:
    batch = made(classes=2)
    bounds = fae.envelope(batch, NAMES, grid=grid, direction=direction, random_orders=4)
    swept = fae.sweep(batch, NAMES, curves="label_prob", direction=direction, random_orders=4)
    found = swept.measures(envelope=bounds)
    places = found["normalized_area"].values
    own = bounds.normalized_area.numpy()
    np.testing.assert_allclose(places[:2], own[:2])
    np.testing.assert_allclose(places[2], own[2:].mean(0))
    assert ((places >= 0) & (places <= 1) | np.isnan(places)).all()
    width = bounds.area(bounds.largest[None]) - bounds.area(bounds.least[None])
    np.testing.assert_allclose(found["envelope_area"].values, width.numpy().repeat(3, 0))
    assert set(found.missing) == (
        {"sufficiency", "aopc_sufficiency", "insertion_area", "symmetric_relevance_gain"}
        if direction == "erase"
        else {
            "comprehensiveness", "aopc_comprehensiveness", "deletion_area", "aopc_over_random",
            "symmetric_relevance_gain",
        }
    )  # fmt: skip


def test_one_output_is_measured_by_its_logit() -> None:
    batch = made(classes=1)
    with pytest.warns(UserWarning, match="one output"):
        swept = fae.sweep(batch, ["attention"], curves=("label_prob", "logits"))
    with pytest.raises(ValueError, match="of: given 'probability' of one output, which is always"):
        swept.measures()
    crossing = fae.cross_threshold(batch, ["attention"], threshold=0.0, curves=True)
    assert crossing.curve is not None
    curve = crossing.curve[0].numpy()
    for b, n in enumerate(LENGTHS):
        first = int(crossing.curve_offsets[b])
        expected = curve[first] - curve[first + 1 : first + n + 1].mean()
        found = swept.measures(of="logit")["aopc_comprehensiveness", "every"]
        np.testing.assert_allclose(found.values[0, b], expected)


def test_tables_and_summaries() -> None:
    batch = made(lengths=(6,) * 40)
    swept = fae.sweep(
        batch, ["attention", "random"], curves="label_prob", direction="both", random_orders=5
    )
    found = swept.measures(grids=("every",))
    table = found.to_pandas()
    assert list(table.columns) == ["instance", "ranking", "measure", "grid", "value"]
    assert len(table) == 8 * 2 * 40
    row = table.query("measure == 'aopc_sufficiency' and ranking == 'random' and instance == 7")
    assert row["grid"].tolist() == ["every"]
    assert row["value"].tolist() == [found["aopc_sufficiency", "every"].values[1, 7]]
    summary = found.summary(resamples=200).set_index(["measure", "ranking"])
    gain = summary.loc["aopc_over_random", "attention"]
    assert gain["mean"] == pytest.approx(float(found["aopc_over_random", "every"].mean[0]))
    assert gain["low"] < gain["mean"] < gain["high"]
    assert gain["better"] == "higher"
    assert gain["instances"] == 40
    assert summary.loc["aopc_over_random", "random"]["mean"] == pytest.approx(0)
    again = found.summary(resamples=200, seed=1).set_index(["measure", "ranking"])
    assert again.loc["aopc_over_random", "attention"]["low"] != gain["low"]


def test_instances_without_items_and_numbers_are_counted() -> None:
    values = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    values[0, 0] = torch.nan
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 2, 2, 4]), scores=torch.zeros(4), head_weight=torch.eye(2)
    )
    swept = fae.erase_prefixes(batch, "attention", curves="logits", direction="both")
    for of in ("probability", "logit"):
        found = swept.measures(of=of)  # type: ignore[arg-type]
        for measured in found.found.values():
            assert np.isnan(measured.values[0, :2]).all()
            assert np.isfinite(measured.values[0, 2])
            assert measured.undefined == {"no words": 1, "not finite": 1}
        assert found.summary()["instances"].tolist() == [1] * len(found.found)
    none = fae.erase_prefixes(batch[:0], "attention", curves="label_prob").measures()
    assert none["deletion_area"].values.shape == (1, 0)
    assert none.to_pandas().empty


def test_what_is_missing_says_which_argument() -> None:
    batch = made()
    swept = fae.sweep(batch, ["attention"], curves="label_prob")
    found = swept.measures()
    assert found.missing["sufficiency"] == "direction='both'"
    assert "missing=sufficiency (needs direction='both')" in repr(found)
    one = fae.envelope(batch, ["gradient"])
    for call, message in (
        (lambda: found["sufficiency"], "sufficiency: given a sweep without, needed direction='bo"),
        (lambda: found["aopc_over_random", "every"], "needed rankings with 'random' among them"),
        (lambda: found["normalized_area"], "needed envelope=fae.envelope(batch, rankings)"),
        (lambda: found["aopc_comprehensiveness"], "needed one of ('aopc_comprehensiveness', 'era"),
        (lambda: found["auc"], "measure: given 'auc', needed one of aopc_comprehensiveness, comp"),
        (lambda: swept.measures(of="logit"), "curves: given ('label_prob',), needed 'logits'"),
        (lambda: swept.measures(of="odds"), "of: given 'odds', needed 'probability' or"),  # type: ignore[arg-type]
        (lambda: swept.measures(grids=("mine",)), "preset: given 'mine', needed one of eraser"),  # type: ignore[arg-type]
        (lambda: swept.measures(fraction=0.0), "fractions: given (0.0,), needed some in (0, 1]"),
        (lambda: swept.measures(envelope=one), "envelope: given one of rankings ('gradient',)"),
        (lambda: swept.measures(envelope=fae.envelope(batch[:2])), "envelope: given one of other"),
        (lambda: fae.sweep(batch).measures(), "curves: given (), needed 'label_prob' among them"),
        (lambda: fae.sweep(batch, direction="all"), "direction: given 'all', needed 'erase', 'ke"),  # type: ignore[call-overload]
        (lambda: aopc_over_random([0.5, 0.5], np.zeros((0, 2)), [0, 2]), "random: given no order"),
        (lambda: symmetric_relevance_gain([[0.5, 0.5]], [0.5, 0.5], [0, 2]), "kept: given [2], "),
        (lambda: envelope_area([1, 1], [1, 1], [0, 2], shares=[1, 0]), "shares: given some that"),
        (lambda: envelope_area([1, 1], [1, 1], [0, 2], shares=[1]), "shares: given [1], needed"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
