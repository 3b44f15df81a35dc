"""`fae.cross_threshold` against all subsets, on every backend that sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fastattnerase as fae
from contract.harness import Runner
from contract.subsets import KINDS, Small, batch_of, decided, draw, share_of

# of, crossing, classes, rival
FORMS = [
    ("output", "below", 1, None),
    ("output", "above", 1, None),
    ("margin", "below", 2, None),
    ("margin", "above", 2, None),
    ("margin", "below", 3, None),
    ("margin", "below", 4, 1),
    ("margin", "above", 3, 2),
    ("probability", "below", 2, None),
    ("probability", "above", 2, None),
]


def output_of(one: Small, of: str, rival: int | None) -> np.ndarray:
    """What is compared with the threshold, for every subset kept: [2^n]."""
    if of == "output":
        return one.logits[:, 0]
    y = one.label
    others = np.delete(one.logits, y, 1).max(1) if rival is None else one.logits[:, rival]
    margin = one.logits[:, y] - others
    return margin if of == "margin" else 1 / (1 + np.exp(-margin))


def past(one: Small, of: str, crossing: str, rival: int | None, t: float) -> np.ndarray:
    """Which subsets' output is past the threshold; at equality the lower class wins."""
    out, y = output_of(one, of, rival), one.label
    if of == "output":
        return out <= t if crossing == "below" else out >= t
    scale = out if of == "margin" else np.log(out / (1 - out))
    level = t if of == "margin" else np.log(t / (1 - t))
    if crossing == "above":
        other = 1 - y if rival is None else rival
        return scale >= level if y < other else scale > level
    if rival is None and of == "margin":
        rivals = [c for c in range(len(one.bias)) if c != y]
        lead = one.logits[:, [y]] - one.logits[:, rivals]
        wins = np.array([c < y for c in rivals])
        return (lead < t).any(1) | ((lead == t) & wins).any(1)
    other = 1 - y if rival is None else rival
    return scale <= level if other < y else scale < level


def judge(
    one: Small, found: fae.ThresholdCrossing, b: int, form: tuple[Any, ...], t: float
) -> None:
    of, crossing, _, rival = form
    if not decided(found.status, b):
        return
    if rival == one.label:
        assert int(found.size[b]) == int(found.first_crossing[0, b]) == -1
        assert not bool(found.crossed[b])
        return
    out, is_past = output_of(one, of, rival), past(one, of, crossing, rival, t)
    positive = int((one.weights > 0).sum())
    np.testing.assert_allclose(float(found.output[b]), out[-1], 1e-9, 1e-9)
    if not positive:  # nothing moves
        assert int(found.size[b]) == int(found.first_crossing[0, b]) == (0 if is_past[-1] else -1)
        return
    assert bool(found.crossed[b]) == bool(is_past[-1])
    removed = (positive - one.sizes)[is_past]
    smallest = int(removed.min()) if len(removed) else -1
    assert int(found.size[b]) == (0 if is_past[-1] else smallest)
    order = np.argsort(-one.weights, kind="stable")
    sets = [(2**one.n - 1) - sum(2 ** int(i) for i in order[:k]) for k in range(one.n + 1)]
    hit = [k for k in range(one.n + 1) if is_past[sets[k]]]
    assert int(found.first_crossing[0, b]) == (hit[0] if hit else -1)
    first = int(found.curve_offsets[b])
    curve = found.curve[0, first : first + one.n + 1].numpy()
    np.testing.assert_allclose(curve, out[sets], 1e-9, 1e-9)


def run(runner: Runner, kind: str, form: tuple[Any, ...], count: int) -> None:
    of, crossing, classes, rival = form
    instances = draw(kind, count, classes, seed=5)
    rng = np.random.default_rng(7)
    t = rng.normal(size=count) / 2 if of != "probability" else rng.uniform(0.2, 0.8, count)
    if kind == "tied" and of != "probability":
        t = rng.integers(-1, 2, count).astype(float)
    found = fae.cross_threshold(
        batch_of(instances, runner.device), ["attention"],
        threshold=torch.from_numpy(t).to(runner.device), crossing=crossing, of=of, rival=rival,
        curves=True, backend=runner.name,
    ).to("cpu")  # fmt: skip
    near = 0
    for b, one in enumerate(instances):
        near += not decided(found.status, b)
        try:
            judge(one, found, b, form, float(t[b]))
        except AssertionError as error:
            raise AssertionError(f"instance {b} of {kind}: {error}") from None
    assert near <= {"tied": 0.75, "degenerate": 0.2}.get(kind, 0.02) * count + 1, near


@pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(str(x) for x in f))
def test_all_subsets(runner: Runner, form: tuple[Any, ...]) -> None:
    for kind in KINDS:
        run(runner, kind, form, 12 if runner.name in ("cuda", "triton") else 40)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand(runner: Runner, kind: str) -> None:
    if runner.name not in ("reference", "cpu-avx2", "cpu-plain"):
        return
    for form in FORMS:
        run(runner, kind, form, share_of(10_000 // len(FORMS) + 1))


def test_by_hand(runner: Runner) -> None:
    batch = fae.AttentionBatch(
        torch.tensor([[4.0], [1.0], [2.0], [4.0]], device=runner.device),
        torch.tensor([0, 3, 4], device=runner.device),
        weights=torch.tensor([0.5, 0.3, 0.2, 1.0], device=runner.device),
        head_weight=torch.tensor([[1.0]], device=runner.device),
        head_bias=torch.tensor([0.5], device=runner.device),
    )
    # Outputs 3.2 and 4.5; without item 0 0.7 / 0.5 + 0.5 = 1.9, of nothing 0.5.
    t = torch.tensor([2.0, 5.0], device=runner.device)
    found = fae.cross_threshold(batch, threshold=t, curves=True, backend=runner.name).to("cpu")
    torch.testing.assert_close(found.output, torch.tensor([3.2, 4.5]))
    assert found.crossed.tolist() == [False, True]
    assert found.first_crossing.tolist() == [[1, 0]]
    assert found.size.tolist() == [1, 0]
    torch.testing.assert_close(found.removed_mass, torch.tensor([[0.5, 0.0]]).double())
    torch.testing.assert_close(found.curve, torch.tensor([[3.2, 1.9, 2.5, 0.5, 4.5, 0.5]]))
    # Above 3.5: without item 2 it is 2.3 / 0.8 + 0.5 = 3.38, without 1 2.4 / 0.7 + 0.5 = 3.93.
    above = fae.cross_threshold(
        batch, torch.tensor([0.0, 1.0, 2.0, 0.0], device=runner.device), threshold=3.5,
        crossing="above", backend=runner.name,
    ).to("cpu")  # fmt: skip
    assert above.first_crossing.tolist() == [[2, 0]]
    assert above.size.tolist() == [1, 0]
    # Kept alone, item 1 gives 1.5: items 1 and 0 give 2.3 / 0.8 + 0.5, on the side of 3.2.
    keep = fae.cross_threshold(
        batch, torch.tensor([1.0, 2.0, 0.0, 0.0], device=runner.device), threshold=3.0,
        direction="keep", backend=runner.name,
    ).to("cpu")  # fmt: skip
    assert keep.first_crossing.tolist() == [[2, 1]]
    table = found.to_pandas()
    assert table["size"].tolist() == [1, 0]
    assert table["fraction"].round(3).tolist() == [0.333, 0.0]


def test_margin_below_zero_is_a_flip(runner: Runner) -> None:
    batch = batch_of(draw("random", 40, 3, seed=1), runner.device)
    found = fae.cross_threshold(
        batch, ["attention", "gradient"], threshold=0.0, backend=runner.name
    )
    flips = fae.sweep(batch, ["attention", "gradient"], backend=runner.name)
    assert torch.equal(found.first_crossing, flips.prefixes.first_flip)
    assert torch.equal(found.size, flips.minimal.size)


def test_several_heads_have_no_set() -> None:
    torch.manual_seed(0)
    batch = fae.AttentionBatch(
        torch.randn(5, 2, 3), torch.tensor([0, 5]), scores=torch.randn(5, 2),
        head_weight=torch.randn(1, 2, 3),
    )  # fmt: skip
    found = fae.cross_threshold(batch, threshold=-9.0, curves=True)
    assert found.size is None
    assert found.order is None
    logits = fae.reweigh(batch, batch.scores.softmax(0)[None])
    torch.testing.assert_close(found.curve[0, 0], logits[0, 0, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": float("nan")}, "threshold: given nan, needed finite numbers"),
        ({"threshold": torch.zeros(3)}, r"threshold: given \[3\], needed a number or \[2\]"),
        ({"crossing": "under"}, "crossing: given 'under', needed 'below' or 'above'"),
        ({"of": "output"}, "of: given 'output' with C = 3, needed one output"),
        ({"of": "probability"}, "of: given 'probability' with C = 3, needed two"),
        (
            {"crossing": "above"},
            "rival: given none with crossing='above' and C = 3, needed a class",
        ),
        ({"rival": 3}, "rival: given 3, needed classes 0 … 2"),
        ({"rival": torch.zeros(2)}, r"rival: given \[2\] of torch.float32, needed int64"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    batch = batch_of(draw("random", 2, 3, seed=1))
    with pytest.raises(ValueError, match=message):
        fae.cross_threshold(batch, **{"threshold": 0.0, **changes})


def test_probability_is_between_0_and_1() -> None:
    batch = batch_of(draw("random", 2, 2, seed=1))
    with pytest.raises(ValueError, match=r"threshold: given 1\.5, needed above 0 and below 1"):
        fae.cross_threshold(batch, threshold=1.5, of="probability")


def test_no_instances() -> None:
    batch = batch_of(draw("random", 2, 3, seed=1))[:0]
    found = fae.cross_threshold(batch, threshold=0.0, rival=1, curves=True)
    assert found.first_crossing.shape == (1, 0)
