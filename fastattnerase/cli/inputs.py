"""What commands are applied to: a device and a backend that are there, a model's data, tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastattnerase.cli.console import counted, err, out

if TYPE_CHECKING:
    from fastattnerase.data import Dataset
    from fastattnerase.models import LoadedModel
    from fastattnerase.sources import Source


Out = Annotated[Path | None, typer.Option("--out", help="Where results go.", show_default=False)]
Device = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:N.")]
Backend = Annotated[str, typer.Option(help="Of the erasure engine: auto, or a name from `info`.")]


def stem(path: Path | None) -> str:
    """Give a file's name without its extensions."""
    return "data" if path is None else path.name.partition(".")[0]


def choose_device(name: str) -> str:
    """Turn the option --device into a device of torch that is there."""
    import torch

    from fastattnerase.runs.rundir import RunError

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise RunError(f"--device is {name!r}; auto, cpu, cuda or cuda:N is needed")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RunError(f"--device is {name!r}, but torch finds no GPU here")
    return name


def choose_backend(name: str) -> str:
    """Check the option --backend: a name that is known and can run here, or auto."""
    import fastattnerase as fae
    from fastattnerase.runs.rundir import RunError

    known = fae.backends()
    if name != "auto" and name not in known:
        raise RunError(f"--backend is {name!r}; auto or one of {', '.join(known)} is needed")
    if name != "auto" and known[name]:
        raise RunError(f"--backend {name} cannot run here: {'; '.join(known[name])}")
    return name


def print_left_out(dropped: Mapping[str, int], cut: int, max_tokens: int | None) -> None:
    """Say what of the texts is not used."""
    for reason, count in dropped.items():
        out.print(f"{counted(count, 'row')} left out: {reason.replace('_', ' ')}")
    if cut and max_tokens is not None:
        out.print(f"{counted(cut, 'document')} cut after {counted(max_tokens, 'word')}")


def require_one_of_both(model: Path | None, data: Path | None, tensors: Path | None) -> None:
    """Require a model or tensors, and --data with a model only."""
    from fastattnerase.runs.rundir import RunError

    if (model is None) == (tensors is None):
        raise RunError("give either --model or --tensors")
    if model is None and data is not None:
        raise RunError("--data goes with --model, not with --tensors")


def tensor_source(tensors: Path | None, device: str) -> Source:
    """Open a file of tensors."""
    from fastattnerase.sources import TensorSource

    assert tensors is not None  # one of both is given
    source = TensorSource(tensors, device=device)
    if uneven := source.uneven():
        out.print(
            f"Note: the weights of {uneven:,} of {counted(len(source), 'instance')} do not sum to "
            "1; they are divided by their sum",
            soft_wrap=True,
        )
    return source


def model_source(
    folder: Path,
    data: Path | None,
    text_column: str | None,
    label_column: str | None,
    unlabelled: bool,
    device: str,
) -> tuple[Source, str]:
    """Load a model with the documents to apply it to; give its name, too."""
    from fastattnerase.models import load_model
    from fastattnerase.sources import ModelSource

    loaded = load_model(folder, device=device)
    with err.status("reading the texts"):
        dataset, about = _documents(loaded, folder, data, text_column, label_column, unlabelled)
    print_left_out(about.get("dropped", {}), dataset.truncated, loaded.data_config.max_tokens)
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
    return source, loaded.metadata.get("name") or folder.name


_CHANGED = (
    "the data file is not the one the model was trained on; restore it, train again, or give a "
    "file as --data"
)


def _documents(
    loaded: LoadedModel,
    folder: Path,
    data: Path | None,
    text_column: str | None,
    label_column: str | None,
    unlabelled: bool,
) -> tuple[Dataset, dict[str, Any]]:
    """Encode the documents to erase from, and say where they came from."""
    from fastattnerase.data import encode, load_corpus, load_examples, tokenise
    from fastattnerase.runs.rundir import RunError

    trained = loaded.data_config
    about: dict[str, Any]
    if data is None:
        if text_column or label_column or unlabelled:
            raise RunError("--text-column, --label-column and --unlabelled go with --data")
        corpus = load_corpus(trained)
        if corpus.classes != loaded.classes:
            raise RunError(
                f"{folder}: {_CHANGED}; its labels were {', '.join(loaded.classes)} and are now "
                f"{', '.join(corpus.classes)}"
            )
        examples = corpus.test
        about = {"data": trained.to_dict(), "split": "test"}
        if not examples:
            raise RunError("the model's data have no test split; give a file as --data")
    else:
        column = None if unlabelled else label_column or trained.label_column
        text_column = text_column or trained.text_column
        examples, dropped = load_examples(
            data,
            loaded.classes,
            text_column=text_column,
            label_column=column,
            line_breaks=trained.line_breaks,
            sentences=trained.sentences,
        )
        about = {
            "data": {"path": str(data), "text_column": text_column, "label_column": column},
            "split": "all rows",
            "dropped": dropped,
        }
    texts = tokenise(examples, line_breaks=trained.line_breaks, sentences=trained.sentences)
    dataset = encode(texts, loaded.vocabulary, max_tokens=trained.max_tokens)
    # Models saved by the library or by studies may tell nothing of their test split.
    judged = loaded.metadata.get("test_documents_hash")
    if data is None and judged is not None and dataset.digest() != judged:
        raise RunError(
            f"{folder}: {_CHANGED}; its test split had {loaded.metadata['documents']['test']} "
            f"documents and now has {len(dataset)}, or the same number of others"
        )
    return dataset, about | {"documents": len(dataset), "truncated": dataset.truncated}
