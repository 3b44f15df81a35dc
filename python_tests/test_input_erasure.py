"""Erasing words of the input against one forward pass for every text that is left."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fastattnerase.data import Dataset, TokenisedText, Vocabulary, collate, encode
from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.input_erasure import erase_inputs
from fastattnerase.measures.thresholds import PRESETS, Thresholds
from fastattnerase.models import AttentionClassifier, ModelConfig, ModelError, build_model

WORDS = [f"w{i}" for i in range(9)]
LENGTHS = [[3, 2], [1], [], [4, 1, 3], [2]]
MODELS = [
    ("sequence", "bilstm", "additive", "sigmoid", "softmax"),
    ("sequence", "cnn", "dot", "softmax", "sparsemax"),
    ("sequence", "mlp", "uniform", "sigmoid", "softmax"),
    ("sequence", "rnn", "deep", "softmax", "softmax"),
    ("flan", "rnn", "additive", "softmax", "softmax"),
    ("flan", "conv", "additive", "softmax", "softmax"),
    ("flan", "noenc", "additive", "softmax", "softmax"),
    ("han", "rnn", "additive", "softmax", "softmax"),
    ("han", "conv", "dot", "sigmoid", "softmax"),
    ("pair", "bilstm", "additive", "softmax", "softmax"),
]


def dataset_of(lengths: list[list[int]], seed: int = 0) -> Dataset:
    """Documents of sentences of these lengths, each with a query, which some models read."""
    draw = np.random.default_rng(seed)
    texts = []
    for number, sizes in enumerate(lengths):
        sentences = [[str(draw.choice(WORDS)) for _ in range(size)] for size in sizes]
        texts.append(TokenisedText(number, 0, sentences, [" ".join(s) for s in sentences]))
    return Dataset(
        [
            replace(document, query_ids=np.array([1 + document.id, 2]), query_tokens=["q", "r"])
            for document in encode(texts, Vocabulary(WORDS))
        ]
    )


def model_of(
    kind: str, encoder: str, attention: str, head: str, mechanism: str
) -> AttentionClassifier:
    """A model in float64, in training mode with dropout that must be off."""
    torch.manual_seed(5)
    config = ModelConfig(
        kind=kind,
        encoder=encoder,
        attention=attention,
        mechanism=mechanism,
        head=head,  # type: ignore[arg-type]
        embedding_size=5,
        hidden_size=4,
    )
    model = build_model(config, Vocabulary(WORDS), 2 if head == "sigmoid" else 3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.train()


def alone(model: AttentionClassifier, dataset: Dataset, b: int, words: set[int]) -> Tensor:
    """Probabilities `[C]` of a document of which these words are left, in a batch of its own."""
    document = dataset[b]
    sentence = np.repeat(np.arange(len(document.sentence_lengths)), document.sentence_lengths)
    kept = sorted(words)
    left = replace(
        document,
        token_ids=document.token_ids[kept],
        sentence_lengths=np.unique(sentence[kept], return_counts=True)[1],
    )
    model.eval()
    with torch.no_grad():
        found = model(collate([left])).logits[0].softmax(0)
    model.train()
    return found


@pytest.mark.parametrize("made", MODELS, ids="-".join)
@pytest.mark.parametrize("direction", ["erase", "keep"])
def test_every_prefix_is_a_forward_pass_of_what_is_left(
    made: tuple[str, str, str, str, str], direction: str
) -> None:
    model, dataset = model_of(*made), dataset_of(LENGTHS)
    size = int(dataset.sizes.words.sum())
    scores = torch.randn(2, size, generator=torch.Generator().manual_seed(1))
    found = erase_inputs(
        model, dataset, {"a": scores[0], "b": scores[1]}, direction=direction, max_bytes=10_000
    )
    assert model.training
    bounds, ends = found.offsets.tolist(), found.curve_offsets.tolist()
    for row in range(2):
        for b in range(len(dataset)):
            order = scores[row, bounds[b] : bounds[b + 1]].argsort(descending=True).tolist()
            whole = alone(model, dataset, b, set(order))
            label = int(whole.argmax())
            flips = []
            for k in range(len(order) + 1):
                words = set(order[:k]) if direction == "keep" else set(order[k:])
                p = alone(model, dataset, b, words)
                at = ends[b] + k
                assert float(found.curves["label_prob"][row, at]) == pytest.approx(
                    float(p[label]), abs=1e-12
                )
                assert int(found.curves["decision"][row, at]) == int(p.argmax())
                if k and (int(p.argmax()) == label) == (direction == "keep"):
                    flips.append(k)
            assert int(found.first_flip[row, b]) == (flips[0] if flips else -1)
            assert int(found.label[b]) == label == int(found.decision[b])
            np.testing.assert_allclose(found.probabilities[b], whole, atol=1e-12)


def test_the_batch_does_not_change_what_comes_out() -> None:
    model, dataset = model_of(*MODELS[0]), dataset_of(LENGTHS)
    scores = {"a": torch.arange(16.0)}
    most = erase_inputs(model, dataset, scores)
    least = erase_inputs(model, dataset, scores, max_bytes=4 * (4 * 5 + 10 * 8) * 10)
    assert (most.chunk > 1000, least.chunk) == (True, 10)
    np.testing.assert_allclose(
        most.curves["label_prob"], least.curves["label_prob"], rtol=0, atol=1e-12
    )


def test_thresholds_are_computed_and_nothing_else() -> None:
    """ERASER's 1, 5, 10, 20, 50 % of eight words are 1, 1, 1, 2, 4; of one word 1."""
    model, dataset = model_of(*MODELS[0]), dataset_of([[4, 1, 3], [1]])
    scores = torch.tensor([8.0, -1, 6, 5, -2, 3, 2, -3, 1])
    whole = erase_inputs(model, dataset, {"a": scores}, at="every")
    some = erase_inputs(model, dataset, {"a": scores}, at="eraser")
    there = ~some.curves["label_prob"][0].isnan()
    assert there.nonzero()[:, 0].tolist() == [0, 1, 2, 4, 8, 9, 10]
    np.testing.assert_array_equal(
        some.curves["label_prob"][0][there], whole.curves["label_prob"][0][there]
    )
    with pytest.raises(ValueError, match="first_flip: given some prefixes alone"):
        _ = some.first_flip
    assert some.positive.tolist() == [[5, 1]]
    # ferret: at most the five words of positive score, and with ERASER's own beside.
    ferret = erase_inputs(model, dataset, {"a": scores}, at=PRESETS["ferret"])
    there = ~ferret.curves["label_prob"][0].isnan()
    assert there.nonzero()[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10]
    both = erase_inputs(model, dataset, {"a": scores}, at=["eraser", Thresholds((0.7,))])
    there = ~both.curves["label_prob"][0].isnan()
    assert there.nonzero()[:, 0].tolist() == [0, 1, 2, 4, 6, 8, 9, 10]


