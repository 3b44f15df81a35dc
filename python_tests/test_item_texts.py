"""Texts of items and names of classes beside dumped tensors, checked instance by instance."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.item_texts import ItemTexts
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import TensorSource
from fastattnerase.studies.serrano_smith.result import load

# Of three, no, one and two items; the last is not finite.
TEXTS = [["A", "good", "film é"], [], ["Bad"], ["So", "so"]]
WORDS = [["A", "good", "film"], [], ["Bad"], ["So", "so"]]
LENGTHS = torch.tensor([3, 0, 1, 2])


def layer(path: Path, metadata: dict[str, str] | None = None) -> Path:
    """Values 2, -1, -1/2 and 1 with one logit: without the first item the first decision flips."""
    save_file(
        {
            "values": torch.tensor([[2.0], [-1.0], [-0.5], [1.0], [torch.nan], [1.0]]),
            "offsets": torch.tensor([0, 3, 3, 4, 6]),
            "weights": torch.tensor([0.5, 0.3, 0.2, 1.0, 0.5, 0.5]),
            "head_weight": torch.tensor([[0.0], [1.0]]),
            "head_bias": torch.zeros(2),
        },
        path,
        metadata,
    )
    return path


def as_json(texts: list[list[str]]) -> str:
    return "".join(json.dumps(items, ensure_ascii=False) + "\n" for items in texts)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_words_and_of_json(end: str, tmp_path: Path) -> None:
    words = tmp_path / "tokens.txt"
    words.write_bytes(end.join([" A  good film", "", "Bad", "So so"]).encode())  # no end at the end
    lines = tmp_path / "tokens.JSONL"
    lines.write_bytes(as_json(TEXTS).replace("\n", end).replace("[]", "").encode())
    for path, expected in ((words, WORDS), (lines, TEXTS)):
        texts = ItemTexts(path, LENGTHS)
        assert texts.read(0, 4) == expected
        for start in range(4):
            for stop in range(start, 5):
                assert texts.read(start, stop) == expected[start:stop]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", "A good film\n\nBad\n", "given 3 lines, needed 4, one for each instance"),
        ("t.txt", "A good film\n\nBad\nSo so\nso\n", "given 5 lines, needed 4"),
        ("t.txt", "A good film\nBad\n\nSo so\n", "given 1 text for instance 1, needed 0, one for"),
        ("t.jsonl", as_json([*TEXTS[:3], ["So"]]), "given 1 text for instance 3, needed 2"),
        ("t.jsonl", '["A", 2]\n', r'line 1: given \["A", 2\], needed a JSON list of texts'),
        ("t.jsonl", '{"A": 2}\n', 'line 1: given {"A": 2}, needed a JSON list of texts'),
        ("t.jsonl", "A good film\n", "line 1: given no JSON: Expecting value"),
    ],
)
def test_files_that_do_not_fit(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=f"{name}: {message}"):
        ItemTexts(tmp_path / name, LENGTHS)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none\.txt: no such file"):
        ItemTexts(tmp_path / "none.txt", LENGTHS)
    (tmp_path / "t.txt").write_bytes(b"A good film\n\xff\n")
    with pytest.raises(RunError, match=r"t\.txt: line 2: given no UTF-8"):
        ItemTexts(tmp_path / "t.txt", LENGTHS)


def test_a_source_has_them_slice_by_slice(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.jsonl"
    tokens.write_text(as_json(TEXTS))
    file = layer(tmp_path / "layer.safetensors")
    source = TensorSource(file, tokens=tokens, classes=("bad", "good"))
    assert source.classes == ["bad", "good"]
    assert [chunk.texts for chunk in source.chunks(1)] == [TEXTS[1:]]
    assert [chunk.texts for chunk in source.select([3, 0])] == [[TEXTS[3]], [TEXTS[0]]]
    about, plain = source.describe(), TensorSource(file).describe()
    assert about["classes"] == ["bad", "good"]
    assert about["tokens"]["bytes"] == tokens.stat().st_size
    # Runs on the file alone go on as before.
    assert set(about) - set(plain) == {"classes", "tokens"}
    assert next(iter(TensorSource(file).chunks(0))).texts is None


def test_metadata_of_the_file_has_them_too(tmp_path: Path) -> None:
    told = {"classes": '["bad", "good"]', "tokens": json.dumps(TEXTS), "format": "pt"}
    source = TensorSource(layer(tmp_path / "layer.safetensors", told))
    assert source.classes == ["bad", "good"]
    assert [chunk.texts for chunk in source.chunks(0)] == [TEXTS]
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("A good film\n\nBad\nSo so\n")
    given = TensorSource(source.path, tokens=tokens, classes=["no", "yes"])
    assert given.classes == ["no", "yes"]
    assert [chunk.texts for chunk in given.chunks(0)] == [WORDS]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"classes": "bad, good"}, "classes in the metadata: given no JSON"),
        ({"classes": '["bad"]'}, "classes in the metadata: given bad, needed 2 distinct names"),
        ({"classes": '["bad", "bad"]'}, "given bad, bad, needed 2 distinct names, one for each"),
        (
            {"tokens": '["A"]'},
            r'tokens in the metadata: given \["A"\], needed a JSON list of lists',
        ),
        (
            {"tokens": "[[]]"},
            "tokens in the metadata: given 1 list, needed 4, one for each",
        ),
        (
            {"tokens": json.dumps([TEXTS[2], *TEXTS[1:]])},
            "tokens in the metadata: given 1 text for instance 0, needed 3",
        ),
    ],
)
def test_metadata_that_does_not_fit(metadata: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=message):
        TensorSource(layer(tmp_path / "layer.safetensors", metadata))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.mark.usefixtures("undrawn_figures")
def test_own_tensors_have_heat_maps(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("A good film\n\nBad\nSo so\n")
    erase = ("erase", "--tensors", layer(tmp_path / "layer.safetensors"), "--resamples", 5)
    named = ("--tokens", tokens, "--classes", "bad,very good", "--out", tmp_path / "run")
    run(*erase, *named, "--items")
    found = load(tmp_path / "run")
    assert found.run.classes == ("bad", "very good")
    assert [(shown.row, shown.items) for shown in found.exhibits] == [(0, ("A", "good", "film"))]
    items = pd.read_parquet(tmp_path / "run" / "items.parquet")
    assert items["item"].tolist() == [word for words in WORDS for word in words]
    run("report", tmp_path / "run")
    page = (tmp_path / "run" / "report" / "report.html").read_text(encoding="utf-8")
    assert "<article" in page
    assert "very good" in page
    assert "with another source; choose" in run(
        *erase, "--items", "--out", tmp_path / "run", code=2
    )


def test_mistakes_on_the_command_line(tmp_path: Path) -> None:
    erase = ("erase", "--tensors", layer(tmp_path / "layer.safetensors"))
    told = run(*erase, "--classes", "bad,good,best", code=2)
    assert "classes: given bad, good, best, needed 2 distinct names, one for each row of" in told
    told = run("erase", "--model", tmp_path, "--classes", "bad,good", code=2)
    assert "--tokens, --classes: given with --model, needed with --tensors" in told
    assert "no such file" in run(*erase, "--tokens", tmp_path / "none.txt", code=2)
    told = run(*erase, "--classes", "bad", "--out", tmp_path / "other", code=2)
    assert "error: --classes: given bad, needed 2 distinct names, one for each row of" in told
    short = tmp_path / "short.txt"
    short.write_text("A good film\n")
    told = run(*erase, "--tokens", short, "--out", tmp_path / "other", code=2)
    assert "short.txt: given 1 line, needed 4, one for each instance" in told
