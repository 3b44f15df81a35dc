"""Memory beyond inputs and results stays bounded whatever the number of rankings."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fastattnerase as fae
from contract.cases import Caps
from contract.harness import Runner
from contract.public import ragged


def bound(batch: fae.AttentionBatch) -> int:
    """What the engine may take beside inputs and results, in bytes."""
    longest = int(batch.lengths.max())
    return torch.get_num_threads() * longest * (batch.num_classes + 32) * 8 + (64 << 20)


def peak_growth(call: Callable[[], object]) -> int:
    """How far resident memory rises above its start during a call, in bytes."""
    status = Path("/proc/self/status")

    def resident(field: str) -> int:
        line = next(x for x in status.read_text().splitlines() if x.startswith(field))
        return int(line.split()[1]) << 10

    gc.collect()
    try:  # a high-water mark that starts now
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the peak of resident memory cannot be reset here")
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def test_B49_a_thousand_random_orders_are_bounded(runner: Runner) -> None:
    """1,000 orders cost their results and the bound, nothing that grows with orders times items."""
    if runner.device != "cpu":
        torch.cuda.empty_cache()
    orders = 1000 if runner.caps == Caps() else 40
    lengths = [3000, 500, 2500] if runner.caps == Caps() else [30, 5]
    batch = fae.AttentionBatch.from_list(**ragged(lengths, features=16, device=runner.device))
    fae.erase_prefixes(batch, "random", random_orders=2, backend=runner.name)
    expected = fae.erase_prefixes(batch, "random", random_orders=8, seed=2, backend=runner.name)
    kept: list[fae.PrefixErasure] = []

    def call() -> None:
        kept.append(
            fae.erase_prefixes(batch, "random", random_orders=orders, seed=2, backend=runner.name)
        )

    if runner.device == "cpu":
        grown = peak_growth(call)
    else:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        grown = torch.cuda.max_memory_allocated() - before
    results = sum(
        t.numel() * t.element_size() for t in vars(kept[0]).values() if isinstance(t, torch.Tensor)
    )
    allowed = results + bound(batch)
    if runner.device != "cpu":  # keys of one chunk of rankings at a time, on the device
        allowed += 256 << 20
    assert grown <= allowed, f"{grown >> 20} MiB above the start, allowed {allowed >> 20}"
    # Without the bound the orders alone would not fit.
    if runner.caps == Caps() and runner.device == "cpu":
        assert orders * batch.num_items * 16 > allowed
    assert torch.equal(kept[0].first_flip[:8], expected.first_flip)


@pytest.mark.long_where(these=lambda p: p["runner"] not in ("cpu-plain", "cuda-emulated"))
def test_B29_memory_is_flat_over_many_calls(runner: Runner) -> None:
    """1,000 calls (50 where the backend is slow) leave nothing behind."""
    calls = 1000 if runner.caps == Caps() else 30
    batch = fae.AttentionBatch.from_list(**ragged([12, 7], features=8, device=runner.device))
    for _ in range(5):
        fae.sweep(batch, backend=runner.name)

    def many() -> None:
        for _ in range(calls):
            fae.sweep(batch, backend=runner.name)

    assert peak_growth(many) < 24 << 20


def test_calls_from_several_threads_at_once(runner: Runner) -> None:
    """Python threads share the engine: the same bits as one after the other."""
    batches = [
        fae.AttentionBatch.from_list(**ragged([9, 4, 17], seed=i, device=runner.device))
        for i in range(4)
    ]
    want = [fae.sweep(b, backend=runner.name).prefixes.first_flip for b in batches]
    got: list[torch.Tensor | None] = [None] * 4

    def work(i: int) -> None:
        for _ in range(10 if runner.caps == Caps() else 1):
            got[i] = fae.sweep(batches[i], backend=runner.name).prefixes.first_flip

    if runner.caps != Caps() and runner.name != "reference":
        for i in range(4):  # an interpreter of kernels is for one thread at a time
            work(i)
    else:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(g is not None and torch.equal(g, w) for g, w in zip(got, want, strict=True))
