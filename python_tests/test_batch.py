"""AttentionBatch: every way to build one agrees, and wrong input says what is wrong."""

import re
import warnings

import pytest
import torch

import fastattnerase as fae

W = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])  # [C = 3, D = 2]
B_SHARED = torch.tensor([0.5, 0.0, -0.5])


def packed(**changes):
    arguments = {
        "values": torch.arange(10.0).reshape(5, 2),
        "offsets": torch.tensor([0, 2, 2, 5]),
        "scores": torch.arange(5.0),
        "head_weight": W,
        "head_bias": B_SHARED,
    } | changes
    return fae.AttentionBatch(**arguments)


def test_packed_keeps_what_it_is_given():
    batch = packed()
    assert len(batch) == 3
    assert (batch.num_items, batch.num_classes, batch.num_heads) == (5, 3, 1)
    assert batch.lengths.tolist() == [2, 0, 3]
    assert batch.ids.tolist() == [0, 1, 2]
    assert batch.positions.tolist() == [0, 1, 0, 1, 2]
    assert batch.instance_of_item.tolist() == [0, 0, 2, 2, 2]
    assert torch.equal(batch.values, torch.arange(10.0).reshape(5, 2))
    assert torch.equal(batch.scores, torch.arange(5.0))
    assert batch.weights is None
    assert torch.equal(batch.head_weight, W)
    assert repr(batch) == (
        "AttentionBatch(3 instances, 5 items, width 2, 3 classes, torch.float32, cpu)"
    )


def test_padded_with_lengths_and_a_mask_with_holes():
    values = torch.arange(16.0).reshape(2, 4, 2)
    scores = torch.arange(8.0).reshape(2, 4)
    lengths = torch.tensor([3, 4])
    mask = torch.tensor([[True, False, True, True], [False, True, True, True]])
    batch = fae.AttentionBatch.from_padded(
        values, scores=scores, lengths=lengths, mask=mask, head_weight=W
    )
    # Row 0 keeps columns 0 and 2: column 1 is masked, column 3 beyond the length.
    assert batch.offsets.tolist() == [0, 2, 5]
    assert batch.positions.tolist() == [0, 2, 1, 2, 3]
    assert batch.scores.tolist() == [0, 2, 5, 6, 7]
    assert batch.values[:, 0].tolist() == [0, 4, 10, 12, 14]
    padded = batch.to_padded(torch.tensor([1, 2, 3, 4, 5]))
    assert padded.tolist() == [[1, -1, 2, -1], [-1, 3, 4, 5]]
    assert batch[1:].to_padded(torch.tensor([3, 4, 5])).tolist() == [[-1, 3, 4, 5]]
    floats = batch.to_padded(torch.arange(5.0))
    assert floats.isnan().tolist() == [[False, True, False, True], [True, False, False, False]]
    flags = batch.to_padded(torch.ones(5, dtype=torch.bool))
    assert flags.tolist() == [[True, False, True, False], [False, True, True, True]]
    assert batch.to_padded(torch.arange(5.0), fill=9).tolist()[0] == [0, 9, 1, 9]


def test_padded_without_lengths_keeps_all_and_copies_nothing():
    values = torch.arange(12.0).reshape(2, 3, 2)
    batch = fae.AttentionBatch.from_padded(values, weights=torch.ones(2, 3), head_weight=W)
    assert batch.offsets.tolist() == [0, 3, 6]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1, 2]
    assert batch.values.data_ptr() == values.data_ptr()


def test_lengths_and_mask_that_leave_nothing():
    batch = fae.AttentionBatch.from_padded(
        torch.zeros(2, 3, 2),
        scores=torch.zeros(2, 3),
        lengths=torch.tensor([3, 1]),
        mask=torch.tensor([[True] * 3, [False, True, True]]),
        head_weight=W,
    )
    assert batch.lengths.tolist() == [3, 0]
    assert fae.sweep(batch).prefixes.status.tolist()[1] == fae.Status.EMPTY


def test_list_of_unequal_lengths():
    parts = [torch.ones(2, 2), torch.zeros(0, 2), 2 * torch.ones(3, 2)]
    batch = fae.AttentionBatch.from_list(
        values=parts, weights=[torch.ones(2), torch.ones(0), torch.ones(3)], head_weight=W
    )
    assert batch.offsets.tolist() == [0, 2, 2, 5]
    assert batch.values[:, 0].tolist() == [1, 1, 2, 2, 2]


