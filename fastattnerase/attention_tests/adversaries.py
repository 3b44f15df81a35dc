"""Is there quite other attention with the same output? Found by gradient descent on weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastattnerase.attention_tests.instances import Instance, chosen, described
from fastattnerase.batch import AttentionBatch
from fastattnerase.data.dataset import Dataset
from fastattnerase.models.base import AttentionClassifier
from fastattnerase.statistics.attention import attention_weights, js_divergences

Floats = NDArray[np.float64]
Rule = Literal["code", "paper"]

_POSITIONS = 8192  # of a bucket, padding included: its arrays stay in the processor's cache
_SPREAD = 1.25  # longest against shortest instance of a bucket
_NOISE = 3.0  # deviation of the logits at the start
_RATE = 0.01
_OUTSIDE = -1e9  # the logit of padding: no weight, no derivative


@dataclass(frozen=True)
class Search:
    """How adversarial attention is sought.

    Attributes:
        count: Adversaries of each instance, sought together, K.
        steps: Steps of Adam (AMSGrad, rate 0.01).
        strength: Factor λ of what an output moves beyond its slack.
        slack: How far an output may move at no cost, as total variation distance.
        pair_weight: Factor of the divergence of two adversaries, each pair counted once.
        seed: Seed of the weights at the start, which depend on it and on the instance's id alone.

    Raises:
        ValueError: a number out of range.
    """

    count: int = 5
    steps: int = 500
    strength: float = 500.0
    slack: float = 0.01
    pair_weight: float = 2 / 25
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("count", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: given {getattr(self, name)}, needed at least 1")
        for name in ("strength", "slack", "pair_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: given {getattr(self, name)}, needed a number from 0")
        if self.seed < 0:
            raise ValueError(f"seed: given {self.seed}, needed at least 0")


def published_search(
    rule: Rule,
    *,
    one_logit: bool,
    query: bool = False,
    count: int = 5,
    steps: int = 500,
    seed: int = 0,
) -> Search:
    """Give the search of Jain & Wallace, by the letter of their paper or as their code has it.

    | | code | paper |
    | --- | --- | --- |
    | slack, as total variation distance | 0.01; of a softmax 0.005 | 0.01; with a query 0.05 |
    | λ | 500; of a softmax 1000 | 500 |
    | weight of a pair | `2 / K²`, the mean over ordered pairs | `1 / (K (K − 1))` |

    The code does not halve the difference of a softmax's probabilities.

    Args:
        rule: `code` or `paper`.
        one_logit: whether the output is a sigmoid.
        query: whether the task has a query (question answering, inference).
        count: adversaries of each instance.
        steps: of Adam.
        seed: of the start.

    Returns:
        The search.

    Example:
        >>> published_search("code", one_logit=False).slack
        0.005
    """
    if rule == "code":
        half = 1 if one_logit else 2
        weight = 2 / count**2
        return Search(count, steps, 500.0 * half, 0.01 / half, weight, seed)
    weight = 1 / (count * (count - 1)) if count > 1 else 0.0
    return Search(count, steps, 500.0, 0.05 if query else 0.01, weight, seed)


def published_limit(rule: Rule, *, query: bool = False) -> float:
    """Give the largest total variation distance at which an adversary counts.

    Args:
        rule: `code`: 0.05 for every task; `paper`: 0.01, with a query 0.05.
        query: whether the task has a query.

    Example:
        >>> published_limit("code"), published_limit("paper")
        (0.05, 0.01)
    """
    return 0.05 if rule == "code" or query else 0.01


@dataclass(frozen=True)
class Adversaries:
    """What was found for one instance, computed from the weights in float64.

    Attributes:
        weights: `[K, n]` float32, the adversarial weights.
        jsd: `[K]` float64, Jensen-Shannon divergence from the instance's own weights, nats.
        tvd: `[K]` float64, total variation distance from the instance's own output.
    """

    weights: NDArray[np.float32]
    jsd: Floats
    tvd: Floats

    def best(self, limit: float) -> int:
        """Give the most different one whose output has not moved further than a limit.

        Returns:
            Its number; -1 where the instance's own weights, which are always admissible with a
            divergence of 0, are the best.
        """
        jsd = np.where(self.tvd <= limit, self.jsd, -1.0)
        return int(jsd.argmax()) if jsd.max(initial=-1.0) > 0 else -1

    def selected(self, limit: float, own: Floats) -> tuple[Floats, float, float]:
        """Give the weights `[n]` of `best`, their divergence and how far the output moves.

        Args:
            limit: of what the output moves.
            own: `[n]`, the instance's own weights, which stand with 0 and 0 where none is better.
        """
        best = self.best(limit)
        if best < 0:
            return own, 0.0, 0.0
        return self.weights[best].astype(np.float64), float(self.jsd[best]), float(self.tvd[best])


def adversarial_attention(
    batch: AttentionBatch,
    search: Search,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Adversaries]:
    """Seek attention weights that differ from an instance's own, and from each other.

    For each instance the values, and what the head adds to them, are fixed. Minimised over `K`
    rows of logits, with `a_k` their softmax, `â` the own weights and `D_k` the total variation
    distance of the outputs:
    `Σ_k [−JSD(a_k, â) + λ max(D_k − slack, 0)] − w Σ_{k<k'} JSD(a_k, a_k')`.
    No step calls the model: of a linear head's items only their class scores matter, which are
    computed once; a callable head is called on the averages. Instances of similar length are
    optimised together, which changes none of them: derivatives of one know nothing of another.

    Args:
        batch: B instances of T items, one attention head; the search runs where they are.
        search: how.
        progress: told the share of the instances that is done.

    Returns:
        For each instance what was found; without items, K empty rows.

    Raises:
        ValueError: several attention heads.

    Source:
        Jain & Wallace 2019, section 4.2.2, and their code.

    Example:
        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.zeros(3, 1), torch.tensor([0, 3]), weights=torch.tensor([0.8, 0.1, 0.1]),
        ...     head_weight=torch.ones(2, 1))
        >>> [found] = adversarial_attention(batch, Search(steps=20))
        >>> found.tvd.tolist(), found.weights.shape
        ([0.0, 0.0, 0.0, 0.0, 0.0], (5, 3))
    """
    if batch.num_heads > 1:
        raise ValueError(
            f"batch: given {batch.num_heads} attention heads, needed one for adversarial attention"
        )
    decoder = _Decoder(batch)
    offsets = batch.offsets.tolist()
    own = attention_weights(batch)  # [T]
    keys = range(len(offsets) - 1) if batch.ids is None else batch.ids.tolist()
    lengths = [end - start for start, end in itertools.pairwise(offsets)]
    found: dict[int, Adversaries] = {}
    for bucket in buckets(lengths):
        found |= _bucket(decoder, [keys[i] for i in bucket], bucket, offsets, own, search)
        progress(len(found) / len(lengths))
    return [found[i] for i in range(len(lengths))]


def sought(
    model: AttentionClassifier,
    dataset: Dataset,
    search: Search,
    *,
    rows: Sequence[int] | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Iterator[tuple[Instance, Floats, Adversaries]]:
    """Seek adversarial attention for a model's documents.

    Args:
        model: a model whose items are words.
        dataset: the documents.
        search: how.
        rows: of the documents to look at, ascending; default: all.
        progress: told the share of the documents that is done.

    Yields:
        Each document, its own weights `[n]`, and what was found.

    Example:
        >>> for one, own, found in sought(model, prepared.test, Search()):  # doctest: +SKIP
        ...     print(one.row, found.jsd[found.best(0.05)])
    """
    wanted = list(range(len(dataset)) if rows is None else rows)
    done = 0
    for batch, logits in model.attention_outputs(chosen(dataset, wanted)):
        count, begun = len(logits), done

        def report(share: float, begun: int = begun, count: int = count) -> None:
            progress((begun + share * count) / len(wanted))

        done += count
        found = adversarial_attention(batch, search, report)
        for (one, own), adversaries in zip(
            described(batch, logits, wanted[begun:done]), found, strict=True
        ):
            yield one, own, adversaries


def buckets(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group instances of similar length, by their numbers; the shortest first.

    Example:
        >>> list(buckets([9, 2, 8, 2]))
        [[1, 3], [2, 0]]
    """
    bucket: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        long = lengths[index]
        if bucket and (
            long > max(_SPREAD * lengths[bucket[0]], 1) or long * (len(bucket) + 1) > _POSITIONS
        ):
            yield bucket
            bucket = []
        bucket.append(index)
    if bucket:
        yield bucket


