"""Patch flipping of slides: the engine against a forward pass a step, and memory of a large slide.

    python benchmarks/mil.py                                    # minutes
    python benchmarks/mil.py --smoke                            # seconds; what CI runs
    python benchmarks/mil.py --json benchmarks/results/mil.json

The loop is the field's: CLAM in torch (gated attention, 1,024 to 512 to 256, two classes) runs anew
on the patches that are left after each 1 %, most important first; once from the features on, and
once without embedding, from the hidden vectors on, where it computes attention, pool and classifier
alone. The engine is given scores and contributions and returns every prefix, of which there are a
hundred times as many at n = 10,000. Greedy removal tries every patch that is left by a forward pass
at each step. Probabilities, decisions and removed patches are compared before anything is timed.
One thread; processor time, so that what else the machine does is not counted.

The large slide, 200,000 patches of D = 1,024 in half precision as HDF5, is embedded, flipped by
three rankings in both directions and its smallest set found, in a process of its own that watches
its anonymous memory (RssAnon), which file pages are no part of.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import Disagreement, alternate, duration, machine, markdown, quantity, versions
from torch import Tensor, nn

import fastattnerase as fae
from fastattnerase import mil

D, H, A, C = 1_024, 512, 256, 2
STEPS = 100
WITHIN = 1e-5  # of float32 forward passes
GREEDY_STEPS = 20  # that a published program takes
LIMIT = 2**30  # bytes beyond the file


class Clam(nn.Module):
    """CLAM of a single branch, gated, of the published sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(D, H), nn.ReLU())
        self.tanh = nn.Sequential(nn.Linear(H, A), nn.Tanh())
        self.gate = nn.Sequential(nn.Linear(H, A), nn.Sigmoid())
        self.score = nn.Linear(A, 1)
        self.classifier = nn.Linear(H, C)

    def attention(self, h: Tensor) -> Tensor:
        scores: Tensor = self.score(self.tanh(h) * self.gate(h))
        return scores

    def pooled(self, h: Tensor) -> Tensor:
        """Logits [C] of hidden vectors [m, H]."""
        logits: Tensor = self.classifier((self.attention(h).softmax(0) * h).sum(0))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Logits [C] of patches [m, D]."""
        return self.pooled(self.embed(x))


def built() -> tuple[Clam, mil.PoolModel]:
    """The model with random weights, large enough that decisions change, and its adapter."""
    torch.manual_seed(0)
    module = Clam().eval()
    with torch.no_grad():
        module.score.weight *= 8
        module.classifier.weight *= 8
    return module, mil.PoolModel.from_module(
        module, embed="embed", attention=module.attention, classifier="classifier"
    )


def flipping(run: Callable[[Tensor], Tensor], rows: Tensor, order: Tensor) -> Tensor:
    """The field's loop: logits [100, C] of what is left after each 1 % but the last."""
    n = len(rows)
    return torch.stack([run(rows[order[n * j // STEPS :]]) for j in range(STEPS)])


def greedy(run: Callable[[Tensor], Tensor], rows: Tensor, steps: int) -> list[int]:
    """Remove the patch without which the decision's margin is least, each tried by the model."""
    left, taken = list(range(len(rows))), []
    label = int(run(rows).argmax())
    for _ in range(steps):
        margins = []
        for i in left:
            z = run(rows[[j for j in left if j != i]])
            margins.append(float(z[label] - z[1 - label]))
        taken.append(left.pop(min(range(len(left)), key=margins.__getitem__)))
    return taken


@torch.no_grad()
def flips(n: int, repeats: int) -> dict[str, Any]:
    """Time patch flipping of a slide of n patches."""
    module, model = built()
    x = torch.randn(n, D)
    h = module.embed(x)
    batch = model.batch(mil.Bag.of(x))
    order = fae.rank(batch, "attention")
    curves: Any = ("label_prob", "decision")
    found = fae.erase_prefixes(batch, ["attention"], curves=curves)
    at = torch.tensor([n * j // STEPS for j in range(STEPS)])
    worst = 0.0
    for name, run, rows in (("model", module, x), ("pool", module.pooled, h)):
        logits = flipping(run, rows, order)
        label = int(logits[0].argmax())
        p = logits.double().softmax(1)[:, label]
        worst = max(worst, float((found.curves["label_prob"][0, at] - p).abs().max()))
        margin = (logits[:, 0] - logits[:, 1]).abs()
        differ = (found.curves["decision"][0, at] != logits.argmax(1)) & (margin > WITHIN)
        if worst > WITHIN or bool(differ.any()):
            raise Disagreement(f"{name}, n = {n}: probabilities differ by {worst:.2g}")
    times = alternate(
        {
            "model": lambda: flipping(module, x, order),
            "pool": lambda: flipping(module.pooled, h, order),
        },
        1 if n > 5_000 else repeats,
        clock=time.process_time,
    )
    times |= alternate(
        {
            "engine": lambda: fae.erase_prefixes(batch, ["attention"], curves="label_prob"),
            "embedding": lambda: model.pool(mil.Bag.of(x)),
        },
        5 * repeats,
        clock=time.process_time,
    )
    return {
        "patches": n,
        "points_of_the_loop": STEPS,
        "points_of_the_engine": n + 1,
        "largest_difference": worst,
        "seconds": times,
        "faster_than_the_model": times["model"] / (times["engine"] + times["embedding"]),
        "faster_without_embedding": times["pool"] / times["engine"],
        "faster_without_embedding_a_point": times["pool"] / STEPS / (times["engine"] / (n + 1)),
    }


@torch.no_grad()
def greedily(n: int, compared: int, repeats: int) -> dict[str, Any]:
    """Time greedy removal; the loop runs its first steps, and is scaled to `GREEDY_STEPS`."""
    module, model = built()
    x = torch.randn(n, D)
    h = module.embed(x)
    batch = model.batch(mil.Bag.of(x))
    found = fae.greedy_order(batch)
    begin = time.process_time()
    taken = greedy(module.pooled, h, compared)
    pool = time.process_time() - begin
    if taken != found.order[:compared].tolist():
        raise Disagreement(f"greedy, n = {n}: {taken} against {found.order[:compared].tolist()}")
    begin = time.process_time()
    if greedy(module, x, 1) != taken[:1]:
        raise Disagreement(f"greedy, n = {n}: the first patch of the whole model is another")
    whole = time.process_time() - begin
    times = alternate(
        {"engine": lambda: fae.greedy_order(batch)}, 5 * repeats, clock=time.process_time
    )
    # Later steps have fewer candidates: as many as n to n - 19.
    share = sum(n - k for k in range(GREEDY_STEPS)) / sum(n - k for k in range(compared))
    times |= {
        "pool": pool * share,
        "model": whole * share * sum(n - k for k in range(compared)) / n,
    }
    return {
        "patches": n,
        "compared_steps": compared,
        "steps_of_the_loop": GREEDY_STEPS,
        "steps_of_the_engine": n,
        "seconds": times,
        "faster_than_the_model": times["model"] / times["engine"],
        "faster_without_embedding": times["pool"] / times["engine"],
    }


def anonymous() -> int:
    """Bytes of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def watched(path: Path) -> dict[str, Any]:
    """Flip the patches of a slide in a file, and say how far anonymous memory rose meanwhile."""
    torch.set_num_threads(1)
    _, model = built()
    small = model.batch(mil.Bag.of(torch.randn(64, D)))
    mil.patch_flipping(small, ["attention", "single", "one_removed"])  # what is loaded once
    before = anonymous()
    peaks, ended = [before], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            peaks.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.process_time()
    bag = mil.open_bag(path)
    pooled = model.pool(bag)
    embedded = time.process_time() - begin
    batch = model.batch(pooled)
    found = mil.patch_flipping(batch, ["attention", "single", "one_removed"])
    total = time.process_time() - begin
    ended.set()
    watcher.join()
    minimal = found.swept.minimal
    return {
        "patches": bag.n,
        "width": bag.width,
        "file_bytes": path.stat().st_size,
        "peak_anonymous_bytes_beyond_the_start": max(peaks) - before,
        "seconds": {"embedding": embedded, "all": total},
        "smallest_set": None if minimal is None else int(minimal.size[0]),
    }


def large(n: int) -> dict[str, Any]:
    """Write a slide, and erase it in a process of its own."""
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slide.h5"
        torch.manual_seed(0)
        with h5py.File(path, "w") as file:
            features = file.create_dataset("features", (n, D), "float16")
            for begin in range(0, n, 10_000):
                end = min(begin + 10_000, n)
                features[begin:end] = torch.randn(end - begin, D).half().numpy()
            file["coords"] = torch.stack([torch.arange(n) % 500, torch.arange(n) // 500], 1).numpy()
        code = subprocess.run(
            [sys.executable, __file__, "--watched", str(path)], capture_output=True, text=True
        )
        if code.returncode:
            raise RuntimeError(code.stderr)
        found: dict[str, Any] = json.loads(code.stdout)
        return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=3, help="calls timed, of which the median")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--watched", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.watched is not None:
        print(json.dumps(watched(arguments.watched)))
        return 0
    torch.set_num_threads(1)
    smoke = arguments.smoke
    repeats = 1 if smoke else arguments.repeats
    try:
        record: dict[str, Any] = {
            "machine": machine(),
            "versions": versions(),
            "smoke": smoke,
            "flipping": [flips(n, repeats) for n in ((200,) if smoke else (1_000, 10_000))],
            "greedy": greedily(20 if smoke else 400, 2, repeats),
            "large": large(2_000 if smoke else 200_000),
        }
    except Disagreement as disagreement:
        print(f"no numbers: {disagreement}", file=sys.stderr)
        return 1
    rows = []
    for of in (*record["flipping"], record["greedy"]):
        what = "greedy, " if of is record["greedy"] else ""
        seconds = of["seconds"]
        rows.append(
            [
                f"{what}n = {of['patches']:,}",
                duration(seconds["model"]),
                duration(seconds["pool"]),
                duration(seconds["engine"]),
                f"{of['faster_than_the_model']:,.0f}",
                f"{of['faster_without_embedding']:,.0f}",
            ]
        )
    print(
        markdown(
            ["patches", "model, a step", "pool, a step", "engine", "faster", "without embedding"],
            rows,
        )
    )
    peak = record["large"]["peak_anonymous_bytes_beyond_the_start"]
    print(
        f"{record['large']['patches']:,} patches of D = {D:,}: {quantity(peak, 'B')} beyond a file "
        f"of {quantity(record['large']['file_bytes'], 'B')}, "
        f"{duration(record['large']['seconds']['all'])}"
    )
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if peak < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
