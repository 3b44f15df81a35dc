"""The `fastattnerase` command."""

from __future__ import annotations

import contextlib
import functools
import importlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fastattnerase.cli import reproduce, reproduce_serrano_smith, reproduce_wen  # noqa: F401
from fastattnerase.cli.console import command, counted
from fastattnerase.cli.console import err as _err
from fastattnerase.cli.console import out as _out
from fastattnerase.cli.console import progress as _progress
from fastattnerase.cli.inputs import (
    Backend,
    Device,
    Out,
    choose_backend,
    choose_device,
    model_source,
    print_left_out,
    require_one_of_both,
    stem,
    tensor_source,
)
from fastattnerase.cli.measure import measure

# Everything heavy but torch is imported inside the commands, so that --help answers soon.
if TYPE_CHECKING:
    from fastattnerase.data import DataConfig
    from fastattnerase.models import ModelConfig, TrainConfig
    from fastattnerase.sources import Source
    from fastattnerase.studies.serrano_smith.experiment import Config, Result

app = typer.Typer(
    name="fastattnerase",
    help="Does attention explain this decision? Train attention models on your text, erase what "
    "they attend to, and read the report.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(reproduce.app, name="reproduce")
_command = functools.partial(command, app)


# --- options shared by commands ------------------------------------------------------------------

_MAX_SEED = 2**63 - 1
Seed = Annotated[int, typer.Option(min=0, max=_MAX_SEED, help="Of everything random.")]


@_command("fastattnerase demo --out runs/demo")
def demo(
    out: Annotated[Path, typer.Option(help="Where model, results and report go.")] = Path(
        "runs/demo"
    ),
    seed: Seed = 0,
    device: Device = "cpu",
) -> None:
    """Train three small models on 3,000 real sentences, erase, and write the report.

    Flat attention networks with a recurrent, a convolutional and no encoder, side by side. The
    sentences ship with the package: reviews of films, products and restaurants, good or bad (UCI
    sentiment labelled sentences, CC BY 4.0).
    """
    from fastattnerase.data import demo_config
    from fastattnerase.models import ModelConfig, TrainConfig
    from fastattnerase.studies.serrano_smith.experiment import Config

    started = time.monotonic()
    device = choose_device(device)
    results = []
    with _one_thread():
        for encoder in ("rnn", "conv", "noenc"):
            name = f"FLAN{encoder}"
            folder = out / name.lower()
            model = ModelConfig(encoder=encoder, embedding_size=64, hidden_size=32, seed=seed)
            training = TrainConfig(
                epochs=8, patience=3, learning_rate=2e-3, batch_size=32, seed=seed
            )
            _train(demo_config(), model, training, folder, device, name)
            source, _ = model_source(folder, None, None, None, False, device)
            results.append(_erase(source, Config(seed=seed), folder / "erase", name))
    page = _report(results, out / "report")
    _out.print(f"\nDone in {time.monotonic() - started:.0f} s. Open the report in a browser:")
    _out.print(str(page.resolve()), style="bold", soft_wrap=True)


@_command(
    "fastattnerase train --data reviews.csv --text-column review --label-column stars "
    "--model flan --encoder rnn --out runs/flanrnn"
)
def train(
    data: Annotated[
        Path | None,
        typer.Option(help="All rows: CSV, TSV, JSON lines or Parquet, also .gz, .xz, .zst."),
    ] = None,
    train_data: Annotated[
        Path | None, typer.Option("--train", help="Training rows, instead of --data.")
    ] = None,
    dev_data: Annotated[
        Path | None, typer.Option("--dev", help="Development rows; drawn where not given.")
    ] = None,
    test_data: Annotated[
        Path | None, typer.Option("--test", help="Test rows; drawn where not given.")
    ] = None,
    text_column: Annotated[str, typer.Option(help="Column of the texts.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    split_column: Annotated[
        str | None, typer.Option(help="Column that says train, dev or test.")
    ] = None,
    fractions: Annotated[
        tuple[float, float, float], typer.Option(help="Train, dev and test shares of a draw.")
    ] = (0.8, 0.1, 0.1),
    split_seed: Annotated[int, typer.Option(min=0, max=_MAX_SEED, help="Of the drawn split.")] = 0,
    min_count: Annotated[int, typer.Option(help="Rarer words are unknown words.")] = 2,
    max_tokens: Annotated[int | None, typer.Option(help="Cut longer documents here.")] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Word vectors in GloVe's text format.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="flan: attention over words; han: over sentences; sequence: over words between "
            "markers that only the encoder reads."
        ),
    ] = "flan",
    encoder: Annotated[str, typer.Option(help="rnn, bilstm, conv, cnn, mlp or noenc.")] = "rnn",
    attention: Annotated[str, typer.Option(help="additive, deep, dot or uniform.")] = "additive",
    mechanism: Annotated[
        str, typer.Option(help="From scores to weights: softmax, gumbel or sparsemax.")
    ] = "softmax",
    temperature: Annotated[float, typer.Option(help="Of --mechanism gumbel.")] = 0.8,
    gumbel_evaluation: Annotated[
        str, typer.Option(help="Gumbel noise when the model is applied: off or on.")
    ] = "off",
    head: Annotated[str, typer.Option(help="softmax, or for two classes sigmoid.")] = "softmax",
    training: Annotated[
        str,
        typer.Option(
            help="serrano-smith, or jain-wallace: AMSGrad, weight decay, class weights, chosen by "
            "dev AUC; --epochs and --seed alone are then heeded."
        ),
    ] = "serrano-smith",
    embedding_size: Annotated[
        int, typer.Option(help="Width of word embeddings; that of --vectors where given.")
    ] = 200,
    hidden_size: Annotated[int, typer.Option(help="Units a direction, filters a width.")] = 50,
    dropout_embedding: Annotated[float, typer.Option(help="On word embeddings.")] = 0.4445,
    dropout_output: Annotated[float, typer.Option(help="In the classification layer.")] = 0.3457,
    epochs: Annotated[int, typer.Option(help="At most so many.")] = 15,
    patience: Annotated[int, typer.Option(help="Epochs without a better dev accuracy.")] = 5,
    learning_rate: Annotated[
        float,
        typer.Option(
            help="Of Adam, at the start; for thousands of texts. The paper's models, on a hundred "
            "times as many, took 1e-4 to 4e-4."
        ),
    ] = 1e-3,
    batch_size: Annotated[
        int, typer.Option(help="Documents of a batch, at most; the paper: 64.")
    ] = 32,
    batch_tokens: Annotated[
        int, typer.Option(help="Longest document times documents of a batch, at most.")
    ] = 20_000,
    seed: Seed = 0,
    device: Device = "auto",
    name: Annotated[
        str | None, typer.Option(help="For reports; default: model and data.", show_default=False)
    ] = None,
    out: Out = None,
) -> None:
    """Train an attention model on your text; the same command goes on after an interruption."""
    from fastattnerase.data import DataConfig
    from fastattnerase.models import ModelConfig, TrainConfig
    from fastattnerase.models.train_config import jain_wallace
    from fastattnerase.runs.rundir import RunError

    files = {"--train": train_data, "--dev": dev_data, "--test": test_data}
    named = [option for option, path in files.items() if path is not None]
    if data is not None and named:
        raise RunError(f"--data has all rows, so it does not go with {' and '.join(named)}")
    if data is None and train_data is None:
        raise RunError(
            "no file of texts given; give all rows as --data, or training rows as --train (and "
            "--dev and --test where there are such files)"
        )
    if split_column is not None and data is None:
        raise RunError("--split-column goes with --data, not with --train")
    data_config = DataConfig(
        path=_text(data),
        train=_text(train_data),
        dev=_text(dev_data),
        test=_text(test_data),
        text_column=text_column,
        label_column=label_column,
        split_column=split_column,
        fractions=fractions,
        seed=split_seed,
        min_count=min_count,
        max_tokens=max_tokens,
        vectors=_text(vectors),
    )
    model_config = ModelConfig(
        kind=model,
        encoder=encoder,
        attention=attention,
        mechanism=mechanism,
        temperature=temperature,
        gumbel_evaluation=gumbel_evaluation,  # type: ignore[arg-type]
        head=head,  # type: ignore[arg-type]
        embedding_size=embedding_size,
        hidden_size=hidden_size,
        dropout_embedding=dropout_embedding,
        dropout_output=dropout_output,
        seed=seed,
    )
    if training not in ("serrano-smith", "jain-wallace"):
        raise RunError(f"--training is {training!r}; serrano-smith or jain-wallace is needed")
    if training == "jain-wallace":
        train_config = jain_wallace(epochs=epochs, seed=seed)
    else:
        train_config = TrainConfig(
            epochs=epochs,
            patience=patience,
            learning_rate=learning_rate,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            seed=seed,
        )
    own = stem(data or train_data)
    folder = out or Path("runs") / f"{own}-{model}{encoder}"
    name = name or f"{model.upper()}{encoder} on {own}"
    _train(data_config, model_config, train_config, folder, choose_device(device), name)
    _next("erase --model", folder)


