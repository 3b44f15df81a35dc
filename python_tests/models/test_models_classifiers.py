"""FLAN and HAN: the formula, masks, dropout, and the batches they hand to the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch

import fastattnerase as fae
from fastattnerase.data import Dataset, Vocabulary, collate
from fastattnerase.models import AttentionClassifier, ModelConfig, build_model

MakeDataset = Callable[..., Dataset]
KINDS = [(kind, encoder) for kind in ("flan", "han") for encoder in ("rnn", "conv", "noenc")]
LENGTHS = [[3, 2], [], [1], [4, 4, 9, 1], [2], []]


def small(vocabulary: Vocabulary, kind: str, encoder: str, classes: int = 3) -> AttentionClassifier:
    config = ModelConfig(kind=kind, encoder=encoder, embedding_size=6, hidden_size=4)
    return build_model(config, vocabulary, classes)


@pytest.mark.parametrize(("kind", "encoder"), KINDS)
def test_a_document_alone_or_in_a_batch_is_judged_alike(
    kind: str, encoder: str, vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    model = small(vocabulary, kind, encoder).eval()
    dataset = make_dataset(6, lengths=LENGTHS)
    together = model(collate(dataset.documents))
    alone = [model(collate([document])) for document in dataset]
    for name in ("logits", "values", "scores", "lengths"):
        wanted = torch.cat([getattr(output, name) for output in alone])
        torch.testing.assert_close(getattr(together, name), wanted, rtol=0, atol=1e-6)
    counts = [sum(x) if kind == "flan" else len(x) for x in LENGTHS]
    assert together.lengths.tolist() == counts


@pytest.mark.parametrize("kind", ["flan", "han"])
@pytest.mark.parametrize("encoder", ["rnn", "conv"])
def test_padding_cannot_leak(
    kind: str, encoder: str, vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    """Changing one document, or its neighbours' lengths, changes nothing for the others."""
    model = small(vocabulary, kind, encoder).eval()
    short = make_dataset(1, lengths=[[3]])[0]
    for other in ([[]], [[50]], [[1, 30, 2]]):
        neighbour = make_dataset(1, seed=9, lengths=other)[0]
        logits = model(collate([neighbour, short, neighbour])).logits
        torch.testing.assert_close(logits[1], model(collate([short])).logits[0], rtol=0, atol=1e-6)


def test_flan_by_its_definition(vocabulary: Vocabulary, make_dataset: MakeDataset) -> None:
    model = small(vocabulary, "flan", "noenc").double().eval()
    document = make_dataset(1, lengths=[[3, 2]])[0]
    p = model.state_dict()
    h = p["embedding.weight"][document.token_ids]  # [5, E]
    hidden = torch.tanh(
        h @ p["words.attention.project.weight"].T + p["words.attention.project.bias"]
    )
    scores = hidden @ p["words.attention.context.weight"][0]
    pooled = torch.softmax(scores, 0) @ h
    wanted = p["classifier.weight"] @ pooled + p["classifier.bias"]
    output = model(collate([document]))
    torch.testing.assert_close(output.logits[0], wanted)
    torch.testing.assert_close(output.scores, scores)
    torch.testing.assert_close(output.values, h)


def test_han_by_its_definition(vocabulary: Vocabulary, make_dataset: MakeDataset) -> None:
    model = small(vocabulary, "han", "noenc").double().eval()
    document = make_dataset(1, lengths=[[3, 2, 4]])[0]
    p = model.state_dict()

    def attend(values: torch.Tensor, level: str) -> tuple[torch.Tensor, torch.Tensor]:
        name = f"{level}.attention"
        hidden = torch.tanh(values @ p[f"{name}.project.weight"].T + p[f"{name}.project.bias"])
        scores = hidden @ p[f"{name}.context.weight"][0]
        return torch.softmax(scores, 0) @ values, scores

    words = p["embedding.weight"][document.token_ids].split([3, 2, 4])
    sentences = torch.stack([attend(part, "words")[0] for part in words])
    pooled, scores = attend(sentences, "sentences")
    output = model(collate([document]))
    torch.testing.assert_close(output.values, sentences)
    torch.testing.assert_close(output.scores, scores)
    wanted = p["classifier.weight"] @ pooled + p["classifier.bias"]
    torch.testing.assert_close(output.logits[0], wanted)


