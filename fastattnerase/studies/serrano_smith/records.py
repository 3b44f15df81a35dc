"""What a run's record says of its model and its data; nothing is read from the run's name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastattnerase.data.naming import data_name, stem
from fastattnerase.studies.serrano_smith.result import Result

_FILES = ("path", "train", "dev", "test")
# Of `DataConfig`, what decides which rows are erased from.
_ROWS = ("reader", "text_column", "label_column", "split_column", "classes", "fractions", "seed")
NO_ENCODER = "noenc"


@dataclass(frozen=True)
class Architecture:
    """The parts of a model that a comparison goes by, as its configuration has them.

    Attributes:
        kind: `flan`, `han` or another kind of `ModelConfig`.
        encoder: of `ModelConfig`.
        attention: how items are scored.
        mechanism: from scores to weights.
    """

    kind: str
    encoder: str
    attention: str = "additive"
    mechanism: str = "softmax"

    @property
    def encodes(self) -> bool:
        """Whether there is an encoder before the attention."""
        return self.encoder != NO_ENCODER

    @property
    def title(self) -> str:
        """The parts as the paper writes them, such as `HANrnn`, with what it did not have."""
        more = [self.attention] * (self.attention != "additive")
        more += [self.mechanism] * (self.mechanism != "softmax")
        return " ".join([f"{self.kind.upper()}{self.encoder}", *more])


def architecture(result: Result) -> Architecture | None:
    """Read which model a run is about; None where its record does not say, as of tensors."""
    config = result.run.source.get("model_config")
    if not isinstance(config, dict) or not {"kind", "encoder"} <= set(config):
        return None
    parts = ("kind", "encoder", "attention", "mechanism")
    return Architecture(**{part: str(config[part]) for part in parts if part in config})


def corpora(results: Sequence[Result]) -> list[str]:
    """Name the data that each run erased from, by its record.

    Args:
        results: finished runs.

    Returns:
        For each run the study's name of its corpus, or the name of its file without extension, of
        `train.csv` and its like that of the folder, with folder, file, label column and split where
        these tell data apart; empty where the record does not say, as of tensors. Runs on the same
        data have the same name, others have not.
    """
    known = [_names(result.run.source) for result in results]
    different = dict.fromkeys(known)
    named = {}
    for names in different:
        taken = {name for other in different if other != names for name in other}
        named[names] = next(name for name in names if name not in taken)
    return [named[names] for names in known]


def _names(source: dict[str, Any]) -> tuple[str, ...]:
    """Give names of the data that a source tells of, the shortest first; the last tells all."""
    if "corpus" in source:
        return str(source["corpus"]), f"{source['corpus']} (of a study)"
    data = source.get("data")
    data = data if isinstance(data, dict) else {}
    given = {key: data[key] for key in _FILES if data.get(key)}
    if not given:
        return ("",)
    files = {key: os.path.abspath(file) for key, file in given.items()}
    path = Path(given.get("path") or given.get("train") or min(given.values()))
    # Where the file was is the record's; a bare name says nothing of the folder it was read in.
    short = data_name(path)
    longer = f"{path.absolute().parent.name}/{stem(path)}"
    by = f"{longer} by {data.get('label_column') or 'no label'}"
    split = f"{by}, {source.get('split')} of seed {data.get('seed')}"
    about = files | {key: data.get(key) for key in _ROWS} | {"split": source.get("split")}
    return short, longer, by, split, ", ".join(f"{key} {value}" for key, value in about.items())
