"""Answers without search or sampling: greedy orders, Shapley values, envelopes, sets, thresholds.

    python benchmarks/exact.py                                # some minutes
    python benchmarks/exact.py --smoke                        # seconds; what CI runs
    python benchmarks/exact.py --json benchmarks/results/exact.json

Each answer stands beside a baseline that a user would write in numpy, in float64, on items that
are projected already; both answers are compared before anything is timed. Greedy removal has a
second baseline, the engine's own O(n^2) form, which it uses up to 1,024 items: timed at 1,000 and
scaled by the square of n. Shapley values stand beside permutation sampling, with the time that it
would take to an error of 1e-6 of the largest value by the law of the square root. Times are of the
processor, on one thread, medians of alternating calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Disagreement, alternate, duration, machine, markdown, versions

import fastattnerase as fae

OWN = 1_000  # items at which the engine's O(n^2) form is timed
SAMPLED = 200  # permutations
POINTS = 100
COMPARED = 2_000  # items whose Shapley values are compared with the reference's


def items(n: int, classes: int, seed: int = 0) -> fae.AttentionBatch:
    """One instance: scores and contributions of standard deviation 1."""
    rng = torch.Generator().manual_seed(seed)
    return fae.AttentionBatch(
        torch.randn(n, classes, generator=rng, dtype=torch.float64),
        torch.tensor([0, n]),
        scores=torch.randn(n, generator=rng, dtype=torch.float64),
        head_weight=torch.eye(classes, dtype=torch.float64),
        head_bias=0.1 * torch.arange(classes, dtype=torch.float64),
    )


def projected(batch: fae.AttentionBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights [n], what each item gives alone [n, C], and the bias [C]."""
    assert batch.scores is not None
    assert batch.head_bias is not None
    weights = batch.scores.softmax(0).numpy()
    bias = batch.head_bias.numpy()
    return weights, batch.values.numpy() + bias, bias


def margins(batch: fae.AttentionBatch) -> tuple[np.ndarray, np.ndarray]:
    """Weights [n] and margins of the decision over its rivals [n, K], or the one output."""
    weights, alone, _ = projected(batch)
    if alone.shape[1] == 1:
        return weights, alone
    label = int((weights @ alone).argmax())
    return weights, alone[:, [label]] - np.delete(alone, label, 1)


def require(what: str, ours: Any, theirs: Any, within: float) -> None:
    """Raise unless two answers agree."""
    error = float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())
    if not error <= within:
        raise Disagreement(f"{what}: answers differ by {error:.3g}, needed {within:.0e}")


