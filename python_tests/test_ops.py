"""The public functions: errors, results, the operators under torch's own checks, the registry."""

import doctest
import logging
import math
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch

import fastattnerase as fae
from fastattnerase.problem import BIT

# `fae.backends` is the function of that name.
backends = import_module("fastattnerase.backends")

CURVES = ("js", "kl", "label_prob", "mass", "decision", "logits")


def batch_of(**changes):
    generator = torch.Generator().manual_seed(0)
    arguments = {
        "values": torch.randn(9, 4, generator=generator),
        "offsets": torch.tensor([0, 4, 4, 9]),
        "weights": torch.rand(9, generator=generator),
        "head_weight": torch.randn(3, 4, generator=generator),
        "head_bias": torch.randn(3, generator=generator),
    } | changes
    return fae.AttentionBatch(**arguments)


GOOD_ORDER = torch.tensor([3, 1, 0, 2, 4, 0, 1, 2, 3])
TWICE = GOOD_ORDER.clone()
TWICE[6] = 0
NAN_SCORES = torch.arange(9.0)
NAN_SCORES[7] = torch.nan


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("order", [TWICE, GOOD_ORDER.clamp(max=3), GOOD_ORDER - 1, GOOD_ORDER + 5])
def test_orders_that_are_no_permutation_name_the_instance(order, backend):
    broken = 0 if order[0] > 3 or order.min() < 0 else 2
    with pytest.raises(ValueError, match=rf"instance {broken}\b"):
        fae.erase_prefixes(batch_of(), ["attention", order], backend=backend)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_contents_that_cannot_be_used_name_the_instance(backend):
    with pytest.raises(ValueError, match=r"instance 2\b"):
        fae.rank(batch_of(), NAN_SCORES, backend=backend)
    weights = torch.ones(9)
    weights[5] = -0.5
    for call in (fae.sweep, fae.erase_each, fae.minimal_flip_set):
        with pytest.raises(ValueError, match=r"weights.*instance 2\b|instance 2\b.*weight"):
            call(batch_of(weights=weights), backend=backend)


def test_offsets_changed_behind_the_batch_are_found():
    offsets = torch.tensor([0, 4, 4, 9])
    batch = batch_of(offsets=offsets)
    for index, value in ((3, 10), (3, 8), (0, 1), (2, 3)):
        wrong = torch.tensor([0, 4, 4, 9])
        wrong[index] = value
        offsets.copy_(wrong)
        for backend in ("reference", "auto"):
            with pytest.raises(ValueError, match="offsets"):
                fae.sweep(batch, backend=backend)


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (
            ValueError,
            lambda b: fae.rank(b, "atention"),
            "rankings: given 'atention', needed one of 'attention', 'gradient'",
        ),
        (TypeError, lambda b: fae.rank(b, 3), "rankings: given int, needed a name or a tensor"),
        (ValueError, lambda b: fae.rank(b, torch.ones(8)), "shape [8], needed [9]"),
        (ValueError, lambda b: fae.rank(b, torch.ones(9, 1)), "shape [9, 1], needed [9]"),
        (TypeError, lambda b: fae.rank(b, torch.ones(9).int()), "torch.int32, needed int64"),
        (TypeError, lambda b: fae.rank(b, torch.ones(9).bool()), "torch.bool, needed int64"),
        (
            ValueError,
            lambda b: fae.rank(b, torch.ones(9).to("meta")),
            "a tensor on meta, needed on cpu",
        ),
        (ValueError, lambda b: fae.rank(b, "random", order=-1), "order: given -1"),
        (ValueError, lambda b: fae.rank(b, "random", seed=-1), "seed: given -1"),
        (
            ValueError,
            lambda b: fae.rank(b, "random", seed=2**63),
            "seed: given 9223372036854775808",
        ),
        (ValueError, lambda b: fae.sweep(b, random_orders=0), "random_orders: given 0"),
        (ValueError, lambda b: fae.sweep(b, curves=("jss",)), "curves: given 'jss', needed one of"),
        (TypeError, lambda b: fae.sweep(b, curves=None), "curves: given NoneType, needed one or"),
        (
            TypeError,
            lambda b: fae.sweep(b, {"mine": torch.ones(9)}),
            "rankings: given a dict, needed names and tensors in a list; a ranking of a name of",
        ),
        (TypeError, lambda b: fae.sweep(b, None), "rankings: given NoneType, needed one or a"),
        (ValueError, lambda b: fae.sweep(b, curves="jss"), "curves: given 'jss', needed one of"),
        (
            TypeError,
            lambda b: fae.rank(b, torch.ones(9).to_sparse()),
            "rankings: given torch.sparse_coo, needed a dense tensor",
        ),
        (
            ValueError,
            lambda b: fae.sweep(b, direction="remove"),
            "direction: given 'remove', needed 'erase', 'keep' or 'both'",
        ),
        (
            ValueError,
            lambda b: fae.sweep(b, backend="gpu"),
            "backend: given 'gpu', needed one of 'auto', 'cuda', 'triton', 'cpu'",
        ),
        (TypeError, lambda b: fae.sweep(b.values), "batch: given Tensor, needed an AttentionBatch"),
        (TypeError, lambda b: fae.rank(None, "random"), "batch: given NoneType"),
    ],
)
def test_wrong_arguments_name_themselves(error, call, message):
    with pytest.raises(error, match=re.escape(message)):
        call(batch_of())


