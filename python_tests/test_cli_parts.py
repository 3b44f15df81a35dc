"""The command line trains and erases any combination of a model's parts, by name."""

from __future__ import annotations

import csv
import json
import pkgutil
from pathlib import Path

import pytest
from command_line import invoke

from fastattnerase import rankings
from fastattnerase.fields import documentation
from fastattnerase.models import ATTENTIONS, ENCODERS, KINDS, MECHANISMS, ModelConfig
from fastattnerase.studies.serrano_smith.config import RANKINGS, Config


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(80):
            word = ("good", "fine") if i % 2 else ("bad", "poor")
            writer.writerow(
                [f"a {word[i // 2 % 2]} film w{i % 5} it was", "yes" if i % 2 else "no"]
            )
    return path


@pytest.mark.parametrize(
    ("model", "encoder", "attention", "mechanism", "head", "training"),
    [
        ("sequence", "mlp", "dot", "sparsemax", "sigmoid", "jain-wallace"),
        ("flan", "cnn", "deep", "gumbel", "softmax", "serrano-smith"),
        ("han", "bilstm", "additive", "gumbel", "sigmoid", "jain-wallace"),
    ],
)
def test_train_and_erase(
    model: str,
    encoder: str,
    attention: str,
    mechanism: str,
    head: str,
    training: str,
    reviews: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "model"
    invoke(
        "train", "--data", reviews, "--model", model, "--encoder", encoder, "--attention",
        attention, "--mechanism", mechanism, "--gumbel-evaluation", "on", "--head", head,
        "--training", training, "--embedding-size", 8, "--hidden-size", 4, "--epochs", 3,
        "--out", out, "--device", "cpu",
    )  # fmt: skip
    saved = json.loads((out / "model.json").read_text())
    parts = [saved["model"][k] for k in ("kind", "encoder", "attention", "mechanism", "head")]
    assert parts == [model, encoder, attention, mechanism, head]
    assert saved["train"]["amsgrad"] == (training == "jain-wallace")
    result = invoke("erase", "--model", out, "--resamples", 10, "--device", "cpu")
    assert "Next: fastattnerase report" in result.stdout
    counts = json.loads((out / "erase" / "result.json").read_text())["counts"]
    # The engine decides from the weights it is handed as the model itself does.
    assert counts["label_differs_from_model"] == 0
    assert counts["compared_with_model"] == counts["instances"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--training", "fast"), "--training: given 'fast', needed serrano-smith or jain-wallace"),
        (("--model", "tree"), "--model: given 'tree', needed flan, han, pair or sequence"),
        (("--encoder", "lstm"), "--encoder: given 'lstm', needed bilstm, cnn, conv, mlp, noenc"),
        (("--mechanism", "max"), "--mechanism: given 'max', needed gumbel, softmax"),
        (("--attention", "loud"), "--attention: given 'loud', needed additive, deep, dot"),
        (("--head", "tree"), "--head: given 'tree', needed softmax or sigmoid"),
    ],
)
def test_unknown_names_are_refused_before_the_data_are_read(
    arguments: tuple[str, str], message: str, tmp_path: Path
) -> None:
    result = invoke("train", "--data", tmp_path / "absent.csv", *arguments, code=2)
    assert message in " ".join(result.stderr.split())


def test_the_help_names_every_ranking_that_is_not_compared_anyway() -> None:
    text = documentation(Config)["rankings"]
    files = {module.name for module in pkgutil.iter_modules(rankings.__path__)}
    others = files - {*RANKINGS, "minimal", "base"}
    assert others <= set(rankings.RANKINGS)
    assert {name for name in others if f"`{name}`" not in text} == set()


def test_the_help_names_every_part() -> None:
    texts = documentation(ModelConfig)
    for field, parts in (
        ("kind", KINDS),
        ("encoder", ENCODERS),
        ("attention", ATTENTIONS),
        ("mechanism", MECHANISMS),
    ):
        assert {name for name in parts if f"`{name}`" not in texts[field]} == set()
