"""The public function that permutes attention weights; for callable heads its computation."""

from __future__ import annotations

import torch
from torch import Tensor

from fastattnerase.batch import AttentionBatch
from fastattnerase.choices import BackendName
from fastattnerase.ops.callable_head import left_as_found
from fastattnerase.ops.callable_instance import TEMPORARIES, CheckedHead
from fastattnerase.ops.library import permute_op
from fastattnerase.ops.permutations import permutation_orders
from fastattnerase.ops.plan import plan_rankings
from fastattnerase.ops.results import PermutedWeights
from fastattnerase.ops.running import DEFAULT_MAX_BYTES, check_batch, check_seed, run
from fastattnerase.problem import BIT, PermutedOutputs
from fastattnerase.status import Status


def permute(
    batch: AttentionBatch,
    permutations: int = 100,
    *,
    seed: int = 0,
    backend: BackendName = "auto",
    validate: bool | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> PermutedWeights:
    """Permute the attention weights within each instance and see how far the output moves.

    Under permutation `p` the logits are `Σ_i a_{π_p(i)} W h_i + b` with the normalised weights `a`:
    item `i` is given the weight of item `π_p(i)`. `π_p` is the order of number `2^33 + p` of the
    ranking "random": it depends on the seed, `p`, the instance's id and its length alone. Several
    attention heads move together. Each item is projected once, whatever the number of permutations;
    weights that are all equal give 0 exactly.

    Args:
        batch: B instances of T items in all.
        permutations: P, 1 or more, 100 by default.
        seed: of the permutations, 0 … 2^63 - 1, 0 by default.
        backend: "auto" or the name of one; see `backends()`. With a linear head one that cannot
            permute refuses; for a callable head it is what computes the original output.
        validate: whether contents are checked; None: on for CPU tensors, off for GPU tensors.
        max_bytes: what the pooled vectors of a callable head may take at a time.

    Returns:
        A `PermutedWeights`: `tvd` [P, B], `median` [B], `flips` [B], `label`, `probabilities`,
        `status`.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.
        RuntimeError: where a named backend cannot run this, with its reasons.

    Source: Jain and Wallace 2019, section 4.2.1 (100 permutations, the median).

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 3]), weights=torch.tensor([0.8, 0.1, 0.1]),
    ...     head_weight=torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]]),
    ... )
    >>> result = fae.permute(batch, 6, seed=1)
    >>> [round(d, 2) for d in result.tvd[:, 0].tolist()], result.flips.tolist()
    ([0.89, 0.0, 0.89, 0.0, 0.89, 0.89], [4])
    """
    check_batch(batch)
    if permutations < 1:
        raise ValueError(f"permutations: given {permutations}, needed 1 or more")
    check_seed(seed)
    if validate is None:
        validate = batch.device.type == "cpu"
    if batch.head is not None:
        out = _permute_callable(batch, permutations, seed, backend, validate, max_bytes)
    else:
        results: list[Tensor] = permute_op(
            *batch.packed,
            *batch.linear_head,
            batch.ids,
            permutations,
            seed,
            backend,
            validate,
        )
        out = PermutedOutputs(*results)
    return PermutedWeights(
        out.tvd, out.flips, out.label, out.probabilities, out.status, batch.offsets
    )


def _permute_callable(
    batch: AttentionBatch,
    permutations: int,
    seed: int,
    backend: BackendName,
    validate: bool,
    max_bytes: int,
) -> PermutedOutputs:
    """Do what the operator does, with a head that is any callable."""
    plan, wants = plan_rankings(batch, (), 1), BIT["logits"] | BIT["weights"]
    found = run(batch, plan, wants, seed, False, backend, validate, max_bytes)
    assert found.logits is not None  # asked for
    assert found.weights is not None
    values, offsets, *_ = batch.packed
    out = PermutedOutputs.allocate(values, offsets, found.logits.shape[1], permutations)
    out.label.copy_(found.label)
    out.probabilities.copy_(found.probabilities)
    out.status.copy_(found.status)
    out.tvd.fill_(torch.nan)
    out.flips.fill_(-1)
    with torch.inference_mode(False), torch.no_grad(), left_as_found(batch):
        head = CheckedHead(batch, max_bytes)
        bounds = batch.offsets.tolist()
        for b in (found.label >= 0).nonzero().flatten().tolist():
            own = found.weights[bounds[b] : bounds[b + 1]]
            _permute_one(batch[b], b, seed, own, found.logits[b].double(), head, max_bytes, out)
    return out


def _permute_one(
    batch: AttentionBatch,
    b: int,
    seed: int,
    weights: Tensor,
    original: Tensor,
    head: CheckedHead,
    max_bytes: int,
    out: PermutedOutputs,
) -> None:
    """Fill the results of instance `b`, a batch of its own, from its weights [n, H] and logits [C].

    `head` is that of the whole batch.
    """
    values = batch.packed[0]  # [n, H, D]
    moved_bytes = 32 * weights.numel()  # of a permutation: its order, the weights, what compares
    most = max(1, min(head.chunk // TEMPORARIES, max_bytes // max(1, moved_bytes)))
    y, bad = original.argmax(), False
    out.flips[b] = 0
    for rows, orders in permutation_orders(batch, len(out.tvd), seed, most):
        moved = weights[orders.to(weights.device)]  # [m, n, H]
        pooled = weights.new_zeros(len(moved), *values.shape[1:])  # [m, H, D], float64
        # Item by item, in position order: the rounding of a matrix product may depend on its shape.
        for i, value in enumerate(values.double()):
            pooled.addcmul_(moved[:, i, :, None], value)
        instances = torch.full((len(moved),), b, device=pooled.device)  # [m]
        logits = head(pooled.to(head.real), instances)  # [m, C]
        # A head may round a row by its place in the chunk: where no weight moves nothing does.
        logits = original.where((moved == weights).all(2).all(1)[:, None], logits)
        apart = (logits.softmax(1) - original.softmax(0)).abs().sum(1) / 2  # [m]
        out.tvd[rows, b] = apart.to(out.tvd.dtype)
        out.flips[b] += (logits.argmax(1) != y).sum()
        bad |= not bool(logits.isfinite().all())
    if bad:
        out.status[b] |= int(Status.NON_FINITE)
        out.flips[b] = -1
