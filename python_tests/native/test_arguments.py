"""Every bad argument to the CPU entry points raises and names the argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fastattnerase import _C

T, B, D, C = 5, 2, 3, 4


class Call:
    """Keyword arguments of one small valid call, and the tensors behind them."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.values = torch.randn(T, 1, D, generator=generator)
        self.attention = torch.rand(T, 1, generator=generator)
        self.weight = torch.randn(C, 1, D, generator=generator)
        self.bias = torch.zeros(C)
        self.offsets = torch.tensor([0, 2, T])
        self.ids = torch.arange(B)
        self.order = torch.tensor([0, 1, 2, 1, 0])
        self.keys = torch.rand(T, generator=generator)
        self.label = torch.full((B,), 77)
        self.first_flip = torch.full((3, B), 77)
        self.probabilities = torch.full((B, C), 77.0)
        self.status = torch.full((B,), 77)
        self.tvd = torch.full((2, B), 77.0)
        self.flips = torch.full((B,), 77)
        self.logits = torch.full((2, B, C), 77.0)
        self.workspace = torch.empty(1 << 20, dtype=torch.uint8)

    def sweep(self) -> dict[str, Any]:
        return {
            **{"B": B, "T": T, "H": 1, "D": D, "C": C, "R": 3},
            "values": self.values.data_ptr(),
            "values_stride_t": D,
            "values_stride_h": D,
            "values_dtype": 0,
            "offsets": self.offsets.data_ptr(),
            "attention": self.attention.data_ptr(),
            "attention_stride_t": 1,
            "attention_stride_h": 1,
            "attention_dtype": 0,
            "is_scores": 0,
            "head_weight": self.weight.data_ptr(),
            "head_bias": self.bias.data_ptr(),
            "head_bias_stride_b": 0,
            "head_bias_dtype": 0,
            "ids": self.ids.data_ptr(),
            "rankings": [0, 9, 10],
            "ranking_args": [0, 0, 0],
            "orders": [self.order.data_ptr()],
            "keys": [self.keys.data_ptr()],
            "keys_dtype": [0],
            "seed": 0,
            "keep": 0,
            "validate": 1,
            **dict.fromkeys((name for name, _, _ in _C.outputs()), 0),
            "label": self.label.data_ptr(),
            "first_flip": self.first_flip.data_ptr(),
            "workspace": self.workspace.data_ptr(),
            "workspace_bytes": self.workspace.numel(),
            "num_threads": 1,
        }

    def permute(self) -> dict[str, Any]:
        fields = self.sweep()
        left_out = {name for name, _, _ in _C.outputs()}
        left_out |= {"R", "rankings", "ranking_args", "orders", "keys", "keys_dtype"}
        return {
            **{name: value for name, value in fields.items() if name not in left_out},
            "P": 2,
            "label": self.label.data_ptr(),
            "probabilities": self.probabilities.data_ptr(),
            "status": self.status.data_ptr(),
            "tvd": self.tvd.data_ptr(),
            "flips": self.flips.data_ptr(),
        }

    def reweigh(self) -> dict[str, Any]:
        left_out = {"P", "label", "probabilities", "status", "tvd", "flips"}
        return {
            **{name: value for name, value in self.permute().items() if name not in left_out},
            **{"R": 2, "row_stride": 0, "logits": self.logits.data_ptr()},
        }

    def pooled(self, pooled: torch.Tensor) -> dict[str, Any]:
        fields = self.sweep()
        shared = (
            "B T H D values values_stride_t values_stride_h values_dtype offsets attention "
            "attention_stride_t attention_stride_h attention_dtype is_scores keep workspace "
            "workspace_bytes num_threads"
        )
        return {
            **{name: fields[name] for name in shared.split()},
            **{"M": T + B, "order": self.order.data_ptr(), "point_begin": 0},
            "pooled": pooled.data_ptr(),
        }


