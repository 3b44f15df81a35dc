"""`fastattnerase measure`: the measurement alone, on a model and on tensors; one line a mistake."""

from __future__ import annotations

import csv
import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from command_line import invoke, one_line
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from fastattnerase import AttentionBatch, mi
from fastattnerase.cli.app import app
from fastattnerase.cli.measure import conclusion
from fastattnerase.sources import TensorSource

measure = partial(invoke, "measure")


def layer(path: Path, instances: int = 60, **others: torch.Tensor) -> Path:
    """Five items an instance, the first with the most attention, whose state decides alone.

    It is one of five points on the line that the head reads; the others are zero there.
    """
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(instances, 5, 3, generator=generator)
    values[:, :, 0] = 0
    values[:, 0] = 0
    values[:, 0, 0] = 20.0 * (torch.arange(instances) % 5) - 40
    tensors = {
        "values": values.reshape(-1, 3),
        "offsets": torch.arange(0, 5 * instances + 1, 5),
        "scores": torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5]).repeat(instances),
        "head_weight": torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
        "head_bias": torch.zeros(2),
    }
    save_file(tensors | others, path)
    return path


SMALL = ("--ranks", 4, "--clusters", 5, "--shuffles", 20)


def test_tensors_give_the_measurement_as_csv_and_json(tmp_path: Path) -> None:
    file = layer(tmp_path / "layer.safetensors")
    result = measure("--tensors", file, *SMALL, "--out", tmp_path / "run")
    assert "layer: 60 of 60 instances, 4 ranks, 5 clusters, 5 output labels" in result.stdout
    assert "Rank 1: 1.609 nats of at most 1.609" in result.stdout  # ln 5
    *_, concluded, following = result.stdout.splitlines()
    # Of four ranks one tells something: shuffled outputs order them so, too.
    assert concluded.startswith("Information follows attention no more than chance")
    assert following == f"Next: fastattnerase erase --tensors {file}"
    expected = mi.measure(
        (chunk.batch for chunk in TensorSource(file).chunks(0)),
        mi.Config(ranks=4, clusters=5, shuffles=20),
    )
    assert expected.ranks["plug_in"].idxmax() == 0
    for table in ("ranks", "correlations", "outputs", "instances"):
        found = pd.read_csv(tmp_path / "run" / f"{table}.csv", keep_default_na=True)
        wanted: pd.DataFrame = getattr(expected, table)
        assert list(found.columns) == list(wanted.columns)
        for column in wanted.select_dtypes("number"):
            assert found[column].to_numpy() == pytest.approx(wanted[column].to_numpy(), nan_ok=True)
    summary = json.loads((tmp_path / "run" / "result.json").read_text())
    assert summary["used"] == 60
    assert summary["clusters"] == 5
    tau = expected.correlation("kendall").value
    assert tau is not None
    told = " ".join(result.stdout.split())
    assert f"plain tau {tau:+.3f}" in told
    # Of the nulls only untrained attention needs a model.
    again = pd.read_csv(tmp_path / "run" / "repeats.csv").set_index(["measurement", "statistic"])
    taus = [again.loc[("permuted", s), "value"].mean() for s in ("weighted_product", "kendall")]
    for line, tau in zip(("weights permuted 5 times {:+.3f} (", ") {:+.3f} ("), taus, strict=True):
        assert line.format(tau) in told
    assert "5 seeds of k-means +" in told
    equal = again.loc[[("equal", "weighted_product"), ("equal", "kendall")], "value"]
    assert "outputs of equal weights {:+.3f} {:+.3f}".format(*equal) in told
    assert "untrained" not in told


def test_a_finished_measurement_is_not_repeated(tmp_path: Path) -> None:
    file = layer(tmp_path / "layer.safetensors")
    arguments = ("--tensors", file, *SMALL, "--out", tmp_path / "run")
    first = measure(*arguments)
    before = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    (tmp_path / "run" / "ranks.csv").unlink()
    assert measure(*arguments).stdout == first.stdout
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == before
    assert (tmp_path / "run" / "ranks.csv").exists()
    assert "with another config (seed is 0 there and 1 here);" in one_line(
        "measure", *arguments, "--seed", 1
    )
    lacks = {"report": "a report of this kind", "export": "what the published code wrote"}
    for command, what in lacks.items():
        line = CliRunner().invoke(app, [command, str(tmp_path / "run")]).stderr
        assert f"holds a measurement, which lacks {what}: its" in " ".join(line.split())
        assert "`fastattnerase erase` wrote, on the same --model" in " ".join(line.split())
        assert "its tables are ranks.csv, correlations.csv" in " ".join(line.split())
    # Interrupted before its end, it starts again.
    (tmp_path / "run" / "result.json").unlink()
    assert measure(*arguments).stdout == first.stdout


