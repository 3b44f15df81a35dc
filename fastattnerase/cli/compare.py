"""`fastattnerase compare`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fastattnerase.cli.console import Stages, UsageError, counted, out
from fastattnerase.cli.documents import Rationales, documents_of
from fastattnerase.cli.inputs import (
    LOADING,
    OPENING,
    READING,
    Device,
    Jobs,
    Name,
    choose_device,
    print_left_out,
    stem,
)
from fastattnerase.cli.options import command
from fastattnerase.cli.watcher import Watcher
from fastattnerase.studies.compare.options import Options

if TYPE_CHECKING:
    from fastattnerase.data import Dataset
    from fastattnerase.models import LoadedModel


@dataclass(frozen=True)
class Given:
    """What methods are compared on.

    Attributes:
        model: Folder that `train` wrote.
        data: File of which all rows are read; by default the model's own test split is.
        rationales: Column of the words that people marked, with which scores are compared: pairs of
            numbers, the first word, counted from 0, and the one after the last, or a text such as
            3:8;10:14. By default that of the model's data, if any.
        rationales_unit: What those numbers count: `words`, which white space separates, or
            `characters`, from which words are found.
        text_column: Column of the texts; by default as in training.
        label_column: Column of the labels; by default as in training.
        query_column: Column of the second texts of a model that takes two; by default as in
            training.
        unlabelled: Whether the rows of `data` have no labels.
    """

    model: Path
    data: Path | None = None
    rationales: str | None = None
    rationales_unit: Literal["words", "characters"] = "words"
    text_column: str | None = None
    label_column: str | None = None
    query_column: str | None = None
    unlabelled: bool = False

    def __post_init__(self) -> None:
        own = self.text_column or self.label_column or self.query_column or self.unlabelled
        if self.data is None and own:
            raise UsageError(
                "--text-column, --label-column, --query-column, --unlabelled: given without "
                "--data, needed with it"
            )
        if self.rationales is None and self.rationales_unit != "words":
            raise UsageError("--rationales-unit: given without --rationales, needed with it")


@command(
    "fastattnerase compare --model runs/movies --rationales rationales --out runs/compare --jobs 2"
)
def compare(
    given: Given,
    options: Options,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder to write; an interrupted run goes on there.")
    ] = Path("runs/compare"),
    jobs: Jobs = 1,
    device: Device = "auto",
    name: Name = None,
) -> None:
    """Compare attention with saliency methods on a trained model, each judged by the same measures.

    Every method gives each word a score. Words are erased and kept by these, at the input, where
    the rest is encoded again, and at the attention layer; random rankings are the control. Where
    people marked words, scores are compared with them. One page has methods by measures with
    intervals, curves, how far methods agree, and texts. Methods and grids can be added later in the
    same folder; the same command goes on after an interruption.
    """
    where = choose_device(device)
    marks = None
    if given.rationales is not None:
        marks = Rationales(given.rationales, given.rationales_unit)
    loaded, dataset, about = _documents(
        given.model, given.data, given.text_column, given.label_column, given.query_column,
        given.unlabelled, marks, device, Stages(OPENING),
    )  # fmt: skip
    from fastattnerase.attention_tests.instances import evenly
    from fastattnerase.models.errors import ModelError
    from fastattnerase.runs import schedule
    from fastattnerase.runs.rundir import RunError
    from fastattnerase.saliency import find_method
    from fastattnerase.studies.compare.report import build
    from fastattnerase.studies.compare.subject import describe
    from fastattnerase.studies.compare.units import Compare

    rows = evenly(len(dataset), options.instances)
    dataset = replace(dataset, documents=[dataset[row] for row in rows])
    of = describe(given.model, loaded.model, loaded.classes, dataset, about.get("share"))
    try:
        options.check_target(loaded.classes)
        for method in options.methods or ():
            find_method(method)
    except (RunError, ModelError) as error:
        raise UsageError(f"--{str(error).replace('method:', 'methods:', 1)}") from error
    own = loaded.metadata.get("name") or given.model.name
    own = own if given.data is None else f"{own} applied to {stem(given.data)}"
    work = Compare.begin(options, of, dataset, out_folder, where, name or own)
    with Watcher(work.describe) as watcher:
        schedule.run(work, jobs, watcher)
    page, found = build(work.close(), out_folder / "report")
    for one in found:
        out.print(f"{one.question} {one.answer}", soft_wrap=True)
    out.print(str(page.resolve()), style="bold", soft_wrap=True)


def _documents(
    folder: Path,
    data: Path | None,
    text_column: str | None,
    label_column: str | None,
    query_column: str | None,
    unlabelled: bool,
    rationales: Rationales | None,
    device: str,
    stages: Stages,
) -> tuple[LoadedModel, Dataset, dict[str, Any]]:
    """Load a model with the documents to apply it to, and the words in them that people marked.

    Raises:
        UsageError: the documents have no column of that name, or no marked word in it.
    """
    with stages:
        stages(LOADING, 0, 1)
        from fastattnerase.data.errors import DataError
        from fastattnerase.data.queries import LeftOut
        from fastattnerase.models import load_model

        loaded = load_model(folder, device=choose_device(device))
        stages(LOADING, 1, 1)
        of_data = loaded.data_config
        if rationales is None and of_data.spans_column is not None:
            rationales = Rationales(of_data.spans_column, of_data.spans_unit)
        elif (
            rationales is not None and rationales.unit == "words" and of_data.sentences != "spaces"
        ):
            raise UsageError(
                "--rationales: given numbers of words for a model that cuts words by rules, needed "
                "--rationales-unit characters, or a model trained with --sentences spaces"
            )
        try:
            dataset, about = documents_of(
                loaded, folder, data, text_column, label_column, query_column, unlabelled, READING,
                stages, rationales,
            )  # fmt: skip
        except DataError as error:
            if rationales is not None and str(error).startswith("spans_column"):
                raise UsageError(f"--rationales{str(error).removeprefix('spans_column')}") from None
            raise
    dropped = about.get("dropped", LeftOut())
    print_left_out(dropped, dataset.truncated, of_data.max_tokens, dropped.first)
    if rationales is not None:
        if all(document.spans is None for document in dataset):
            raise UsageError(
                f"--rationales: given column {rationales.column!r}, in which no word of "
                f"{counted(len(dataset), 'document')} is marked, needed some marked words"
            )
        if dataset.spans_cut:
            out.print(f"{counted(dataset.spans_cut, 'marked span')} lost words where texts are cut")
        if dataset.spans_unfit:
            out.print(
                f"{counted(dataset.spans_unfit, 'marked span')} without a word or not of whole "
                f"words; the first: {dataset.first_unfit}",
                soft_wrap=True,
            )
    return loaded, dataset, about
