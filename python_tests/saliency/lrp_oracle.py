"""Relevance of one document by loops over numbers: each rule as it is written, nothing shared."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastattnerase.data import Dataset, collate
from fastattnerase.models import AttentionClassifier
from fastattnerase.models.packed import offsets_of

Array = NDArray[np.float64]


def array(tensor: Any) -> Array:
    return np.asarray(tensor.detach().double().cpu().numpy())


@dataclass
class Oracle:
    """The linear rule with its two numbers, and what sinks have taken so far."""

    epsilon: float
    delta: int
    sinks: dict[str, float] = field(default_factory=dict)

    def linear(
        self, inputs: list[tuple[Array, Array]], bias: Array, relevance: Array
    ) -> list[Array]:
        """Blocks of inputs `x [I]` with their weights `w [J, I]`: the relevance of each."""
        count = sum(len(x) for x, _ in inputs)
        found = [np.zeros(len(x)) for x, _ in inputs]
        for j in range(len(relevance)):
            z = bias[j] + sum(w[j, i] * x[i] for x, w in inputs for i in range(len(x)))
            stabiliser = self.epsilon if z >= 0 else -self.epsilon
            for out, (x, w) in zip(found, inputs, strict=True):
                for i in range(len(x)):
                    part = x[i] * w[j, i] + (stabiliser + self.delta * bias[j]) / count
                    out[i] += part / (z + stabiliser) * relevance[j]
        return found

    def add(self, name: str, amount: float) -> None:
        self.sinks[name] = self.sinks.get(name, 0.0) + amount


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm(module: Any, x: Array, relevance: Array, oracle: Oracle, name: str) -> Array:
    """Relevance of the inputs `[n, E]` from that of the states `[n, H]`."""
    w, u = array(module.weight_ih_l0), array(module.weight_hh_l0)
    b = array(module.bias_ih_l0) + array(module.bias_hh_l0)
    size = u.shape[1]
    h, c = [np.zeros(size)], [np.zeros(size)]
    gates = []
    for t in range(len(x)):
        i, f, g, o = np.split(w @ x[t] + u @ h[t] + b, 4)
        gates.append((sigmoid(i), sigmoid(f), np.tanh(g)))
        c.append(sigmoid(f) * c[t] + sigmoid(i) * np.tanh(g))
        h.append(sigmoid(o) * np.tanh(c[t + 1]))
    ws, us, bs = (np.split(part, 4)[2] for part in (w, u, b))
    found = np.zeros_like(x)
    to_h, to_c = np.zeros(size), np.zeros(size)
    for t in reversed(range(len(x))):
        i, f, g = gates[t]
        to_c = to_c + to_h + relevance[t]
        both = [(f * c[t], np.eye(size)), (i * g, np.eye(size))]
        to_c, to_g = oracle.linear(both, np.zeros(size), to_c)
        found[t], to_h = oracle.linear([(x[t], ws), (h[t], us)], bs, to_g)
    oracle.add(f"{name}_h_0", to_h.sum())
    oracle.add(f"{name}_c_0", to_c.sum())
    return found


def gru(module: Any, x: Array, relevance: Array, oracle: Oracle, name: str) -> Array:
    w, u = array(module.weight_ih_l0), array(module.weight_hh_l0)
    b, d = array(module.bias_ih_l0), array(module.bias_hh_l0)
    size = u.shape[1]
    h = [np.zeros(size)]
    gates = []
    for t in range(len(x)):
        (wr, wz, wn), (ur, uz, un) = np.split(w @ x[t] + b, 3), np.split(u @ h[t] + d, 3)
        r, z = sigmoid(wr + ur), sigmoid(wz + uz)
        n = np.tanh(wn + r * un)
        gates.append((r, z, n))
        h.append((1 - z) * n + z * h[t])
    wn, un, bn, dn = (np.split(part, 3)[2] for part in (w, u, b, d))
    found = np.zeros_like(x)
    to_h = np.zeros(size)
    for t in reversed(range(len(x))):
        r, z, n = gates[t]
        both = [((1 - z) * n, np.eye(size)), (z * h[t], np.eye(size))]
        to_n, kept = oracle.linear(both, np.zeros(size), to_h + relevance[t])
        blocks = [(x[t], wn), (h[t], r[:, None] * un)]
        found[t], back = oracle.linear(blocks, bn + r * dn, to_n)
        to_h = kept + back
    oracle.add(f"{name}_h_0", to_h.sum())
    return found


def encoder(module: Any, x: Array, relevance: Array, oracle: Oracle, name: str) -> Array:
    kind = type(module).__name__
    if kind in ("LSTMEncoder", "GRUEncoder"):
        run = lstm if kind == "LSTMEncoder" else gru
        half = relevance.shape[1] // 2
        inner = Oracle(oracle.epsilon, oracle.delta)
        ahead = run(module.ahead, x, relevance[:, :half], inner, "ahead")
        back = run(module.back, x[::-1], relevance[::-1, half:], inner, "back")[::-1]
        for key, amount in inner.sinks.items():
            direction, state = key.split("_", 1)
            oracle.add(f"{name}_{state}_{direction}", amount)
        return np.asarray(ahead + back)
    found = np.zeros_like(x)
    if kind == "NoEncoder":
        return relevance
    if kind == "MLPEncoder":
        w, b = array(module.layer.weight), array(module.layer.bias)
        for t in range(len(x)):
            [found[t]] = oracle.linear([(x[t], w)], b, relevance[t])
        return found
    first = 0
    for convolution in module.convolutions:
        w, b = array(convolution.weight), array(convolution.bias)  # [F, I, K], [F]
        channels, _, width = w.shape
        for t in range(len(x)):
            places = [p for p in range(t - width // 2, t + width // 2 + 1) if 0 <= p < len(x)]
            blocks = [(x[p], w[:, :, p - t + width // 2]) for p in places]
            parts = oracle.linear(blocks, b, relevance[t, first : first + channels])
            for p, part in zip(places, parts, strict=True):
                found[p] += part
        first += channels
    return found


def average(values: Array, weights: Array, relevance: Array, oracle: Oracle) -> Array:
    """The linear rule, feature by feature, with the items as its inputs."""
    found = np.zeros_like(values)
    for d in range(values.shape[1]):
        block = (values[:, d], weights[None, :])
        [found[:, d]] = oracle.linear([block], np.zeros(1), relevance[d : d + 1])
    return found


def head(
    model: Any, vector: Array, query: Array | None, lowered: Array, target: int, oracle: Oracle
) -> tuple[float, Array]:
    """The output and the relevance of the averaged vector."""
    w, b = array(model.classifier.weight), array(model.classifier.bias)
    if model.config.head == "sigmoid":
        w, b = (w, b) if target == 1 else (-w, -b)
        target = 0
    one = slice(target, target + 1)
    w, b = w[one], (b - lowered)[one] if len(lowered) else b[one]
    if query is None or model.config.decoder == "linear":
        z = float(w[0] @ vector + b[0])
        [found] = oracle.linear([(vector, w)], b, np.array([z]))
        return z, found
    if model.config.decoder == "query":
        blocks = [(vector, w), (query, array(model.query_classifier.weight)[one])]
        z = float(sum(v[0] @ x for x, v in blocks) + b[0])
        found, asked = oracle.linear(blocks, b, np.array([z]))
    else:
        blocks = [
            (vector, array(model.project.weight)),
            (query, array(model.project_query.weight)),
        ]
        own = array(model.project.bias) + array(model.project_query.bias)
        hidden = np.tanh(sum(v @ x for x, v in blocks) + own)
        z = float(w[0] @ hidden + b[0])
        [to_hidden] = oracle.linear([(hidden, w)], b, np.array([z]))
        found, asked = oracle.linear(blocks, own, to_hidden)
    oracle.add("query", asked.sum())
    return z, found


def relevance_of(
    model: AttentionClassifier, dataset: Dataset, target: int, epsilon: float, delta: int
) -> tuple[Array, dict[str, float], float]:
    """Words `[n]`, sinks and output of the one document of a data set, model in float64."""
    oracle = Oracle(epsilon, delta)
    batch = collate(dataset.documents)
    given: Any = model.eval()
    with torch.no_grad():
        output = model(batch)
        words = array(model.embed(batch))
    marked = model.config.kind in ("sequence", "pair")
    layer = given.sentences if model.config.kind == "han" else given.words
    values, weights = array(output.values), array(output.weights)
    query = None if output.query is None else array(output.query)[0]
    lowered = given.lowered(batch) if model.config.kind == "pair" else None
    z, relevance = head(
        given,
        weights @ values,
        query,
        np.zeros(0) if lowered is None else array(lowered)[0],
        target,
        oracle,
    )
    to_values = average(values, weights, relevance, oracle)
    if model.config.kind == "han":
        lengths = batch.sentence_lengths
        with torch.no_grad():
            below = given.words(model.embed(batch), lengths, given.sentence_keys(batch))
        to_sentences = encoder(layer.encoder, array(below.vectors), to_values, oracle, "sentences")
        found = np.zeros_like(words)
        ends = offsets_of(lengths).tolist()
        for s, (a, e) in enumerate(pairwise(ends)):
            own_values, own_weights = array(below.values)[a:e], array(below.weights)[a:e]
            down = average(own_values, own_weights, to_sentences[s], oracle)
            found[a:e] = encoder(given.words.encoder, words[a:e], down, oracle, "words")
        return found.sum(1), oracle.sinks, z
    if not marked:
        found = encoder(layer.encoder, words, to_values, oracle, "words")
        return found.sum(1), oracle.sinks, z
    markers = array(given.markers)
    rows = np.concatenate([markers[:1], words, markers[1:]])
    nothing = np.zeros((1, to_values.shape[1]))
    down = np.concatenate([nothing, to_values, nothing])
    found = encoder(layer.encoder, rows, down, oracle, "words")
    oracle.add("words_start_marker", found[0].sum())
    oracle.add("words_end_marker", found[-1].sum())
    return found[1:-1].sum(1), oracle.sinks, z


def error_of(scores: Array, sinks: dict[str, float], output: float) -> float:
    total = math.fsum(scores) + math.fsum(sinks.values())
    size = max(abs(output), math.fsum(abs(scores)) + math.fsum(map(abs, sinks.values())))
    return abs(total - output) / size
