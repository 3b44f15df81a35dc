"""Every file format, plain and compressed, gives the same rows; bad files give one message."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastattnerase.data import READERS, DataError, readers, register_reader
from fastattnerase.data.errors import MissingColumnError
from fastattnerase.data.files import open_text, split_suffix
from fastattnerase.data.readers import find_reader

ROWS = [
    {"text": 'He said "no", twice.', "label": "1", "other": "x"},
    {"text": "two\nlines", "label": "0", "other": ""},
    {"text": "NA", "label": "01", "other": "null"},
    {"text": "naïve – ☃", "label": "1", "other": "y"},
    {"text": "", "label": "0", "other": "z"},
]
CSV = (
    "other,text,label\n"
    'x,"He said ""no"", twice.",1\n'
    ',"two\nlines",0\n'
    "null,NA,01\n"
    "y,naïve – ☃,1\n"
    "z,,0\n"
)


def compress(content: bytes, suffix: str) -> bytes:
    if suffix == ".xz":
        return lzma.compress(content)
    if suffix == ".gz":
        return gzip.compress(content)
    if suffix == ".zst":
        return pa.compress(content, codec="zstd", asbytes=True)
    return content


def read(path: Path, *columns: str) -> list[dict[str, object]]:
    return [dict(row) for row in find_reader(path)(path, columns)]


@pytest.mark.parametrize("compression", ["", ".xz", ".gz", ".zst"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".CSV"])
def test_formats_give_the_same_rows(tmp_path: Path, suffix: str, compression: str) -> None:
    if suffix == ".tsv":
        content = CSV.replace("\n", "\r").replace(",", "\t").replace('""no""\t', '""no"",')
        content = content.replace("\r", "\n")
    elif suffix == ".jsonl":
        content = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"
    else:
        content = CSV
    path = tmp_path / f"rows{suffix}{compression}"
    path.write_bytes(compress(content.encode(), compression))
    wanted = [{"label": row["label"], "text": row["text"]} for row in ROWS]
    assert read(path, "label", "text") == wanted


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"label": [1, 0, None], "text": ["a", "b", None], "x": [1, 2, 3]}), path
    )
    assert read(path, "text", "label") == [
        {"text": "a", "label": 1},
        {"text": "b", "label": 0},
        {"text": None, "label": None},
    ]


def test_json_keeps_types(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    path.write_text('{"text": "a", "label": 1}\n{"label": "b", "text": null, "more": []}\n')
    assert read(path, "label", "text") == [{"label": 1, "text": "a"}, {"label": "b", "text": None}]


def test_many_rows_come_in_order(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(20_000)))
    rows = read(path, "text", "label")
    assert len(rows) == 20_000
    assert rows[12_345] == {"text": "word 12345", "label": "1"}


def test_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbftext,label\nhello,1\n")
    assert read(path, "text") == [{"text": "hello"}]


def test_unquoted_tsv_keeps_quotes(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text('category\ttokens\n1\t"Great" film\n2\tan "open quote\n')
    rows = [dict(r) for r in find_reader(path, "tsv-unquoted")(path, ["category", "tokens"])]
    assert rows == [
        {"category": "1", "tokens": '"Great" film'},
        {"category": "2", "tokens": 'an "open quote'},
    ]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("compression", ["", ".xz", ".gz", ".zst"])
def test_a_byte_that_is_not_utf8_is_located(tmp_path: Path, suffix: str, compression: str) -> None:
    separator = "\t" if suffix == ".tsv" else ","
    lines = [f"text{separator}label".encode()] + [f"w{separator}1".encode()] * 3000
    if suffix == ".jsonl":
        lines = [b'{"text": "w", "label": 1}'] * 3001
    before = b"\n".join(lines) + b"\n"
    path = tmp_path / f"rows{suffix}{compression}"
    path.write_bytes(compress(before + b"caf\xe9\n", compression))
    message = rf"rows{suffix}{compression} is not UTF-8: byte 0xe9 at offset {len(before) + 3} "
    with pytest.raises(DataError, match=message + r"\(line 3002, byte 4 of the line\)"):
        read(path, "text", "label")


def test_a_character_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("text,label\nabc,é".encode()[:-1])
    with pytest.raises(DataError, match=r"not UTF-8: byte 0xc3 at offset 15 \(line 2"):
        read(path, "text", "label")


def damaged_gzip() -> bytes:
    """A deflate stream whose blocks are of no known type, in a whole gzip file."""
    # Without a time: tests are named after it, and workers must collect the same names.
    whole = gzip.compress(CSV.encode(), mtime=0)
    return whole[:10] + b"\x07" * 40 + whole[-8:]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "given an empty file, needed a header line"),
        ("a.csv", b"text,label\na,1\nb,2,3\n", "row 2: given 3 fields, needed 2, as the"),
        ("a.csv", b"txt,lab\na,1\n", r"no column 'text', 'label'; its columns are 'txt', 'lab'"),
        ("a.csv", b"text,lab\n", r"no column 'label'; its columns are 'text', 'lab'"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "b"}\n', r"line 2 has no column 'label'"),
        ("a.jsonl", b'{"text": \n', "line 1: given no JSON"),
        ("a.jsonl", b"[1]\n", "line 1: given a JSON list"),
        ("a.parquet", b"no parquet", "cannot be read as Parquet"),
        ("a.parquet.gz", b"", "compresses inside"),
        ("a.docx", b"", r"given file type '.docx', needed one of .*\.csv.*\.parquet"),
        ("noextension", b"", r"given file type '\(no extension\)'"),
        ("a.csv.xz", b"no xz", r"a\.csv\.xz cannot be read"),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-12], r"a\.csv\.gz cannot be read"),
        ("a.csv.gz", damaged_gzip(), r"a\.csv\.gz cannot be read: Error -3"),
        ("a.jsonl.gz", damaged_gzip(), r"a\.jsonl\.gz cannot be read: Error -3"),
        ("a.csv.zst", b"no zst", r"a\.csv\.zst cannot be read"),
        ("a.jsonl", b"[" * 100_000, "line 1 is JSON that cannot be read"),
        ("a.jsonl", b"\n1" + b"0" * 5000, "line 2 is JSON that cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(path, "text", "label")


def test_text_of_parquet_that_is_not_utf8_is_located(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array([b"good", b"fine", b"caf\xe9"], pa.binary()).cast(pa.string(), safe=False)
    table = pa.table({"text": pa.array(texts), "label": [1, 2, 3]})
    pq.write_table(table, path, row_group_size=2)
    with pytest.raises(DataError, match=r"a\.parquet, row 3, column 'text', .* byte 0xe9"):
        read(path, "text", "label")


def test_missing_columns_of_parquet_name_those_present(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"review": ["a"], "stars": [1]}), path)
    with pytest.raises(DataError, match="no column 'text'; its columns are 'review', 'stars'"):
        read(path, "text")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / name, "text")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(DataError, match="given a folder"):
        read(tmp_path / "a.csv", "text")


def test_a_reader_is_a_file() -> None:
    """Every file of the folder is imported, and registers what it reads, without a list of them."""
    folder = Path(readers.__path__[0])
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "registry"}
    assert {reader.__module__.rpartition(".")[2] for reader in READERS.values()} == files
    code = folder.joinpath("__init__.py").read_text()
    assert not [name for name in files if name in code]


def test_unknown_reader_and_taken_names() -> None:
    with pytest.raises(DataError, match=r"reader: given 'xml', needed one of .*\bcsv, .*jsonl"):
        find_reader(Path("a"), "xml")
    with pytest.raises(
        ValueError, match="reader: given 'csv', which is registered already, needed another"
    ):
        register_reader("csv")(READERS["csv"])
    with pytest.raises(
        ValueError, match=r"suffix: given '\.tsv', which is that of reader 'tsv', needed another"
    ):
        register_reader("mine", (".tsv",))(READERS["csv"])
    assert "mine" not in READERS


def test_suffixes() -> None:
    assert split_suffix(Path("a.b/c.d.CSV.XZ")) == (".csv", ".xz")
    assert split_suffix(Path("a.b/c")) == ("", "")
    assert split_suffix(Path("c.xz")) == ("", ".xz")


def test_line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\r\nb\rc\n")
    with open_text(path) as file:
        assert file.read() == "a\r\nb\rc\n"


def test_the_shipped_sentences_are_split_on_line_feeds_and_the_last_tab() -> None:
    from fastattnerase.data.readers.sentiment_sentences import FOLDER

    reader = READERS["sentiment_sentences"]
    rows = list(reader(FOLDER, ["text", "label", "source"]))
    assert len(rows) == 3000
    for source in ("amazon", "imdb", "yelp"):
        labels = [row["label"] for row in rows if row["source"] == source]
        assert (labels.count("negative"), labels.count("positive")) == (500, 500)
    # The file's own characters: a NEL and TABs inside sentences do not end them.
    assert sum("\x85" in str(row["text"]) for row in rows) > 0
    assert (FOLDER / "ATTRIBUTION.md").read_text().count("CC BY 4.0") == 1


def test_a_wanted_column_twice_in_the_header(tmp_path: Path) -> None:
    for name, header in (("a.csv", "text,label,text\n"), ("a.tsv", "\ntext\tlabel\ttext\n")):
        path = tmp_path / name
        separator = "," if name.endswith("csv") else "\t"
        path.write_text(header + separator.join("xyz") + "\n", encoding="utf-8")
        reader = find_reader(path)
        with pytest.raises(DataError, match="given several columns 'text', needed distinct names"):
            list(reader(path, ("text", "label")))
        assert list(reader(path, ("label",))) == [{"label": "y"}]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_the_header_tells_what_separates_columns(
    tmp_path: Path, suffix: str, separator: str
) -> None:
    """With a byte-order mark and Windows' line ends; the other marks are in the texts."""
    path = tmp_path / f"rows{suffix}"
    text = "a, b; c | d"
    rows = [["id", "text", "label"], ["1", f'"{text}"', "yes"], ["2", '"say ""no"", twice"', "no"]]
    content = "\ufeff" + "".join(separator.join(row) + "\r\n" for row in rows)
    path.write_bytes(content.encode())
    assert read(path, "text", "label") == [
        {"text": text, "label": "yes"},
        {"text": 'say "no", twice', "label": "no"},
    ]


