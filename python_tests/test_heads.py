"""Heads that are any callable, and several attention heads."""

import re

import pytest
import torch
from torch import nn

import fastattnerase as fae

CURVES = ("js", "kl", "label_prob", "mass", "decision", "logits")
NAMES = (
    "attention", "gradient", "product", "renormalized_gradient", "random", "leave_one_out",
    "leave_one_out_drop", "greedy",
)  # fmt: skip
LENGTHS = [3, 0, 1, 7, 12, 4]
OFFSETS = torch.tensor([0, 3, 3, 4, 11, 23, 27])


class Model:
    """Random values and a linear head, to be given as such and as a callable."""

    def __init__(self, heads=1, dtype=torch.float64, seed=0):
        generator = torch.Generator().manual_seed(seed)
        shape = (heads, 5) if heads > 1 else (5,)
        self.values = torch.randn(27, *shape, generator=generator).to(dtype)
        self.scores = torch.randn(27, *shape[:-1], generator=generator)
        self.weight = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
        self.bias = torch.randn(3, generator=generator, dtype=torch.float64)

    def head(self, pooled, instance):
        return pooled.flatten(1).double() @ self.weight.flatten(1).T + self.bias

    def linear(self, **changes):
        return fae.AttentionBatch(
            **{
                "values": self.values,
                "offsets": OFFSETS,
                "scores": self.scores,
                "head_weight": self.weight,
                "head_bias": self.bias,
            }
            | changes
        )

    def callable(self, **changes):
        changes = {"head": self.head, "head_weight": None, "head_bias": None} | changes
        return self.linear(**changes)


def assert_same(mine, theirs, ignored=0):
    """All tensors of two results agree; `ignored` are status bits that need not."""
    for name, expected in vars(theirs).items():
        given = getattr(mine, name)
        if isinstance(expected, dict):
            assert given.keys() == expected.keys()
            for key in expected:
                torch.testing.assert_close(given[key], expected[key], equal_nan=True, msg=key)
        elif isinstance(expected, torch.Tensor):
            if name == "status":
                expected, given = expected & ~ignored, given & ~ignored
            torch.testing.assert_close(given, expected, equal_nan=True, msg=name)
        else:
            assert given == expected


