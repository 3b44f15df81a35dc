"""`fastattnerase train`."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastattnerase.cli.console import Stages, TrainingBars, UsageError, counted, out
from fastattnerase.cli.documents import DATA_FILES, advising
from fastattnerase.cli.inputs import (
    READING,
    Device,
    Name,
    Out,
    Seed,
    choose_device,
    print_left_out,
    print_next,
)
from fastattnerase.cli.options import Offer, command
from fastattnerase.data.config import DataConfig
from fastattnerase.data.naming import data_name
from fastattnerase.huggingface.train_config import FineTuneConfig
from fastattnerase.models.config import ModelConfig
from fastattnerase.models.train_config import (
    TrainConfig,
    jain_wallace_pair_training,
    jain_wallace_training,
)
from fastattnerase.plurals import have, plural

if TYPE_CHECKING:
    from fastattnerase.data import PreparedCorpus
else:  # imported where they are used; hints that are read at run time say Any
    PreparedCorpus = Any

_OTHER_LABEL = "with --classes, rows that have none of the labels it names are left out"
# Of options whose default is not the library's.
_DEFAULTS: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 32}
# Options of a training that a fine-tuning has, too, and those that it has not.
_SHARED = ("epochs", "learning_rate", "batch_size")
_OF_MODELS = (
    *("model", "encoder", "attention", "decoder", "mechanism", "temperature", "gumbel_evaluation"),
    *("head", "embedding_size", "hidden_size", "cnn_widths", "dropout_embedding"),
    *("dropout_output", "patience", "batch_tokens", "training", "vectors", "min_count"),
)
_NAMED = 10  # classes whose rows are counted
_LETTERS = 40  # of the name of a class beside its rows
_RECIPES = ("serrano-smith", "jain-wallace")
# The options of files of texts, with which `debate` reads them, too.
OF_DATA = Offer(
    only=(
        *DATA_FILES,
        *("text_column", "label_column", "query_column", "answers_column"),
        *("classes", "split_column", "fractions", "seed"),
        *("language", "sentences", "min_count", "max_tokens", "vectors"),
    ),
    names={"path": "data", "seed": "split_seed"},
    paths=(*DATA_FILES, "vectors"),
)


@command(
    "fastattnerase train --data reviews.csv --text-column review --label-column stars "
    "--model flan --encoder rnn --out runs/flanrnn"
)
def train(
    data: Annotated[DataConfig, OF_DATA],
    model: Annotated[
        ModelConfig,
        Offer(
            only=(
                *("kind", "encoder", "attention", "decoder", "mechanism", "temperature"),
                *("gumbel_evaluation", "head", "embedding_size", "hidden_size", "cnn_widths"),
                *("dropout_embedding", "dropout_output"),
            ),
            names={"kind": "model"},
        ),
    ],
    config: Annotated[
        TrainConfig,
        Offer(
            only=("epochs", "patience", "learning_rate", "batch_size", "batch_tokens"),
            defaults=_DEFAULTS,
        ),
    ],
    tuning: Annotated[
        FineTuneConfig, Offer(only=("warm_up", "weight_decay", "clip_norm", "max_pieces"))
    ],
    context: typer.Context,
    training: Annotated[
        str,
        typer.Option(
            help="Recipe of the training: serrano-smith, or jain-wallace (AMSGrad, weight decay, "
            "class weights, the epoch of the best dev AUC; with a query that of the best dev "
            "accuracy, without class weights), which takes of the other options --epochs and "
            "--seed alone.",
        ),
    ] = "serrano-smith",
    transformer: Annotated[
        Path | None,
        typer.Option(
            help="Instead of training a new model, fine-tune the BERT, RoBERTa or DistilBERT "
            "checkpoint in this folder by AdamW. Of the other options those of the texts count, "
            "and --epochs (3 by default), --learning-rate (5e-5), --batch-size, --warm-up, "
            "--weight-decay, --clip-norm, --max-pieces and --seed.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    name: Name = None,
    out_folder: Out = None,
) -> None:
    """Train an attention model on your text; the same command goes on after an interruption.

    With --query-column it takes two texts, such as a passage and a question about it: the model is
    of kind pair, attends to the first text and reads the second as the query. With --transformer it
    fine-tunes a local checkpoint; nothing is downloaded.
    """
    rows = data.path or data.train
    if rows is None:
        raise UsageError(
            "--data: given no file of texts, needed all rows as --data, or training rows as "
            "--train (and --dev and --test where there are such files)"
        )
    if transformer is not None:
        _fine_tune(context, transformer, data, tuning, config, seed, device, name, out_folder)
        return
    if tuning != FineTuneConfig():
        raise UsageError(
            "--warm-up, --weight-decay, --clip-norm, --max-pieces: given without --transformer, "
            "needed with it"
        )
    if training not in _RECIPES:
        raise UsageError(f"--training: given {training!r}, needed {' or '.join(_RECIPES)}")
    if training == "jain-wallace":
        usual = asdict(TrainConfig(epochs=config.epochs, **_DEFAULTS))
        own = [field for field, value in asdict(config).items() if value != usual[field]]
        if own:
            options = ", ".join(f"--{field.replace('_', '-')}" for field in own)
            raise UsageError(
                f"{options}: given with --training jain-wallace, which has its own, needed with "
                "--training serrano-smith"
            )
        recipe = jain_wallace_training if data.query_column is None else jain_wallace_pair_training
        config = recipe(epochs=config.epochs)
    model = _of_two_texts(model, data)
    of_data = data_name(Path(rows).absolute())
    folder = out_folder or Path("runs") / f"{of_data}-{model.kind}{model.encoder}"
    train_and_save(
        data,
        replace(model, seed=seed),
        replace(config, seed=seed),
        folder,
        choose_device(device),
        name or f"{model.kind.upper()}{model.encoder} on {of_data}",
    )
    print_next("erase --model", folder)


def _fine_tune(
    context: typer.Context,
    checkpoint: Path,
    data: DataConfig,
    tuning: FineTuneConfig,
    config: TrainConfig,
    seed: int,
    device: str,
    name: str | None,
    out_folder: Path | None,
) -> None:
    """Fine-tune a local checkpoint, by the options that were given and the usual others."""
    from fastattnerase.cli.train_transformer import fine_tune_and_save

    def is_given(option: str) -> bool:
        source = context.get_parameter_source(option)
        return source is not None and source.name == "COMMANDLINE"

    if other := [option for option in _OF_MODELS if is_given(option)]:
        options = ", ".join(f"--{option.replace('_', '-')}" for option in other)
        raise UsageError(f"{options}: given with --transformer, needed without it")
    own = {option: getattr(config, option) for option in _SHARED if is_given(option)}
    of_data = data_name(Path(data.path or data.train or "data").absolute())
    folder = out_folder or Path("runs") / f"{of_data}-{checkpoint.name}"
    try:
        tuning = replace(tuning, seed=seed, **own)
    except ValueError as error:
        raise UsageError(f"--{str(error).replace('_', '-', 1)}") from error
    fine_tune_and_save(
        checkpoint,
        data,
        tuning,
        folder,
        choose_device(device),
        name or f"{checkpoint.name} on {of_data}",
    )
    print_next("erase --transformer", folder)


def _of_two_texts(model: ModelConfig, data: DataConfig) -> ModelConfig:
    """Make a model that was left at the usual kind one of two texts, where there are two."""
    if data.query_column is None:
        if model.kind == "pair":
            raise UsageError("--model: given pair without --query-column, needed with it")
        if model.decoder != ModelConfig().decoder:
            raise UsageError(
                f"--decoder: given {model.decoder} without --query-column, needed with it"
            )
        return model
    if model.kind not in (ModelConfig().kind, "pair"):
        raise UsageError(
            f"--model: given {model.kind} with --query-column, needed pair, which reads two texts"
        )
    try:
        return replace(model, kind="pair")
    except ValueError as error:  # such as a head that pairs do not have
        raise UsageError(f"--{error}") from error


def train_and_save(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    folder: Path,
    device: str,
    name: str,
) -> None:
    """Read the texts, train, evaluate on the test split, save the model and print what it is."""
    from fastattnerase.models import build_model, evaluate, save_model
    from fastattnerase.models import train as train_model
    from fastattnerase.models.storage import require_writable
    from fastattnerase.models.training import require_same_options
    from fastattnerase.runs.lock import alone
    from fastattnerase.runs.rundir import provenance
    from fastattnerase.statistics.shares import accuracy_beside, hardly_better, majority

    require_writable(folder)
    with alone(folder):
        require_same_options(folder, model_config, train_config)
        prepared, notices = _read(data, model_config.kind)
        model = build_model(
            model_config, prepared.vocabulary, len(prepared.classes), prepared.embeddings
        )
        with TrainingBars(train_config.epochs) as bars:
            trained = train_model(
                model,
                prepared.train,
                prepared.dev,
                train_config,
                folder,
                progress=bars,
                device=device,
                description={"vectors": data.vectors},
            )
        if trained.resumed_epochs:
            out.print(f"went on after {counted(trained.resumed_epochs, 'finished epoch')}")
        tested = evaluate(model, prepared.test) if len(prepared.test) else None
        chance = {
            split: majority(getattr(prepared, split).sizes.labels) for split in ("dev", "test")
        }
        save_model(
            folder,
            model,
            vocabulary=prepared.vocabulary,
            classes=prepared.classes,
            data_config=data,
            train_config=train_config,
            metadata={
                "name": name,
                "dev_accuracy": trained.dev_accuracy,
                "dev_majority": chance["dev"],
                "test_accuracy": None if tested is None else tested.accuracy,
                "test_majority": chance["test"],
                "best_epoch": trained.best_epoch,
                "epochs": len(trained.history),
                "documents": {
                    split: len(getattr(prepared, split)) for split in ("train", "dev", "test")
                },
                "truncated": {
                    split: getattr(prepared, split).truncated for split in ("train", "dev", "test")
                },
                "test_documents_hash": prepared.test.digest(),
                "dropped": prepared.dropped,
                "notices": notices,
                # `data` has the files as they were given, for another folder these.
                "data_files": {
                    field: str(Path(file).absolute())
                    for field in DATA_FILES
                    if (file := getattr(data, field)) is not None
                },
                "device": device,
            }
            | provenance(),
        )
    accuracy = accuracy_beside("dev", trained.dev_accuracy, chance["dev"])
    accuracy += f" in epoch {trained.best_epoch}"
    judged, of = (trained.dev_accuracy, "dev") if tested is None else (tested.accuracy, "test")
    if tested is not None:
        accuracy += f", {accuracy_beside('test', tested.accuracy, chance['test'])}"
    out.print(f"{name}: {accuracy}; saved in {folder}", soft_wrap=True)
    if hardly_better(judged, chance[of]):
        out.print(
            "Note: this is hardly better than deciding the most frequent class always, so there "
            "is little that attention could explain",
            soft_wrap=True,
        )


def _short(name: str) -> str:
    """Cut the name of a class to what fits a line with others."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def _read(data: DataConfig, kind: str) -> tuple[PreparedCorpus, list[str]]:
    """Read and tokenise the texts of a kind of model; print what they are and what is odd."""
    from fastattnerase.data import DataError, load_corpus, odd_labels, prepare
    from fastattnerase.data.scripts import odd_scripts
    from fastattnerase.data.tokens import find_language

    if data.vectors is not None and not Path(data.vectors).is_file():
        raise UsageError(f"--vectors: given {data.vectors}, which is no file, needed a file")
    try:
        find_language(data.sentences, data.language)
    except DataError as error:
        raise UsageError(f"--{error}") from error
    stages = Stages({READING: 1.0})
    with stages, advising(_OTHER_LABEL, query=data.query_column is not None):
        stages(READING, 0, 1)
        corpus = load_corpus(data)
        prepared = prepare(corpus, data, progress=partial(stages, READING))
    sizes = ", ".join(
        f"{len(split):,} {word}"
        for word, split in (
            ("train", prepared.train),
            ("dev", prepared.dev),
            ("test", prepared.test),
        )
    )
    out.print(
        f"{sizes}; {counted(len(corpus.classes), 'class')}; "
        f"{counted(len(prepared.vocabulary), 'word')}"
    )
    labels = prepared.train.sizes.labels.tolist()
    if len(corpus.classes) <= _NAMED:
        of_class = ", ".join(
            f"{_short(name)} ({labels.count(i):,})" for i, name in enumerate(corpus.classes)
        )
        out.print(f"train: {of_class}", soft_wrap=True)
    print_left_out(
        corpus.dropped,
        sum(split.truncated for split in (prepared.train, prepared.dev, prepared.test)),
        data.max_tokens,
        corpus.first_dropped,
    )
    notices = odd_labels(corpus, data)
    notices += odd_scripts((example.text for example in corpus.train), data)
    for notice in notices:
        out.print(f"Note: {notice}", soft_wrap=True)
    if not len(prepared.dev):
        raise UsageError(
            f"--fractions: given {', '.join(map(str, data.fractions))}, which leaves no dev rows "
            f"beside {counted(len(prepared.train), 'training row')}, needed more rows or a larger "
            "share of dev, from which the best epoch is chosen"
        )
    if kind == "han" and (prepared.train.sizes.sentences <= 1).all():
        out.print(
            "Note: every training text is one sentence, so that attention over sentences has one "
            "item and there is nothing to erase: a flat model, --model flan, attends to words",
            soft_wrap=True,
        )
    if not prepared.vocabulary.words:
        out.print(
            f"Note: no word occurs {data.min_count} {plural(data.min_count, 'time')} "
            "(--min-count), so all are unknown words and documents differ in length alone",
            soft_wrap=True,
        )
    if data.vectors:
        found = prepared.vectors_found
        out.print(f"{counted(found, 'word')} {have(found)} a vector")
    return prepared, notices
