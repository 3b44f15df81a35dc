"""Sequence classifiers from a folder: nothing is downloaded, nothing is unpickled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fastattnerase.data.config import DataConfig
from fastattnerase.extras import needs
from fastattnerase.huggingface.classifier import TransformerClassifier
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.huggingface.families import family_of
from fastattnerase.huggingface.train_config import FineTuneConfig
from fastattnerase.huggingface.words import Pieces
from fastattnerase.models.checkpoint import CHECKPOINT
from fastattnerase.models.errors import ModelError
from fastattnerase.models.storage import read_json
from fastattnerase.plurals import counted

DESCRIPTION = "fastattnerase.json"  # what `train --transformer` writes beside the model, last
_CONFIG, _WEIGHTS = "config.json", ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json")
_POINTER = b"version https://git-lfs"
_TRAIN = "`fastattnerase train --transformer {} --data …`"
FORMAT = 1


class LoadedTransformer(NamedTuple):
    """A transformer from disk, with what belongs to it, as `LoadedModel` has it.

    Attributes:
        model: the classifier, in evaluation mode.
        vocabulary: the pieces of words.
        classes: its classes' names.
        data_config: the data it was trained on by `train --transformer`; usual ones otherwise.
        train_config: how it was trained there; None otherwise.
        metadata: what else was saved beside it; empty otherwise.
    """

    model: TransformerClassifier
    vocabulary: Pieces
    classes: list[str]
    data_config: DataConfig
    train_config: FineTuneConfig | None
    metadata: dict[str, Any]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing progress and advice; its settings are put back."""
    with needs("transformers"):
        from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_transformer(
    directory: str | Path,
    config: TransformerConfig | None = None,
    *,
    device: torch.device | str = "cpu",
) -> LoadedTransformer:
    """Load a fine-tuned sequence classifier from a folder.

    Args:
        directory: a folder with `config.json`, `model.safetensors` and a fast tokenizer, such as
            `train --transformer` or `save_pretrained` writes it.
        config: what an item is; default: as it was trained, else the usual choices.
        device: where to put it; numbers are float32.

    Returns:
        The model and what belongs to it.

    Raises:
        ModelError: no folder, or one without what is needed; another architecture; an encoder
            without a classifier; a slow tokenizer.
        MissingPackageError: transformers is not installed.

    Example:
        >>> load_transformer("runs/minilm-sst").classes  # doctest: +SKIP
        ['negative', 'positive']
    """
    folder = require_folder(directory)
    described = folder / DESCRIPTION
    about: dict[str, Any] = read_json(described) if described.is_file() else {}
    if about and about.get("format") != FORMAT:
        raise ModelError(f"{described}: given format {about.get('format')!r}, needed {FORMAT}")
    model, missing = read_model(folder)
    if missing and not any("classifier" in name for name in missing):
        raise _without(folder, missing)
    if missing:
        require_encoder(folder, model, missing)
        raise ModelError(
            f"{folder}: given an encoder without a classifier ({', '.join(sorted(missing)[:2])} "
            f"not in its weights), needed a sequence classifier; {_TRAIN.format(folder)} makes one"
        )
    if config is None:
        config = TransformerConfig(max_pieces=trained_limit(folder))
    made = TransformerClassifier(model, read_tokenizer(folder), config)
    names = [str(model.config.id2label[c]) for c in range(made.num_classes)]
    classes = about.get("classes", names)
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ModelError(f"{described}: given classes {classes!r:.40}, needed a list of names")
    if len(classes) != made.num_classes:
        raise ModelError(
            f"{described}: given {counted(len(classes), 'class')}, needed {made.num_classes} as "
            "the model has"
        )
    try:
        data = DataConfig.from_dict(about["data"]) if about else DataConfig()
        train = FineTuneConfig.from_dict(about["train"]) if about.get("train") else None
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{described} is damaged ({error!r:.80}); train again, or delete it to give the texts "
            "as --data"
        ) from error
    return LoadedTransformer(
        made.to(device).eval(), made.words, list(classes), data, train, about.get("metadata", {})
    )


def require_encoder(folder: Path, model: Any, missing: set[str]) -> None:
    """Refuse a model a part of whose encoder would be random.

    The classifier may be new, and so may BERT's pooler, which stands before it and which encoders
    that predict masked words lack; position_ids are counted, not learnt.

    Args:
        folder: of the model, named in the error.
        model: as `read_model` gives it.
        missing: the names that it gives.

    Raises:
        ModelError: naming what is missing.
    """
    prefix = f"{model.base_model_prefix}."
    head = {name for name, _ in model.named_parameters() if not name.startswith(prefix)}
    new = head | {name for name in missing if {"pooler", "position_ids"} & set(name.split("."))}
    if missing - new:
        raise _without(folder, missing - new)


def _without(folder: Path, missing: set[str]) -> ModelError:
    more = f" and {counted(len(missing) - 2, 'other')}" if len(missing) > 2 else ""
    return ModelError(
        f"{folder}: given weights without {', '.join(sorted(missing)[:2])}{more}, needed all of "
        f"the model's, in the sizes that {_CONFIG} gives"
    )


