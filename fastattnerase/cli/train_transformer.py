"""`fastattnerase train --transformer`: fine-tuning of a local checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastattnerase.cli.console import Stages, TrainingBars, UsageError, counted, out
from fastattnerase.cli.documents import DATA_FILES, advising
from fastattnerase.cli.inputs import READING, print_left_out
from fastattnerase.cli.transformers import fit_counted
from fastattnerase.data.config import DataConfig
from fastattnerase.runs.progress import tracked

if TYPE_CHECKING:
    from fastattnerase.data import Corpus, Dataset
    from fastattnerase.huggingface import FineTuneConfig, Pieces
    from fastattnerase.models import EpochRecord
else:  # imported where they are used; hints that are read at run time say Any
    Corpus = Dataset = EpochRecord = FineTuneConfig = Pieces = Any


def fine_tune_and_save(
    checkpoint: Path,
    data: DataConfig,
    config: FineTuneConfig,
    folder: Path,
    device: str,
    name: str,
) -> None:
    """Read the texts, fine-tune, evaluate on the test split, save the model and print what it is.

    Args:
        checkpoint: The option --transformer.
        data: The texts.
        config: How to train.
        folder: Where to write.
        device: Where to train.
        name: In reports.
    """
    from fastattnerase.data import load_corpus, odd_labels
    from fastattnerase.data.queries import LeftOut
    from fastattnerase.huggingface import fine_tune, new_classifier, save_fine_tuned
    from fastattnerase.huggingface.loading import require_folder
    from fastattnerase.huggingface.training import judged
    from fastattnerase.models.storage import require_writable
    from fastattnerase.runs.lock import alone
    from fastattnerase.runs.rundir import provenance
    from fastattnerase.statistics.shares import accuracy_beside, hardly_better, majority

    if data.query_column is not None:
        raise UsageError(
            "--query-column: given with --transformer, needed without it: one text is read"
        )
    if folder.resolve() == checkpoint.resolve():
        raise UsageError(f"--out: given {folder}, the folder of --transformer, needed another")
    require_folder(checkpoint)
    require_writable(folder)
    with alone(folder):
        stages = Stages({READING: 1.0})
        with stages, advising("with --classes, rows that have none of its labels are left out"):
            stages(READING, 0, 1)
            corpus = load_corpus(data)
            model = new_classifier(checkpoint, corpus.classes, config)
            splits = {
                split: _encoded(corpus, split, data, model.words, stages)
                for split in ("train", "dev", "test")
            }
        test_hash = _without_spans(
            _encoded(corpus, "test", data, model.words.fresh(), None)
        ).digest()
        dropped = LeftOut()
        dropped.update(corpus.dropped)
        dropped.first.update(corpus.first_dropped)
        fitted = {split: fit_counted(model, found, dropped) for split, found in splits.items()}
        sizes = ", ".join(f"{len(found):,} {split}" for split, found in fitted.items())
        out.print(f"{sizes}; {counted(len(corpus.classes), 'class')}")
        print_left_out(
            dropped,
            sum(found.truncated for found in fitted.values()),
            model.limit,
            dropped.first,
            "piece",
        )
        notices = odd_labels(corpus, data)
        for notice in notices:
            out.print(f"Note: {notice}", soft_wrap=True)
        if not len(fitted["dev"]):
            raise UsageError(
                f"--fractions: given {', '.join(map(str, data.fractions))}, which leaves no dev "
                "rows, needed some, from which the best epoch is chosen"
            )
        with TrainingBars(config.epochs) as bars:
            trained = fine_tune(
                model,
                fitted["train"],
                fitted["dev"],
                config,
                folder,
                device=device,
                description={"checkpoint": str(checkpoint.name)},
                **_callbacks(bars, config.epochs, len(fitted["train"])),
            )
        if trained.resumed_epochs:
            out.print(f"went on after {counted(trained.resumed_epochs, 'finished epoch')}")
        tested = judged(model, fitted["test"])[0] if len(fitted["test"]) else None
        chance = {split: majority(fitted[split].sizes.labels) for split in ("dev", "test")}
        save_fine_tuned(
            folder,
            model,
            classes=corpus.classes,
            data_config=data,
            train_config=config,
            metadata={
                "name": name,
                "dev_accuracy": trained.dev_accuracy,
                "dev_majority": chance["dev"],
                "test_accuracy": tested,
                "test_majority": chance["test"],
                "best_epoch": trained.best_epoch,
                "epochs": len(trained.history),
                "seconds": sum(record.seconds for record in trained.history),
                "documents": {split: len(found) for split, found in fitted.items()},
                "truncated": {split: found.truncated for split, found in fitted.items()},
                "test_documents_hash": test_hash,
                "dropped": dict(dropped),
                "notices": notices,
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
    shown, of = (trained.dev_accuracy, "dev") if tested is None else (tested, "test")
    if tested is not None:
        accuracy += f", {accuracy_beside('test', tested, chance['test'])}"
    out.print(f"{name}: {accuracy}; saved in {folder}", soft_wrap=True)
    if hardly_better(shown, chance[of]):
        out.print(
            "Note: this is hardly better than deciding the most frequent class always, so there "
            "is little that attention could explain",
            soft_wrap=True,
        )


def _encoded(
    corpus: Corpus, split: str, data: DataConfig, words: Pieces, stages: Stages | None
) -> Dataset:
    """Tokenise the texts of a split."""
    from fastattnerase.data import encode, tokenise

    examples: Sequence[Any] = getattr(corpus, split)
    told: Iterable[Any] = examples
    if stages is not None:
        told = tracked(examples, len(examples), READING, stages)
    return encode(tokenise(told, **data.tokenisation), words, max_tokens=data.max_tokens)


def _without_spans(dataset: Dataset) -> Dataset:
    from fastattnerase.data import Dataset

    return Dataset([replace(document, spans=None) for document in dataset])


def _callbacks(bars: TrainingBars, epochs: int, documents: int) -> dict[str, Any]:
    """Make what shows a training's progress."""
    whole = bars.add_task("training", total=epochs, completed=0)
    part = bars.add_task("epoch", total=documents)

    def advance(epoch: int, count: int) -> None:
        bars.update(part, advance=count, description=f"epoch {epoch}")

    def ended(record: EpochRecord) -> None:
        text = f"training (dev accuracy {record.dev_accuracy:.3f})"
        bars.update(whole, completed=record.epoch, description=text)
        bars.reset(part, total=documents)

    return {"advance": advance, "ended": ended}
