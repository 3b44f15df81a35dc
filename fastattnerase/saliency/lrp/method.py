"""The method `lrp`: relevance of the words, what else took relevance, and what was lost."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn

from fastattnerase.data.dataset import Dataset, collate
from fastattnerase.models.encoders import Encoder
from fastattnerase.models.errors import ModelError
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.lrp.models import explain
from fastattnerase.saliency.lrp.rules import checked_rule
from fastattnerase.saliency.registry import Method

SINK = "sink_"  # before the names of sinks among the details
_FLOAT = 8  # bytes: relevance grows to thousands where an output is near 0, and cancels


def score(
    context: MethodContext, dataset: Dataset, *, epsilon: float = 1e-3, delta: int = 1
) -> Iterator[Scored]:
    """Pass the output's relevance `f_c` down to the words, layer by layer, in float64.

    Each unit `z_j = Σ_i x_i w_ij + b_j` gives its inputs `R_i = Σ_j (x_i w_ij + (ε sign(z_j) +
    δ b_j) / N) / (z_j + ε sign(z_j)) R_j`; of a gate times a signal the signal gets all, and so do
    values of attention. The score of a word is the sum over its dimensions. What markers, initial
    states and the query get is in the details (`sink_…`); with `δ = 1` words and sinks add to the
    output, and `Attribution.delta` has the error of that, `|Σ R − f_c| / max(|f_c|, Σ|R|)`, NaN of
    a text without words.

    The detail `magnitude` is `Σ|R|` of words and sinks. Relevance of both signs grows where a
    cell's two parts nearly cancel, step after step: through hundreds of recurrent steps `magnitude`
    may be many orders of magnitude above the output. It is conserved then, but says little: a
    larger `epsilon`, such as 0.01, holds it.

    Args:
        context: a classifier of this package; its output is the logit or the margin.
        dataset: the documents.
        epsilon: `ε`, 0 or more.
        delta: `δ`, 0 or 1.

    Raises:
        ModelError: a layer without a rule, the probability as output, numbers out of range; with
            `ε = 0` a unit that is exactly 0 and has relevance to pass on.
    """
    rule = checked_rule(epsilon, delta)
    model = context.attention_classifier("lrp")
    if context.output == "probability":
        raise ModelError(
            "output: given probability, needed logit or margin for lrp, which passes on what the "
            "inputs of a linear unit add up to; a softmax is no such sum"
        )
    for pairs in context.chunks(dataset):
        batch = collate([document for _, document in pairs]).to(context.device)
        with context.applying():
            words = context.embed(batch)  # [t, E]
            target = context.targets(context.logits(words, batch), pairs)  # [b]
            margin = context.output == "margin"
            found = explain(model, words, batch, target, rule, margin=margin)
        outputs, classes = found.output.tolist(), target.tolist()
        scores = torch.split(found.words.cpu(), batch.document_lengths.tolist())
        sinks = {SINK + name: total.tolist() for name, total in found.sinks.items()}
        for b, (place, document) in enumerate(pairs):
            taken = {name: totals[b] for name, totals in sinks.items()}
            error = conservation_error(scores[b], taken, outputs[b])
            if rule.epsilon == 0 and len(document) and not math.isfinite(error):
                raise ModelError(
                    f"epsilon: given 0, needed more for instance {place} (id {document.id}), where "
                    "a unit is exactly 0 and has relevance to pass on"
                )
            magnitude = _sum_of_sizes([*scores[b].tolist(), *taken.values()])
            numbers = {"output": outputs[b], "magnitude": magnitude}
            yield Scored(scores[b], classes[b], error, numbers | taken)


def conservation_error(scores: torch.Tensor, sinks: dict[str, float], output: float) -> float:
    """Compare what words and sinks got with the output: `|Σ R − f_c| / max(|f_c|, Σ|R|)`.

    Args:
        scores: `[n]`, float64, of the words.
        sinks: of everything else, by name.
        output: `f_c`.

    Returns:
        0 or more; NaN of a text without words, whose average has no items to pass relevance to.

    Example:
        >>> import torch
        >>> from fastattnerase.saliency.lrp.method import conservation_error
        >>> conservation_error(torch.tensor([3.0, -2.0]), {"query": 1.0}, 2.0)
        0.0
    """
    if not len(scores):
        return math.nan
    parts = [*scores.tolist(), *sinks.values()]
    largest = max(abs(output), _sum_of_sizes(parts))
    return abs(math.fsum(parts) - output) / largest if largest else 0.0


def _sum_of_sizes(parts: list[float]) -> float:
    return math.fsum(map(abs, parts))


def bytes_of_word(model: nn.Module) -> int:
    """Estimate what a word takes of memory: nine vectors as wide as its embedding, twenty as wide
    as the encoder's output, in float64.
    """
    embeddings = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    widths = [part.output_size for part in model.modules() if isinstance(part, Encoder)]
    embedded = max((part.embedding_dim for part in embeddings), default=1)
    return _FLOAT * (9 * embedded + 20 * max(widths, default=1))


METHOD = Method(
    name="lrp",
    family="propagation",
    doc="relevance of f_c passed down layer by layer, summed over the word's dimensions",
    source="Bach et al. 2015; Arras et al. 2017, 2019",
    score=score,
    has_delta=True,
    bytes_of_word=bytes_of_word,
)
