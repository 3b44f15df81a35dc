"""What a newcomer meets first: the forms that calls take, what results say, hints and help."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
import warnings
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

import fastattnerase as fae
from fastattnerase import choices
from fastattnerase.fields import documentation
from fastattnerase.ops.sweeps import CURVES
from fastattnerase.problem import BIT
from fastattnerase.status import status_names

ROOT = Path(__file__).parents[1]
RESULTS = (
    fae.PrefixErasure, fae.ItemErasure, fae.MinimalFlipSet, fae.Sweep, fae.PermutedWeights,
    fae.ThresholdCrossing, fae.SufficientSet, fae.Envelope, fae.GreedyOrder, fae.ShapleyValues,
)  # fmt: skip
GENERATOR = torch.Generator().manual_seed(3)
VALUES = torch.randn(2, 4, 6, generator=GENERATOR)  # [B, N, D]
SCORES = torch.randn(2, 4, generator=GENERATOR)  # [B, N]
HOLES = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 0]])  # [B, N], as a tokenizer gives it


def holes(**head):
    head = head or {"head_weight": torch.eye(3, 6)}
    return fae.AttentionBatch.from_padded(VALUES, scores=SCORES, mask=HOLES, **head)


class Layers(nn.Module):
    """Two layers, called with what `forward` is called with."""

    def __init__(self, D=6):
        super().__init__()
        self.inner, self.outer = nn.Linear(D, 5), nn.Linear(5, 3)

    def forward(self, pooled):
        return self.outer(self.inner(pooled).tanh())


# --- positions ------------------------------------------------------------------------------------


def test_positions_in_tables_are_the_original_columns():
    batch = holes()
    expected = [1, 3, 0, 1, 2]
    assert batch.positions.tolist() == expected
    for result in (fae.erase_each(batch), fae.sweep(batch).single):
        assert result.positions.tolist() == expected
        assert result.to("cpu").to_pandas()["position"].tolist() == expected
    assert fae.erase_each(batch[1:]).to_pandas()["position"].tolist() == [0, 1, 2]
    joined = fae.AttentionBatch.cat([batch[1:], batch[:1]])
    assert fae.erase_each(joined).to_pandas()["position"].tolist() == [0, 1, 2, 1, 3]


def test_positions_of_packed_items_are_places_in_the_instance():
    batch = fae.AttentionBatch(
        VALUES[0], torch.tensor([0, 1, 4]), scores=SCORES[0], head_weight=torch.eye(3, 6)
    )
    assert fae.erase_each(batch).positions.tolist() == [0, 0, 1, 2]
    assert fae.erase_each(batch).to_pandas()["position"].tolist() == [0, 0, 1, 2]


def test_the_documented_line_turns_orders_into_columns():
    batch = holes()
    line = "batch.positions[batch.offsets[batch.instance_of_item] + order]"
    for place in (fae.rank, fae.AttentionBatch.positions):
        assert line in inspect.getdoc(place), place
    assert line.replace("order", "result.order") in inspect.getdoc(fae.MinimalFlipSet)
    order = fae.rank(batch, "attention")
    columns = batch.positions[batch.offsets[batch.instance_of_item] + order]
    kept = SCORES.masked_fill(HOLES == 0, -torch.inf)
    best_first = kept.argsort(dim=1, descending=True)
    assert columns.tolist() == [*best_first[0, :2].tolist(), *best_first[1, :3].tolist()]


# --- forms that are taken -------------------------------------------------------------------------


def test_masks_of_integers_are_those_of_booleans():
    for dtype in (torch.int64, torch.uint8, torch.int32):
        batch = fae.AttentionBatch.from_padded(
            VALUES, scores=SCORES, mask=HOLES.to(dtype), head_weight=torch.eye(3, 6)
        )
        assert batch.positions.tolist() == [1, 3, 0, 1, 2]
        assert batch.lengths.tolist() == [2, 3]


def test_lists_are_given_by_position_and_may_be_nested_tensors():
    values, scores = [VALUES[0], VALUES[1, :2]], [SCORES[0], SCORES[1, :2]]
    head = torch.eye(3, 6)
    expected = fae.AttentionBatch.from_list(values=values, scores=scores, head_weight=head)
    nested = [torch.nested.nested_tensor(x, layout=torch.jagged) for x in (values, scores)]
    for given in ((values, scores), nested):
        batch = fae.AttentionBatch.from_list(given[0], scores=given[1], head_weight=head)
        assert batch.offsets.tolist() == [0, 4, 6]
        assert torch.equal(batch.values, expected.values)
        assert torch.equal(batch.scores, expected.scores)


@pytest.mark.parametrize(
    ("make", "begin"),
    [
        (
            lambda: fae.AttentionBatch.from_list([VALUES[0]], [SCORES[0]]),
            "from_list: given 1 argum",
        ),
        (
            lambda: fae.AttentionBatch.from_padded(VALUES, SCORES, None),
            "from_padded: given 2 argum",
        ),
        (
            lambda: fae.AttentionBatch(VALUES[0], torch.tensor([0, 4]), SCORES[0]),
            "AttentionBatch: given 1 argument by position after values and offsets, needed names: "
            "scores=… before the softmax or weights=…",
        ),
    ],
)
def test_scores_by_position_are_told_the_two_names(make, begin):
    with pytest.raises(TypeError, match=begin):
        make()


def test_instances_one_by_one():
    batch = holes()
    for b, one in enumerate(batch):
        assert len(one) == 1
        assert one.ids.tolist() == [b]
        assert torch.equal(one.values, batch[b].values)
        assert fae.sweep(batch[torch.tensor(b)]).single.positions.tolist() == (
            one.positions.tolist()
        )
    assert [one.num_items for one in batch] == [2, 3]
    assert torch.equal(batch[-1].values, batch[1].values)


def test_one_curve_is_named_by_itself():
    batch = holes()
    one, several = fae.sweep(batch, curves="js"), fae.sweep(batch, curves=("js",))
    assert list(one.prefixes.curves) == ["js"]
    assert torch.equal(one.prefixes.curves["js"], several.prefixes.curves["js"])


# --- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_is_its_weight_and_bias(bias):
    layer = nn.Linear(6, 3, bias=bias)
    batch = holes(head=layer)
    assert batch.head is None
    assert torch.equal(batch.head_weight, layer.weight)
    assert batch.head_bias.tolist() == (layer.bias.tolist() if bias else [0, 0, 0])
    other = holes(head_weight=layer.weight, head_bias=layer.bias)
    assert torch.equal(fae.minimal_flip_set(batch).order, fae.minimal_flip_set(other).order)


def test_a_linear_layer_over_the_heads_side_by_side():
    layer = nn.Linear(6, 3)
    values, scores = VALUES.reshape(2, 4, 2, 3), SCORES[..., None].expand(2, 4, 2)
    batch = fae.AttentionBatch.from_padded(values, scores=scores, head=layer)
    assert torch.equal(batch.head_weight, layer.weight.reshape(3, 2, 3))
    logits = fae.erase_prefixes(batch, "attention", logits=True).logits
    pooled = torch.einsum("bn,bnd->bd", SCORES.softmax(1), VALUES)
    torch.testing.assert_close(logits, layer(pooled).detach())


def test_a_linear_layer_with_a_hook_is_called():
    layer = nn.Linear(6, 3)
    layer.register_forward_hook(lambda module, args, output: -output)
    batch = holes(head=layer)
    assert batch.head is layer
    logits = fae.erase_prefixes(batch, "attention", logits=True).logits
    plain = fae.erase_prefixes(
        holes(head_weight=layer.weight, head_bias=layer.bias), "attention", logits=True
    )
    torch.testing.assert_close(logits, -plain.logits)


def test_a_layer_of_another_width_is_named():
    with pytest.raises(
        ValueError, match=re.escape("head: given Linear(in_features=5, out_features=3, bias=True)")
    ):
        holes(head=nn.Linear(5, 3))


def test_modules_and_functions_of_the_pooled_vectors_alone():
    torch.manual_seed(0)
    module = Layers()
    expected = fae.sweep(holes(head=lambda pooled, instance: module(pooled)), curves=CURVES)
    for head in (module, nn.Sequential(module), lambda pooled: module(pooled), module.forward):
        batch = holes(head=head)
        assert batch.head is head
        result = fae.sweep(batch, curves=CURVES)
        for name, curve in expected.prefixes.curves.items():
            torch.testing.assert_close(result.prefixes.curves[name], curve, equal_nan=True)
        part = fae.AttentionBatch.cat([batch[1], batch[0]])
        assert torch.equal(
            fae.erase_prefixes(part, "attention").label, expected.prefixes.label.flip(0)
        )


def test_a_module_is_given_vectors_in_its_own_float_type():
    torch.manual_seed(0)
    module = Layers()
    expected = fae.erase_prefixes(holes(head=module), ["gradient"], logits=True)
    for dtype in (torch.bfloat16, torch.float64):
        result = fae.erase_prefixes(holes(head=Layers().to(dtype)), ["gradient"], logits=True)
        assert result.logits.dtype == torch.float32
        assert result.logits.isfinite().all()
    result = fae.erase_prefixes(holes(head=module.double()), ["gradient"], logits=True)
    torch.testing.assert_close(result.logits, expected.logits)
    assert torch.equal(result.first_flip, expected.first_flip)


def test_one_logit_of_a_module_is_told():
    with pytest.warns(UserWarning, match=r"head: one class, so nothing can flip; .* are \[0, z\]"):
        fae.erase_prefixes(holes(head=nn.Sequential(nn.Linear(6, 1))), "attention")


def test_probabilities_of_a_head_are_told():
    layer = nn.Linear(6, 3)
    for head in (nn.Sequential(layer, nn.Softmax(-1)), lambda pooled: layer(pooled).softmax(-1)):
        with pytest.warns(UserWarning, match="head: given numbers that are probabilities"):
            fae.erase_prefixes(holes(head=head), "attention")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for head in (layer, lambda pooled: layer(pooled).log_softmax(-1)):
            fae.erase_prefixes(holes(head=head), "attention")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (nn.Linear, "head: given the class Linear, needed one that is made of it"),
        (torch.eye(3, 6), "head: given Tensor, needed a callable, .*; a weight is head_weight=…"),
        ("classify", "head: given str, needed a callable, such as a module"),
    ],
)
def test_what_is_no_head_is_named(head, message):
    with pytest.raises(TypeError, match=message):
        holes(head=head)


def test_rows_are_passed_where_they_are_meant():
    seen = []

    def optional(pooled, instance=None):
        seen.append(instance)
        return pooled[:, :3]

    def any_number(*given):
        seen.append(given[1])
        return given[0][:, :3]

    for head in (optional, any_number):
        seen.clear()
        fae.erase_prefixes(holes(head=head), "attention")
        assert {int(b) for rows in seen for b in rows} == {0, 1}


@pytest.mark.parametrize(
    ("head", "given"),
    [
        (lambda pooled, mask=None: pooled, "<lambda>(pooled, mask)"),
        (lambda: 0, "<lambda>()"),
        (lambda pooled, instance, more: pooled, "<lambda>(pooled, instance, more)"),
        (nn.MultiheadAttention(6, 2), "MultiheadAttention(query, key, value, "),
    ],
)
def test_other_heads_are_refused_by_name_with_the_form_that_is_needed(head, given):
    needed = "needed head(pooled [M, D], instance [M]) -> logits [M, C], or a function of pooled"
    with pytest.raises(ValueError, match=f"head: given {re.escape(given)}.*{re.escape(needed)}"):
        holes(head=head)


# --- the minimal set where it exists --------------------------------------------------------------


def test_the_minimal_set_is_left_out_with_a_reason_where_it_does_not_exist():
    heads = fae.AttentionBatch(
        VALUES.reshape(8, 2, 3), torch.tensor([0, 8]), scores=SCORES.reshape(8, 1).expand(8, 2),
        head_weight=torch.ones(3, 2, 3),
    )  # fmt: skip
    for batch, why in ((heads, "2 attention heads"), (holes(head=Layers()), "a callable head")):
        result = fae.sweep(batch)
        assert result.minimal is None
        assert result.why_no_minimal.startswith(f"{why}: the sort")
        assert why in repr(result)
        assert "minimal_size" not in result.to_pandas()
        with pytest.raises(
            ValueError, match=f"minimal: given the minimal set of a batch with {why}"
        ):
            fae.sweep(batch, minimal=True)
    there = fae.sweep(holes())
    assert there.minimal is not None
    assert there.why_no_minimal == ""
    assert torch.equal(there.minimal.order, fae.sweep(holes(), minimal=True).minimal.order)
    assert fae.sweep(holes(), minimal=False).why_no_minimal == "not asked for: minimal=False"


# --- what results say -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_help_documents_every_field(kind):
    said = documentation(kind)
    for field in fields(kind):
        if not field.name.startswith("_"):
            assert said[field.name], field.name
            if field.type == "Tensor":
                shaped = r"\[[RBTCPK, +1]+\],.* (int64|real|float64|bool): "
                assert re.match(shaped, said[field.name]), field.name
    assert "Columns:" in inspect.getdoc(kind.to_pandas)


def test_tables_have_the_columns_that_are_documented():
    result = fae.sweep(holes(), single_kl=True)
    for part in (
        result.prefixes, result.single, result.minimal, fae.permute(holes(), 2),
        fae.cross_threshold(holes(), threshold=0.0), fae.minimal_sufficient_set(holes()),
        fae.envelope(holes(), "attention"), fae.greedy_order(holes()), fae.shapley_values(holes()),
    ):  # fmt: skip
        said = inspect.getdoc(part.to_pandas).partition("Columns:")[2].partition("\n\n")[0]
        said = re.sub(r"\([^)]*\)| where it is there|if asked for", "", said).replace(" and ", " ")
        names = [name for name in re.split(r"[\s,.]+", said) if name]
        assert list(part.to_pandas().columns) == names


def test_curves_say_what_they_are():
    said = documentation(fae.PrefixErasure)["curves"]
    for name in CURVES:
        assert f'"{name}"' in said
    assert "KL(at k ‖ original)" in said
    # As documented: the mass of what is left, and the direction of KL.
    curves = fae.erase_prefixes(holes(), "attention", curves=("mass", "kl", "logits")).curves
    assert curves["mass"][0, [0, 2, 3, 6]].tolist() == pytest.approx([1, 0, 1, 0])
    p, q = curves["logits"][0, :2].softmax(1)
    torch.testing.assert_close(curves["kl"][0, 1], (q * (q / p).log()).sum(), rtol=1e-5, atol=1e-7)


def test_the_mass_curve_of_what_is_kept():
    weights = torch.tensor([0.5, 0.3, 0.2])
    batch = fae.AttentionBatch(
        torch.eye(3), torch.tensor([0, 3]), weights=weights, head_weight=torch.eye(3)
    )
    mass = fae.erase_prefixes(batch, "attention", curves="mass", direction="keep").curves["mass"]
    assert mass.tolist() == [[0, pytest.approx(0.5), pytest.approx(0.8), pytest.approx(1)]]


def test_flags_are_named_with_a_line_each():
    for flag in fae.Status:
        assert f"- `{flag.name}` {int(flag)}: " in inspect.getdoc(fae.Status)
    assert status_names(torch.tensor([0, 1, 8, 96])) == [
        "", "EMPTY", "NON_FINITE", "NEAR_TIE|INVALID",
    ]  # fmt: skip
    values = VALUES.clone()
    values[1, 0, 0] = torch.nan
    batch = fae.AttentionBatch.from_padded(
        values, scores=SCORES, lengths=torch.tensor([1, 4]), head_weight=torch.eye(3, 6)
    )
    result = fae.sweep(batch, "attention")
    assert result.to_pandas()["status_names"].tolist() == ["SINGLE", "NON_FINITE"]
    assert result.minimal.to_pandas()["status_names"].tolist() == ["SINGLE", "NON_FINITE"]
    assert result.single.to_pandas()["status_names"].tolist() == ["SINGLE", *["NON_FINITE"] * 4]


def test_results_are_shown_by_counts_and_shapes():
    result = fae.sweep(holes(), ["attention", "product"], curves="js")
    assert repr(result.prefixes) == (
        "PrefixErasure(2 rankings, 2 instances; label [2], probabilities [2, 3], status [2], "
        "first_flip [2, 2], flip_label [2, 2], removed_mass [2, 2], curves['js'] [2, 7], "
        "offsets [3])"
    )
    assert repr(result.single).startswith(
        "ItemErasure(5 items, 2 instances; flip_label [5], js [5]"
    )
    assert repr(result.minimal).startswith("MinimalFlipSet(2 instances, 5 items; size [2], ")
    for part in (result.prefixes, result.single, result.minimal):
        assert repr(part) in repr(result)
    assert "tensor(" not in repr(result)
    many = fae.erase_prefixes(holes(), "random", random_orders=500)
    assert len(repr(many)) < 300


def test_one_of_a_thing_is_shown_as_one():
    one = fae.AttentionBatch(
        torch.ones(1, 2), torch.tensor([0, 1]), scores=torch.zeros(1), head_weight=torch.eye(2)
    )
    assert repr(one) == "AttentionBatch(1 instance, 1 item, width 2, 2 classes, torch.float32, cpu)"
    assert repr(fae.erase_prefixes(one, "attention")).startswith(
        "PrefixErasure(1 ranking, 1 instance; "
    )
    with pytest.raises(IndexError, match=r"given 1, needed less than 1 instance$"):
        one[1]


# --- hints ----------------------------------------------------------------------------------------


def modules():
    """The names of all modules of the package."""
    root = Path(fae.__file__).parent
    for path in sorted(root.rglob("*.py")):
        *parts, name = path.relative_to(root).with_suffix("").parts
        if name != "__main__":
            yield ".".join(["fastattnerase", *parts, *([] if name == "__init__" else [name])])


def hinted(module):
    """Every function, class and method that a module defines, by name."""
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(thing):
            yield name, thing
            for member, value in vars(thing).items():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if inspect.isfunction(function):
                    yield f"{name}.{member}", function
        elif inspect.isfunction(inspect.unwrap(thing)):
            yield name, thing


@pytest.mark.parametrize("module", [pytest.param(name, id=name) for name in modules()])
def test_hints_can_be_read_at_run_time(module):
    wrong = {}
    for name, thing in hinted(import_module(module)):
        try:
            typing.get_type_hints(thing)
        except (NameError, TypeError) as error:
            wrong[name] = str(error)
    assert not wrong


def test_hints_list_the_names_that_are_taken():
    hints = typing.get_type_hints(fae.erase_prefixes)
    assert hints["backend"] == choices.BackendName
    assert set(typing.get_args(hints["backend"])) == {"auto", *fae.backends()}
    assert typing.get_args(hints["direction"]) == ("erase", "keep", "both")
    named = {f"curve_{name}" for name in typing.get_args(choices.CurveName)}
    assert named == {name for name in BIT if name.startswith("curve_")}


def python_of_readme():
    """The Python blocks of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_readme_has_an_example_of_what_needs_no_search():
    blocks = "".join(python_of_readme())
    for name in (
        "cross_threshold", "envelope", "greedy_order", "minimal_sufficient_set", "shapley_values"
    ):  # fmt: skip
        assert f"fae.{name}(batch" in blocks, name
    assert ".measures(" in blocks


