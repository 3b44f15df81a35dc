"""The table `items`: a row an item, with numbers worked out by hand, streamed and resumed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from studies.serrano_smith.hand_made import INSTANCES, HandMade, batch_of
from typer.testing import CliRunner

import fastattnerase as fae
from fastattnerase.cli.app import app
from fastattnerase.rankings import RANKINGS, register_ranking
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk
from fastattnerase.statistics.attention import attention_weights
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import measure
from fastattnerase.studies.serrano_smith.result import load

CONFIG = Config(items=True, resamples=5)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("items") / "run"
    return experiment.run(HandMade(), CONFIG, folder, name="mine").table("items")


def test_there_is_a_row_an_item(items: pd.DataFrame) -> None:
    lengths = [len(values) for values, _ in INSTANCES]
    assert items["row"].tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
    assert items["id"].tolist() == items["row"].tolist()
    assert items["position"].tolist() == [i for n in lengths for i in range(n)]
    assert items["item"].tolist() == [f"<w{i}>" for n in lengths for i in range(n)]
    weights = [w for _, weights in INSTANCES for w in weights]
    assert items["weight"].to_numpy() == pytest.approx(weights)


def test_one_instance_by_hand(items: pd.DataFrame) -> None:
    # Values 2, -1, -1/2 with weights .5, .3, .2: the logit is .6, and -.8, 9/7, .875 without one.
    rows = items[items["row"] == 0]
    p = sigmoid(0.6)
    gradient = [p * (1 - p) * v for v in (2, -1, -0.5)]
    assert rows["drop"].to_numpy() == pytest.approx([p - sigmoid(z) for z in (-0.8, 9 / 7, 0.875)])
    assert rows["flip_label"].tolist() == [0, -1, -1]
    assert rows["score_attention"].tolist() == pytest.approx([0.5, 0.3, 0.2])
    assert rows["score_gradient"].tolist() == pytest.approx(gradient)
    assert rows["score_product"].to_numpy() == pytest.approx(np.multiply(gradient, (0.5, 0.3, 0.2)))
    assert rows["smallest"].tolist() == [True, False, False]
    for ranking, places in (
        ("attention", [1, 2, 3]),
        ("gradient", [1, 3, 2]),
        ("product", [1, 3, 2]),
        ("ascending", [3, 2, 1]),
        ("minimal", [1, 3, 2]),
    ):
        assert rows[f"rank_{ranking}"].tolist() == places, ranking


def test_as_the_engine_says(items: pd.DataFrame) -> None:
    batch = batch_of(list(range(7)))
    ascending = -torch.from_numpy(attention_weights(batch))
    rankings = ("random", "attention", "gradient", "product", ascending)  # as a run asks
    found = fae.sweep(batch, rankings, orders=True, logits=True, single_kl=True)
    assert found.single is not None
    assert found.single.kl is not None
    finite = items[items["row"] < 7]
    assert finite["js"].tolist() == found.single.js.tolist()
    assert finite["kl"].tolist() == found.single.kl.tolist()
    for b in range(7):
        order = fae.rank(batch[b : b + 1], "random")
        places = finite.loc[finite["row"] == b, "rank_random"].astype(int).tolist()
        assert [places[i] for i in order.tolist()] == [*range(1, len(order) + 1)]


def test_one_item_and_something_that_is_not_finite(items: pd.DataFrame) -> None:
    [one] = items[items["row"] == 5].to_dict("records")
    assert (one["weight"], one["flip_label"], one["smallest"], one["rank_attention"]) == (
        1, 0, True, 1
    )  # fmt: skip
    strange = items[items["row"] == 7]
    assert strange["item"].tolist() == ["<w0>", "<w1>"]
    assert strange["weight"].tolist() == [0.5, 0.5]
    unknown = [name for name in items if name not in ("row", "id", "position", "item", "weight")]
    assert strange[unknown].isna().all(axis=None)


def test_all_masked_and_no_texts() -> None:
    batch = fae.AttentionBatch(
        torch.tensor([[1.0], [2.0], [3.0], [4.0]]),
        torch.tensor([0, 2, 2, 4]),
        scores=torch.tensor([-torch.inf, -torch.inf, 0.0, torch.nan]),
        head_weight=torch.tensor([[0.0], [1.0]]),
    )
    table = measure(Chunk(batch), CONFIG)["items"].to_pandas()
    assert table["item"].isna().all()
    assert table["row"].tolist() == [0, 0, 2, 2]
    assert table["weight"].tolist()[:2] == [0, 0]
    assert table["score_attention"].tolist()[:2] == [-math.inf] * 2
    assert table["flip_label"].tolist()[:2] == [-1, -1]
    assert table["smallest"].tolist() == [False, False, None, None]
    assert table["rank_attention"].tolist()[:2] == [1, 2]
    assert table["weight"].isna().tolist() == [False, False, True, True]


def test_holes_in_a_mask_keep_the_original_column() -> None:
    batch = fae.AttentionBatch.from_padded(
        torch.tensor([[[2.0], [9.0], [-1.0], [-0.5]]]),
        weights=torch.tensor([[0.5, 0.0, 0.3, 0.2]]),
        mask=torch.tensor([[True, False, True, True]]),
        head_weight=torch.tensor([[0.0], [1.0]]),
    )
    table = measure(Chunk(batch), CONFIG)["items"]
    assert table["position"].to_pylist() == [0, 2, 3]
    assert table["smallest"].to_pylist() == [True, False, False]


def test_several_heads_have_no_smallest_set() -> None:
    batch = fae.AttentionBatch(
        torch.tensor([[[1.0], [2.0]], [[-1.0], [0.5]]]),
        torch.tensor([0, 2]),
        weights=torch.tensor([[0.5, 0.25], [0.5, 0.75]]),
        head_weight=torch.tensor([[[0.0], [0.0]], [[1.0], [1.0]]]),
    )
    table = measure(Chunk(batch), CONFIG)["items"]
    assert table["smallest"].to_pylist() == [None, None]
    assert table["rank_minimal"].to_pylist() == [None, None]
    assert table["score_attention"].to_pylist() == [0.375, 0.625]  # the mean over the heads


def test_columns_of_every_ranking_and_of_several_orders() -> None:
    known = dict(RANKINGS)
    try:
        register_ranking("value", lambda instance: instance.values[:, 0, 0])
        register_ranking("backwards", lambda instance: instance.positions.flip(0))
        names = [name for name in RANKINGS if name not in ("random", "minimal")]
        own = [name for name in names if name not in ("attention", "gradient", "product")]
        config = Config(items=True, random_orders=2, rankings=tuple(own))
        table = measure(Chunk(batch_of([0, 1])), config)["items"].to_pandas()
        for name in names:
            order = fae.rank(batch_of([0]), name).tolist()
            places = table.loc[table["row"] == 0, f"rank_{name}"].tolist()
            assert [places[i] for i in order] == [1, 2, 3], name
        first, second = table["rank_random_0"].tolist(), table["rank_random_1"].tolist()
        assert first != second
        assert table["score_value"].tolist() == [2, -1, -0.5, -1, 3]
        assert table["score_backwards"].isna().all()  # it gives an order
        assert table["score_leave_one_out"].to_numpy() == pytest.approx(table["js"].to_numpy())
        assert table["score_leave_one_out_drop"].to_numpy() == pytest.approx(table["drop"])
        assert "score_greedy" not in table
    finally:
        RANKINGS.clear()
        RANKINGS.update(known)


def test_interrupted_it_goes_on_and_is_the_same(
    items: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "_PART", 1)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(HandMade(stop_at=6), CONFIG, tmp_path, name="mine")
    assert len([*(tmp_path / "parts").glob("items-*.parquet")]) == 2
    source = HandMade()
    result = experiment.run(source, CONFIG, tmp_path, name="mine")
    assert source.started[0] == 6
    pd.testing.assert_frame_equal(result.table("items"), items)
    with pq.ParquetFile(tmp_path / "items.parquet") as file:
        assert file.num_row_groups == 3  # no more than one is in memory


def test_asked_for_or_not(tmp_path: Path) -> None:
    plain = Config(resamples=5)
    assert "items" not in plain.to_dict()
    experiment.run(HandMade(), plain, tmp_path / "plain", name="mine")
    assert not (tmp_path / "plain" / "items.parquet").exists()
    with pytest.raises(RunError, match="items is not given there and True here"):
        experiment.run(HandMade(), CONFIG, tmp_path / "plain", name="mine")
    experiment.run(HandMade(), CONFIG, tmp_path / "items", name="mine")
    assert load(tmp_path / "items").run.config.items
    with pytest.raises(RunError, match="items is True there and not given here"):
        experiment.run(HandMade(), plain, tmp_path / "items", name="mine")


def test_from_the_command_line(tmp_path: Path) -> None:
    batch = batch_of([0, 5, 6, 7])
    assert batch.weights is not None
    save_file(
        {
            "values": batch.values,
            "offsets": batch.offsets,
            "weights": batch.weights,
            "head_weight": torch.tensor([[0.0], [1.0]]),
            "head_bias": torch.zeros(2),
        },
        tmp_path / "layer.safetensors",
    )
    erase = ["erase", "--tensors", str(tmp_path / "layer.safetensors"), "--items"]
    given = CliRunner().invoke(app, [*erase, "--resamples", "5", "--out", str(tmp_path / "run")])
    assert given.exit_code == 0, given.output
    assert pd.read_parquet(tmp_path / "run" / "items.parquet")["row"].tolist() == [0, 0, 0, 1, 3, 3]
    # Without labels the export says what its column of labels holds, and what to do.
    told = CliRunner().invoke(app, ["export", str(tmp_path / "run")])
    assert told.exit_code == 0, told.output
    assert "Note: no instance has a label, so actual_label is -1 everywhere; scripts" in told.output
    assert "--data FILE and --label-column, or with labels in the file of --tensors" in told.output
    table = pd.read_csv(tmp_path / "run" / "original" / "original_results.csv")
    assert table["actual_label"].tolist() == [-1] * 4
    labelled = experiment.run(HandMade(), Config(resamples=5), tmp_path / "labelled", name="mine")
    told = CliRunner().invoke(app, ["export", str(labelled.folder)])
    assert "Note" not in told.output
