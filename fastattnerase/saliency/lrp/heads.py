"""Relevance through the head: from the output to the averages of attention, and to the query."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fastattnerase.data.dataset import DocumentBatch
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.models.errors import ModelError
from fastattnerase.models.pair import PairClassifier
from fastattnerase.saliency.lrp.rules import Rule, linear_inputs, linear_units


def through_head(
    model: AttentionClassifier,
    vectors: Tensor,
    query: Tensor | None,
    batch: DocumentBatch,
    target: Tensor,
    rule: Rule,
    *,
    margin: bool,
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Compute the output in float64 and pass its relevance, `f_c`, to what the head reads.

    The output is one linear unit: `z_c`, for the margin the difference of two, of a head with the
    one logit `z` either `z` or `−z`. Of two texts what an answer that is not allowed loses is part
    of the unit's bias.

    Args:
        model: whose head it is.
        vectors: `[B, D]`, float64, averages of the last attention layer.
        query: `[B, D]`, float64, of two texts.
        batch: the documents.
        target: `[B]`, int64, `c`.
        rule: `ε` and `δ`.
        margin: whether the output is `z_c − max_{c'≠c} z_{c'}`.

    Returns:
        `f_c` `[B]`, the relevance of the averages `[B, D]`, and the sink `query` `[B]` of models
        of two texts.

    Raises:
        ModelError: the classifier is no linear layer.
    """
    if type(model.classifier) is not nn.Linear:
        raise ModelError(
            f"layer: given classifier, a {type(model.classifier).__name__}, for which LRP has no "
            "rule, needed a Linear"
        )
    weight, bias = model.classifier.weight.double(), model.classifier.bias.double()  # [C, A], [C]
    if not isinstance(model, PairClassifier):
        output, relevance = _through_unit(model, vectors, weight, bias, target, rule, margin)
        return output, relevance, {}
    assert query is not None
    lowered = model.lowered(batch)  # [B, C]
    if lowered is not None:
        bias = bias - lowered.double()  # [B, C]
    width = vectors.shape[1]
    both = torch.cat([vectors, query], 1)  # [B, 2D]
    if model.config.decoder == "linear":
        output, relevance = _through_unit(model, vectors, weight, bias, target, rule, margin)
        return output, relevance, {"query": torch.zeros_like(output)}
    if model.config.decoder == "query":
        weight = torch.cat([weight, model.query_classifier.weight.double()], 1)  # [C, 2D]
        output, relevance = _through_unit(model, both, weight, bias, target, rule, margin)
    else:
        layers = (model.project, model.project_query)
        project = torch.cat([layer.weight.double() for layer in layers], 1)  # [A, 2D]
        own = layers[0].bias.double() + layers[1].bias.double()  # [A]
        hidden = both @ project.T + own  # [B, A]
        output, to_hidden = _through_unit(
            model, hidden.tanh(), weight, bias, target, rule, margin
        )  # [B], [B, A]
        units = linear_units(to_hidden, hidden, own, 2 * width, rule)
        relevance = linear_inputs(both, project, units)  # [B, 2D]
    return output, relevance[:, :width], {"query": relevance[:, width:].sum(1)}


def _through_unit(
    model: AttentionClassifier,
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    target: Tensor,
    rule: Rule,
    margin: bool,
) -> tuple[Tensor, Tensor]:
    """Give the output `[B]` of the classifier's unit, and the relevance of inputs `[B, A]`.

    `weight` is `[C, A]`, `bias` `[C]` or that of each document `[B, C]`.
    """
    bias = bias.expand(len(inputs), -1)  # [B, C]
    column = target[:, None]  # [B, 1]
    if model.config.head == "sigmoid":
        sign = 2.0 * column - 1  # [B, 1]
        of_unit, own = weight[0] * sign, bias * sign  # [B, A], [B, 1]
    else:
        of_unit, own = weight[target], bias.gather(1, column)
        if margin:
            logits = inputs @ weight.T + bias  # [B, C]
            rival = logits.scatter(1, column, -torch.inf).argmax(1)  # [B]
            of_unit = of_unit - weight[rival]
            own = own - bias.gather(1, rival[:, None])
    parts = inputs * of_unit  # [B, A]
    output = parts.sum(1, keepdim=True) + own  # [B, 1]
    ratio, share = linear_units(output, output, own, inputs.shape[1], rule)  # [B, 1] both
    return output[:, 0], parts * ratio + share
