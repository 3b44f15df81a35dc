"""Slides as bags of patches, for `fastattnerase erase --bags` and the page on them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from fastattnerase.cli.console import Stages, UsageError, counted, out
from fastattnerase.cli.inputs import LOADING, Input, choose_backend, find_rankings, print_next
from fastattnerase.fields import wrong_choices
from fastattnerase.mil.options import COSTS, Options

if TYPE_CHECKING:
    from fastattnerase.mil.run import MilResult
    from fastattnerase.studies.serrano_smith.config import Config
else:  # imported where they are used; hints that are read at run time say Any
    Config = MilResult = Any


@dataclass(frozen=True)
class BagInput:
    """Slides, which a pool of attention-based multiple-instance learning is applied to.

    Attributes:
        bags: Instead of texts, a folder with a file of patch features a slide (.h5 as CLAM and
            TRIDENT write it, .pt, .npy or .safetensors); --model is then a file of trained weights.
        labels: CSV with a row a slide: the column slide_id, and `labels_column`; slides without a
            row are left out.
        labels_column: Column of `labels` that has the labels.
        class_names: Labels in the order of the model's outputs, with commas between; by default
            numbers stand for themselves, and names are sorted.
        split: The slides of which split, such as test; by default all.
        splits: CSV with the splits: the columns train, val and test as CLAM writes them, or
            slide_id and split; by default the column split of `labels`.
        coords: Folder with a file of coordinates a slide, where those of features have none.
        layout: Layout of the weights: AttentionDeepMIL, CLAM or torchmil; by default it is told by
            their names.
        activation: Activation of the attention, which weights do not say: tanh, relu or gelu.
        skip_damaged: Whether slides that cannot be read are counted and left out; without it the
            first of them ends the command.
    """

    bags: Path | None = None
    labels: Path | None = None
    labels_column: str = "label"
    class_names: tuple[str, ...] = ()
    split: str | None = None
    splits: Path | None = None
    coords: Path | None = None
    layout: Literal["AttentionDeepMIL", "CLAM", "torchmil"] | None = None
    activation: Literal["tanh", "relu", "gelu"] = "tanh"
    skip_damaged: bool = False

    def __post_init__(self) -> None:
        given = [own.name for own in fields(self) if getattr(self, own.name) != own.default]
        if self.bags is None and given:
            raise UsageError(
                f"--{given[0].replace('_', '-')}: given without --bags, needed with it"
            )
        for problem in wrong_choices(self):
            raise ValueError(problem)
        if self.bags is not None and self.labels is None:
            raise UsageError("--labels: given none with --bags, needed a CSV of slides")


def erase_bags(
    given: Input,
    bags: BagInput,
    config: Config,
    device: str,
    name: str | None,
    out_folder: Path | None,
) -> None:
    """Flip the patches of slides, write a run directory, and print what was found."""
    assert bags.bags is not None
    assert bags.labels is not None
    if given.model is None or given.data is not None:
        wrong = "--tensors" if given.model is None else "--data"
        raise UsageError(f"{wrong}: given with --bags, needed --model with a file of weights")
    if not given.model.is_file():
        raise UsageError(
            f"--model: given {given.model}, which is no file, needed a file of weights with --bags"
        )
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"--device: given {device} with --bags, needed cpu, where slides are erased"
        )
    if config.items:
        raise UsageError("--items: given with --bags, whose runs have a row a patch anyway")
    stages = Stages({LOADING: 1.0} | COSTS)
    with stages:
        stages(LOADING, 0, 1)
        choose_backend(config.backend)
        find_rankings(config.rankings)
        from fastattnerase.mil import find_bags, read_labels, read_model
        from fastattnerase.mil.run import erase_slides

        model = read_model(given.model, layout=bags.layout, activation=bags.activation)
        paths = find_bags(bags.bags)
        labels = read_labels(
            bags.labels, label_column=bags.labels_column, split=bags.split, splits=bags.splits,
            classes=bags.class_names,
        )  # fmt: skip
        stages(LOADING, 1, 1)
        options = Options(
            rankings=config.rankings, random_orders=config.random_orders, seed=config.seed,
            backend=config.backend, resamples=config.resamples, skip_damaged=bags.skip_damaged,
        )  # fmt: skip
        result = erase_slides(
            model, paths, labels, options,
            out_folder or Path("runs") / f"{given.model.stem}-{bags.bags.resolve().name}",
            name=name or f"{given.model.stem} on {bags.bags.resolve().name}",
            digest=_digest(given.model, bags), coords=bags.coords, report=stages,
        )  # fmt: skip
    print_slides(result)
    print_next("report", result.folder)


def _digest(model: Path, bags: BagInput) -> str:
    """Tell models apart: by their weights and how these are read."""
    found = blake2b(model.read_bytes(), digest_size=16)
    found.update(repr((bags.layout, bags.activation)).encode())
    return found.hexdigest()


def print_slides(result: MilResult) -> None:
    """Print what a run over slides found."""
    from fastattnerase.mil.words import findings, percent

    summary = result.summary
    if count := result.about["without_label"]:
        out.print(f"{counted(count, 'file')} left out: without a label", soft_wrap=True)
    table = Table(title=result.name, title_justify="left", box=None, padding=(0, 2, 0, 0))
    titles = ("ranking", "flip", "median erased", "over set", "AOPC", "AOPC-R", "gain")
    for title in titles:
        table.add_column(title, justify="left" if title == "ranking" else "right")
    for ranking, found in summary["rankings"].items():
        measures = ("aopc", "aopc_over_random", "symmetric_relevance_gain")
        table.add_row(
            ranking,
            percent(found["flipped"]),
            percent(found["fraction"]),
            "–" if found["over_set"] is None else f"{found['over_set']:.1f}",
            *(_number(found[measure]) for measure in measures),
        )
    out.print(table)
    for told in findings(result):
        out.print(told, soft_wrap=True)


def _number(estimate: dict[str, Any]) -> str:
    return "–" if estimate["value"] is None else f"{estimate['value']:.3f}"
