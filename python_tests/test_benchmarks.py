"""The baselines that the engine is measured against answer the engine's question."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import fastattnerase as fae

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def _benchmarks_on_path():
    """The benchmark scripts import their neighbours, as scripts do."""
    sys.path.append(str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def hand_worked():
    """Two instances of equal weights and one feature a class; sums are small integers.

    Scores are equal, so `attention` keeps positions. Contributions of the first instance:
    (3, 0), (0, 1), (0, 1); it is class 0 until item 0 goes, then class 1. The second: (1, 0) only;
    erasing it leaves the bias, whose largest is class 0: it never flips.
    """
    problems = load("problems")
    return problems.Data(
        "hand",
        torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]),
        torch.zeros(4),
        torch.tensor([0, 3, 4]),
        torch.eye(2),
        torch.tensor([0.25, 0.0]),
    )


FUNCTIONS = ("torch_sweep", "forward_loop", "mask_product", "feature_suffix_sums")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_hand_worked_orders(function: str) -> None:
    orders = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 0], [2, 0, 1, 0], [1, 0, 2, 0]])
    data = hand_worked()
    keys = load("harness").keys_from_orders(orders, data.offsets)
    found = getattr(load("baselines"), function)(data, keys)
    assert found.label.tolist() == [0, 0]
    # Means of the survivors after item 0: (0, 1) + bias: class 1. Order 1, 2, 0 never leaves
    # class 0: item 0 alone is (3, 0), and the bias alone prefers class 0.
    assert found.first_flip.tolist() == [[1, -1], [-1, -1], [2, -1], [2, -1]]
    assert found.flip_label.tolist() == [[1, -1], [-1, -1], [1, -1], [1, -1]]
    expected = np.array([[1 / 3, np.nan], [np.nan, np.nan], [2 / 3, np.nan], [2 / 3, np.nan]])
    np.testing.assert_allclose(found.removed_mass.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["flan_imdb", "han", "bilstm", "transformer", "tiny"])
def test_every_baseline_agrees_with_the_reference_on_its_orders(name: str) -> None:
    problems, baselines, harness = load("problems"), load("baselines"), load("harness")
    data = problems.build(name, smoke=True)
    data = data.head(min(data.instances, 40 if name == "han" else 2))
    engine = harness.Engine(data, "reference")
    ours, near = engine.result()
    keys = harness.keys_from_orders(engine.orders(), data.offsets)
    for function in FUNCTIONS:
        harness.compare(function, ours, getattr(baselines, function)(data, keys), near)
    assert (ours.first_flip > 1).any(), "every flip is at the first prefix: nothing is compared"


def test_disagreement_is_an_error_outside_near_ties() -> None:
    baselines, harness = load("baselines"), load("harness")
    data = hand_worked()
    ours = baselines.torch_sweep(data)
    other = baselines.torch_sweep(data)
    other.first_flip[1, 0] += 1
    everywhere = torch.tensor([True, True])
    assert harness.compare("same", ours, ours, ~everywhere) == {
        "near_ties": 0,
        "near_ties_that_differ": 0,
    }
    with pytest.raises(harness.Disagreement, match="1 of 2 instances differ"):
        harness.compare("planted", ours, other, ~everywhere)
    assert harness.compare("tie", ours, other, everywhere)["near_ties_that_differ"] == 1


def test_random_keys_are_the_engines_random_ranking() -> None:
    problems, baselines, harness = load("problems"), load("baselines"), load("harness")
    data = problems.build("han", smoke=True).head(50)
    for seed, order in ((0, 0), (7, 3)):
        keys = problems.random_keys(seed, order, data.offsets).expand(4, -1)
        batch = harness.Engine(data, "reference").batch
        expected = fae.rank(batch, "random", seed=seed, order=order, backend="reference")
        assert torch.equal(baselines.orders_of(data, keys)[0], expected)


def test_permuted_weights_in_torch_are_the_engine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    permute, data = load("permute"), load("problems").build("bilstm", smoke=True)
    permute.check(data.head(5), 3)
    # Without keys torch draws its own permutations, of every instance in its bucket.
    tvd, flips = permute.torch_permute(data.head(5), 5, 2, torch.float32)
    assert ((tvd > 0) & (tvd < 1)).all()
    assert ((flips >= 0) & (flips <= 5)).all()
    monkeypatch.setattr(permute, "FIRST", 0)  # other permutations
    with pytest.raises(load("harness").Disagreement, match="distances differ"):
        permute.check(data.head(5), 3)


def test_quantus_measures_are_the_engine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("quantus", exc_type=ImportError)
    measures, data = load("prefix_measures"), load("problems").build("bilstm", smoke=True)
    assert measures.check(data.head(2), 1) < 1e-6
    monkeypatch.setattr(measures, "WITHIN", 0.0)
    with pytest.raises(load("harness").Disagreement, match="measures differ by"):
        measures.check(data.head(2), 1)


def test_exact_answers_are_compared_before_they_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, out = load("exact"), tmp_path / "exact.json"
    threads = torch.get_num_threads()
    try:
        assert exact.main(["--smoke", "--json", str(out)]) == 0
        rows = json.loads(out.read_text())["rows"]
        assert [row["what"] for row in rows if "faster" not in row] == ["greedy order"] * 2
        for row in rows:
            if "faster" in row:
                assert row["faster"] == pytest.approx(row["baseline_seconds"] / row["seconds"])
        assert {row["size"] for row in rows if row["what"] == "sufficient set, no pair"} == {3}
        assert "faster by" in capsys.readouterr().out
        monkeypatch.setattr(exact, "threshold_numpy", lambda weights, m, t: (0, 0))
        monkeypatch.setattr(exact, "measure", lambda smoke, repeats: [exact.threshold(100, 1)])
        assert exact.main(["--smoke"]) == 1
        assert "no numbers: threshold: answers differ by" in capsys.readouterr().err
    finally:
        torch.set_num_threads(threads)


def test_the_quadratic_greedy_form_by_hand() -> None:
    """Margins 2, −.4, −.3, 1 of equal weights: 2 first, then 1, then −.3, which leaves −.4."""
    exact = load("exact")
    own = np.array([[2.0], [-0.4], [-0.3], [1.0]])
    order = exact.greedy_numpy(np.full(4, 0.25), own)
    assert order.tolist() == [0, 3, 2, 1]
    left = exact.left_margins(np.full(4, 0.25), own, order)
    np.testing.assert_allclose(left, [2.3 / 4, 0.1, -0.35, -0.4])


def test_buckets_hold_every_instance_once_within_the_limit() -> None:
    offsets = torch.tensor([0, 5, 5, 12, 13, 40, 45])  # lengths 5, 0, 7, 1, 27, 5
    found = list(load("baselines").buckets(offsets, 10))
    assert [(members.tolist(), longest) for members, longest in found] == [
        ([1, 3], 1),
        ([0, 5], 5),
        ([2], 7),
        ([4], 27),
    ]


def test_captum_gives_the_drop_of_single_erasures() -> None:
    pytest.importorskip("captum")
    data = load("problems").build("tiny")
    drop = load("harness").Engine(data, "reference").each().label_prob_drop
    torch.testing.assert_close(load("baselines").captum_single(data), drop, atol=2e-6, rtol=0)


def test_problem_sets_are_seeded_and_shaped() -> None:
    problems = load("problems")
    for name, spec in problems.SETS.items():
        first, second = (problems.build(name, smoke=True) for _ in range(2))
        assert torch.equal(first.values, second.values)
        assert first.values.shape == (int(first.offsets[-1]), spec.width)
        assert first.head_weight.shape == (spec.classes, spec.width)
        assert first.instances == spec.smoke_instances
    with pytest.raises(ValueError, match="name: unknown problem set 'nope'"):
        problems.build("nope")


def test_rows_of_two_threads_tell_their_speed_against_one() -> None:
    run = load("run")
    rows = [
        {"set": "a", "threads": 1, "what": "sweep", "seconds": 3.0},
        {"set": "b", "threads": 1, "what": "sweep", "seconds": 5.0},
        {"set": "a", "threads": 1, "what": "masks"},
        {"set": "a", "threads": 2, "what": "sweep", "seconds": 2.0},
        {"set": "a", "threads": 2, "what": "masks"},
    ]
    run.against_one_thread(rows)
    assert [row.get("times_first_thread_count") for row in rows] == [None, None, None, 1.5, None]


@pytest.mark.long
def test_run_writes_compared_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    arguments = ["--smoke", "--sets", "tiny", "--backend", "reference", "--repeats", "1"]
    assert load("run").main([*arguments, "--json", str(out)]) == 0
    results = json.loads(out.read_text())
    rows = {row["what"]: row for row in results["rows"]}
    loop, sweep = rows["(1) one forward per prefix"], rows["sweep"]
    assert sweep["ratio_to_loop"] == pytest.approx(loop["seconds"] / sweep["seconds"])
    assert sweep["prefixes_per_second"] == pytest.approx(4 * 20 / sweep["seconds"])
    assert sweep["bytes_per_second"] == pytest.approx(20 * 100 * 4 / sweep["seconds"])
    assert "Smoke sizes" in out.with_suffix(".md").read_text()
    assert "| tiny" in capsys.readouterr().out


def test_gpu_dry_run_compares_on_the_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    arguments = ["--emulated", "--backends", "reference", "--sets", "tiny", "--json", str(out)]
    threads = torch.get_num_threads()
    assert load("gpu").main(arguments) == 0
    torch.set_num_threads(threads)
    results = json.loads(out.read_text())
    assert results["failures"] == []
    assert results["copy_bandwidth"] is None
    whats = {(row["backend"], row["dtype"], row["what"]) for row in results["rows"]}
    assert ("reference", "bfloat16", "sweep + singles + minimal set") in whats
    assert any("sweep_share" in row for row in results["rows"])


def test_readme_block_replaces_only_what_is_between_the_markers() -> None:
    claims = load("readme_claims")
    text = f"before\n{claims.BEGIN}\nold\n{claims.END}\nafter\n"
    new = f"{claims.BEGIN}\nnew\n{claims.END}"
    assert claims.replace_block(text, new) == f"before\n{new}\nafter\n"
    with pytest.raises(ValueError, match="README needs"):
        claims.replace_block("no markers", new)


def test_readme_claims_come_from_the_results(tmp_path: Path) -> None:
    claims, run = load("readme_claims"), load("run")
    row = {
        "set": "tiny",
        "threads": 1,
        "what": run.SWEEP,
        "seconds": 0.0125,
        "prefixes_per_second": 4e6,
        "ratio_to_loop": 1234.5,
        "ratio_to_torch": 7.25,  # of eager torch alone, which is not the best here
    }
    eager = row | {"what": run.TORCH, "seconds": 7.25 * 0.0125}
    compiled = row | {"what": run.COMPILED, "seconds": 5.5 * 0.0125}
    results = {
        "machine": {"cpu": "some CPU", "cores": 2},
        "versions": {"torch": "2.0"},
        "isa": "avx2",
        "smoke": False,
        "sets": {"tiny": {}},
        "rows": [row, eager, compiled, row | {"threads": 2, "seconds": 0.00625}],
    }
    (tmp_path / "cpu.json").write_text(json.dumps(results))
    block = claims.block(tmp_path)
    cells = [cell.strip() for cell in block.splitlines()[6].split("|")]
    assert cells[1:-1] == ["one tiny call, n=20", "12.5 ms", "4 M", "1,200x", "5.5x", "2.0x"]
    (tmp_path / "cpu.json").write_text(json.dumps(results | {"smoke": True}))
    with pytest.raises(ValueError, match="dry run"):
        claims.block(tmp_path)
