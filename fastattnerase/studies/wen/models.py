"""The special models of Wen et al.: attention or representations fixed, and the adversary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from fastattnerase.data import Dataset, DocumentBatch, PreparedCorpus
from fastattnerase.data.dataset import batches_in_order
from fastattnerase.models import AttentionClassifier, ModelConfig, ModelOutput, Objective
from fastattnerase.models.base import evaluating
from fastattnerase.models.build import build_model
from fastattnerase.models.mechanisms import Mechanism, document_noise
from fastattnerase.models.packed import segment_log_softmax, segment_softmax
from fastattnerase.models.sequence import SequenceClassifier
from fastattnerase.statistics.attention import entropy, js_divergence, kl_divergence
from fastattnerase.studies.wen.options import FIX_ATTENTION, FIX_REPRESENTATION
from fastattnerase.studies.wen.results import AttentionShape, Divergence

_BATCH_TOKENS = 32_768
_NEW_SEED = 1_000_003  # added to a seed for initial values that are not the base model's


class Outputs:
    """What a model gives each document of some data sets, by the document's id.

    Attributes:
        log_weights: `[n]`, float32, logarithms of the attention weights.
        probability: of class 1.
    """

    def __init__(self, model: AttentionClassifier, datasets: Iterable[Dataset]) -> None:
        self.log_weights: dict[int, Tensor] = {}
        self.probability: dict[int, float] = {}
        for dataset in datasets:
            for batch in batches_in_order(dataset, _BATCH_TOKENS):
                with evaluating(model):
                    output = model(batch.to(model.classifier.weight.device))
                every = segment_log_softmax(output.scores, output.lengths).cpu()  # [T]
                logs = torch.split(every, output.lengths.tolist())
                probability = output.logits.softmax(1)[:, 1].tolist()
                for key, log, p in zip(batch.ids.tolist(), logs, probability, strict=True):
                    self.log_weights[key] = log
                    self.probability[key] = p


# --- attention fixed -----------------------------------------------------------------------------


class _GivenWeights(Mechanism):
    """Weights by the document, whatever the scores."""

    def __init__(self, table: dict[int, Tensor]) -> None:
        super().__init__()
        self.table = table

    def forward(self, scores: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
        return torch.cat([self.table[key] for key in keys.tolist()]).to(scores)  # [T]


class _FixedAttention(SequenceClassifier):
    """A classifier that averages with given weights; batches carry these."""

    @property
    def erases_scores(self) -> bool:
        return False


def fixed_attention(
    reading: str, config: ModelConfig, prepared: PreparedCorpus, base: AttentionClassifier
) -> AttentionClassifier:
    """Make a model whose attention is not trained; encoder and decoder are.

    Args:
        reading: `uniform`: all items weigh alike. `trained`: each document keeps the weights that
            the base model gave it. `random`: each document has weights of its own, drawn uniformly
            from the simplex (`random_weights`). `parameters`: attention keeps its random initial
            parameters.
        config: of the base model.
        prepared: the data.
        base: the trained base model.

    Returns:
        An untrained model.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 5.1, Fix Attn, which allows these readings.
    """
    size = len(prepared.classes)
    config = replace(
        config,
        seed=config.seed + _NEW_SEED,  # not the base model's initial values
        embedding_size=base.config.embedding_size,  # that of the word vectors, where there are some
    )
    if reading == "uniform":
        plain = replace(config, attention="uniform")
        return build_model(plain, prepared.vocabulary, size, prepared.embeddings)
    if reading == "parameters":
        model = build_model(config, prepared.vocabulary, size, prepared.embeddings)
        _freeze(model.get_submodule("words.attention"))
        return model
    splits = (prepared.train, prepared.dev, prepared.test)
    if reading == "trained":
        logs = Outputs(base, splits).log_weights
        table = {key: log.exp() for key, log in logs.items()}
    elif reading == "random":
        table = {
            document.id: random_weights(config.seed, document.id, len(document))
            for split in splits
            for document in split
        }
    else:
        raise ValueError(f"reading: given {reading!r}, needed one of {', '.join(FIX_ATTENTION)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = _FixedAttention(config, len(prepared.vocabulary), size, prepared.embeddings)
    _freeze(model.words.attention)
    model.words.mechanism = _GivenWeights(table)
    return model


def random_weights(seed: int, key: int, n: int) -> Tensor:
    """Draw a document's weights uniformly from the simplex: `a_i = E_i / Σ_j E_j`, E exponential.

    Gumbel noise is `g = −ln E`, so that these are the softmax of `−g`. The largest of `n` weights
    is on average `H_n / n`, with the harmonic number `H_n = Σ_{i≤n} 1 / i`.

    Args:
        seed: a number.
        key: of the document, whose weights depend on nothing else.
        n: its words.

    Returns:
        `[n]`, float32, sum 1.

    Example:
        >>> random_weights(0, 5, 1).tolist()
        [1.0]
    """
    lengths = torch.tensor([n])
    return segment_softmax(-document_noise(seed, torch.tensor([key]), lengths), lengths).float()


def _freeze(module: nn.Module) -> None:
    """Exclude a module's parameters from training."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)