@pytest.mark.parametrize(("kind", "encoder"), KINDS)
def test_empty_documents(
    kind: str, encoder: str, vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    model = small(vocabulary, kind, encoder)
    with torch.no_grad():
        model.classifier.bias.copy_(torch.tensor([0.1, 0.7, 0.2]))
    for lengths in ([[3], []], [[], []]):
        dataset = make_dataset(2, lengths=lengths)
        loss = torch.nn.functional.cross_entropy(
            model(collate(dataset.documents)).logits, torch.tensor([0, 1])
        )
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        [(batch, logits)] = model.attention_outputs(dataset)
        torch.testing.assert_close(logits[1], torch.tensor([0.1, 0.7, 0.2]))
        result = fae.erase_prefixes(batch, ["attention"], backend="reference")
        assert result.status[1] == fae.Status.EMPTY
        assert result.label[1] == 1


def test_dropout_places(vocabulary: Vocabulary, make_dataset: MakeDataset) -> None:
    batch = collate(make_dataset(40).documents)
    torch.manual_seed(0)
    values = {"embedding_size": 6, "hidden_size": 4, "dropout_output": 0.5}
    code = build_model(ModelConfig(dropout_style="code", **values), vocabulary, 3)  # type: ignore[arg-type]
    logits = code(batch).logits
    assert 0.3 < float((logits == 0).double().mean()) < 0.7  # half of the logits are dropped
    paper = build_model(ModelConfig(**values), vocabulary, 3)  # type: ignore[arg-type]
    assert not (paper(batch).logits == 0).any()
    assert not torch.equal(paper(batch).logits, paper(batch).logits)
    only_output = ModelConfig(
        **(values | {"dropout_output": 0.9}),  # type: ignore[arg-type]
        dropout_embedding=0,
    )
    model = build_model(only_output, vocabulary, 3)
    assert torch.equal(model(batch).values, model(batch).values)
    assert not torch.equal(model(batch).logits, model(batch).logits)
    han = ModelConfig(
        kind="han", embedding_size=6, dropout_embedding=0, dropout_output=0, dropout_sentence=0.5
    )
    model = build_model(han, vocabulary, 3)
    assert not torch.equal(model(batch).logits, model(batch).logits)
    assert torch.equal(model.eval()(batch).logits, model(batch).logits)


@pytest.mark.parametrize(("kind", "encoder"), KINDS)
def test_the_engine_gives_the_model_s_decisions(
    kind: str, encoder: str, vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    model = small(vocabulary, kind, encoder)
    dataset = make_dataset(30)
    seen = []
    for batch, logits in model.attention_outputs(dataset, batch_tokens=40):
        result = fae.erase_prefixes(batch, ["attention"], curves=("logits",), backend="reference")
        starts = result.curve_offsets[:-1]
        at_zero = result.curves["logits"][0, starts]
        torch.testing.assert_close(at_zero, logits, rtol=0, atol=1e-5)
        clear = logits.topk(2).values.diff(dim=1).abs()[:, 0] > 1e-5
        assert torch.equal(result.label[clear], logits.argmax(1)[clear])
        assert batch.values.dtype == logits.dtype == torch.float32
        seen += batch.ids.tolist()
    assert seen == [document.id for document in dataset]


def test_streaming_keeps_to_its_budget_and_gives_items(
    vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    dataset = make_dataset(30)
    flan = small(vocabulary, "flan", "noenc")
    sizes = [len(batch.values) for batch in flan.attention_batches(dataset, batch_tokens=40)]
    assert max(sizes) <= 40
    assert sum(sizes) == sum(len(document) for document in dataset)
    han = small(vocabulary, "han", "noenc")
    items = [batch.offsets.diff().tolist() for batch in han.attention_batches(dataset)]
    assert items == [[len(document.sentences) for document in dataset]]


def test_streaming_leaves_modes_random_state_and_batches_alone(
    vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    model = small(vocabulary, "flan", "conv")
    model.train()
    model.output_dropout.eval()
    modes = [module.training for module in model.modules()]
    before = torch.get_rng_state()
    dataset = make_dataset(20)
    stream = model.attention_outputs(dataset, batch_tokens=60)
    first, logits = next(stream)
    assert [module.training for module in model.modules()] == modes
    rest = list(stream)
    assert rest
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    again, logits_again = next(model.attention_outputs(dataset, batch_tokens=60))
    assert torch.equal(first.values, again.values)
    assert torch.equal(logits, logits_again)
    assert not logits.requires_grad
    with torch.no_grad():
        model.classifier.weight.zero_()
    assert first.head_weight is not None
    assert first.head_weight.abs().sum() > 0


@pytest.mark.parametrize("kind", ["flan", "han", "sequence"])
@pytest.mark.parametrize("style", ["paper", "code"])
def test_forward_is_embeddings_and_what_follows(
    kind: str, style: Literal["paper", "code"], vocabulary: Vocabulary, make_dataset: MakeDataset
) -> None:
    """The two halves give `forward`'s numbers to the bit, dropout included."""
    config = ModelConfig(
        kind=kind, encoder="rnn", embedding_size=6, hidden_size=4, dropout_style=style
    )
    model = build_model(config, vocabulary, 3).train()
    batch = collate(make_dataset(6, lengths=LENGTHS).documents)
    torch.manual_seed(3)
    whole = model(batch)
    words = model.embed(batch)  # [T, E]
    assert words.equal(model.embedding.weight[batch.token_ids])
    torch.manual_seed(3)
    halves = model.from_embeddings(words, batch)
    assert whole.query is None
    assert all(a.equal(b) for a, b in zip(whole[:5], halves[:5], strict=True))
