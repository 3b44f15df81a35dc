"""An attention layer with its head as a torch module, for libraries that explain modules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fastattnerase.batch import AttentionBatch
from fastattnerase.ops import sweep
from fastattnerase.ops.running import check_batch
from fastattnerase.plurals import counted
from fastattnerase.tensor_checks import check_tensor, shape_of

if TYPE_CHECKING:
    from fastattnerase.data.dataset import Dataset
    from fastattnerase.huggingface import TransformerClassifier
    from fastattnerase.models.base import AttentionClassifier
else:  # imported where they are used; hints that are read at run time say Any
    AttentionClassifier = Dataset = TransformerClassifier = Any

_INTEGERS = (torch.int64, torch.int32)  # a tensor of others is no index, or a mask


class AttentionModel(nn.Module):
    """An attention layer with its head, as a module of which items are there.

    `m` [N], 1 where an item is and 0 where it is not, gives the logits
    `W Σ_i m_i a_i h_i / Σ_i m_i a_i + b`, and `b` where nothing is left: what erasing at the
    attention layer means (but that items whose scores lie 700 below the largest weigh nothing here,
    alone too). Setting an input to 0 erases an item, which is what Captum's and Quantus' methods do
    with a baseline of 0.

    A row of an input belongs to the instance of its number; other rows, such as repeated ones, need
    `instance`. The values are part of the module: it is of these instances alone, and computes
    where the batch is. A head that is a module is a submodule, so that `.eval()` and `.train()`
    reach it, and the mode is that of the head at first; of a head that is a function they reach
    nothing.

    Args:
        batch: the instances; a linear head or a function, one attention head or several. Every item
            is one that may be erased: of a transformer give a batch with `special="items"`.

    Raises:
        TypeError: no batch.

    Example:
        >>> import torch, fastattnerase as fae
        >>> from fastattnerase.interop import AttentionModel
        >>> batch = fae.AttentionBatch(
        ...     torch.eye(2), torch.tensor([0, 2]), weights=torch.tensor([0.25, 0.75]),
        ...     head_weight=torch.eye(2),
        ... )
        >>> model = AttentionModel(batch)
        >>> model(model.inputs).tolist(), model(torch.tensor([[1.0, 0.0]])).tolist()
        ([[0.25, 0.75]], [[1.0, 0.0]])
    """

    def __init__(self, batch: AttentionBatch) -> None:
        super().__init__()
        check_batch(batch)
        self.batch = batch
        weights = sweep(batch, (), single=False, minimal=False, weights=True).prefixes.weights
        assert weights is not None  # asked for
        values, *_ = batch.packed  # [T, H, D]
        dtype = values.dtype if values.dtype == torch.float64 else torch.float32
        self.linear = batch.head is None
        if self.linear:
            head, bias = batch.linear_head  # [C, H, D], [C] or [B, C]
            items = torch.einsum("thd,chd->thc", values.to(dtype), head.to(dtype))  # [T, H, C]
            self.register_buffer("bias", bias.to(dtype).expand(len(batch), -1))  # [B, C]
        else:
            items = values.to(dtype)  # [T, H, D]
            if isinstance(batch.head, nn.Module):
                self.head = batch.head
                self.training = batch.head.training
        # In float64: what is left may have weighed next to nothing beside what is erased.
        weights = weights.reshape(len(weights), batch.num_heads)  # [T, H]
        self.register_buffer("inputs", self._padded(torch.ones(len(weights), dtype=dtype)))
        self.register_buffer("weights", self._padded(weights))  # [B, N, H]
        self.register_buffer("items", self._padded(items))  # [B, N, H, C] or [B, N, H, D]

    inputs: Tensor
    weights: Tensor
    items: Tensor
    bias: Tensor

    def _padded(self, per_item: Tensor) -> Tensor:
        """Lay out `[T, …]` in padded form, `[B, N, …]`, 0 where no item is."""
        place = self.batch.to_padded(torch.arange(len(per_item), device=self.batch.device))
        per_item = per_item.to(place.device)
        if not len(per_item):
            return per_item.new_zeros(*place.shape, *per_item.shape[1:])
        padded = per_item[place.clamp(min=0)]  # [B, N, …]
        padded[place < 0] = 0  # not times 0: the item that stood in may be infinite
        return padded

    @classmethod
    def of(
        cls, model: AttentionClassifier | TransformerClassifier, dataset: Dataset
    ) -> AttentionModel:
        """Take the last attention layer of a model, with all documents of a data set.

        Args:
            model: a classifier of any kind; a transformer whose special tokens are items
                (`TransformerConfig(special="items")`).
            dataset: the documents, at least one; all are held at once.

        Raises:
            ValueError: no documents; a transformer whose special tokens are kept.

        Example:
            >>> AttentionModel.of(model, dataset[:64])  # doctest: +SKIP
        """
        if not len(dataset):
            raise ValueError("dataset: given no documents, needed at least one")
        if getattr(model, "keeps_last", False):
            raise ValueError(
                "model: given a transformer whose special tokens are kept, an item that methods "
                "which erase inputs would erase like others, needed special='items' of its "
                "TransformerConfig"
            )
        [batch] = model.attention_batches(dataset, batch_tokens=sys.maxsize)
        return cls(batch)

    def forward(self, present: Tensor, instance: Tensor | None = None) -> Tensor:
        """Compute the logits of what is left of instances.

        Args:
            present: [M, N] or [M, 1, N], 1 where an item is left, 0 where none is; any number
                between weighs it. Columns without an item do nothing.
            instance: [M], integers 0 … B - 1, the instance of each row; default: each row that of
                its number, or all of the only one.

        Returns:
            [M, C].

        Raises:
            ValueError, TypeError: another shape; rows of which the instance is not known, or is
                none of the module's.
        """
        check_tensor("present", present)
        B, N = self.inputs.shape
        rows = present.squeeze(1) if present.ndim == 3 and present.shape[1] == 1 else present
        if rows.ndim != 2 or rows.shape[1] != N:
            raise ValueError(
                f"present: given {shape_of(present)}, needed [M, {N}] or [M, 1, {N}]: the items of "
                "an instance, 1 where one is left"
            )
        if instance is None:
            if B != 1 and len(rows) != B:
                raise ValueError(
                    f"instance: given none for {counted(len(rows), 'row')}, needed the instance of "
                    f"each: the module has {B} (Captum: additional_forward_args=torch.arange({B}))"
                )
            instance = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
            if B != 1:
                instance = torch.arange(B, device=rows.device)
        else:
            self._check_instance(instance, len(rows))
        mass = self.weights[instance] * rows.to(self.weights.dtype)[:, :, None]  # [M, N, H]
        total = mass.sum(1, keepdim=True)  # [M, 1, H]
        share = (mass / total.masked_fill(total == 0, 1.0)).to(self.items.dtype)
        pooled = torch.einsum("mnh,mnhd->mhd", share, self.items[instance])  # [M, H, C] or D
        if not self.linear:
            return self.batch.call_head(pooled, instance)
        return pooled.sum(1) + self.bias[instance]  # [M, C]

    def _check_instance(self, instance: Tensor, M: int) -> None:
        """Refuse what does not say of each row which of the module's instances it is of."""
        check_tensor("instance", instance)
        B = len(self.inputs)
        if instance.dtype not in _INTEGERS:
            raise TypeError(f"instance: given {instance.dtype}, needed int64")
        if instance.shape != (M,) or ((instance < 0) | (instance >= B)).any():
            raise ValueError(
                f"instance: given {instance.tolist()!s:.60}, needed [{M}] of 0 to {B - 1}"
            )