def test_the_four_functions_are_the_sweep():
    batch = batch_of()
    names = ["random", "attention", GOOD_ORDER]
    options = {"curves": CURVES, "seed": 5, "random_orders": 3}
    whole = fae.sweep(batch, names, **options)
    prefixes = fae.erase_prefixes(batch, names, **options)
    assert prefixes.rankings == ("random[0]", "random[1]", "random[2]", "attention", "given")
    for name in ("first_flip", "flip_label", "label", "status", "probabilities"):
        assert torch.equal(getattr(prefixes, name), getattr(whole.prefixes, name))
    for name in CURVES:
        assert torch.equal(prefixes.curves[name], whole.prefixes.curves[name])
    each = fae.erase_each(batch)
    # What else is asked for may choose another way through the engine: equal within the contract.
    assert (each.js - whole.single.js).abs().max() <= 1e-6
    assert torch.equal(each.flip, whole.single.flip)
    minimal = fae.minimal_flip_set(batch)
    assert torch.equal(minimal.size, whole.minimal.size)
    assert torch.equal(minimal.order, fae.rank(batch, "minimal"))
    part = fae.sweep(batch, ["attention"], single=False, minimal=False)
    assert part.single is None
    assert part.minimal is None
    assert fae.erase_prefixes(batch, "random").rankings == ("random",)
    two = fae.erase_prefixes(batch, [GOOD_ORDER, torch.rand(9), "product"])
    assert two.rankings == ("given[0]", "given[1]", "product")
    for i in range(3):
        order = fae.rank(batch, "random", seed=5, order=i)
        row = fae.erase_prefixes(batch, order)
        assert torch.equal(row.first_flip[0], prefixes.first_flip[i])


def test_dtypes_of_results():
    for dtype, real in (
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
    ):
        batch = batch_of(values=torch.ones(9, 4, dtype=dtype))
        result = fae.sweep(batch, ["attention"], curves=CURVES)
        prefixes = result.prefixes
        for tensor in (prefixes.label, prefixes.status, prefixes.first_flip, prefixes.flip_label):
            assert tensor.dtype == torch.int64
        assert prefixes.fraction.dtype == prefixes.removed_mass.dtype == torch.float64
        assert prefixes.curves["mass"].dtype == torch.float64
        assert prefixes.curves["decision"].dtype == torch.int64
        for name in ("js", "kl", "label_prob", "logits"):
            assert prefixes.curves[name].dtype == real
        assert prefixes.probabilities.dtype == result.single.js.dtype == real
        assert result.minimal.size.dtype == result.minimal.order.dtype == torch.int64


def test_results_carry_no_gradient_and_leave_the_random_state():
    state = torch.get_rng_state()
    batch = batch_of(
        values=torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).requires_grad_(),
        head_weight=torch.ones(3, 4, requires_grad=True),
    )
    rankings = ["random", torch.ones(9, requires_grad=True)]
    result = fae.sweep(batch, rankings, curves=CURVES, logits=True, single_kl=True)
    prefixes = result.prefixes
    tensors = [x for x in vars(result.single).values() if isinstance(x, torch.Tensor)]
    for tensor in (*tensors, *prefixes.curves.values(), prefixes.logits):
        assert not tensor.requires_grad
    assert torch.equal(torch.get_rng_state(), state)


