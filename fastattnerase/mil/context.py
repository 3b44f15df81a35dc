"""Models whose patches see one another: erasing at the pool, or dropping before the encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fastattnerase.batch import AttentionBatch
from fastattnerase.mil.bags import Bag
from fastattnerase.mil.heads import Classifier
from fastattnerase.mil.models import Part, PoolModel
from fastattnerase.plurals import counted
from fastattnerase.tensor_checks import check_tensor, shape_of


@dataclass(frozen=True, eq=False)
class DroppedPatches:
    """What a model says as patches are dropped from a slide before its encoder sees them.

    Axes: `P` steps, `C` classes.

    Attributes:
        erased: [P], int64: patches dropped at each step.
        logits: [P, C]: what the model says of the rest.
        label: The decision with nothing dropped, which is followed at every step.
        first_flip: The smallest number of dropped patches of those tried at which the decision,
            the largest logit, is another; -1 for never.
    """

    erased: Tensor
    logits: Tensor
    label: int
    first_flip: int

    @property
    def label_prob(self) -> Tensor:
        """[P]: the original decision's probability at each step."""
        return self.logits.softmax(1)[:, self.label]


class ContextModel:
    """A model whose encoder lets patches see one another, such as TransMIL.

    Two questions that are one for a `PoolModel` differ here, and each has its own function:
    `erase_at_pool` encodes the whole slide once and erases its vectors at the attention pool, so
    that what is left still carries what it saw of the erased patches; `drop_before_encoder` runs
    the model anew on the rest at each step.

    Args:
        forward: features [n, D] to logits [C], [1, C] or one logit.
        encode: features [n, D] to vectors [n, H] of all patches together; needed for
            `erase_at_pool`, with `attention` and `classifier`.
        attention, classifier: as of `PoolModel`.
        binary: as of `PoolModel`.
        name: what errors and reports call it.

    Raises:
        ValueError: some of encode, attention and classifier without the others.

    >>> import torch
    >>> from torch import nn
    >>> from fastattnerase import mil
    >>> def encode(x):
    ...     return x + x.mean(0)
    >>> score, classify = nn.Linear(3, 1), nn.Linear(3, 2)
    >>> def forward(x):
    ...     h = encode(x)
    ...     return classify((score(h).softmax(0) * h).sum(0))
    >>> model = mil.ContextModel(forward, encode=encode, attention=score, classifier=classify)
    >>> bag = mil.Bag.of(torch.randn(6, 3))
    >>> model.erase_at_pool(bag).num_items
    6
    >>> model.drop_before_encoder(bag, torch.arange(6), [0, 2, 4]).logits.shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        forward: nn.Module | Callable[[Tensor], Tensor],
        *,
        encode: Part | None = None,
        attention: Part | None = None,
        classifier: Classifier | None = None,
        binary: bool = True,
        name: str = "model",
    ) -> None:
        parts = (encode, attention, classifier)
        if any(part is None for part in parts) and any(part is not None for part in parts):
            raise ValueError("encode, attention, classifier: given some, needed all three or none")
        self.forward, self.encode, self.binary, self.name = forward, encode, binary, name
        self._pool: PoolModel | None = None
        if attention is not None and classifier is not None:
            self._pool = PoolModel(
                attention=attention, classifier=classifier, binary=binary, name=name
            )
        for part in (forward, encode):
            if isinstance(part, nn.Module):
                part.eval()

    @property
    def assumes(self) -> str:
        """What the two ways of erasing mean."""
        return (
            "Patches see one another in the encoder. Erasing at the pool (erase_at_pool) leaves "
            "vectors that have seen the erased patches; dropping patches before the encoder "
            "(drop_before_encoder) is another question, and takes a forward pass a step."
        )

    def erase_at_pool(self, bag: Bag) -> AttentionBatch:
        """Encode the slide once, and give the attention pool to the engine.

        Raises:
            ValueError: a model whose pool was not named, or parts that give other shapes.
        """
        if self._pool is None or self.encode is None:
            raise ValueError(
                f"erase_at_pool: given {self.name} without the parts of a pool, needed encode, "
                "attention and classifier; drop_before_encoder takes any model"
            )
        with torch.no_grad():
            vectors = self.encode(bag.features())  # [n, H]
        if vectors.ndim != 2 or len(vectors) != bag.n:
            raise ValueError(f"encode: given {shape_of(vectors)}, needed [{bag.n}, H]")
        encoded = Bag.of(vectors, bag.coords, slide_id=bag.slide_id, patch_size=bag.patch_size)
        self._pool.width = None  # of the vectors, whatever the slide before had
        return self._pool.batch(encoded)

    def drop_before_encoder(
        self, bag: Bag, order: Tensor, erased: Sequence[int] | Tensor
    ) -> DroppedPatches:
        """Drop the first patches of an order from the slide, and run the model on the rest.

        Args:
            bag: the slide; all its features are read.
            order: [n], int64, patches, first those dropped first, such as `fae.rank` gives.
            erased: how many are dropped at each step, 0 to n - 1: the model has no answer for none.

        Raises:
            ValueError: an order or numbers that do not fit the slide, or logits of another shape.
        """
        check_tensor("order", order, torch.int64)
        if order.shape != (bag.n,) or not bool((order.sort().values == torch.arange(bag.n)).all()):
            raise ValueError(
                f"order: given {shape_of(order)}, needed each of {counted(bag.n, 'patch')} once"
            )
        counts = torch.as_tensor(erased, dtype=torch.int64)  # [P]
        if counts.ndim != 1 or bool(((counts < 0) | (counts >= bag.n)).any()):
            raise ValueError(f"erased: given {list(counts.shape)}, needed numbers 0 to {bag.n - 1}")
        features = bag.features()
        whole = self._logits(features)
        label = int(whole.argmax())
        logits = torch.stack(
            # In the order of the slide, as it lies: what reads neighbours reads those left.
            [self._logits(features[order[k:].sort().values]) for k in counts.tolist()]
        )  # [P, C]
        flips = counts[logits.argmax(1) != label]
        first = int(flips.min()) if len(flips) else -1
        return DroppedPatches(counts, logits, label, first)

    def _logits(self, features: Tensor) -> Tensor:
        """Run the model on features [m, D]: logits [C]."""
        with torch.no_grad():
            logits = torch.as_tensor(self.forward(features))
        if logits.ndim == 2 and len(logits) == 1:
            logits = logits[0]
        logits = logits.reshape(1) if logits.ndim == 0 else logits
        if logits.ndim != 1 or not len(logits):
            raise ValueError(f"forward: given {shape_of(logits)}, needed logits [C] or [1, C]")
        if len(logits) > 1:
            return logits
        if not self.binary:
            raise ValueError("forward: given one output, needed classes, or binary=True")
        return torch.cat([torch.zeros_like(logits), logits])