# --- representations fixed -----------------------------------------------------------------------


def fixed_representation(
    reading: str, config: ModelConfig, prepared: PreparedCorpus, base: AttentionClassifier
) -> AttentionClassifier:
    """Make a model whose hidden states are not trained; its attention is initialised again.

    Args:
        reading: `trained`: word vectors and encoder are the base model's, the decoder is
            initialised again. `trained_kept`: the decoder is the base model's, too, and is not
            trained. `random`: word vectors and encoder keep their initial values, the decoder is
            initialised again.
        config: of the base model.
        prepared: the data.
        base: the trained base model.

    Returns:
        A model with untrained attention.

    Source:
        Wen, Subbalakshmi and Yang 2022, section 5.1, Fix Rep, which allows these readings.
    """
    if reading not in FIX_REPRESENTATION:
        raise ValueError(
            f"reading: given {reading!r}, needed one of {', '.join(FIX_REPRESENTATION)}"
        )
    config = replace(config, seed=config.seed + _NEW_SEED)  # not the base model's initial values
    model = build_model(config, prepared.vocabulary, len(prepared.classes), prepared.embeddings)
    fixed = [name for name, _ in model.named_parameters() if _represents(name)]
    if reading == "trained_kept":
        fixed += [name for name, _ in model.named_parameters() if name.startswith("classifier.")]
    trained = dict(base.named_parameters())
    for name in fixed:
        parameter = model.get_parameter(name)
        parameter.requires_grad_(False)
        if reading != "random":
            with torch.no_grad():
                parameter.copy_(trained[name])
    return model


def _represents(name: str) -> bool:
    """Say whether a parameter is one of the hidden states': word vectors and encoder."""
    return name.startswith(("embedding.", "markers", "words.encoder."))


# --- the adversary -------------------------------------------------------------------------------


def adversary_objective(base: Outputs, strength: float, tvd: float = 0.5) -> Objective:
    """Make the loss of a model that imitates the base model's outputs and leaves its attention.

    `L_i = tvd · |p_i − p'_i| − strength · KL(a_i ‖ a'_i)`, primes for the base model, over the
    words.

    Args:
        base: the base model's outputs for every training document.
        strength: λ.
        tvd: of the outputs' difference: 0.5 as in the published code; 1 is the total variation
            distance of the two-class distributions.

    Returns:
        The objective, for `train`; softmax attention only.

    Source:
        Wiegreffe and Pinter 2019, section 4, and their code; Wen, Subbalakshmi and Yang 2022,
        equation 6.
    """

    def losses(_: AttentionClassifier, output: ModelOutput, batch: DocumentBatch) -> Tensor:
        keys = batch.ids.tolist()
        wanted = torch.tensor([base.probability[key] for key in keys]).to(output.logits)  # [B]
        other = torch.cat([base.log_weights[key] for key in keys]).to(output.scores)  # [T]
        difference = (output.logits.softmax(1)[:, 1] - wanted).abs()  # [B]
        own = segment_log_softmax(output.scores, output.lengths)  # [T]
        divergence = _sum_within(own.exp() * (own - other), output.lengths)  # [B]
        return tvd * difference - strength * divergence

    return losses


def _sum_within(values: Tensor, lengths: Tensor) -> Tensor:
    """Sum within each sequence: `[T]`, `[B]` → `[B]`."""
    instance = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)  # [T]
    return values.new_zeros(len(lengths)).index_add(0, instance, values)  # [B]


def divergence(adversary: Outputs, base: Outputs, documents: Iterable[int]) -> Divergence:
    """Compare the outputs of two models for some documents, by their ids.

    Example:
        >>> class Fake:
        ...     log_weights = {0: torch.tensor([0.5, 0.5]).log()}
        ...     probability = {0: 0.75}
        >>> class Other(Fake):
        ...     probability = {0: 0.25}
        >>> found = divergence(Fake, Other, [0])
        >>> found.tvd, found.attention_jsd
        (0.5, 0.0)
    """
    rows: list[list[float]] = []
    for key in documents:
        p, q = adversary.probability[key], base.probability[key]
        outputs = [torch.from_numpy(np.log(np.clip([1 - x, x], 1e-300, 1.0))) for x in (p, q)]
        a, b = adversary.log_weights[key], base.log_weights[key]  # [n]
        rows.append([abs(p - q), js_divergence(*outputs), js_divergence(a, b), kl_divergence(a, b)])
    means = np.mean(rows, axis=0)
    return Divergence(*(float(x) for x in means))


def attention_shape(outputs: Outputs, documents: Iterable[int]) -> AttentionShape:
    """Measure how concentrated a model's attention is on some documents, by their ids."""
    largest, share = [], []
    for key in documents:
        log = outputs.log_weights[key].double()  # [n]
        largest.append(float(log.max().exp()))
        if len(log) > 1:
            share.append(entropy(log) / float(np.log(len(log))))
    return AttentionShape(float(np.mean(largest)), float(np.mean(share)) if share else None)
