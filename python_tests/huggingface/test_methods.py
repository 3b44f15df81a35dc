"""Saliency methods on transformers: by hand, against Captum, and what padding must not change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import LayerIntegratedGradients, Occlusion
from huggingface.tiny import FAMILIES, TEXT, bert_tokenizer, texts_of, tiny, tiny_model
from torch import Tensor

from fastattnerase import saliency
from fastattnerase.huggingface import TransformerConfig
from fastattnerase.huggingface.methods import pooled
from fastattnerase.input_erasure import erase_inputs
from fastattnerase.models import ModelError
from fastattnerase.saliency import scoring
from fastattnerase.saliency.batches import bytes_of_word, derivative_bytes_of_word

TEXTS = [TEXT, ["good"], [], ["the", "unbelievably", "dull", "films"] * 2]
METHODS = [
    "attention", "gradient", "product", "gradient_norm", "gradient_x_input",
    "integrated_gradients", "occlusion", "omission",
]  # fmt: skip


def logits_of(model: Any, ids: list[int]) -> Tensor:
    """Run the model on pieces without special tokens: `[C]`."""
    tokens = torch.tensor([[*model.words.before, *ids, *model.words.after]])
    with torch.no_grad():
        logits: Tensor = model.model(input_ids=tokens).logits[0]
    return logits


def pieces_of(model: Any, document: Any) -> list[tuple[int, ...]]:
    return [model.words.pieces(index) for index in document.token_ids.tolist()]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_scores_do_not_depend_on_the_batch(family: str, method: str) -> None:
    model = tiny(family)
    dataset = texts_of(model, TEXTS)
    together = saliency.attribute(model, dataset, method)
    assert together.offsets.diff().tolist() == [8, 1, 0, 8]
    assert not together.scores.isnan().any()
    for row in range(len(dataset)):
        alone = saliency.attribute(model, dataset[row : row + 1], method)
        assert alone.target[0] == together.target[row]
        torch.testing.assert_close(
            alone.scores, together.split()[row], atol=2e-5, rtol=1e-4
        )  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("erasure", ["remove", "mask"])
def test_omission_and_erasure_of_words_by_hand(family: str, erasure: Any) -> None:
    model = tiny(family, TransformerConfig(erasure=erasure))
    dataset = texts_of(model, TEXTS)
    found = saliency.attribute(model, dataset, "omission").split()
    ranking = torch.cat([torch.arange(len(d), 0, -1).double() for d in dataset])  # in order
    curves = erase_inputs(model, dataset, {"first": ranking})
    mask = model.words.tokenizer.mask_token_id
    for b, document in enumerate(dataset):
        words = pieces_of(model, document)
        whole = logits_of(model, [piece for word in words for piece in word])
        target = int(whole.argmax())
        assert int(curves.decision[b]) == target
        points = slice(int(curves.curve_offsets[b]), int(curves.curve_offsets[b + 1]))
        curve = curves.curves["label_prob"][0, points]
        for place, word in enumerate(words):
            gone = () if erasure == "remove" else (mask,) * len(word)
            parts = [*words[:place], gone, *words[place + 1 :]]
            without = logits_of(model, [piece for part in parts for piece in part])
            expected = float(whole[target] - without[target])
            assert abs(float(found[b][place]) - expected) < 1e-4
        for k in range(len(words) + 1):
            front = [() if erasure == "remove" else (mask,) * len(word) for word in words[:k]]
            left = [piece for part in (*front, *words[k:]) for piece in part]
            assert abs(float(curve[k]) - float(logits_of(model, left).softmax(0)[target])) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_integrated_gradients_are_captums(family: str) -> None:
    model = tiny(family)
    dataset = texts_of(model, [TEXT])
    words = pieces_of(model, dataset[0])
    ids = [*model.words.before, *(p for word in words for p in word), *model.words.after]
    pad = model.words.tokenizer.pad_token_id
    ahead, behind = len(model.words.before), len(model.words.after)
    start = [*ids[:ahead], *[pad] * (len(ids) - ahead - behind), *ids[len(ids) - behind :]]
    tokens = torch.tensor([ids])

    def forward(given: Tensor) -> Tensor:
        # Of tokens RoBERTa gives padding no position of its own; here only vectors are to change.
        vectors = model.model.get_input_embeddings()(given)
        logits: Tensor = model.model(inputs_embeds=vectors).logits
        return logits

    target = int(forward(tokens).argmax())
    found = LayerIntegratedGradients(forward, model.model.get_input_embeddings()).attribute(
        tokens, baselines=torch.tensor([start]), target=target, n_steps=20, method="gausslegendre"
    )
    by_piece = found.sum(-1)[0, ahead : len(ids) - behind]
    expected = [part.sum() for part in by_piece.split([len(word) for word in words])]
    ours = saliency.attribute(model, dataset, "integrated_gradients", baseline="padding", steps=20)
    assert (ours.scores - torch.stack(expected).detach()).abs().max() < 1e-4
    own = saliency.attribute(
        model, dataset, "integrated_gradients", baseline="padding", steps=20, captum=True
    )
    assert (ours.scores - own.scores).abs().max() < 1e-4
    assert ours.delta is not None
    assert float(ours.details["output"][0]) == pytest.approx(
        float(logits_of(model, [p for word in words for p in word])[target]), abs=1e-5
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_occlusion_of_pieces_is_captums(family: str) -> None:
    model = tiny(family, TransformerConfig(unit="pieces"))
    dataset = texts_of(model, [TEXT])
    ids = [*model.words.before, *dataset[0].token_ids.tolist(), *model.words.after]
    vectors = model.model.get_input_embeddings()(torch.tensor([ids])).detach()
    target = int(model.model(inputs_embeds=vectors).logits.argmax())
    by_captum = Occlusion(lambda given: model.model(inputs_embeds=given).logits)
    with torch.no_grad():
        found = by_captum.attribute(
            vectors, sliding_window_shapes=(1, vectors.shape[2]), target=target
        )
    ahead, behind = len(model.words.before), len(model.words.after)
    ours = saliency.attribute(model, dataset, "occlusion").scores
    assert (ours - found[0, ahead : len(ids) - behind, 0]).abs().max() < 1e-4


def test_occlusion_of_words_takes_all_their_pieces() -> None:
    model = tiny("bert")
    dataset = texts_of(model, [TEXT, ["a"]])
    found = saliency.attribute(model, dataset, "occlusion")
    words = pieces_of(model, dataset[0])
    ids = [2, *(p for word in words for p in word), 3]
    vectors = model.model.get_input_embeddings()(torch.tensor([ids])).detach()
    begin = 1
    whole = model.model(inputs_embeds=vectors).logits[0]
    target = int(whole.argmax())
    for place, word in enumerate(words):
        changed = vectors.clone()
        changed[0, begin : begin + len(word)] = 0
        begin += len(word)
        without = model.model(inputs_embeds=changed).logits[0]
        assert abs(float(found.scores[place]) - float((whole - without)[target].detach())) < 1e-4
    with pytest.raises(ModelError, match="words of several pieces, such as in instance 0"):
        saliency.attribute(model, dataset, "occlusion", captum=True)


def test_attention_layer_scores_are_those_of_free_weights() -> None:
    model = tiny("bert", TransformerConfig(unit="pieces"))
    dataset = texts_of(model, [TEXT])
    [batch] = model.attention_batches(dataset)
    assert batch.scores is not None
    weights = batch.scores.double().softmax(0).requires_grad_()  # [n + 1, H]
    average = torch.einsum("th,thd->hd", weights, batch.values.double())
    logits = batch.call_head(average.float()[None], torch.tensor([0]))[0].double()
    logits.softmax(0).max().backward()
    gradient = weights.grad
    assert gradient is not None
    n = len(dataset[0])
    for method, expected in (
        ("attention", weights.detach().mean(1)),
        ("gradient", gradient.sum(1)),
        ("product", (weights.detach() * gradient).sum(1)),
    ):
        of_pieces = saliency.attribute(model, dataset, method).scores
        torch.testing.assert_close(of_pieces, expected[:n], atol=1e-6, rtol=1e-4)
        words = tiny("bert")
        of_words = saliency.attribute(words, texts_of(words, [TEXT]), method).scores
        assert abs(float(of_words[1] - expected[1:3].sum())) < 1e-6  # "films", of two pieces


def test_scores_of_pieces_make_those_of_words() -> None:
    scores = torch.tensor([1.0, -2.0, 3.0, 5.0])
    assert pooled(scores, [2, 0, 2], "sum").tolist() == [-1.0, 0.0, 8.0]
    assert pooled(scores, [2, 0, 2], "largest").tolist() == [1.0, 0.0, 5.0]
    assert pooled(scores, [2, 0, 2], "first").tolist() == [1.0, 0.0, 3.0]


def test_a_baseline_is_a_piece_of_the_models() -> None:
    model = tiny("bert")
    dataset = texts_of(model, [["good", "film"]])
    by_word, by_name = (
        saliency.attribute(model, dataset, "integrated_gradients", **given).scores
        for given in ({"word": "[PAD]", "vocabulary": model.words}, {"baseline": "padding"})
    )
    assert torch.equal(by_word, by_name)
    with pytest.raises(ModelError, match="word: given 'films', needed one that the vocabulary has"):
        saliency.attribute(
            model, dataset, "integrated_gradients", word="films", vocabulary=model.words
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_is_refused_by_the_layers_name(family: str) -> None:
    model = tiny(family)
    with pytest.raises(ModelError, match=r"lrp: given LayerNorm \(\w+\.embeddings\.LayerNorm\)"):
        saliency.attribute(model, texts_of(model, [TEXT]), "lrp")


def test_a_small_budget_is_refused_or_kept() -> None:
    model = tiny("bert")
    dataset = texts_of(model, TEXTS)
    usual = saliency.attribute(model, dataset, "omission")
    small = saliency.attribute(model, dataset, "omission", max_bytes=60_000)
    assert small.chunk < usual.chunk
    torch.testing.assert_close(usual.scores, small.scores, atol=2e-5, rtol=1e-4)
    with pytest.raises(
        ModelError, match=r"max_bytes: given 20,000, needed at least .* positions\)"
    ):
        saliency.attribute(model, dataset, "omission", max_bytes=20_000)


def test_without_a_budget_a_longer_text_makes_a_batch_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny("bert")
    dataset = texts_of(model, TEXTS)
    usual = saliency.attribute(model, dataset, "gradient_norm")
    monkeypatch.setattr(scoring, "MAX_BYTES", 20_000)
    small = saliency.attribute(model, dataset, "gradient_norm")
    assert small.max_bytes == 20_000
    torch.testing.assert_close(usual.scores, small.scores, atol=2e-5, rtol=1e-4)


def test_the_attention_layers_methods_keep_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("bert")
    dataset = texts_of(model, TEXTS * 8)
    sizes = []
    usual = type(model).attention_outputs

    def watched(*args: Any, **options: Any) -> Any:
        for batch, logits in usual(*args, **options):
            sizes.append(batch.num_items)
            yield batch, logits

    monkeypatch.setattr(type(model), "attention_outputs", watched)
    saliency.attribute(model, dataset, "gradient")
    assert len(sizes) == 1
    sizes.clear()
    found = saliency.attribute(model, dataset, "gradient", max_bytes=60_000)
    assert len(sizes) > 1
    assert max(sizes) <= found.chunk


def test_deep_models_take_more_where_derivatives_are_taken() -> None:
    """A layer of width 32 keeps 4 x 32 of attention, 48 + 32 behind it and 2 x 32 normalised."""
    shallow, deep = (tiny_model("bert", bert_tokenizer(), layers=layers) for layers in (1, 40))
    assert bytes_of_word(deep) == bytes_of_word(shallow)
    # Beside layers: the embeddings' normalisation, the pooler, two classes.
    kept = 4 * (40 * (4 * 32 + 48 + 32 + 2 * 32) + 32 + 32 + 2)
    assert derivative_bytes_of_word(deep) == bytes_of_word(deep) + kept
    assert derivative_bytes_of_word(shallow) == 2 * bytes_of_word(shallow)
