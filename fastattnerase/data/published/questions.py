"""Presets of two texts: a story or an article with a question, a premise with a hypothesis."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from fastattnerase.data.cleaning import clean_text, clean_words
from fastattnerase.data.config import DataConfig
from fastattnerase.data.files import find_file
from fastattnerase.data.published.record import NO_LIMIT, DataPreset, Draw
from fastattnerase.data.readers.babi import answer_words
from fastattnerase.data.readers.cnn_cloze import entities
from fastattnerase.data.readers.snli import CLASSES
from fastattnerase.data.splits import SPLITS

_TASKS = (1, 2, 3)


def _snli(root: Path) -> DataConfig:
    files = [find_file(root / "snli" / f"snli_1.0_{split}.jsonl") for split in SPLITS]
    config = DataConfig(
        reader="snli", query_column="query", classes=CLASSES, fractions=(1.0, 0.0, 0.0)
    )
    if all(file.exists() for file in files):  # messages then name the file of a row
        train, dev, test = map(str, files)
        return replace(config, train=train, dev=dev, test=test)
    return replace(config, path=str(root / "snli"), split_column="split")


def _task(root: Path, task: int, split: str) -> Path:
    """Find a file of a task; a name that says what is missing where there is none."""
    folder, name = root / "babi", f"qa{task}_*_{split}.txt"
    return next(iter(sorted(folder.glob(f"{name}*"))), folder / name)


def _babi(task: int, root: Path) -> DataConfig:
    return DataConfig(
        train=str(_task(root, task, "train")),
        test=str(_task(root, task, "test")),
        reader="babi",
        query_column="query",
        spans_column="spans",
        sentences="spaces",
        fractions=(1.0, 0.0, 0.0),
    )


def _babi_answers(root: Path) -> tuple[str, ...]:
    files = [_task(root, task, "train") for task in _TASKS]
    return answer_words([file for file in files if file.exists()] or files[:1])


def _cnn_file(root: Path, name: str, folder: str) -> Path:
    folders = root / "cnn" / "questions" / folder
    return folders if folders.is_dir() else find_file(root / "cnn" / f"{name}.txt")


def _cnn(root: Path) -> DataConfig:
    return DataConfig(
        train=str(_cnn_file(root, "train", "training")),
        dev=str(_cnn_file(root, "dev", "validation")),
        test=str(_cnn_file(root, "test", "test")),
        reader="cnn_cloze",
        query_column="query",
        answers_column="answers",
        sentences="spaces",
    )


def _cnn_answers(root: Path) -> tuple[str, ...]:
    return entities(_cnn_file(root, "train", "training"))


PRESETS: dict[str, DataPreset] = {
    "snli": DataPreset(
        "SNLI",
        _snli,
        clean_text,
        3,
        0,
        NO_LIMIT,
        "without a training file the dev file is trained on, but for 15 % of it, which are dev",
        draws=(Draw(16377, 0.15),),
    ),
    **{
        f"babi_{task}": DataPreset(
            f"bAbI {task}",
            partial(_babi, task),
            clean_words,
            1,
            0,
            NO_LIMIT,
            "as many questions as the files have: 1,000 in `en`, the published 10,000 in `en-10k`",
            draws=(Draw(16377, 0.15),),
            answers=_babi_answers,
            lower_case=False,
        )
        for task in _TASKS
    },
    "cnn": DataPreset(
        "CNN",
        _cnn,
        clean_words,
        8,
        0,
        NO_LIMIT,
        answers=_cnn_answers,
        answers_are_words=True,
        lower_case=False,
    ),
}