def test_tables():
    batch = fae.AttentionBatch(
        torch.eye(3),
        torch.tensor([0, 3, 3]),
        weights=torch.tensor([0.2, 0.5, 0.3]),
        head_weight=torch.tensor([[1.0, 0, 0], [0, 1, 2]]),
    )
    result = fae.sweep(batch, ["attention", torch.tensor([0, 2, 1])])
    table = result.prefixes.to_pandas()
    # By attention 1, 2, 0: class 0 remains after two. By the given order class 1 until no mass.
    never = pytest.approx(float("nan"), nan_ok=True)
    assert table.to_dict("list") == {
        "instance": [0, 1, 0, 1],
        "ranking": ["attention", "attention", "given", "given"],
        "n": [3, 0, 3, 0],
        "label": [1, 0, 1, 0],
        "status": [0, 1, 0, 1],
        "status_names": ["", "EMPTY", "", "EMPTY"],
        "first_flip": [2, -1, 3, -1],
        "fraction": [2 / 3, never, 1, never],
        "flip_label": [0, -1, 0, -1],
        "removed_mass": [pytest.approx(0.8), never, pytest.approx(1.0), never],
    }
    assert result.to_pandas()["minimal_size"].tolist() == [2, -1, 2, -1]
    items = result.single.to_pandas()
    assert items["instance"].tolist() == [0, 0, 0]
    assert items["position"].tolist() == [0, 1, 2]
    assert items["flip"].tolist() == [False, False, False]
    assert result.minimal.to_pandas()["size"].tolist() == [2, -1]


def test_results_move():
    moved = fae.sweep(batch_of(), curves=("js",)).to("meta")
    assert moved.prefixes.label.device.type == "meta"
    assert moved.prefixes.curves["js"].device.type == "meta"
    assert moved.single.js.device.type == moved.minimal.order.device.type == "meta"
    assert moved.prefixes.rankings == ("random", "attention", "gradient", "product")


def operator_arguments(backend, wants):
    # Every item says class 0, the bias class 1: all flip in the end, so that no result is NaN,
    # which torch's comparison would take for a difference.
    batch = batch_of(
        values=torch.rand(9, 4, generator=torch.Generator().manual_seed(1)),
        offsets=torch.tensor([0, 4, 9]),
        head_weight=torch.tensor([[2.0, 2, 2, 2], [0, 0, 0, 0]]),
        head_bias=torch.tensor([0.0, 0.5]),
    )
    order, scores = GOOD_ORDER, torch.arange(9.0)
    return (
        *batch.packed,
        *batch.linear_head,
        batch.ids,
        [0, 4, 9, 10],
        [0, 1, 0, 0],
        [order],
        [scores],
        0,
        False,
        wants,
        backend,
        True,
    )


@pytest.mark.parametrize("wants", [0, BIT["order"], sum(BIT.values())])
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_the_operators_pass_torchs_own_checks(backend, wants):
    torch.library.opcheck(torch.ops.fastattnerase.sweep.default, operator_arguments(backend, wants))
    batch = batch_of()
    torch.library.opcheck(
        torch.ops.fastattnerase.pooled_prefixes.default,
        (*batch.packed, GOOD_ORDER, True, 2, 7, backend),
    )


class Everything(torch.nn.Module):
    """All public functions, from raw tensors to raw tensors."""

    def forward(self, values, offsets, weights, head, scores):
        batch = fae.AttentionBatch(values, offsets, weights=weights, head_weight=head)
        prefixes = fae.erase_prefixes(batch, ["attention", "random", scores], curves=("js",))
        swept = fae.sweep(batch)
        return (
            prefixes.first_flip,
            prefixes.fraction,
            prefixes.curves["js"] * 2,
            prefixes.curve_offsets,
            swept.prefixes.status,
            swept.single.flip,
            fae.erase_each(batch).js + 1,
            fae.minimal_flip_set(batch).order,
            fae.rank(batch, "gradient"),
        )


def tensors(T, seed):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(T, 4, generator=generator),
        torch.tensor([0, 2, T]),
        torch.rand(T, generator=generator),
        torch.randn(3, 4, generator=generator),
        torch.randn(T, generator=generator),
    )


def test_everything_compiles_to_one_graph():
    compiled = torch.compile(Everything(), fullgraph=True, backend="aot_eager", dynamic=True)
    for T in (5, 9):
        arguments = tensors(T, T)
        for given, expected in zip(compiled(*arguments), Everything()(*arguments), strict=True):
            torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)


def test_compiling_under_deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        compiled = torch.compile(Everything(), fullgraph=True, backend="aot_eager")
        arguments = tensors(7, 0)
        for given, expected in zip(compiled(*arguments), Everything()(*arguments), strict=True):
            torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)
    finally:
        torch.use_deterministic_algorithms(False)