ENTRIES = ("cpu_sweep", "cpu_permute", "cpu_reweigh", "cpu_pooled_prefixes")


def arguments(entry: str, call: Call, pooled: torch.Tensor) -> dict[str, Any]:
    if "permute" in entry:
        return call.permute()
    if "reweigh" in entry:
        return call.reweigh()
    return call.pooled(pooled) if "pooled" in entry else call.sweep()


@pytest.fixture
def pooled() -> torch.Tensor:
    return torch.zeros(T + B, 1, D)


def test_the_valid_call_works(pooled: torch.Tensor) -> None:
    call = Call()
    _C.cpu_sweep(**call.sweep())
    assert ((call.label >= 0) & (call.label < C)).all()
    assert (call.first_flip != 77).all()
    _C.cpu_pooled_prefixes(**call.pooled(pooled))
    weights = call.attention[:2, 0] / call.attention[:2, 0].sum()
    torch.testing.assert_close(pooled[0, 0], weights @ call.values[:2, 0])
    assert (pooled[2] == 0).all()  # all of instance 0 erased


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_missing_argument_is_named(entry: str, pooled: torch.Tensor) -> None:
    call = Call()
    fields = arguments(entry, call, pooled)
    results = {name for name, _, _ in _C.outputs()} if entry == "cpu_sweep" else set()
    for name in fields:
        rest = {k: v for k, v in fields.items() if k != name}
        if name in results:
            getattr(_C, entry)(**rest)  # not wanted
            continue
        with pytest.raises(ValueError, match=f"^{name}: missing"):
            getattr(_C, entry)(**rest)


