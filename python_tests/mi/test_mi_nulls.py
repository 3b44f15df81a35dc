"""Tau where attention knows nothing: against states and outputs worked out here."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

import fastattnerase as fae
from fastattnerase import mi
from fastattnerase.data.vocabulary import Vocabulary
from fastattnerase.models import build_model
from fastattnerase.models.untrained import with_untrained_attention
from fastattnerase.models.wen import jain_wallace_model
from fastattnerase.rankings.random import random_order
from fastattnerase.sources import TensorSource

SCORES = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0])
N = len(SCORES)


def states(B: int, seed: int = 0) -> torch.Tensor:
    """One of five points on a line an item, alike at all positions: [B, N, 1]."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(5, (B, N, 1), generator=g).float() * 4 - 8


def batch_of(values: torch.Tensor, scores: torch.Tensor = SCORES) -> fae.AttentionBatch:
    weight, bias = fae.binary_head(torch.ones(1))
    return fae.AttentionBatch.from_padded(
        values, scores=scores.expand(values.shape[:2]), head_weight=weight, head_bias=bias
    )


def measure(
    batches: list[fae.AttentionBatch], **options: object
) -> tuple[mi.Measurement, pd.DataFrame]:
    config = mi.Config(**({"ranks": N, "clusters": 5, "shuffles": 0} | options))  # type: ignore[arg-type]
    found = mi.measure(batches, config)
    return found, mi.repeat_measurement(lambda: batches, found, config)


def values_of(repeats: pd.DataFrame, name: str, statistic: str = "kendall") -> list[float]:
    chosen = (repeats["measurement"] == name) & (repeats["statistic"] == statistic)
    return [float(x) for x in repeats.loc[chosen, "value"]]


def test_permuted_weights_are_the_engine_s_and_outputs_follow() -> None:
    """By hand: the item with the r-th weight is number π⁻¹(r), and the output is their average."""
    B = 400
    values = states(B)
    _, repeats = measure([batch_of(values)], permutations=2, kmeans_seeds=1, seed=9)
    weights = SCORES.double().softmax(0)
    for draw, tau in enumerate(values_of(repeats, "permuted")):
        orders = torch.stack([random_order(9, 2**33 + draw, b, N) for b in range(B)])  # [B, N]
        own = weights[orders]  # [B, N], weight of each item
        line = values[:, :, 0].double()  # [B, N]
        output = (own * line).sum(1)  # [B]
        ranked = line.gather(1, own.argsort(dim=1, descending=True))  # [B, N]
        labels = mi.Codebook(output[:, None].numpy().copy(), 5, restarts=10, seed=9).labels.astype(
            np.int64
        )
        information = [
            mi.mutual_information((ranked[:, r].numpy() / 4 + 2).astype(np.int64), labels).plug_in
            for r in range(N)
        ]
        want = mi.kendall_tau(np.array(information), weights.numpy()).value
        assert tau == pytest.approx(want)


def test_attention_that_knows_nothing_is_like_its_permutations() -> None:
    """States are alike at all positions: tau is mechanical, near 1 whoever is heavy."""
    found, repeats = measure([batch_of(states(1500))], permutations=4, kmeans_seeds=1)
    own = found.correlation("kendall").value
    assert own is not None
    assert own > 0.8
    assert min(values_of(repeats, "permuted")) > 0.8
    # Under equal weights no rank has a larger share of the output: information differs by chance.
    assert abs(values_of(repeats, "equal")[0]) < 0.8


def test_attention_that_chooses_is_above_its_permutations() -> None:
    """Items say less from the first to the last, and weigh nearly alike."""
    values = states(1500) * torch.tensor([1.0, 0.7, 0.5, 0.35, 0.25, 0.2])[:, None]
    even = torch.linspace(0.1, 0, N)
    found, repeats = measure([batch_of(values, even)], permutations=3, kmeans_seeds=1)
    assert found.correlation("kendall").value == pytest.approx(1)
    # Permuted, each item is at every rank equally often, and hardly any is heavier.
    assert max(values_of(repeats, "permuted")) < 0.9
    assert values_of(repeats, "equal") == pytest.approx([1.0])
    config = mi.Config(ranks=N, clusters=5, shuffles=0, permutations=3, kmeans_seeds=1)
    again = mi.repeat_measurement(lambda: [batch_of(values, even)], found, config)
    pd.testing.assert_frame_equal(repeats, again)


@pytest.mark.parametrize("constant", ["undefined", "by_position"])
def test_constant_scores_have_no_order_beyond_equal_weights(constant: str) -> None:
    """The permuted null of constant scores is that of equal weights, and the model's own."""
    batch = batch_of(states(300), torch.full((N,), 0.7))
    found, repeats = measure([batch], permutations=3, kmeans_seeds=1, constant_attention=constant)
    for statistic in ("kendall", "weighted_product", "weighted_sum"):
        [equal] = values_of(repeats, "equal", statistic)
        draws = values_of(repeats, "permuted", statistic)
        own = found.correlation(statistic).value
        if constant == "undefined":
            assert own is None
            assert np.isnan([equal, *draws]).all()
        else:
            assert draws == [equal] * 3 == [own] * 3
    if constant == "undefined":
        assert set(repeats["reason"]) == {"attention is constant"}


