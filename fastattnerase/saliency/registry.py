"""Saliency methods by name: one file each in this folder, and those of a caller."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from torch import nn

from fastattnerase.data.dataset import Dataset
from fastattnerase.models.errors import ModelError
from fastattnerase.saliency.attribution import Family
from fastattnerase.saliency.batches import bytes_of_word
from fastattnerase.saliency.context import MethodContext, Scored

Score = Callable[..., Iterator[Scored]]


@dataclass(frozen=True)
class Method:
    """A method known by name.

    Attributes:
        name: what it is called, in calls and in results.
        family: what its scores say, see `Attribution`.
        doc: its formula, for tables.
        source: the paper.
        score: from `(context, dataset, **options)` to what it says about each document, in order.
            Options are keyword-only arguments with defaults. It leaves the model as it was found
            whenever it yields.
        output: the output that its scores are of, where it is always the same; None where the
            caller chooses.
        items: whether it scores words, or the items of the attention layer: sentences in a
            hierarchical model.
        has_delta: whether it has a sum rule, whose error it reports.
        bytes_of_word: estimates what a word of a pass through a module takes of memory.
    """

    name: str
    family: Family
    doc: str
    source: str
    score: Score
    output: str | None = None
    items: str = "words"
    has_delta: bool = False
    bytes_of_word: Callable[[nn.Module], int] = bytes_of_word

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        parameters = inspect.signature(self.score).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def with_options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Give all options, as given or by default.

        Raises:
            ModelError: an option that the method does not have, or another value than True or False
                of one that is on or off.
        """
        known = self.options
        for name, value in given.items():
            if name not in known:
                has = f"one of {', '.join(known)}" if known else "none"
                raise ModelError(f"options: given {name!r} for {self.name}, needed {has}")
            if isinstance(known[name], bool) and not isinstance(value, bool):
                raise ModelError(f"{name}: given {value!r}, needed True or False")
        return known | given

    def __call__(
        self, context: MethodContext, dataset: Dataset, **options: Any
    ) -> Iterator[Scored]:
        """Score the documents of a data set."""
        if context.bytes_of_word is not self.bytes_of_word:
            context = replace(context, bytes_of_word=self.bytes_of_word)
        return self.score(context, dataset, **self.with_options(options))


_METHODS: dict[str, Method] = {}


def register_method(method: Method, *, overwrite: bool = False) -> None:
    """Make a method known under its name.

    Args:
        method: the method.
        overwrite: whether another of that name is replaced.

    Raises:
        ModelError: another method has the name.

    Example:
        >>> import torch
        >>> from fastattnerase import saliency
        >>> def by_length(context, dataset):
        ...     for document in dataset:
        ...         lengths = [float(len(word)) for word in document.tokens]
        ...         yield saliency.Scored(torch.tensor(lengths), target=0)
        >>> saliency.register_method(
        ...     saliency.Method("by_length", "sensitivity", "letters", "none", by_length),
        ...     overwrite=True,
        ... )
        >>> "by_length" in saliency.methods()
        True
    """
    known = methods_of_files() if method.name not in _METHODS else _METHODS
    if known.get(method.name, method) != method and not overwrite:
        raise ModelError(
            f"method: given {method.name!r}, which is registered already, needed another name, or "
            "overwrite=True"
        )
    _METHODS[method.name] = method


@cache
def _discover() -> None:
    """Register the method of every file in this folder that has one."""
    for module in sorted(m.name for m in iter_modules([str(Path(__file__).parent)])):
        method = getattr(import_module(f"{__package__}.{module}"), "METHOD", None)
        if isinstance(method, Method):
            _METHODS.setdefault(method.name, method)


def methods_of_files() -> dict[str, Method]:
    """Give all methods that are known, by name."""
    _discover()
    return _METHODS


def methods() -> dict[str, Method]:
    """Give all methods that are known, by name: those of the package and those registered.

    Example:
        >>> from fastattnerase import saliency
        >>> saliency.methods()["gradient_norm"].family
        'sensitivity'
    """
    return dict(methods_of_files())


def find_method(name: str) -> Method:
    """Find a method by its name.

    Raises:
        ModelError: there is none of that name; the message has all.
    """
    known = methods_of_files()
    if name not in known:
        raise ModelError(f"method: given {name!r}, needed one of {', '.join(sorted(known))}")
    return known[name]