@_command("fastattnerase erase --model runs/flanrnn --out runs/flanrnn/erase")
def erase(
    model: Annotated[
        Path | None, typer.Option(help="A folder that `train` wrote.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="All rows of this file; default: the model's own test split."),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the texts; default: as in training.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the labels; default: as in training.")
    ] = None,
    unlabelled: Annotated[bool, typer.Option(help="--data has no labels.")] = False,
    tensors: Annotated[
        Path | None,
        typer.Option(
            help="Instead of a model, any attention layer in a safetensors file: values [T, D], "
            "offsets [B + 1], scores or weights [T], head_weight [C, D], head_bias [C]; "
            "labels, ids [B] and logits [B, C] where known."
        ),
    ] = None,
    random_orders: Annotated[
        int, typer.Option(min=1, help="Random rankings of each instance.")
    ] = 1,
    random_item: Annotated[
        str,
        typer.Option(
            help="The random item of the single-item test: different (from the top item), uniform, "
            "legacy (as the published code)."
        ),
    ] = "different",
    resamples: Annotated[int, typer.Option(min=1, help="Of the bootstrap.")] = 1000,
    seed: Seed = 0,
    backend: Backend = "auto",
    device: Device = "auto",
    name: Annotated[
        str | None, typer.Option(help="For reports; default: the model's.", show_default=False)
    ] = None,
    out: Out = None,
) -> None:
    """Erase items, most important first, until each decision changes; write a run directory.

    Serrano and Smith's two tests with the exact smallest set. The same command goes on after an
    interruption.
    """
    from fastattnerase.runs.rundir import RunError
    from fastattnerase.studies.serrano_smith.experiment import Config

    require_one_of_both(model, data, tensors)
    if random_item not in ("different", "uniform", "legacy"):
        raise RunError(f"--random-item is {random_item!r}; different, uniform or legacy is needed")
    config = Config(
        seed=seed,
        random_orders=random_orders,
        random_item=random_item,  # type: ignore[arg-type]
        backend=choose_backend(backend),
        resamples=resamples,
    )
    device = choose_device(device)
    source: Source
    if model is not None:
        source, own = model_source(model, data, text_column, label_column, unlabelled, device)
        default = model / ("erase" if data is None else f"erase-{stem(data)}")
    else:
        source, own = tensor_source(tensors, device), stem(tensors)
        default = Path("runs") / f"{own}-erase"
    result = _erase(source, config, out or default, name or own)
    _next("report", result.folder)


_command("fastattnerase measure --model runs/flanrnn --out runs/flanrnn/measure")(measure)


@_command("fastattnerase report runs/flanrnn/erase runs/hanrnn/erase --out report")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories that `erase` wrote, or model folders with one run."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to; default: `report` in the first run.")
    ] = None,
) -> None:
    """Write one HTML page on one run or several side by side, with figures and tables as files."""
    from fastattnerase.studies.serrano_smith import experiment

    results = [experiment.load(_find_run(run)) for run in runs]
    page = _report(results, out or results[0].folder / "report")
    _out.print(str(page.resolve()), soft_wrap=True)


