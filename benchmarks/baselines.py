"""What a user would write without this library, from the plain loop to the strongest torch version.

Every baseline answers the same question about a batch: for the rankings `random`, `attention`,
`gradient` and `product`, the first prefix whose erasure changes the decision, the label it changes
to and the attention mass erased until then, from the decision after every prefix. They are
compared with the engine before anything is timed. Sums over survivors are float64 as the engine's
are; contributions are float32.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
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


def ranking_keys(
    random: Tensor, scores: Tensor, contributions: Tensor, weights: Tensor, z: Tensor, y: Tensor
) -> tuple[Tensor, ...]:
    """Keys of the four rankings, each `[b, n]`, from contributions `[b, n, C]`."""
    p = z.softmax(1).float()  # [b, C]
    own = contributions.gather(2, y[:, None, None].expand(-1, contributions.shape[1], 1))[..., 0]
    gradient = p.gather(1, y[:, None]) * (own - torch.einsum("bnc,bc->bn", contributions, p))
    return random, scores, gradient, gradient * weights


def descending(key: Tensor, inside: Tensor) -> Tensor:
    """Stable descending order of `key` `[b, n]`, padding last."""
    lowest = -torch.inf if key.is_floating_point() else torch.iinfo(key.dtype).min
    return key.masked_fill(~inside, lowest).argsort(dim=1, descending=True, stable=True)


def sweep_bucket(
    contributions: Tensor,  # [b, n, C], float32
    scores: Tensor,  # [b, n], float32
    keys: Tensor | None,  # [R, b, n], int64; None ranks here, random keys drawn with torch
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
    if keys is None:
        random = torch.rand(scores.shape, device=scores.device)
        ranked = ranking_keys(random, scores, contributions, weights, z, y)
    else:
        ranked = keys.unbind(0)
    for key in ranked:
        reversed_order = descending(key, inside).flip(1)  # [b, n]
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
    keys: Tensor | None = None,
    bucket_items: int = BUCKET_ITEMS,
    step: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]] = sweep_bucket,
    plan: list[tuple[Tensor, int]] | None = None,
) -> Result:
    """Baseline (4): project all items once, then sweep length buckets in torch.

    `keys` `[R, T]` int64 prescribe the four orders (descending, stable), for comparisons on the
    same orders; None ranks in torch, as a user would. A `plan`, the buckets made beforehand, keeps
    their making out of the time.
    """
    contributions = project(data)  # [T, C]
    bias = data.head_bias.double()
    result = Result.empty(data)
    for members, longest in plan or buckets(data.offsets, bucket_items):
        index, inside, lengths = _pad(data, members, longest)
        label, first, flip, mass = step(
            contributions[index],
            data.scores[index],
            None if keys is None else keys[:, index],
            inside,
            lengths,
            bias,
        )
        result.label[members] = label
        result.first_flip[:, members] = first
        result.flip_label[:, members] = flip
        result.removed_mass[:, members] = mass
    return result


@cache
def _compiled_step() -> Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]:
    return torch.compile(sweep_bucket, dynamic=True)


def compiled_sweep(
    data: Data, keys: Tensor | None = None, bucket_items: int = BUCKET_ITEMS
) -> Result:
    """Baseline (5): baseline (4) with the work on a bucket under `torch.compile`."""
    return torch_sweep(data, keys, bucket_items, step=_compiled_step())


def orders_of(data: Data, keys: Tensor | None) -> Tensor:
    """Positions within the instance of the four rankings, most important first, `[R, T]`."""
    orders = torch.empty(len(RANKINGS), data.items, dtype=torch.int64, device=data.values.device)
    contributions = project(data)
    bias = data.head_bias.double()
    for members, longest in buckets(data.offsets, BUCKET_ITEMS):
        index, inside, _ = _pad(data, members, longest)
        if keys is None:
            weights = data.scores[index].double().masked_fill(~inside, -torch.inf).softmax(1)
            s = contributions[index]  # [b, n, C]
            z = (s * weights[..., None]).sum(1) + bias  # [b, C]
            random = torch.rand(index.shape, device=index.device)
            ranked = ranking_keys(random, data.scores[index], s, weights, z, z.argmax(1))
        else:
            ranked = keys[:, index].unbind(0)
        for row, key in enumerate(ranked):
            orders[row, index[inside]] = descending(key, inside)[inside]
    return orders


def summarise(
    result: Result, row: int, instance: int, decisions: Tensor, erased_mass: Tensor
) -> None:
    """Fill one row of a result from decisions `[n + 1]` and erased mass `[n + 1]` by prefix."""
    label = decisions[0]
    flips = (decisions != label).nonzero()[:, 0]
    result.label[instance] = label
    if flips.numel():
        first = flips[0]
        result.first_flip[row, instance] = first
        result.flip_label[row, instance] = decisions[first]
        result.removed_mass[row, instance] = erased_mass[first]
    else:
        result.first_flip[row, instance] = -1
        result.flip_label[row, instance] = -1
        result.removed_mass[row, instance] = torch.nan


def forward(values: Tensor, scores: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Attention and head of a model on one instance, `[C]` logits."""
    return scores.softmax(0).to(values.dtype) @ values @ weight.T.to(values.dtype) + bias


