"""`fastattnerase demo`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fastattnerase.cli.console import Stages, out
from fastattnerase.cli.erase import erase_and_print
from fastattnerase.cli.inputs import OPENING, Device, Input, Seed, choose_device, model_source
from fastattnerase.cli.options import command
from fastattnerase.cli.report import write_report
from fastattnerase.cli.train import train_and_save


@command("fastattnerase demo --out runs/demo")
def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for models, results and report.")
    ] = Path("runs/demo"),
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
    from fastattnerase.studies.serrano_smith.config import COSTS, REPORT_COSTS, Config

    started = time.monotonic()
    device = choose_device(device)
    results = []
    with _one_thread():
        for encoder in ("rnn", "conv", "noenc"):
            name = f"FLAN{encoder}"
            folder = out_folder / name.lower()
            model = ModelConfig(encoder=encoder, embedding_size=64, hidden_size=32, seed=seed)
            training = TrainConfig(
                epochs=8, patience=3, learning_rate=2e-3, batch_size=32, seed=seed
            )
            train_and_save(demo_config(), model, training, folder, device, name)
            stages = Stages(OPENING | COSTS)
            run = folder / "erase"
            source, _ = model_source(Input(model=folder), device, stages, run)
            results.append(erase_and_print(source, Config(seed=seed), run, name, stages))
    page = write_report(results, out_folder / "report", Stages(REPORT_COSTS))
    out.print(f"\nDone in {time.monotonic() - started:.0f} s. Open the report in a browser:")
    out.print(str(page.resolve()), style="bold", soft_wrap=True)


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
