"""bAbI tasks as distributed: numbered sentences of stories, with questions between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_text
from fastattnerase.data.readers.registry import register_reader, require_columns

_COLUMNS = ("text", "query", "label", "spans")


@register_reader("babi")
def read_babi(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the questions of a task's file, each with its story so far.

    Columns: `text`, the sentences before the question without their full stops, joined by ` . `;
    `query`, the question without its mark; `label`, the answer; `spans`, the sentences that support
    it as words of `text`, pairs of the first, counted from 0, and the one after the last. Words are
    what spaces separate; their case is kept.

    Args:
        path: a file such as `qa1_single-supporting-fact_train.txt`, plain or compressed.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: a line without a number, a story without a question, a question without a
            sentence before it, without an answer, or with a supporting fact that is no sentence
            before it; a missing column.

    Source: Weston et al., ICLR 2016.
    """
    require_columns(path, columns, _COLUMNS)
    story: dict[str, tuple[int, int]] = {}  # number of a sentence → its words
    words: list[str] = []
    begun, asked = 0, True
    number = 0
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            first, _, rest = line.strip().partition(" ")
            if not (first.isascii() and first.isdigit()):
                raise DataError(
                    f"{where}: given {line.strip()[:40]!r}, needed a number and a sentence"
                )
            if int(first) == 1:
                _require_question(path, begun, asked)
                story, words, begun, asked = {}, [], number, False
            if "\t" not in rest:
                sentence = rest.strip()
                if sentence.endswith("?"):
                    raise DataError(
                        f"{where}: given a question alone, needed question, answer and numbers of "
                        "supporting sentences with TABs between"
                    )
                words += ["."] if words else []
                start = len(words)
                words += sentence.removesuffix(".").split()
                story[first] = start, len(words)
                continue
            asked = True
            question, answer, facts = (*(part.strip() for part in rest.split("\t")), "")[:3]
            if not words or not answer:
                lacks = "an answer" if words else "a sentence of the story before it"
                raise DataError(f"{where}: given a question without {lacks}, needed one")
            missing = [fact for fact in facts.split() if fact not in story]
            if missing:
                raise DataError(
                    f"{where}: given the supporting sentence {missing[0]}, needed numbers of "
                    "sentences of the story before it"
                )
            row = {
                "text": " ".join(words),
                "query": question.removesuffix("?").strip(),
                "label": answer,
                "spans": [story[fact] for fact in facts.split()],
            }
            yield {column: row[column] for column in columns}
    _require_question(path, begun, asked)


def _require_question(path: Path, begun: int, asked: bool) -> None:
    if not asked:
        raise DataError(
            f"{path}, line {begun}: given a story without a question, needed at least one"
        )


def answer_words(paths: Sequence[Path]) -> tuple[str, ...]:
    """Give every word of files' stories, questions and answers, sorted: what may be answered.

    Example:
        >>> answer_words([])
        ()
    """
    found: set[str] = set()
    for path in paths:
        for row in read_babi(path, ("text", "query", "label")):
            found.update(str(row["text"]).split(), str(row["query"]).split(), [str(row["label"])])
    return tuple(sorted(found))
