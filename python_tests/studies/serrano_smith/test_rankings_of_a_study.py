"""Rankings beside the paper's: from the command line and study files to the report."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from safetensors.torch import save_file
from studies.serrano_smith.hand_made import INSTANCES, HandMade
from studies.serrano_smith.small_study import write_small_study
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.rankings import RANKINGS
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import PAIRS, Config
from fastattnerase.studies.serrano_smith.figures import FIGURES, panel
from fastattnerase.studies.serrano_smith.full_figures import medians
from fastattnerase.studies.serrano_smith.grid import arrange
from fastattnerase.studies.serrano_smith.looks import looks, title
from fastattnerase.studies.serrano_smith.report import build
from fastattnerase.studies.serrano_smith.result import load
from fastattnerase.studies.serrano_smith.study import read_study

OWN = "study_rankings:backwards"
# Last item first, on `INSTANCES`: (2, -1) and (2) stay positive, nothing is 0; two that nothing
# flips; without 2 of (-.5, 2) the rest is negative; (1, 1) flips where nothing is left.
FLIPS = [3, -1, 1, 2, -1]


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module with a ranking in the current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "study_rankings.py").write_text(
        "def backwards(instance):\n    return instance.positions.flip(0)\n"
        "def listed(instance):\n    return [0.0] * instance.n\n"
    )
    monkeypatch.chdir(folder)
    known = dict(RANKINGS)
    yield
    RANKINGS.clear()
    RANKINGS.update(known)
    sys.modules.pop("study_rankings", None)


@pytest.mark.usefixtures("undrawn_figures")
def test_it_is_erased_compared_and_shown(tmp_path: Path) -> None:
    config = Config(resamples=20, exhibits=3, rankings=(OWN, "greedy"))
    result = experiment.run(HandMade(), config, tmp_path / "run", name="hand-made")
    multi = result.table("multi")
    assert multi.loc[multi["ranking"] == OWN, "first_flip"].tolist() == FLIPS
    assert list(result.multi)[4:] == [OWN, "greedy", "minimal"]
    assert result.multi[OWN].flipped == 3
    assert result.multi[OWN].never == 2
    own = [pair for pair in result.pairs if pair not in PAIRS]
    assert own == [(r, other) for r in (OWN, "greedy") for other in ("attention", "random")]
    # By attention 1, 1, 2, 2, -1.
    pair = result.pairs[OWN, "attention"]
    assert (pair.first_smaller, pair.second_smaller, pair.ties) == (1, 2, 1)
    page = build([result], tmp_path / "report").read_text(encoding="utf-8")
    assert page.count(OWN) > 5
    shown = looks(result)
    assert list(shown)[-1] == "minimal"
    assert shown[OWN].name == OWN
    assert len({look.colour for look in shown.values()}) == 7
    table = pd.read_csv(tmp_path / "report" / "tables" / "multi_weight.csv")
    assert table["ranking"].tolist()[-3:-1] == [OWN, "greedy"]
    for quantity in ("fraction", "mass"):
        [legend] = medians(arrange([result]), quantity, "median").legends
        names = [text.get_text() for text in legend.get_texts()]
        assert names == [look.name for look in shown.values()]


@pytest.mark.usefixtures("undrawn_figures")
def test_every_registered_ranking_is_in_tables_documents_and_figures(tmp_path: Path) -> None:
    taken = ("random", "attention", "gradient", "product", "minimal")
    others = tuple(name for name in RANKINGS if name not in taken)
    assert len(others) >= 4
    config = Config(resamples=5, rankings=(*others, OWN), random_orders=2)
    result = experiment.run(HandMade(), config, tmp_path / "run", name="hand-made")
    build([result], tmp_path / "report")
    assert len({(look.colour, look.style) for look in looks(result).values()}) >= len(others) + 5
    for name in ("multi_weight", "pairs"):
        text = (tmp_path / "report" / "tables" / f"{name}.csv").read_text(encoding="utf-8")
        assert [ranking for ranking in (*others, OWN) if ranking not in text] == []
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    page = page.replace("<wbr>", "")  # names may break between their words
    assert [
        ranking for ranking in (*others, OWN) if f"</span>{title(ranking)}</th>" not in page
    ] == []


def test_runs_without_are_as_before(tmp_path: Path) -> None:
    with_own = Config(resamples=5, rankings=("greedy",))
    plain = replace(with_own, rankings=())
    assert "rankings" not in plain.to_dict()
    source = HandMade()
    experiment.run(source, plain, tmp_path / "run", name="mine")
    assert "rankings" not in json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert load(tmp_path / "run").run.config.rankings == ()
    with pytest.raises(RunError, match=r"rankings is not given there and \['greedy'\] here"):
        experiment.run(source, with_own, tmp_path / "run", name="mine")
    experiment.run(source, with_own, tmp_path / "other", name="mine")
    again = experiment.run(HandMade(stop_at=0), with_own, tmp_path / "other", name="mine")
    assert again.run.config == with_own


@pytest.mark.parametrize("others", [(), ("greedy",), ("greedy", OWN, "leave_one_out_drop")])
def test_labels_of_rankings_do_not_touch(others: tuple[str, ...], tmp_path: Path) -> None:
    config = Config(resamples=5, exhibits=1, rankings=others)
    result = experiment.run(HandMade(), config, tmp_path / "run", name="hand-made")
    figure = panel(FIGURES["fractions"], result)
    FigureCanvasAgg(figure).draw()
    [axes] = figure.axes
    labels = axes.get_xticklabels()
    assert len(labels) == 5 + len(others)
    boxes = [label.get_window_extent() for label in labels]
    if others:  # slanted lines of text, as far apart as they are high
        [apart, *_] = np.diff(axes.transData.transform([[0, 0], [1, 0]])[:, 0])
        for label in labels:
            height = 1.2 * label.get_fontsize() * figure.dpi / 72
            assert apart * np.sin(np.radians(label.get_rotation())) > height
    else:
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
    assert min(box.x0 for box in boxes) > 0
    assert min(box.y0 for box in boxes) > 0


@pytest.mark.parametrize(
    "rankings", [("attention",), ("minimal",), ("ascending",), ("greedy", "greedy")]
)
def test_rankings_that_are_there_are_refused(rankings: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"rankings: given '{rankings[-1]}', needed ones that are"):
        Config(rankings=rankings)


def write_tensors(path: Path, rows: Sequence[int]) -> None:
    picked = [INSTANCES[row] for row in rows]
    lengths = torch.tensor([len(values) for values, _ in picked])
    save_file(
        {
            "values": torch.tensor([[v] for values, _ in picked for v in values]),
            "offsets": torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
            "weights": torch.tensor([w for _, weights in picked for w in weights]),
            "head_weight": torch.tensor([[0.0], [1.0]]),
            "head_bias": torch.zeros(2),
        },
        path,
    )


def test_never_flipping_is_explained_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "layer.safetensors"
    write_tensors(path, [1, 5])  # -1 decides, and 3 is erased first; and a single item
    erase = ["erase", "--tensors", str(path), "--resamples", "5", "--rankings", OWN]
    given = CliRunner().invoke(app, erase)
    assert "Never over the set: half or more of the instances" in given.output
    left_out = "1 of 2 instances; left out: 1 with a single item: only one order exists\n"
    assert left_out in given.output


def test_from_the_command_line(tmp_path: Path) -> None:
    write_tensors(tmp_path / "layer.safetensors", range(5))
    erase = ["erase", "--tensors", str(tmp_path / "layer.safetensors"), "--resamples", "5"]
    out = ["--out", str(tmp_path / "run")]
    given = CliRunner().invoke(app, [*erase, *out, "--rankings", f"{OWN}, greedy"])
    assert given.exit_code == 0, given.output
    assert "Greedy" in given.output
    assert "Never over the set" not in given.output
    multi = load(tmp_path / "run").table("multi")
    assert multi.loc[multi["ranking"] == OWN, "first_flip"].tolist() == FLIPS
    for wrong, message in (
        ("study_rankings:forwards", "the module has nothing of that name"),
        ("study_rankings:listed", "error: ranking 'study_rankings:listed': given list for instan"),
        ("lime", "--rankings: given 'lime', needed one of 'attention'"),
        ("random", "--rankings: given 'random', needed ones that are not compared anyway"),
    ):
        given = CliRunner().invoke(app, [*erase, "--rankings", wrong])
        assert given.exit_code == 2
        assert message in " ".join(given.output.split())


def test_in_a_study_file(tmp_path: Path) -> None:
    path = write_small_study(tmp_path)
    text = path.read_text().replace("[erase]\n", f'[erase]\nrankings = ["{OWN}"]\n')
    path.write_text(text)
    study = read_study(path)
    assert study.config().rankings == (OWN,)
    path.write_text(text.replace("backwards", "sideways"))
    with pytest.raises(RunError, match=r"erase\.rankings: given 'study_rankings:sideways', needed"):
        read_study(path)
