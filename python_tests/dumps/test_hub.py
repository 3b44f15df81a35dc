"""`fastattnerase dump --from-dataset`, on a folder that the library reads without network."""

from __future__ import annotations

import json
import os
from pathlib import Path

import datasets
import numpy as np
import pytest
from command_line import invoke, one_line

import fastattnerase as fae

FEATURES = datasets.Features(
    {
        "hidden": datasets.Sequence(datasets.Sequence(datasets.Value("float16"))),
        "scores": datasets.Sequence(datasets.Value("float32")),
        "label": datasets.ClassLabel(names=["bad", "good"]),
        "number": datasets.Value("int64"),
        "logits": datasets.Sequence(datasets.Value("float64")),
        "text": datasets.Value("string"),
    }
)
ROWS = {
    "hidden": [[[1, 2], [3, 4]], [], [[5, 6]]],
    "scores": [[0.5, 1.0], [], [2.0]],
    "label": [1, 0, 1],
    "number": [10, 30, 20],
    "logits": [[0.0, 1.0], [0.0, 0.0], [0.0, 6.0]],
    "text": ["a b", "", "c"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a Parquet file, as `push_to_hub` would make one, and the head beside it."""
    (tmp_path / "data").mkdir()
    rows = datasets.Dataset.from_dict(ROWS, features=FEATURES)
    rows.to_parquet(str(tmp_path / "data" / "train-00000.parquet"))
    np.savez(tmp_path / "head.npz", head_weight=np.eye(2), head_bias=np.zeros(2))
    return tmp_path


def arguments(folder: Path, *others: object) -> tuple[object, ...]:
    return (
        *("dump", "--from-dataset", folder / "data", "--values-column", "hidden"),
        *("--head", folder / "head.npz", "--out", folder / "dump", *others),
    )


def test_rows_become_instances(folder: Path) -> None:
    columns = ("--label-column", "label", "--ids-column", "number", "--logits-column", "logits")
    told = invoke(*arguments(folder, *columns)).stdout
    assert "3 instances, 3 items in 1 shard" in told
    dump = fae.open_batches(folder / "dump", verify=True)
    [chunk] = dump.chunks()
    assert chunk.batch.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert chunk.batch.offsets.tolist() == [0, 2, 2, 3]
    assert chunk.batch.ids.tolist() == [10, 30, 20]
    assert chunk.gold is not None
    assert chunk.logits is not None
    assert chunk.gold.tolist() == [1, 0, 1]
    assert chunk.logits.tolist() == ROWS["logits"]
    assert dump.manifest.classes == ("bad", "good")
    assert dump.manifest.dtypes["values"] == "float16"
    assert dump.manifest.made_by["source"]["columns"]["values"] == "hidden"


def test_rows_are_numbered_where_they_have_no_ids(folder: Path) -> None:
    invoke(*arguments(folder, "--shard-bytes", "1"))
    dump = fae.open_batches(folder / "dump")
    assert [batch.ids.tolist() for batch in dump] == [[0], [1], [2]]


def test_a_finished_dump_is_that_of_the_same_rows_and_head(folder: Path) -> None:
    invoke(*arguments(folder))
    assert "3 instances" in invoke(*arguments(folder)).stdout
    refused = "given a folder with a finished dump, needed another (--out)"
    rows, head = folder / "data" / "train-00000.parquet", folder / "head.npz"
    for changed in (
        {"head_weight": -np.eye(2), "head_bias": np.zeros(2)},
        {"head_weight": np.eye(2), "head_bias": np.ones(2)},
        {"head_weight": np.eye(2)},
    ):
        np.savez(head, **changed)  # type: ignore[arg-type]
        assert refused in one_line(*arguments(folder))
    np.savez(folder / "same.npz", head_weight=np.eye(2), head_bias=np.zeros(2))
    assert "3 instances" in invoke(*arguments(folder, "--head", folder / "same.npz")).stdout
    os.utime(rows, (0, 0))
    assert refused in one_line(*arguments(folder, "--head", folder / "same.npz"))


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (("--split", "test"), "cannot be loaded"),
        (("--label-column", "gold"), "needed gold (--values-column"),
        (("--ids-column", "text"), "text: given 'a b' in row 0, needed integers"),
        (("--scores-column", "label"), "scores"),
        (("--scores-column", "scores", "--weights-column", "scores"), "given both"),
        (("--data", "x.csv"), "--data"),
        (("--classes", "a"), "classes: given a, needed 2 names"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(
    others: tuple[str, ...], told: str, folder: Path
) -> None:
    assert told in one_line(*arguments(folder, *others))


def rows_of(path: Path, **columns: list[object]) -> Path:
    """Write a row for each value of the columns, in JSON, into a folder; give the folder."""
    both = {"hidden": [[[1.0, 2.0]]], "scores": [[0.5]]} | columns
    count = max(map(len, both.values()))
    full = {name: own * count if len(own) < count else own for name, own in both.items()}
    rows = [dict(zip(full, row, strict=True)) for row in zip(*full.values(), strict=True)]
    path.mkdir()
    (path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"number": [1, 1.5]}, "number: given 1.5 in row 1, needed integers"),
        ({"number": [2**63]}, f"number: given {float(2**63)} in row 0, needed integers"),
        ({"number": ["10"]}, "number: given '10' in row 0, needed integers"),
        ({"number": [5, None]}, "number: given None in row 1, needed integers"),
        ({"hidden": [None]}, "hidden: given None in row 0, needed numbers"),
        ({"hidden": [3]}, "hidden: given 3 in row 0, needed numbers"),
        ({"hidden": [[[1, 2], [3]]]}, "hidden: given [[1, 2], [3]] in row 0, needed numbers"),
    ],
)
@pytest.mark.parametrize("option", ["--ids-column", "--label-column"])
def test_rows_that_hold_something_else_are_refused_in_a_line(
    option: str, columns: dict[str, list[object]], told: str, folder: Path
) -> None:
    rows = rows_of(folder / "rows", **({"number": [0]} | columns))
    assert told in one_line(*arguments(folder, "--from-dataset", rows, option, "number"))


def test_whole_numbers_that_are_floats_are_ids(folder: Path) -> None:
    rows = rows_of(folder / "rows", number=[7.0, 3.0])
    invoke(*arguments(folder, "--from-dataset", rows, "--ids-column", "number"))
    assert [batch.ids.tolist() for batch in fae.open_batches(folder / "dump")] == [[7, 3]]


def test_a_folder_may_have_a_colon_in_its_name(folder: Path) -> None:
    rows = rows_of(folder / "of: words")
    assert "1 instance" in invoke(*arguments(folder, "--from-dataset", rows)).stdout


def test_damaged_files_are_refused_in_a_line(folder: Path) -> None:
    rows = rows_of(folder / "rows")
    with open(rows / "train.jsonl", "a") as file:
        file.write('{"hidden": [[1')
    told = one_line(*arguments(folder, "--from-dataset", rows))
    assert told.startswith(f"error: {rows}: row 0: JSON parse error")
    (rows / "train.jsonl").write_text("")
    told = one_line(*arguments(folder, "--from-dataset", rows))
    assert told.startswith(f"error: the data set '{rows}' cannot be loaded: ")


def test_a_head_is_an_array(folder: Path) -> None:
    np.savez(folder / "head.npz", head_weight=np.float32(3))
    told = one_line(*arguments(folder))
    assert "head.npz: head_weight: given one number, needed an array" in told


def test_options_belong_to_a_data_set(folder: Path) -> None:
    out = ("--out", folder / "dump")
    head = ("--head", folder / "head.npz")
    assert "given without --from-dataset" in one_line(
        "dump", "--from", folder / "x.npz", *head, *out
    )
    told = one_line("dump", "--from-dataset", folder / "data", *out)
    assert "--head: given none, needed the head's file" in told
    np.savez(folder / "none.npz", weight=np.eye(2))
    told = one_line(
        *("dump", "--from-dataset", folder / "data", "--head", folder / "none.npz", *out)
    )
    assert "given weight, needed head_weight" in told
    none = one_line("dump", "--from-dataset", folder / "nothing", *head, *out)
    assert "cannot be loaded" in none
