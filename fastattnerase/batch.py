"""One batch of attention layers: values, scores or weights, and the head that reads the average."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any, NoReturn, SupportsIndex

import torch
from torch import Tensor

from fastattnerase.backends.checks import check_offsets
from fastattnerase.head import Head, binary_head, dtype_of, linear_head, linear_layer, takes_rows
from fastattnerase.joining import why_apart
from fastattnerase.packing import Packed, check_items, pack_list, pack_padded
from fastattnerase.plurals import counted
from fastattnerase.tensor_checks import (
    are_plain,
    check_devices,
    check_named,
    check_tensor,
    offsets_of,
    shape_of,
    unit_last_stride,
)

__all__ = ["AttentionBatch", "Head", "binary_head"]


class AttentionBatch:
    """Instances of one attention layer, packed: all items one after the other.

    An instance's pooled vector is `Σ_i a_i h_i`, `a = softmax(e)` over its own items, and its
    logits are `W (Σ_i a_i h_i) + b`. A batch is a snapshot: do not write to its tensors.

    Args:
        values: what attention averages, `h`, [T, D], or [T, H, Dh] with several attention heads;
            float32, float64, bfloat16 or float16.
        offsets: where each instance's items begin, [B + 1], int64, from 0 to T.
        scores: `e`, before the softmax, [T] or [T, H], any of the float types; -inf is weight zero.
        weights: `a`, after the softmax, instead of scores; divided by their sum.
        head_weight: `W`, [C, D] or [C, H, Dh], any of the float types.
        head_bias: `b`, [C] or one an instance [B, C]; zero by default.
        head: instead of `head_weight` and `head_bias`: a linear layer, which stands for its weight
            and bias; or a callable `head(pooled [M, D], instance [M]) -> logits [M, C]` (pooled
            [M, H, Dh] with several heads), where `instance` is the row of the batch as first built,
            in slices too; or a module or function of the pooled vectors alone, such as an
            `nn.Sequential`. A module is given them in the float type of its parameters.
        ids: what random orders depend on, [B], int64; 0 … B - 1 by default, kept by slices.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.

    Source: Serrano and Smith 2019, "Is Attention Interpretable?", section 2.

    >>> import torch, fastattnerase as fae
    >>> batch = fae.AttentionBatch(
    ...     torch.eye(3), torch.tensor([0, 2, 3]), weights=torch.tensor([0.5, 0.5, 1.0]),
    ...     head_weight=torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ... )
    >>> len(batch), batch.num_items, batch.num_classes
    (2, 3, 2)
    """

    _plain: bool | None = None  # kept from the first time that `plain` is asked

    def __init__(
        self,
        values: Tensor,
        offsets: Tensor,
        *by_position: NoReturn,
        scores: Tensor | None = None,
        weights: Tensor | None = None,
        head_weight: Tensor | None = None,
        head_bias: Tensor | None = None,
        head: Head | None = None,
        ids: Tensor | None = None,
    ) -> None:
        check_named("AttentionBatch", by_position)
        attention_name, attention = check_items(values, offsets, scores, weights)
        device = values.device
        B = offsets.shape[0] - 1
        rows = torch.arange(B, device=device)
        if ids is None:
            ids = rows
        check_tensor("ids", ids, torch.int64)
        if ids.shape != (B,):
            raise ValueError(f"ids: given {shape_of(ids)}, needed [{B}], one for each instance")
        check_devices(values, offsets=offsets, **{attention_name: attention}, ids=ids)
        if device.type == "cpu" and not torch.compiler.is_compiling():
            check_offsets(offsets, values.shape[0])

        self.offsets = offsets.contiguous()  # [B + 1]
        self.ids = ids.contiguous()  # [B]
        self.is_scores = scores is not None
        # A linear layer, most natural to give, is not called: it is its weight and bias.
        if head is not None and head_weight is None and head_bias is None:
            head, head_weight, head_bias = linear_layer(head, values)
        self.head = head
        self._head_takes_rows = head is not None and takes_rows(head)
        self._rows = rows  # [B], a callable head's second argument
        self._positions: Tensor | None = None  # [T]; None: 0 … n_b - 1
        self._width: int | None = None  # columns of the padded form
        several = values.ndim == 3
        self._several = several
        with torch.no_grad():
            values3 = values if several else values.unsqueeze(1)  # [T, H, D]
            self._values = unit_last_stride(values3.detach())
            self._attention = (attention if several else attention.unsqueeze(1)).detach()  # [T, H]
            self._head_weight, self._head_bias = linear_head(
                head_weight, head_bias, head, self._values, B, several
            )

    @classmethod
    def from_padded(
        cls,
        values: Tensor,
        *by_position: NoReturn,
        scores: Tensor | None = None,
        weights: Tensor | None = None,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        head_weight: Tensor | None = None,
        head_bias: Tensor | None = None,
        head: Head | None = None,
        ids: Tensor | None = None,
    ) -> AttentionBatch:
        """Pack a padded batch; what is padding is read nowhere afterwards.

        An item is kept where `column < length` and `mask` is true; without either all are kept.

        Args:
            values: [B, N, D] or [B, N, H, Dh].
            scores, weights: exactly one, [B, N] or [B, N, H].
            lengths: items of each instance, [B], an integer type, 0 … N.
            mask: true where an item is, [B, N], bool or integers 0 and 1, such as a tokenizer's
                `attention_mask`; it may have holes.
            head_weight, head_bias, head, ids: as of the constructor.

        Raises:
            ValueError, TypeError: naming the argument, what was given and what is needed.

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch.from_padded(
        ...     torch.zeros(2, 3, 4), scores=torch.zeros(2, 3), lengths=torch.tensor([3, 1]),
        ...     head_weight=torch.zeros(2, 4),
        ... )
        >>> batch.offsets.tolist(), batch.positions.tolist()
        ([0, 3, 4], [0, 1, 2, 0])
        """
        check_named("from_padded", by_position)
        packed = pack_padded(values, scores, weights, lengths, mask)
        return cls.from_packed(
            packed, head_weight=head_weight, head_bias=head_bias, head=head, ids=ids
        )

    @classmethod
    def from_list(
        cls,
        values: Sequence[Tensor] | Tensor,
        *by_position: NoReturn,
        scores: Sequence[Tensor] | Tensor | None = None,
        weights: Sequence[Tensor] | Tensor | None = None,
        head_weight: Tensor | None = None,
        head_bias: Tensor | None = None,
        head: Head | None = None,
        ids: Tensor | None = None,
    ) -> AttentionBatch:
        """Pack a list with one tensor an instance, of any lengths, at least one.

        Args:
            values: B tensors [n_b, D] or [n_b, H, Dh], or a nested tensor of them.
            scores, weights: exactly one, B tensors [n_b] or [n_b, H], or a nested tensor.
            head_weight, head_bias, head, ids: as of the constructor.

        Raises:
            ValueError, TypeError: naming the argument, what was given and what is needed.

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch.from_list(
        ...     [torch.zeros(2, 4), torch.zeros(1, 4)],
        ...     scores=[torch.zeros(2), torch.zeros(1)], head_weight=torch.zeros(2, 4),
        ... )
        >>> batch.offsets.tolist()
        [0, 2, 3]
        """
        check_named("from_list", by_position)
        packed = pack_list(values, scores, weights)
        return cls.from_packed(
            packed, head_weight=head_weight, head_bias=head_bias, head=head, ids=ids
        )

    @classmethod
    def from_packed(
        cls,
        packed: Packed,
        *,
        head_weight: Tensor | None = None,
        head_bias: Tensor | None = None,
        head: Head | None = None,
        ids: Tensor | None = None,
    ) -> AttentionBatch:
        """Make a batch of what `packing` made of padded tensors or lists; for code of the package.

        The other arguments are as of the constructor.
        """
        batch = cls(
            packed.values,
            packed.offsets,
            scores=packed.scores,
            weights=packed.weights,
            head_weight=head_weight,
            head_bias=head_bias,
            head=head,
            ids=ids,
        )
        batch._positions, batch._width = packed.positions, packed.width
        return batch

    @classmethod
    def cat(cls, batches: Sequence[AttentionBatch]) -> AttentionBatch:
        """Join batches of one model: same head, all with scores or all with weights.

        Args:
            batches: at least one; ids are kept, so they must be distinct where random orders are
                to differ.

        Raises:
            ValueError: where heads, sizes, dtypes, devices or scores and weights differ.

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.zeros(3, 4), torch.tensor([0, 2, 3]), scores=torch.zeros(3),
        ...     head_weight=torch.zeros(2, 4),
        ... )
        >>> fae.AttentionBatch.cat([batch[1:], batch[:1]]).ids.tolist()
        [1, 0]
        """
        if not len(batches):
            raise ValueError("batches: given an empty list, needed at least one")
        first = batches[0]
        for i, batch in enumerate(batches):
            problem = why_apart(first, batch)
            if problem:
                raise ValueError(
                    f"batches: given number {i} and number 0, which {problem}, needed one model's"
                )
        joined = cls.__new__(cls)
        joined.offsets = offsets_of(torch.cat([batch.lengths for batch in batches]))
        joined.ids = torch.cat([batch.ids for batch in batches])
        joined.is_scores = first.is_scores
        joined.head, joined._head_takes_rows = first.head, first._head_takes_rows
        joined._rows = torch.cat([batch._rows for batch in batches])
        joined._positions = torch.cat([batch.positions for batch in batches])
        widths = [batch._width for batch in batches]
        joined._width = None if None in widths else max(w for w in widths if w is not None)
        joined._several = first._several
        joined._values = torch.cat([batch._values for batch in batches])
        joined._attention = torch.cat([batch._attention for batch in batches])
        joined._head_weight = first._head_weight
        joined._head_bias = first._head_bias
        biases = [batch._head_bias for batch in batches]
        if any(bias is not None and bias.ndim == 2 for bias in biases):
            joined._head_bias = torch.cat(
                [
                    bias.expand(len(batch), bias.shape[-1])
                    for bias, batch in zip(biases, batches, strict=True)
                    if bias is not None
                ]
            )
        return joined

    def __len__(self) -> int:
        """The number of instances, B."""
        return self.offsets.shape[0] - 1

    def __iter__(self) -> Iterator[AttentionBatch]:
        """The instances one by one, each as a batch of one."""
        return (self[b : b + 1] for b in range(len(self)))

    def __getitem__(self, rows: SupportsIndex | slice) -> AttentionBatch:
        """The instance of a number, or those of a slice of step 1, as a batch; nothing is copied.

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.zeros(3, 4), torch.tensor([0, 2, 3]), scores=torch.zeros(3),
        ...     head_weight=torch.zeros(2, 4),
        ... )
        >>> batch[-1].num_items, [one.num_items for one in batch]
        (1, [2, 1])
        """
        other = "needed a number or a slice of step 1; AttentionBatch.cat([batch[b] for b in …])"
        if not isinstance(rows, slice):
            if getattr(rows, "ndim", 0) or not hasattr(rows, "__index__"):
                raise TypeError(f"batch[…]: given {type(rows).__name__}, {other} takes any")
            b = index(rows)
            if not -len(self) <= b < len(self):
                raise IndexError(
                    f"batch[…]: given {b}, needed less than {counted(len(self), 'instance')}"
                )
            return self[b % len(self) : b % len(self) + 1]
        i, j, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"batch[…]: given a slice of step {step}, {other} takes any")
        j = max(i, j)
        begin, end = int(self.offsets[i]), int(self.offsets[j])
        part = AttentionBatch.__new__(AttentionBatch)
        part.offsets = self.offsets[i : j + 1] - begin
        part.ids = self.ids[i:j]
        part.is_scores = self.is_scores
        part.head, part._head_takes_rows = self.head, self._head_takes_rows
        part._rows = self._rows[i:j]
        part._positions = None if self._positions is None else self._positions[begin:end]
        part._width, part._several = self._width, self._several
        part._values = self._values[begin:end]
        part._attention = self._attention[begin:end]
        part._head_weight = self._head_weight
        bias = self._head_bias
        part._head_bias = bias if bias is None or bias.ndim == 1 else bias[i:j]
        return part

    def to(self, device: torch.device | str) -> AttentionBatch:
        """Copy the batch to a device; a callable head is the caller's to move.

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.zeros(3, 4), torch.tensor([0, 3]), scores=torch.zeros(3),
        ...     head_weight=torch.zeros(2, 4),
        ... )
        >>> batch.to("cpu").device
        device(type='cpu')
        """
        return self.with_tensors(lambda tensor: tensor.to(device))

    def with_tensors(self, copy: Callable[[Tensor], Tensor]) -> AttentionBatch:
        """Replace every tensor by a copy of it, elsewhere; for code of the package."""
        moved = AttentionBatch.__new__(AttentionBatch)
        for name, value in vars(self).items():
            setattr(moved, name, copy(value) if isinstance(value, Tensor) else value)
        moved._plain = None
        return moved

    def with_weights(self, weights: Tensor) -> AttentionBatch:
        """Give the same items other weights [T, H], of any float type; for code of the package."""
        other = self[:]
        other.is_scores, other._attention = False, weights.detach()
        return other

    def __repr__(self) -> str:
        """Sizes, dtype and device."""
        H = f", {counted(self.num_heads, 'head')}" if self._several else ""
        C = "callable head" if self.head is not None else counted(self.num_classes, "class")
        return (
            f"AttentionBatch({counted(len(self), 'instance')}, "
            f"{counted(self.num_items, 'item')}{H}, width {self._values.shape[2]}, {C}, "
            f"{self.values.dtype}, {self.device})"
        )

    @property
    def values(self) -> Tensor:
        """What attention averages: [T, D] or [T, H, Dh]."""
        return self._values if self._several else self._values.squeeze(1)

    @property
    def scores(self) -> Tensor | None:
        """Scores [T] or [T, H], None where weights were given."""
        return self._given_attention() if self.is_scores else None

    @property
    def weights(self) -> Tensor | None:
        """Weights as given [T] or [T, H], None where scores were given."""
        return None if self.is_scores else self._given_attention()

    def _given_attention(self) -> Tensor:
        return self._attention if self._several else self._attention.squeeze(1)

    @property
    def head_weight(self) -> Tensor | None:
        """The linear head [C, D] or [C, H, Dh] in the dtype of contributions."""
        if self._head_weight is None or self._several:
            return self._head_weight
        return self._head_weight.squeeze(1)

    @property
    def head_bias(self) -> Tensor | None:
        """The linear head's bias, [C] or [B, C]."""
        return self._head_bias

    @property
    def packed(self) -> tuple[Tensor, Tensor, Tensor, bool]:
        """The items as the engine takes them: the first four fields of `Problem`."""
        return self._values, self.offsets, self._attention, self.is_scores

    @property
    def linear_head(self) -> tuple[Tensor, Tensor]:
        """The linear head as the engine takes it: weight [C, H, D], bias [C] or [B, C]."""
        assert self._head_weight is not None
        assert self._head_bias is not None
        return self._head_weight, self._head_bias

    @property
    def plain(self) -> bool:
        """Whether the engine's tensors are as they lie in the CPU's memory; of a linear head."""
        if self._plain is None:
            self._plain = are_plain((*self.packed[:3], *self.linear_head, self.ids))
        return self._plain

    def call_head(self, pooled: Tensor, instances: Tensor) -> Tensor:
        """Call the callable head on pooled vectors [M, H, D] of instances [M]: logits [M, C]."""
        head: Any = self.head
        given = (pooled if self._several else pooled[:, 0]).to(dtype_of(head))
        rows = (self._rows[instances],) if self._head_takes_rows else ()
        logits: Tensor = head(given, *rows)
        return logits

    @property
    def device(self) -> torch.device:
        """Where all tensors of the batch are."""
        return self._values.device

    @property
    def num_items(self) -> int:
        """T."""
        return self._values.shape[0]

    @property
    def num_heads(self) -> int:
        """H, 1 for values [T, D]."""
        return self._values.shape[1]

    @property
    def num_classes(self) -> int:
        """C of a linear head."""
        if self._head_weight is None:
            raise ValueError(
                "num_classes: given a callable head, needed a linear one: only its logits show C"
            )
        return self._head_weight.shape[0]

    @property
    def lengths(self) -> Tensor:
        """Items of each instance, n_b: [B], int64."""
        return self.offsets.diff()

    @property
    def instance_of_item(self) -> Tensor:
        """The instance that each item belongs to: [T], int64."""
        return torch.repeat_interleave(self.lengths, output_size=self.num_items)

    @property
    def positions(self) -> Tensor:
        """The original column of each item: [T], int64; 0 … n_b - 1 unless it was padded.

        Orders (`rank`, `minimal.order`) count kept items instead: their columns are
        `batch.positions[batch.offsets[batch.instance_of_item] + order]`.
        """
        if self._positions is None:
            items = torch.arange(self.num_items, device=self.device)
            self._positions = items - self.offsets[self.instance_of_item]
        return self._positions

    @property
    def padded_positions(self) -> Tensor | None:
        """`positions` where they have been made, as they are of padded input; else None."""
        return self._positions

    def to_padded(self, per_item: Tensor, fill: float | None = None) -> Tensor:
        """Lay out one number an item in padded form, each in its original column.

        Args:
            per_item: [T], any dtype.
            fill: what stands where no item is; NaN for floats, -1 for integers and False for
                booleans by default.

        Returns:
            [B, N], N the padded width, or the longest instance where the batch never was padded.

        Raises:
            ValueError: where `per_item` is not [T].

        >>> import torch, fastattnerase as fae
        >>> batch = fae.AttentionBatch(
        ...     torch.zeros(3, 4), torch.tensor([0, 2, 3]), scores=torch.zeros(3),
        ...     head_weight=torch.zeros(2, 4),
        ... )
        >>> batch.to_padded(torch.tensor([5, 6, 7])).tolist()
        [[5, 6], [7, -1]]
        """
        if per_item.shape != (self.num_items,):
            raise ValueError(f"per_item: given {shape_of(per_item)}, needed [{self.num_items}]")
        width = self._width
        if width is None:
            width = int(self.positions.max()) + 1 if self.num_items else 0
        if fill is None:
            integer = 0 if per_item.dtype == torch.bool else -1
            fill = float("nan") if per_item.is_floating_point() else integer
        padded = per_item.new_full((len(self), width), fill)
        padded[self.instance_of_item, self.positions] = per_item
        return padded
