"""The report on information studies, and the command that makes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from experiments.wen_study import OPTIONS, treebank
from typer.main import get_command
from typer.testing import CliRunner, Result

from fastattnerase.cli import app
from fastattnerase.experiments.rundir import RunError
from fastattnerase.experiments.wen import Workspace
from fastattnerase.report.wen import build
from fastattnerase.report.wen_points import POINTS

TINY = (
    "--datasets=sst", "--small-datasets=sst", "--seeds=1", "--encoders=bilstm",
    "--attentions=additive", "--embedding-size=8", "--hidden-size=4", "--epochs=2",
    "--adversary-epochs=3", "--shuffles=5", "--clusters=4", "--ranks=4",
)  # fmt: skip


def invoke(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = treebank(tmp_path_factory.mktemp("root"))
    out = tmp_path_factory.mktemp("out")
    result = invoke("reproduce", "wen", "--data-root", root, "--out", out, *TINY)
    assert "test accuracy" in result.stderr
    assert "no word vectors: 8 random numbers a word" in result.stdout
    assert "wen.html" in result.stdout
    return root, out


def test_page_figures_and_tables(study: tuple[Path, Path]) -> None:
    root, out = study
    report = out / "report"
    page = (report / "wen.html").read_text(encoding="utf-8")
    assert "10 of 10 cells are finished" in page
    # Weighted tau never stands alone, and the confound is said.
    assert "Weighted tau, the paper’s statistic, depends on how skewed attention is" in page
    assert "That alone gives a positive tau" in page
    for name in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert (report / name).is_file(), name
    assert not re.search(r'(?:src|href)="(https?:|//)', page)
    for text in ("Table 2", "Table 3", "Table 4", "Table 5", "Δ plain", "largest weight"):
        assert text in page or text.capitalize() in page, text
    table = pd.read_csv(report / "tables" / "table_2.csv")
    assert len(table) == 7
    shown = f"{table['delta_weighted'][0]:.3f}"
    assert shown in page
    assert r"\toprule" in (report / "tables" / "table_2.tex").read_text()
    for kind in ("png", "svg", "pdf"):
        assert (report / "figures" / f"figure-2-weighted.{kind}").is_file()
    assert build(Workspace(OPTIONS, root, out), report).read_text(encoding="utf-8") == page


def test_the_same_command_again_and_more_seeds(study: tuple[Path, Path]) -> None:
    root, out = study
    again = invoke("reproduce", "wen", "--data-root", root, "--out", out, *TINY)
    assert "11 of 11 steps were finished before" in again.stderr
    more = invoke(
        "reproduce", "wen", "--data-root", root, "--out", out, *TINY, "--seeds=2", "--jobs=2"
    )
    assert "11 of 12 steps were finished before" in more.stderr
    assert "bilstm-additive-softmax-normal-1" in more.stderr


def test_the_erasure_experiments_run_on_a_cell_s_model(study: tuple[Path, Path]) -> None:
    _, out = study
    for cell in ("softmax-normal", "gumbel-normal"):
        model = out / "cells" / "sst" / f"bilstm-additive-{cell}-0" / "model"
        result = invoke("erase", "--model", model, "--resamples", "10")
        assert "Next: fastattnerase report" in result.stdout


def test_mistakes_take_one_line(tmp_path: Path) -> None:
    root = treebank(tmp_path)
    for arguments, message in (
        (("--data-root", tmp_path / "none"), "no such folder"),
        (("--data-root", root, "--datasets", "trec"), "distinct names of sst, imdb"),
        (("--data-root", root, "--studies", "gird"), "studies is gird"),
    ):
        result = invoke("reproduce", "wen", *arguments, "--out", tmp_path / "out", code=2)
        [line] = [text for text in result.stderr.splitlines() if text.strip()]
        assert line.startswith("error: ")
        assert message in line


def test_every_open_point_names_options_that_exist() -> None:
    assert len(POINTS) == 19
    command: Any = get_command(app)
    for part in ("reproduce", "wen"):
        command = command.commands[part]
    known = {name for parameter in command.params for name in parameter.opts}
    named = {name for _, _, option in POINTS for name in re.findall(r"--[a-z-]+", option)}
    assert named <= known
    assert len(named) > 15


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no finished cell"):
        build(Workspace(OPTIONS, tmp_path, tmp_path), tmp_path / "report")