def test_slices_share_the_values_and_keep_ids():
    batch = packed(ids=torch.tensor([7, 8, 9]), head_bias=torch.arange(9.0).reshape(3, 3))
    part = batch[1:3]
    assert part.values.data_ptr() == batch.values[2:].data_ptr()
    assert part.offsets.tolist() == [0, 0, 3]
    assert part.ids.tolist() == [8, 9]
    assert part.head_bias.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert len(batch[2:1]) == 0
    assert batch[-1:].offsets.tolist() == [0, 3]


def test_cat_undoes_slices():
    batch = packed(ids=torch.tensor([7, 8, 9]))
    joined = fae.AttentionBatch.cat([batch[:1], batch[1:]])
    one_by_one = fae.AttentionBatch.cat([batch[b] for b in (0, 1, -1)])
    assert torch.equal(one_by_one.offsets, joined.offsets)
    assert torch.equal(one_by_one.values, joined.values)
    for name in ("values", "offsets", "scores", "ids", "positions", "head_weight", "head_bias"):
        assert torch.equal(getattr(joined, name), getattr(batch, name)), name


def test_cat_of_shared_and_own_biases():
    shared, own = packed(), packed(head_bias=torch.ones(3, 3))
    joined = fae.AttentionBatch.cat([shared, own])
    assert joined.head_bias.tolist() == [B_SHARED.tolist()] * 3 + [[1, 1, 1]] * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_weight": W + 1}, "different heads"),
        ({"head_bias": B_SHARED + 1}, "different heads"),
        ({"scores": None, "weights": torch.ones(5)}, "scores and weights"),
        ({"values": torch.ones(5, 2).double()}, "different dtypes"),
        ({"values": torch.ones(5, 3), "head_weight": torch.ones(3, 3)}, "different sizes"),
    ],
)
def test_cat_refuses_batches_of_other_models(changes, message):
    with pytest.raises(ValueError, match=f"batches: given number 1 and number 0, .*{message}"):
        fae.AttentionBatch.cat([packed(), packed(**changes)])


def test_strides_other_than_one_are_copied_once():
    transposed = torch.arange(10.0).reshape(2, 5).T  # [5, 2], last stride 5
    batch = packed(values=transposed)
    assert batch.values.stride(-1) == 1
    assert torch.equal(batch.values, transposed)
    wide = torch.arange(20.0).reshape(5, 4)
    assert packed(values=wide[:, :2]).values.data_ptr() == wide.data_ptr()


def test_head_in_another_dtype_is_cast_to_that_of_contributions():
    assert packed(head_weight=W.bfloat16()).head_weight.dtype == torch.float32
    assert packed(head_weight=W.double()).head_weight.dtype == torch.float32
    values = torch.ones(5, 2, dtype=torch.float64)
    assert packed(values=values).head_weight.dtype == torch.float64
    assert packed(head_bias=B_SHARED.half()).head_bias.tolist() == B_SHARED.tolist()


def test_batch_carries_no_gradient():
    batch = packed(values=torch.ones(5, 2, requires_grad=True))
    assert not batch.values.requires_grad


def test_to_moves_every_tensor():
    moved = packed(scores=None, weights=torch.ones(5)).to("meta")
    for name in ("values", "offsets", "weights", "ids", "head_weight", "head_bias"):
        assert getattr(moved, name).device.type == "meta", name


def test_sweep_of_one_output_warns():
    batch = packed(head_weight=W[:1], head_bias=None)
    with pytest.warns(UserWarning, match="batch: one output, so nothing can flip"):
        assert (fae.sweep(batch, ["attention"]).prefixes.first_flip == -1).all()


def test_binary_head_is_the_sigmoid_model():
    weight, bias = fae.binary_head(torch.tensor([[2.0, -1.0]]), torch.tensor([0.25]))
    assert weight.tolist() == [[0, 0], [2, -1]]
    assert bias.tolist() == [0, 0.25]
    batch = packed(head_weight=weight, head_bias=bias)
    # Instance 1 is empty: its logits are [0, 0.25].
    probabilities = fae.sweep(batch).prefixes.probabilities
    assert probabilities[1, 1] == torch.tensor(0.25).sigmoid()
    several, _ = fae.binary_head(torch.ones(3, 2))
    assert several.shape == (2, 3, 2)
    with pytest.raises(ValueError, match=r"b: given \[2\], needed one number"):
        fae.binary_head(torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="w: given a scalar"):
        fae.binary_head(torch.tensor(1.0))


