"""The documents that a model is applied to: its own test split, or a file's rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.cli.console import UsageError, counted
from fastattnerase.cli.transformers import fit_counted
from fastattnerase.runs.progress import Report, tracked

if TYPE_CHECKING:
    from fastattnerase.data import DataConfig, Dataset
    from fastattnerase.data.queries import LeftOut
    from fastattnerase.data.spans import SpansUnit
    from fastattnerase.huggingface import LoadedTransformer
    from fastattnerase.models import LoadedModel
else:  # imported where they are used; hints that are read at run time say Any
    DataConfig = Dataset = LeftOut = LoadedModel = LoadedTransformer = SpansUnit = Any


@dataclass(frozen=True)
class Rationales:
    """Where the words are that people marked.

    Attributes:
        column: Column of their spans.
        unit: What spans count, `words` or `characters`.
    """

    column: str
    unit: SpansUnit


@contextmanager
def advising(label: str, *, query: bool = False) -> Iterator[None]:
    """Add to errors of files of texts which options mend them.

    Args:
        label: what is done about a label that is missing or unknown.
        query: whether a second text is read.
    """
    from fastattnerase.data.errors import LabelError, MissingColumnError

    try:
        yield
    except MissingColumnError as error:
        raise UsageError(
            f"{error}; name the columns as --text-column and --label-column"
            + (" and --query-column" if query else "")
            + ("; " + label if "--unlabelled" in label else "")
        ) from error
    except LabelError as error:
        raise UsageError(f"{error}; {label}") from error


DATA_FILES = ("path", "train", "dev", "test")  # fields of `DataConfig`


def data_of(loaded: LoadedModel | LoadedTransformer, folder: Path) -> DataConfig:
    """Give the data that a model was trained on, where its files are now.

    Raises:
        RunError: a file is missing.
    """
    from fastattnerase.runs.rundir import RunError

    data, places = loaded.data_config, loaded.metadata.get("data_files")
    for field in DATA_FILES:
        given = getattr(data, field)
        if given is None:
            continue
        # The file itself, or one where a model that was copied with its data would find it.
        known = [places[field]] if isinstance(places, dict) and field in places else []
        found = [file for file in (*known, given) if Path(file).exists()]
        if not found:
            raise RunError(
                f"{(*known, given)[0]}: no such file; it is the training data of the model in "
                f"{folder}, whose test split is read; restore it, or give a file as --data"
            )
        data = replace(data, **{field: found[0]})
    return data


_CHANGED = (
    "the data file is not the one the model was trained on; restore it, train again, or give a "
    "file as --data"
)


def documents_of(
    loaded: LoadedModel | LoadedTransformer,
    folder: Path,
    data: Path | None,
    text_column: str | None,
    label_column: str | None,
    query_column: str | None,
    unlabelled: bool,
    stage: str,
    report: Report,
    rationales: Rationales | None = None,
    run: Path | None = None,
) -> tuple[Dataset, dict[str, Any]]:
    """Encode the documents to erase from, and say where they came from.

    `stage` is what `report` hears of tokenising. In the folder `run` they are kept until the run is
    finished, so that going on with it reads no texts. With `rationales` the documents have the
    words that people marked, and `about` says which share of the words is marked in the training
    texts that have some (`share`, None where none has).
    """
    from fastattnerase.data import Dataset, encode, load_corpus, load_examples, tokenise
    from fastattnerase.data.kept import Kept, identity, keep, read_kept
    from fastattnerase.data.queries import LeftOut
    from fastattnerase.runs.lock import alone
    from fastattnerase.runs.rundir import RESULT, RunError

    trained = loaded.data_config
    if run is not None:
        known = identity(
            [data] if data is not None else _files(data_of(loaded, folder)),
            trained.sentences,
            vocabulary=loaded.vocabulary.to_dict(),
            classes=loaded.classes,
            trained=trained.to_dict(),
            given=[str(data), text_column, label_column, query_column, unlabelled],
        )
        if (kept := read_kept(run, known)) is not None:
            report(stage, 1, 1)
            return _of_model(loaded, kept.dataset, LeftOut()), kept.about
    if rationales is not None:
        trained = replace(trained, spans_column=rationales.column, spans_unit=rationales.unit)
    about: dict[str, Any]
    marked: list[Any] = []  # training texts in which people marked words
    if data is None:
        spans = {"spans_column": trained.spans_column, "spans_unit": trained.spans_unit}
        corpus = load_corpus(replace(data_of(loaded, folder), **spans))  # type: ignore[arg-type]
        if corpus.classes != loaded.classes:
            raise RunError(
                f"{folder}: {_CHANGED}; its labels were {', '.join(loaded.classes)} and are now "
                f"{', '.join(corpus.classes)}"
            )
        examples = corpus.test
        about = {"data": trained.to_dict(), "split": "test"}
        if not examples:
            raise RunError("the model's data have no test split; give a file as --data")
        if rationales is not None:
            marked = [example for example in corpus.train if example.spans]
    else:
        column = None if unlabelled else label_column or trained.label_column
        text_column = text_column or trained.text_column
        if query_column is not None and loaded.model.config.kind != "pair":
            raise UsageError(
                f"--query-column: given {query_column!r} with a model of kind "
                f"{loaded.model.config.kind}, needed one of kind pair, which reads two texts"
            )
        query_column = query_column or trained.query_column
        advice = "" if unlabelled else "rows without labels are read with --unlabelled"
        if loaded.model.config.kind == "transformer":
            advice += ", other names of the model's classes given as --classes"
        with advising(advice, query=query_column is not None):
            examples, dropped = load_examples(
                data,
                loaded.classes,
                text_column=text_column,
                label_column=column,
                line_breaks=trained.line_breaks,
                sentences=trained.sentences,
                query_column=query_column,
                answers_column=trained.answers_column,
                spans_column=None if rationales is None else rationales.column,
                spans_unit=trained.spans_unit,
            )
        columns = {"text_column": text_column, "label_column": column}
        if query_column is not None:
            columns["query_column"] = query_column
        about = {
            "data": {"path": str(data), **columns},
            "split": "all rows",
            "dropped": dropped,
        }
    texts = tokenise(tracked(examples, len(examples), stage, report), **trained.tokenisation)
    dataset = encode(texts, loaded.vocabulary, max_tokens=trained.max_tokens)
    # Models saved by the library or by studies may lack the hash of their test split.
    judged = loaded.metadata.get("test_documents_hash")
    unmarked = dataset
    if rationales is not None:  # by which documents of two texts would be others
        unmarked = Dataset([replace(document, spans=None) for document in dataset])
    if data is None and judged is not None and unmarked.digest() != judged:
        raise RunError(
            f"{folder}: {_CHANGED}; its test split now has others than the "
            f"{counted(len(dataset), 'document')} that the model was judged on"
        )
    left_out = about.get("dropped", LeftOut())
    whole, dataset = dataset, _of_model(loaded, dataset, left_out)
    if left_out:
        about["dropped"] = left_out
    if rationales is not None:
        # After the digest: a transformer numbers words of several pieces as it meets them.
        about["share"] = _marked_share(loaded, marked)
    about |= {"documents": len(dataset), "truncated": dataset.truncated}
    if run is not None and not (run / RESULT).exists():
        with alone(run):
            keep(run, Kept(whole, about), known)
    return dataset, about


def _marked_share(loaded: LoadedModel | LoadedTransformer, examples: list[Any]) -> float | None:
    """Compute the mean share of marked words in texts that have some; None without any."""
    if not examples:
        return None
    from fastattnerase.data import encode, tokenise
    from fastattnerase.data.queries import LeftOut
    from fastattnerase.measures.human_words import marked_words, mean_share

    trained = loaded.data_config
    texts = tokenise(examples, **trained.tokenisation)
    dataset = encode(texts, loaded.vocabulary, max_tokens=trained.max_tokens)
    dataset = _of_model(loaded, dataset, LeftOut())  # those of training are not counted
    lengths = dataset.sizes.words
    words = marked_words([document.spans for document in dataset], lengths)
    return mean_share(words, [0, *lengths.cumsum().tolist()])


def _of_model(
    loaded: LoadedModel | LoadedTransformer, dataset: Dataset, dropped: LeftOut
) -> Dataset:
    """Give a transformer's documents the pieces of their words, cut to what it takes."""
    model: Any = loaded.model
    return fit_counted(model, dataset, dropped) if hasattr(model, "fit") else dataset


def _files(config: DataConfig) -> list[Path]:
    """List the files of texts that a configuration names."""
    return [Path(path) for name in DATA_FILES if (path := getattr(config, name)) is not None]
