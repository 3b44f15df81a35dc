"""The report on information studies, and the command that makes it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from markupsafe import escape
from report.html_page import Page
from studies.wen.wen_study import OPTIONS, treebank
from typer.main import get_command
from typer.testing import CliRunner, Result

from fastattnerase.cli.app import app
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.wen.figures import figures
from fastattnerase.studies.wen.null_tables import NULL_TAUS
from fastattnerase.studies.wen.open_points import POINTS
from fastattnerase.studies.wen.report import CHANCE, build
from fastattnerase.studies.wen.results import describe
from fastattnerase.studies.wen.rows import CHANCE_RULE, TauName
from fastattnerase.studies.wen.tables import collect
from fastattnerase.studies.wen.units import Wen

TINY = (
    "--datasets=sst", "--small-datasets=sst", "--seeds=1", "--encoders=bilstm",
    "--attentions=additive", "--embedding-size=8", "--hidden-size=4", "--epochs=2",
    "--adversary-epochs=3", "--shuffles=20", "--clusters=4", "--ranks=5",
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
    # Learned attention is set against each null, in words.
    for null in (
        "weights permuted within",
        "the outputs of equal",
        "untrained att",
        "Gumbel noise",
    ):
        assert f"<li>With learned attention weighted tau is higher than with {null}" in page
    # Weighted tau never stands alone, and the confound is said.
    assert "Weighted tau, the paper’s statistic, depends on how skewed attention is" in page
    assert "That alone gives a positive tau" in page
    found = Page(page)
    found.loads_nothing()
    sections = [at["id"] for tag, at in found.elements if tag == "section"]
    listed = [link[1:] for link in found.links if link.startswith("#")][: len(sections)]
    assert listed == sections
    pictures = [link for link in found.links if link.startswith("data:image/png;base64,iVBOR")]
    assert len(pictures) == len(list((report / "figures").glob("*.png")))
    of = pd.read_csv(report / "tables" / "claims.csv", keep_default_na=False)["agrees"]
    yes, partly, no, none = ((of == verdict).sum() for verdict in ("yes", "partly", "no", ""))
    part = f", {partly} in part" if partly else ""
    told = f"Of {len(of)} statements, {yes} agree{part}, {no} disagree, and {none} cannot be judged"
    assert told in found.words()
    for text in ("Table 2", "Table 3", "Table 4", "Table 5", "Δ plain", "largest weight"):
        assert text in page or text.capitalize() in page, text
    table = pd.read_csv(report / "tables" / "table_2.csv")
    assert len(table) == 7
    shown = f"{table['delta_weighted'][0]:.3f}"
    assert shown in page
    assert r"\toprule" in (report / "tables" / "table_2.tex").read_text()
    for kind in ("png", "svg", "pdf"):
        assert (report / "figures" / f"figure-2-weighted.{kind}").is_file()
    assert build(Wen(OPTIONS, root, out), report).read_text(encoding="utf-8") == page


def test_report_points_to_the_study_s_own(study: tuple[Path, Path]) -> None:
    _, out = study
    error = invoke("report", out, code=2).stderr
    assert f"its report is {out / 'report' / 'wen.html'}" in " ".join(error.split())


@pytest.mark.usefixtures("undrawn_figures")
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
        (("--data-root", tmp_path / "none"), "which is no folder"),
        (("--data-root", root, "--datasets", "trec"), "distinct names of sst, imdb"),
        (("--data-root", root, "--studies", "gird"), "--studies: given gird"),
        (
            ("--data-root", root, "--encoders", ","),
            "--encoders: given none, needed at least one of bilstm",
        ),
        (
            ("--data-root", root, "--datasets", ""),
            "--datasets: given none, needed at least one of sst",
        ),
        (("--data-root", root, "--clusters", "1"), "--clusters: given 1, needed a number from 2"),
        (("--data-root", root, "--shuffles", "1"), "--shuffles: given 1, needed 0, for no control"),
        (("--data-root", root, "--vectors", tmp_path / "no"), "--vectors"),
    ):
        result = invoke("reproduce", "wen", *arguments, "--out", tmp_path / "out", code=2)
        [line] = [text for text in result.stderr.splitlines() if text.strip()]
        assert line.startswith("error: ")
        assert message in line
    assert not (tmp_path / "out").exists()


def test_latex_tables_are_narrow_and_whole(study: tuple[Path, Path]) -> None:
    _, out = study
    files = sorted((out / "report" / "tables").glob("*.tex"))
    assert {path.stem for path in files} >= {"claims", "means", "table_2", "table_5", "gumbel"}
    for path in files:
        text = path.read_text(encoding="utf-8")
        begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
        assert begun == ended == ["tabular"]
        assert all(text.count(rule) == 1 for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        widths = {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows}
        assert len(widths) == 1 and widths.pop() <= 8  # noqa: PT018
        assert not re.search(r"True|False|NaN|nan\b|\\_", text), path.name


@pytest.mark.usefixtures("undrawn_figures")
def test_without_shuffles_there_is_no_verdict_that_needs_them(
    study: tuple[Path, Path], tmp_path: Path
) -> None:
    root, _ = study
    invoke("reproduce", "wen", "--data-root", root, "--out", tmp_path, *TINY, "--shuffles=0",
           "--studies=fix")  # fmt: skip
    claims = pd.read_csv(tmp_path / "report" / "tables" / "claims.csv", keep_default_na=False)
    fixed = claims[claims["text"].str.startswith("Fix")]
    assert len(fixed) == 14
    assert set(fixed["agrees"]) == {""}
    assert set(fixed["here"]) == {"undecided: 1 (no shuffled outputs to compare with)"}


def test_the_readme_explains_chance_in_the_same_words(study: tuple[Path, Path]) -> None:
    _, out = study
    page = (out / "report" / "wen.html").read_text(encoding="utf-8")
    assert page.count(CHANCE_RULE) == 2
    readme = Path(__file__).parents[3] / "benchmarks" / "results" / "wen" / "README.md"
    assert CHANCE_RULE in " ".join(readme.read_text(encoding="utf-8").split())


@pytest.mark.usefixtures("undrawn_figures")
def test_rules_chance_and_what_is_left_out_are_on_the_page(study: tuple[Path, Path]) -> None:
    root, out = study
    report = out / "report"
    page = (report / "wen.html").read_text(encoding="utf-8")
    claims = pd.read_csv(report / "tables" / "claims.csv", keep_default_na=False)
    assert {"rule", "held", "cases", "agrees"} <= set(claims.columns)
    assert set(claims["agrees"]) <= {"yes", "partly", "no", ""}
    for rule in claims["rule"]:
        assert str(escape(rule)) in page
    assert page.count('data-title="Verdict"') == len(claims)
    assert "alike in all ranks of a model" not in page
    third = pd.read_csv(report / "tables" / "table_4.csv")
    mark = CHANCE if third["weighted_chance"][0] else ""
    assert f"<td>{third['weighted'][0]:.3f}{mark}</td>" in page
    assert "3 by the filter of lengths" in page  # the longest sentence of each split
    result = invoke("reproduce", "wen", "--data-root", root, "--out", out / "2", *TINY, "--studies",
                    "grid")  # fmt: skip
    assert "80 train, 30 dev, 60 test; left out: 3 by the filter of lengths" in result.stderr


@pytest.mark.usefixtures("undrawn_figures")
def test_a_table_without_rows_is_no_file(study: tuple[Path, Path], tmp_path: Path) -> None:
    root, out = study
    build(Wen(OPTIONS, root, out), tmp_path)
    assert (tmp_path / "tables" / "table_2.csv").exists()
    page = build(Wen(replace(OPTIONS, studies=("grid",)), root, out), tmp_path)
    found = {path.name for path in (tmp_path / "tables").iterdir()}
    assert not found & {f"table_{n}.{kind}" for n in (2, 3, 4, 5) for kind in ("csv", "tex")}
    assert all(len(pd.read_csv(tmp_path / "tables" / name)) for name in found if "csv" in name)
    Page(page.read_text(encoding="utf-8")).loads_nothing()


def test_legends_name_what_is_drawn(study: tuple[Path, Path]) -> None:
    root, out = study
    workspace = Wen(OPTIONS, root, out)
    tables = collect(workspace.results(), workspace.options, out)
    for name, figure in figures(tables, {"sst": "SST"}):
        assert all(axes.get_legend() is None for axes in figure.axes)  # none covers a panel
        [legend] = figure.legends
        texts = {text.get_text() for text in legend.get_texts()}
        if name.startswith("figure-2-nulls"):
            assert texts == {"BiLSTM"}
            known = [row for row in tables.nulls if row.null in NULL_TAUS]
            pairs = {row.null: row for row in known if name.endswith(row.tau)}
            assert len(figure.axes) == len(pairs)
            for axes, (null, row) in zip(figure.axes, pairs.items(), strict=True):
                assert axes.get_title(loc="left").startswith(null.capitalize())
                assert f": {row.exceeds} of {row.models} above" in axes.get_title(loc="left")
        elif name.startswith("figure-2"):
            assert texts == {"BiLSTM"}
            tau: TauName = "weighted" if name.endswith("weighted") else "plain"
            marks = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
            hollow = sum(len(x.get_xdata()) for x in marks if x.get_markerfacecolor() == "white")
            assert hollow == sum(row.tau(tau).chance for row in tables.figure_2)
        if name == "tau-and-skew":
            assert texts == {"BiLSTM, additive"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--clusters=1000",), "clusters: given 1000, needed at most"),
        (("--max-test=3", "--clusters=2"), "ask for fewer clusters (--output-clusters)"),
    ],
)
@pytest.mark.usefixtures("undrawn_figures")
def test_nothing_measured_is_said_and_ends_with_an_error(
    study: tuple[Path, Path], tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    root, _ = study
    arguments = ("--data-root", root, "--out", tmp_path, *TINY, "--studies=grid", *options)
    result = invoke("reproduce", "wen", *arguments, code=2)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("not measured: ")]
    assert "cells/sst/bilstm-additive-softmax-normal-0 main" in line
    assert reason in line
    assert "error: no cell could be measured" in result.stderr
    assert (tmp_path / "report" / "wen.html").is_file()


def test_options_that_are_no_sensible_numbers(study: tuple[Path, Path], tmp_path: Path) -> None:
    root, _ = study
    for option, message in (
        ("--tvd=nan", "--tvd: given nan, needed a number above 0"),
        ("--strength=-1", "--strength: given -1.0, needed a number from 0"),
        ("--temperature=inf", "--temperature: given inf"),
    ):
        arguments = ("--data-root", root, "--out", tmp_path / "out", *TINY, option)
        assert message in invoke("reproduce", "wen", *arguments, code=2).stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("undrawn_figures")
def test_the_width_of_given_vectors_is_the_one_reported(
    study: tuple[Path, Path], tmp_path: Path
) -> None:
    root, _ = study
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("good 1 0 0\nbad 0 1 0\n")
    invoke("reproduce", "wen", "--data-root", root, "--out", tmp_path / "out", *TINY,
           "--studies=grid", "--vectors", vectors)  # fmt: skip
    page = (tmp_path / "out" / "report" / "wen.html").read_text(encoding="utf-8")
    assert "<td>embedding size</td><td>3, of the word vectors</td>" in page
    assert "<td>vectors</td><td>vectors.txt</td>" in page


def test_every_open_point_names_options_that_exist() -> None:
    assert len(POINTS) == 19
    command: Any = get_command(app)
    for part in ("reproduce", "wen"):
        command = command.commands[part]
    known = {name for parameter in command.params for name in parameter.opts}
    named = {name for _, _, option in POINTS for name in re.findall(r"--[a-z-]+", option)}
    assert named <= known
    assert len(named) > 15


def test_a_vocabulary_without_words_is_said() -> None:
    about: dict[str, Any] = {
        "title": "SST", "note": "", "mean_length": 9.0, "documents": {"train": {"a": 1}},
        "dropped": {}, "filtered": {},
    }  # fmt: skip
    said = "no word is frequent enough for the vocabulary, so all are unknown words"
    assert describe({"about": about | {"words": 0}}).endswith(said)
    assert said not in describe({"about": about | {"words": 1}})


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no finished cell"):
        build(Wen(OPTIONS, tmp_path, tmp_path), tmp_path / "report")
