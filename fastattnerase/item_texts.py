"""Texts of the items of dumped tensors: a line an instance, read where they are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastattnerase.plurals import counted
from fastattnerase.runs.rundir import RunError

_JSON = (".jsonl", ".ndjson", ".json")


class ItemTexts:
    """A file with the texts of each instance's items, in the order of the instances.

    A line of a `.jsonl`, `.ndjson` or `.json` file is a JSON list of texts, `["A", "good film"]`;
    of any other file words with white space between. A blank line is an instance without items.

    Args:
        path: the file.
        lengths: `[B]`, int64, items of each instance.

    Raises:
        RunError: no such file, or one of another form; other numbers of lines or texts than of
            instances and items, naming the instance.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "tokens.txt"
        ...     _ = path.write_text("A good film\\n\\nBad\\n")
        ...     ItemTexts(path, torch.tensor([3, 0, 1])).read(0, 2)
        [['A', 'good', 'film'], []]
    """

    def __init__(self, path: Path, lengths: Tensor) -> None:
        self.path = path
        self._is_json = path.suffix.lower() in _JSON
        if not path.is_file():
            raise RunError(f"{path}: no such file")
        ends = [0]
        needed = lengths.tolist()
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if number < len(needed):
                    _check_length(str(path), number, self._texts(line, number), needed[number])
                ends.append(ends[-1] + len(line))
        if len(ends) - 1 != len(needed):
            raise RunError(
                f"{path}: given {counted(len(ends) - 1, 'line')}, needed {len(needed)}, one for "
                "each instance"
            )
        self._ends = torch.tensor(ends)  # [B + 1], bytes

    def read(self, start: int, stop: int) -> list[list[str]]:
        """Read the texts of the instances from number `start` to before `stop`."""
        with self.path.open("rb") as file:
            file.seek(int(self._ends[start]))
            lines = file.read(int(self._ends[stop] - self._ends[start])).split(b"\n")
        return [self._texts(line, start + i) for i, line in enumerate(lines[: stop - start])]

    def _texts(self, line: bytes, number: int) -> list[str]:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RunError(f"{self.path}: line {number + 1}: given no UTF-8: {error}") from error
        if not self._is_json or not text.strip():
            return text.split()
        return list_of_texts(text, f"{self.path}: line {number + 1}")


def texts_of_instances(text: str, name: str, lengths: Tensor) -> list[list[str]]:
    """Read a JSON list with a list of texts for each instance of so many items."""
    found = _from_json(text, name)
    if not isinstance(found, list) or not all(map(_are_texts, found)):
        raise RunError(f"{name}: given {text:.40}, needed a JSON list of lists of texts")
    if len(found) != len(lengths):
        raise RunError(
            f"{name}: given {counted(len(found), 'list')}, needed {len(lengths)}, one for each "
            "instance"
        )
    for instance, (texts, items) in enumerate(zip(found, lengths.tolist(), strict=True)):
        _check_length(name, instance, texts, items)
    return found


def list_of_texts(text: str, name: str) -> list[str]:
    """Read a JSON list of texts."""
    found = _from_json(text, name)
    if not _are_texts(found):
        raise RunError(f'{name}: given {text.strip():.40}, needed a JSON list of texts, ["a", "b"]')
    return list(found)


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(text, str) for text in found)


def _from_json(text: str, name: str) -> Any:
    try:
        found = json.loads(text)
        if "\\u" in text:  # half a pair of surrogates, which no result could be written with
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise RunError(f"{name}: given no JSON: {error}") from error


def _check_length(name: str, instance: int, texts: list[str], items: int) -> None:
    if len(texts) != items:
        raise RunError(
            f"{name}: given {counted(len(texts), 'text')} for instance {instance}, needed "
            f"{items}, one for each item that offsets tell of"
        )
