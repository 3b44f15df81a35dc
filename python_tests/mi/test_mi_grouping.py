"""Grouping by attention rank: what goes where, whatever the batches, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streams import random_batch, split

import fastattnerase as fae
from fastattnerase.mi import MeasurementError, RankedStates, group


def hand_made(**attention: torch.Tensor) -> fae.AttentionBatch:
    """Two instances with three items and one with two; states tell instance and position."""
    values = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0], [20.0], [21.0]])
    return fae.AttentionBatch(
        values,
        torch.tensor([0, 3, 6, 8]),
        head_weight=torch.tensor([[0.0], [1.0]]),
        head_bias=torch.tensor([0.0, -5.0]),
        **attention,
    )


WEIGHTS = torch.tensor([0.2, 0.5, 0.3, 0.4, 0.4, 0.2, 0.25, 0.75], dtype=torch.float64)


def test_hand_made_groups() -> None:
    with group([hand_made(weights=WEIGHTS)]) as ranked:
        assert len(ranked) == 3
        assert ranked.num_ranks == 3
        assert ranked.states(1).tolist() == [[1.0], [10.0], [21.0]]  # ties by position
        assert ranked.states(2).tolist() == [[2.0], [11.0], [20.0]]
        assert ranked.states(3).tolist() == [[0.0], [12.0]]
        assert ranked.weights(2).tolist() == pytest.approx([0.3, 0.4, 0.25])
        assert ranked.instances(3).tolist() == [0, 1]
        assert ranked.lengths.tolist() == [3, 3, 2]
        # Pooled: 0.5 + 0.6 = 1.1; 4 + 4.4 + 2.4 = 10.8; 5 + 15.75 = 20.75; less 5.
        assert ranked.logits[:, 1] == pytest.approx([-3.9, 5.8, 15.75], abs=1e-5)
        assert ranked.labels.tolist() == [0, 1, 1]
        assert ranked.states(1).dtype == np.float32
        for rank in (0, 4):
            with pytest.raises(ValueError, match=f"rank: given {rank}, needed 1 to 3"):
                ranked.states(rank)


def contents(ranked: RankedStates) -> list[list[object]]:
    return [
        [
            ranked.states(rank).tolist(),
            ranked.weights(rank).tolist(),
            ranked.instances(rank).tolist(),
        ]
        for rank in range(1, ranked.num_ranks + 1)
    ]


def test_batches_do_not_matter() -> None:
    batch = random_batch(23)
    with group([batch]) as whole, group(split(batch, 4)) as parts, group(split(batch, 1)) as ones:
        assert contents(whole) == contents(parts) == contents(ones)
        assert whole.rows.tolist() == parts.rows.tolist() == list(range(23))
        assert whole.logits.tolist() == parts.logits.tolist() == ones.logits.tolist()
        assert whole.lengths.tolist() == batch.lengths.tolist()


@pytest.mark.parametrize("kind", ["scores", "tied weights", "several heads"])
def test_the_order_is_the_engines(kind: str) -> None:
    batch = random_batch(15, seed=2)
    generator = torch.Generator().manual_seed(3)
    if kind == "tied weights":
        weights = torch.randint(0, 3, (batch.num_items,), generator=generator).double()
        weights[batch.offsets[:-1]] += 1  # every instance has mass
        batch = fae.AttentionBatch(
            batch.values, batch.offsets, weights=weights, head_weight=batch.head_weight
        )
    elif kind == "several heads":
        batch = fae.AttentionBatch(
            torch.randn(batch.num_items, 2, 3, generator=generator),
            batch.offsets,
            scores=torch.randn(batch.num_items, 2, generator=generator),
            head_weight=torch.randn(2, 2, 3, generator=generator),
        )
    begins = batch.offsets[:-1]
    order = fae.rank(batch, "attention")  # [T]
    with group([batch]) as ranked:
        for rank in range(1, ranked.num_ranks + 1):
            having = ranked.instances(rank)
            items = begins[having] + order[begins[having] + rank - 1]
            expected = batch.values[items].flatten(1)
            assert ranked.states(rank).tolist() == expected.tolist()


def test_weights_are_the_softmax_over_an_instance() -> None:
    batch = random_batch(9, seed=4)
    assert batch.scores is not None
    with group([batch]) as ranked:
        for b in range(9):
            begin, end = int(batch.offsets[b]), int(batch.offsets[b + 1])
            expected = batch.scores[begin:end].double().softmax(0).sort(descending=True).values
            found = [
                ranked.weights(rank)[ranked.instances(rank).tolist().index(b)]
                for rank in range(1, end - begin + 1)
            ]
            assert found == pytest.approx(expected.tolist(), abs=1e-12)


def test_what_is_left_out_of_the_ranking() -> None:
    scores = torch.tensor([0.0, -torch.inf, 1.0, -800.0, 0.0, -1.0, 0.0, -torch.inf])
    with group([hand_made(scores=scores)]) as masked:
        assert masked.lengths.tolist() == [2, 3, 1]
        assert masked.states(1).tolist() == [[2.0], [11.0], [20.0]]
        assert masked.states(3).tolist() == [[10.0]]  # exp(-800) is 0, but the item is there
        assert masked.excluded_items == 2
    with group([hand_made(scores=scores)], exclude="zero_weight") as positive:
        assert positive.lengths.tolist() == [2, 2, 1]
        assert positive.excluded_items == 3
    with group([hand_made(scores=scores)], exclude="none") as everything:
        assert everything.lengths.tolist() == [3, 3, 2]
        assert everything.states(3).tolist() == [[1.0], [10.0]]
    weights = torch.tensor([0.0, 0.7, 0.3, 0.5, 0.5, 0.0, 0.0, 1.0])
    with group([hand_made(weights=weights)]) as given:
        assert given.lengths.tolist() == [3, 3, 2]  # a weight of zero is not a mask


def test_instances_without_attention_are_left_out_and_numbers_kept() -> None:
    batch = fae.AttentionBatch(
        torch.tensor([[1.0], [2.0], [3.0], [4.0]]),
        torch.tensor([0, 1, 1, 3, 4]),  # the second is empty
        weights=torch.tensor([1.0, 0.0, 0.0, 1.0]),  # the third has no mass
        head_weight=torch.tensor([[0.0], [1.0]]),
        ids=torch.tensor([7, 8, 9, 6]),
    )
    with group([batch, batch[3:]]) as ranked:
        assert ranked.rows.tolist() == [0, 3, 4]
        assert ranked.ids.tolist() == [7, 6, 6]
        assert ranked.left_out.tolist() == [1, 2]
        assert ranked.states(1).tolist() == [[1.0], [4.0], [4.0]]
        assert ranked.num_ranks == 1
    scores = torch.tensor([0.0, 0.0, 0.0, -torch.inf, -torch.inf, -torch.inf, 0.0, 0.0])
    with group([hand_made(scores=scores)]) as ranked:
        assert (ranked.rows.tolist(), ranked.left_out.tolist()) == ([0, 2], [1])
        assert ranked.excluded_items == 0


def test_ranks_beyond_the_limit_are_not_kept_but_lengths_are() -> None:
    batch = random_batch(20, seed=5)
    with group([batch]) as whole, group(split(batch, 3), max_ranks=2) as two:
        assert two.num_ranks == 2
        assert contents(two) == contents(whole)[:2]
        assert two.lengths.tolist() == whole.lengths.tolist()


def test_logits_as_given() -> None:
    batch = random_batch(6, seed=6)
    given = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
    for logits in (given, given[:, None]):  # one logit
        with group([(batch[:4], logits[:4]), (batch[4:], logits[4:])]) as ranked:
            assert ranked.logits[:, 0].tolist() == [0.0] * 6
            assert ranked.logits[:, 1].tolist() == given.tolist()
            assert ranked.labels.tolist() == [0, 0, 0, 1, 1, 1]
    three = torch.eye(3).repeat(2, 1)
    with group([(batch, three)]) as ranked:
        assert ranked.logits.tolist() == three.tolist()
        assert ranked.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_logits_of_the_engine_without_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of logits an instance, not one for each item that could be erased."""
    asked: list[dict[str, Any]] = []
    erase = fae.erase_prefixes

    def watched(*arguments: Any, **options: Any) -> fae.PrefixErasure:
        found = erase(*arguments, **options)
        asked.append(options)
        assert found.curves == {}
        return found

    monkeypatch.setattr(fae, "erase_prefixes", watched)
    batch = random_batch(9, seed=12)
    with group([batch]) as ranked:
        found = ranked.logits
    assert asked == [{"logits": True, "backend": "auto"}]
    monkeypatch.undo()
    erased = fae.erase_prefixes(batch, "attention", curves=("logits",))
    starts = erased.curve_offsets[:-1]  # [B], where nothing is erased yet
    expected = erased.curves["logits"][0, starts].numpy()  # [B, C]
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=3e-7)