def test_every_documented_option_of_the_measurement_is_one_of_the_command(tmp_path: Path) -> None:
    file = layer(tmp_path / "layer.safetensors")
    values: dict[str, Any] = {
        "seed": 3, "ranks": "weights", "weight_rule": "selected", "weight_share": 0.5,
        "weight_threshold": 0.01, "length_percentile": 20.0, "max_ranks": 4,
        "instances": "each_rank", "exclude": "none", "clusters": "smallest",
        "candidates": (4, 6), "codebook": "shared", "codebook_samples": 50,
        "algorithm": "mini_batch", "restarts": 2, "output": "classes",
        "output_space": "probability", "output_clusters": 3, "shuffles": 25, "confidence": 0.9,
        "kmeans_seeds": 2, "permutations": 3,
        "constant_attention": "undefined", "backend": "reference",
    }  # fmt: skip
    assert set(values) == {field.name for field in dataclasses.fields(mi.Config)}
    arguments: list[object] = []
    for name, value in values.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        arguments += [f"--{name.replace('_', '-')}", text]
    measure("--tensors", file, *arguments, "--out", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert config == values | {"candidates": [4, 6]}


def test_a_trained_model_and_other_data(tmp_path: Path) -> None:
    data = tmp_path / "reviews.csv"
    with data.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(120):
            words = f"a {('bad', 'good')[i % 2]} film w{i % 5} it was v{i % 3}"
            writer.writerow([words, ("no", "yes")[i % 2]])
    result = CliRunner().invoke(
        app,
        [
            *("train", "--data", str(data), "--encoder", "conv", "--embedding-size", "8"),
            *("--hidden-size", "4", "--epochs", "1", "--min-count", "1"),
            *("--out", str(tmp_path / "m"), "--name", "mine"),
        ],
    )
    assert result.exit_code == 0, result.output
    result = measure("--model", tmp_path / "m", *SMALL, "--output-clusters", 2)
    assert "mine: 12 of 12 instances, 4 ranks, 5 clusters, 2 output labels" in result.stdout
    assert "untrained attention " in result.stdout
    run = mi.load(tmp_path / "m" / "measure")
    assert run.run.source["split"] == "test"
    result = measure("--model", tmp_path / "m", "--data", data, *SMALL, "--unlabelled")
    assert "mine applied to reviews: 120 of 120 instances" in result.stdout
    assert mi.load(tmp_path / "m" / "measure-reviews").run.source["data"]["label_column"] is None


class TestMistakes:
    def refuse(self, tmp_path: Path, *arguments: object, **tensors: torch.Tensor) -> str:
        file = layer(tmp_path / "layer.safetensors", **tensors)
        return one_line("measure", "--tensors", file, "--out", tmp_path / "run", *arguments)

    def test_what_does_not_go_together(self, tmp_path: Path) -> None:
        assert "--model, --tensors: given neither, needed one of them" in one_line(
            "measure",
        )
        line = one_line("measure", "--tensors", tmp_path / "x", "--data", tmp_path / "y")
        assert "--data: given with --tensors, needed with --model" in line
        assert "holds no saved model" in one_line("measure", "--model", tmp_path)
        assert "no such file" in one_line("measure", "--tensors", tmp_path / "absent")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ("--ranks", "many"),
                "--ranks: given 'many', needed both, weights",
            ),
            (("--ranks", "0"), "--ranks: given 0, needed a number from 1"),
            (("--clusters", "-3"), "--clusters: given '-3', needed largest, smallest or"),
            (
                ("--candidates", "50,many"),
                "--candidates: given '50,many', needed numbers",
            ),
            (("--candidates", "1"), "--candidates: given (1,), needed numbers from 2"),
            (("--codebook", "any"), "--codebook: given 'any', needed rank or shared"),
            (("--weight-share", "2"), "--weight-share: given 2.0"),
            (("--backend", "gpu"), "--backend: given 'gpu'"),
            (("--device", "abacus"), "--device: given 'abacus'"),
        ],
    )
    def test_options(self, arguments: tuple[str, str], message: str, tmp_path: Path) -> None:
        assert message in self.refuse(tmp_path, *arguments)

    def test_a_seed_that_scikit_learn_does_not_take(self) -> None:
        assert "--seed: given 4294967296" in one_line("measure", "--tensors", "x", "--seed", 2**32)

    def test_fewer_samples_than_clusters(self, tmp_path: Path) -> None:
        line = self.refuse(tmp_path, "--ranks", 2, "--clusters", 61)
        assert "clusters: given 61, needed at most 60, the instances of rank 1; ask for" in line

    def test_no_rank_left(self, tmp_path: Path) -> None:
        line = self.refuse(tmp_path, "--weight-threshold", 0.9)
        assert "no rank is left: fewer than 0.8 of the 60 instances" in line
        assert "lower weight_threshold or weight_share" in line

    def test_constant_attention(self, tmp_path: Path) -> None:
        line = self.refuse(tmp_path, *SMALL, scores=torch.zeros(300))
        assert "attention is constant" in line
        assert "set constant_attention to by_position" in line

    def test_one_output_cluster(self, tmp_path: Path) -> None:
        line = self.refuse(tmp_path, *SMALL, head_weight=torch.zeros(2, 3))
        assert "all 60 instances fall into one output cluster" in line
        assert "check that the model is trained" in line


