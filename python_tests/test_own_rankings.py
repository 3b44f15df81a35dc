"""Rankings that no backend computes: a file in the folder, a function, `module:name`."""

import itertools
import sys

import pytest
import torch
from contract.harness import Runner

import fastattnerase as fae
from fastattnerase import rankings
from fastattnerase.rankings import RANKINGS, register_ranking, resolve
from fastattnerase.rankings.base import RankingError

LENGTHS = [5, 0, 9, 1]
OFFSETS = [0, *itertools.accumulate(LENGTHS)]
CURVES = ("js", "label_prob", "decision", "logits")

FILE = """
from fastattnerase.rankings.base import Ranking, by_key

RANKING = Ranking(
    name="norm_in_a_file",
    kind=None,
    doc="the length of the item's vector",
    order=by_key(lambda instance: instance.values.norm(dim=(1, 2))),
)
"""
FUNCTIONS = '''
import torch

def norm(instance):
    """The length of the item's vector."""
    return instance.values.norm(dim=(1, 2)).float()

def backwards(instance):
    return instance.positions.flip(0)

number = 3
'''


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """What a test registers, imports and puts on the path is gone afterwards."""
    monkeypatch.setattr(rankings, "__path__", list(rankings.__path__))
    known, path, modules = dict(RANKINGS), list(sys.path), set(sys.modules)
    yield
    RANKINGS.clear()
    RANKINGS.update(known)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("fastattnerase.rankings.") or name.startswith("own_"):
            del sys.modules[name]


def tensors(heads=1, device="cpu"):
    generator = torch.Generator().manual_seed(3)
    shape = (heads, 4) if heads > 1 else (4,)
    return {
        "values": torch.randn(15, *shape, generator=generator).to(device),
        "offsets": torch.tensor(OFFSETS, device=device),
        "scores": torch.randn(15, *shape[:-1], generator=generator).to(device),
    }, {
        "head_weight": torch.randn(3, *shape, generator=generator).to(device),
        "head_bias": torch.randn(3, generator=generator).to(device) / 4,
    }


def batch_of(heads=1, device="cpu", **changes):
    items, head = tensors(heads, device)
    return fae.AttentionBatch(**items | head | changes)


def callable_batch(heads=1, **changes):
    items, head = tensors(heads)

    def map_pooled(pooled, instance):
        weight = head["head_weight"].flatten(1).double()
        return pooled.flatten(1).double() @ weight.T + head["head_bias"]

    return fae.AttentionBatch(**items | {"head": map_pooled} | changes)


def by_hand(batch):
    """Positions by descending length of the values, in plain Python."""
    rows = batch.values.double().flatten(1).tolist()
    order = []
    for begin, end in itertools.pairwise(OFFSETS):
        length = [sum(x * x for x in row) for row in rows[begin:end]]
        order += sorted(range(end - begin), key=lambda i: (-length[i], i))
    return order


def assert_as_given(batch, name, order, **options):
    """A ranking by name gives all that its order gives, among other rankings."""
    given = torch.tensor(order, device=batch.device)
    others = ("random", given, torch.arange(15.0, device=batch.device))
    options = {"curves": CURVES, "orders": True, "seed": 2, "random_orders": 2} | options
    mine = fae.erase_prefixes(batch, [name, *others, name], **options)
    theirs = fae.erase_prefixes(batch, [given, *others, given], **options)
    assert mine.rankings == (name, "random[0]", "random[1]", "given[0]", "given[1]", name)
    assert mine.order.device == batch.device
    assert mine.order[0].tolist() == order
    for result in ("first_flip", "flip_label", "removed_mass", "order", "status", "label"):
        torch.testing.assert_close(
            getattr(mine, result), getattr(theirs, result), rtol=0, atol=0, equal_nan=True
        )
    for curve in CURVES:
        assert torch.equal(mine.curves[curve], theirs.curves[curve])
    assert (mine.first_flip[0] > 0).any()


