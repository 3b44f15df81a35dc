"""`fastattnerase dump`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastattnerase.cli.console import Stages, UsageError, counted, out
from fastattnerase.cli.inputs import OPENING, READING, Device, Input, model_source, print_next
from fastattnerase.cli.options import command
from fastattnerase.sizes import bytes_of

if TYPE_CHECKING:
    from fastattnerase.dumps.making import Reader
else:  # imported where they are used; hints that are read at run time say Any
    Reader = Any


@dataclass(frozen=True)
class ModelInput:
    """A trained model and the texts that it is applied to.

    Attributes:
        model: Folder that `train` wrote.
        data: File of which all rows are read; by default the model's own test split is.
        text_column: Column of the texts; by default as in training.
        label_column: Column of the labels; by default as in training.
        query_column: Column of the second texts of a model that takes two; by default as in
            training.
        unlabelled: Whether the rows of `data` have no labels.
    """

    model: Path | None = None
    data: Path | None = None
    text_column: str | None = None
    label_column: str | None = None
    query_column: str | None = None
    unlabelled: bool = False


@dataclass(frozen=True)
class DatasetInput:
    """A data set whose rows are instances of an attention layer.

    Attributes:
        from_dataset: Instead of a model, a data set of the Hugging Face hub, `owner/name` or
            `owner/name:configuration`, or a folder that its library `datasets` loads; a row is an
            instance. Only with a name of the hub the network is used.
        split: Split of the data set.
        values_column: Column with the values of an instance's items, [n, D].
        scores_column: Column with their scores, [n]; by default `scores`.
        weights_column: Instead of scores, column with their weights.
        ids_column: Column with the instance's id; by default rows are numbered.
        logits_column: Column with the model's own logits, [C].
        head: File with head_weight [C, D] and head_bias [C], .npz or .safetensors. The column of
            labels is `label_column`.
    """

    from_dataset: str | None = None
    split: str = "train"
    values_column: str = "values"
    scores_column: str | None = None
    weights_column: str | None = None
    ids_column: str | None = None
    logits_column: str | None = None
    head: Path | None = None


@command("fastattnerase dump --model runs/flanrnn --out dumps/flanrnn")
def dump(
    given: ModelInput,
    rows: DatasetInput,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the dump.")],
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Instead of a model, arrays of any attention layer: FILE.npz or FILE.safetensors "
            "with values, padded [B, N, D] with lengths or mask, or packed [T, D] with offsets; "
            "scores or weights; head_weight [C, D], head_bias [C]; labels, ids and logits where "
            "they are known. FILE.npy has the values, and the others lie beside it: scores.npy, "
            "lengths.npy, head_weight.npy.",
            show_default=False,
        ),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            help="Keep what each item contributes to the logits instead of its values: 10 to 80 "
            "times smaller than float32 values with 100 to 256 features and two to eight classes, "
            "half of that of bfloat16. Near-ties are then judged on these.",
        ),
    ] = False,
    shard_size: Annotated[
        str,
        typer.Option(
            "--shard-bytes",
            help="Size of a file, at most; larger are those of one instance for which it is too "
            "little, and of a head larger than half of it.",
        ),
    ] = "256MiB",
    classes: Annotated[
        str | None,
        typer.Option(
            help="Names of the classes of --from or --from-dataset, with commas between, in the "
            "order of head_weight's rows.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Write what an attention layer sees into a dump: safetensors files with a manifest.

    `sweep` erases a dump, shard by shard, in several processes or on several machines. The same
    command goes on after an interruption.
    """
    ways = {
        "--model": given.model,
        "--from": from_file,
        "--from-dataset": rows.from_dataset,
    }
    named = [way for way, value in ways.items() if value is not None]
    if len(named) != 1:
        raise UsageError(
            f"{', '.join(ways)}: given {' and '.join(named) or 'none'}, needed one of them"
        )
    try:
        shard_bytes = bytes_of(shard_size)
    except ValueError as error:
        raise UsageError(f"--shard-bytes: {error}") from error
    _check(given, rows, classes)
    stages = Stages(OPENING | {"writing shards": 4.0})
    names = tuple(name.strip() for name in (classes or "").split(",") if name.strip())
    if given.model is not None:
        read, total, made_by, names = _model(given, device, out_folder, stages)
    elif rows.from_dataset is not None:
        read, total, made_by, own = _dataset(rows, given.label_column, stages)
        names = names or own
    else:
        assert from_file is not None  # one of the three is given
        read, total, made_by, own = _file(from_file, stages)
        names = names or own

    from fastattnerase.data.kept import KEPT
    from fastattnerase.dumps.making import make_dump
    from fastattnerase.dumps.writing import Options

    options = Options(shard_bytes, names, compact, made_by=made_by)
    with stages:
        manifest = make_dump(read, total, out_folder, options, stages)
    (out_folder / KEPT).unlink(missing_ok=True)
    size = sum(shard.bytes for shard in manifest.shards)
    out.print(
        f"{counted(manifest.instances, 'instance')}, {counted(manifest.items, 'item')} in "
        f"{counted(len(manifest.shards), 'shard')}, {size:,} bytes: {out_folder}",
        soft_wrap=True,
    )
    place = out_folder if out_folder.name.strip(".") else out_folder.resolve()  # of `.` and `..`
    print_next("sweep", out_folder, place.with_name(f"{place.name}-sweep"))


