"""What every prefix does, beyond the first flip: columns of `multi`, and the table `curves`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from studies.serrano_smith.hand_made import HandMade

import fastattnerase as fae
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.erasure import measure
from fastattnerase.studies.serrano_smith.instance_tables import PLACES
from fastattnerase.studies.serrano_smith.result import Result, load


def old_run(folder: Path) -> Result:
    """A run as versions before wrote it, without what every prefix does."""
    experiment.run(HandMade(), Config(resamples=20, exhibits=3), folder, name="before")
    (folder / "curves.parquet").unlink()
    multi = pq.read_table(folder / "multi.parquet").drop_columns(["stays_changed"])
    pq.write_table(multi, folder / "multi.parquet")
    return load(folder)


def batch(values: list[list[float]], weights: list[list[float]]) -> fae.AttentionBatch:
    """Decision 1 exactly where the weighted mean of what is left is positive."""
    return fae.AttentionBatch(
        torch.tensor([[v] for row in values for v in row], dtype=torch.float64),
        torch.tensor(np.concatenate([[0], np.cumsum([len(row) for row in values])])),
        weights=torch.tensor([w for row in weights for w in row], dtype=torch.float64),
        head_weight=torch.tensor([[0.0], [1.0]], dtype=torch.float64),
        head_bias=torch.zeros(2, dtype=torch.float64),
    )


def stays(tables: dict[str, pd.DataFrame], ranking: str) -> list[int]:
    multi = tables["multi"]
    return [int(k) for k in multi.loc[multi["ranking"] == ranking, "stays_changed"]]


def test_a_first_flip_that_more_erasing_undoes() -> None:
    """By attention: 3, -1.5 and 1 decide 1, -1.5 and 1 decide 0, 1 decides 1, nothing decides 0.
    By the gradient, which takes the largest values first: 1 and -1.5 decide 0, and -1.5 does.
    """
    chunk = Chunk(batch([[3.0, -1.5, 1.0]], [[0.5, 0.4, 0.1]]))
    tables = {name: table.to_pandas() for name, table in measure(chunk, Config()).items()}
    multi = tables["multi"].set_index("ranking")
    assert multi.loc["attention", "first_flip"] == 1
    assert stays(tables, "attention") == [3]
    assert multi.loc["gradient", "first_flip"] == 1
    assert stays(tables, "gradient") == [1]
    # Least attention first: 3 and -1.5 decide 1, and so does 3.
    assert stays(tables, "ascending") == [3]
    assert multi["stays_changed"].isna().tolist() == [False] * 5 + [True]  # of the smallest set


def test_lasting_flips_of_instances_worked_out_by_hand() -> None:
    """Beside the first flips: what never flips, and what is decided as the bias decides."""
    [chunk] = HandMade(size=8).chunks(0)
    tables = {name: table.to_pandas() for name, table in measure(chunk, Config()).items()}
    # In the second erasing all gives decision 0 back, as any order would.
    assert stays(tables, "attention") == [1, 1, 2, 2, -1]
    assert stays(tables, "product") == [1, 1, 1, 2, -1]


def test_every_prefix_against_brute_force() -> None:
    """Random instances of three classes: decisions, JS and probabilities of each prefix anew."""
    rng = np.random.default_rng(3)
    lengths = [2, 5, 9, 1, 7, 0, 4]
    values = rng.normal(size=(sum(lengths), 3))
    scores = rng.normal(size=sum(lengths))
    head, bias = rng.normal(size=(3, 3)) * 2, rng.normal(size=3) / 2
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    chunk = Chunk(
        fae.AttentionBatch(
            torch.tensor(values),
            torch.tensor(offsets),
            scores=torch.tensor(scores),
            head_weight=torch.tensor(head),
            head_bias=torch.tensor(bias),
        )
    )
    config = Config(random_orders=2, rankings=("leave_one_out",))
    tables = {name: table.to_pandas() for name, table in measure(chunk, config).items()}
    wanted = ("random", "attention", "gradient", "product", -chunk.batch.scores, "leave_one_out")
    order = fae.erase_prefixes(chunk.batch, wanted, random_orders=2, orders=True).order
    assert order is not None
    names = [("random", 0), ("random", 1), ("attention", 0), ("gradient", 0), ("product", 0)]
    names += [("ascending", 0), ("leave_one_out", 0)]
    multi = tables["multi"].set_index(["ranking", "order", "row"])
    curves = tables["curves"].set_index(["ranking", "row"])
    assert len(curves) == 5 * 5  # random, three of the paper's and one's own
    undone = 0
    for row in (0, 1, 2, 4, 6):
        items = slice(offsets[row], offsets[row + 1])
        weights, n = np.exp(scores[items]), lengths[row]
        found = {}
        for number, name in enumerate(names):
            places = order[number, items].numpy()
            p = []
            for k in range(n + 1):
                left = np.setdiff1d(np.arange(n), places[:k])
                share = weights[left] / weights[left].sum() if len(left) else weights[left]
                logits = head @ (share @ values[items][left]) + bias if len(left) else bias
                p.append(np.exp(logits) / np.exp(logits).sum())
            decisions = [int(probabilities.argmax()) for probabilities in p]
            changed = [decision != decisions[0] for decision in decisions]
            last = next((k for k in range(1, n) if all(changed[k:n])), n if changed[n] else -1)
            first = next((k for k in range(1, n + 1) if changed[k]), -1)
            there = multi.loc[(*name, row)]
            assert (there["first_flip"], there["stays_changed"]) == (first, last)
            undone += 0 < first < n and not all(changed[first:n])
            middle = [(p[0] + q) / 2 for q in p]
            js = [
                (p[0] @ np.log(p[0] / m) + q @ np.log(q / m)) / 2
                for q, m in zip(p, middle, strict=True)
            ]
            found[name] = {"js": js, "label_prob": [q[decisions[0]] for q in p]}
        found["random", 0] = {
            quantity: np.mean([found["random", 0][quantity], found["random", 1][quantity]], axis=0)
            for quantity in ("js", "label_prob")
        }
        for name in ("random", "attention", "gradient", "product", "leave_one_out"):
            there = curves.loc[name, row]
            for quantity in ("js", "label_prob"):
                curve = np.asarray(found[name, 0][quantity])
                at = np.interp(PLACES, np.arange(n + 1) / n, curve)
                np.testing.assert_allclose(there[quantity], at, atol=1e-6)
                area = (curve[1:] + curve[:-1]).mean() / 2
                assert there[f"{quantity}_area"] == pytest.approx(area, abs=1e-9)
    assert undone == 3  # of 35 orders: the case is there


def test_curves_stream_and_parts_of_a_batch_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(resamples=20, exhibits=0, random_orders=2)
    whole = experiment.run(HandMade(size=8), config, tmp_path / "whole", name="x")
    monkeypatch.setattr(experiment, "_PART", 1)
    parts = experiment.run(HandMade(size=1), config, tmp_path / "parts", name="x")
    columns = ["row", "ranking"]
    first, second = (
        result.table("curves").sort_values(columns).reset_index(drop=True)
        for result in (whole, parts)
    )
    pd.testing.assert_frame_equal(first, second)
    assert pq.read_metadata(parts.folder / "curves.parquet").num_row_groups == 8


def test_a_run_of_before_opens(tmp_path: Path) -> None:
    result = old_run(tmp_path / "run")
    assert result.multi["attention"].flipped == 4
    # And is not erased again, since nothing else of it has changed.
    again = HandMade(stop_at=0)
    config = Config(resamples=20, exhibits=3)
    assert experiment.run(again, config, tmp_path / "run", name="before").counts.analysed == 5