def test_readme_runs(capsys, tmp_path, monkeypatch):
    """Blocks in order, as a reader would type them, but for what reads the run of a command."""
    monkeypatch.chdir(tmp_path)  # where one writes a dump
    files = ('"runs/', '"h5_files"')  # of slides: python_tests/mil/test_mil_readme.py
    blocks = [block for block in python_of_readme() if not any(name in block for name in files)]
    assert any("fae.sweep" in block for block in blocks)
    assert any("fae.capture" in block for block in blocks)
    names = {}
    for block in blocks:
        exec(block, names)
    read = "".join(set(python_of_readme()) - set(blocks))
    assert "import fastattnerase as fae" in read
    assert "minimal_size" in capsys.readouterr().out


TYPED = """
import fastattnerase as fae
from torch import Tensor, nn

def whole(batch: fae.AttentionBatch) -> Tensor:
    both = fae.sweep(batch, curves="js", backend="cpu", direction="keep", minimal=True)
    return both.minimal.size + both.single.flip_label

def head_of(values: Tensor, offsets: Tensor, scores: Tensor) -> fae.AttentionBatch:
    fae.AttentionBatch(values, offsets, scores=scores, head=nn.Sequential(nn.Linear(3, 2)))
    return fae.AttentionBatch(values, offsets, scores=scores, head=lambda pooled, instance: pooled)

def unknown(result: fae.Sweep) -> str:
    return "" if result.minimal is not None else result.why_no_minimal
"""
WRONG = """
import fastattnerase as fae

def wrong(batch: fae.AttentionBatch) -> None:
    fae.rank(batch, "attention", backend="gpu")
    fae.sweep(batch, curves=("jensen",))
    fae.sweep(batch, direction="remove")
    fae.sweep(batch, single=False).single.flip
"""


@pytest.mark.long
def test_readme_passes_mypy_strict_and_wrong_names_do_not(tmp_path):
    """Run mypy as a user would, on the installed package's hints."""
    (tmp_path / "readme.py").write_text("\n".join([*python_of_readme(), TYPED]), encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "readme.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("readme.py")] == [], result.stdout
    found = {int(line.split(":")[1]) for line in lines if ": error:" in line}
    assert found == {5, 6, 7, 8}, result.stdout + result.stderr
