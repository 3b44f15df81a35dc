"""Count disagreements between a backend and a float64 brute force, over millions of prefixes.

Every prefix of every ranking is one sum over its own survivors (a matrix product with a triangle
of ones, never a running sum), of margins computed in float64 from the values. Compared are labels,
first flips, flip labels, the decision at every prefix and the minimal sizes: of a call with the
decisions as a curve, and of one without curves, which may take a faster way. Near-ties (engine
contract, section 8) are counted and left out; so are prefixes where two other classes lead the
label by the same sum.

    python benchmarks/agreement.py --backend cpu --prefixes 10_000_000
    python benchmarks/agreement.py --backend cpu-avx2     # one target of the CPU engine
    python benchmarks/agreement.py --backend cpu-wide     # 64-byte lanes, as the tests run them
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from harness import machine, versions

import fastattnerase as fae
from fastattnerase import _C
from fastattnerase.backends import register
from fastattnerase.backends.cpu import CpuBackend

TOLERANCE = 3e-6
RANKINGS = ("random", "attention", "gradient", "product")
NEAR_TIE = int(fae.Status.NEAR_TIE)
DISAGREEMENTS = ("labels", "decisions", "first_flips", "flip_labels", "minimal_sizes", "unflagged")


@dataclass(frozen=True)
class Setting:
    """One kind of random problem: instances of `n` items."""

    n: int
    classes: int
    features: int
    dtype: str
    spread: float  # deviation of the scores
    bias: float  # deviation of the bias
    keep: bool = False


SETTINGS = (
    Setting(7, 5, 100, "float32", 1.0, 0.3),
    Setting(12, 2, 16, "bfloat16", 2.0, 0.0),
    Setting(20, 3, 33, "float64", 4.0, 1.0),
    Setting(33, 10, 64, "float16", 1.0, 0.1),
    Setting(60, 2, 256, "float32", 12.0, 0.5, keep=True),
    Setting(128, 2, 768, "float32", 1.0, 0.2),
    Setting(180, 2, 256, "bfloat16", 3.0, 0.0),
    Setting(300, 10, 100, "float32", 1.0, 0.3),
)


def problem(setting: Setting, instances: int, rng: np.random.Generator) -> fae.AttentionBatch:
    """Draw a batch; the classes are close enough for flips to be common."""
    dtype = getattr(torch, setting.dtype)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape)).to(dtype)

    items = instances * setting.n
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return fae.AttentionBatch(
        normal(items, setting.features),
        torch.arange(instances + 1) * setting.n,
        scores=normal(items) * setting.spread,
        head_weight=normal(setting.classes, setting.features) / setting.features**0.5,
        head_bias=(setting.bias * normal(setting.classes)).to(wide),
    )


def compare(setting: Setting, batch: fae.AttentionBatch, backend: str, device: str) -> Counter[str]:
    """Compare the two calls on one batch and count; prefixes and ties are those of the first."""
    count = compare_call(setting, batch, backend, device, ("decision",))
    plain = compare_call(setting, batch, backend, device, ())
    count.update({name: plain[name] for name in DISAGREEMENTS})
    return count


def compare_call(
    setting: Setting, batch: fae.AttentionBatch, backend: str, device: str, curves: tuple[str, ...]
) -> Counter[str]:
    """Compare what one call returns and count."""
    result = fae.sweep(
        batch.to(device),
        RANKINGS,
        curves=curves,
        orders=True,
        direction="keep" if setting.keep else "erase",
        single=False,
        backend=backend,
    ).to("cpu")
    assert result.minimal is not None
    B, n, C = len(batch), setting.n, setting.classes
    values = batch.values.double().numpy()
    head = batch.head_weight.double().numpy()
    bias = batch.head_bias.double().numpy()
    scores = batch.scores.double().numpy().reshape(B, n)
    a = np.exp(scores - scores.max(1, keepdims=True))
    a /= a.sum(1, keepdims=True)  # [B, n]
    s = (values @ head.T).reshape(B, n, C) + bias  # [B, n, C]
    label = np.argmax((a[..., None] * s).sum(1), 1)  # [B]
    rows = np.arange(B)
    margins = a[..., None] * (s[rows, :, label][..., None] - s)  # [B, n, C]
    longest = np.sqrt((values**2).sum(1)).reshape(B, n).max(1)  # [B]
    norm = longest * np.sqrt((head**2).sum(1)).max() + np.abs(bias).max()  # [B]
    triangle = np.triu(np.ones((n, n)))  # row k sums the survivors of prefix k

    flagged = result.prefixes.status.numpy() & NEAR_TIE != 0  # [B]
    count = Counter(
        instances=B,
        near_ties=int(flagged.sum()),
        labels=int(((result.prefixes.label.numpy() != label) & ~flagged).sum()),
    )
    same_label = result.prefixes.label.numpy() == label
    by_bias = int(np.argmax(bias))
    assert result.prefixes.order is not None
    for r in range(len(RANKINGS)):
        order = result.prefixes.order[r].numpy().reshape(B, n)
        if setting.keep:
            order = order[:, ::-1]
        m = np.take_along_axis(margins, order[..., None], 1)
        mass = np.take_along_axis(a, order, 1) @ triangle.T  # [B, n]
        sums = triangle @ m  # [B, n, C]
        decision = np.argmin(sums, 2)  # lowest on ties
        decision = np.concatenate([decision, np.full((B, 1), by_bias)], 1)  # [B, n + 1]
        decision[:, 0] = label
        scale = TOLERANCE * mass * norm[:, None]  # [B, n]
        others = np.where(np.arange(C) == label[:, None, None], np.inf, np.abs(sums))
        near = others.min(2) < scale
        lowest = np.sort(sums, 2)
        rivals = (lowest[..., 1] - lowest[..., 0] < scale) & (decision[:, :n] != label[:, None])
        near, rivals = (np.pad(x, ((0, 0), (0, 1))) for x in (near, rivals))
        if setting.keep:
            decision, near, rivals = decision[:, ::-1], near[:, ::-1], rivals[:, ::-1]
        hits = (decision == label[:, None]) == setting.keep
        hits[:, 0] = False
        flips = np.where(hits.any(1), hits.argmax(1), -1)
        if curves:
            got = result.prefixes.curves["decision"][r].numpy().reshape(B, n + 1)
            free = near | rivals | ~same_label[:, None]
            count["decisions"] += int(((got != decision) & ~free).sum())
        count["prefixes"] += B * (n + 1)
        count["near_tie_prefixes"] += int(near.sum())
        count["rival_tie_prefixes"] += int((rivals & ~near).sum())
        first = result.prefixes.first_flip[r].numpy()
        count["flips"] += int((flips >= 0).sum())
        count["first_flips"] += int(((first != flips) & ~flagged).sum())
        at = np.where(flips >= 0, flips, 0)
        expected = np.where(flips >= 0, decision[rows, at], -1)
        wrong = result.prefixes.flip_label[r].numpy() != expected
        count["flip_labels"] += int((wrong & ~flagged & ~rivals[rows, at]).sum())
        # A compared sum well inside the tolerance has to have been flagged.
        compared = np.arange(n + 1) <= np.where(flips >= 0, flips, n)[:, None]
        inside = np.pad(others.min(2) < 0.9 * scale, ((0, 0), (0, 1)))
        inside = inside[:, ::-1] if setting.keep else inside
        count["unflagged"] += int(((inside & compared).any(1) & ~flagged).sum())
    sizes = minimal_sizes(margins, label, by_bias, triangle)
    count["minimal_sizes"] = int(((result.minimal.size.numpy() != sizes) & ~flagged).sum())
    return count


def minimal_sizes(
    margins: np.ndarray, label: np.ndarray, by_bias: int, triangle: np.ndarray
) -> np.ndarray:
    """The smallest flipping sets: for each class the largest margins go first."""
    _, n, C = margins.shape
    never = n + 1
    best = np.where(by_bias != label, n, never)
    for c in range(C):
        sums = -np.sort(-margins[..., c], 1) @ triangle.T  # [B, n]
        met = np.where((c < label)[:, None], sums <= 0, sums < 0) & (c != label)[:, None]
        met[:, 0] = False
        best = np.minimum(best, np.where(met.any(1), met.argmax(1), never))
    return np.where(best == never, -1, best)


def register_target(backend: str) -> None:
    """Register a backend that names a target of the CPU engine, of the build or of the tests."""
    target = backend.removeprefix("cpu-")
    if target in _C.cpu_variants_built():
        register(CpuBackend(backend, target))
    elif target != backend:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python_tests"))
        from contract import served

        register(served.load(backend))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cpu", help="or a target: cpu-avx2, cpu-wide, …")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prefixes", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="some thousand prefixes")
    parser.add_argument("--json", type=Path, help="write the counts here")
    options = parser.parse_args()
    register_target(options.backend)
    target = 20_000 if options.smoke else options.prefixes
    rng = np.random.default_rng(options.seed)
    about = {
        "machine": machine(),
        "versions": versions(),
        "backend": options.backend,
        "device": options.device,
        "seed": options.seed,
    }
    print(json.dumps(about))
    columns = (
        "instances",
        "prefixes",
        "flips",
        "near_ties",
        "near_tie_prefixes",
        "rival_tie_prefixes",
        *DISAGREEMENTS,
    )
    print("  ".join(("problems".ljust(34), *columns)))
    total: Counter[str] = Counter()
    table = []
    started = time.perf_counter()
    for setting in SETTINGS:
        mine: Counter[str] = Counter()
        # What one batch takes in float64 stays near 100 MiB.
        most = max(1, 12_000_000 // (setting.n * max(setting.features, 4 * setting.classes)))
        while mine["prefixes"] * len(SETTINGS) < target:
            left = target / len(SETTINGS) - mine["prefixes"]
            instances = min(most, -(-int(left) // (len(RANKINGS) * (setting.n + 1))))
            batch = problem(setting, max(instances, 1), rng)
            mine += compare(setting, batch, options.backend, options.device)
        total += mine
        title = f"n={setting.n} C={setting.classes} D={setting.features} {setting.dtype}"
        title += " keep" if setting.keep else ""
        table.append(asdict(setting) | {name: mine[name] for name in columns})
        print("  ".join((title.ljust(34), *(f"{mine[c]:{len(c)}d}" for c in columns))))
    print("  ".join(("all".ljust(34), *(f"{total[c]:{len(c)}d}" for c in columns))))
    wrong = sum(total[name] for name in DISAGREEMENTS)
    print(f"{wrong} disagreements outside near-ties, {time.perf_counter() - started:.0f} s")
    if options.json:
        counts = {name: total[name] for name in columns}
        record = {**about, "total": counts, "settings": table}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