def test_a_ranking_is_one_file(runner: Runner, tmp_path):
    (tmp_path / "norm_in_a_file.py").write_text(FILE)
    rankings.__path__.append(str(tmp_path))
    rankings.discover()
    batch = batch_of(device=runner.device)
    order = by_hand(batch)
    assert_as_given(batch, "norm_in_a_file", order, backend=runner.name)
    assert fae.rank(batch, "norm_in_a_file", backend=runner.name).tolist() == order


def test_a_ranking_by_module_and_name(runner: Runner, tmp_path):
    (tmp_path / "own_functions.py").write_text(FUNCTIONS)
    sys.path.insert(0, str(tmp_path))
    order = [i for n in LENGTHS for i in reversed(range(n))]
    batch = batch_of(device=runner.device)
    name = "own_functions:backwards"
    assert_as_given(batch, name, order, direction="keep", backend=runner.name)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("make", [batch_of, callable_batch])
def test_several_heads_and_heads_that_are_functions(make, heads, backend):
    register_ranking("by_length", lambda instance: instance.values.norm(dim=(1, 2)))
    batch = make(heads)
    assert_as_given(batch, "by_length", by_hand(batch), backend=backend)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("make", [batch_of, callable_batch])
def test_what_an_instance_has(make, heads):
    batch = make(heads)
    items, head = tensors(heads)
    values = items["values"].double().reshape(15, heads, 4)
    scores = items["scores"].double().reshape(15, heads)
    weight = head["head_weight"].double().reshape(3, heads, 4)
    bias = head["head_bias"].double()
    seen = []

    def look(instance):
        seen.append(instance.id)
        own = slice(OFFSETS[instance.id], OFFSETS[instance.id + 1])
        n = LENGTHS[instance.id]
        h, e = values[own], scores[own]
        a = e.softmax(0)
        assert (instance.n, instance.H, instance.C) == (n, heads, 3)
        assert instance.positions.tolist() == list(range(n))
        close = {"rtol": 1e-6, "atol": 1e-6}
        torch.testing.assert_close(instance.values, h)
        torch.testing.assert_close(instance.attention, e)
        torch.testing.assert_close(instance.scores, e)
        torch.testing.assert_close(instance.weights, a)
        torch.testing.assert_close(instance.bias, bias)
        free = a.clone().requires_grad_()
        with torch.enable_grad():
            logits = torch.einsum("nh,nhd,chd->c", free, h, weight) + bias
            (gradient,) = torch.autograd.grad(logits.softmax(0).max(), free)
        torch.testing.assert_close(instance.logits, logits.detach(), **close)
        assert instance.label == int(logits.argmax())
        torch.testing.assert_close(instance.gradient, gradient, **close)
        left = instance.positions[1:]
        without = []
        for i in left.tolist():
            others = [j for j in left.tolist() if j != i]
            mass = a[others].sum(0)
            mean = (a[others][..., None] * h[others]).sum(0) / mass[:, None]
            mean = mean.where(mass[:, None] > 0, 0.0)
            without.append(torch.einsum("hd,chd->c", mean, weight) + bias)
            terms = instance.values[left, 0]
            sums, rest = instance.others(0, left, terms)
            where = left.tolist().index(i)
            expected = (a[others, 0, None] * h[others, 0]).sum(0)
            torch.testing.assert_close(sums[where] * 1.0, expected, **close)
            torch.testing.assert_close(rest[where], a[others, 0].sum(), **close)
        expected = torch.stack(without) if without else torch.zeros(0, 3, dtype=torch.float64)
        torch.testing.assert_close(instance.logits_without(left), expected, **close)
        if make is batch_of:
            contributions = torch.einsum("nhd,chd->nhc", h, weight)
            torch.testing.assert_close(instance.contributions, contributions)
        else:
            assert not hasattr(instance, "contributions")
        return instance.attention.sum(1)

    register_ranking("look", look)
    fae.rank(batch, "look")
    assert seen == [0, 2, 3]  # instance by instance, the empty one not at all


