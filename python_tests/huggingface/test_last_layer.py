"""Erasing in the last layer is what masking its attention and running the model again does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from huggingface.tiny import DEVICES, FAMILIES, TEXT, texts_of, tiny
from torch import Tensor

import fastattnerase as fae
from fastattnerase.data.dataset import collate
from fastattnerase.huggingface import TransformerConfig
from fastattnerase.kept_items import sweep_beside_kept
from fastattnerase.models import ModelError

LONG = [TEXT[i % len(TEXT)] for i in range(14)]
TEXTS = [TEXT, ["good"], [], LONG, ["the", "unbelievably", "dull", "films"]]
NEAR = 1e-5


def rerun(model: Any, ids: list[int], erased: set[int], padding: int) -> Tensor:
    """Run the whole model; the last layer's attention of the first position is masked there.

    Erased positions get weight zero in the first position's row, and the rest adds to one.
    """
    family = model.family
    to_query, to_key, to_value = family.projections
    H = family.heads
    pad = model.words.tokenizer.pad_token_id
    device = to_query.weight.device
    tokens = torch.tensor([[*ids, *[pad] * padding]], device=device)
    mask = torch.tensor([[1] * len(ids) + [0] * padding], device=device)
    found: dict[str, Tensor] = {}
    attention = family.layer.attention
    part = attention.self if hasattr(attention, "self") else attention

    def keep(name: str) -> Any:
        return lambda module, args, output: found.__setitem__(name, output)

    def change(module: Any, args: Any, output: Any) -> Any:
        q, k, v = (found[name].unflatten(-1, (H, -1)) for name in ("q", "k", "v"))  # [1, L, H, d]
        scores = torch.einsum("hd,lhd->hl", q[0, 0], k[0]) / q.shape[-1] ** 0.5
        gone = torch.tensor([i in erased or i >= len(ids) for i in range(tokens.shape[1])])
        weights = scores.masked_fill(gone.to(device), -torch.inf).softmax(1)
        context = torch.einsum("hl,lhd->hd", weights, v[0]).flatten()
        if hasattr(attention, "out_lin"):
            context = attention.out_lin(context)
        first = output[0].clone()
        first[0, 0] = context
        return (first, *output[1:])

    hooks = [
        module.register_forward_hook(keep(name))
        for name, module in (("q", to_query), ("k", to_key), ("v", to_value))
    ]
    hooks.append(part.register_forward_hook(change))
    try:
        with torch.no_grad():
            logits: Tensor = model.model(input_ids=tokens, attention_mask=mask).logits[0]
    finally:
        for hook in hooks:
            hook.remove()
    return logits


def positions_of(model: Any, document: Any) -> tuple[list[int], list[list[int]]]:
    """Give a text's token ids, special ones included, and the positions of each item."""
    ids, items = list(model.words.before), []
    for index in document.token_ids.tolist():
        pieces = model.words.pieces(index)
        items.append(list(range(len(ids), len(ids) + len(pieces))))
        ids += pieces
    return [*ids, *model.words.after], items


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("direction", ["erase", "keep"])
@pytest.mark.parametrize("unit", ["words", "pieces"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_prefix_is_a_rerun_with_masked_attention(
    family: str, unit: Any, direction: Any, device: str
) -> None:
    model = tiny(family, TransformerConfig(unit=unit)).to(device)
    dataset = texts_of(model, TEXTS)
    [batch] = model.attention_batches(dataset)
    scores = torch.rand(int(batch.offsets[-1]) - len(batch), generator=torch.manual_seed(1))
    scores = scores.to(device)
    found = sweep_beside_kept(
        batch, [scores], curves=("logits", "decision"), direction=direction
    ).prefixes
    begin = 0
    for b, document in enumerate(dataset):
        ids, items = positions_of(model, document)
        n = len(items)
        order = scores[begin : begin + n].argsort(descending=True).tolist()
        points = slice(int(found.curve_offsets[b]), int(found.curve_offsets[b + 1]))
        curve, decisions = found.curves["logits"][0, points], found.curves["decision"][0, points]
        assert len(curve) == n + 1
        flips = []
        for k in range(n + 1):
            gone = order[:k] if direction == "erase" else order[k:]
            erased = {place for item in gone for place in items[item]}
            for padding in (0, 50) if n < 10 else (0,):
                again = rerun(model, ids, erased, padding)
                assert (again - curve[k]).abs().max() < NEAR
            top = again.sort(descending=True).values
            if top[0] - top[1] > 2 * NEAR:
                assert int(decisions[k]) == int(again.argmax())
            flips.append(int(decisions[k]) != int(found.label[b]))
        first = [k for k in range(1, n + 1) if flips[k] == (direction == "erase")]
        assert int(found.first_flip[0, b]) == (first[0] if first else -1)
        begin += n
    empty, single = int(fae.Status.EMPTY), int(fae.Status.SINGLE)
    assert [status & (empty | single) for status in found.status.tolist()] == [
        empty if not len(d) else single if len(d) == 1 else 0 for d in dataset
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_alone_is_as_in_a_batch(family: str, device: str) -> None:
    model = tiny(family).to(device)
    together = texts_of(model, [*TEXTS, LONG * 2])
    outputs = list(model.attention_outputs(together, batch_tokens=60))
    assert len(outputs) > 1
    whole = torch.cat([logits for _, logits in outputs])
    rankings = ["attention", "gradient", "product", "random"]
    place = 0
    for batch, _ in outputs:
        many = sweep_beside_kept(batch, rankings, curves=("logits",)).prefixes
        for b in range(len(batch)):
            [(alone, logits)] = model.attention_outputs(together[place : place + 1])
            assert (logits[0] - whole[place]).abs().max() < NEAR
            one = sweep_beside_kept(alone, rankings, curves=("logits",)).prefixes
            points = slice(int(many.curve_offsets[b]), int(many.curve_offsets[b + 1]))
            for row in (0, 3):  # orders by derivatives may differ where these are nearly equal
                off = many.curves["logits"][row, points] - one.curves["logits"][row]
                assert off.abs().max() < NEAR
            place += 1


def test_weights_of_words_are_sums_of_their_pieces() -> None:
    words, pieces = (tiny("bert", TransformerConfig(unit=unit)) for unit in ("words", "pieces"))
    [of_words] = words.attention_batches(texts_of(words, [TEXT]))
    [of_pieces] = pieces.attention_batches(texts_of(pieces, [TEXT]))
    assert of_words.lengths.tolist() == [9]  # 8 words and the special tokens
    assert of_pieces.lengths.tolist() == [13]  # "films" and "bads" have 2, "unbelievably" 3
    by_word, by_piece = (b.scores.softmax(0) for b in (of_words, of_pieces))  # [T, H]
    sums = [by_piece[a:b].sum(0) for a, b in ((0, 1), (1, 3), (3, 4), (4, 7), (7, 8))]
    torch.testing.assert_close(by_word[:5], torch.stack(sums), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(by_word[8], by_piece[12], atol=1e-6, rtol=1e-5)
    both = [
        (batch.values * weight[..., None]).sum(0)
        for batch, weight in ((of_words, by_word), (of_pieces, by_piece))
    ]
    torch.testing.assert_close(*both, atol=1e-5, rtol=1e-5)


def test_special_tokens_can_be_items_like_others() -> None:
    model = tiny("distilbert", TransformerConfig(special="items"))
    dataset = texts_of(model, [["a", "films"]])
    [batch] = model.attention_batches(dataset)
    assert batch.lengths.tolist() == [4]  # [CLS], two words, [SEP]
    found = fae.erase_prefixes(batch, [torch.tensor([0, 3, 2, 1])], curves=("logits",))
    ids, _ = positions_of(model, dataset[0])
    for k, erased in enumerate([set(), {0}, {0, 4}, {0, 4, 2, 3}]):
        again = rerun(model, ids, erased, 0)
        assert (again - found.curves["logits"][0, k]).abs().max() < NEAR


def test_a_word_without_pieces_has_no_weight() -> None:
    model = tiny("bert")
    [batch] = model.attention_batches(texts_of(model, [["good", "\u200b", "film"]]))
    assert batch.scores[1].tolist() == [-torch.inf] * 4
    assert batch.values[1].abs().max() == 0


def test_a_model_whose_layer_does_more_is_refused() -> None:
    model = tiny("bert")

    def more(module: Any, args: Any, output: Any) -> Any:
        # A tuple in transformers 4.
        return (output[0] + 0.1, *output[1:]) if isinstance(output, tuple) else output + 0.1

    model.family.layer.register_forward_hook(more)
    dataset = texts_of(model, [TEXT])
    with pytest.raises(ModelError, match=r"whose logits are .* off .* needed at most 1e-05"):
        list(model.attention_batches(dataset))


def test_state_and_random_numbers_are_left_as_found() -> None:
    model = tiny("bert")
    model.model.train()
    state = torch.random.get_rng_state()
    [batch] = model.attention_batches(texts_of(model, [TEXT]))
    first = sweep_beside_kept(batch, ["gradient"], single=True)
    assert model.model.training
    assert model.family.layer.attention.self.training
    assert torch.equal(state, torch.random.get_rng_state())
    [again] = model.attention_batches(texts_of(model, [TEXT]))
    assert torch.equal(
        first.single.js, sweep_beside_kept(again, ["gradient"], single=True).single.js
    )


def test_orders_of_named_rankings_are_the_engines() -> None:
    model = tiny("bert")
    [batch] = model.attention_batches(texts_of(model, TEXTS))
    names = ["gradient", "random", "product", "attention"]
    found = sweep_beside_kept(batch, names, random_orders=2, seed=3).prefixes
    assert found.rankings == ("gradient", "random[0]", "random[1]", "product", "attention")
    wanted = [("gradient", 0), ("random", 0), ("random", 1), ("product", 0), ("attention", 0)]
    assert found.order is not None
    for row, (name, order) in enumerate(wanted):
        engines = fae.rank(batch, name, seed=3, order=order)
        begin = 0
        for b, n in enumerate((batch.lengths - 1).tolist()):
            own = engines[int(batch.offsets[b]) : int(batch.offsets[b + 1])].tolist()
            own.remove(n)  # the kept item
            assert found.order[row, begin : begin + n].tolist() == own
            begin += n


def test_whoever_streams_keeps_modes_and_gradients() -> None:
    """While batches are looked at, the model is as it was; its head has no dropout all the same."""
    model = tiny("bert").train()
    dataset = texts_of(model, TEXTS)
    stream = model.attention_batches(dataset, batch_tokens=20)
    other = model.attention_batches(dataset, batch_tokens=20)
    batch = next(stream)
    next(other)
    assert torch.is_grad_enabled()
    assert model.model.training
    pooled = torch.zeros(len(batch), *batch.values.shape[1:])
    rows = torch.arange(len(batch))
    assert torch.equal(batch.call_head(pooled, rows), batch.call_head(pooled, rows))
    assert model.model.training
    stream.close()
    other.close()
    assert torch.is_grad_enabled()


def test_gradients_of_padded_texts_are_the_same_on_several_threads() -> None:
    """Special tokens stand in every text: their gradients are summed in one order."""
    model = tiny("bert")
    dataset = texts_of(model, [LONG] * 128)  # 128 x 28 positions of 32 numbers
    batch = collate(list(dataset))
    found = []
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(8):
            model.zero_grad()
            model.logits(model.embed(batch), batch)[:, 0].sum().backward()
            found.append(model.model.get_input_embeddings().weight.grad.clone())
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], one) for one in found[1:])