@pytest.mark.parametrize("max_bytes", [1, 250, 2**28])
@pytest.mark.parametrize("direction", ["erase", "keep"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.long_where(these=lambda p: p["backend"] == "reference" and p["max_bytes"] == 1)
def test_a_callable_that_is_linear_equals_the_linear_head(backend, heads, direction, max_bytes):
    model = Model(heads)
    names = NAMES if max_bytes > 250 else NAMES[:7]  # greedy calls the head n² times
    rankings = (*names, torch.arange(27.0))
    options = {"curves": CURVES, "direction": direction, "minimal": False, "random_orders": 2}
    options |= {"logits": True, "weights": True, "single_kl": True}
    expected = fae.sweep(model.linear(), rankings, backend="reference", **options)
    result = fae.sweep(model.callable(), rankings, backend=backend, max_bytes=max_bytes, **options)
    # Near-ties are judged by the norm of a linear head, so a callable has none.
    assert_same(result.prefixes, expected.prefixes, ignored=fae.Status.NEAR_TIE)
    assert_same(result.single, expected.single, ignored=fae.Status.NEAR_TIE)
    for name in names:
        order = fae.rank(model.callable(), name, backend=backend, max_bytes=max_bytes)
        assert torch.equal(order, fae.rank(model.linear(), name, backend="reference")), name


@pytest.mark.parametrize("heads", [1, 2])
def test_degenerate_instances_under_a_callable(heads):
    model = Model(heads)
    scores = model.scores.clone()
    scores[:3] = -torch.inf  # instance 0 has no mass
    scores[4:7] = torch.tensor([0.0, -700, -1500]).reshape(3, *[1] * (scores.ndim - 1))
    scores[7:11] = -2000  # instance 3 spans more than 600
    values = model.values.clone()
    values[20] = torch.nan  # instance 4 has a bad item
    changes = {"scores": scores, "values": values}
    rankings = (*NAMES[:7], torch.arange(27).sub(OFFSETS[model.linear().instance_of_item]))
    options = {"curves": CURVES, "minimal": False, "backend": "reference"}
    options |= {"logits": True, "weights": True, "single_kl": True}
    expected = fae.sweep(model.linear(**changes), rankings, **options)
    result = fae.sweep(model.callable(**changes), rankings, **options)
    assert (expected.prefixes.status & ~fae.Status.NEAR_TIE).tolist() == [
        fae.Status.ZERO_MASS,
        fae.Status.EMPTY,
        fae.Status.SINGLE,
        fae.Status.UNDERFLOW,
        fae.Status.NON_FINITE,
        0,
    ]
    assert_same(result.prefixes, expected.prefixes, ignored=fae.Status.NEAR_TIE)
    assert_same(result.single, expected.single, ignored=fae.Status.NEAR_TIE)


def test_unchecked_bad_orders_under_a_callable():
    order = torch.tensor([i for n in LENGTHS for i in range(n)])
    order[0] = 99
    batch = Model().callable()
    with pytest.raises(ValueError, match="instance 0"):
        fae.erase_prefixes(batch, [order])
    result = fae.erase_prefixes(batch, [order], curves=CURVES, validate=False)
    assert result.status.tolist()[0] == fae.Status.INVALID
    assert result.label.tolist()[0] == -1
    assert result.curves["decision"][0, :4].tolist() == [-1] * 4
    fine = fae.erase_prefixes(batch[1:], [order[3:]], curves=CURVES)
    assert torch.equal(result.first_flip[:, 1:], fine.first_flip)


def test_a_head_may_use_what_belongs_to_the_instance_in_slices_too():
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn(6, 3, 5, generator=generator, dtype=torch.float64)

    def head(pooled, instance):
        return torch.einsum("md,mcd->mc", pooled, queries[instance])

    model = Model()
    batch = model.callable(head=head)
    whole = fae.erase_prefixes(batch, ["attention", "gradient"], curves=("js",))
    for b in range(6):
        alone = fae.AttentionBatch(
            model.values[OFFSETS[b] : OFFSETS[b + 1]],
            torch.tensor([0, LENGTHS[b]]),
            scores=model.scores[OFFSETS[b] : OFFSETS[b + 1]],
            head_weight=queries[b],
        )
        expected = fae.erase_prefixes(alone, ["attention", "gradient"], curves=("js",))
        for part in (batch[b : b + 1], fae.AttentionBatch.cat([batch[b : b + 1]])):
            result = fae.erase_prefixes(part, ["attention", "gradient"], curves=("js",))
            assert torch.equal(result.first_flip, expected.first_flip)
            torch.testing.assert_close(result.curves["js"], expected.curves["js"])
        assert torch.equal(whole.first_flip[:, b : b + 1], expected.first_flip)


def test_a_head_is_left_as_found_and_dropout_is_off():
    torch.manual_seed(5)
    head = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))
    head[2].eval()
    head[1].train()

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = head

        def forward(self, pooled, instance):
            return self.inner(pooled)

    wrapped = Wrapped()
    wrapped.inner[2].train()
    wrapped.inner[0].eval()
    before = [module.training for module in wrapped.modules()]
    batch = Model(dtype=torch.float32).callable(head=wrapped)
    state = torch.get_rng_state()
    first = fae.sweep(batch, NAMES, minimal=False, curves=("js",))
    assert torch.equal(torch.get_rng_state(), state)
    second = fae.sweep(batch, NAMES, minimal=False, curves=("js",))
    assert torch.equal(first.prefixes.curves["js"], second.prefixes.curves["js"])
    assert [module.training for module in wrapped.modules()] == before
    assert all(parameter.grad is None for parameter in wrapped.parameters())
    assert not first.prefixes.curves["js"].requires_grad
    with torch.inference_mode():
        third = fae.sweep(batch, NAMES, minimal=False, curves=("js",))
    assert torch.equal(first.prefixes.curves["js"], third.prefixes.curves["js"])


def test_a_head_that_draws_random_numbers_leaves_the_state_as_found():
    batch = Model().callable(head=lambda pooled, instance: pooled[:, :3] + torch.rand(3))
    state = torch.get_rng_state()
    fae.erase_each(batch)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("error", "head", "message"),
    [
        (ValueError, lambda pooled, instance: pooled.sum(), "head: given logits [] for 6 pooled"),
        (
            ValueError,
            lambda pooled, instance: pooled.sum(0),
            "head: given logits [5] for 6 pooled vectors, needed [6, C]",
        ),
        (ValueError, lambda pooled, instance: pooled[:1], "head: given logits [1, 5] for 6"),
        (ValueError, lambda pooled, instance: pooled[:, :0], "head: given logits [6, 0] for 6"),
        (
            TypeError,
            lambda pooled, instance: None,
            "head: given NoneType back, needed logits [6, C]",
        ),
        (
            TypeError,
            lambda pooled, instance: pooled.long(),
            "head: given logits of torch.int64, needed",
        ),
        (
            ValueError,
            lambda pooled, instance: pooled.to("meta"),
            "head: given logits on meta, needed on cpu",
        ),
    ],
)
def test_heads_that_return_something_else_are_refused(error, head, message):
    with pytest.raises(error, match=re.escape(message)):
        fae.erase_prefixes(Model().callable(head=head), ["attention"])