class _Decoder:
    """From averages of what items have, `[..., D]`, to probabilities, and derivatives by them."""

    def __init__(self, batch: AttentionBatch) -> None:
        self.batch = batch
        self.is_linear = batch.head is None
        values = batch.packed[0]  # [T, 1, D]
        if self.is_linear:
            weight, self.bias = batch.linear_head  # [C, 1, D], [C] or [B, C]
            self.items = values.flatten(1).double() @ weight.flatten(1).double().T  # [T, C]
            self.bias = self.bias.double()
        else:
            self.items = values.flatten(1).detach()  # [T, D]

    def probabilities(self, averages: Tensor, instances: Tensor) -> Tensor:
        """Compute `[B, K, C]` float64 from averages `[B, K, D]` of some instances `[B]`."""
        if self.is_linear:
            bias = self.bias if self.bias.ndim == 1 else self.bias[instances][:, None]
            return (averages.double() + bias).softmax(-1)
        with torch.no_grad():
            logits = self._call(averages, instances)
        return logits.double().reshape(*averages.shape[:2], -1).softmax(-1)

    def penalty_gradient(
        self, averages: Tensor, instances: Tensor, target: Tensor, search: Search
    ) -> Tensor:
        """Differentiate `λ max(½ Σ_c |p_c − target_c| − slack, 0)` by averages: `[B, K, D]`."""
        if self.is_linear:
            bias = self.bias.float()
            bias = bias if bias.ndim == 1 else bias[instances][:, None]
            p = (averages + bias).softmax(-1)  # [B, K, C]
            moved = p - target
            beyond = moved.abs().sum(-1, keepdim=True) / 2 > search.slack  # [B, K, 1]
            signs = moved.sign() * (beyond * (search.strength / 2))
            return p * (signs - (p * signs).sum(-1, keepdim=True))
        with torch.enable_grad():
            inputs = averages.detach().requires_grad_()  # [B, K, D]
            logits = self._call(inputs, instances).reshape(*averages.shape[:2], -1)
            p = logits.softmax(-1)  # [B, K, C]
            beyond = ((p - target).abs().sum(-1) / 2 - search.slack).relu()  # [B, K]
            [gradient] = torch.autograd.grad(search.strength * beyond.sum(), inputs)
        return gradient

    def _call(self, averages: Tensor, instances: Tensor) -> Tensor:
        """Call the head on averages `[B, K, D]`: logits `[B K, C]`."""
        count = averages.shape[1]
        pooled = averages.flatten(0, 1)[:, None]  # [BK, 1, D]
        return self.batch.call_head(pooled, instances.repeat_interleave(count))