def test_an_instance_that_is_not_finite_is_left_out_and_counted(tmp_path: Path) -> None:
    values = load_file(layer(tmp_path / "x.safetensors"))["values"]
    values[7, 1] = float("nan")
    file = layer(tmp_path / "layer.safetensors", values=values)
    result = measure("--tensors", file, *SMALL, "--out", tmp_path / "run")
    assert "layer: 59 of 60 instances, 4 ranks" in result.stdout
    note = "Note: left out: 1 instance has a state, score, weight or logit that is not finite"
    assert f"{note}, the first is number 1" in result.stdout
    summary = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (summary["instances"], summary["used"], summary["not_finite"]) == (60, 59, 1)
    rows = pd.read_csv(tmp_path / "run" / "instances.csv")["row"].tolist()
    assert rows == [0, *range(2, 60)]


def test_instances_of_fewer_items_than_ranks_are_said_to_be_left_out(tmp_path: Path) -> None:
    file = layer(tmp_path / "layer.safetensors")
    tensors = load_file(file)
    # The first two instances have two and three of their five items, the third no attention.
    kept = torch.tensor([0, 1, 5, 6, 7, *range(10, 300)])
    weights = tensors.pop("scores")[kept].softmax(0)
    weights[5:10] = 0
    ends = torch.tensor([0, 2, 5, *range(10, 296, 5)])
    save_file(
        tensors | {"values": tensors["values"][kept], "weights": weights, "offsets": ends}, file
    )
    printed = measure("--tensors", file, *SMALL, "--out", tmp_path / "run").stdout
    assert "layer: 57 of 60 instances, 4 ranks" in printed
    assert "Left out: 2 of fewer than 4 items, 1 without attention" in printed


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        (("--ranks", 1), "give a larger ranks (--ranks)"),
        (("--max-ranks", 1), "give a larger max_ranks (--max-ranks)"),
        (("--weight-threshold", 0.3), "lower weight_threshold or weight_share (--weight-thresh"),
    ],
)
def test_which_option_gives_a_second_rank(
    arguments: tuple[str, object], way: str, tmp_path: Path
) -> None:
    # Weights are 0.52, 0.19, 0.12, 0.07 and 0.04 and more, in every instance.
    file = layer(tmp_path / "layer.safetensors")
    result = measure(
        "--tensors", file, *arguments, "--clusters", 5, "--shuffles", 20, "--out", tmp_path / "run"
    )
    assert f"Note: one rank is measured, and a correlation needs 2: {way}" in result.stdout


def test_the_batch_of_the_fixture_is_what_it_says(tmp_path: Path) -> None:
    [chunk] = TensorSource(layer(tmp_path / "x.safetensors", instances=10)).chunks(0)
    assert isinstance(chunk.batch, AttentionBatch)
    assert chunk.batch.values.reshape(10, 5, 3)[:, 0, 0].tolist() == [-40, -20, 0, 20, 40] * 2


@pytest.mark.parametrize(
    ("tau", "low", "high", "permuted", "said"),
    [
        (None, 0.0, 0.0, [], "Whether information follows attention cannot be said: why."),
        (0.5, 1.0, -1.0, [], "Whether information follows attention by chance was not compared."),
        (0.5, 0.1, 0.5, [], "Information follows attention no more than chance, shuffled outputs"),
        (0.05, 0.1, 0.5, [], "States of more attention tell less of the output than shuffled"),
        (0.6, 0.1, 0.5, [], "States of more attention tell more of the output than shuffled "
         "outputs let them."),
        (0.6, 0.1, 0.5, [0.2, 0.6], "than shuffled outputs let them; permuted weights do as much"),
        (0.6, 0.1, 0.5, [0.2, 0.3], "outputs let them, and than permuted weights."),
    ],
)  # fmt: skip
def test_what_is_concluded(
    tau: float | None, low: float, high: float, permuted: list[float], said: str, tmp_path: Path
) -> None:
    source = TensorSource(layer(tmp_path / "layer.safetensors", 20))
    config = mi.Config(ranks=2, clusters=2, shuffles=20)
    found = mi.measure((chunk.batch for chunk in source.chunks(0)), config)
    table = found.correlations.copy()
    table["value"] = float("nan") if tau is None else tau
    table["reason"], table["control_low"], table["control_high"] = "why", low, high
    repeats = pd.DataFrame(
        {"measurement": "permuted", "statistic": "weighted_product", "value": permuted}
    )
    told = conclusion(dataclasses.replace(found, correlations=table, repeats=repeats))
    assert said in told