def greedy_numpy(weights: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The O(n^2) form: at each step every survivor's leftover margin, from running totals."""
    a, terms = weights.copy(), np.ascontiguousarray((weights[:, None] * own).T)  # [m], [K, m]
    left = np.arange(len(a))
    mass, sums = a.sum(), terms.sum(1)
    order = np.empty(len(a), dtype=np.int64)
    for k in range(len(order) - 1):
        rest = sums[:, None] - terms
        rest /= mass - a
        step = int((rest[0] if len(rest) == 1 else rest.min(0)).argmin())
        order[k] = left[step]
        mass, sums = mass - a[step], sums - terms[:, step]
        # Survivors stay in order, so that ties go by position.
        for x in (a, left):
            x[step:-1] = x[step + 1 :]
        terms[:, step:-1] = terms[:, step + 1 :]
        a, left, terms = a[:-1], left[:-1], terms[:, :-1]
    order[-1] = left[0]
    return order


def left_margins(weights: np.ndarray, own: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The nearest rival's margin after 0 … n − 1 items of an order are removed: [n]."""
    a = weights[order[::-1]]
    rest = (a[:, None] * own[order[::-1]]).cumsum(0) / a.cumsum()[:, None]
    return rest.min(1)[::-1]


def own_quadratic(classes: int, repeats: int) -> float:
    """Seconds of the engine's O(n^2) form at 1,000 items."""
    batch = items(OWN, classes)
    times = alternate(
        {
            "greedy": lambda: fae.rank(batch, "greedy", backend="cpu"),
            "order": lambda: fae.rank(batch, "attention", backend="cpu"),
        },
        max(3, repeats),
        clock=time.process_time,
    )
    return times["greedy"] - times["order"]


def greedy(n: int, classes: int, repeats: int, quadratic: bool) -> dict[str, Any]:
    """The greedy order on hulls; `quadratic`: beside all steps of the O(n^2) form in numpy."""
    batch = items(n, classes)
    found = fae.greedy_order(batch, backend="cpu")
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: fae.greedy_order(batch, backend="cpu"),
        "flip": lambda: fae.greedy_order(batch, until_flip=True, backend="cpu"),
    }
    certain = int(found.certain[0])
    row: dict[str, Any] = {"what": "greedy order", "n": n, "classes": classes, "certain": certain}
    if quadratic:
        given = margins(batch)
        other = greedy_numpy(*given)
        mine = found.order.numpy()
        require("greedy order", mine[:certain], other[:certain], 0)
        # Near-ties may go either way; the margins that are left may not.
        curves = [left_margins(*given, order) for order in (mine, other)]
        require("greedy order, margins", *curves, 1e-9)
        row["same_items"] = float((mine == other).mean())
        runs["theirs"] = lambda: greedy_numpy(*given)
    times = alternate(runs, repeats, clock=time.process_time)
    scaled = own_quadratic(classes, repeats) * (n / OWN) ** 2
    row |= {
        "seconds": times["ours"],
        "to_the_flip_seconds": times["flip"],
        "engine_quadratic_scaled_seconds": scaled,
        "faster_than_engine_quadratic": scaled / times["ours"],
    }
    if quadratic:
        row |= against("O(n^2) in numpy", times)
    return row


def against(name: str, times: dict[str, float]) -> dict[str, Any]:
    """The baseline's part of a row."""
    return {
        "baseline": name,
        "baseline_seconds": times["theirs"],
        "faster": times["theirs"] / times["ours"],
    }


def sample_shapley(
    weights: np.ndarray, own: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Mean marginal contributions over random orders: [n, C]."""
    total = np.zeros_like(own)
    for _ in range(count):
        order = rng.permutation(len(weights))
        a = weights[order]
        reached = (a[:, None] * own[order]).cumsum(0) / a.cumsum()[:, None]
        total[order] += np.diff(reached, axis=0, prepend=np.zeros((1, own.shape[1])))
    return total / count


def shapley(n: int, repeats: int) -> dict[str, Any]:
    """Shapley values of two classes, with their errors, beside permutation sampling."""
    batch = items(n, 2)
    weights, alone, bias = projected(batch)
    own = alone - bias
    found = fae.shapley_values(batch, backend="cpu")
    values = found.values.numpy()
    largest = float(np.abs(values).max())
    if n <= COMPARED:
        slow = fae.shapley_values(batch, backend="reference")
        require("Shapley values", values / largest, slow.values.numpy() / largest, 1e-9)
    finest = fae.shapley_values(batch, tolerance=1e-300, backend="cpu")
    require("Shapley values", values / largest, finest.values.numpy() / largest, 1e-6)
    require("Shapley values, sum", values.sum(0), weights @ own, 1e-9)
    drawn = sample_shapley(weights, own, SAMPLED, np.random.default_rng(0))
    error = float(np.abs(drawn - values).max()) / largest
    times = alternate(
        {
            "ours": lambda: fae.shapley_values(batch, backend="cpu"),
            "theirs": lambda: sample_shapley(weights, own, SAMPLED, np.random.default_rng(1)),
        },
        repeats,
        clock=time.process_time,
    )
    reached = float(np.abs(values - finest.values.numpy()).max()) / largest
    return {
        "what": "Shapley values",
        "n": n,
        "classes": 2,
        "seconds": times["ours"],
        "error_estimate": float(found.error[0]) / largest,
        "efficiency": float(found.efficiency[0]) / largest,
        "change_by_finest_nodes": reached,
        "nodes": int(found.nodes[0]),
        "baseline": f"{SAMPLED} random orders in numpy, off by {error:.1g} of the largest value",
        "baseline_seconds": times["theirs"],
        "faster": times["theirs"] / times["ours"],
        "baseline_error": error,
        "baseline_seconds_to_1e-6": times["theirs"] * (error / 1e-6) ** 2,
    }


def dinkelbach(weights: np.ndarray, m: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The largest output of as many items, by partial selection, from the most items to one."""
    found = np.empty(len(kept))
    value = -np.inf
    for point in np.argsort(-kept, kind="stable"):
        s = int(kept[point])
        value = max(value, float(m.min()))
        while True:
            keys = weights * (m - value)
            chosen = np.argpartition(-keys, s - 1)[:s] if s < len(keys) else slice(None)
            better = float((weights[chosen] * m[chosen]).sum() / weights[chosen].sum())
            if better <= value + 1e-15 * abs(value):
                break
            value = better
        found[point] = value
    return found


def envelope(n: int, points: int, repeats: int) -> dict[str, Any]:
    """Both bounds on a grid."""
    batch = items(n, 2)
    weights, own = margins(batch)
    m = own[:, 0]
    found = fae.envelope(batch, grid=points, backend="cpu")
    inner = found.erased < n  # [P]: of nothing the output is the bias
    kept = n - found.erased[inner].numpy()

    def theirs() -> tuple[np.ndarray, np.ndarray]:
        return dinkelbach(weights, m, kept), -dinkelbach(weights, -m, kept)

    upper, lower = theirs()
    require("envelope, upper", found.upper[inner, 0], upper, 1e-9)
    require("envelope, lower", found.lower[inner, 0], lower, 1e-9)
    times = alternate(
        {"ours": lambda: fae.envelope(batch, grid=points, backend="cpu"), "theirs": theirs},
        repeats,
        clock=time.process_time,
    )
    row = {"what": f"envelope at {points} points", "n": n, "classes": 2, "seconds": times["ours"]}
    return row | against("repeated partial selection in numpy", times)


def no_pair(n: int) -> fae.AttentionBatch:
    """Three kinds of items, each against one rival of class 0: a triple wins, no pair does."""
    rng = torch.Generator().manual_seed(0)
    values = torch.full((n, 4), -0.9, dtype=torch.float64)
    values[:, 0] = 0.0
    values[torch.arange(n), 1 + torch.arange(n) % 3] = 1.0
    values += 0.01 * torch.randn(n, 4, generator=rng, dtype=torch.float64)
    return fae.AttentionBatch(
        values,
        torch.tensor([0, n]),
        weights=torch.ones(n, dtype=torch.float64),
        head_weight=torch.eye(4, dtype=torch.float64),
    )


def sufficient_numpy(weights: np.ndarray, own: np.ndarray) -> int:
    """1 or 2 where an item or a pair gives the decision, else 3 for more; all pairs by blocks."""
    if (own > 0).all(1).any():
        return 1
    terms = weights[:, None] * own
    for first in range(0, len(terms), 64):
        both = terms[first : first + 64, None] + terms[None, first:]  # [64, n, K]
        if (both > 0).all(2).any():
            return 2
    return 3


def sufficient(what: str, batch: fae.AttentionBatch, repeats: int) -> dict[str, Any]:
    """The smallest sufficient set."""
    if batch.scores is None:
        weights, alone = batch.weights.numpy() / batch.num_items, batch.values.numpy()
        own = alone[:, [0]] - alone[:, 1:]
    else:
        weights, own = margins(batch)
    found = fae.minimal_sufficient_set(batch, backend="cpu")
    require(what, min(int(found.size[0]), 3), sufficient_numpy(weights, own), 0)
    times = alternate(
        {
            "ours": lambda: fae.minimal_sufficient_set(batch, backend="cpu"),
            "theirs": lambda: sufficient_numpy(weights, own),
        },
        repeats,
        clock=time.process_time,
    )
    row = {
        "what": what,
        "n": batch.num_items,
        "classes": own.shape[1] + 1,
        "seconds": times["ours"],
        "size": int(found.size[0]),
        "optimal": bool(found.optimal[0]),
    }
    return row | against("items, then all pairs, in numpy", times)


def threshold_numpy(weights: np.ndarray, m: np.ndarray, t: float) -> tuple[int, int]:
    """The first crossing by attention, and the size of the smallest set."""
    sizes = []
    for keys in (weights, weights * (m - t)):
        order = np.argsort(-keys, kind="stable")
        rest = (weights * (m - t))[order[::-1]].cumsum()[::-1]  # [n]: after k erasures
        past = rest <= 0
        sizes.append(int(past.argmax()) if past.any() else -1)
    return sizes[0], sizes[1]


def threshold(n: int, repeats: int) -> dict[str, Any]:
    """Of one output: first crossing by attention, smallest set."""
    batch = items(n, 1)
    weights, own = margins(batch)
    t = float(weights @ own[:, 0]) - 0.05

    def ours() -> fae.ThresholdCrossing:
        return fae.cross_threshold(batch, ["attention"], threshold=t, backend="cpu")

    found = ours()
    assert found.size is not None
    pair = int(found.first_crossing[0, 0]), int(found.size[0])
    require("threshold", pair, threshold_numpy(weights, own[:, 0], t), 0)
    times = alternate(
        {"ours": ours, "theirs": lambda: threshold_numpy(weights, own[:, 0], t)},
        repeats,
        clock=time.process_time,
    )
    row = {"what": "threshold", "n": n, "classes": 1, "seconds": times["ours"], "size": pair[1]}
    return row | against("two sorts in numpy", times)


def measure(smoke: bool, repeats: int) -> list[dict[str, Any]]:
    """All rows."""
    part = 100 if smoke else 1
    rows = []
    for row in (
        lambda: greedy(30_000 // part, 2, repeats, True),
        lambda: greedy(30_000 // part, 5, repeats, True),
        lambda: greedy(100_000 // part, 2, repeats, False),
        lambda: greedy(100_000 // part, 5, repeats, False),
        lambda: shapley(2_000 // part, repeats),
        lambda: shapley(100_000 // part, repeats),
        lambda: envelope(100_000 // part, POINTS // (10 if smoke else 1), repeats),
        lambda: sufficient("sufficient set, an item", items(100_000 // part, 5), repeats),
        lambda: sufficient(
            "sufficient set, no pair", no_pair(2_046 // (11 if smoke else 1)), repeats
        ),
        lambda: threshold(100_000 // part, repeats),
    ):
        rows.append(row())
        print(f"{rows[-1]['what']}, n = {rows[-1]['n']:,}", file=sys.stderr, flush=True)
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=3, help="calls timed, of which the median")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    try:
        rows = measure(arguments.smoke, 1 if arguments.smoke else arguments.repeats)
    except Disagreement as error:
        print(f"no numbers: {error}", file=sys.stderr)
        return 1
    about = {"machine": machine(), "versions": versions(), "variant": variant()}
    print(
        f"{about['machine']['cpu']}, one thread, {about['variant']}, torch "
        f"{about['versions']['torch']}, numpy {about['versions']['numpy']}"
    )
    print(
        markdown(
            ["", "n", "C", "time", "baseline", "its time", "faster by"],
            [
                [
                    row["what"],
                    f"{row['n']:,}",
                    str(row["classes"]),
                    duration(row["seconds"]),
                    row.get("baseline", "-"),
                    duration(row["baseline_seconds"]) if "baseline" in row else "-",
                    f"{row['faster']:.3g}" if "baseline" in row else "-",
                ]
                for row in rows
            ],
        )
    )
    for row in rows:
        if "engine_quadratic_scaled_seconds" in row:
            print(
                f"greedy, n = {row['n']:,}, C = {row['classes']}: "
                f"{duration(row['to_the_flip_seconds'])} to the first flip; the engine's O(n^2) "
                f"form, scaled from n = {OWN:,}: {duration(row['engine_quadratic_scaled_seconds'])}"
                f", {row['faster_than_engine_quadratic']:.3g} times"
            )
        if "error_estimate" in row:
            print(
                f"Shapley values, n = {row['n']:,}: of the largest value, estimate "
                f"{row['error_estimate']:.1e}, efficiency {row['efficiency']:.1e}, change by the "
                f"finest nodes {row['change_by_finest_nodes']:.1e}, {row['nodes']:,} nodes; "
                f"random orders {row['baseline_error']:.1e}, to 1e-6 "
                f"{row['baseline_seconds_to_1e-6']:.1e} s"
            )
    if arguments.json is not None:
        record = about | {"smoke": arguments.smoke, "repeats": arguments.repeats, "rows": rows}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def variant() -> str:
    """The instruction set that the engine runs here."""
    from fastattnerase import _C

    return _C.cpu_variant()


if __name__ == "__main__":
    sys.exit(main())