@_command("fastattnerase export runs/flanrnn/erase --out runs/flanrnn/original")
def export(
    run: Annotated[
        Path, typer.Argument(help="A run directory that `erase` wrote, or a model folder with one.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to; default: `original` in the run.")
    ] = None,
) -> None:
    """Write a run as CSV files in the field layout of Serrano and Smith's published code."""
    from fastattnerase.studies.serrano_smith import experiment
    from fastattnerase.studies.serrano_smith.published_layout import export as write

    result = experiment.load(_find_run(run))
    for path in write(result, out or result.folder / "original"):
        _out.print(str(path), soft_wrap=True)


@_command("fastattnerase info")
def info() -> None:
    """Print versions, build, instruction sets, and what can run here and why the rest cannot."""
    import fastattnerase as fae
    from fastattnerase.runs.rundir import provenance

    about = provenance()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for package, version in about["versions"].items():
        table.add_row(package, version)
    for key, value in about["machine"].items():
        table.add_row(key, "none" if value is None else str(value))
    try:
        native: Any = importlib.import_module("fastattnerase._C")
    except ImportError as error:
        table.add_row("native module", f"cannot be loaded: {error}")
    else:
        cuda = "with" if native.has_cuda else "without"
        table.add_row("native module", f"{native.version}, built {cuda} CUDA kernels")
        table.add_row(
            "instruction sets",
            f"{', '.join(native.cpu_variants())}; in use: {native.cpu_variant()}",
        )
    for backend, reasons in fae.backends().items():
        table.add_row(
            f"backend {backend}", "cannot run: " + "; ".join(reasons) if reasons else "ok"
        )
    _out.print(table)