@pytest.mark.parametrize(
    ("error", "changes", "message"),
    [
        (
            TypeError,
            {"values": [[1.0]]},
            "values: given list, needed a tensor, as torch.tensor(values) makes",
        ),
        (
            TypeError,
            {"values": W.numpy()},
            "values: given ndarray, needed a tensor, as torch.from_numpy(values) makes",
        ),
        (
            TypeError,
            {"values": torch.ones(5, 2).long()},
            "values: given torch.int64, needed float32",
        ),
        (ValueError, {"values": torch.ones(5)}, "values: given [5], needed [T, D] or [T, H, D]"),
        (
            TypeError,
            {"values": torch.ones(5, 2).to_sparse()},
            "values: given torch.sparse_coo, needed a dense tensor: .to_dense()",
        ),
        (
            TypeError,
            {"values": torch.nested.nested_tensor([torch.ones(2, 2)], layout=torch.jagged)},
            "values: given a nested tensor, needed a plain one; AttentionBatch.from_list takes",
        ),
        (TypeError, {"offsets": torch.tensor([0, 2, 2, 5]).int()}, "offsets: given torch.int32"),
        (ValueError, {"offsets": torch.zeros(0).long()}, "offsets: given [0], needed [B + 1]"),
        (
            ValueError,
            {"offsets": torch.tensor([1, 2, 2, 5])},
            "offsets: given 1 as the first, needed 0",
        ),
        (
            ValueError,
            {"offsets": torch.tensor([3, 2])},  # lengths
            "offsets: given 3 as the first, needed 0, as torch.cat([torch.tensor([0]), ",
        ),
        (
            ValueError,
            {"offsets": torch.tensor([0, 2, 2, 6])},
            "offsets: given 6 as the last, needed the number",
        ),
        (
            ValueError,
            {"offsets": torch.tensor([0, 3, 2, 5])},
            "offsets: given 3 and then 2 for instance 1, needed",
        ),
        (ValueError, {"weights": torch.ones(5)}, "scores, weights: given both"),
        (ValueError, {"scores": None}, "scores, weights: given neither"),
        (ValueError, {"scores": torch.ones(4)}, "scores: given [4], needed [5]"),
        (ValueError, {"scores": torch.ones(5, 1)}, "scores: given [5, 1], needed [5]"),
        (TypeError, {"scores": torch.ones(5).bool()}, "scores: given torch.bool"),
        (ValueError, {"head_weight": None}, "head_weight: given none, needed [C, D]"),
        (ValueError, {"head_weight": torch.ones(3, 4)}, "head_weight: given [3, 4], needed [C, 2]"),
        (ValueError, {"head_weight": torch.ones(0, 2)}, "with C at least 1"),
        (
            ValueError,
            {"head_bias": torch.ones(2)},
            "head_bias: given [2], needed [3] or [3, 3]",
        ),
        (ValueError, {"head": lambda pooled, instance: pooled}, "head: given with head_weight"),
        (
            TypeError,
            {"head": 3, "head_weight": None, "head_bias": None},
            "head: given int, needed a callable",
        ),
        (ValueError, {"ids": torch.arange(2)}, "ids: given [2], needed [3]"),
        (TypeError, {"ids": torch.arange(3.0)}, "ids: given torch.float32, needed torch.int64"),
        (
            ValueError,
            {"head_weight": W.to("meta")},
            "head_weight: given on meta, needed on cpu as values",
        ),
        (ValueError, {"scores": torch.ones(5).to("meta")}, "scores: given on meta"),
    ],
)
def test_wrong_arguments_name_themselves(error, changes, message):
    with pytest.raises(error, match=re.escape(message)):
        packed(**changes)