def _check(given: ModelInput, rows: DatasetInput, classes: str | None) -> None:
    """Refuse options that belong to another way of making a dump."""
    if given.model is not None and classes is not None:
        raise UsageError("--classes: given with --model, needed with --from or --from-dataset")
    columns = ModelInput(label_column=given.label_column if rows.from_dataset else None)
    if given.model is None and given != columns:
        raise UsageError("--data and its columns: given without --model, needed with it")
    if rows.from_dataset is None and rows != DatasetInput():
        raise UsageError(
            "--split, --head and columns of arrays: given without --from-dataset, needed with it"
        )
    if rows.from_dataset is not None and rows.head is None:
        raise UsageError("--head: given none, needed the head's file with --from-dataset")


def _dataset(
    rows: DatasetInput, labels: str | None, stages: Stages
) -> tuple[Reader, int, dict[str, Any], tuple[str, ...]]:
    from fastattnerase.dumps.hub import Columns, HubRows

    assert rows.from_dataset is not None  # what has another way is no data set's
    assert rows.head is not None
    columns = Columns(
        rows.values_column,
        rows.scores_column,
        rows.weights_column,
        labels,
        rows.ids_column,
        rows.logits_column,
    )
    with stages:
        stages(READING, 0, 1)
        found = HubRows(rows.from_dataset, rows.split, columns, rows.head)
        stages(READING, 1, 1)
    made_by = {"name": rows.from_dataset, "source": found.describe()}
    return found.batches, len(found), made_by, found.classes


def _model(
    given: ModelInput, device: str, folder: Path, stages: Stages
) -> tuple[Reader, int, dict[str, Any], tuple[str, ...]]:
    from fastattnerase.dumps.making import reader_of

    own = Input(**vars(given))
    source, name = model_source(own, device, stages, folder)
    made_by = {"name": name, "source": source.describe()}
    return reader_of(source), len(source), made_by, tuple(source.classes)


def _file(path: Path, stages: Stages) -> tuple[Reader, int, dict[str, Any], tuple[str, ...]]:
    with stages:
        stages(READING, 0, 1)
        from fastattnerase.dumps.arrays import ArrayFile

        file = ArrayFile(path)
        stages(READING, 1, 1)
    made_by = {"name": path.name.partition(".")[0], "source": file.describe()}
    return file.batches, len(file), made_by, file.classes
