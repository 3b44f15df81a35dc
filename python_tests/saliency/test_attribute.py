"""`attribute` and its methods against their definitions, a forward pass at a time in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from saliency.small_models import LENGTHS, MODELS, WORDS, dataset_of, model_of
from torch import Tensor, nn

import fastattnerase as fae
from fastattnerase import saliency
from fastattnerase.data import Dataset, TokenisedText, Vocabulary, collate, encode
from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.models import AttentionClassifier, ModelConfig, ModelError, build_model
from fastattnerase.saliency.gradient_importance import gradient_importance
from fastattnerase.saliency.leave_one_out import leave_one_out

Made = tuple[str, str, str, str]
LAYER = ("attention", "gradient", "product")
INPUT = ("gradient_norm", "gradient_x_input", "integrated_gradients", "occlusion", "omission")
PARTS: list[tuple[Made, dict[str, Any]]] = [
    *((made, {}) for made in MODELS),
    (("flan", "conv", "deep", "softmax"), {"mechanism": "sparsemax"}),
    (("flan", "noenc", "dot", "sigmoid"), {"mechanism": "gumbel", "gumbel_evaluation": "on"}),
    (("pair", "cnn", "dot", "softmax"), {"decoder": "query"}),
]


def outputs(
    model: AttentionClassifier, dataset: Dataset, words: Tensor, output: str, target: int
) -> float:
    """The definition: `f_c` of one document with these vectors, of one logit ±z."""
    logits = model.from_embeddings(words, collate(dataset.documents)).logits[0].detach().double()
    if output == "probability":
        return float(logits.softmax(0)[target])
    others = max(float(z) for c, z in enumerate(logits) if c != target)
    if output == "margin" or model.config.head == "sigmoid":
        return float(logits[target]) - others
    return float(logits[target])


def looked_up(model: AttentionClassifier, dataset: Dataset) -> Tensor:
    model.eval()
    return model.embed(collate(dataset.documents)).detach()


@pytest.mark.parametrize(("made", "more"), PARTS)
@pytest.mark.parametrize("output", ["logit", "probability", "margin"])
def test_derivatives_are_numerical_ones(made: Made, more: dict[str, Any], output: str) -> None:
    model = model_of(*made, **more)
    dataset = dataset_of([[3, 1]])
    norms = saliency.attribute(model, dataset, "gradient_norm", 1, output)  # type: ignore[arg-type]
    product = saliency.attribute(model, dataset, "gradient_x_input", 1, output)  # type: ignore[arg-type]
    words = looked_up(model, dataset)
    numerical = torch.zeros_like(words)
    with torch.no_grad():
        for place in range(4):
            for column in range(words.shape[1]):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = words.clone()
                    moved[place, column] += step
                    ends.append(outputs(model, dataset, moved, output, 1))
                numerical[place, column] = (ends[0] - ends[1]) / 2e-5
    wanted = numerical.norm(dim=1)
    torch.testing.assert_close(norms.scores, wanted, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(product.scores, (numerical * words).sum(1), rtol=1e-5, atol=1e-8)
    assert float(wanted.max()) > 1e-5
    assert norms.output == output
    assert float(norms.details["output"][0]) == pytest.approx(
        outputs(model, dataset, words, output, 1), abs=1e-12
    )


@pytest.mark.parametrize(("made", "more"), PARTS)
def test_integrated_gradients_are_the_sum_over_their_points(
    made: Made, more: dict[str, Any]
) -> None:
    """Four right ends, by derivatives of the package's own forward pass."""
    model = model_of(*made, **more)
    dataset = dataset_of([[3, 1]])
    found = saliency.attribute(
        model, dataset, "integrated_gradients", 1, steps=4, rule="riemann_right"
    )
    words = looked_up(model, dataset)
    total = torch.zeros_like(words)
    for k in range(1, 5):
        point = (words * k / 4).requires_grad_()
        logits = model.from_embeddings(point, collate(dataset.documents)).logits[0]
        [gradient] = torch.autograd.grad(logits[1], point)  # of one logit, class 1 is z
        total += gradient / 4
    torch.testing.assert_close(found.scores, (words * total).sum(1), rtol=1e-9, atol=1e-12)
    at_zero = outputs(model, dataset, torch.zeros_like(words), "logit", 1)
    assert float(found.details["baseline_output"][0]) == pytest.approx(at_zero, abs=1e-12)
    assert found.delta is not None
    whole = float(found.details["output"][0])
    assert float(found.delta[0]) == pytest.approx(
        float(found.scores.sum()) - (whole - at_zero), abs=1e-12
    )


