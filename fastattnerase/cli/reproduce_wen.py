"""`fastattnerase reproduce wen`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastattnerase.cli.console import command, number_or_name, out
from fastattnerase.cli.inputs import choose_device
from fastattnerase.cli.reproduce import app
from fastattnerase.cli.watcher import Watcher

_MOST_SEEDS = 10_000  # every seed is a model of each kind


@command(
    app,
    "fastattnerase reproduce wen --data-root corpora --datasets sst --seeds 3 --out runs/wen "
    "--jobs 2",
)
def wen(
    data_root: Annotated[
        Path, typer.Option(help="Folder with a folder of each data set (sst, imdb, 20news, …).")
    ],
    datasets: Annotated[
        str,
        typer.Option(
            help="Of the grid, commas between: sst, imdb, imdb_5k, ag_news, 20news_sports, psytar."
        ),
    ] = "sst,20news_sports,imdb_5k,ag_news",
    seeds: Annotated[
        int, typer.Option(min=1, max=_MOST_SEEDS, help="Of the grid: 0 to N - 1.")
    ] = 3,
    encoders: Annotated[str, typer.Option(help="Of the grid.")] = "bilstm,cnn,mlp",
    attentions: Annotated[str, typer.Option(help="Of the grid.")] = "additive,deep,dot",
    mechanisms: Annotated[
        str, typer.Option(help="Of the grid: softmax, also sparsemax.")
    ] = "softmax",
    studies: Annotated[
        str,
        typer.Option(
            help="grid (Figure 2), gumbel (Table 5), fix (Table 2), adversary (Tables 3, 4)."
        ),
    ] = "grid,gumbel,fix,adversary",
    small_datasets: Annotated[
        str, typer.Option(help="Of the studies but the grid.")
    ] = "sst,20news_sports",
    small_seeds: Annotated[
        int, typer.Option(min=1, max=_MOST_SEEDS, help="Of the studies but the grid.")
    ] = 1,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Word vectors in GloVe's text format; default: the file in DATA_ROOT/glove, and "
            "random ones where there is none.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Of every model but adversaries.")] = 8,
    adversary_epochs: Annotated[int, typer.Option(min=1, help="At most.")] = 80,
    adversary_patience: Annotated[
        int, typer.Option(min=1, help="Epochs without a lower training loss.")
    ] = 10,
    strength: Annotated[
        float | None, typer.Option(help="λ of adversaries; default: the published ones.")
    ] = None,
    tvd: Annotated[
        float, typer.Option(help="Factor of the outputs' difference in an adversary's loss.")
    ] = 0.5,
    hidden_size: Annotated[
        int, typer.Option(min=1, help="Units of MLP, and of BiLSTM in a direction.")
    ] = 128,
    channels: Annotated[
        int, typer.Option(min=1, help="Filters of each of the CNN's five widths; the paper: 128.")
    ] = 32,
    embedding_size: Annotated[int, typer.Option(min=1, help="Without --vectors.")] = 300,
    attention_size: Annotated[
        int | None,
        typer.Option(min=1, help="Of additive and deep; default: half the encoder's output."),
    ] = None,
    attention_depth: Annotated[int, typer.Option(min=1, help="Layers of deep attention.")] = 2,
    scaled_dot: Annotated[bool, typer.Option(help="Dot attention divides by √width.")] = False,
    activation: Annotated[str, typer.Option(help="Of the MLP: tanh or relu.")] = "tanh",
    temperature: Annotated[float, typer.Option(help="Of Gumbel-softmax.")] = 0.8,
    gumbel_noise: Annotated[
        str, typer.Option(help="In training: fresh, or shared: a document keeps its own.")
    ] = "fresh",
    gumbel_hard: Annotated[bool, typer.Option(help="Straight through.")] = False,
    selection: Annotated[str, typer.Option(help="Of the epoch, on dev: auc or accuracy.")] = "auc",
    class_weights: Annotated[str, typer.Option(help="In training: balanced or none.")] = "balanced",
    attention_weight_decay: Annotated[float, typer.Option(min=0, help="The rest has 1e-5.")] = 0.0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Cut documents after so many words.")
    ] = None,
    max_train: Annotated[
        int | None, typer.Option(min=1, help="Training documents, at most.")
    ] = None,
    max_test: Annotated[int | None, typer.Option(min=1, help="Test documents, at most.")] = None,
    ranks: Annotated[
        str, typer.Option(help="How many are measured: both, weights, length, or a number.")
    ] = "both",
    max_ranks: Annotated[int | None, typer.Option(min=1, help="No rank beyond it.")] = None,
    clusters: Annotated[
        str, typer.Option(help="Of states: largest, smallest, or a number.")
    ] = "largest",
    codebook: Annotated[
        str, typer.Option(help="rank: one for each; shared: one for all.")
    ] = "rank",
    algorithm: Annotated[str, typer.Option(help="Of k-means: full or mini_batch.")] = "full",
    output_clusters: Annotated[int, typer.Option(min=2, help="Of two-class outputs.")] = 5,
    output_space: Annotated[
        str, typer.Option(help="What is clustered of outputs: logit or probability.")
    ] = "logit",
    exclude: Annotated[
        str, typer.Option(help="Items not ranked: masked, zero_weight or none.")
    ] = "masked",
    shuffles: Annotated[
        int,
        typer.Option(
            min=0,
            help="Of the control: 20 and more, or 0 for none; then nothing is told from chance.",
        ),
    ] = 100,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Where everything goes; an interrupted run goes on there.")
    ] = Path("runs/wen"),
    jobs: Annotated[
        int, typer.Option(min=1, help="Models at a time; several use one thread each.")
    ] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "cpu",
) -> None:
    """Reproduce Wen, Subbalakshmi and Yang 2022: does information follow attention?

    Trains every model, measures the mutual information between ranked states and outputs, and
    writes the report. Finished cells are never redone; the same command goes on after a kill.
    More data sets, seeds or studies can be added later in the same folder.
    """
    from fastattnerase.runs import schedule
    from fastattnerase.runs.rundir import RunError
    from fastattnerase.studies.wen.options import Options
    from fastattnerase.studies.wen.report import build
    from fastattnerase.studies.wen.units import Wen

    if not data_root.is_dir():
        raise RunError(f"--data-root {data_root}: no such folder")
    if vectors is None:
        files = sorted((data_root / "glove").glob("*.txt*"))
        vectors = files[0] if files else None
    elif not vectors.is_file():
        raise RunError(f"--vectors {vectors}: no such file")
    options = Options(
        datasets=_names(datasets),
        seeds=tuple(range(seeds)),
        encoders=_names(encoders),
        attentions=_names(attentions),
        mechanisms=_names(mechanisms),
        studies=_names(studies),
        small_datasets=_names(small_datasets),
        small_seeds=tuple(range(small_seeds)),
        vectors=None if vectors is None else str(vectors),
        embedding_size=embedding_size,
        hidden_size=hidden_size,
        channels=channels,
        attention_size=attention_size,
        attention_depth=attention_depth,
        scaled_dot=scaled_dot,
        activation=activation,
        temperature=temperature,
        gumbel_noise=gumbel_noise,
        gumbel_hard=gumbel_hard,
        selection=selection,
        class_weights=class_weights,
        attention_weight_decay=attention_weight_decay,
        epochs=epochs,
        adversary_epochs=adversary_epochs,
        adversary_patience=adversary_patience,
        strength=strength,
        tvd=tvd,
        max_tokens=max_tokens,
        max_train=max_train,
        max_test=max_test,
        ranks=number_or_name(ranks),
        clusters=number_or_name(clusters),
        codebook=codebook,
        algorithm=algorithm,
        output_clusters=output_clusters,
        output_space=output_space,
        exclude=exclude,
        shuffles=shuffles,
        max_ranks=max_ranks,
    )
    if vectors is None:
        out.print(f"no word vectors: {embedding_size} random numbers a word, trained")
    workspace = Wen(options, data_root, out_folder, choose_device(device))
    with Watcher(_describe) as watcher:
        schedule.run(workspace, jobs, watcher)
    page = build(workspace, out_folder / "report")
    out.print(str(page.resolve()), style="bold", soft_wrap=True)
    reasons = [
        (f"{cell.key} {name}", measured["reason"])
        for cell, result in workspace.results().items()
        for name, measured in result["measurements"].items()
    ]
    missing = [(name, reason) for name, reason in reasons if reason]
    for name, reason in missing:
        out.print(f"not measured: {name}: {reason}", soft_wrap=True)
    if len(missing) == len(reasons):
        raise RunError("no cell could be measured; change the options that the reasons name")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _describe(result: dict[str, Any]) -> str:
    if "about" in result:
        from fastattnerase.studies.wen.report import left_out

        documents = result["about"]["documents"]
        used = ", ".join(f"{sum(n.values()):,} {split}" for split, n in documents.items())
        unused = ", ".join(f"{n:,} {why}" for why, n in left_out(result["about"]).items())
        about = f"{used}; left out: {unused or 'none'}"
        if not result["about"]["words"]:
            about += "; no word is frequent enough for the vocabulary, so all are unknown words"
        return about
    return f"test accuracy {result['accuracy']:.3f}"
