"""A trained attention pool in parts: embed each patch, score it, average, classify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fastattnerase.batch import AttentionBatch
from fastattnerase.mil.bags import BLOCK, Bag, check_width
from fastattnerase.mil.errors import BagError
from fastattnerase.mil.heads import Classifier, linear_part
from fastattnerase.mil.pooled import PooledBag
from fastattnerase.tensor_checks import shape_of

Part = nn.Module | Callable[[Tensor], Tensor]
_APART = 1e-3  # relative: a vector that moves by more reads other patches


class PoolModel:
    """A trained attention pool with its classifier, from its parts.

    `h_i = embed(x_i)`, `e_i = attention(h_i)`, `logits = classifier(Σ_i softmax(e)_i h_i)`. What is
    kept of a patch is its score and what it adds to the logits, `W h_i`. Erasing patches at the
    pool is then dropping them from the slide, for no vector depends on another patch; that this is
    so is tried with the first bag, and refused where it is not (`ContextModel`).

    Args:
        embed: patches [m, D] to vectors [m, H]: a module or function; None: patches are vectors.
        attention: vectors [m, H] to scores before the softmax: [m], [m, 1], or [m, K] of K
            branches.
        classifier: of the pooled vector: a linear layer [C, H] (also at the end of an
            `nn.Sequential` with dropout before or a sigmoid or softmax behind it); [C, K H] reads K
            branches side by side; a list of C layers with one output each is CLAM's multi branch,
            class c's logit of branch c alone. Any other module or function of [M, H] is called as
            it stands, and then vectors are kept instead of contributions, and there is no exact
            smallest set.
        additive: whether the classifier reads each patch, and attention averages what it says,
            `logits = Σ_i softmax(e)_i classifier(h_i)`; it may then be any module. (A classifier of
            `softmax(e)_i h_i`, as in Javed et al. 2022, is the same where it is linear and has no
            bias; another one is no function of such a mean, and none of these models.)
        binary: whether one logit `z` stands for two classes with logits [0, z]; False leaves one
            output, for risks and scores (`fae.cross_threshold`).
        width: D, where it is known.
        name: what errors and reports call it.

    Raises:
        ValueError, TypeError: naming the argument, what was given and what is needed.

    Source: Ilse et al. 2018, "Attention-based Deep Multiple Instance Learning"; Lu et al. 2021,
    "Data-efficient and weakly supervised computational pathology on whole-slide images"; Javed et
    al. 2022, "Additive MIL".

    >>> import torch
    >>> from torch import nn
    >>> import fastattnerase as fae
    >>> from fastattnerase import mil
    >>> model = mil.PoolModel(
    ...     embed=nn.Linear(3, 4), attention=nn.Sequential(nn.Linear(4, 2), nn.Tanh(),
    ...     nn.Linear(2, 1)), classifier=nn.Linear(4, 2),
    ... )
    >>> batch = model.batch(mil.Bag.of(torch.randn(50, 3)))
    >>> fae.sweep(batch, ["attention"]).minimal.size.shape
    torch.Size([1])
    """

    def __init__(
        self,
        *,
        embed: Part | None = None,
        attention: Part,
        classifier: Classifier,
        additive: bool = False,
        binary: bool = True,
        width: int | None = None,
        name: str = "model",
    ) -> None:
        for what, part in (("attention", attention), ("classifier", classifier)):
            listed = isinstance(part, (list, tuple, nn.ModuleList)) and what == "classifier"
            if not callable(part) and not listed:
                raise TypeError(f"{what}: given {type(part).__name__}, needed a module or function")
        self.embed, self.attention, self.classifier = embed, attention, classifier
        self.additive, self.binary, self.width, self.name = additive, binary, width, name
        self._tried = False
        self._linear = None if additive else linear_part(classifier, None)
        for module in self._modules():
            module.eval()
            for parameter in module.parameters():
                if parameter.device.type != "cpu":
                    raise ValueError(
                        f"{name}: given parameters on {parameter.device}, needed on cpu: .cpu()"
                    )

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        *,
        embed: str | Part | None = None,
        attention: str | Part,
        classifier: str | Classifier,
        additive: bool = False,
        binary: bool = True,
        width: int | None = None,
    ) -> PoolModel:
        """Take the parts of a module of one's own by their names.

        Args:
            module: the trained model.
            embed, attention, classifier: names of submodules as `module.get_submodule` takes them,
                or modules or functions.
            additive, binary, width: as of the constructor.

        Raises:
            ValueError: a name that the module lacks, with those that it has.

        >>> from torch import nn
        >>> from fastattnerase import mil
        >>> module = nn.ModuleDict({"a": nn.Linear(4, 1), "head": nn.Linear(4, 2)})
        >>> mil.PoolModel.from_module(module, attention="a", classifier="head").classes
        2
        """

        def part(what: str, given: Any) -> Any:
            if not isinstance(given, str):
                return given
            try:
                return module.get_submodule(given)
            except AttributeError:
                there = ", ".join(name for name, _ in module.named_children())
                raise ValueError(
                    f"{what}: given {given!r}, needed a submodule of {type(module).__name__}: "
                    f"{there}"
                ) from None

        return cls(
            embed=part("embed", embed), attention=part("attention", attention),
            classifier=part("classifier", classifier), additive=additive, binary=binary,
            width=width, name=type(module).__name__,
        )  # fmt: skip

    @property
    def assumes(self) -> str:
        """What has to be true for erasing at the pool to be what it says."""
        said = "Patches are embedded each by itself; attention is a softmax over the slide's scores"
        if self.additive:
            said += "; it averages what the classifier says of each patch"
        elif self._linear is None:
            said += "; the classifier is a function of the pooled vector, not linear"
        elif self._linear.a_branch_a_class:
            said += "; each class reads an attention branch of its own"
        else:
            said += "; the classifier is linear in the pooled vector"
        return said + ". Erasing patches at the pool is then dropping them from the slide."

    @property
    def classes(self) -> int | None:
        """How many classes decisions have, 1 of a single output; None where only a bag shows it."""
        if self._linear is None:
            return None
        C = len(self._linear.bias)
        return 2 if C == 1 and self.binary else C

    def pool(self, bag: Bag, *, rows: int = BLOCK) -> PooledBag:
        """Embed a bag in blocks, and keep each patch's scores and contributions.

        Args:
            bag: the patches.
            rows: patches at a time: what memory is used beside what is kept.

        Raises:
            BagError: patches of another D, numbers that are not finite, naming the file.
            ValueError: a part that gives another shape, or an embedding that reads other patches.
        """
        if self.width is None:
            self.width = bag.width
        check_width(bag, self.width, f"as {self.name} reads")
        scores, values = [], []
        with torch.no_grad():
            for block in bag.blocks(rows):
                x = block.to(self._dtype(block), copy=False)  # [m, D]
                if not self._tried:
                    self._try(x)
                h = self._vectors(x)  # [m, H]
                e = self._scores(h)  # [m, K]
                scores.append(e)
                values.append(self._values(h, e.shape[1]))  # [m, K, V]
        kept, held = torch.cat(scores), torch.cat(values)
        if not bool(kept.isfinite().all() and held.isfinite().all()):
            raise BagError(
                f"{bag.source}: given features that {self.name} turns into numbers that are not "
                "finite, needed others or a model in float32"
            )
        return PooledBag(bag.slide_id, bag.source, kept, held, bag.coords, bag.patch_size)

    def batch(
        self, bags: Bag | PooledBag | Sequence[Bag | PooledBag], *, rows: int = BLOCK
    ) -> AttentionBatch:
        """Make the engine's batch of one bag or several, an instance each.

        Args:
            bags: bags, or what `pool` made of them.
            rows: patches embedded at a time.

        Returns:
            An `AttentionBatch` whose values are contributions [T, C] ([T, K, V] with K attention
            branches), with the head that adds them up.

        Raises:
            BagError, ValueError: as of `pool`.
        """
        given = [bags] if isinstance(bags, (Bag, PooledBag)) else list(bags)
        pooled = [self.pool(bag, rows=rows) if isinstance(bag, Bag) else bag for bag in given]
        if not pooled:
            raise ValueError("bags: given none, needed one or more")
        K = pooled[0].scores.shape[1]
        several = K > 1
        head: dict[str, Any] = {}
        if self.additive:
            C = pooled[0].values.shape[2]
            like = pooled[0].values.new_zeros(C)
            weight = torch.eye(C, dtype=like.dtype).unsqueeze(1)  # [C, 1, C]
            if C == 1 and self.binary:
                weight, like = torch.cat([weight * 0, weight]), torch.cat([like, like])
            head = {"head_weight": weight.squeeze(1), "head_bias": like}
        elif self._linear is None:
            head = {"head": self._called_head()}
        else:
            weight, bias = self._linear.head(self.binary)  # [C, K, V], [C]
            head = {"head_weight": weight if several else weight.squeeze(1), "head_bias": bias}
        return AttentionBatch.from_list(
            [bag.values if several else bag.values[:, 0] for bag in pooled],
            scores=[bag.scores if several else bag.scores[:, 0] for bag in pooled],
            **head,
        )

    def logits(self, features: Tensor) -> Tensor:
        """Run the model on patches [m, D] as it was trained to: logits [C].

        What erasing gives by dropping patches from the slide, a forward pass a step.
        """
        with torch.no_grad():
            h = self._vectors(features.to(self._dtype(features)))  # [m, H]
            a = self._scores(h).softmax(0)  # [m, K]
            if self.additive:
                found = (a * self._call(h)).sum(0)  # [C]
            elif self._linear is None:
                found = self._call(a.T @ h)[0]
            else:
                weight = self._linear.weight.to(h.dtype)  # [C, K, H]
                found = torch.einsum("ckh,kh->c", weight, a.T @ h) + self._linear.bias
        if self.binary and len(found) == 1:
            return torch.cat([torch.zeros_like(found), found])
        return found

    def _modules(self) -> list[nn.Module]:
        parts = [self.embed, self.attention, self.classifier]
        if isinstance(self.classifier, (list, tuple)):
            parts = [*parts[:2], *self.classifier]
        return [part for part in parts if isinstance(part, nn.Module)]

    def _dtype(self, given: Tensor) -> torch.dtype:
        """The float type of the parts; of functions that of the features."""
        parameters = (p for module in self._modules() for p in module.parameters())
        return next((p.dtype for p in parameters if p.is_floating_point()), given.dtype)

    def _vectors(self, x: Tensor) -> Tensor:
        """Embed patches [m, D] to [m, H]."""
        h = x if self.embed is None else self.embed(x)
        if h.ndim != 2 or len(h) != len(x):
            raise ValueError(f"embed: given {shape_of(h)}, needed [{len(x)}, H]")
        return h

    def _scores(self, h: Tensor) -> Tensor:
        """Score vectors [m, H]: [m, K]."""
        e: Tensor = self.attention(h)
        e = e.unsqueeze(1) if e.ndim == 1 else e
        if e.ndim != 2 or len(e) != len(h):
            raise ValueError(
                f"attention: given {shape_of(e)}, needed scores before the softmax, [{len(h)}] or "
                f"[{len(h)}, K]"
            )
        K = e.shape[1]
        if self._linear is not None and self._linear.weight.shape[1] != K:
            self._linear = linear_part(self.classifier, K)
        if K > 1 and self._linear is None:
            raise ValueError(
                f"classifier: given another function with {K} attention branches, needed a linear "
                "layer or one branch"
            )
        return e

    def _values(self, h: Tensor, K: int) -> Tensor:
        """What is kept of vectors [m, H]: [m, K, V]."""
        if self.additive:
            return self._call(h).unsqueeze(1)
        if self._linear is None:
            return h.unsqueeze(1)
        return self._linear.contributions(h)

    def _call(self, vectors: Tensor) -> Tensor:
        """Call the classifier on [M, H]: [M, C]."""
        function: Any = self.classifier
        logits: Tensor = function(vectors)
        logits = logits.unsqueeze(1) if logits.ndim == 1 else logits
        if logits.ndim != 2 or len(logits) != len(vectors):
            raise ValueError(f"classifier: given {shape_of(logits)}, needed [{len(vectors)}, C]")
        return logits

    def _called_head(self) -> Callable[[Tensor], Tensor]:
        """Give the classifier as the engine's head, of one logit as two classes."""

        def head(pooled: Tensor) -> Tensor:
            logits = self._call(pooled.to(self._dtype(pooled)))
            if logits.shape[1] > 1 or not self.binary:
                return logits
            return torch.cat([torch.zeros_like(logits), logits], 1)

        return head

    def _try(self, x: Tensor) -> None:
        """Refuse an embedding or attention whose numbers for a patch depend on other patches."""
        self._tried = True
        if len(x) < 2:
            self._tried = False
            return
        few = x[:8]
        for name, part in (("embed", self._vectors), ("attention", self._both)):
            together, alone = part(few), torch.cat([part(row[None]) for row in few])
            scale = float(together.abs().max()) or 1.0
            if together.shape != alone.shape or float((together - alone).abs().max()) > (
                _APART * scale
            ):
                raise ValueError(
                    f"{name}: given a function whose numbers for a patch depend on other patches, "
                    "needed one of each patch alone; mil.ContextModel takes such models"
                )

    def _both(self, x: Tensor) -> Tensor:
        return self._scores(self._vectors(x))
