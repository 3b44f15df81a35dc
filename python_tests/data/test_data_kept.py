"""Encoded documents that a run keeps until it is finished."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastattnerase.data import Dataset, Document, Example, Vocabulary, encode
from fastattnerase.data.documents import PackedDocuments, pack
from fastattnerase.data.kept import KEPT, Kept, identity, keep, read_kept
from fastattnerase.data.queries import LeftOut

TEXTS = ["Ein guter Film. Sehr gut!", "…", "nein \U0001f600\u0085 doch", "", "a b\u2028c"]


def dataset(*, queries: bool) -> Dataset:
    examples = [
        Example(
            3 * row, text, row % 2 - 1, *(("Wer war es?", (row % 3,), ((0, 1),)) if queries else ())
        )
        for row, text in enumerate(TEXTS)
    ]
    return encode(examples, Vocabulary(["film", "gut", "wer"]), max_tokens=5)


def values(document: Document) -> list[object]:
    found = [getattr(document, name) for name in Document.__slots__]
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in found]


@pytest.mark.parametrize("queries", [False, True])
def test_what_is_kept_is_what_was_encoded(tmp_path: Path, queries: bool) -> None:
    encoded, dropped = dataset(queries=queries), LeftOut()
    dropped.add("no_label", "a.csv, row 3: given no label, needed one of 2 classes")
    dropped["empty_text"] += 2
    known = identity([], "rules", max_tokens=5)
    about = {"split": "test", "dropped": dropped}
    keep(tmp_path / "run", Kept(encoded, about), known)
    found = read_kept(tmp_path / "run", known)
    assert found is not None
    assert isinstance(found.dataset.documents, PackedDocuments)
    assert list(map(values, found.dataset)) == list(map(values, encoded))
    assert found.dataset.truncated == encoded.truncated == 1
    assert found.dataset.digest() == encoded.digest()
    assert found.dataset.has_queries == queries
    for ours, theirs in zip(found.dataset.numbered(), encoded.numbered(), strict=True):
        assert ours[:2] == theirs[:2]
        assert [a.tobytes() for a in ours[2:]] == [a.tobytes() for a in theirs[2:]]
    assert found.about == about
    assert found.about["dropped"].first == dropped.first
    assert [path.name for path in (tmp_path / "run").iterdir()] == [KEPT]


def test_other_files_or_options_are_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text\na film")
    known = identity([file], "rules", max_tokens=5)
    keep(tmp_path, Kept(dataset(queries=False), {}), known)
    assert read_kept(tmp_path, identity([file], "rules", max_tokens=5)) is not None
    assert read_kept(tmp_path, identity([file], "rules", max_tokens=6)) is None
    assert read_kept(tmp_path, identity([file], "spaces", max_tokens=5)) is None
    file.write_text("text\na fiLm")
    assert read_kept(tmp_path, identity([file], "rules", max_tokens=5)) is None


def test_files_of_a_folder_count(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("one")
    before = identity([tmp_path], "rules")
    (tmp_path / "deep" / "b.txt").write_text("")
    assert identity([tmp_path], "rules") != before


def test_what_is_not_there_or_cut_off_is_read_anew(tmp_path: Path) -> None:
    known = identity([], "rules")
    assert read_kept(tmp_path, known) is None
    keep(tmp_path, Kept(dataset(queries=False), {}), known)
    whole = (tmp_path / KEPT).read_bytes()
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        (tmp_path / KEPT).write_bytes(whole[:size])
        assert read_kept(tmp_path, known) is None


def test_no_documents() -> None:
    assert list(PackedDocuments(pack([]))) == []
