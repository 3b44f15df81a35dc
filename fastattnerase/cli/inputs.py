"""What commands are applied to: a device and a backend that are there, a model's data, tensors."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from fastattnerase.cli.console import Stages, UsageError, counted, out
from fastattnerase.cli.documents import documents_of
from fastattnerase.cli.transformers import choices_of, open_transformer, require_transformer_alone
from fastattnerase.data.naming import split_name, stem
from fastattnerase.fields import one_of
from fastattnerase.studies import STUDIES

if TYPE_CHECKING:
    from fastattnerase.sources import ModelSource, Source
else:  # imported where they are used; hints that are read at run time say Any
    ModelSource = Source = Any


LOADING, READING = "loading", "reading"
# The stages before an experiment, against those of its own.
OPENING = {LOADING: 1.0, READING: 6.0}

Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all random choices.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder to write; by default it is named after the input.", show_default=False
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        help="Name in reports; by default it is that of the model or data.", show_default=False
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Device to compute on: auto (a GPU where there is one), cpu, cuda or cuda:N."
    ),
]
DataRoot = Annotated[
    Path,
    typer.Option(
        help="Folder with a folder of each data set (sst, imdb, 20news, …); where no --vectors "
        "are given, the file in its folder glove is taken."
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Models at a time; several use one thread each.")]


@dataclass(frozen=True)
class Input:
    """What an experiment is run on: a trained model, or tensors.

    Attributes:
        model: Folder that `train` wrote.
        data: File of which all rows are read; by default the model's own test split is.
        text_column: Column of the texts; by default as in training.
        label_column: Column of the labels; by default as in training.
        query_column: Column of the second texts of a model that takes two; by default as in
            training.
        unlabelled: Whether the rows of `data` have no labels.
        tensors: Instead of a model, a safetensors file of any attention layer: values [T, D],
            offsets [B + 1], scores or weights [T], head_weight [C, D], head_bias [C]; labels and
            ids [B] and logits [B, C] where they are known; in its metadata `classes` and `tokens`
            as JSON lists.
        tokens: File with the texts of the items of `tensors`, a line an instance: a JSON list in a
            .jsonl file, words with spaces between in any other. Heat maps and `--items` show them.
        classes: Names of the classes of `tensors`, with commas between, in the order of
            head_weight's rows; or of the outputs of `transformer`, by default as its folder says.
        transformer: Instead of a model, folder of a fine-tuned BERT, RoBERTa or DistilBERT
            classifier with its tokenizer, whose last layer is erased from.
        unit: What is erased together of a transformer: the pieces of `words`, or single `pieces`.
        max_pieces: Pieces of a text that a transformer reads, special tokens included, at most; by
            default as in training, or as many as it takes.
    """

    model: Path | None = None
    data: Path | None = None
    text_column: str | None = None
    label_column: str | None = None
    query_column: str | None = None
    unlabelled: bool = False
    tensors: Path | None = None
    tokens: Path | None = None
    classes: tuple[str, ...] = ()
    transformer: Path | None = None
    unit: Literal["words", "pieces"] = "words"
    max_pieces: int | None = None

    def __post_init__(self) -> None:
        if self.transformer is not None:
            require_transformer_alone(self)
        elif (self.model is None) == (self.tensors is None):
            both = "neither" if self.model is None else "both"
            raise UsageError(f"--model, --tensors: given {both}, needed one of them")
        elif self.model is None and self.data is not None:
            raise UsageError("--data: given with --tensors, needed with --model")
        elif self.tensors is None and (self.tokens is not None or self.classes):
            raise UsageError("--tokens, --classes: given with --model, needed with --tensors")
        elif self.unit != "words" or self.max_pieces is not None:
            raise UsageError("--unit, --max-pieces: given without --transformer, needed with it")
        own = self.text_column or self.label_column or self.query_column or self.unlabelled
        if self.data is None and own:
            raise UsageError(
                "--text-column, --label-column, --query-column, --unlabelled: given without "
                "--data, needed with it"
            )


def choose_device(name: str) -> str:
    """Turn the option --device into a device of torch that is there."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device: given {name!r}, needed auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device: given {name!r}, needed cpu: torch finds no GPU here")
    return name


def choose_backend(name: str) -> str:
    """Check the option --backend: a name that is known and can run here, or auto."""
    import fastattnerase as fae

    known = fae.backends()
    if name != "auto" and name not in known:
        raise UsageError(f"--backend: given {name!r}, needed auto, {one_of(list(known))}")
    if name != "auto" and known[name]:
        raise UsageError(
            f"--backend: given {name}, needed one that can run here: {'; '.join(known[name])}"
        )
    return name