@pytest.mark.parametrize("made", [made for made in MODELS if made[1] != "cnn"])
def test_integrated_gradients_complete(made: Made) -> None:
    """Smooth models: fifty nodes of Gauss and Legendre leave nothing; of ReLU, little."""
    found = saliency.attribute(model_of(*made), dataset_of(LENGTHS), "integrated_gradients")
    assert found.delta is not None
    rise = (found.details["output"] - found.details["baseline_output"]).abs()
    assert bool((found.delta.abs() <= 1e-9 * rise + 1e-12).all())
    assert float(rise.max()) > 0.01


def test_integrated_gradients_complete_on_sentences() -> None:
    """A BiLSTM in float32 on 100 sentences as long as those of movie reviews."""
    lengths = np.random.default_rng(1).integers(3, 45, 100)
    model = build_model(
        ModelConfig(kind="sequence", encoder="bilstm", embedding_size=50, hidden_size=32, seed=3),
        Vocabulary(WORDS),
        2,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    dataset = dataset_of([[int(n)] for n in lengths])
    found = saliency.attribute(model, dataset, "integrated_gradients")
    assert found.delta is not None
    rise = (found.details["output"] - found.details["baseline_output"]).abs()
    assert float((found.delta.abs() <= 1e-3 * rise).double().mean()) >= 0.95


@pytest.mark.parametrize(("made", "more"), PARTS)
def test_occlusion_is_one_forward_at_a_time(made: Made, more: dict[str, Any]) -> None:
    model = model_of(*made, **more)
    dataset = dataset_of(LENGTHS)
    found = saliency.attribute(model, dataset, "occlusion", 1)
    for document, scores in zip(dataset, found.split(), strict=True):
        one = Dataset([document])
        words = looked_up(model, one)
        with torch.no_grad():
            whole = outputs(model, one, words, "logit", 1)
            for place in range(len(words)):
                without = words.clone()
                without[place] = 0
                wanted = whole - outputs(model, one, without, "logit", 1)
                assert float(scores[place]) == pytest.approx(wanted, abs=1e-10)


def without_word(dataset: Dataset, place: int) -> Dataset:
    [document] = dataset
    ends = np.cumsum(document.sentence_lengths).tolist()
    split = [document.tokens[a:b] for a, b in zip([0, *ends][:-1], ends, strict=True)]
    at = place
    for sentence in split:
        if at < len(sentence):
            del sentence[at]
            break
        at -= len(sentence)
    full = [sentence for sentence in split if sentence]
    text = TokenisedText(document.id, 0, full, [" ".join(s) for s in full])
    [shorter] = encode([text], Vocabulary(WORDS))
    return Dataset([replace(shorter, query_ids=document.query_ids, query_tokens=["q", "r"])])


@pytest.mark.parametrize(("made", "more"), PARTS)
def test_omission_is_one_forward_at_a_time(made: Made, more: dict[str, Any]) -> None:
    model = model_of(*made, **more)
    dataset = dataset_of(LENGTHS)
    found = saliency.attribute(model, dataset, "omission", 1, "margin")
    for document, scores in zip(dataset, found.split(), strict=True):
        one = Dataset([document])
        with torch.no_grad():
            whole = outputs(model, one, looked_up(model, one), "margin", 1)
            for place in range(len(document)):
                other = without_word(one, place)
                wanted = whole - outputs(model, other, looked_up(model, other), "margin", 1)
                assert float(scores[place]) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_methods_agree_on_a_linear_model(head: str) -> None:
    """`f = w · x̄ + b`: all give `w · x_i / n`; omission gives `w · (x_i − x̄) / (n − 1)`."""
    model = model_of("flan", "noenc", "uniform", head)
    dataset = dataset_of([[5, 2]])
    sign = 1.0 if head == "softmax" else -1.0  # class 0 of one logit z is −z
    row = 0
    weight = model.classifier.weight[row].detach() * sign  # [E]
    words = looked_up(model, dataset)
    wanted = words @ weight / 7
    for method in ("gradient_x_input", "integrated_gradients", "occlusion"):
        found = saliency.attribute(model, dataset, method, 0)
        torch.testing.assert_close(found.scores, wanted, rtol=1e-9, atol=1e-12)
    found = saliency.attribute(model, dataset, "omission", 0)
    wanted = (words - words.mean(0)) @ weight / 6
    torch.testing.assert_close(found.scores, wanted, rtol=1e-9, atol=1e-12)


def scalar_model(head: str = "sigmoid") -> tuple[AttentionClassifier, Vocabulary]:
    """One number a word (a 1, b 3), equal weights, one logit: z = 2 (x₁ + … + x_n) / n."""
    config = ModelConfig(
        kind="flan", encoder="noenc", attention="uniform", head="sigmoid", embedding_size=1
    )
    vocabulary = Vocabulary(["a", "b"])
    model = build_model(config, vocabulary, 2, torch.tensor([[0.0], [1.0], [3.0], [-1.0]]))
    with torch.no_grad():
        model.classifier.weight.fill_(2.0)
    return model, vocabulary


@pytest.mark.parametrize(
    ("method", "target", "options", "wanted"),
    [
        ("gradient_norm", 1, {}, [1.0, 1.0]),
        ("gradient_norm", 0, {}, [1.0, 1.0]),
        ("gradient_x_input", 1, {}, [1.0, 3.0]),
        ("gradient_x_input", 0, {}, [-1.0, -3.0]),
        ("gradient_x_input", 0, {"absolute": True}, [1.0, 3.0]),
        ("integrated_gradients", "decision", {}, [1.0, 3.0]),
        ("integrated_gradients", 1, {"baseline": "unknown"}, [2.0, 4.0]),
        ("integrated_gradients", 1, {"word": "b", "vocabulary": "own"}, [-2.0, 0.0]),
        ("occlusion", 1, {}, [1.0, 3.0]),
        ("occlusion", 0, {}, [-1.0, -3.0]),
        ("omission", 1, {}, [-2.0, 2.0]),  # z is 4, without a 6, without b 2
        ("omission", 0, {}, [2.0, -2.0]),
        ("attention", 1, {}, [0.5, 0.5]),
        ("gradient", 1, {}, [2 * 0.0176627, 6 * 0.0176627]),  # p₁ p₀ s_i at z = 4
        ("product", 1, {}, [0.0176627, 3 * 0.0176627]),
    ],
)
def test_by_hand(method: str, target: Any, options: dict[str, Any], wanted: list[float]) -> None:
    model, vocabulary = scalar_model()
    if "vocabulary" in options:
        options = options | {"vocabulary": vocabulary}
    dataset = encode([TokenisedText(4, 0, [["a", "b"]], ["a b"])], vocabulary)
    found = saliency.attribute(model, dataset, method, target, **options)
    np.testing.assert_allclose(found.scores, wanted, rtol=2e-6, atol=1e-7)
    assert found.target.tolist() == [1 if target == "decision" else target]
    assert found.ids.tolist() == [4]
    assert found.family == saliency.methods()[method].family


@pytest.mark.parametrize("made", MODELS)
def test_jain_and_wallace_measures_are_methods_with_options(made: Made) -> None:
    model = model_of(*made)
    dataset = dataset_of(LENGTHS)
    gradients = saliency.attribute(
        model,
        dataset,
        "gradient_x_input",
        output="probability",
        absolute=True,
        hold_attention=True,
    )
    for scores, wanted in zip(gradients.split(), gradient_importance(model, dataset), strict=True):
        np.testing.assert_allclose(scores, wanted, rtol=1e-12, atol=0)
    left_out = saliency.attribute(model, dataset, "omission", change="total_variation")
    for scores, wanted in zip(left_out.split(), leave_one_out(model, dataset), strict=True):
        np.testing.assert_allclose(scores, wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("made", "more"), PARTS)
def test_the_attention_layers_methods_rank_as_the_engine(made: Made, more: dict[str, Any]) -> None:
    model = model_of(*made, **more)
    dataset = dataset_of(LENGTHS)
    batch = fae.AttentionBatch.cat(list(model.attention_batches(dataset)))
    for method in LAYER:
        found = saliency.attribute(model, dataset, method)
        assert fae.rank(batch, found.scores).equal(fae.rank(batch, method))
        assert found.items == ("sentences" if made[0] == "han" else "words")
        assert found.offsets.equal(batch.offsets)


def test_a_sure_model_has_a_derivative_by_its_weights() -> None:
    """At z = 60 the probability is 1 to the last digit; its derivative is not 0."""
    model, vocabulary = scalar_model()
    with torch.no_grad():
        model.classifier.bias.fill_(56.0)
    dataset = encode([TokenisedText(0, 0, [["a", "b"]], ["a b"])], vocabulary)
    found = saliency.attribute(model, dataset, "gradient")
    np.testing.assert_allclose(found.scores, np.exp(-60.0) * np.array([2.0, 6.0]), rtol=1e-6)


@pytest.mark.parametrize("method", [*INPUT, *LAYER])
@pytest.mark.parametrize("made", MODELS)
def test_scores_do_not_depend_on_the_batch(method: str, made: Made) -> None:
    model = model_of(*made)
    dataset = dataset_of(LENGTHS)
    together = saliency.attribute(model, dataset, method)
    budget = 10 * together.max_bytes // together.chunk  # for 10 words: the longest has 8 and 2
    alone = saliency.attribute(model, dataset, method, max_bytes=budget + 10)
    assert alone.chunk == 10
    torch.testing.assert_close(together.scores, alone.scores, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [10, 1000])
def test_passes_keep_to_the_budget(steps: int) -> None:
    model = model_of(*MODELS[0])
    dataset = Dataset([replace(document, query_ids=None) for document in dataset_of([[4]] * 3)])
    sizes: list[int] = []
    model.embedding_dropout.register_forward_hook(lambda module, given, out: sizes.append(len(out)))
    budget = 2 * 9 * 4 * (4 * 5 + 10 * 8)  # nine words' floats, and as many of derivatives
    saliency.attribute(model, dataset, "integrated_gradients", max_bytes=budget, steps=steps)
    assert max(sizes) == 8
    assert len(sizes) == 4 + 3 * steps // 2  # twice two passes as they are and at the baseline


@pytest.mark.parametrize("method", [*INPUT, *LAYER])
def test_everything_is_left_as_it_was(method: str) -> None:
    model = model_of(*MODELS[0])
    model.words.eval()
    model.classifier.bias.requires_grad_(False)
    model.markers.grad = torch.ones_like(model.markers)
    before = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    found = saliency.attribute(model, dataset_of(LENGTHS), method)
    assert not found.scores.requires_grad
    assert torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == before
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())
    assert torch.get_rng_state().equal(random)
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (name != "classifier.bias")
        assert (parameter.grad is None) == (name != "markers")
    assert model.markers.grad.equal(torch.ones_like(model.markers))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gradient_x_input", {}),
        ("gradient_x_input", {"absolute": True}),
        ("integrated_gradients", {}),
        ("integrated_gradients", {"rule": "riemann_right", "steps": 7, "baseline": "unknown"}),
        ("occlusion", {}),
    ],
)
@pytest.mark.parametrize("made", [MODELS[0], MODELS[4], MODELS[5]])
def test_captum_gives_the_same(made: Made, method: str, options: dict[str, Any]) -> None:
    model = model_of(*made)
    dataset = dataset_of(LENGTHS)
    own = saliency.attribute(model, dataset, method, **options)
    other = saliency.attribute(model, dataset, method, captum=True, **options)
    # The points of Captum's way are float32 numbers.
    torch.testing.assert_close(own.scores, other.scores, rtol=1e-5, atol=1e-7)
    assert own.target.equal(other.target)
    if own.delta is not None:
        torch.testing.assert_close(own.delta, other.delta, rtol=0, atol=1e-6)