# --- what the commands share ---------------------------------------------------------------------


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: models this small are no faster on more, and much slower when busy."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _next(command: str, folder: Path) -> None:
    """Print the command that usually follows, as it can be pasted."""
    line = f"fastattnerase {command} {shlex.quote(str(folder))}"
    _out.print(Text.assemble("Next: ", (line, "bold")), soft_wrap=True)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _train(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    folder: Path,
    device: str,
    name: str,
) -> None:
    """Read, train, judge on the test split, save."""
    from fastattnerase.data import load_corpus, prepare
    from fastattnerase.models import build_model, evaluate, save_model
    from fastattnerase.models import train as train_model
    from fastattnerase.models.storage import require_writable
    from fastattnerase.runs.rundir import RunError, provenance

    require_writable(folder)
    if data.vectors is not None and not Path(data.vectors).is_file():
        raise RunError(f"--vectors {data.vectors}: no such file")
    with _err.status("reading the texts"):
        corpus = load_corpus(data)
        prepared = prepare(corpus, data)
    sizes = ", ".join(
        f"{len(split):,} {word}"
        for word, split in (
            ("train", prepared.train),
            ("dev", prepared.dev),
            ("test", prepared.test),
        )
    )
    _out.print(f"{sizes}; {len(corpus.classes)} classes; {len(prepared.vocabulary):,} words")
    print_left_out(
        corpus.dropped,
        sum(split.truncated for split in (prepared.train, prepared.dev, prepared.test)),
        data.max_tokens,
    )
    if not prepared.vocabulary.words:
        _out.print(
            f"Note: no word occurs {data.min_count} times (--min-count), so all are unknown words "
            "and documents differ in length alone",
            soft_wrap=True,
        )
    if data.vectors:
        _out.print(f"{prepared.vectors_found:,} words have a vector")
    model = build_model(model_config, prepared.vocabulary, len(corpus.classes), prepared.embeddings)
    with _progress() as progress:
        trained = train_model(
            model,
            prepared.train,
            prepared.dev,
            train_config,
            folder,
            progress=progress,
            device=device,
            description={"vectors": data.vectors},
        )
    if trained.resumed_epochs:
        _out.print(f"went on after {counted(trained.resumed_epochs, 'finished epoch')}")
    tested = evaluate(model, prepared.test) if len(prepared.test) else None
    save_model(
        folder,
        model,
        vocabulary=prepared.vocabulary,
        classes=corpus.classes,
        data_config=data,
        train_config=train_config,
        metadata={
            "name": name,
            "dev_accuracy": trained.dev_accuracy,
            "test_accuracy": None if tested is None else tested.accuracy,
            "best_epoch": trained.best_epoch,
            "epochs": len(trained.history),
            "documents": {
                split: len(getattr(prepared, split)) for split in ("train", "dev", "test")
            },
            "truncated": {
                split: getattr(prepared, split).truncated for split in ("train", "dev", "test")
            },
            "test_documents_hash": prepared.test.digest(),
            "dropped": corpus.dropped,
            "device": device,
        }
        | provenance(),
    )
    accuracy = f"dev accuracy {trained.dev_accuracy:.3f} (epoch {trained.best_epoch})"
    if tested is not None:
        accuracy += f", test accuracy {tested.accuracy:.3f}"
    _out.print(f"{name}: {accuracy}; saved in {folder}", soft_wrap=True)