def find_rankings(names: Sequence[str]) -> None:
    """Check the option --rankings: names that the engine knows, or of a module's function."""
    from fastattnerase.rankings import resolve

    for name in names:
        try:
            resolve(name)
        except ValueError as error:  # a tensor is of calls, not of command lines
            raise UsageError(f"--{error}".removesuffix(", or a tensor")) from error


def require_folder(option: str, folder: Path) -> None:
    """Refuse an option that names no folder."""
    if not folder.is_dir():
        raise UsageError(f"{option}: given {folder}, which is no folder, needed a folder")


def find_vectors(options: Any, data_root: Path) -> Any:
    """Give a study's options with its word vectors: --vectors, or the file in the data's `glove`.

    Where there are none, that is said.
    """
    given = options.vectors
    if given is not None and not Path(given).is_file():
        raise UsageError(f"--vectors: given {given}, which is no file, needed a file")
    files = sorted((data_root / "glove").glob("*.txt*"))
    if given is None and not files:
        out.print(
            f"no word vectors: {counted(options.embedding_size, 'random number')} a word, trained"
        )
    return replace(options, vectors=given or (str(files[0]) if files else None))


def print_left_out(
    dropped: Mapping[str, int],
    cut: int,
    max_tokens: int | None,
    first: Mapping[str, str] = MappingProxyType({}),
    unit: str = "word",
) -> None:
    """Say what of the texts is not used, and of some reasons which row is the first."""
    for reason, count in dropped.items():
        line = f"{counted(count, 'row')} left out: {reason.replace('_', ' ')}"
        out.print(line + (f" ({first[reason]})" if reason in first else ""), soft_wrap=True)
    if cut and max_tokens is not None:
        out.print(f"{counted(cut, 'document')} cut after {counted(max_tokens, unit)}")


def print_next(command: str, folder: Path, out_folder: Path | None = None) -> None:
    """Print the command that usually follows, as it can be pasted."""
    line = f"fastattnerase {command} {shlex.quote(str(folder))}"
    if out_folder is not None:
        line += f" --out {shlex.quote(str(out_folder))}"
    out.print(Text.assemble("Next: ", (line, "bold")), soft_wrap=True)


def open_source(
    given: Input, device: str, purpose: str, out_folder: Path | None, stages: Stages
) -> tuple[Source, str, Path]:
    """Open what an experiment is run on.

    Args:
        given: The model with its data, or the tensors.
        device: The option --device.
        purpose: Name of the run's folder.
        out_folder: The run's folder, instead of that of the purpose.
        stages: Shows the stages of `OPENING`.

    Returns:
        The instances, their name in reports, and the folder where results go.
    """
    source: Source
    own = given.model or given.transformer
    if own is not None:
        named = purpose if given.data is None else f"{purpose}-{stem(given.data)}"
        folder = out_folder or own / named
        source, name = model_source(given, device, stages, folder)
        return source, name, folder
    assert given.tensors is not None  # one of both is given
    name = stem(given.tensors)
    source = tensor_source(given.tensors, given.tokens, given.classes, device, stages)
    return source, name, out_folder or Path("runs") / f"{name}-{purpose}"


def tensor_source(
    tensors: Path | None,
    tokens: Path | None,
    classes: Sequence[str],
    device: str,
    stages: Stages,
) -> Source:
    """Open a file of tensors."""
    assert tensors is not None  # one of both is given
    with stages:
        stages(LOADING, 0, 1)
        from fastattnerase.runs.rundir import RunError
        from fastattnerase.sources import TensorSource

        try:
            source = TensorSource(
                tensors, device=choose_device(device), tokens=tokens, classes=classes
            )
        except RunError as error:  # the option's own; what is of the file begins with its name
            given = str(error)
            raise RunError(f"--{given}" if given.startswith("classes: ") else given) from error
        stages(LOADING, 1, 1)
        stages(READING, 0, 1)
        uneven = source.uneven()
        stages(READING, 1, 1)
    if uneven:
        out.print(
            f"Note: the weights of {uneven:,} of {counted(len(source), 'instance')} do not sum to "
            "1; they are divided by their sum",
            soft_wrap=True,
        )
    return source


