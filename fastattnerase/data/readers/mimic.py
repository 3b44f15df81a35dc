"""Discharge summaries and diagnoses of MIMIC-III, from its tables, which the user has access to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import find_file, open_text
from fastattnerase.data.readers.delimited import read_csv
from fastattnerase.data.readers.registry import register_reader, require_columns

_COLUMNS = ("text", "label", "admission")
_NOTES = ("ROW_ID", "HADM_ID", "CHARTDATE", "CATEGORY", "DESCRIPTION", "TEXT")
_DIAGNOSES = ("HADM_ID", "ICD9_CODE")
_LISTS = {"train": "train_50_hadm_ids", "dev": "dev_50_hadm_ids", "test": "test_50_hadm_ids"}

Codes = set[str]


@register_reader("mimic_anemia")
def read_mimic_anemia(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the discharge summaries of admissions with one of two anemias.

    Columns: `text`, the summary: its reports, then its addenda, each by date and row number, joined
    by a line break; empty where an admission has none, so that it is left out and counted; `label`,
    `acute` (a diagnosis 285.1, none 285.2) or `chronic` (the other way round); `admission`, its
    number, by which rows are sorted.

    Args:
        path: the folder of `NOTEEVENTS.csv` and `DIAGNOSES_ICD.csv`, plain or `.gz`, `.xz`, `.zst`.
            Diagnoses are written without the point, as MIMIC-III has them.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a missing table or column, an admission or a row that has no number.

    Source: Johnson et al., Scientific Data 2016; Jain and Wallace, NAACL 2019.
    """
    require_columns(path, columns, _COLUMNS)
    labels = {}
    for admission, codes in _diagnoses(path).items():
        acute, chronic = _has(codes, "2851"), _has(codes, "2852")
        if acute != chronic:
            labels[admission] = "acute" if acute else "chronic"
    texts = _summaries(path, labels)
    for admission in sorted(labels):
        row = {
            "text": texts.get(admission, ""),
            "label": labels[admission],
            "admission": str(admission),
        }
        yield {column: row[column] for column in columns}


@register_reader("mimic_diabetes")
def read_mimic_diabetes(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the discharge summaries of listed admissions: with diabetes 250.00, or without.

    Columns as those of `mimic_anemia`, with `label` `diabetes` (a diagnosis 250.00) or `other`, and
    `split`.

    Args:
        path: the folder of both tables and of the user's lists of admissions,
            `train_50_hadm_ids.csv`, `dev_50_hadm_ids.csv` and `test_50_hadm_ids.csv`, a number a
            line, in the order of the rows.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: as `read_mimic_anemia`; a missing list, a line that is no number, an admission
            without a discharge summary or without a diagnosis, or listed twice.

    Source: Johnson et al., Scientific Data 2016; Mullenbach et al., NAACL 2018.
    """
    require_columns(path, columns, (*_COLUMNS, "split"))
    listed: dict[int, tuple[str, str]] = {}  # admission → split, where it is listed
    for split, name in _LISTS.items():
        for where, admission in _list(_table(path, name)):
            if admission in listed:
                raise DataError(
                    f"{where}: given admission {admission} again, which is in "
                    f"{listed[admission][1]}, needed each once"
                )
            listed[admission] = split, where
    diagnoses, texts = _diagnoses(path), _summaries(path, listed)
    for admission, (split, where) in listed.items():
        for table, found, what in (
            ("DIAGNOSES_ICD", diagnoses, "diagnosis"),
            ("NOTEEVENTS", texts, "discharge summary"),
        ):
            if admission not in found:
                raise DataError(
                    f"{where}: given admission {admission}, which has no {what} in "
                    f"{_table(path, table)}, needed one"
                )
        row = {
            "text": texts[admission],
            "label": "diabetes" if _has(diagnoses[admission], "25000") else "other",
            "admission": str(admission),
            "split": split,
        }
        yield {column: row[column] for column in columns}


def _table(folder: Path, name: str) -> Path:
    return find_file(folder / f"{name}.csv")


def _list(path: Path) -> Iterator[tuple[str, int]]:
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip() and not (number == 1 and line.strip() == "HADM_ID"):
                where = f"{path}, line {number}"
                yield where, _number(line.strip(), where)


def _number(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise DataError(f"{where}: given {text[:40]!r}, needed a number")
    return int(text)


def _diagnoses(folder: Path) -> dict[int, Codes]:
    """Read the codes of each admission."""
    path = _table(folder, "DIAGNOSES_ICD")
    found: dict[int, Codes] = {}
    for number, row in enumerate(read_csv(path, _DIAGNOSES), start=1):
        admission = _number(str(row["HADM_ID"]), f"{path}, row {number}")
        found.setdefault(admission, set()).add(str(row["ICD9_CODE"]).strip())
    return found


def _has(codes: Codes, prefix: str) -> bool:
    return any(code.startswith(prefix) for code in codes)


def _summaries(folder: Path, admissions: Collection[int]) -> dict[int, str]:
    """Read the discharge summaries of some admissions: reports before addenda, in order."""
    path = _table(folder, "NOTEEVENTS")
    parts: dict[int, list[tuple[bool, str, int, str]]] = {}
    for number, row in enumerate(read_csv(path, _NOTES), start=1):
        # Notes of outpatients have no admission.
        if str(row["CATEGORY"]).strip() != "Discharge summary" or not row["HADM_ID"]:
            continue
        where = f"{path}, row {number}"
        admission = _number(str(row["HADM_ID"]), where)
        if admission in admissions:
            addendum = str(row["DESCRIPTION"]).strip() == "Addendum"
            date, line = str(row["CHARTDATE"]), _number(str(row["ROW_ID"]), where)
            part = addendum, date, line, str(row["TEXT"])
            parts.setdefault(admission, []).append(part)
    return {key: "\n".join(part[-1] for part in sorted(some)) for key, some in parts.items()}