def trained_limit(directory: str | Path) -> int | None:
    """Say how many pieces texts had at most when `train --transformer` wrote a folder's model."""
    described = Path(directory) / DESCRIPTION
    found = read_json(described).get("max_pieces") if described.is_file() else None
    if found is not None and type(found) is not int:
        raise ModelError(
            f"{described} is damaged (max_pieces is {found!r:.40}, needed a whole number); train "
            "again, or give --max-pieces"
        )
    return found


def require_folder(directory: str | Path) -> Path:
    """Refuse what is no folder of a model that can be read, before anything is imported for it.

    Raises:
        ModelError: naming what is missing and how to have it.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise ModelError(
            f"transformer: given {str(directory)!r}, which is no folder, needed one with "
            f"{_CONFIG} and {_WEIGHTS[0]}; nothing is downloaded here: get a model of that name "
            "by `hf download NAME --local-dir DIR` and give DIR"
        )
    if not (folder / _CONFIG).is_file():
        begun = (folder / CHECKPOINT).is_dir()
        raise ModelError(
            f"{folder}: given a folder without {_CONFIG}, needed one with it"
            + ("; the same `fastattnerase train` goes on with the training there" if begun else "")
        )
    if not any((folder / name).is_file() for name in _WEIGHTS):
        pickled = [name for name in _PICKLED if (folder / name).is_file()]
        given = f"pickled weights alone ({pickled[0]})" if pickled else "no weights"
        raise ModelError(
            f"{folder}: given {given}, needed {_WEIGHTS[0]}: pickled files are not read, since "
            "they can run code; `save_pretrained` of transformers writes safetensors"
        )
    for path in (*sorted(folder.glob("*.safetensors")), folder / _TOKENIZERS[0]):
        if _is_pointer(path):
            raise ModelError(
                f"{path}: given a pointer of Git LFS, which stands for the file, needed the file "
                "itself; `git lfs pull` in its repository gets it"
            )
    family_of(str(read_json(folder / _CONFIG).get("model_type")))
    return folder


def _is_pointer(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def read_model(folder: Path, classes: int | None = None) -> tuple[Any, set[str]]:
    """Read a sequence classifier, float32, and say which of its weights the folder lacks.

    Args:
        folder: of the model.
        classes: how many a new classifier has; None: as the folder says.

    Returns:
        The model, and the names of weights that are random because the folder has none.

    Raises:
        ModelError: damaged files, or such that transformers cannot make a classifier of; a weight
            that is not finite.
    """
    with needs("text"):
        from safetensors import SafetensorError
    with needs("transformers"):
        from huggingface_hub import errors
        from transformers import AutoModelForSequenceClassification

    # Of a field of another type than it needs; hubs before it check none.
    wrong_field: type[Exception] = getattr(errors, "StrictDataclassError", TypeError)
    own: dict[str, Any] = {}
    if classes is not None:  # one class a text, whatever the classifier was that it replaces
        own = {"num_labels": classes, "problem_type": None}
    try:
        with quiet():
            model, found = AutoModelForSequenceClassification.from_pretrained(
                str(folder),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # named below: transformers' error names none
                **own,
            )
    except (
        OSError, ValueError, RuntimeError, KeyError, TypeError, ArithmeticError, SafetensorError,
        wrong_field,
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{folder}: given files that transformers makes no classifier of ({reason:.200}), "
            f"needed {_CONFIG} and the weights of one model"
        ) from error
    mismatched = {str(name[0]) for name in found["mismatched_keys"]}
    if mismatched and classes is None:
        raise _without(folder, mismatched)
    lacking = {str(name) for name in found["missing_keys"]} | mismatched
    for name, values in model.float().state_dict().items():  # values: any shape
        odd = values.numel() - int(values.isfinite().sum())
        if odd:
            raise ModelError(
                f"{folder}: given {name} with {counted(odd, 'number')} of {values.numel():,} NaN "
                "or infinite, needed finite weights"
            )
    return model, lacking


def read_tokenizer(folder: Path) -> Any:
    """Read a fast tokenizer that takes texts which are split into words.

    Raises:
        ModelError: there is none.
    """
    with needs("transformers"):
        from transformers import AutoTokenizer

    # Without any of these transformers makes a tokenizer that knows no word.
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ModelError(
            f"{folder}: given no tokenizer, needed {_TOKENIZERS[0]} beside the model (or "
            f"{' or '.join(_TOKENIZERS[1:])})"
        )
    spaces = read_json(folder / _CONFIG).get("model_type") == "roberta"
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                # Words that stand alone begin with a space, as they do inside of a text.
                **({"add_prefix_space": True} if spaces else {}),
            )
    except Exception as error:
        # Of a file that it cannot read tokenizers raises Exception itself, no class of its own.
        if type(error) is not Exception and not isinstance(error, (OSError, ValueError, KeyError)):
            raise
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{folder}: given no tokenizer that can be read ({reason:.200}), needed a "
            "tokenizer.json beside the model"
        ) from error
