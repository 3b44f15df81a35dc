"""`train --transformer`, then `erase`, `report` and `compare` of what it wrote; bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from command_line import invoke, one_line
from huggingface.tiny import save_tiny


def run(*arguments: object) -> str:
    """Run a command; give what it prints, on one line."""
    return " ".join(invoke(*arguments).output.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned model `m`, its texts `d.csv` and the checkpoint it was made of."""
    folder = tmp_path_factory.mktemp("transformer")
    save_tiny("bert", folder / "checkpoint")
    rows = ["text,label,rationales"]
    for row in range(60):
        # Words of several pieces, in another order in the test texts than in those of training.
        first = ["the", "unbelievably"][row % 3 == 0]
        words = [first, "films", ["bad", "good"][row % 2], "a", "very", "dull", "film"][
            : 3 + row % 5
        ]
        rows.append(f"{' '.join(words)},{['neg', 'pos'][row % 2]},2:3")
    (folder / "d.csv").write_text("\n".join(rows) + "\n")
    told = run(
        "train", "--transformer", folder / "checkpoint", "--data", folder / "d.csv", "--epochs",
        "2", "--learning-rate", "0.001", "--max-pieces", "8", "--sentences", "spaces", "--out",
        folder / "m",
    )  # fmt: skip
    assert "48 train, 6 dev, 6 test; 2 classes" in told
    assert "cut after 6 pieces" in told
    assert "Next: fastattnerase erase --transformer" in told
    return folder


def test_erase_and_report(folder: Path) -> None:
    told = run("erase", "--transformer", folder / "m", "--out", folder / "e")
    assert "Erasing every word leaves" in told
    instances = pd.read_parquet(folder / "e" / "instances.parquet")
    assert len(instances) == 6
    assert instances["n"].between(3, 6).all()  # words, without special tokens
    same = int((instances["label"] == instances["bias_label"]).sum())
    assert f"leaves {same} of 6 decisions" in told
    multi = pd.read_parquet(folder / "e" / "multi.parquet")
    merged = multi.merge(instances[["row", "n"]], on="row")
    assert (merged["first_flip"] <= merged["n"]).all()
    # With nothing left a decision that is another has flipped by then, whatever the order.
    moved = instances.set_index("row")["label"] != instances.set_index("row")["bias_label"]
    assert (merged[merged["row"].map(moved)]["first_flip"] >= 1).all()
    run("report", folder / "e")
    page = (folder / "e" / "report" / "report.html").read_text()
    assert "residual keeps the classifying position" in page
    # A linear head's words about what is left are not a transformer's.
    assert "the rest of the last layer and the classifier run again" in page
    assert "decided as the residual with special tokens decides" in page
    assert "bias alone" not in page
    assert "zero vector" not in page


def test_erase_pieces_of_another_file(folder: Path) -> None:
    (folder / "more.csv").write_text("text,label\nfilms films,neg\nbads,pos\n")
    run(
        "erase", "--transformer", folder / "m", "--unit", "pieces", "--data", folder / "more.csv",
        "--out", folder / "p",
    )  # fmt: skip
    assert pd.read_parquet(folder / "p" / "instances.parquet")["n"].tolist() == [4, 2]


