"""ERASER's data sets: a folder of documents, and annotations with the words that explain them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import find_file, open_text, stream_json
from fastattnerase.data.readers.registry import register_reader, require_columns
from fastattnerase.plurals import counted

_COLUMNS = ("text", "query", "label", "spans", "split", "id")
_FILES = (("train", "train.jsonl"), ("dev", "val.jsonl"), ("test", "test.jsonl"))


@register_reader("eraser")
def read_eraser(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the annotations of a folder as ERASER distributes it.

    The folder has `docs/`, a file a document, and `train.jsonl`, `val.jsonl` and `test.jsonl`, all
    of them plain or compressed, of which one may stand alone. Columns: `text`, the document, or the
    documents that an annotation names one after another; `query`; `label`; `spans`, the words of
    the evidences, pairs of the first, counted from 0, and the one after the last; `split`; `id`.
    Words are what white space separates.

    Args:
        path: the folder.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: no annotations, a missing document or column, an annotation of another form,
            words outside of a document or other ones than the evidence says.

    Source: DeYoung et al., ACL 2020.
    """
    require_columns(path, columns, _COLUMNS)
    found = [(split, find_file(path / name)) for split, name in _FILES]
    found = [(split, file) for split, file in found if file.exists()]
    if not found or not (path / "docs").is_dir():
        raise DataError(
            f"{path}: given a folder without docs or annotations, needed docs and some of "
            "train.jsonl, val.jsonl and test.jsonl"
        )
    for split, file in found:
        for number, annotation in enumerate(stream_json(file), start=1):
            row = _row(path / "docs", annotation, f"{file}, annotation {number}") | {"split": split}
            yield {column: row[column] for column in columns}


def _row(docs: Path, annotation: Mapping[str, Any], where: str) -> dict[str, object]:
    """Read one annotation and its documents."""
    try:
        name, label = str(annotation["annotation_id"]), str(annotation["classification"])
        evidences = [one for group in annotation["evidences"] for one in group]
        places = [
            (str(one["docid"]), int(one["start_token"]), int(one["end_token"]), one.get("text"))
            for one in evidences
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{where}: given an annotation without {error}, needed annotation_id, classification "
            "and evidences, lists of lists of docid, start_token and end_token"
        ) from error
    names = [str(doc) for doc in annotation.get("docids") or ()]
    names = list(dict.fromkeys([*names, *(doc for doc, *_ in places)])) or [name]
    texts: list[str] = []
    begins: dict[str, int] = {}
    words: list[str] = []
    for doc in names:
        with open_text(find_file(docs / doc)) as file:
            texts.append(file.read())
        begins[doc] = len(words)
        words += texts[-1].split()
    ends = dict(zip(names, [*list(begins.values())[1:], len(words)], strict=True))
    spans = []
    for doc, first, last, text in places:
        begin, end = begins[doc] + first, begins[doc] + last
        if not begins[doc] <= begin <= end <= ends[doc]:
            raise DataError(
                f"{where}: given evidence at the words {first}:{last} of {doc}, needed some of its "
                f"{counted(ends[doc] - begins[doc], 'word')}"
            )
        if text is not None and str(text).split() != words[begin:end]:
            raise DataError(
                f"{where}: given the evidence {text!r:.60} at the words {first}:{last} of {doc}, "
                f"needed its words, {' '.join(words[begin:end])!r:.60}"
            )
        spans.append((begin, end))
    query = annotation.get("query")
    return {
        "text": "\n".join(texts),
        "query": query if isinstance(query, str) else "",
        "label": label,
        "spans": sorted(spans),
        "id": name,
    }