def test_a_callable_head_gives_logits_too() -> None:
    linear = random_batch(7, seed=7)
    assert linear.head_weight is not None
    assert linear.head_bias is not None
    weight, bias = linear.head_weight, linear.head_bias
    batch = fae.AttentionBatch(
        linear.values,
        linear.offsets,
        scores=linear.scores,
        head=lambda pooled, instance: pooled @ weight.T + bias,
    )
    with group([linear]) as expected, group([batch]) as found:
        assert found.logits == pytest.approx(expected.logits, abs=1e-5)
        assert contents(found) == contents(expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_of_states(dtype: torch.dtype) -> None:
    batch = random_batch(5, seed=8)
    other = fae.AttentionBatch(
        batch.values.to(dtype), batch.offsets, scores=batch.scores, head_weight=batch.head_weight
    )
    with group([other]) as ranked, group([batch]) as expected:
        assert ranked.states(1).dtype == np.float32
        assert ranked.states(1) == pytest.approx(expected.states(1), rel=1e-2)


def test_temporary_files_are_in_the_directory_and_gone_after(tmp_path: Path) -> None:
    with group([random_batch(5)], directory=tmp_path) as ranked:
        states = ranked.states(1)
    assert states.shape == (5, 3)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="closed file"):
        ranked.states(1)


