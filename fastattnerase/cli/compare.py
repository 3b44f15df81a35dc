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
)
from fastattnerase.cli.options import command
from fastattnerase.cli.transformers import choices_of, open_transformer, require_transformer_alone
from fastattnerase.cli.watcher import Watcher
from fastattnerase.data.naming import split_name
from fastattnerase.studies.compare.options import Options

if TYPE_CHECKING:
    from fastattnerase.data import Dataset
    from fastattnerase.huggingface import LoadedTransformer
    from fastattnerase.models import LoadedModel
else:  # imported where they are used; hints that are read at run time say Any
    Dataset = LoadedModel = LoadedTransformer = Any


@dataclass(frozen=True)
class Given:
    """What methods are compared on.

    Attributes:
        model: Folder that `train` wrote; or `transformer`.
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
        transformer: Instead of a model, folder of a fine-tuned BERT, RoBERTa or DistilBERT
            classifier with its tokenizer.
        unit: What an item of a transformer is: `words` of the data, or single `pieces`.
        pool: A word's score from those of its pieces: their `sum`, the `largest`, or that of the
            `first`.
        erasure: What erasing a word of a transformer's input does: its pieces are left out
            (`remove`), or each becomes the `mask` token.
        max_pieces: Pieces of a text that a transformer reads, special tokens included, at most; by
            default as in training, or as many as it takes.
        classes: Names of the outputs of `transformer`, with commas between; by default as its
            folder says.
    """

    model: Path | None = None
    data: Path | None = None
    rationales: str | None = None
    rationales_unit: Literal["words", "characters"] = "words"
    text_column: str | None = None
    label_column: str | None = None
    query_column: str | None = None
    unlabelled: bool = False
    transformer: Path | None = None
    unit: Literal["words", "pieces"] = "words"
    pool: Literal["sum", "largest", "first"] = "sum"
    erasure: Literal["remove", "mask"] = "remove"
    max_pieces: int | None = None
    classes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The model's."""
        folder = self.model or self.transformer
        assert folder is not None  # one of both is given
        return folder

    @property
    def choices(self) -> dict[str, Any]:
        """What an item of a transformer is."""
        return choices_of(
            self.unit, pool=self.pool, erasure=self.erasure, max_pieces=self.max_pieces
        )

    def __post_init__(self) -> None:
        if self.transformer is not None:
            require_transformer_alone(self)
        elif self.model is None:
            raise UsageError("--model, --transformer: given neither, needed one of them")
        elif self.choices != choices_of() or self.classes:
            raise UsageError(
                "--unit, --pool, --erasure, --max-pieces, --classes: given without --transformer, "
                "needed with it"
            )
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
    loaded, dataset, about = _documents(given, marks, device, Stages(OPENING))
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
    of = describe(given.folder, loaded.model, loaded.classes, dataset, about.get("share"))
    try:
        options.check_target(loaded.classes)
        for method in options.methods or ():
            find_method(method)
            if method == "lrp" and given.transformer is not None:
                raise ModelError(
                    "method: given lrp with --transformer, needed another: layer normalisation and "
                    "self-attention have no rule"
                )
    except (RunError, ModelError) as error:
        raise UsageError(f"--{str(error).replace('method:', 'methods:', 1)}") from error
    own = loaded.metadata.get("name") or given.folder.name
    own = own if given.data is None else f"{own} applied to {split_name(given.data.absolute())}"
    work = Compare.begin(options, of, dataset, out_folder, where, name or own)
    with Watcher(work.describe) as watcher:
        schedule.run(work, jobs, watcher)
    page, found = build(work.close(), out_folder / "report")
    for one in found:
        out.print(f"{one.question} {one.answer}", soft_wrap=True)
    out.print(str(page.resolve()), style="bold", soft_wrap=True)


def _documents(
    given: Given, rationales: Rationales | None, device: str, stages: Stages
) -> tuple[LoadedModel | LoadedTransformer, Dataset, dict[str, Any]]:
    """Load a model with the documents to apply it to, and the words in them that people marked.

    Raises:
        UsageError: the documents have no column of that name, or no marked word in it.
    """
    with stages:
        stages(LOADING, 0, 1)
        from fastattnerase.data.errors import DataError
        from fastattnerase.data.queries import LeftOut
        from fastattnerase.models import LoadedModel, load_model

        folder = given.folder
        loaded: LoadedModel | LoadedTransformer
        if given.transformer is not None:
            loaded = open_transformer(
                folder, given.choices, given.classes, given.data, choose_device(device)
            )
        else:
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
                loaded, folder, given.data, given.text_column, given.label_column,
                given.query_column, given.unlabelled, READING, stages, rationales,
            )  # fmt: skip
        except DataError as error:
            if rationales is not None and str(error).startswith("spans_column"):
                raise UsageError(f"--rationales{str(error).removeprefix('spans_column')}") from None
            raise
    dropped = about.get("dropped", LeftOut())
    if isinstance(loaded, LoadedModel):
        print_left_out(dropped, dataset.truncated, of_data.max_tokens, dropped.first)
    else:
        print_left_out(dropped, dataset.truncated, loaded.model.limit, dropped.first, "piece")
    if rationales is not None:
        if all(document.spans is None for document in dataset):
            lost = counted(dataset.spans_cut, "marked span")
            raise UsageError(
                f"--rationales: given column {rationales.column!r}, in which no word of "
                f"{counted(len(dataset), 'document')} is marked"
                + (f" before texts are cut ({lost} behind that)" if dataset.spans_cut else "")
                + ", needed some marked words"
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