def forward_decisions(data: Data, instance: int, order: Tensor, prefixes: Tensor) -> Tensor:
    """The decision after each of `prefixes`, one forward pass each, `[len(prefixes)]`."""
    begin, end = data.offsets[instance : instance + 2].tolist()
    values, scores = data.values[begin:end], data.scores[begin:end]  # [n, D], [n]
    decisions = []
    for prefix in prefixes.tolist():
        if prefix == end - begin:
            logits = data.head_bias  # nothing is left to attend to
        else:
            survivors = scores.clone()
            survivors[order[:prefix]] = -torch.inf
            logits = forward(values, survivors, data.head_weight, data.head_bias)
        decisions.append(logits.argmax())
    return torch.stack(decisions)


def _erased_mass(data: Data, instance: int, order: Tensor) -> Tensor:
    begin, end = data.offsets[instance : instance + 2].tolist()
    weights = data.scores[begin:end].double().softmax(0)
    return torch.cat([weights.new_zeros(1), weights[order].cumsum(0)])  # [n + 1]


def forward_loop(data: Data, keys: Tensor | None = None) -> Result:
    """Baseline (1): one forward pass of attention and head for every prefix of every ranking."""
    orders, result = orders_of(data, keys), Result.empty(data)
    for instance in range(data.instances):
        begin, end = data.offsets[instance : instance + 2].tolist()
        prefixes = torch.arange(end - begin + 1)
        for row in range(len(RANKINGS)):
            order = orders[row, begin:end]
            decisions = forward_decisions(data, instance, order, prefixes)
            summarise(result, row, instance, decisions, _erased_mass(data, instance, order))
    return result


def mask_product(data: Data, keys: Tensor | None = None) -> Result:
    """Baseline (2): the masks of all prefixes of a ranking as one `[n, n]` matrix product."""
    orders, result = orders_of(data, keys), Result.empty(data)
    for instance in range(data.instances):
        begin, end = data.offsets[instance : instance + 2].tolist()
        values, scores = data.values[begin:end].float(), data.scores[begin:end]
        weights = scores.softmax(0)  # [n]
        for row in range(len(RANKINGS)):
            order = orders[row, begin:end]
            masked = weights[order].expand(end - begin, -1).triu()  # [n, n], row k without k items
            pooled = masked @ values[order] / masked.sum(1, keepdim=True)  # [n, D]
            logits = torch.cat([pooled @ data.head_weight.T + data.head_bias, data.head_bias[None]])
            decisions = logits.argmax(1)  # [n + 1]
            summarise(result, row, instance, decisions, _erased_mass(data, instance, order))
    return result