def test_masked_items_take_no_part() -> None:
    """A masked item has no weight and no rank in any null, as if it were not there."""
    B = 200
    values = torch.cat([states(B), 100 * states(B, seed=1)[:, :1]], dim=1)  # [B, N + 1, 1]
    masked = torch.cat([SCORES, torch.tensor([-torch.inf])])
    found, repeats = measure([batch_of(values, masked)], permutations=3, kmeans_seeds=2)
    assert found.summary.excluded_items == B
    bare, others = measure([batch_of(values[:, :N])], permutations=3, kmeans_seeds=2)
    for name in ("kmeans", "equal"):
        assert values_of(repeats, name) == values_of(others, name)
    # Permutations have other words, for there is one item more; the information is as much.
    assert found.ranks["plug_in"].tolist() == pytest.approx(bare.ranks["plug_in"].tolist())
    assert all(abs(tau) <= 1 for tau in values_of(repeats, "permuted"))


def test_several_heads_and_given_weights() -> None:
    g = torch.Generator().manual_seed(1)
    values = torch.randn(300, 4, 2, 3, generator=g)
    weights = torch.tensor([0.4, 0.3, 0.2, 0.1]).repeat(300, 1)[:, :, None].expand(300, 4, 2)
    batch = fae.AttentionBatch.from_padded(
        values, weights=weights, head_weight=torch.randn(2, 2, 3, generator=g) * 3
    )
    _, repeats = measure([batch], ranks=4, permutations=2, kmeans_seeds=3)
    assert repeats["value"].notna().all()
    counts = repeats.drop_duplicates(["measurement", "draw"])["measurement"].value_counts()
    assert counts.to_dict() == {"kmeans": 3, "permuted": 2, "equal": 1}


def test_other_seeds_of_k_means_are_those_measurements() -> None:
    g = torch.Generator().manual_seed(4)
    batch = fae.AttentionBatch.from_padded(
        torch.randn(300, 6, 8, generator=g), scores=SCORES.expand(300, N),
        head_weight=torch.randn(2, 8, generator=g) * 3,
    )  # fmt: skip
    _, repeats = measure([batch], clusters=12, permutations=0, kmeans_seeds=4, seed=5)
    alone = [
        mi.measure([batch], mi.Config(ranks=N, clusters=12, shuffles=0, seed=seed))
        for seed in (5, 6, 7, 8)
    ]
    taus = [found.correlation("kendall").value for found in alone]
    assert values_of(repeats, "kmeans") == taus
    assert len(set(taus)) > 1, "seeds that say the same show nothing"
    assert set(repeats["measurement"]) == {"kmeans"}


def test_a_run_keeps_its_repeats_and_one_of_the_first_version_opens(tmp_path: Path) -> None:
    weight, bias = fae.binary_head(torch.ones(1))
    save_file(
        {
            "values": states(80).reshape(-1, 1), "offsets": torch.arange(0, 80 * N + 1, N),
            "scores": SCORES.repeat(80), "head_weight": weight, "head_bias": bias,
        },
        tmp_path / "layer.safetensors",
    )  # fmt: skip
    source = TensorSource(tmp_path / "layer.safetensors")
    config = mi.Config(ranks=N, clusters=5, shuffles=20, permutations=2, kmeans_seeds=2)
    stages: dict[str, list[float]] = {}

    def report(stage: str, done: int, total: int) -> None:
        stages.setdefault(stage, []).append(done / total if total else 1.0)

    result = mi.run(source, config, tmp_path / "run", name="x", untrained=source, report=report)
    repeats = result.measurement.repeats
    assert repeats is not None
    names = list(dict.fromkeys(repeats["measurement"]))
    assert names == ["kmeans", "permuted", "equal", "untrained"]
    # Untrained attention that is the same attention gives the same tau.
    own = result.measurement.correlation("kendall").value
    assert values_of(repeats, "untrained") == [own] == values_of(repeats, "kmeans")[:1]
    for shares in stages.values():
        assert shares[-1] == 1
        assert all(a <= b for a, b in pairwise(shares))
    assert (tmp_path / "run" / "repeats.csv") in mi.export(result)
    (tmp_path / "run" / "repeats.parquet").unlink()
    old = mi.load(tmp_path / "run")
    assert old.measurement.repeats is None
    assert len(mi.export(old)) == 4


@pytest.mark.parametrize("kind", ["sequence", "han"])
def test_untrained_attention_changes_the_last_attention_alone(kind: str) -> None:
    config = jain_wallace_model(embedding_size=6, hidden_size=4, seed=2)
    if kind == "han":
        from dataclasses import replace

        config = replace(config, kind="han", head="softmax")
    model = build_model(config, Vocabulary(["a", "b", "c"]), 2)
    state = torch.get_rng_state()
    other = with_untrained_attention(model)
    assert torch.equal(state, torch.get_rng_state())
    last = "words.attention." if kind == "sequence" else "sentences.attention."
    mine, theirs = model.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert torch.equal(mine[name], theirs[name]) == (not name.startswith(last)), name
    same = with_untrained_attention(model).state_dict()
    assert all(torch.equal(theirs[name], same[name]) for name in theirs)