@pytest.mark.parametrize(
    ("error", "changes", "message"),
    [
        (ValueError, {"lengths": torch.tensor([4, 1])}, "lengths: given 4 for instance 0"),
        (ValueError, {"lengths": torch.tensor([3, -1])}, "lengths: given -1 for instance 1"),
        (ValueError, {"lengths": torch.ones(2)}, "lengths: given torch.float32 [2]"),
        (TypeError, {"mask": torch.ones(2, 3)}, "mask: given torch.float32, needed torch.bool"),
        (
            ValueError,
            {"mask": torch.tensor([[1, 1, 0], [1, 2, 0]])},
            "mask: given 2 for instance 1 at column 1, needed 0 or 1",
        ),
        (ValueError, {"mask": torch.ones(3, 2).bool()}, "mask: given [3, 2], needed [2, 3]"),
        (ValueError, {"values": torch.ones(2, 3)}, "values: given [2, 3], needed [B, N, D]"),
        (ValueError, {"scores": torch.ones(2, 4)}, "scores: given [2, 4], needed [2, 3]"),
        (ValueError, {"scores": torch.ones(2, 3, 1)}, "scores: given [2, 3, 1], needed [2, 3]"),
    ],
)
def test_wrong_padded_arguments_name_themselves(error, changes, message):
    arguments = {"values": torch.ones(2, 3, 2), "scores": torch.ones(2, 3), "head_weight": W}
    with pytest.raises(error, match=re.escape(message)):
        fae.AttentionBatch.from_padded(**(arguments | changes))


def test_wrong_lists_and_slices_name_themselves():
    with pytest.raises(ValueError, match="values: given an empty list"):
        fae.AttentionBatch.from_list(values=[], scores=[], head_weight=W)
    with pytest.raises(ValueError, match=r"values: given \[1, 3\] for instance 1"):
        fae.AttentionBatch.from_list(
            values=[torch.ones(1, 2), torch.ones(1, 3)],
            scores=[torch.ones(1), torch.ones(1)],
            head_weight=W,
        )
    with pytest.raises(ValueError, match=r"scores: given \[2\] for instance 1, needed \[1\]"):
        fae.AttentionBatch.from_list(
            values=[torch.ones(1, 2), torch.ones(1, 2)],
            scores=[torch.ones(1), torch.ones(2)],
            head_weight=W,
        )
    with pytest.raises(ValueError, match="scores: given 1 instance, needed 2"):
        fae.AttentionBatch.from_list(
            values=[torch.ones(1, 2), torch.ones(1, 2)], scores=[torch.ones(1)], head_weight=W
        )
    with pytest.raises(TypeError, match=r"given list, needed a number or a slice .*\.cat\("):
        packed()[[0, 2]]
    with pytest.raises(TypeError, match="given Tensor, needed a number or a slice"):
        packed()[torch.tensor([True, False, True])]
    with pytest.raises(IndexError, match="given -4, needed less than 3 instances"):
        packed()[-4]
    with pytest.raises(ValueError, match="step 2, needed a number or a slice of step 1"):
        packed()[::2]
    with pytest.raises(TypeError, match="values: given generator, needed a list with a tensor an"):
        fae.AttentionBatch.from_list((x for x in ()), scores=[], head_weight=W)
    with pytest.raises(ValueError, match=r"per_item: given \[2\], needed \[5\]"):
        packed().to_padded(torch.ones(2))


def test_a_batch_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = fae.AttentionBatch(
            torch.zeros(0, 2), torch.tensor([0]), scores=torch.zeros(0), head_weight=W
        )
        result = fae.sweep(batch, curves=("js", "logits"))
    assert result.prefixes.first_flip.shape == (4, 0)
    assert result.prefixes.curves["logits"].shape == (4, 0, 3)
    assert result.single.flip.shape == (0,)
    assert result.minimal.size.shape == (0,)
    assert batch.to_padded(torch.zeros(0)).shape == (0, 0)
    assert len(result.to_pandas()) == 0


def test_tensors_of_another_form_are_told_how_to_be_taken():
    with pytest.raises(TypeError, match=r"offsets: given torch.int32, .* offsets.long\(\)"):
        packed(offsets=torch.tensor([0, 2, 2, 5], dtype=torch.int32))
    values, scores = torch.randn(5, 2, 4), torch.randn(5, 2)  # two attention heads
    told = (
        "head_weight: given [3, 8], needed [C, 2, 4] with C at least 1, as "
        "head_weight.reshape(-1, 2, 4) makes"
    )
    weight = torch.randn(3, 8)
    with pytest.raises(ValueError, match=re.escape(told)):
        packed(values=values, scores=scores, head_weight=weight)
    batch = packed(values=values, scores=scores, head_weight=weight.reshape(-1, 2, 4))
    assert batch.num_heads == 2
    with pytest.raises(ValueError, match=r"with C at least 1$"):
        packed(values=values, scores=scores, head_weight=torch.randn(3, 7))
