"""Same input, same result, bit for bit (engine contract, section 8)."""

from __future__ import annotations

import pytest
import torch

import fastattnerase as fae
from contract.cases import CASES, Caps, build, shrink
from contract.harness import Runner, allocate, assert_same, wanted
from contract.public import assert_equal, everything, instance_results, ragged

LENGTHS = [7, 0, 19, 1, 33, 5, 2, 64, 12]


def small(runner: Runner, lengths: list[int]) -> list[int]:
    """Fewer items where a backend is slow."""
    return [min(n, 40) for n in lengths] if runner.caps != Caps() else lengths


@pytest.mark.parametrize("name", ["base", "peaked", "han", "wide-span", "every-length", "longest"])
@pytest.mark.long_where(  # only the CPU engine has threads of its own
    these=lambda p: not p["runner"].startswith("cpu-") and p["name"] != "base"
)
def test_thread_counts(runner: Runner, name: str) -> None:
    """One, two and three threads give the same bits, with long instances split or not."""
    case = CASES[name]
    built = runner.build(case)
    if name == "longest" and runner.caps == Caps():
        built = build(shrink(case, Caps(items=20_000)), runner.device)
    before = None
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        out = allocate(built.problem, wanted(built.case), float("nan"))
        runner.backend.sweep(built.problem, out)
        if before is not None:
            assert_same(before, out, f"between {threads - 1} and {threads} threads")
        before = out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_B14_B28_batch_composition(runner: Runner, dtype: torch.dtype, spread: float) -> None:
    """B14, B28: alone, in 4, in 33 and shuffled, an instance has the same results."""
    lengths = small(runner, LENGTHS)[: runner.caps.instances + 1]
    args = ragged(lengths, dtype=dtype, spread=spread, device=runner.device)
    values, scores = args.pop("values"), args.pop("scores")

    def sweep(rows: list[int]) -> fae.Sweep:
        batch = fae.AttentionBatch.from_list(
            values=[values[i] for i in rows],
            scores=[scores[i] for i in rows],
            ids=torch.tensor(rows, device=runner.device),
            **args,
        )
        return everything(batch, runner)

    alone = [instance_results(sweep([i]), 0) for i in range(len(lengths))]
    count = len(lengths)
    mixed = [i * 5 % count for i in range(33)] if runner.caps == Caps() else list(range(count))
    compositions = [[0, 1, 2, 3], list(reversed(range(count))), mixed]
    for rows in compositions if count > 4 else [[3, 1, 0, 2]]:
        together = sweep(rows)
        for place, i in enumerate(rows):
            why = f"for instance {i} alone and at place {place} of {len(rows)}"
            assert_equal(alone[i], instance_results(together, place), why)


def test_B34_pad_widths(runner: Runner) -> None:
    """B34: pad width 5, 50 and 500 give the bits of the packed batch, whatever lies in the pad."""
    lengths = [5, 3, 0, 1]
    args = ragged(lengths, device=runner.device)
    packed = fae.AttentionBatch.from_list(**args)
    expected = everything(packed, runner)
    heads = {k: args[k] for k in ("head_weight", "head_bias")}
    for width in (5, 50, 500):
        values = torch.full((4, width, 6), float("nan"), device=runner.device)
        scores = torch.full((4, width), float("inf"), device=runner.device)
        for b, n in enumerate(lengths):
            values[b, :n], scores[b, :n] = args["values"][b], args["scores"][b]
        padded = fae.AttentionBatch.from_padded(
            values, scores=scores, lengths=torch.tensor(lengths, device=runner.device), **heads
        )
        got = everything(padded, runner)
        for b in range(4):
            assert_equal(
                instance_results(expected, b), instance_results(got, b), f"at pad width {width}"
            )
        assert padded.to_padded(padded.positions)[0, :5].tolist() == [0, 1, 2, 3, 4]


