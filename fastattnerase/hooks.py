"""`fae.capture`: values, scores and head of one's own torch module, collected while it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastattnerase.batch import AttentionBatch
from fastattnerase.head import Head, is_linear_layer, take_apart
from fastattnerase.ops import erase_prefixes
from fastattnerase.packing import Packed, pack_padded
from fastattnerase.plurals import counted
from fastattnerase.tensor_checks import check_float, check_tensor, offsets_of, shape_of

Where = str | nn.Module
# Where, or that and a function of the output there (or of the inputs and the output).
Source = Where | tuple[Where, Callable[..., Tensor | None]]
# An argument of the model by name, or a function of what the model is called with.
OfInputs = str | Callable[..., Tensor | None]


@contextmanager
def capture(
    model: nn.Module,
    *,
    values: Source,
    scores: Source | None = None,
    weights: Source | None = None,
    head: Where | Head | tuple[Tensor, Tensor],
    mask: OfInputs | None = None,
    lengths: OfInputs | None = None,
    check: bool = True,
) -> Iterator[Capture]:
    """Collect what attention averages, its scores and the head while a module of your own runs.

    Within the `with` block every call `model(…)` adds its instances; `captured.batch()` gives them
    as an `AttentionBatch`, with the logits `W (Σ_i a_i h_i) + b` that the model computes. Forward
    hooks do it, which are removed at the end of the block, whatever happens in it.

    A place is a submodule, by its dotted name or itself; what is taken is its output. A pair of a
    place and a function takes something else: `("lstm", lambda output: output[0])`, or with a
    function of two arguments something of the tuple of its inputs,
    `("score", lambda inputs, output: inputs[0])`. A function that gives None passes over that run
    of the submodule. The model itself is a place, too: its name is "".

    Args:
        model: what is called in the block; nothing of it is changed, its mode neither (call
            `model.eval()` before, as for any use of a trained model).
        values: where `h` is, [B, N, D], or [B, N, H, Dh] with several attention heads, any float
            type; or [n, D] of one instance; or with `lengths` packed [T, D].
        scores: where `e`, before the softmax, is: [B, N], [B, N, 1] or [B, 1, N], or [B, N, H].
        weights: where `a`, after the softmax, is, instead of scores; of the same shapes.
        head: where the module is that maps the pooled vector to logits; or a function, or
            (head_weight, head_bias), as of `AttentionBatch` (of `binary_head`, where the model has
            one logit). A linear layer is taken as its weight and bias.
        mask: true (or 1) where an item is, [B, N]: the name of an argument of `model.forward`, or a
            function that is called with what the model is called with, such as
            `lambda tokens: tokens != 0`. All are items by default.
        lengths: items of each instance, [B], integers; given as `mask` is, instead or too.
        check: whether `batch()` refuses what shows that something was missed: instances that begin
            or end with items of weight 0 where neither mask nor lengths is given, as padding does;
            and, where the head is a submodule, other logits than its own.

    Yields:
        A `Capture`, empty at first.

    Raises:
        ValueError, TypeError: naming the argument and the submodule: one that is not there, did not
            run, or gave something of another shape or type; in `batch()` also where logits differ.

    Source: Serrano and Smith 2019, section 4, for models of one's own.

    >>> import torch, fastattnerase as fae
    >>> from torch import nn
    >>> class Classifier(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embed, self.score = nn.Embedding(50, 8), nn.Linear(8, 1)
    ...         self.classify = nn.Linear(8, 3)
    ...     def forward(self, tokens):  # [B, N], 0 is padding
    ...         h = self.embed(tokens)
    ...         e = self.score(h).squeeze(-1).masked_fill(tokens == 0, -torch.inf)
    ...         return self.classify((e.softmax(1)[..., None] * h).sum(1))
    >>> model = Classifier().eval()
    >>> with fae.capture(
    ...     model, values="embed", scores="score", head="classify", mask=lambda tokens: tokens != 0
    ... ) as captured:
    ...     logits = model(torch.tensor([[4, 9, 2, 7], [5, 3, 0, 0]]))
    >>> captured.batch()
    AttentionBatch(2 instances, 6 items, width 8, 3 classes, torch.float32, cpu)
    """
    if (scores is None) == (weights is None):
        given = "neither" if scores is None else "both"
        raise ValueError(f"scores, weights: given {given}, needed exactly one of them")
    parts = head if isinstance(head, tuple) else ()
    pair = len(parts) == 2 and all(isinstance(part, Tensor) for part in parts)
    if not pair and not isinstance(head, str) and not callable(head):
        raise TypeError(
            f"head: given {type(head).__name__}, needed a submodule, its dotted name, a function "
            "or (head_weight, head_bias)"
        )
    places = [_place(model, "values", values)]
    if scores is not None:
        places.append(_place(model, "scores", scores))
    if weights is not None:
        places.append(_place(model, "weights", weights))
    captured = Capture(model, places, head, mask, lengths, check)
    try:
        captured._attach()
        yield captured
    finally:
        captured._detach()


class _Place(NamedTuple):
    """Where something is taken.

    Attributes:
        argument: Of `capture`.
        name: Of the submodule, as in messages.
        module: The submodule.
        pick: From the inputs and the output of a run to what is taken, None to pass over it.
    """

    argument: str
    name: str
    module: nn.Module
    pick: Callable[[tuple[Any, ...], Any], Any]


class Capture:
    """What a module's calls within a `capture` block add up to.

    `len()` is the number of instances so far; `batch()` gives them, `clear()` forgets them, so that
    a large data set can be gone through in pieces.
    """

    def __init__(
        self,
        model: nn.Module,
        places: list[_Place],
        head: Where | Head | tuple[Tensor, Tensor],
        mask: OfInputs | None,
        lengths: OfInputs | None,
        check: bool,
    ) -> None:
        self._model, self._places, self._attention = model, places, places[1].argument
        self._given = {"mask": mask, "lengths": lengths}
        self._head: Any = head
        self._watched = isinstance(head, (str, nn.Module))
        if isinstance(head, (str, nn.Module)):
            place = _place(model, "head", head)
            self._head = place.module
            self._places = [*places, place]
        # Asked before there is a hook of our own.
        self._linear = is_linear_layer(self._head)
        self._check = check
        self._hooks: list[Any] = []
        self._run: dict[str, Tensor] | None = None  # of the call of the model in progress
        self._calls = 0
        self._packed: list[Packed] = []
        self._logits: list[Tensor] = []  # [B, C] of each call

    def __len__(self) -> int:
        """The number of instances so far."""
        return sum(len(packed.offsets) - 1 for packed in self._packed)

    def __repr__(self) -> str:
        """Counts."""
        items = sum(len(packed.values) for packed in self._packed)
        return (
            f"Capture({counted(len(self._packed), 'call')}, {counted(len(self), 'instance')}, "
            f"{counted(items, 'item')})"
        )

    def clear(self) -> None:
        """Forget what has been collected."""
        self._packed.clear()
        self._logits.clear()

    def batch(self, *, ids: Tensor | None = None) -> AttentionBatch:
        """Give what has been collected, within the block or after it.

        Args:
            ids: what random orders depend on, [B], int64, as of `AttentionBatch`; 0 … B - 1 by
                default.

        Returns:
            An `AttentionBatch` of the instances of all calls, in their order.

        Raises:
            ValueError: where the model was not called, padding was taken for items, or the model's
                logits differ from those of what was collected.
        """
        if not self._packed:
            name = type(self._model).__name__
            raise ValueError(
                f"model: given {name}, which was not called in the block, needed at least one call "
                "of the module itself, model(…), not model.forward(…)"
            )
        packed = _join(self._packed)
        head, weight, bias = self._head, None, None
        if isinstance(head, tuple):
            (weight, bias), head = head, None
        elif self._linear:
            head, weight, bias = take_apart(head, packed.values)
        batch = AttentionBatch.from_packed(
            packed, head_weight=weight, head_bias=bias, head=head, ids=ids
        )
        if self._check and self._given == {"mask": None, "lengths": None}:
            _require_no_padding(batch)
        if self._check and self._watched:
            _compare(batch, torch.cat(self._logits))
        return batch

    def _attach(self) -> None:
        """Hook all places, then the end of the model's call: a place may be the model itself."""
        apart: Any = torch.compiler.disable  # a compiled model runs hooks as they are
        self._hooks.append(self._model.register_forward_pre_hook(apart(self._begin)))
        for place in self._places:
            note = apart(partial(self._note, place))
            self._hooks.append(place.module.register_forward_hook(note, with_kwargs=True))
        self._hooks.append(self._model.register_forward_hook(apart(self._end), with_kwargs=True))

    def _detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._run = None

    def _begin(self, module: nn.Module, args: Any) -> None:
        self._run = {}

    def _note(self, place: _Place, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Take what a submodule gave; runs outside of a call of the model are none of ours."""
        if self._run is None:
            return
        given = place.pick((*args, *kwargs.values()), output)
        if given is None:
            return
        where = f"from {place.name} in call {self._calls} of the model"
        if place.argument in self._run:
            raise ValueError(
                f"{place.argument}: given a second time {where}, needed once; a function gives "
                f"None to pass over a run: {place.argument}=(…, lambda output: …)"
            )
        if not isinstance(given, Tensor):
            size = f" of {len(given)}" if isinstance(given, (tuple, list, dict)) else ""
            raise TypeError(
                f"{place.argument}: given a {type(given).__name__}{size} {where}, needed a tensor: "
                f"{place.argument}=(…, lambda output: output[…])"
            )
        # What comes after may write into it, as masked_fill_ does.
        self._run[place.argument] = given.detach().clone()

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Add the instances of a call of the model."""
        run, self._run = self._run, None
        if run is None:
            return
        for place in self._places:
            if place.argument not in run:
                raise ValueError(
                    f"{place.argument}: given {place.name}, which did not run in call "
                    f"{self._calls} of the model, needed a submodule that is called"
                )
        given = {
            name: self._of_inputs(name, of, args, kwargs)
            for name, of in self._given.items()
            if of is not None
        }
        packed = self._pack(run, given.get("mask"), given.get("lengths"))
        if self._watched:
            B, logits = len(packed.offsets) - 1, run["head"]
            if logits.shape[: logits.ndim - 1] not in ((B,), () if B == 1 else (B,)):
                raise ValueError(
                    f"head: given {shape_of(logits)} from {self._places[-1].name} in call "
                    f"{self._calls} of the model, needed logits [{B}, C]"
                )
            self._logits.append(logits.reshape(B, -1))
        self._packed.append(packed)
        self._calls += 1

    def _of_inputs(self, name: str, of: OfInputs, args: Any, kwargs: Any) -> Tensor | None:
        """Find the mask or the lengths in what the model was called with."""
        if not isinstance(of, str):
            return of(*args, **kwargs)
        forward: Any = getattr(self._model, "_orig_mod", self._model).forward  # not torch.compile's
        bound = inspect.signature(forward).bind(*args, **kwargs)
        bound.apply_defaults()
        if of not in bound.arguments:
            raise ValueError(
                f"{name}: given {of!r}, needed an argument of {type(self._model).__name__}, "
                f"{', '.join(bound.arguments)}, or a function of them"
            )
        found: Tensor | None = bound.arguments[of]
        return found

    def _pack(self, run: dict[str, Tensor], mask: Tensor | None, lengths: Tensor | None) -> Packed:
        """Pack the instances of one call of the model."""
        values, attention = run["values"], run[self._attention]
        names = [place.name for place in self._places]
        check_float("values", values)
        check_float(self._attention, attention)
        if values.ndim not in (2, 3, 4):
            raise ValueError(
                f"values: given {shape_of(values)} from {names[0]}, needed [B, N, D], "
                "[B, N, H, Dh] or [n, D]"
            )
        rows = values.shape[:-1]
        if attention.shape == (*rows, 1):
            attention = attention.squeeze(-1)
        elif len(rows) == 2 and attention.shape == (rows[0], 1, rows[1]):
            attention = attention.squeeze(1)
        if attention.shape != rows:
            raise ValueError(
                f"{self._attention}: given {shape_of(attention)} from {names[1]}, needed "
                f"{shape_of(values[..., 0])}, as values {shape_of(values)} from {names[0]}"
            )
        if values.ndim == 2 and lengths is not None:
            return _packed_with(self._attention, values, attention, lengths)
        if values.ndim == 2:
            values, attention = values[None], attention[None]
            mask = mask[None] if mask is not None and mask.ndim == 1 else mask
        scores, weights = _either(self._attention, attention)
        return pack_padded(values, scores, weights, lengths, mask)


def _place(model: nn.Module, argument: str, source: Any) -> _Place:
    """Find a submodule, and what is taken there."""
    pick: Any = None
    where = source
    if isinstance(source, tuple) and len(source) == 2 and callable(source[1]):
        where, pick = source
    if isinstance(where, str):
        names = [name for name, _ in model.named_modules() if name]
        if where and where not in names:
            known = get_close_matches(where, names, n=5, cutoff=0.4) or names[:5]
            raise ValueError(
                f"{argument}: given {where!r}, needed a submodule of {type(model).__name__}, such "
                f"as {', '.join(map(repr, known))}"
            )
        where = model.get_submodule(where)
    if not isinstance(where, nn.Module):
        raise TypeError(
            f"{argument}: given {type(source).__name__}, needed a submodule, its dotted name, or a "
            "pair of one and a function of its output"
        )
    name = next((name for name, module in model.named_modules() if module is where), None)
    if name is None:
        way = ", or a function, head=lambda pooled: …" if argument == "head" else ""
        raise ValueError(
            f"{argument}: given {type(where).__name__}, needed a submodule of "
            f"{type(model).__name__}, which that is not{way}"
        )
    return _Place(argument, repr(name) if name else "the model", where, _picking(pick))


def _picking(pick: Any) -> Callable[[tuple[Any, ...], Any], Any]:
    """Call what picks with the output alone, or with the inputs as well where it takes both."""
    if pick is None:
        return lambda inputs, output: output
    try:
        inspect.signature(pick).bind(None)
    except TypeError:
        chosen: Callable[[tuple[Any, ...], Any], Any] = pick
        return chosen
    return lambda inputs, output: pick(output)


def _packed_with(name: str, values: Tensor, attention: Tensor, lengths: Tensor) -> Packed:
    """Pack what is packed already, of instances of these lengths."""
    check_tensor("lengths", lengths)
    total = int(lengths.sum())
    if lengths.ndim != 1 or total != len(values) or bool((lengths < 0).any()):
        raise ValueError(
            f"lengths: given {shape_of(lengths)} that sum to {total}, needed [B] that sum to the "
            f"{counted(len(values), 'row')} of values"
        )
    offsets = offsets_of(lengths.to(values.device))
    instance = torch.repeat_interleave(offsets.diff())  # [T]
    positions = torch.arange(total, device=values.device) - offsets[instance]  # [T]
    scores, weights = _either(name, attention)
    width = int(lengths.max()) if len(lengths) else 0
    return Packed(values, offsets, scores, weights, positions, width)


def _either(name: str, attention: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Give scores and weights, of which one is there."""
    return (attention, None) if name == "scores" else (None, attention)


def _join(parts: list[Packed]) -> Packed:
    """Put the instances of several calls one after the other."""

    def joined(name: str) -> Tensor | None:
        found = [getattr(part, name) for part in parts]
        return None if found[0] is None else torch.cat(found)

    lengths = torch.cat([part.offsets.diff() for part in parts])
    return Packed(
        torch.cat([part.values for part in parts]),
        offsets_of(lengths),
        joined("scores"),
        joined("weights"),
        joined("positions"),
        max(part.width or 0 for part in parts),
    )


def _require_no_padding(batch: AttentionBatch) -> None:
    """Refuse instances that begin or end with items of no weight: logits do not tell of them."""
    attention, nothing = (
        (batch.scores, -torch.inf) if batch.weights is None else (batch.weights, 0.0)
    )
    assert attention is not None
    dead = (attention == nothing).reshape(len(attention), -1).all(1)  # [T]
    begins, ends = batch.offsets[:-1], batch.offsets[1:]
    some = ends > begins  # [B]
    padded = int((dead[begins[some]] | dead[ends[some] - 1]).sum())
    if padded:
        raise ValueError(
            f"mask: given neither mask nor lengths, needed one of them, where {padded} of "
            f"{counted(len(batch), 'instance')} begin or end with items of weight 0, as padding "
            "does; check=False takes them as items"
        )


def _compare(batch: AttentionBatch, given: Tensor) -> None:
    """Refuse a batch whose logits are not those [B, C] that the model computed."""
    own = erase_prefixes(batch, (), logits=True, validate=True).logits
    assert own is not None
    if own.shape != given.shape:
        raise ValueError(
            f"head: given logits {shape_of(given)}, needed {shape_of(own)} as of what was captured"
        )
    attention = batch.scores if batch.weights is None else batch.weights
    assert attention is not None
    # Wide enough for sums in TF32 and in half precision; what is missed shows in more.
    types = (batch.values.dtype, attention.dtype, given.dtype)
    tolerance = max(2e-3, *(16 * torch.finfo(dtype).eps for dtype in types))
    known = (batch.lengths > 0) & own.isfinite().all(1)  # [B]
    own, given = own.double(), given.double()
    limit = tolerance * max(1e-2, float(own[known].abs().max()) if bool(known.any()) else 0.0)
    difference = (own - given).abs().amax(1).nan_to_num(torch.inf).masked_fill(~known, 0)  # [B]
    if bool((difference > limit).any()):
        b = int(difference.argmax())
        raise ValueError(
            f"head: given logits of instance {b} that differ by {float(difference[b]):.3g} from "
            "those of what was captured, needed the same. Missing may be mask= or lengths=, "
            "model.eval() where there is dropout, the values that attention averages, or what the "
            "model does between the average and the head, which a function can do, too: "
            "head=lambda pooled: …; check=False takes what was captured as it is"
        )