class Other:
    """A model of one's own: a GRU read at its last step."""

    def __init__(self, outputs: int, flat: bool = False) -> None:
        torch.manual_seed(outputs)
        self.embedding = nn.Embedding(11, 5)
        self.rnn = nn.GRU(5, 4)
        self.out = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, outputs))
        self.flat = flat

    def embed(self, batch: DocumentBatch) -> Tensor:
        found: Tensor = self.embedding(batch.token_ids)
        return found

    def logits(self, embeddings: Tensor, batch: DocumentBatch) -> Tensor:
        texts = embeddings.split(batch.document_lengths.tolist())
        last = [self.rnn(text)[0][-1] if len(text) else torch.zeros(4) for text in texts]
        logits: Tensor = self.out(torch.stack(last))
        return logits[:, 0] if self.flat else logits


@pytest.mark.parametrize("method", INPUT)
def test_another_model_is_scored(method: str) -> None:
    """By two methods on packed texts alone; with one logit, class 0 is its opposite."""
    several, one, flat = Other(3), Other(1), Other(1, flat=True)
    dataset = dataset_of(LENGTHS)
    found = saliency.attribute(several, dataset, method, torch.tensor([0, 1, 2, 0, 1]))
    assert found.target.tolist() == [0, 1, 2, 0, 1]
    assert len(found.scores) == 16
    assert several.out.training
    options: dict[str, Any] = {"steps": 3} if method == "integrated_gradients" else {}
    pro = saliency.attribute(one, dataset, method, 1, **options)
    contra = saliency.attribute(flat, dataset, method, 0, **options)
    sign = 1.0 if method == "gradient_norm" else -1.0
    torch.testing.assert_close(pro.scores, sign * contra.scores)
    assert float(pro.scores.abs().max()) > 1e-4
    if method == "occlusion":
        one.out.eval()
        batch = collate(dataset.documents[:1])
        with torch.no_grad():
            words = one.embed(batch)
            whole = float(one.logits(words, batch))
            words[2] = 0
            wanted = whole - float(one.logits(words, batch))
        assert float(pro.scores[2]) == pytest.approx(wanted, abs=1e-6)


