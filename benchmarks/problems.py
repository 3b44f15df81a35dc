"""The problem sets of the benchmarks: realistic shapes, seeded, with the signal of a trained model.

Each instance has a class that its items favour with a strength drawn per instance, so first flips
are spread over the whole range instead of sitting at the first prefix, as they would for noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

RANKINGS = ("random", "attention", "gradient", "product")


@dataclass(frozen=True)
class Data:
    """One batch of instances with a linear head, packed."""

    name: str
    values: Tensor  # [T, D]
    scores: Tensor  # [T], float32
    offsets: Tensor  # [B + 1], int64
    head_weight: Tensor  # [C, D], float32
    head_bias: Tensor  # [C], float32

    @property
    def instances(self) -> int:
        return self.offsets.numel() - 1

    @property
    def items(self) -> int:
        return self.values.shape[0]

    @property
    def value_bytes(self) -> int:
        return self.values.numel() * self.values.element_size()

    def prefixes(self, rankings: int = len(RANKINGS)) -> int:
        """Prefixes `k = 1 … n` of all instances and rankings."""
        return self.items * rankings

    def biased(self) -> Data:
        """The same with a bias for one class that no erasure overcomes."""
        bias = self.head_bias.clone()
        bias[0] += 1e3
        return replace(self, head_bias=bias)

    def head(self, instances: int) -> Data:
        """The first `instances` instances, as copies: what a slow baseline runs on."""
        end = int(self.offsets[instances])
        return replace(
            self,
            values=self.values[:end].clone(),
            scores=self.scores[:end].clone(),
            offsets=self.offsets[: instances + 1].clone(),
        )


def _lognormal(mean: float, sigma: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    def lengths(rng: np.random.Generator, count: int) -> np.ndarray:
        drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
        return np.maximum(1, np.rint(drawn)).astype(np.int64)

    return lengths


def _poisson(mean: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, count: 1 + rng.poisson(mean - 1, count).astype(np.int64)


def _constant(length: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, count: np.full(count, length, dtype=np.int64)


@dataclass(frozen=True)
class ProblemSet:
    """A shape: how many instances of which lengths, how wide, how many classes."""

    name: str
    what: str
    lengths: Callable[[np.random.Generator, int], np.ndarray]
    instances: int
    smoke_instances: int
    width: int
    classes: int
    gpu_instances: int  # enough for values of several hundred MB or more
    smoke_lengths: Callable[[np.random.Generator, int], np.ndarray] | None = None


SETS: dict[str, ProblemSet] = {
    s.name: s
    for s in (
        ProblemSet(
            "flan_imdb",
            "flat attention network, IMDB-length reviews, n~300",
            _lognormal(300, 0.6), 2000, 24, 100, 10, gpu_instances=16_000,
        ),
        ProblemSet(
            "han",
            "hierarchical network, sentences of a document, n~7",
            _poisson(7), 50_000, 400, 100, 5, gpu_instances=600_000,
        ),
        ProblemSet(
            "bilstm",
            "BiLSTM classifier, two classes, n~180",
            _lognormal(180, 0.4), 2016, 24, 256, 2, gpu_instances=12_000,
        ),
        ProblemSet(
            "transformer",
            "transformer width, n=128",
            _constant(128), 1000, 16, 768, 2, gpu_instances=8_000,
        ),
        ProblemSet(
            "long",
            "eight long instances, n=65,536",
            _constant(65_536), 8, 1, 100, 10, gpu_instances=64,
            smoke_lengths=_constant(4096),
        ),
        ProblemSet(
            "long_one",
            "one long instance, n=65,536",
            _constant(65_536), 1, 1, 100, 10, gpu_instances=1,
            smoke_lengths=_constant(4096),
        ),
        ProblemSet("tiny", "one tiny call, n=20", _constant(20), 1, 1, 100, 5, gpu_instances=1),
    )
}  # fmt: skip


def make(
    name: str,
    lengths: np.ndarray,
    width: int,
    classes: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Data:
    """Draw a batch: item values are noise plus a per-instance multiple of one class's direction."""
    generator = torch.Generator(device=device).manual_seed(seed)
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=device)
    offsets[1:] = torch.from_numpy(lengths).to(device).cumsum(0)
    items, instances = int(lengths.sum()), len(lengths)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    weight = draw(classes, width)
    weight /= weight.norm(dim=1, keepdim=True)  # [C, D]
    bias = 0.1 * draw(classes)  # [C]
    strength = 0.1 + 0.5 * torch.rand(instances, generator=generator, device=device)  # [B]
    favoured = torch.randint(classes, (instances,), generator=generator, device=device)  # [B]
    drift = strength[:, None] * weight[favoured]  # [B, D]
    scores = 1.5 * draw(items)  # [T]
    owner = torch.repeat_interleave(
        torch.arange(instances, device=device), offsets.diff(), output_size=items
    )
    values = torch.empty(items, width, dtype=dtype, device=device)
    step = max(1, (1 << 26) // width)  # rows at a time: the float32 draw stays under 256 MiB
    for begin in range(0, items, step):
        rows = draw(min(step, items - begin), width)
        rows += drift[owner[begin : begin + rows.shape[0]]]
        values[begin : begin + rows.shape[0]] = rows
    return Data(name, values, scores, offsets, weight, bias)


def build(
    name: str,
    *,
    smoke: bool = False,
    gpu: bool = False,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Data:
    """Build the problem set `name`; `smoke` keeps its shape but only a few instances."""
    if name not in SETS:
        raise ValueError(f"name: unknown problem set {name!r}; known: {', '.join(SETS)}")
    spec = SETS[name]
    rng = np.random.default_rng(seed)
    count = spec.smoke_instances if smoke else spec.gpu_instances if gpu else spec.instances
    draw = spec.smoke_lengths if smoke and spec.smoke_lengths else spec.lengths
    return make(name, draw(rng, count), spec.width, spec.classes, seed, dtype, device)


def random_keys(seed: int, order: int, offsets: Tensor) -> Tensor:
    """The engine's random ranking keys as int64 that sort the same way, `[T]`.

    An independent reading of the generator documented in `csrc/include/fastattnerase/math.h`
    (splitmix64 over seed, order, instance id and position), so that baselines can be compared
    with the engine on the same random orders.
    """
    gamma = np.uint64(0x9E3779B97F4A7C15)

    def mix(x: np.ndarray) -> np.ndarray:
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    bounds = offsets.cpu().numpy()
    lengths = np.diff(bounds)
    ids = np.arange(len(lengths), dtype=np.uint64)
    with np.errstate(over="ignore"):
        stream = mix(np.array([seed], dtype=np.uint64) + gamma)
        stream = mix(stream + np.uint64(order) + gamma)
        stream = mix(stream + ids + gamma)  # [B]
        position = np.arange(bounds[-1], dtype=np.uint64)
        position -= np.repeat(bounds[:-1].astype(np.uint64), lengths)
        keys = mix(np.repeat(stream, lengths) + (position + np.uint64(1)) * gamma)
    flipped = (keys ^ np.uint64(1 << 63)).view(np.int64)  # unsigned order as signed order
    return torch.from_numpy(flipped).to(offsets.device)