def _bucket(
    decoder: _Decoder,
    keys: Sequence[int],
    bucket: Sequence[int],
    offsets: Sequence[int],
    own: Floats,
    search: Search,
) -> dict[int, Adversaries]:
    """Search for instances of similar length together, and compute what was found in float64."""
    lengths = [offsets[i + 1] - offsets[i] for i in bucket]
    shape = len(bucket), search.count, max(lengths)
    logits = torch.full(shape, _OUTSIDE)  # [B, K, N]
    items = decoder.items.new_zeros(len(bucket), shape[2], decoder.items.shape[1])  # [B, N, D]
    weights = torch.zeros(len(bucket), 1, shape[2], dtype=torch.float64)  # [B, 1, N]
    for place, (i, key, n) in enumerate(zip(bucket, keys, lengths, strict=True)):
        noise = np.random.default_rng([search.seed, key]).normal(0.0, _NOISE, (search.count, n))
        logits[place, :, :n] = torch.from_numpy(noise)
        items[place, :n] = decoder.items[offsets[i] : offsets[i + 1]]
        weights[place, 0, :n] = torch.from_numpy(own[offsets[i] : offsets[i + 1]])
    device = items.device
    logits, weights = logits.to(device), weights.to(device)
    instances = torch.tensor(bucket, device=device)
    target = decoder.probabilities(weights.to(items.dtype) @ items, instances)  # [B, 1, C]
    found = _descend(decoder, logits, items, weights, instances, target, search)  # [B, K, N]
    exact = found.double()
    exact = exact / exact.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    p = decoder.probabilities(exact.to(items.dtype) @ items, instances)  # [B, K, C]
    tvd = ((p - target).abs().sum(-1) / 2).cpu().numpy()  # [B, K]
    jsd = js_divergences(exact.cpu().numpy(), weights.cpu().numpy())  # [B, K]
    found = found.cpu()
    return {
        i: Adversaries(found[place, :, :n].numpy().copy(), jsd[place], tvd[place])
        for place, (i, n) in enumerate(zip(bucket, lengths, strict=True))
    }


def _descend(
    decoder: _Decoder,
    logits: Tensor,
    items: Tensor,
    weights: Tensor,
    instances: Tensor,
    target: Tensor,
    search: Search,
) -> Tensor:
    """Take the steps of the search from logits `[B, K, N]`; give weights `[B, K, N]` float32."""
    items, own, target = items.float(), weights.float(), target.float()
    count = search.count
    first, second = torch.triu_indices(count, count, 1, device=logits.device)  # [P]: pairs, once
    ks = torch.arange(count, device=logits.device)[:, None]  # [K, 1]
    belongs = ((ks == first) | (ks == second)).float()  # [K, P]
    tiny = torch.finfo(torch.float32).tiny
    optimiser = torch.optim.Adam([logits], lr=_RATE, amsgrad=True)
    for _ in range(search.steps):
        logs = logits.log_softmax(-1)  # [B, K, N]
        a = logs.exp()
        # ∂JSD(a, b)/∂a = ½ ln(a / m), m = (a + b)/2, where a and b sum to 1.
        between = ((a[:, first] + a[:, second]) / 2).clamp_min(tiny).log()  # [B, P, N]
        slope = ((a + own) / 2).clamp_min(tiny).log() - logs
        slope += search.pair_weight * (belongs @ between - (count - 1) * logs)
        slope /= 2
        by_average = decoder.penalty_gradient(a @ items, instances, target, search)  # [B, K, D]
        slope += by_average @ items.transpose(1, 2)
        logits.grad = a * (slope - (a * slope).sum(-1, keepdim=True))
        optimiser.step()
    return logits.softmax(-1)
