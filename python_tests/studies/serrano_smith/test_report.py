"""The report: what is in it, that it is well formed, and that it needs no network."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from report.html_page import Page
from studies.serrano_smith.hand_made import HandMade, with_skill

from fastattnerase import AttentionBatch
from fastattnerase.report.figures import FORMATS
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith import experiment, sentences
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.figures import FIGURES, panel
from fastattnerase.studies.serrano_smith.report import build
from fastattnerase.studies.serrano_smith.result import Result
from fastattnerase.studies.serrano_smith.tables import tables

FAST = Config(resamples=20, exhibits=3)
INF = float("inf")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        experiment.run(HandMade(), FAST, folder / "a", name="first <model> & more"),
        experiment.run(HandMade(rows=[0, 3, 4, 4, 4]), FAST, folder / "b", name="second"),
    ]


@pytest.fixture(scope="module")
def folder(results: list[Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    assert build(results, folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_the_page_loads_nothing_and_can_be_sent_as_one_file(folder: Path, page: Page) -> None:
    page.loads_nothing()
    assert len([link for link in page.links if link.startswith("data:image/png")]) == 24
    assert len([link for link in page.links if link.startswith("data:text/csv")]) == 13
    assert str(folder) not in page.source


def test_the_contents_name_every_section(page: Page) -> None:
    [start] = [place for place, (tag, _) in enumerate(page.elements) if tag == "nav"]
    listed = []
    for tag, found in page.elements[start:]:
        if tag == "main":
            break
        if tag == "a":
            listed.append(found["href"][1:])
    sections = [found["id"] for tag, found in page.elements if tag == "section"]
    assert listed == sections
    assert sections[:3] == ["short", "documents", "words"]
    assert len(sections) == 13


def test_only_search_and_slider_need_a_script(page: Page) -> None:
    hidden = [found["class"] for _, found in page.elements if "hidden" in found]
    assert set(hidden) == {"fae-find", "fae-slide"}
    assert len(page.of("fae-map")) == 10  # the five analysed documents of both runs
    assert len(page.of("fae-find")) == 2
    assert page.tags.count("button") == 2 * 2  # of the search
    assert page.tags.count("select") == 10  # of the sliders


def test_every_colour_has_one_for_dark_pages(page: Page) -> None:
    light, dark = re.findall(r":root \{([^}]*)\}", page.source)
    light, dark = (dict(re.findall(r"(--\w+): (#\w+)", colours)) for colours in (light, dark))
    assert set(light) == set(dark)
    assert len(light) >= 5
    assert not set(light.items()) & set(dark.items())
    assert "color-scheme: light dark" in page.source


def test_names_and_texts_are_escaped(page: Page, folder: Path) -> None:
    assert "first <model> & more" in page.text
    assert "<w1>" in page.text
    assert "<w1>" not in (folder / "report.html").read_text(encoding="utf-8")


def test_every_figure_is_in_the_page_and_on_disk(folder: Path, page: Page) -> None:
    # Both runs keep the five analysed documents, each with its curves.
    assert page.tags.count("svg") == len(FIGURES) * 2 + 10
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for figure in FIGURES:
        for kind in FORMATS:
            content = (folder / "figures" / f"{figure}.{kind}").read_bytes()
            assert content.startswith(starts[kind])
            assert len(content) > 2000


def test_without_all_figures_the_page_has_the_panels_and_says_how_to_get_the_others(
    results: list[Result], tmp_path: Path
) -> None:
    shown = Page(build(results, tmp_path, all_figures=False).read_text(encoding="utf-8"))
    shown.loads_nothing()
    assert shown.tags.count("svg") == len(FIGURES) * 2 + 10
    assert not [link for link in shown.links if link.startswith("data:image/png")]
    assert "fastattnerase report --figures" in shown.text
    assert not (tmp_path / "figures").exists()
    assert {path.suffix for path in (tmp_path / "paper").iterdir()} == {".csv", ".tex"}
    assert (tmp_path / "tables" / "models.csv").exists()


def test_every_table_is_on_disk(folder: Path, results: list[Result]) -> None:
    made = tables(results)
    assert set(made) == {
        "models", "multi_weight", "single_weight", "contingency", "pairs", "exclusions", "findings",
    }  # fmt: skip
    for name, table in made.items():
        read = pd.read_csv(folder / "tables" / f"{name}.csv")
        assert list(read.columns) == list(table.columns)
        assert len(read) == len(table)
    models = pd.read_csv(folder / "tables" / "models.csv").set_index("model")
    assert models.loc["second", "analysed"] == 5
    multi = pd.read_csv(folder / "tables" / "multi_weight.csv").set_index(["model", "ranking"])
    assert multi.loc[("first <model> & more", "attention"), "fraction_median"] == pytest.approx(
        0.75
    )
    assert multi.loc[("first <model> & more", "attention"), "share_optimal"] == pytest.approx(2 / 3)
    cells = pd.read_csv(folder / "tables" / "contingency.csv").set_index(
        ["model", "ranking", "cell"]
    )
    assert cells.loc[("first <model> & more", "attention", "only_top"), "count"] == 2
    assert cells["share"].groupby(["model", "ranking"]).sum().tolist() == pytest.approx([1.0] * 6)


@pytest.mark.long
def test_the_same_results_give_the_same_files(
    results: list[Result], folder: Path, tmp_path: Path
) -> None:
    build(results, tmp_path)
    for path in folder.rglob("*.*"):
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def test_counts_are_told(page: Page) -> None:
    text = " ".join(page.text.split())
    assert "8 instances; 5 analysed." in text
    assert "1 with a single item" in text
    assert "was drawn uniformly among the items but the top one" in text
    assert "differs from the model’s own in 1 of 8 instances" in text


def test_words_tell_why_few_flip(results: list[Result]) -> None:
    """Of the second run, 2 of 5 instances flip; the other three are decided as the bias decides."""
    text = " ".join(sentences.paragraphs(results[1]))
    assert "Fewer than half of the decisions flip under" in text
    assert "Without any item the model's bias alone decides “bad”." in text
    assert "3 of the 5 instances (60\u00a0%) are decided as the bias alone decides" in text
    assert "No set of items at all changes 3 decisions. Nothing less than everything" in text
    assert "everything changes 1 decision." in text
    assert "Fewer than half" not in " ".join(sentences.paragraphs(results[0]))


def test_words_warn_of_a_model_with_one_decision(tmp_path: Path) -> None:
    run = experiment.run(HandMade(rows=[0, 2, 3]), FAST, tmp_path, name="x")
    even, notice = sentences.notices(run)
    assert even.startswith("Attention is nearly uniform: its mean divergence")
    assert notice.startswith("The model decides “good” for every instance")


def test_words_name_the_proof_where_it_applies(results: list[Result]) -> None:
    assert "best possible ranking by proof" in sentences.paragraphs(results[0])[-1]


@pytest.mark.parametrize(
    ("gaps", "skill", "known", "words"),
    [
        ([1, 1, 9], 0.9, 3, "attention is a good guide to what decides: its skill is 0.90 (0: a "
         "random order, 1: the smallest sets), and erasing by it flips 67\u00a0% with as few items "
         "as the smallest set."),
        ([1, 2, 9], 0.5, 3, "a fair guide, not an optimal one: its skill is 0.50 (0: a random "
         "order, 1: the smallest sets), and erasing by it needs 2.0× the items of the smallest set "
         "(median), and no more than it in 33\u00a0%."),
        # The ratio does not decide: it cannot be large where the smallest set is most of a text.
        ([1, 1.2, 1.2], 0.49, 3, "a poor guide to what decides: its skill is 0.49 (0: a random "
         "order, 1: the smallest sets), and erasing by it needs 1.2× the items"),
        ([4, 5, 9], 0.95, 3, "a good guide to what decides: its skill is 0.95"),
        # The group comes first, and its size.
        ([1, 1, 9], 0.9, 6, "Erasing some, not all, items can flip 50\u00a0% of the decisions (3 "
         "of 6). Among these, attention is a good guide"),
        ([INF, INF], -1.0, 2, "(2 of 2). Erasing by attention flips none of these: other items "
         "would."),
        ([1] + [INF] * 9, -0.2, 10, "poor guide to what decides: its skill is −0.20 (0: a random "
         "order, 1: the smallest sets), and erasing by it never flips 90\u00a0% of them, although "
         "other items would."),
        ([], 0.0, 10, "Nothing to choose"),
        ([], 0.0, 0, "The smallest sets are not known here"),
    ],
)  # fmt: skip
def test_verdicts(
    results: list[Result], gaps: list[float], skill: float, known: int, words: str
) -> None:
    made = made_up(with_skill(results[0], skill), gaps, 10, known, against_random=(9, 0, 0.004))
    assert words in sentences.verdict(made)


def made_up(
    result: Result,
    gaps: list[float],
    analysed: int,
    known: int,
    against_random: tuple[int, int, float],
) -> Result:
    """A result with other gaps of attention, counts, and wins of it over a random order."""

    class Made(Result):
        def gaps(self, ranking: str) -> np.ndarray:
            assert ranking == "attention"
            return np.array(gaps, dtype=np.float64)

    fewer, more, p = against_random
    names = ("attention", "random")
    pair = replace(
        result.pairs[names],
        judged=20,
        first_smaller=fewer,
        second_smaller=more,
        ties=20 - fewer - more,
        p_sign=p,
    )
    sets = replace(result.counts.smallest_set, known=known, some=len(gaps))
    counts = replace(result.counts, analysed=analysed, smallest_set=sets)
    return Made(**vars(result) | {"counts": counts, "pairs": {names: pair}})


@pytest.mark.parametrize(
    ("fewer", "more", "p", "start"),
    [
        (9, 2, 0.07, r"Attention is not told apart from a random order: it needs fewer items in 9 "
         r"of the 20 decisions that either flips, more in 2 and as many in 9 \(sign test, p "
         r"0.07\)\. Erasing some, not all, items can flip 100\u00a0% of the decisions \(3 of "
         r"3\)\. Among these, erasing by attention flips 100\u00a0% with as few items"),
        (2, 9, 0.07, "Attention is not told apart from a random order"),
        (1, 15, 0.0005, "Attention is a worse guide than a random order"),
        (15, 1, 0.0005, r"Erasing some, .* Among these, attention is a good guide"),
    ],
)  # fmt: skip
def test_what_is_no_better_than_chance_is_no_guide(
    results: list[Result], fewer: int, more: int, p: float, start: str
) -> None:
    made = made_up(with_skill(results[0], 0.95), [1, 1, 1], 20, 3, against_random=(fewer, more, p))
    assert re.match(start, sentences.verdict(made))
    assert ("not told apart" in sentences._against_random(made)) == (p > 0.05)


def test_constant_attention_and_instances_left_out_are_noticed(tmp_path: Path) -> None:
    class Even(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            values = torch.tensor([[1.0], [-3.0], [0.5], [float("nan")]])
            return Chunk(
                AttentionBatch(
                    values,
                    torch.tensor([0, 2, 4]),
                    scores=torch.zeros(4),
                    head_weight=torch.tensor([[0.0], [1.0]]),
                    head_bias=torch.zeros(2),
                )
            )

    run = experiment.run(Even(rows=[0, 1]), FAST, tmp_path, name="x")
    left_out, _ = sentences.notices(run)
    assert left_out == "1 of 2 instances holds NaN or infinity: left out."
    assert sentences.premises(run) == [sentences.verdict(run)]
    assert sentences.verdict(run).startswith(
        "No verdict: attention is constant. All items of an instance have the same weight"
    )


def test_no_notice_without_a_reason(results: list[Result]) -> None:
    assert sentences.notices(results[0])[1:] == []
    assert "left out" in sentences.notices(results[0])[0]  # one of the instances by hand has NaN


def test_no_number_is_minus_zero() -> None:
    assert sentences.number(-1e-9, 4) == "0.0000"
    assert sentences.number(-0.0) == "0.00"
    assert sentences._small(-1e-12) == "0"


def test_headline_and_tile_are_one_number(results: list[Result], page: Page) -> None:
    for result in results:
        tile = sentences.times(sentences.typical_gap(result, "attention"))
        some = result.counts.smallest_set.some
        words = f"Attention over smallest set, median of the {some} that some, not all, items can"
        assert re.search(rf"{words} flip\s*{tile}", page.text)


def test_what_never_flips_is_an_infinite_gap(results: list[Result], tmp_path: Path) -> None:
    # Of the instances by hand, a part of the items flips the first three.
    assert results[0].gaps("attention").tolist() == [1, 1, 2]
    assert results[0].gaps("minimal").tolist() == [1, 1, 1]

    class Source(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            # 0.4 · 1 - 0.3 · 3 < 0: without item 1 it flips; without item 0, and then 1, never.
            batch = AttentionBatch(
                torch.tensor([[1.0], [-3.0]]),
                torch.tensor([0, 2]),
                weights=torch.tensor([0.4, 0.3]),
                head_weight=torch.tensor([[0.0], [1.0]]),
                head_bias=torch.zeros(2),
            )
            return Chunk(batch)

    run = experiment.run(Source(rows=[0]), FAST, tmp_path, name="x")
    assert run.gaps("attention").tolist() == [INF]
    assert run.gaps("minimal").tolist() == [1]
    assert sentences.typical_gap(run, "attention") == INF
    assert sentences.times(INF) == "never"
    assert "Erasing by attention flips none of these" in sentences.verdict(run)


def test_nothing_to_rank_is_said_so(tmp_path: Path) -> None:
    run = experiment.run(HandMade(rows=[5, 6]), FAST, tmp_path, name="x")
    assert sentences.verdict(run).endswith("so there is nothing to rank.")
    assert sentences.paragraphs(run) == [sentences.verdict(run)]


@pytest.mark.usefixtures("undrawn_figures")
def test_a_single_run_and_an_empty_one(tmp_path: Path) -> None:
    for number, rows in enumerate(([4], [5, 6])):
        run = experiment.run(HandMade(rows=rows), FAST, tmp_path / f"run{number}", name="one")
        page = Page(build([run], tmp_path / f"report{number}").read_text(encoding="utf-8"))
        assert "Does attention explain this model’s decisions?" in page.text
        assert "nan" not in page.text.lower().replace("nan or infinite", "")


def test_names_in_any_script(tmp_path: Path) -> None:
    """No warning about glyphs reaches the reader; the page has the name as text."""
    run = experiment.run(HandMade(), FAST, tmp_path / "run", name="日本語 👍")
    page = build([run], tmp_path / "report")
    assert "日本語 👍" in page.read_text(encoding="utf-8")


def test_runs_need_distinct_names(results: list[Result], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"names of runs: given .*, needed distinct ones"):
        build([results[0], results[0]], tmp_path)
    with pytest.raises(RunError, match="runs: given none"):
        build([], tmp_path)


@pytest.mark.parametrize("furthest", [1, 2, 4, 9, 40, 99, 300, 1500, 20_000])
def test_ticks_of_gaps_do_not_touch(furthest: int, tmp_path: Path) -> None:
    """The item that decides has the smallest weight of all: attention erases it last."""

    class Long(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            return Chunk(
                AttentionBatch(
                    torch.tensor([3.0] + [-1e-5] * furthest)[:, None],
                    torch.tensor([0, furthest + 1]),
                    scores=torch.tensor([-0.5] + [0.0] * furthest),
                    head_weight=torch.tensor([[0.0], [1.0]]),
                    head_bias=torch.zeros(2),
                )
            )

    result = experiment.run(Long(rows=[0], size=1), FAST, tmp_path, name="long")
    gaps = result.gaps("attention")
    assert gaps.tolist() == [furthest + 1]
    figure = panel(FIGURES["gaps"], result)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    [axes] = figure.axes
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(boxes) >= 2
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser")


def in_browser(page: Path, script: str, folder: Path, width: int) -> Any:
    """What a script gives, as JSON, that sees the page as `root` in a frame of a width."""
    frame = folder / "frame.html"
    frame.write_text(
        f"""<iframe id=f width={width} height=700 src="{page.as_uri()}"></iframe><script>
        onload = () => {{ const root = f.contentDocument.documentElement;
        const give = () => {{ {script} }};
        document.title = "result " + encodeURIComponent(JSON.stringify(give())); }}</script>"""
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(BROWSER), *options, profile, "--dump-dom", frame.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"<title>result (.+?)</title>", shown)
    assert found is not None, shown[:500]
    return json.loads(unquote(found[1]))


@needs_browser
def test_no_page_scrolls_sideways(tmp_path: Path) -> None:
    """Names of models without a space, in a frame as wide as a phone or a desktop."""
    names = ["averylongnameofamodel" * 5, "another/very_long-name.of.a.model" * 3]
    results = [
        experiment.run(HandMade(), FAST, tmp_path / str(i), name=name)
        for i, name in enumerate(names)
    ]
    page = build(results, tmp_path / "report")
    script = "return [root.scrollWidth, root.clientWidth];"
    for width in (360, 1280):
        inner, outer = in_browser(page, script, tmp_path, width)
        assert inner <= outer, width


@needs_browser
@pytest.mark.parametrize(("width", "listed"), [(1280, True), (390, False)])
def test_the_contents_stay_and_open_on_a_phone(
    folder: Path, tmp_path: Path, width: int, listed: bool
) -> None:
    script = """
        const links = root.querySelector(".toc div");
        const before = getComputedStyle(links).display !== "none";
        root.scrollTop = 1500;
        const top = (listed) => root.querySelector(listed ? ".toc div" : ".toc")
            .getBoundingClientRect().top;
        const stays = top(before);
        root.querySelector("#toc-open").click();
        const open = getComputedStyle(links).display !== "none";
        links.querySelector("a").click();
        return [before, stays, open, getComputedStyle(links).display !== "none"];"""
    before, stays, opened, chosen = in_browser(folder / "report.html", script, tmp_path, width)
    assert (before, opened, chosen) == (listed, True, listed)
    assert stays == (24 if listed else 0)


@needs_browser
def test_pages_search_and_slider(folder: Path, tmp_path: Path) -> None:
    """Five documents of the first run, three at a time; one of them has three items."""
    script = """
        const box = root.querySelector(".fae-maps");
        const maps = [...box.querySelectorAll(".fae-map")];
        const seen = () => [maps.flatMap((map, place) => map.hidden ? [] : [place]),
            box.querySelector(".fae-find output").textContent];
        const found = [seen()];
        const [back, next] = box.querySelectorAll(".fae-find button");
        next.click();
        found.push(seen(), [back.disabled, next.disabled]);
        const say = (element, value, what) => {
            element.value = value;
            element.dispatchEvent(new Event(what));
        };
        say(box.querySelector("input[type=search]"), " <W1>  <w2> ", "input");
        found.push(seen());
        const map = maps.find((map) => !map.hidden);
        const state = () => [map.querySelectorAll(".fae-text .gone").length,
            map.querySelector(".fae-slide output").textContent];
        found.push(state());
        say(map.querySelector("input[type=range]"), 0, "input");
        found.push(state());
        say(map.querySelector("select"), 3, "change");
        found.push(state());
        say(map.querySelector("input[type=range]"), 3, "input");
        found.push(state());
        say(box.querySelector("input[type=search]"), "nowhere", "input");
        found.push(seen());
        return found;"""
    first, second, buttons, searched, *states, nothing = in_browser(
        folder / "report.html", script, tmp_path, 1280
    )
    assert first == [[0, 1, 2], "1 to 3 of 5"]
    assert second == [[3, 4], "4 to 5 of 5"]
    assert buttons == [False, True]
    assert len(searched[0]) == 1
    assert searched[1] == "1 to 1 of 1"
    # Values 2, -1 and -0.5 of weights 0.5, 0.3 and 0.2: the mean is 0.6, without item 0 it is
    # -0.8, and without any the bias decides; item 0 is the smallest set as well.
    good, bad = (1 / (1 + np.exp(-mean)) for mean in (0.6, 0.8))
    assert states == [
        [1, f"1 of 3 erased (33\u00a0%): bad {bad:.3f}, changed"],
        [0, f"0 of 3 erased (0\u00a0%): good {good:.3f}"],
        [1, f"1 of 3 erased (33\u00a0%): bad {bad:.3f}, changed"],
        [3, "3 of 3 erased (100\u00a0%): bad 0.500, changed"],
    ]
    assert nothing == [[], "nothing found"]