def refused(message: str, *stream: object, **options: object) -> None:
    with pytest.raises((MeasurementError, ValueError)) as raised:
        group(stream, **options)  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_what_is_no_attention_is_refused_by_instance_and_position() -> None:
    good = hand_made(weights=WEIGHTS)
    weights = WEIGHTS.clone()
    weights[7] = -0.25
    refused("weights: given [-0.25] at position 1 of instance 5", good, hand_made(weights=weights))


def test_instances_that_are_not_finite_are_left_out_and_counted() -> None:
    """One with a state, score, weight or logit that is not: the others are as without it."""
    batch = random_batch(6, seed=9, longest=4)
    values, scores = batch.values.clone(), batch.scores
    assert scores is not None
    strange = scores.clone()
    values[int(batch.offsets[4]), 1] = torch.nan
    strange[int(batch.offsets[1])] = torch.inf
    strange[int(batch.offsets[2])] = torch.nan
    logits = torch.arange(12.0).reshape(6, 2)
    bad_logits = logits.clone()
    bad_logits[2, 1] = torch.inf
    head = {"head_weight": torch.ones(2, 3)}

    def batch_of(values: torch.Tensor, **attention: torch.Tensor) -> fae.AttentionBatch:
        return fae.AttentionBatch(values, batch.offsets, **attention, **head)

    weights = scores.exp()
    strange_weights = weights.clone()
    strange_weights[int(batch.offsets[5])] = torch.inf
    for bad, given, out in (
        (batch_of(values, scores=scores), logits, [4]),
        (batch_of(batch.values, scores=strange), logits, [1, 2]),
        (batch_of(values, scores=strange), logits, [1, 2, 4]),
        (batch_of(batch.values, weights=strange_weights), logits, [5]),
        (batch_of(batch.values, scores=scores), bad_logits, [2]),
    ):
        kept = [b for b in range(6) if b not in out]
        good = fae.AttentionBatch.cat([bad[b : b + 1] for b in kept])
        with group([(bad, given)]) as found, group([(good, given[kept])]) as expected:
            assert found.not_finite.tolist() == out
            assert found.rows.tolist() == kept
            assert found.left_out.tolist() == []
            assert contents(found) == contents(expected)
            assert found.logits.tolist() == given[kept].tolist()
    huge = batch_of(batch.values.double() * 1e39, scores=scores)  # beyond what float32 holds
    refused("the stream held 6, 6 with something that is not finite", (huge, logits))


def test_empty_masked_and_strange_instances_beside_one_another() -> None:
    lost = -torch.inf
    batch = fae.AttentionBatch(
        torch.tensor([[1.0], [2.0], [3.0], [4.0], [torch.nan], [5.0], [6.0]]),
        # One item; none; all masked; masked but for a score that is not a number; a state that is.
        torch.tensor([0, 1, 1, 2, 4, 6, 7]),
        scores=torch.tensor([0.0, lost, lost, torch.nan, 0.0, 1.0, 2.0]),
        head_weight=torch.tensor([[0.0], [1.0]]),
    )
    for stream in ([batch], [batch[:3], batch[3:]], [batch[b : b + 1] for b in range(6)]):
        with group(stream) as ranked:
            assert ranked.rows.tolist() == [0, 5]
            assert ranked.left_out.tolist() == [1, 2]
            assert ranked.not_finite.tolist() == [3, 4]
            assert ranked.states(1).tolist() == [[1.0], [6.0]]
            assert ranked.excluded_items == 0


def test_a_masked_state_may_be_anything_where_the_model_gives_its_logits() -> None:
    scores = torch.tensor([0.0, -torch.inf, 1.0, 0.0, 0.0, -1.0, 0.0, -torch.inf])
    batch = hand_made(scores=scores)
    values = batch.values.clone()
    values[1] = float("nan")
    bad = fae.AttentionBatch(
        values, batch.offsets, scores=scores, head_weight=torch.tensor([[0.0], [1.0]])
    )
    with group([(bad, torch.zeros(3, 2))]) as ranked:
        assert ranked.states(1).tolist() == [[2.0], [10.0], [20.0]]
    with group([bad]) as ranked:  # the engine has none for such an instance
        assert (ranked.rows.tolist(), ranked.not_finite.tolist()) == ([1, 2], [0])


def test_streams_that_do_not_fit_are_refused() -> None:
    batch = random_batch(4)
    refused("no instance to measure: the stream held 0")
    refused("no instance to measure: the stream held 0", batch[:0])
    refused("given states 5 wide from instance 4 on and 3 before", batch, random_batch(4, width=5))
    refused("logits: given [2, 3] classes", batch, random_batch(4, classes=3))
    refused("logits: given [3, 2] from instance 0 on, needed [4, C]", (batch, torch.zeros(3, 2)))
    refused("exclude: given 'all'", batch, exclude="all")
    refused("max_ranks: given 0", batch, max_ranks=0)
