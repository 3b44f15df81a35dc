"""What a user would write without this library, from the plain loop to the strongest torch version.

Every baseline answers the same question about a batch: for the rankings `random`, `attention`,
`gradient` and `product`, the first prefix whose erasure changes the decision, the label it changes
to and the attention mass erased until then, from the decision after every prefix. They are
compared with the engine before anything is timed. Sums over survivors are float64 as the engine's
are; contributions are float32.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from problems import RANKINGS, Data
from torch import Tensor

BUCKET_ITEMS = 16_384  # padded items a bucket: the fastest of 4k, 16k and 64k at ten classes


@dataclass(frozen=True)
class Result:
    """What every baseline returns; rows in the order of `problems.RANKINGS`."""

    label: Tensor  # [B], int64
    first_flip: Tensor  # [R, B], int64, -1 for never
    flip_label: Tensor  # [R, B], int64, -1 for never
    removed_mass: Tensor  # [R, B], float64, NaN for never

    @staticmethod
    def empty(data: Data) -> Result:
        rows, device = (len(RANKINGS), data.instances), data.values.device
        return Result(
            torch.empty(data.instances, dtype=torch.int64, device=device),
            torch.empty(rows, dtype=torch.int64, device=device),
            torch.empty(rows, dtype=torch.int64, device=device),
            torch.empty(rows, dtype=torch.float64, device=device),
        )


def buckets(offsets: Tensor, limit: int) -> Iterator[tuple[Tensor, int]]:
    """Instances of similar length, `(instances [b], longest n)`, at most `limit` padded items."""
    order = torch.argsort(offsets.diff(), stable=True)  # [B]
    lengths = offsets.diff()[order].tolist()
    begin = 0
    while begin < len(lengths):
        ends = range(begin + 1, len(lengths) + 1)
        fitting = bisect_right(ends, limit, key=lambda end: (end - begin) * lengths[end - 1])
        end = begin + max(1, fitting)
        yield order[begin:end], lengths[end - 1]
        begin = end


def project(data: Data) -> Tensor:
    """Contributions of all items, `[T, C]`, float32."""
    if data.values.dtype == data.head_weight.dtype:
        return data.values @ data.head_weight.T
    # Half-precision values: float32 arithmetic on chunks, so that no full float32 copy exists.
    return torch.cat([part.float() @ data.head_weight.T for part in data.values.split(1 << 18)])


def _pad(data: Data, members: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where a bucket's items lie `[b, n]`, which of them exist `[b, n]`, their number `[b]`."""
    lengths = data.offsets.diff()[members]  # [b]
    columns = torch.arange(longest, device=data.offsets.device)
    index = (data.offsets[members][:, None] + columns).clamp_(max=data.items - 1)
    return index, columns < lengths[:, None], lengths


def _ranking_keys(
    random: Tensor, scores: Tensor, contributions: Tensor, weights: Tensor, z: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys of the four rankings, each `[b, n]`, from contributions `[b, n, C]`."""
    p = z.softmax(1).float()  # [b, C]
    own = contributions.gather(2, y[:, None, None].expand(-1, contributions.shape[1], 1))[..., 0]
    gradient = p.gather(1, y[:, None]) * (own - torch.einsum("bnc,bc->bn", contributions, p))
    return random, scores, gradient, gradient * weights


def sweep_bucket(
    contributions: Tensor,  # [b, n, C], float32
    scores: Tensor,  # [b, n], float32
    random: Tensor,  # [b, n], any dtype
    inside: Tensor,  # [b, n], bool
    lengths: Tensor,  # [b], int64
    bias: Tensor,  # [C], float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sweep of one padded bucket: label `[b]` and first flip, flip label, mass `[R, b]`.

    Classes are the outermost axis of the sums, so that scans run along memory and the decision is
    a vectorised maximum over classes: a fifth faster than classes innermost at ten classes.
    """
    classes, longest = contributions.shape[2], contributions.shape[1]
    weights = scores.double().masked_fill(~inside, -torch.inf).softmax(1)  # [b, n]
    weighted = (contributions * weights[..., None]).permute(2, 0, 1).contiguous()  # [C, b, n]
    z = weighted.sum(2).T + bias  # [b, C]
    y = z.argmax(1)  # [b]
    weighted.addcmul_(weights, bias[:, None, None])  # the decision is argmax(S + A b)
    never = y == bias.argmax()  # erasing everything does not flip either
    # Column r of a reversed order is prefix k = longest - 1 - r; padding is erased first.
    column = torch.arange(longest, device=scores.device)
    prefix = longest - 1 - column
    counted = (prefix >= 1) & (prefix < lengths[:, None])  # [b, n]
    flips, labels, masses = [], [], []
    for key in _ranking_keys(random, scores, contributions, weights, z, y):
        lowest = -torch.inf if key.is_floating_point() else torch.iinfo(key.dtype).min
        key = key.masked_fill(~inside, lowest)
        reversed_order = key.argsort(dim=1, descending=True, stable=True).flip(1)  # [b, n]
        sums = weighted.gather(2, reversed_order.expand(classes, -1, -1)).cumsum(2)  # [C, b, n]
        mass = weights.gather(1, reversed_order).cumsum(1)  # [b, n], of the survivors
        decision = sums.max(0).indices  # [b, n]
        flipped = (decision != y[:, None]) & counted
        last = (flipped * (column + 1)).amax(1)  # [b]: 1 + column of the first flip, 0 without
        at = (last - 1).clamp_min(0)[:, None]
        found = last > 0
        flips.append(torch.where(found, longest - last, torch.where(never, -1, lengths)))
        labels.append(
            torch.where(found, decision.gather(1, at)[:, 0], torch.where(never, -1, bias.argmax()))
        )
        masses.append(
            torch.where(found, 1 - mass.gather(1, at)[:, 0], torch.where(never, torch.nan, 1.0))
        )
    return y, torch.stack(flips), torch.stack(labels), torch.stack(masses)


def torch_sweep(
    data: Data,
    random: Tensor | None = None,
    bucket_items: int = BUCKET_ITEMS,
    step=sweep_bucket,
) -> Result:
    """Baseline (4): project all items once, then sweep length buckets in torch.

    `random` are keys `[T]` of the random ranking; None draws them with torch, as a user would.
    """
    contributions = project(data)  # [T, C]
    bias = data.head_bias.double()
    result = Result.empty(data)
    for members, longest in buckets(data.offsets, bucket_items):
        index, inside, lengths = _pad(data, members, longest)
        keys = torch.rand(index.shape, device=index.device) if random is None else random[index]
        label, first, flip, mass = step(
            contributions[index], data.scores[index], keys, inside, lengths, bias
        )
        result.label[members] = label
        result.first_flip[:, members] = first
        result.flip_label[:, members] = flip
        result.removed_mass[:, members] = mass
    return result