def _erase(source: Source, config: Config, folder: Path, name: str) -> Result:
    from fastattnerase.studies.serrano_smith import experiment

    with _progress() as progress:
        task = progress.add_task("erasing", total=len(source))

        def show(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        result = experiment.run(source, config, folder, name=name, on_progress=show)
    _summary(result)
    return result


def _summary(result: Result) -> None:
    from fastattnerase.studies.serrano_smith.figures import NAMES
    from fastattnerase.studies.serrano_smith.sentences import (
        notices,
        percent,
        times,
        typical_gap,
        verdict,
    )

    table = Table(title=result.run["name"], title_justify="left", box=None, padding=(0, 2, 0, 0))
    for title in ("ranking", "flip", "median erased", "over smallest set"):
        table.add_column(title, justify="left" if title == "ranking" else "right")
    for record in result.result["multi"]:
        table.add_row(
            NAMES[record["ranking"]],
            percent(record["share_flipped"]["value"], 1),
            percent(record["fraction"]["median"]["value"], 1),
            times(typical_gap(result, record["ranking"])),
        )
    _out.print(table)
    _out.print(verdict(result), soft_wrap=True)
    for notice in notices(result):
        _out.print(f"Note: {notice}", soft_wrap=True)


def _find_run(folder: Path) -> Path:
    """Give a run directory, or the one run that `erase` wrote into a model's folder."""
    from fastattnerase.mi.runs import KIND, TABLES
    from fastattnerase.runs.rundir import RUN, RunError, read_json

    measured = [folder] if (folder / RUN).exists() else []
    if measured and read_json(folder / RUN).get("kind") != KIND:
        return folder
    runs = sorted(path.parent for path in folder.glob(f"erase*/{RUN}"))
    measured = measured or [path.parent for path in sorted(folder.glob(f"measure*/{RUN}"))]
    if measured and not runs:
        raise RunError(
            f"{measured[0]} holds a measurement, which has no report of this kind: its tables are "
            f"{', '.join(f'{table}.csv' for table in TABLES)} in it; name a run directory that "
            "`erase` wrote"
        )
    pages = [page for page in ("report.html", "wen.html") if (folder / "report" / page).is_file()]
    if pages and (folder / "manifest.json").is_file():
        inside = sorted(str(path.parent) for path in folder.glob(f"erase/*/*/{RUN}"))
        raise RunError(
            f"{folder} is a folder of `reproduce`; its report is {folder / 'report' / pages[0]}"
            + (f", its runs are {', '.join(inside)}" if inside else "")
        )
    if len(runs) > 1:
        raise RunError(f"{folder} holds several runs; name one of {', '.join(map(str, runs))}")
    return runs[0] if runs else folder


def _report(results: list[Result], folder: Path) -> Path:
    from fastattnerase.studies.serrano_smith.report import build

    with _err.status("writing the report"):
        return build(results, folder)
