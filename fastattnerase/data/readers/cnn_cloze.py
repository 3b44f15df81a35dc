"""Cloze questions on CNN articles whose entities are anonymous, in two forms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns
from fastattnerase.plurals import counted

_COLUMNS = ("text", "query", "label", "answers")
_ENTITY = re.compile(r"@entity\d+")


@register_reader("cnn_cloze")
def read_cnn_cloze(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the questions, each with its article.

    Columns: `text`, the article; `query`, the question, with `@placeholder` for the answer;
    `label`, the answer, such as `@entity7`; `answers`, the entities that are in the article, by
    number. Texts stay as they are.

    Args:
        path: a file of records with blank lines between, lines question, answer and article, what
            follows is not read (Chen et al.: `train.txt`, `dev.txt`, `test.txt`), plain or
            compressed; or a folder of files `*.question`, one a question, with blank lines between
            address, article, question, answer and names of entities (Hermann et al.).
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: no such file, a folder without questions, a record with fewer parts, an answer
            that is no entity, a missing column.

    Source: Hermann et al., NeurIPS 2015; Chen, Bolton and Manning, ACL 2016.
    """
    require_columns(path, columns, _COLUMNS)
    for where, question, answer, article in _folder(path) if path.is_dir() else _file(path):
        if not _ENTITY.fullmatch(answer):
            raise DataError(f"{where}: given the answer {answer!r}, needed an entity @entityN")
        entities = {word for word in article.split() if _ENTITY.fullmatch(word)}
        row = {
            "text": article,
            "query": question,
            "label": answer,
            "answers": sorted(entities, key=entity_number),
        }
        yield {column: row[column] for column in columns}


def entity_number(entity: str) -> int:
    """Give the number of an entity such as `@entity7`.

    Example:
        >>> entity_number("@entity7")
        7
    """
    return int(entity.removeprefix("@entity"))


def entities(path: Path) -> tuple[str, ...]:
    """Give all entities of a file's or folder's articles, by number: what may be answered."""
    found: set[str] = set()
    for row in read_cnn_cloze(path, ("answers",)):
        answers = row["answers"]
        assert isinstance(answers, list)
        found.update(answers)
    return tuple(sorted(found, key=entity_number))


def _file(path: Path) -> Iterator[tuple[str, str, str, str]]:
    record: list[str] = []
    start = 0
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            line = line.strip()
            if line:
                start = start if record else number
                record.append(line)
            elif record:
                yield _parts(f"{path}, line {start}", record)
                record = []
    if record:
        yield _parts(f"{path}, line {start}", record)


def _parts(where: str, record: list[str]) -> tuple[str, str, str, str]:
    if len(record) < 3:
        raise DataError(
            f"{where}: given a record of {counted(len(record), 'line')}, needed question, answer "
            "and article"
        )
    return where, record[0], record[1], record[2]


def _folder(path: Path) -> Iterator[tuple[str, str, str, str]]:
    files = sorted(path.glob("*.question"))
    if not files:
        raise DataError(f"{path}: given a folder without questions, needed files *.question")
    for name in files:
        with open_text(name) as file:
            blocks = [block.strip() for block in re.split(r"\r?\n\s*\n", file.read().strip())]
        if len(blocks) < 4:
            raise DataError(
                f"{name}: given {counted(len(blocks), 'part')}, needed address, article, question, "
                "answer and entities with blank lines between"
            )
        yield str(name), blocks[2], blocks[3], blocks[1]
