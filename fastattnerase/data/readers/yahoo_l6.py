"""Yahoo Answers as Yahoo distributes it: Webscope L6, XML in parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import COMPRESSIONS, open_binary
from fastattnerase.data.readers.registry import register_reader, require_columns

CATEGORIES = (
    "Society & Culture",
    "Science & Mathematics",
    "Health",
    "Education & Reference",
    "Computers & Internet",
    "Sports",
    "Business & Finance",
    "Entertainment & Music",
    "Family & Relationships",
    "Politics & Government",
)

_COLUMNS = ("text", "label")
_TEXTS = ("subject", "content", "bestanswer")
_PART = re.compile(r"(?i)^(.*\.xml)(\.part(\d+))?(\.(?:xz|gz|zst))?$")
_CHUNK_BYTES = 1 << 20
# Control characters that XML 1.0 forbids, and that the questions hold, become spaces.
_CONTROLS = bytes(32 if byte < 32 and byte not in (9, 10, 13) else byte for byte in range(256))


@register_reader("yahoo_l6")
def read_yahoo_l6(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the questions: subject, content and best answer joined by a space, in XML order.

    Columns: `text`, and `label`, the main category (None where a question has none).

    Args:
        path: the folder with the file or its parts, one XML file, or its first part
            (`FullOct2007.xml.part1`), whose others are read after it; plain or `.xz`, `.gz`,
            `.zst`. Parts are pieces of one XML document, or documents of their own. Each is read
            once.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: no file, a part missing, XML that does not parse.
    """
    require_columns(path, columns, _COLUMNS)
    for document in _documents(_parts(path)):
        # In XML order, which is that of the published code.
        fields = [child.text or "" for child in document if child.tag in _TEXTS]
        category = document.findtext("maincat")
        row = {"text": " ".join(field for field in fields if field), "label": category}
        yield {column: row[column] for column in columns}


def _parts(path: Path) -> list[Path]:
    """Find all parts, in order."""
    if path.is_dir():
        found = [p for p in path.iterdir() if _PART.match(p.name)]
        stems = {_PART.sub(r"\1", p.name) for p in found}
        if len(stems) != 1:
            raise DataError(
                f"{path}: given {', '.join(sorted(stems)) or 'none'}, needed XML files of one "
                "name, plain or in parts"
            )
    elif (match := _PART.match(path.name)) and match[2] and path.exists():
        found = [
            p
            for p in path.parent.iterdir()
            if (other := _PART.match(p.name)) and other[1] == match[1] and other[2]
        ]
    else:
        return [path]
    numbered = sorted((int(_PART.match(p.name)[3] or 0), p) for p in found)  # type: ignore[index]
    numbers = [number for number, _ in numbered]
    if numbers != [0] and numbers != list(range(1, len(numbers) + 1)):
        raise DataError(
            f"{path}: given {', '.join(p.name for _, p in numbered)}, needed parts 1, 2, ... of "
            f"one file, each once (plain or {', '.join(COMPRESSIONS)})"
        )
    return [part for _, part in numbered]


def _documents(parts: Sequence[Path]) -> Iterator[Element]:
    parser: Any = None  # XMLPullParser's events are of many types to a type checker
    root: Element | None = None
    for path in parts:
        start = True
        with open_binary(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                if parser is None or (start and _begins_a_document(chunk)):
                    parser, root = XMLPullParser(("start", "end")), None
                start = False
                try:
                    parser.feed(chunk.translate(_CONTROLS))
                    for event, element in parser.read_events():
                        root = element if root is None else root
                        if event == "end" and element.tag == "document":
                            yield element
                            root.clear()  # or the whole corpus would pile up in memory
                except ParseError as error:
                    raise DataError(f"{path} is not the XML of Yahoo L6: {error}") from error


def _begins_a_document(chunk: bytes) -> bool:
    return chunk.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"<?xml", b"<ystfeed"))
