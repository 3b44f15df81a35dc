"""What is kept of a bag once its patches are embedded: scores and contributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PooledBag:
    """A bag as the pool sees it: what erasing at the pool needs, and nothing else.

    Axes: `n` patches, `K` attention branches, `C` logits, `V` numbers kept a patch and branch.

    Attributes:
        slide_id: Name of the slide.
        source: The file, for errors.
        scores: [n, K], attention before the softmax, in the model's float type.
        values: [n, K, V], what each branch averages: contributions to the logits, `W_k h`, where
            the head is linear (V = C with shared branches, 1 with a branch a class), else the
            vectors `h` themselves.
        coords: [n, 2], x and y of each patch; None where unknown.
        patch_size: Side of a patch in the unit of the coordinates; None where unknown.
    """

    slide_id: str
    source: str
    scores: Tensor
    values: Tensor
    coords: Tensor | None = None
    patch_size: float | None = None

    def __len__(self) -> int:
        """The number of patches, n."""
        return len(self.scores)

    def take(self, patches: Tensor | Sequence[int]) -> PooledBag:
        """Keep some patches, [m] int64, in this order."""
        index = torch.as_tensor(patches)
        coords = None if self.coords is None else self.coords[index]
        return PooledBag(
            self.slide_id, self.source, self.scores[index], self.values[index], coords,
            self.patch_size,
        )  # fmt: skip
