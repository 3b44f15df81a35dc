"""Which methods are compared, on what, and how closely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fastattnerase.fields import one_of, wrong_choices
from fastattnerase.runs.rundir import RunError

KIND = "compare"
WORDS, LAYER = "words", "attention layer"  # what is erased: words of the input, or its items
SENTENCES = "sentences"
RANDOM = "random"  # the mean of the random rankings
# Of the attention layer: their items are what it averages, sentences in a hierarchical model.
OF_THE_LAYER = ("attention", "gradient", "product")
METHODS = (  # in the order of tables
    *("gradient_norm", "gradient_x_input", "integrated_gradients"),
    *("lrp", "occlusion", "omission", *OF_THE_LAYER),
)
GRIDS = ("eraser", "ferret", "every")


@dataclass(frozen=True)
class Options:
    """Which methods are compared, by which measures.

    Attributes:
        methods: Saliency methods, with commas between; by default all that there are.
        grids: Which shares of the words are erased and kept at the input: eraser (1, 5, 10, 20 and
            50 %), ferret (10, 20, … 100 %, only words of positive score) and every (each prefix,
            which areas and the share that flips need, too).
        instances: Largest number of documents, evenly spaced; by default all.
        target: Class that scores explain: decision, each document's own, or the name of a class.
        output: What scores explain: the `logit` of that class, its `probability`, or the `margin`
            of its logit over the next.
        random_rankings: Random rankings that methods are compared with.
        share: How many words a method chooses where people marked some: of `train`, the mean share
            that is marked in the training texts (ERASER's); or each text's `own` number. Without
            marked training texts it is the own number.
        resamples: Resamples of the documents for intervals of 95 %.
        seed: Seed of random rankings and of resamples.
        max_bytes: Memory of a batch of documents and what the model computes of it; by default
            64 MiB, or what the longest document takes where that is more.

    Raises:
        RunError: no method, a grid that is not known, or a number out of range. Whether methods are
            known `fastattnerase.saliency` says.

    Example:
        >>> Options(methods=("attention", "omission")).grids
        ('eraser', 'ferret')
    """

    methods: tuple[str, ...] | None = None
    grids: tuple[str, ...] = ("eraser", "ferret")
    instances: int | None = None
    target: str = "decision"
    output: Literal["logit", "probability", "margin"] = "logit"
    random_rankings: int = 5
    share: Literal["train", "own"] = "train"
    resamples: int = 1000
    seed: int = 0
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, known in (("methods", METHODS), ("grids", GRIDS)):
            given = getattr(self, name)
            if given is None:
                continue
            if not given:
                raise RunError(f"{name}: given none, needed some of {', '.join(known)}")
            order = dict.fromkeys((*(one for one in known if one in given), *given))
            object.__setattr__(self, name, tuple(order))
        if unknown := [grid for grid in self.grids if grid not in GRIDS]:
            raise RunError(f"grids: given {unknown[0]!r}, needed some of {', '.join(GRIDS)}")
        for problem in wrong_choices(self):
            raise RunError(problem)
        for name in ("random_rankings", "resamples", "max_bytes", "instances"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise RunError(f"{name}: given {given}, needed at least 1")
        if not 0 <= self.seed < 2**63:
            raise RunError(f"seed: given {self.seed}, needed 0 to 2**63 - 1")

    def fixed(self) -> dict[str, Any]:
        """Give what must not change in a folder; methods and grids may be added."""
        return {name: getattr(self, name) for name in ("instances", "target", "output", "seed")}

    def check_target(self, classes: list[str]) -> int | None:
        """Give the number of the class that is explained; None for each document's decision.

        Raises:
            RunError: no class has that name.
        """
        if self.target == "decision":
            return None
        if self.target not in classes:
            raise RunError(
                f"target: given {self.target!r}, needed decision or a class, {one_of(classes)}"
            )
        return classes.index(self.target)