def test_texts_without_words_are_left_out_and_named(folder: Path) -> None:
    # An empty text, one of special tokens, and one of a character that the tokenizer drops.
    rows = ["a film,neg", ",neg", "[SEP] [MASK],pos", "\u200b \u200d,neg", "very [SEP] bads,pos"]
    (folder / "few.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    given = ("--transformer", folder / "m", "--data", folder / "few.csv")
    told = run("erase", *given, "--out", folder / "few")
    assert "1 row left out: empty text" in told
    assert "2 rows left out: no piece of a word (document 2, '[SEP] [MASK]')" in told
    instances = pd.read_parquet(folder / "few" / "instances.parquet")
    assert instances["id"].tolist() == [0, 4]
    assert instances["n"].tolist() == [2, 3]  # a special token within a text is a word of it
    record = json.loads((folder / "few" / "run.json").read_text())
    assert record["source"]["dropped"] == {"empty_text": 1, "no_piece_of_a_word": 2}
    assert "2 rows left out: no piece of a word" in run("erase", *given, "--out", folder / "few")
    rows = [f"{row % 7 * 'very '}films,{['neg', 'pos'][row % 2]}" for row in range(40)]
    (folder / "odd.csv").write_text("\n".join(["text,label", *rows, "[SEP],neg"]) + "\n")
    told = run(
        "train", "--transformer", folder / "checkpoint", "--data", folder / "odd.csv", "--epochs",
        "1", "--sentences", "spaces", "--out", folder / "odd",
    )  # fmt: skip
    assert "1 row left out: no piece of a word (document 40, '[SEP]')" in told
    assert "Erasing every word" in run("erase", "--transformer", folder / "odd")


def test_compare(folder: Path) -> None:
    given = (
        "compare", "--transformer", folder / "m", "--rationales", "rationales", "--resamples",
        "20", "--grids", "eraser", "--random-rankings", "2", "--out", folder / "c",
    )  # fmt: skip
    run(*given)
    page = (folder / "c" / "report" / "compare.html").read_text()
    assert "Erasing every word there leaves" in page
    means = pd.read_parquet(folder / "c" / "summary" / "means.parquet")
    assert {"attention", "integrated_gradients", "omission"} <= set(means["method"])
    assert "lrp" not in set(means["method"])
    before = (folder / "c" / "report" / "tables" / "means.csv").read_text()
    run(*given)
    assert (folder / "c" / "report" / "tables" / "means.csv").read_text() == before
    assert "<tr><td>erasure</td><td>remove</td></tr>" in page
    for name, choice in (("erasure", "mask"), ("pool", "largest")):
        line = one_line(*given, f"--{name}", choice)
        assert f"holds a run with another config ({name} is " in line
        assert f"and '{choice}' here" in line
    line = one_line("compare", "--transformer", folder / "m", "--methods", "lrp")
    assert "--methods: given lrp with --transformer" in line


def test_bad_input_gets_one_line(folder: Path) -> None:
    m, checkpoint, data = folder / "m", folder / "checkpoint", folder / "d.csv"
    assert "'no-folder', which is no folder" in one_line("erase", "--transformer", "no-folder")
    assert "given none with --transformer" in one_line("erase", "--transformer", checkpoint)
    line = one_line("erase", "--transformer", checkpoint, "--data", data)
    assert "given label 'neg'" in line
    assert "given as --classes" in line
    line = one_line(
        "erase", "--transformer", checkpoint, "--data", data, "--classes", "neg,pos,other"
    )
    assert "--classes: given neg, pos, other, needed 2 distinct names" in line
    assert "--items: given with --transformer" in one_line("erase", "--transformer", m, "--items")
    line = one_line("erase", "--transformer", m, "--tensors", data)
    assert "--tensors: given with --transformer" in line
    line = one_line("erase", "--model", m, "--unit", "pieces")
    assert "--unit, --max-pieces: given without --transformer" in line
    assert "--encoder: given with --transformer" in one_line(
        "train", "--transformer", checkpoint, "--data", data, "--encoder", "rnn"
    )
    assert "--warm-up, --weight-decay" in one_line("train", "--data", data, "--warm-up", "0.2")
    assert "holds a transformer and no run" in one_line("report", copy_of(m, folder / "bare"))
    assert "needed that of a saved model; erase and compare take it as --transformer" in one_line(
        "erase", "--model", m
    )
    line = one_line("erase", "--transformer", m, "--max-pieces", "2")
    assert line.startswith("error: --max-pieces: given 2, needed at least 3")
    line = one_line("erase", "--transformer", m, "--unit", "letters")
    assert line.startswith("error: --unit: given 'letters', needed words or pieces")
    (folder / "late.csv").write_text("text,label,spans\na very dull film,neg,3:4\na film,pos,\n")
    line = one_line(
        "compare", "--transformer", m, "--max-pieces", "5", "--data", folder / "late.csv",
        "--rationales", "spans", "--out", folder / "late",
    )  # fmt: skip
    assert "no word of 2 documents is marked before texts are cut (1 marked span behind" in line
    (folder / "special.csv").write_text("text,label\n[SEP] [MASK],neg\n")
    line = one_line("erase", "--transformer", m, "--data", folder / "special.csv")
    assert "given no text with a piece of a word, the first document 0, '[SEP] [MASK]'" in line


def copy_of(model: Path, to: Path) -> Path:
    to.mkdir()
    for name in ("config.json", "model.safetensors", "fastattnerase.json"):
        (to / name).write_bytes((model / name).read_bytes())
    return to


def test_a_run_goes_on_with_the_model_alone(folder: Path) -> None:
    record = json.loads((folder / "m" / "fastattnerase.json").read_text())
    assert record["max_pieces"] == 8
    assert record["train"]["epochs"] == 2
    assert record["metadata"]["documents"] == {"train": 48, "dev": 6, "test": 6}
    told = run(
        "train", "--transformer", folder / "checkpoint", "--data", folder / "d.csv", "--epochs",
        "2", "--learning-rate", "0.001", "--max-pieces", "8", "--sentences", "spaces", "--out",
        folder / "m",
    )  # fmt: skip
    assert "went on after 2 finished epochs" in told