def test_the_registered_rankings_are_theirs_from_an_instance():
    """Built-in rankings written anew on the methods of an instance, for both sorts of heads."""

    def drop(instance):
        y = instance.label
        without = instance.logits_without(instance.positions).softmax(1)
        return instance.logits.softmax(0)[y] - without[:, y]

    register_ranking("my_drop", drop)
    register_ranking("my_product", lambda instance: (instance.weights * instance.gradient).sum(1))
    for make, heads in itertools.product((batch_of, callable_batch), (1, 2)):
        batch = make(heads)
        for mine, theirs in (("my_drop", "leave_one_out_drop"), ("my_product", "product")):
            assert torch.equal(fae.rank(batch, mine), fae.rank(batch, theirs, backend="reference"))


def test_an_instance_is_read_once_for_all_rankings():
    seen = []

    def first(instance):
        seen.append(instance)
        return instance.scores[:, 0]

    def second(instance):
        assert seen[-1] is instance
        return -instance.scores[:, 0]

    register_ranking("first", first)
    register_ranking("second", second)
    for batch in (batch_of(), callable_batch()):
        seen.clear()
        fae.erase_prefixes(batch, ["first", "second"])
        assert len(seen) == 3


@pytest.mark.parametrize("make", [batch_of, callable_batch])
def test_what_is_not_finite_is_ordered_by_position(make):
    values = tensors()[0]["values"]
    values[7] = torch.nan
    seen = []

    def scores(instance):
        seen.append(instance.id)
        return instance.scores[:, 0]

    register_ranking("scores", scores)
    result = fae.erase_prefixes(make(values=values), "scores", orders=True)
    assert result.status.tolist()[2] == fae.Status.NON_FINITE
    assert result.order[0, 5:14].tolist() == list(range(9))
    assert seen == [0, 3]


@pytest.mark.parametrize("make", [batch_of, callable_batch])
@pytest.mark.parametrize(
    ("error", "returned", "message"),
    [
        (TypeError, lambda n: [1.0] * n, "given list for instance 2, needed a tensor [9]"),
        (ValueError, lambda n: torch.ones(n, 1), "given [9, 1] for instance 2, needed [9]"),
        (ValueError, lambda n: torch.ones(n + 1), "given [10] for instance 2, needed [9]"),
        (TypeError, lambda n: torch.ones(n).int(), "given torch.int32 for instance 2, needed"),
        (
            ValueError,
            lambda n: torch.ones(n).log().index_fill(0, torch.tensor([4]), torch.nan),
            "given NaN at position 4 of instance 2, needed numbers",
        ),
        (
            ValueError,
            lambda n: torch.zeros(n, dtype=torch.int64),
            "given the order [0, 0, 0, 0, 0, 0, 0, 0, …] for instance 2, needed a permutation of "
            "0 … 8",
        ),
    ],
)
def test_what_is_no_ranking_is_refused_by_name(make, error, returned, message):
    def wrong(instance):
        return returned(instance.n) if instance.n == 9 else instance.scores[:, 0]

    register_ranking("wrong", wrong)
    with pytest.raises(error) as raised:
        fae.rank(make(), "wrong")
    assert str(raised.value).startswith("ranking 'wrong': ")
    assert message in str(raised.value)