def test_everything_exports_with_any_number_of_items():
    T = torch.export.Dim("T", min=3)
    program = torch.export.export(
        Everything(), tensors(5, 0), dynamic_shapes=({0: T}, None, {0: T}, None, {0: T})
    )
    arguments = tensors(11, 1)
    for given, expected in zip(program.module()(*arguments), Everything()(*arguments), strict=True):
        torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)


class Recorder:
    """A backend that does what the reference does, and remembers that it did."""

    name = "recorder"
    devices = ("cpu",)

    def __init__(self, unavailable=(), unsupported=()):
        self.reasons, self.refusals, self.calls = list(unavailable), list(unsupported), 0

    def unavailable(self):
        return self.reasons

    def unsupported(self, problem):
        return self.refusals

    def sweep(self, problem, out):
        self.calls += 1
        backends.choose("reference", "cpu").sweep(problem, out)

    def pooled_prefixes(self, problem, pooled):
        backends.choose("reference", "cpu").pooled_prefixes(problem, pooled)


@pytest.fixture
def registry(monkeypatch):
    fae.backends()
    monkeypatch.setattr(backends, "_ENTRIES", dict(backends._ENTRIES))


@pytest.mark.usefixtures("registry")
def test_a_registered_backend_is_forced_by_name():
    recorder = Recorder()
    backends.register(recorder)
    assert fae.backends()["recorder"] == []
    fae.sweep(batch_of(), backend="recorder")
    assert recorder.calls == 1
    fae.sweep(batch_of())
    assert recorder.calls == 1


@pytest.mark.usefixtures("registry")
def test_a_forced_backend_never_falls_back():
    backends.register(Recorder(unavailable=["no such device", "no driver"]))
    assert fae.backends()["recorder"] == ["no such device", "no driver"]
    message = re.escape("given 'recorder', needed one that can run this: no such device; no driver")
    with pytest.raises(RuntimeError, match=message):
        fae.sweep(batch_of(), backend="recorder")
    backends.register(Recorder(unsupported=["too many classes"]))
    with pytest.raises(
        RuntimeError, match="'recorder', needed one that can run this: too many classes"
    ):
        fae.erase_each(batch_of(), backend="recorder")
    with pytest.raises(RuntimeError, match="it takes tensors on cpu, these are on meta"):
        backends.choose("recorder", "meta")


@pytest.mark.usefixtures("registry")
def test_auto_takes_the_first_that_can_and_says_where_none_can():
    refuses = Recorder(unsupported=["not today"])
    refuses.name = "cpu"
    backends.register(refuses)
    assert fae.sweep(batch_of()).prefixes.label.shape == (3,)
    assert refuses.calls == 0
    takes = Recorder()
    takes.name = "cpu"
    backends.register(takes)
    fae.sweep(batch_of())
    assert takes.calls == 1
    with pytest.raises(RuntimeError, match="backend: given tensors on 'meta', needed"):
        backends.choose("auto", "meta")


@pytest.mark.usefixtures("registry")
def test_a_backend_that_cannot_be_imported_says_why(monkeypatch):
    del backends._ENTRIES["cpu"]
    monkeypatch.setitem(sys.modules, "fastattnerase.backends.cpu", None)
    (reason,) = fae.backends()["cpu"]
    assert "fastattnerase.backends.cpu" in reason
    with pytest.raises(
        RuntimeError, match=r"'cpu', needed one that can run this: .*fastattnerase.backends.cpu"
    ):
        fae.sweep(batch_of(), backend="cpu")
    assert fae.sweep(batch_of()).prefixes.label.shape == (3,)


def test_the_log_names_operator_backend_and_shapes(caplog):
    with caplog.at_level(logging.DEBUG, logger="fastattnerase"):
        fae.erase_each(batch_of(), backend="reference")
        fae.reweigh(batch_of(), torch.ones(2, 9), backend="reference")
    assert caplog.messages == [
        "sweep on reference (cpu): values torch.float32 [9, 1, 4], attention torch.float32 [9, 1], "
        "head_weight torch.float32 [3, 1, 4]",
        "reweigh on reference (cpu): values torch.float32 [9, 1, 4], weights torch.float32 "
        "[2, 9, 1], head_weight torch.float32 [3, 1, 4]",
    ]


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_log_is_switched_on_by_the_environment():
    code = (
        "import torch, fastattnerase as fae; fae.erase_each(fae.AttentionBatch("
        "torch.ones(1, 2), torch.tensor([0, 1]), scores=torch.ones(1), head_weight=torch.eye(2)),"
        " backend='reference')"
    )
    assert "sweep on reference" in run_python(code, FASTATTNERASE_LOG="1").stderr
    assert run_python(code, FASTATTNERASE_LOG="0").stderr == ""