def test_columns_that_no_separator_finds(tmp_path: Path) -> None:
    """The error lists as many columns as there may be."""
    path = tmp_path / "rows.csv"
    path.write_text("text;label\na;b\n")
    wanted = r"has no column 'mood'; its columns are 'text', 'label'"
    with pytest.raises(MissingColumnError, match=wanted):
        read(path, "text", "mood")
    path.write_text("text^label\na room, clean^b\n")  # a first row with more fields
    wanted = r"its columns are 'text\^label'; no comma, semicolon, tab or \| separates them"
    with pytest.raises(MissingColumnError, match=wanted):
        read(path, "text", "label")
    path.write_text("x" * 200_000 + ",label\n")  # longer than a field may be
    with pytest.raises(DataError, match="cannot be parsed: field larger"):
        read(path, "text", "label")
    path.write_text(f"{'x' * 100_000},{'y' * 100_000}\n")  # as one field, longer than one may be
    with pytest.raises(MissingColumnError, match="has no column 'label'"):
        read(path, "label")


def test_a_row_with_more_fields_than_the_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\na film, that,yes\nbad,no\n")
    message = r"row 1: given 3 fields, needed 2, as the header line has; a text with ',' in it"
    with pytest.raises(DataError, match=message):
        read(path, "text", "label")
    path.write_text("text,label\nbad,no\na film, that,yes\n")
    with pytest.raises(DataError, match="row 2: given 3 fields, needed 2, as the header"):
        read(path, "text", "label")


def test_a_separator_at_the_end_of_every_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\ngood,yes,\nbad,no,\n")
    assert [row["label"] for row in read(path, "text", "label")] == ["yes", "no"]


def test_a_json_array(tmp_path: Path) -> None:
    """As pandas writes a table's records."""
    path = tmp_path / "rows.json"
    path.write_text('\ufeff[{"text": "a", "label": 1},\n {"label": 2, "text": "b", "x": 3}]')
    assert read(path, "label", "text") == [{"label": 1, "text": "a"}, {"label": 2, "text": "b"}]
    path.write_text('[\n  {"text": "a", "label": 1},\n  {"text": "b"}\n]')
    with pytest.raises(DataError, match=r"rows\.json, object 2 has no column 'label'"):
        read(path, "label", "text")


def test_a_folder_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="given a folder, needed a file"):
        find_reader(tmp_path)