def test_mask_with_holes(runner: Runner) -> None:
    """A mask with holes is the packed batch of the items it keeps, positions known."""
    args = ragged([9, 9], device=runner.device)
    mask = torch.tensor(
        [[1, 0, 1, 1, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 1, 0]], dtype=torch.bool
    ).to(runner.device)
    padded = fae.AttentionBatch.from_padded(
        torch.stack(args["values"]),
        scores=torch.stack(args["scores"]),
        mask=mask,
        lengths=torch.tensor([9, 8], device=runner.device),
        head_weight=args["head_weight"],
        head_bias=args["head_bias"],
    )
    assert padded.positions.tolist() == [0, 2, 3, 5, 8, 2, 7]
    kept = [mask[0], mask[1]]
    packed = fae.AttentionBatch.from_list(
        values=[v[m] for v, m in zip(args["values"], kept, strict=True)],
        scores=[s[m] for s, m in zip(args["scores"], kept, strict=True)],
        head_weight=args["head_weight"],
        head_bias=args["head_bias"],
    )
    for b in range(2):
        assert_equal(
            instance_results(everything(packed, runner), b),
            instance_results(everything(padded, runner), b),
            "between a mask and its packed form",
        )


def test_slices_and_cat(runner: Runner) -> None:
    """Slices keep ids, so that random orders stay; `cat` undoes slicing."""
    batch = fae.AttentionBatch.from_list(**ragged([5, 3, 8, 1, 2], device=runner.device))
    whole = everything(batch, runner)
    part = everything(batch[1:4], runner)
    again = everything(fae.AttentionBatch.cat([batch[:2], batch[2:2], batch[2:]]), runner)
    for b in range(5):
        assert_equal(instance_results(whole, b), instance_results(again, b), "after cat")
        if 1 <= b < 4:
            assert_equal(instance_results(whole, b), instance_results(part, b - 1), "in a slice")


def test_B58_twenty_runs_on_uniform_attention(runner: Runner) -> None:
    """B58: uniform attention, n = 10,000 where the backend is fast, 20 runs bit-equal."""
    n = 10_000 if runner.caps == Caps() else 60
    runs = 20 if runner.caps == Caps() else 3
    args = ragged([n], features=3, classes=2, device=runner.device)
    args["scores"] = [torch.zeros(n, device=runner.device)]
    batch = fae.AttentionBatch.from_list(**args)
    options = {"rankings": ("attention", "gradient"), "curves": ("js",), "minimal": False}
    first = instance_results(everything(batch, runner, **options), 0)
    assert fae.rank(batch, "attention", backend=runner.name).tolist() == list(range(n))
    for _ in range(runs - 1):
        again = instance_results(everything(batch, runner, **options), 0)
        assert_equal(first, again, "between runs")


def test_memory_as_it_comes_is_never_read(runner: Runner, request: pytest.FixtureRequest) -> None:
    """Results and workspaces full of NaN or least integers beforehand change nothing."""
    batches = [
        fae.AttentionBatch.from_list(**ragged(lengths, spread=spread, device=runner.device))
        for lengths, spread in (([7, 0, 19, 1], 1.0), ([12, 3], 400.0))
    ]
    want = [everything(batch, runner) for batch in batches]
    request.getfixturevalue("poisoned_memory")
    for batch, w in zip(batches, want, strict=True):
        got = everything(batch, runner)
        for b in range(len(batch)):
            assert_equal(
                instance_results(w, b), instance_results(got, b), "after memory was poisoned"
            )


def test_random_orders_are_the_documented_ones(runner: Runner) -> None:
    """Literal orders: seed 0, order 3, instances 0 and 1 of 6 items; and seed 7, order 0."""
    batch = fae.AttentionBatch.from_list(**ragged([6, 6], device=runner.device))
    got = [
        fae.rank(batch, "random", seed=seed, order=order, backend=runner.name).tolist()
        for seed, order in ((0, 3), (7, 0))
    ]
    assert got == RANDOM_ORDERS


RANDOM_ORDERS = [[3, 0, 1, 5, 2, 4, 0, 2, 1, 3, 4, 5], [2, 3, 5, 1, 0, 4, 4, 3, 1, 0, 5, 2]]