def test_import_brings_in_no_heavy_library():
    code = (
        "import torch, sys; before = set(sys.modules); import fastattnerase; "
        "heavy = {'pandas', 'scipy', 'pyarrow', 'matplotlib', 'jinja2', 'typer', 'rich'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_all_public_names_exist():
    assert sorted(fae.__all__) == list(fae.__all__)
    for name in fae.__all__:
        assert getattr(fae, name).__doc__, name


DOCUMENTED = [
    "batch", "head", "status", "backends", "hooks", "ops.functions", "ops.results", "ops.sweeps",
    "ops.permute", "ops.thresholds", "ops.envelope", "ops.shapley", "ops.sufficient",
    "ops.greedy", "ops.groups",
]  # fmt: skip


@pytest.mark.parametrize("module", DOCUMENTED)
def test_examples_in_docstrings(module):
    result = doctest.testmod(import_module(f"fastattnerase.{module}"))
    assert result.failed == 0


def test_memory_does_not_grow_with_calls():
    batch = batch_of()
    fae.sweep(batch)
    import tracemalloc

    tracemalloc.start()
    for _ in range(50):
        fae.sweep(batch)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        fae.sweep(batch)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 50_000


def test_a_sweep_gives_its_orders_where_asked():
    batch, scores = batch_of(), torch.arange(9.0)
    result = fae.sweep(batch, ["random", "product", scores], orders=True, random_orders=2, seed=4)
    expected = [
        fae.rank(batch, "random", seed=4),
        fae.rank(batch, "random", seed=4, order=1),
        fae.rank(batch, "product"),
        torch.tensor([3, 2, 1, 0, 4, 3, 2, 1, 0]),
    ]
    assert torch.equal(result.prefixes.order, torch.stack(expected))
    assert fae.erase_prefixes(batch, ["attention"]).order is None
    assert fae.erase_prefixes(batch, ["attention"], orders=True).order.shape == (1, 9)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_what_the_engine_knows_is_returned_where_asked(backend):
    batch = fae.AttentionBatch(
        torch.eye(3),
        torch.tensor([0, 3, 3]),
        weights=torch.tensor([6.0, 3.0, 1.0]),
        head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
        head_bias=torch.tensor([0.0, 0.25]),
    )
    unasked = fae.sweep(batch, "attention", backend=backend)
    assert unasked.prefixes.logits is unasked.prefixes.weights is unasked.single.kl is None
    asked = fae.sweep(
        batch, "attention", logits=True, weights=True, single_kl=True, backend=backend
    )
    # 0.6 of (1, 0), 0.3 of (0, 1), 0.1 of (0, 2), and the bias; nothing but that for no items.
    torch.testing.assert_close(
        asked.prefixes.logits, torch.tensor([[0.6, 0.75], [0.0, 0.25]]), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(
        asked.prefixes.weights, torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    )
    # Without item 0 z = (0, 5/4 + 1/4), without 1 (6/7, 2/7 + 1/4), without 2 (2/3, 7/12).
    p = 1 / (1 + math.exp(0.15))
    expected = []
    for difference in (1.5, 2 / 7 + 1 / 4 - 6 / 7, 7 / 12 - 2 / 3):
        q = 1 / (1 + math.exp(difference))
        expected.append(q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)))
    torch.testing.assert_close(asked.single.kl, torch.tensor(expected), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(fae.erase_each(batch, kl=True, backend=backend).kl, asked.single.kl)
    assert list(asked.single.to_pandas().columns)[-1] == "kl"
    assert "kl" not in unasked.single.to_pandas()
    for name in ("label", "probabilities", "status", "first_flip", "flip_label"):
        assert torch.equal(getattr(asked.prefixes, name), getattr(unasked.prefixes, name))


def test_weights_of_several_heads_have_a_column_each():
    batch = fae.AttentionBatch(
        torch.ones(2, 2, 1),
        torch.tensor([0, 2]),
        weights=torch.tensor([[1.0, 0.0], [3.0, 2.0]]),
        head_weight=torch.ones(2, 2, 1),
    )
    found = fae.erase_prefixes(batch, "attention", weights=True).weights
    assert found.tolist() == [[0.25, 0.0], [0.75, 1.0]]


def test_the_kl_of_single_erasures_needs_them():
    with pytest.raises(ValueError, match="single_kl: given True with single=False"):
        fae.sweep(batch_of(), single=False, single_kl=True)