def test_a_head_whose_classes_change_is_refused():
    calls = []

    def head(pooled, instance):
        calls.append(len(pooled))
        return pooled[:, : 2 + len(calls)]

    with pytest.raises(ValueError, match="head: given 4 classes after 3, needed"):
        fae.erase_prefixes(Model().callable(head=head), ["attention"])


def test_gradient_rankings_need_a_differentiable_head():
    def head(pooled, instance):
        return pooled.detach()[:, :3]

    batch = Model().callable(head=head)
    assert fae.erase_prefixes(batch, ["attention"]).first_flip.shape == (1, 6)
    with pytest.raises(ValueError, match="head: given logits without a gradient, needed"):
        fae.erase_prefixes(batch, ["gradient"])


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (Model().callable(), "with a callable head: the sort .*, needed a linear"),
        (Model(2).linear(), "with 2 attention heads: the sort .*, needed a linear"),
    ],
)
def test_the_minimal_set_is_refused(batch, reason):
    calls = [
        lambda: fae.sweep(batch, minimal=True),
        lambda: fae.rank(batch, "minimal"),
        lambda: fae.erase_prefixes(batch, ["minimal"]),
    ]
    if batch.head is not None:  # of several heads it searches a set, with a bound
        calls.append(lambda: fae.minimal_flip_set(batch))
    for call in calls:
        with pytest.raises(ValueError, match=reason):
            call()


def test_num_classes_and_max_bytes_of_a_callable():
    batch = Model().callable()
    assert "callable head" in repr(batch)
    with pytest.raises(ValueError, match="num_classes"):
        _ = batch.num_classes
    with pytest.raises(ValueError, match="max_bytes: given 0"):
        fae.erase_each(batch, max_bytes=0)


def test_several_heads_by_hand():
    # Head 0 attends to item 0 by 3/4, head 1 to item 1 by 3/4; values are class scores.
    # z = (3 · 3/4, 1/4) + (1/4, 3 · 3/4) = (2.5, 2.5) + bias (0, −1): label 0.
    # Without item 0 both heads are all on item 1: (0, 1) + (0, 3) + bias = (0, 3): class 1.
    # Without item 1: (3, 0) + (1, 0) + bias = (4, −1).  Without both: the bias, class 0.
    values = torch.tensor([[[3.0, 0], [1, 0]], [[0, 1], [0, 3]]])  # [T = 2, H = 2, Dh = 2]
    weights = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    head = torch.eye(2).unsqueeze(1).expand(2, 2, 2)  # both heads give their class scores
    batch = fae.AttentionBatch(
        values,
        torch.tensor([0, 2]),
        weights=weights,
        head_weight=head,
        head_bias=torch.tensor([0.0, -1]),
    )
    for backend in ("reference", "auto"):
        order = torch.tensor([0, 1])
        result = fae.sweep(batch, [order], curves=CURVES, minimal=False, backend=backend)
        curves = result.prefixes.curves
        assert curves["logits"][0].tolist() == [[2.5, 1.5], [0, 3], [0, -1]]
        assert curves["decision"].tolist() == [[0, 1, 0]]
        assert curves["mass"].tolist() == [[1, 0.5, 0]]  # the mean over heads
        assert result.prefixes.removed_mass.tolist() == [[0.5]]
        assert result.single.flip_label.tolist() == [1, -1]
        # Both items have a mean weight of 1/2: by position.
        assert fae.rank(batch, "attention", backend=backend).tolist() == [0, 1]


def test_a_head_without_surviving_mass_contributes_zero():
    # Head 1 attends to item 0 only: without it only head 0 speaks, on item 1.
    batch = fae.AttentionBatch(
        torch.tensor([[[4.0, 0], [2, 0]], [[0, 1], [0, 9]]]),
        torch.tensor([0, 2]),
        weights=torch.tensor([[0.5, 1.0], [0.5, 0.0]]),
        head_weight=torch.eye(2).unsqueeze(1).expand(2, 2, 2),
    )
    for backend in ("reference", "auto"):
        result = fae.erase_prefixes(batch, ["attention"], curves=("logits",), backend=backend)
        assert result.curves["logits"][0].tolist() == [[4, 0.5], [0, 1], [0, 0]]


def test_a_module_of_another_width_is_refused_in_one_line():
    head = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    needed = "head: given Sequential, which does not take pooled vectors [M, 5] (mat1 and mat2"
    with pytest.raises(ValueError, match=re.escape(needed)):
        fae.sweep(Model(dtype=torch.float32).callable(head=head), ["attention"])
