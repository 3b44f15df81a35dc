"""The verdicts on the paper's statements, of rows made up here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fastattnerase.models.published import pair
from fastattnerase.studies.wen import paper
from fastattnerase.studies.wen.claims import MIN_SHARE, Claim, claims
from fastattnerase.studies.wen.options import Cell
from fastattnerase.studies.wen.results import CellResult
from fastattnerase.studies.wen.rows import (
    AccuracyRow,
    AdversaryRow,
    FixRow,
    GumbelRow,
    Measured,
    Tau,
    TauName,
)
from fastattnerase.studies.wen.tables import (
    Tables,
    gumbel_counts,
    highest_rows,
    mean_rows,
    order_rows,
)

CELL = Cell("sst", "bilstm", "additive", "softmax", "normal", 0)
RESULT = CellResult(0.8, 0.8, 0.8, 0.8, 1, 2, {}, 0, {})


def measured(
    weighted: float,
    plain: float | None = None,
    *,
    chance: bool | None = False,
    plain_chance: bool | None = False,
    ranks: int = 8,
    cell: Cell = CELL,
) -> Measured:
    """A measurement; plain tau is the weighted one where it is not given."""
    plain = weighted if plain is None else plain
    return Measured(
        cell, "main", 0.8, 2, RESULT, ranks, 50, 100, 0.0, 0.5,
        weighted=Tau(weighted, weighted, chance=chance),
        plain=Tau(plain, plain, chance=plain_chance),
    )  # fmt: skip


def judge(**tables: list[Any]) -> list[tuple[str, int, int]]:
    return [(claim.agrees, claim.held, claim.cases) for claim in claims(Tables(**tables))]


def fixed(setting: str, falls: list[float], **options: list[Any]) -> list[FixRow]:
    """Models of one reading; both taus of the normal models are 0.9, and fall by so much."""
    rows = []
    for i, fall in enumerate(falls):
        own = {name: values[i] for name, values in options.items()}
        normal = measured(0.9, chance=own.pop("normal_chance", False))
        rows.append(FixRow(normal, measured(0.9 - fall, **own), setting, "random"))
    return rows


def adversaries(
    falls: list[float], jsd: list[float], tvd: list[float], **options: list[Any]
) -> list[AdversaryRow]:
    return [
        AdversaryRow(row.normal, row.special, distance, attention, 0.01)
        for row, attention, distance in zip(fixed("", falls, **options), jsd, tvd, strict=True)
    ]


def grid(taus: dict[tuple[str, str, int], float], **ranks: int) -> list[Measured]:
    """Normal models of one data set; plain tau is the negative, `bilstm_deep_0=3` gives ranks."""
    return [
        measured(
            tau, -tau, ranks=ranks.get(f"{e}_{a}_{seed}", 8),
            cell=replace(CELL, encoder=e, attention=a, seed=seed),
        )
        for (e, a, seed), tau in taus.items()
    ]  # fmt: skip


def of_means(models: list[Measured]) -> list[Claim]:
    return claims(
        Tables(means=mean_rows(models), order=order_rows(models), highest=highest_rows(models))
    )


def test_orders_need_the_means_and_most_cells() -> None:
    assert judge() == []
    cells = [("bilstm", 0), ("bilstm", 1), ("cnn", 0), ("mlp", 0)]
    taus = {
        (e, a, s): tau
        for e, s in cells
        for a, tau in (("additive", 0.9), ("deep", 0.8), ("dot", 0.4))
    }
    weighted, plain, *_ = of_means(grid(taus))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 4, 4)
    assert (plain.agrees, plain.held, plain.cases) == ("no", 0, 4)
    assert weighted.here.startswith(
        "means 0.90, 0.80, 0.40; in this order in 4 of 4 cells; 0.7 by "
    )
    assert "0.7 by chance, p = 0.00077; mean ±" in weighted.here  # 1/6 to the fourth
    assert weighted.p_chance == pytest.approx(6**-4)
    assert "additive less deep 0.10 ± 0.00, deep less dot 0.40 ± 0.00" in weighted.here
    # Two cells of four are not most, nor more than chance; the mean lead is below two errors.
    half = taus | {(e, "deep", 0): 0.91 for e in ("cnn", "mlp")}
    weighted, *_ = of_means(grid(half))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("no", 2, 4)
    assert weighted.p_chance == pytest.approx((6 * 25 + 4 * 5 + 1) / 6**4)
    # 0.1, 0.1, -0.01, -0.01: mean 0.045, standard error 0.0318
    assert "additive less deep 0.04 ± 0.03" in weighted.here or "0.05 ± 0.03" in weighted.here
    # Most cells, but one far outlier turns the means.
    turned = taus | {("mlp", "additive", 0): -1.0}
    weighted, *_ = of_means(grid(turned))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("partly", 3, 4)
    # What has few ranks, or no tau, is undecided.
    weighted, *_ = of_means(grid(taus | {("mlp", "dot", 0): math.nan}, cnn_deep_0=4))
    assert (weighted.held, weighted.cases, weighted.undecided) == (2, 2, 2)
    assert "undecided: 1 (fewer than five ranks), 1 (tau is undefined)" in weighted.here
    nothing = of_means(grid(dict.fromkeys(taus, math.nan)))
    assert [(claim.agrees, claim.cases) for claim in nothing[:2]] == [("", 0), ("", 0)]
    assert not any("nan" in claim.here for claim in nothing)


def test_a_cell_without_one_of_the_attentions_is_undecided() -> None:
    taus = {("bilstm", a, 0): t for a, t in (("additive", 0.9), ("deep", 0.8), ("dot", 0.4))}
    weighted, *_ = of_means(grid(taus | {("cnn", "deep", 0): 0.7}))
    assert (weighted.held, weighted.cases, weighted.undecided) == (1, 1, 1)
    [_, missing] = order_rows(grid(taus | {("cnn", "deep", 0): 0.7}))
    assert (missing.ranks("additive"), missing.ranks("deep")) == (None, 8)


def test_the_best_combination_needs_the_mean_and_most_cells() -> None:
    taus = {
        (e, a, s): 0.9 - 0.1 * (3 * i + j) - 0.01 * s
        for i, e in enumerate(("bilstm", "cnn", "mlp"))
        for j, a in enumerate(("additive", "deep", "dot"))
        for s in range(3)
    }
    *_, weighted, plain = of_means(grid(taus))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 3, 3)
    assert (plain.agrees, plain.held, plain.cases) == ("no", 0, 3)
    assert weighted.here.startswith(
        "mean 0.89; best other mean 0.79, bilstm with deep, a lead of 0.10 ± 0.00 over 3 cells; "
        "highest in 3 of 3 cells, in 0 of these with another; 0.3 by chance, p = 0.0014"
    )
    # A tie is highest; a higher one of few ranks cannot be compared.
    other = taus | {("cnn", "dot", 0): 0.9, ("mlp", "dot", 1): 1.0}
    *_, weighted, _ = of_means(grid(other, mlp_dot_1=4))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 3, 3)
    assert "in 1 of these with another" in weighted.here
    *_, weighted, _ = of_means(grid(other))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 2, 3)
    *_, weighted, _ = of_means(grid(taus, bilstm_additive_0=4))
    assert (weighted.held, weighted.cases, weighted.undecided) == (2, 2, 1)


def test_accuracy_by_seed() -> None:
    row = AccuracyRow("sst", seeds=3, accuracy=0.8, lowest=0.77, reached=2)
    [claim] = claims(Tables(accuracy=[row]))
    assert (claim.agrees, claim.held, claim.cases) == ("partly", 2, 3)
    assert (claim.paper, claim.here) == ("0.82", "mean 0.800, lowest 0.770")
    assert claim.rule.startswith("accuracy of a seed at least 0.78:")
    assert claims(Tables(accuracy=[replace(row, dataset="imdb")])) == []  # none is asked for


@pytest.mark.parametrize(
    ("setting", "falls", "expected"),
    [
        ("Fix Attn", [0.7, 0.2], ("yes", 2, 2)),
        ("Fix Attn", [0.7, 0.05], ("partly", 1, 2)),
        ("Fix Attn", [0.0, -0.3], ("no", 0, 2)),
        ("Fix Rep", [-0.07, 0.0], ("yes", 2, 2)),  # the paper's range
        ("Fix Rep", [0.04, 0.06], ("partly", 1, 2)),
        ("Fix Rep", [math.nan, 0.3], ("no", 0, 1)),
        ("Fix Rep", [math.nan, math.nan], ("", 0, 0)),
    ],
)
def test_fix_claims_by_model(
    setting: str, falls: list[float], expected: tuple[str, int, int]
) -> None:
    rows = fixed(setting, falls)
    assert judge(table_2=rows) == [expected, expected]  # weighted, plain
    assert not any("nan" in claim.here for claim in claims(Tables(table_2=rows)))


@pytest.mark.parametrize("setting", ["Fix Attn", "Fix Rep"])
def test_what_was_chance_before_or_has_few_ranks_is_undecided(setting: str) -> None:
    falls = [0.5] * 3 if setting == "Fix Attn" else [0.0] * 3
    rows = fixed(setting, falls, normal_chance=[True, False, False], ranks=[8, 4, 8])
    weighted, plain = claims(Tables(table_2=rows))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 1, 1)
    assert weighted.undecided == 2
    assert (plain.held, plain.cases, plain.undecided) == (2, 2, 1)
    assert weighted.here.endswith(
        "undecided: 1 (tau of the normal model is chance), 1 (fewer than five ranks)"
    )
    # Without shuffles nothing can be tested against chance: no verdict.
    rows = fixed(setting, falls, normal_chance=[None] * 3, chance=[None] * 3)
    weighted, _ = claims(Tables(table_2=rows))
    assert (weighted.agrees, weighted.cases, weighted.undecided) == ("", 0, 3)
    assert weighted.here == "undecided: 3 (no shuffled outputs to compare with)"


def test_a_tau_that_becomes_chance_has_fallen() -> None:
    chance = [True, False]
    rows = fixed("Fix Attn", [0.04, 0.04], chance=chance)
    assert judge(table_2=rows)[0] == ("partly", 1, 2)
    rows = fixed("Fix Rep", [0.04, 0.04], chance=chance)
    assert judge(table_2=rows)[0] == ("partly", 1, 2)
    weighted, _ = claims(Tables(table_2=rows))
    assert weighted.here == "weighted tau falls by 0.04, 1 of 2 to chance"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ("yes", 2, 2)),
        ({"jsd": [0.0, 0.4]}, ("yes", 1, 1)),  # the same attention decides nothing
        ({"jsd": [0.0, 0.18]}, ("", 0, 0)),
        ({"tvd": [0.5, 0.01]}, ("yes", 1, 1)),  # nor do other outputs
        ({"falls": [-0.21, 0.11]}, ("no", 0, 2)),  # up as well as down
        ({"chance": [True, False]}, ("partly", 1, 2)),
        ({"normal_chance": [True, False]}, ("yes", 1, 1)),
    ],
)
def test_adversaries_agree_where_attention_differs_and_tau_does_not(
    change: dict[str, list[Any]], expected: tuple[str, int, int]
) -> None:
    rows = {"falls": [0.02, -0.05], "jsd": [0.2, 0.6], "tvd": [0.03, 0.01]}
    assert judge(adversaries=adversaries(**rows | change))[0] == expected


def test_the_adversaries_numbers_are_those_of_the_rule() -> None:
    rows = adversaries([0.02, -0.001], jsd=[0.1, 0.6], tvd=[0.03, 0.01])
    weighted, plain = claims(Tables(adversaries=rows))
    assert weighted.here == (
        "JSD 0.10 to 0.60, TVD 0.01 to 0.03; weighted tau falls by 0.00; undecided: 1 (JSD of "
        "attention below 0.19)"
    )
    assert "a JSD of attention of at least 0.19 and a TVD of outputs of at most 0.074" in plain.rule
    assert "weighted tau of a model moves by at most 0.09 up or down" in weighted.rule
    assert "plain tau of a model moves by at most 0.09" in plain.rule


def gumbel_models(
    taus: tuple[float, ...] = (0.8, 0.95, 0.95, 0.95, 1.0),
    chance: tuple[bool, ...] = (False, False, True, False, True),
    chance_before: tuple[bool, ...] = (False, False, False, True, False),
    ranks: tuple[int, ...] = (8, 8, 8, 8, 4),
) -> list[GumbelRow]:
    """Five models: lowered, kept, chance after, chance before, of few ranks; softmax has 0.9."""
    attentions = ("additive", "additive", "deep", "deep", "dot")
    rows = []
    for attention, tau, by_chance, before, k in zip(
        attentions, taus, chance, chance_before, ranks, strict=True
    ):
        cell = replace(CELL, attention=attention)
        softmax = measured(0.9, chance=before, plain_chance=before, cell=cell)
        gumbel = measured(tau, chance=by_chance, plain_chance=by_chance, ranks=k, cell=cell)
        rows.append(GumbelRow(softmax, gumbel, gumbel, gumbel))
    return rows


def test_gumbel_agrees_by_the_models_that_decide() -> None:
    rows = gumbel_models()
    expected = ("partly", 1, 3)  # the third has fallen to chance, the last two are undecided
    assert judge(gumbel=rows) == [expected] * 4 + [("", 0, 0)]
    first, *_ = claims(Tables(gumbel=rows))
    assert first.undecided == 2
    assert first.here == (
        "weighted tau falls by -0.05 to 0.10, 1 of 3 to chance; undecided: 1 (tau of the normal "
        "model is chance), 1 (fewer than five ranks); not lower in 4 of all 5, chance or not"
    )
    counts = {}
    for row in gumbel_counts(rows):
        kept = row.counts["weighted", "noise_on"]
        counts[row.attention] = [row.models, kept.kept, kept.cases, kept.all_kept]
    assert counts == {
        "additive": [2, 1, 2, 1], "deep": [2, 0, 1, 2], "dot": [1, 0, 0, 1], "all": [5, 1, 3, 4],
    }  # fmt: skip
    # Four of five are 80%.
    kept_rows = gumbel_models(
        (0.8, 0.95, 0.95, 0.95, 0.95), (False,) * 5, (False,) * 5, ranks=(8,) * 5
    )
    assert judge(gumbel=kept_rows)[0] == ("yes", 4, 5)
    assert claims(Tables(gumbel=kept_rows))[0].verdicts.startswith("yes: at least 80% of the")


def test_the_paper_s_own_numbers_obey_the_rules() -> None:
    for dataset, own in paper.DATA_SETS.items():
        for setting, delta in (
            ("Fix Attn", own.delta_fix_attention),
            ("Fix Rep", own.delta_fix_representation),
        ):
            # `exceptions` tells of the one that does not.
            wanted = ("no", 0, 1) if (own.name, delta) == ("SNLI", 0.07) else ("yes", 1, 1)
            assert judge(table_2=fixed(setting, [delta]))[0] == wanted
        assert math.isnan(own.needed) or own.accuracy >= own.needed
        if pair(dataset) is not None:  # no adversary is reported
            continue
        adversary = own.adversary
        for whole in (adversary.tvd, 2 * adversary.tvd):  # theirs may be half of it
            rows = adversaries([adversary.delta], jsd=[adversary.jsd], tvd=[whole])
            assert judge(adversaries=rows)[0] == ("yes", 1, 1)
    of_one_text = [share for name, share in paper.GUMBEL.items() if "(" not in name]
    assert min(of_one_text) >= MIN_SHARE


@pytest.mark.parametrize("tau", ["weighted", "weighted_sum", "plain"])
def test_every_tau_is_found_by_its_name(tau: TauName) -> None:
    row = replace(measured(0.1, 0.2), weighted_sum=Tau(0.3))
    assert row.tau(tau).value == {"weighted": 0.1, "weighted_sum": 0.3, "plain": 0.2}[tau]