def feature_suffix_sums(data: Data, keys: Tensor | None = None) -> Result:
    """Baseline (3): suffix sums of the weighted values over all `D` features, then the head."""
    orders, result = orders_of(data, keys), Result.empty(data)
    weight, bias = data.head_weight.double(), data.head_bias.double()
    for members, longest in buckets(data.offsets, BUCKET_ITEMS):
        index, inside, lengths = _pad(data, members, longest)
        weights = data.scores[index].double().masked_fill(~inside, -torch.inf).softmax(1)  # [b, n]
        values = data.values[index]  # [b, n, D]
        y = ((weights[..., None] * values).sum(1) @ weight.T + bias).argmax(1)  # [b]
        result.label[members] = y
        prefix = torch.arange(longest + 1, device=index.device)
        counted = (prefix >= 1) & (prefix <= lengths[:, None])  # [b, n + 1]
        for row in range(len(RANKINGS)):
            order = torch.where(inside, orders[row, index], prefix[:-1])  # padding stays last
            sorted_weights = weights.gather(1, order)  # [b, n]
            weighted = (
                values.gather(1, order[..., None].expand_as(values)) * sorted_weights[..., None]
            )
            sums = weighted.flip(1).cumsum(1).flip(1)  # [b, n, D], float64
            mass = sorted_weights.flip(1).cumsum(1).flip(1)  # [b, n], of the survivors
            logits = (sums / mass[..., None].clamp_min(1e-300)) @ weight.T + bias  # [b, n, C]
            logits = torch.cat([logits, bias.expand(len(members), 1, -1)], dim=1)  # [b, n + 1, C]
            decision = logits.argmax(2)
            flipped = (decision != y[:, None]) & counted
            found, first = flipped.max(1)
            erased = 1 - torch.cat([mass, mass.new_zeros(len(members), 1)], dim=1)
            at = first[:, None]
            result.first_flip[row, members] = first.where(found, -1)
            result.flip_label[row, members] = decision.gather(1, at)[:, 0].where(found, -1)
            result.removed_mass[row, members] = erased.gather(1, at)[:, 0].where(found, torch.nan)
    return result


class MaskedModel(torch.nn.Module):
    """One instance as a function of which items are present: masks `[m, n]` to logits `[m, C]`.

    The form in which attribution libraries, which perturb inputs to a baseline of zero, can erase
    items of an attention layer.
    """

    def __init__(self, data: Data, instance: int) -> None:
        super().__init__()
        begin, end = data.offsets[instance : instance + 2].tolist()
        self.values, self.scores = data.values[begin:end], data.scores[begin:end]
        self.weight, self.bias = data.head_weight, data.head_bias

    def forward(self, mask: Tensor) -> Tensor:
        mask = mask.reshape(-1, self.scores.numel())  # [m, n]
        survivors = self.scores.masked_fill(mask == 0, -torch.inf)
        pooled = survivors.softmax(1).nan_to_num(0.0) @ self.values  # zero where nothing survives
        return pooled @ self.weight.T + self.bias


def captum_single(data: Data) -> Tensor:
    """Baseline (6a): captum's FeatureAblation, the label's drop without each item, `[T]`."""
    from captum.attr import FeatureAblation

    drops = []
    for instance in range(data.instances):
        model = MaskedModel(data, instance)
        present = torch.ones(1, model.scores.numel())
        target = int(model(present).argmax())
        ablation = FeatureAblation(lambda mask, model=model: model(mask).softmax(1))
        drops.append(
            ablation.attribute(present, baselines=0, target=target, perturbations_per_eval=64)[0]
        )
    return torch.cat(drops)


def quantus_label_probability(data: Data, keys: Tensor | None = None) -> Tensor:
    """Baseline (6b): Quantus' PixelFlipping, the label's probability by prefix, `[R, T]`.

    Column `offsets[b] + k - 1` is prefix `k = 1 … n` of instance `b`.
    """
    import quantus

    orders = orders_of(data, keys)
    metric = quantus.PixelFlipping(
        features_in_step=1, abs=False, normalise=False, perturb_baseline=0.0, disable_warnings=True
    )
    curves = torch.empty(len(RANKINGS), data.items)
    for instance in range(data.instances):
        begin, end = data.offsets[instance : instance + 2].tolist()
        model = MaskedModel(data, instance).eval()
        present = np.ones((1, 1, end - begin), dtype=np.float32)
        with torch.no_grad():
            target = model(torch.from_numpy(present)).argmax(1).numpy()
        for row in range(len(RANKINGS)):
            importance = np.empty(end - begin, dtype=np.float32)
            importance[orders[row, begin:end].numpy()] = np.arange(end - begin, 0, -1)
            scores = metric(
                model=model,
                x_batch=present,
                y_batch=target,
                a_batch=importance[None, None],
                channel_first=True,
                softmax=True,
                device="cpu",
            )
            curves[row, begin:end] = torch.tensor(np.asarray(scores[0]), dtype=torch.float32)
    return curves