class Wrong(Other):
    """A model that gives something else than it must."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__(2)
        self.wrong = wrong

    def embed(self, batch: DocumentBatch) -> Tensor:
        change = self.wrong.get("embed", lambda words: words)
        return change(super().embed(batch))  # type: ignore[no-any-return]

    def logits(self, embeddings: Tensor, batch: DocumentBatch) -> Tensor:
        change = self.wrong.get("logits", lambda logits: logits)
        return change(super().logits(embeddings, batch))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"embed": lambda x: x[:3]}, r"given torch.float32 \[3, 5\] by embed, needed .*\[16, E\]"),
        ({"embed": lambda x: x[:, 0]}, r"given torch.float32 \[16\] by embed, needed floating"),
        ({"embed": lambda x: x.long()}, r"given torch.int64 \[16, 5\] by embed, needed floating"),
        ({"logits": lambda x: x.sum()}, r"given torch.float32 \[\] by logits, needed .*\[5, C\]"),
        ({"logits": lambda x: x[0]}, r"given torch.float32 \[2\] by logits, needed .*\[5, C\]"),
        ({"logits": lambda x: x.tolist()}, r"given list by logits, needed floating numbers \[5, C"),
        ({"logits": lambda x: x.detach()}, "given logits that no gradient leads back from"),
    ],
)
def test_another_model_gives_something_else(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"^model: {message}") as caught:
        saliency.attribute(Wrong(**wrong), dataset_of(LENGTHS), "gradient_norm")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", LAYER)
def test_another_model_has_no_attention_layer(method: str) -> None:
    with pytest.raises(ModelError, match=f"given Other, needed a classifier.*{method}"):
        saliency.attribute(Other(2), dataset_of(LENGTHS), method)


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    dataset = dataset_of(LENGTHS)
    found = saliency.attribute(model_of(*MODELS[0]), dataset, "integrated_gradients", steps=5)
    found.save(tmp_path / "scores.safetensors")
    again = saliency.load_attribution(tmp_path / "scores.safetensors")
    for name in ("scores", "offsets", "ids", "target", "delta", "status"):
        assert getattr(again, name).equal(getattr(found, name))
    for name in ("method", "family", "output", "items", "chunk", "max_bytes", "options"):
        assert getattr(again, name) == getattr(found, name)
    assert again.details["output"].equal(found.details["output"])
    assert again.options["steps"] == 5
    part = again.part(3, 5)
    assert part.scores.equal(torch.cat(found.split()[3:]))
    assert part.offsets.tolist() == [0, 8, 10]
    items, instances = again.to_pandas(), again.to_pandas("instance")
    assert items.position.tolist() == [*range(5), 0, *range(8), 0, 1]
    assert items.score.tolist() == found.scores.tolist()
    assert instances.status.tolist() == ["", "SINGLE", "EMPTY", "", ""]
    assert instances["items"].tolist() == [5, 1, 0, 8, 2]


def test_a_text_that_is_not_finite_is_marked() -> None:
    model, vocabulary = scalar_model()
    with torch.no_grad():
        model.embedding.weight[2] = torch.nan
    texts = [TokenisedText(i, 0, [[word, "a"]], [word]) for i, word in enumerate("ab")]
    found = saliency.attribute(model, encode(texts, vocabulary), "occlusion")
    assert found.status.tolist() == [0, int(fae.Status.NON_FINITE)]


def call(**changed: Any) -> NDArray[np.float64]:
    arguments: dict[str, Any] = {"method": "occlusion", "target": "decision", "output": "logit"}
    model = changed.pop("model", None) or model_of(*MODELS[0])
    dataset = changed.pop("dataset", None) or dataset_of(LENGTHS)
    found = saliency.attribute(model, dataset, **(arguments | changed))
    return found.scores.numpy()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"method": "no"},
            "method: given 'no', needed one of attention, .*gradient_norm",
        ),
        ({"target": 2}, "target: given class 2, needed 0 to 1"),
        ({"target": -1}, "target: given class -1, needed 0 to 1"),
        ({"target": "best"}, "target: given 'best', needed decision, label"),
        ({"target": [0, 1]}, "target: given 2 classes, needed 5, one a document"),
        ({"target": torch.zeros(5)}, r"target: given torch.float32 \[5\], needed integers \[5\]"),
        ({"target": [0, 1, 0, 2, 0]}, r"given class 2 for instance 3 \(id 3\), needed 0 to 1"),
        ({"target": 1.5}, "target: given 1.5, needed decision, label, a class"),
        ({"target": True}, "target: given True, needed decision, label, a class"),
        ({"target": [0, 1, 0, 1.0, 0]}, "target: given 1.0 among the classes, needed whole"),
        ({"target": list("abcde")}, "target: given 'a' among the classes, needed whole"),
        ({"dataset": "a text"}, "dataset: given str, needed the Dataset that data.encode gives"),
        ({"captum": "no"}, "captum: given 'no', needed True or False"),
        ({"max_bytes": "64 MiB"}, "max_bytes: given '64 MiB', needed at least 1, a whole number"),
        ({"method": "lrp", "epsilon": "0.1"}, "epsilon: given '0.1', needed a finite number"),
        ({"output": "odds"}, "output: given 'odds', needed one of logit, probability, margin"),
        ({"max_bytes": 0}, "max_bytes: given 0, needed at least 1"),
        ({"max_bytes": 1600}, r"max_bytes: given 1,600, needed at least 2,800 for instance 0 \("),
        ({"colour": 1}, "options: given 'colour' for occlusion, needed one of captum"),
        ({"method": "omission", "change": "x"}, "change: given 'x', needed difference"),
        ({"method": "integrated_gradients", "steps": 0}, "steps: given 0, needed a whole"),
        ({"method": "integrated_gradients", "rule": "x"}, "rule: given 'x', needed gauss_leg"),
        ({"method": "integrated_gradients", "baseline": "x"}, "baseline: given 'x', needed zero"),
        ({"method": "integrated_gradients", "word": "w1"}, "vocabulary: given none, needed the"),
        (
            {"method": "integrated_gradients", "word": "x", "vocabulary": Vocabulary(WORDS)},
            "word: given 'x', needed one that the vocabulary has",
        ),
        ({"model": nn.Linear(2, 2)}, "model: given Linear without embed and logits, needed a cla"),
        ({"model": object()}, "model: given object without embed and logits, needed a classifier"),
    ],
)
def test_bad_input_gets_one_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        call(**changed)
    assert "\n" not in str(caught.value)


def test_a_method_of_ones_own_is_known_by_name() -> None:
    name = "python_tests_zero"

    def zero(context: saliency.MethodContext, dataset: Dataset) -> Any:
        for document in dataset:
            yield saliency.Scored(torch.zeros(len(document)), 0)

    method = saliency.Method(name, "sensitivity", "0", "nobody", zero)
    saliency.register_method(method)
    saliency.register_method(method)  # the same again
    other = replace(method, doc="1")
    with pytest.raises(ModelError, match=f"method: given '{name}', which is registered already"):
        saliency.register_method(other)
    saliency.register_method(other, overwrite=True)
    found = saliency.attribute(Other(2), dataset_of(LENGTHS), name)
    assert found.scores.tolist() == [0.0] * 16