@pytest.mark.parametrize("make", [batch_of, callable_batch])
@pytest.mark.parametrize("wrong", [torch.full((9,), torch.nan), torch.zeros(9, dtype=torch.int64)])
def test_unchecked_it_makes_the_instance_invalid(make, wrong):
    register_ranking(
        "wrong", lambda instance: wrong if instance.n == 9 else instance.scores[:, 0].float()
    )
    kept = fae.sweep(make(), ["attention"], minimal=False, curves=CURVES)
    options = {"logits": True, "weights": True, "single_kl": True, "orders": True}
    result = fae.sweep(make(), ["wrong"], minimal=False, validate=False, curves=CURVES, **options)
    prefixes, single = result.prefixes, result.single
    assert prefixes.status.tolist()[2] == fae.Status.INVALID
    own, points = slice(5, 14), slice(7, 17)
    for tensor in (
        prefixes.label[2:3],
        prefixes.first_flip[:, 2],
        prefixes.order[:, own],
        prefixes.curves["decision"][:, points],
        single.flip_label[own],
    ):
        assert (tensor == -1).all()
    for tensor in (
        prefixes.probabilities[2],
        prefixes.logits[2],
        prefixes.weights[own],
        prefixes.curves["logits"][:, points],
        prefixes.curves["js"][:, points],
        single.js[own],
        single.kl[own],
        single.label_prob_drop[own],
    ):
        assert tensor.isnan().all()
    assert torch.equal(prefixes.first_flip[:, [0, 3]], kept.prefixes.first_flip[:, [0, 3]])
    assert torch.equal(single.js[:5], kept.single.js[:5])


def test_negative_weights_are_the_engines_to_refuse():
    register_ranking("fails", lambda instance: 1 / 0)
    weights = torch.ones(15)
    weights[:5] = -1
    weights[5:] = torch.nan  # not finite: no call either
    batch = batch_of(scores=None, weights=weights)
    with pytest.raises(ValueError, match=r"weights: .* instance 0\b"):
        fae.rank(batch, "fails")
    assert fae.erase_prefixes(batch, "fails", validate=False).status[0] & fae.Status.INVALID


def test_names_are_taken_once():
    def norm(instance):
        """Of the values."""
        return instance.values.norm(dim=(1, 2))

    register_ranking("mine", norm)
    register_ranking("mine", norm)
    assert RANKINGS["mine"].doc == "Of the values."
    with pytest.raises(ValueError, match="name: given 'mine', which is registered already"):
        register_ranking("mine", lambda instance: instance.scores[:, 0])
    register_ranking("mine", lambda instance: instance.scores[:, 0], overwrite=True)
    batch = batch_of()
    assert torch.equal(fae.rank(batch, "mine"), fae.rank(batch, "attention"))
    with pytest.raises(ValueError, match="name: given 'random', which backends compute"):
        register_ranking("random", norm, overwrite=True)
    for name in ("", "a:b", 3):
        with pytest.raises(ValueError, match=f"name: given {name!r}, needed a string without"):
            register_ranking(name, norm)
    with pytest.raises(TypeError, match="function: given str, needed a function"):
        register_ranking("new", "norm")
    with pytest.raises(ValueError, match=r"needed one of 'attention', .*'mine', 'module:name'"):
        fae.rank(batch, "atention")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_missing:norm", "needed a module 'own_missing' where Python looks or in the current"),
        ("own_functions:missing", "the module has nothing of that name"),
        ("own_functions:number", "the module has 3"),
        ("own_functions.norm:", "needed the form 'module:name'"),
        (".own_functions:norm", "needed the form 'module:name'"),
        ("fastattnerase.rankings.attention:RANKING", "needed a function or a Ranking without"),
    ],
)
def test_modules_without_a_ranking_are_refused(name, message, tmp_path):
    (tmp_path / "own_functions.py").write_text(FUNCTIONS)
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(ValueError, match=f"rankings: given '{name}', needed") as raised:
        fae.rank(batch_of(), name)
    assert message in str(raised.value)


def test_what_a_module_lacks_itself_is_said(tmp_path):
    (tmp_path / "own_broken.py").write_text("import own_dependency")
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="own_dependency"):
        resolve("own_broken:norm")