@pytest.mark.parametrize("entry", ENTRIES)
def test_unknown_arguments_are_named(entry: str, pooled: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^colour: unknown"):
        getattr(_C, entry)(**arguments(entry, Call(), pooled), colour=1)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_argument_of_a_wrong_type_is_named(entry: str, pooled: torch.Tensor) -> None:
    call = Call()
    fields = arguments(entry, call, pooled)
    for name, value in fields.items():
        for wrong in (1.5, "x", None, [1.5] if isinstance(value, list) else [1]):
            with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
                getattr(_C, entry)(**{**fields, name: wrong})


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_negative_or_overlarge_number_is_named(entry: str, pooled: torch.Tensor) -> None:
    call = Call()
    fields = arguments(entry, call, pooled)
    for name, value in fields.items():
        for wrong in (-1, 1 << 64):
            given = [wrong] * max(1, len(value)) if isinstance(value, list) else wrong
            with pytest.raises(ValueError, match=f"^{name}: "):
                getattr(_C, entry)(**{**fields, name: given})


@pytest.mark.parametrize("entry", ENTRIES)
def test_null_inputs_are_named(entry: str, pooled: torch.Tensor) -> None:
    call = Call()
    fields = arguments(entry, call, pooled)
    needed = {"values", "offsets", "attention", "head_weight", "head_bias", "ids", "orders", "keys"}
    needed |= {"order", "pooled"} | ({"logits"} if entry == "cpu_reweigh" else set())
    for name in needed & fields.keys():
        if name == "order" and "pooled" not in entry:
            continue  # there it is a result
        null = [0] if isinstance(fields[name], list) else 0
        with pytest.raises(ValueError, match=f"^{name}: given 0, needed an address"):
            getattr(_C, entry)(**{**fields, name: null})


@pytest.mark.parametrize(
    ("name", "given", "needed"),
    [
        ("values_stride_t", D - 1, f"0 or at least {D}"),
        ("values_dtype", 4, r"in \[0, 3\]"),
        ("attention_dtype", 4, r"in \[0, 3\]"),
        ("head_bias_dtype", 2, r"in \[0, 1\]"),
        ("head_bias_stride_b", C - 1, f"0 or at least {C}"),
        ("is_scores", 2, r"in \[0, 1\]"),
        ("keep", 2, r"in \[0, 1\]"),
        ("validate", 2, r"in \[0, 1\]"),
        ("D", 0, "at least 1"),
        ("C", 0, "at least 1"),
        ("H", 0, "at least 1"),
        ("num_threads", 0, r"in \[1, 65536\]"),
        ("rankings", [0, 9, 11], r"in \[0, 10\]"),
        ("rankings", [0], "needed 3"),
        ("ranking_args", [0, 0], "needed 3"),
        ("ranking_args", [0, 1, 0], "below 1"),
        ("ranking_args", [0, 0, 1], "below 1"),
        ("keys_dtype", [], "needed 1"),
        ("keys_dtype", [2], r"in \[0, 1\]"),
        ("workspace", 0, "not null"),
    ],
)
def test_numbers_out_of_range_say_what_is_needed(name: str, given: object, needed: str) -> None:
    call = Call()
    with pytest.raises(ValueError, match=f"^{name}: given .*{needed}"):
        _C.cpu_sweep(**{**call.sweep(), name: given})
    assert (call.label == 77).all()


def test_permuted_weights_need_their_results() -> None:
    call = Call()
    fields = call.permute()
    for name in ("label", "probabilities", "status", "tvd", "flips"):
        with pytest.raises(ValueError, match=f"^{name}: given 0, needed an address"):
            _C.cpu_permute(**{**fields, name: 0})
    with pytest.raises(ValueError, match=r"^P: given 0, needed an integer of at least 1"):
        _C.cpu_permute(**{**fields, "P": 0})
    assert (call.tvd == 77).all()
    _C.cpu_permute(**fields)
    assert ((call.tvd >= 0) & (call.tvd < 1)).all()
    assert ((call.flips >= 0) & (call.flips <= 2)).all()


def test_permutations_take_no_memory_each() -> None:
    fields = {**Call().permute(), "workspace": 0, "workspace_bytes": 0}
    assert _C.cpu_permute(**fields) == _C.cpu_permute(**{**fields, "P": 10**9})


def test_permuted_weights_of_wrong_offsets_are_invalid() -> None:
    call = Call()
    call.offsets.copy_(torch.tensor([0, 6, 5]))
    with pytest.raises(ValueError, match=r"^offsets: "):
        _C.cpu_permute(**call.permute())
    _C.cpu_permute(**{**call.permute(), "validate": 0})
    assert call.status.tolist() == [64, 64]
    assert (call.label == -1).all()
    assert (call.flips == -1).all()
    assert call.tvd.isnan().all()
    assert call.probabilities.isnan().all()


def test_other_weights_are_averaged_row_by_row() -> None:
    call = Call()
    weights = torch.tensor([[1.0, 3.0, 0.0, 1.0, 1.0], [0.0, 0.0, 2.0, 0.0, 0.0]])
    fields = {**call.reweigh(), "attention": weights.data_ptr(), "row_stride": T}
    assert _C.cpu_reweigh(**fields) == 0
    own = call.values[:, 0] @ call.weight[:, 0].T  # [T, C]
    want = [[own[0] / 4 + own[1] * 3 / 4, (own[3] + own[4]) / 2], [torch.zeros(C), own[2]]]
    torch.testing.assert_close(call.logits, torch.stack([torch.stack(row) for row in want]))
    weights[1, 4] = -2
    with pytest.raises(ValueError, match=r"^weights: given -2\.0 at .* 2 of instance 1 in row 1"):
        _C.cpu_reweigh(**fields)
    assert _C.cpu_reweigh(**{**fields, "validate": 0}) == 0
    assert call.logits.isnan().all(2).tolist() == [[False, False], [False, True]]
    call.offsets.copy_(torch.tensor([0, 6, 5]))
    with pytest.raises(ValueError, match=r"^offsets: "):
        _C.cpu_reweigh(**fields)
    _C.cpu_reweigh(**{**fields, "validate": 0})
    assert call.logits.isnan().all()


def test_pooled_points_outside_the_curve_are_named(pooled: torch.Tensor) -> None:
    fields = Call().pooled(pooled)
    with pytest.raises(ValueError, match=r"^M: given 8, needed"):
        _C.cpu_pooled_prefixes(**{**fields, "M": T + B + 1})
    with pytest.raises(ValueError, match=r"^point_begin: given 1, needed"):
        _C.cpu_pooled_prefixes(**{**fields, "point_begin": 1})


def test_wrong_contents_name_argument_and_instance(pooled: torch.Tensor) -> None:
    call = Call()
    call.attention[3] = -0.5
    with pytest.raises(ValueError, match=r"^weights: given -0\.5 at position 1 of instance 1"):
        _C.cpu_sweep(**call.sweep())
    call = Call()
    call.order[4] = 1
    with pytest.raises(
        ValueError, match=r"^rankings: given position 1 at position 2 of instance 1"
    ):
        _C.cpu_sweep(**call.sweep())
    call = Call()
    call.keys[1] = torch.nan
    with pytest.raises(
        ValueError, match=r"^rankings: given a NaN score at position 1 of instance 0"
    ):
        _C.cpu_sweep(**call.sweep())
    for offsets in ([0, 6, 5], [1, 2, 5], [0, 2, 4], [0, -1, 5]):
        call = Call()
        call.offsets.copy_(torch.tensor(offsets))
        with pytest.raises(ValueError, match=r"^offsets: "):
            _C.cpu_sweep(**call.sweep())
        with pytest.raises(ValueError, match=r"^offsets: "):
            _C.cpu_pooled_prefixes(**call.pooled(pooled))
    call = Call()
    call.order[0] = 2
    with pytest.raises(ValueError, match=r"^rankings: given position 2"):
        _C.cpu_pooled_prefixes(**call.pooled(pooled))


def test_unvalidated_contents_mark_the_instance_and_leave_the_other_alone() -> None:
    good = Call()
    _C.cpu_sweep(**good.sweep())
    for spoil in (
        lambda call: call.attention.__setitem__(3, -0.5),
        lambda call: call.order.__setitem__(4, 1 << 40),
        lambda call: call.keys.__setitem__(3, torch.nan),
    ):
        call = Call()
        spoil(call)
        status = torch.zeros(B, dtype=torch.int64)
        _C.cpu_sweep(**{**call.sweep(), "validate": 0, "status": status.data_ptr()})
        assert status.tolist() == [0, 64]
        assert call.label.tolist() == [good.label[0], -1]
        assert call.first_flip[:, 1].tolist() == [-1, -1, -1]
        assert torch.equal(call.first_flip[:, 0], good.first_flip[:, 0])


def test_too_little_scratch_memory_is_asked_for_before_anything_is_done(
    pooled: torch.Tensor,
) -> None:
    call = Call()
    for entry in ENTRIES:
        run, fields = getattr(_C, entry), arguments(entry, call, pooled)
        needed = run(**{**fields, "workspace": 0, "workspace_bytes": 0})
        assert 0 < needed <= call.workspace.numel()
        assert run(**{**fields, "workspace_bytes": needed - 1}) == needed
        assert (call.label == 77).all()
        assert (pooled == 0).all()
    for entry in ENTRIES:
        assert getattr(_C, entry)(**arguments(entry, call, pooled)) == 0
    assert ((call.label >= 0) & (call.label < C)).all()
    assert (pooled != 0).any()


def test_an_empty_batch_needs_no_memory() -> None:
    fields = {**Call().sweep(), "B": 0, "T": 0, "R": 0, "rankings": [], "ranking_args": []}
    fields |= {"orders": [], "keys": [], "keys_dtype": [], "values": 0, "attention": 0, "ids": 0}
    assert _C.cpu_sweep(**{**fields, "workspace": 0, "workspace_bytes": 0}) == 0