def model_source(given: Input, device: str, stages: Stages, run: Path) -> tuple[ModelSource, str]:
    """Load a model with the documents to apply it to; give its name, too.

    Args:
        given: The model and its data.
        device: The option --device.
        stages: Shows the stages of `OPENING`.
        run: Folder of the run, where encoded documents are kept until it is finished.
    """
    folder = given.model or given.transformer
    assert folder is not None  # what has tensors instead is no model's
    loaded: Any
    with stages:
        stages(LOADING, 0, 1)
        from fastattnerase.data.queries import LeftOut
        from fastattnerase.models import load_model
        from fastattnerase.sources import ModelSource

        if given.transformer is not None:
            config = choices_of(given.unit, max_pieces=given.max_pieces)
            loaded = open_transformer(
                folder, config, given.classes, given.data, choose_device(device)
            )
        else:
            loaded = load_model(folder, device=choose_device(device))
        stages(LOADING, 1, 1)
        dataset, about = documents_of(
            loaded, folder, given.data, given.text_column, given.label_column, given.query_column,
            given.unlabelled, READING, stages, run=run,
        )  # fmt: skip
    dropped = about.get("dropped", LeftOut())
    if given.transformer is not None:
        print_left_out(dropped, dataset.truncated, loaded.model.limit, dropped.first, "piece")
    else:
        print_left_out(dropped, dataset.truncated, loaded.data_config.max_tokens, dropped.first)
    source = ModelSource(
        loaded.model,
        dataset,
        loaded.classes,
        {
            # Not the folder: where a copy lies makes no other model; the source's hash does.
            "model_config": loaded.model.config.to_dict(),
            "train_config": None if loaded.train_config is None else loaded.train_config.to_dict(),
            "best_epoch": loaded.metadata.get("best_epoch"),
            "dev_accuracy": loaded.metadata.get("dev_accuracy"),
        }
        | about,
    )
    name = loaded.metadata.get("name") or folder.name
    return (
        source,
        name if given.data is None else f"{name} applied to {split_name(given.data.absolute())}",
    )


def find_run(folder: Path, lacking: str = "a report of this kind") -> Path:
    """Give a run directory, or the one run that `erase` wrote into a model's folder.

    Args:
        folder: What was given.
        lacking: What a measurement does not have, for the error.
    """
    if not folder.exists():
        raise UsageError(f"{folder}: given a folder that is not there, needed a run directory")
    from fastattnerase.mi.config import KIND, TABLES
    from fastattnerase.runs.rundir import RESULT, RUN, RunError, read_json
    from fastattnerase.studies.serrano_smith.config import KIND as ERASED

    measured = [folder] if (folder / RUN).exists() else []
    if measured and read_json(folder / RUN).get("kind") != KIND:
        return folder
    # What a run is its record says, whatever its folder is called.
    kinds = {path.parent: read_json(path).get("kind") for path in sorted(folder.glob(f"*/{RUN}"))}
    runs = [run for run, kind in kinds.items() if kind == ERASED]
    measured = measured or [run for run, kind in kinds.items() if kind == KIND]
    if measured and not runs:
        raise RunError(
            f"{measured[0]} holds a measurement, which lacks {lacking}: its tables are "
            f"{', '.join(f'{table}.csv' for table in TABLES)} in it; name a run directory that "
            "`fastattnerase erase` wrote, on the same --model or --tensors"
        )
    names = dict.fromkeys(study.page for study in STUDIES)
    pages = [page for page in names if (folder / "report" / page).is_file()]
    if pages and (folder / "manifest.json").is_file():
        inside = sorted(str(path.parent) for path in folder.glob(f"erase/*/*/{RUN}"))
        raise RunError(
            f"{folder} is a folder of `reproduce`; its report is {folder / 'report' / pages[0]}"
            + (f", its runs are {', '.join(inside)}" if inside else "")
        )
    if not (runs or measured) and (folder / "fastattnerase.json").is_file():
        raise RunError(
            f"{folder} holds a transformer and no run; make one with "
            f"`fastattnerase erase --transformer {shlex.quote(str(folder))}`"
        )
    if not (runs or measured) and (folder / "model.json").is_file():
        raise RunError(
            f"{folder} holds a model and no run; make one with "
            f"`fastattnerase erase --model {shlex.quote(str(folder))}`"
        )
    # What an error or a signal ended is none, where there is one that is finished.
    runs = [run for run in runs if (run / RESULT).is_file()] or runs
    if len(runs) > 1:
        raise RunError(f"{folder} holds several runs; name one of {', '.join(map(str, runs))}")
    return runs[0] if runs else folder