def test_modules_on_the_path_and_in_the_current_folder_are_found(tmp_path, monkeypatch):
    (tmp_path / "own_functions.py").write_text(FUNCTIONS)
    (tmp_path / "own_file.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(tmp_path))]
    path = list(sys.path)
    assert resolve("own_functions:norm").doc == "The length of the item's vector."
    assert resolve("own_file:RANKING").name == "own_file:RANKING"
    assert sys.path == path
    batch = batch_of()
    for name in ("own_file:RANKING", "own_functions:norm"):
        assert fae.rank(batch, name).tolist() == by_hand(batch)


class Ranked(torch.nn.Module):
    """A call with a ranking of one's own among others."""

    def __init__(self, backend):
        super().__init__()
        self.backend = backend

    def forward(self, values, offsets, scores, weight):
        batch = fae.AttentionBatch(values, offsets, scores=scores, head_weight=weight)
        result = fae.erase_prefixes(
            batch, ["attention", "mine"], curves=("js",), orders=True, backend=self.backend
        )
        return result.first_flip + 1, result.order, result.curves["js"]


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_compiled_and_exported_the_graph_calls_the_function(backend):
    calls = []

    def norm(instance):
        calls.append(instance.n)
        return instance.values.norm(dim=(1, 2))

    register_ranking("mine", norm)
    items, head = tensors()
    arguments = (*items.values(), head["head_weight"])
    model = Ranked(backend)
    expected = model(*arguments)
    assert expected[1][1].tolist() == by_hand(batch_of())
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    program = torch.export.export(model, arguments)
    assert any("own_scores" in str(node.target) for node in program.graph.nodes)
    for run in (compiled, program.module()):
        calls.clear()
        for given, wanted in zip(run(*arguments), expected, strict=True):
            assert torch.equal(given, wanted)
        assert calls == [5, 9, 1]
    del RANKINGS["mine"]
    with pytest.raises(ValueError, match="rankings: given 'mine', needed one of"):
        program.module()(*arguments)


def test_the_operator_passes_torchs_own_checks():
    register_ranking("mine", lambda instance: instance.values.norm(dim=(1, 2)))
    batch = batch_of()
    torch.library.opcheck(
        torch.ops.fastattnerase.own_scores.default,
        (*batch.packed, *batch.linear_head, batch.ids, ["mine", "mine"], 3, True),
    )


def test_a_function_may_use_autograd():
    def slope(instance):
        free = instance.weights.clone().requires_grad_()
        with torch.enable_grad():
            logits = torch.einsum("nh,nhc->c", free, instance.contributions) + instance.bias
            (gradient,) = torch.autograd.grad(logits.softmax(0).max(), free)
        return gradient.sum(1)

    register_ranking("slope", slope)
    batch = batch_of()
    expected = fae.rank(batch, "gradient", backend="reference")
    for context in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with context():
            assert torch.equal(fae.rank(batch, "slope"), expected)


def test_padded_scores_and_a_column_too_many_are_told_how_to_be_taken():
    mask = torch.tensor([[1, 1, 0], [1, 0, 1]])
    scores = torch.tensor([[3.0, 1.0, 9.0], [2.0, 9.0, 4.0]])
    batch = fae.AttentionBatch.from_padded(
        torch.ones(2, 3, 2), mask=mask, scores=scores, head=torch.nn.Linear(2, 2)
    )
    with pytest.raises(ValueError, match=r"given a tensor of shape \[2, 3\], needed \[4\], one fo"):
        fae.rank(batch, scores)
    with pytest.raises(ValueError, match=r"those that the mask keeps, scores\[mask\.bool\(\)\]$"):
        fae.rank(batch, scores)
    assert fae.rank(batch, scores[mask.bool()]).flatten().tolist() == [0, 1, 1, 0]
    with pytest.raises(ValueError, match=r"needed \[4\], one for each item$"):
        fae.rank(batch, torch.ones(3))

    register_ranking("column_of_weights", lambda instance: instance.attention[:, :1])
    try:
        with pytest.raises(RankingError, match=r"given \[2, 1\].*\.squeeze\(1\) makes it"):
            fae.rank(batch, "column_of_weights")
    finally:
        del RANKINGS["column_of_weights"]