def test_an_order_is_what_scores_give() -> None:
    model, dataset = model_of(*MODELS[4]), dataset_of([[3], [2]])
    scores = erase_inputs(model, dataset, {"a": torch.tensor([1.0, 3, 2, 5, 5])})
    order = erase_inputs(model, dataset, {"a": torch.tensor([1, 2, 0, 0, 1])})
    np.testing.assert_array_equal(scores.curves["label_prob"], order.curves["label_prob"])
    assert order.positive.tolist() == [[-1, -1]]


def test_targets() -> None:
    model, dataset = model_of(*MODELS[4]), dataset_of([[3], [2]])
    scores = {"a": torch.arange(5.0)}
    one = erase_inputs(model, dataset, scores, target=2)
    each = erase_inputs(model, dataset, scores, target=[2, 0])
    gold = erase_inputs(model, dataset, scores, target="label")
    assert (one.label.tolist(), each.label.tolist()) == ([2, 2], [2, 0])
    assert gold.label.tolist() == [document.label for document in dataset] == [0, 0]
    assert float(one.curves["label_prob"][0, 0]) == float(one.probabilities[0, 2])
    assert float(each.curves["label_prob"][0, 4]) == float(each.probabilities[1, 0])
    assert one.decision.tolist() == each.decision.tolist()


class Embedded:
    """A model that is not of the package, in two steps, over the same modules."""

    def __init__(self, inner: AttentionClassifier) -> None:
        self.inner = inner.eval()

    def embed(self, batch: DocumentBatch) -> Tensor:
        return self.inner.embed(batch)

    def logits(self, embeddings: Tensor, batch: DocumentBatch) -> Tensor:
        return self.inner.from_embeddings(embeddings, batch).logits


def test_a_model_in_two_steps() -> None:
    model, dataset = model_of(*MODELS[0]), dataset_of(LENGTHS)
    scores = {"a": torch.arange(16.0)}
    ours = erase_inputs(model, dataset, scores)
    theirs = erase_inputs(Embedded(model), dataset, scores)
    np.testing.assert_allclose(
        ours.curves["label_prob"], theirs.curves["label_prob"], rtol=0, atol=1e-12
    )


def test_progress_and_no_documents() -> None:
    model, dataset = model_of(*MODELS[4]), dataset_of([[3], [2]])
    told: list[tuple[int, int]] = []
    erase_inputs(model, dataset, {"a": torch.arange(5.0)}, progress=lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]
    nothing = erase_inputs(model, dataset_of([]), {"a": torch.empty(0)})
    assert nothing.curves["label_prob"].shape == (1, 0)
    assert nothing.first_flip.shape == (1, 0)


def test_bad_input_gets_one_line() -> None:
    model, dataset = model_of(*MODELS[0]), dataset_of([[3], [2]])
    good = torch.arange(5.0)
    bad = good.clone()
    bad[4] = torch.nan
    for rankings, options, message in (
        ({"a": good[:4]}, {}, "a: given 4 scores, needed 5, one for each word of 2 documents"),
        ({"a": bad}, {}, "a: given NaN in instance 1 at 1, needed numbers"),
        ({"a": torch.tensor([0, 1, 3, 0, 1])}, {}, "a: given no order, needed each place"),
        ({}, {}, "rankings: given none, needed at least one"),
        ({"a": good}, {"direction": "drop"}, "direction: given 'drop', needed erase or keep"),
        ({"a": good}, {"at": "some"}, "preset: given 'some', needed one of eraser, ferret, every"),
        ({"a": good}, {"target": 2}, "target: given class 2, needed 0 to 1"),
        ({"a": good}, {"target": [1, 2]}, "target: given class 2 for instance 1 (id 1), needed 0"),
        ({"a": good}, {"target": "gold"}, "target: given 'gold', needed decision, label"),
        ({"a": good}, {"target": [1]}, "target: given 1 class, needed 2, one a document"),
        ({"a": torch.tensor([0, 1, 2, 0, 1])}, {"at": "ferret"}, "rankings: given an order"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            erase_inputs(model, dataset, rankings, **options)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"max_bytes: given 400, needed at least 2,000 for inst"):
        erase_inputs(model, dataset, {"a": good}, max_bytes=400)
    with pytest.raises(ModelError, match="max_bytes: given 0, needed at least 1"):
        erase_inputs(model, dataset, {"a": good}, max_bytes=0)
