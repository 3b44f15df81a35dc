"""Documents of a run: which are kept, what is kept of them, and what the page shows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from report.html_page import Page
from studies.serrano_smith.hand_made import HandMade

from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith import experiment, report
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.documents import DOCUMENTS, KEPT, documents
from fastattnerase.studies.serrano_smith.result import Result

FAST = Config(resamples=5, exhibits=2)
HOSTILE = '</script><script>alert("1")</script><!-- '

pytestmark = pytest.mark.usefixtures("undrawn_figures")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return experiment.run(HandMade(), FAST, tmp_path_factory.mktemp("run"), name="by hand")


def sigmoid(x: float) -> float:
    return round(1 / (1 + math.exp(-x)), 5)


def test_what_is_kept_of_a_document(result: Result) -> None:
    kept = {one.row: one for one in documents(result)}
    assert set(kept) == {0, 1, 2, 3, 4}  # the analysed ones
    one = kept[2]  # values -0.5 and 2 of weights 0.6 and 0.4: the mean is 0.5
    assert one.items == ("<w0>", "<w1>")
    assert (one.label, one.gold, one.probability) == (1, 1, sigmoid(0.5))
    orders = {order.ranking: order for order in one.orders}
    assert list(orders) == ["attention", "gradient", "product", "minimal", "random"]
    attention = orders["attention"]
    # Without item 0 the mean is 2, without both 0, which is decided as the first class.
    assert attention.items == (0, 1)
    assert (attention.first_flip, attention.flip_label) == (2, 0)
    assert attention.decisions == (1, 1, 0)
    assert attention.label_probabilities == (sigmoid(0.5), sigmoid(2), 0.5)
    assert attention.decision_probabilities == (sigmoid(0.5), sigmoid(2), 0.5)
    minimal = orders["minimal"]  # without item 1 the mean is -0.5
    assert (minimal.items, minimal.first_flip, minimal.flip_label) == ((1, 0), 1, 0)
    assert minimal.label_probabilities == (sigmoid(0.5), sigmoid(-0.5), 0.5)
    assert minimal.decision_probabilities == (sigmoid(0.5), sigmoid(0.5), 0.5)


def test_documents_agree_with_the_tables(result: Result) -> None:
    multi = result.table("multi").set_index(["ranking", "row"])
    probabilities = result.table("instances").set_index("row")["probabilities"]
    for one in documents(result):
        assert one.probability == pytest.approx(probabilities[one.row][one.label], abs=1e-5)
        for order in one.orders:
            row = multi.loc[(order.ranking, one.row)]
            assert (order.first_flip, order.flip_label) == (row["first_flip"], row["flip_label"])


def test_exhibits_come_first_and_each_document_once(result: Result, tmp_path: Path) -> None:
    rows = [one.row for one in documents(result)]
    assert rows[:2] == [exhibit.row for exhibit in result.exhibits]
    assert len(set(rows)) == len(rows)
    many = HandMade(size=50, rows=[0, 1, 2, 3, 4] * 20)
    assert len(documents(experiment.run(many, FAST, tmp_path / "a", name="x"))) == KEPT
    more = Config(resamples=5, exhibits=70)
    kept = documents(experiment.run(many, more, tmp_path / "b", name="x"))
    assert len(kept) == len({one.row for one in kept}) >= KEPT


def test_exhibits_have_something_to_choose_where_there_is(tmp_path: Path) -> None:
    # Of the instances by hand, (1, 1) flips only where nothing is left.
    source = HandMade(rows=[3, 3, 3, 3, 0, 1, 2, 3])
    three = Config(resamples=5, exhibits=3)
    run = experiment.run(source, three, tmp_path / "three", name="x")
    assert sorted(exhibit.row for exhibit in run.exhibits) == [4, 5, 6]
    assert len(documents(run)) == 8
    four = experiment.run(source, replace(three, exhibits=4), tmp_path / "four", name="x")
    assert len(four.exhibits) == 4


def test_no_documents_where_none_are_asked_for_or_there_is_no_text(tmp_path: Path) -> None:
    class Silent(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            chunk = super()._chunk(rows)
            return Chunk(chunk.batch, chunk.gold, chunk.model_label)

    none = Config(resamples=5, exhibits=0)
    for name, source, config in (("a", HandMade(), none), ("b", Silent(), FAST)):
        run = experiment.run(source, config, tmp_path / name, name="x")
        assert documents(run) == ()
        assert not (run.folder / DOCUMENTS).exists()
        text = report.build([run], tmp_path / f"{name}-report").read_text(encoding="utf-8")
        assert "The run holds no text" in text


def test_the_page_shows_the_numbers_of_the_run(result: Result, tmp_path: Path) -> None:
    page = Page(report.build([result], tmp_path).read_text(encoding="utf-8"))
    shown = page.of("fae-map")
    assert len(shown) == 5
    for article, one in zip(shown, documents(result), strict=True):
        known = json.loads(article["data-map"])
        assert known["classes"] == ["bad", "good"]
        assert known["label"] == one.label
        for (items, flip, label, _, probabilities), order in zip(
            known["orders"], one.orders, strict=True
        ):
            assert tuple(items) == order.items
            assert (flip, label) == (order.first_flip, order.flip_label)
            assert probabilities == [round(p, 3) for p in order.decision_probabilities]
    assert (
        f"#2 good {sigmoid(0.5):.3f} (labelled good). Erasing 2 of 2 items by attention changes it "
        "to bad 0.500; 1 would do." in page.words()
    )
    [box] = page.of("fae-maps")
    assert box["data-page"] == "2"  # as many at a time as there are exhibits
    assert result.counts.analysed == 5


def test_a_run_of_an_earlier_version_shows_what_it_has(tmp_path: Path) -> None:
    run = experiment.run(HandMade(), FAST, tmp_path / "run", name="x")
    (run.folder / DOCUMENTS).unlink()
    kept = documents(run)
    assert [one.row for one in kept] == [exhibit.row for exhibit in run.exhibits]
    for one, exhibit in zip(kept, run.exhibits, strict=True):
        assert one.items == exhibit.items
        attention, minimal = one.orders
        assert attention.items == exhibit.erased
        assert attention.label_probabilities == ()
        assert minimal.items == exhibit.minimal
    page = Page(report.build([run], tmp_path / "report").read_text(encoding="utf-8"))
    page.loads_nothing()
    assert len(page.of("fae-map")) == 2
    assert page.of("fae-curve") == []
    # What the smallest set changes the decision to stands in the tables.
    assert re.search(r"Smallest set ?1 of \d: (bad|good)", page.words())


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    run = experiment.run(HandMade(), FAST, tmp_path, name="x")
    (tmp_path / DOCUMENTS).write_text('{"documents": [{"row": 1}]}')
    with pytest.raises(RunError, match=r"documents\.json is damaged: it lacks 'items'"):
        documents(run)


def test_the_page_is_bounded(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MOST_BYTES", 9_000)
    page = Page(report.build([result], tmp_path).read_text(encoding="utf-8"))
    shown = len(page.of("fae-map"))
    assert 0 < shown < 5
    assert f"{shown} of the 5 documents that are kept fit here." in page.words()


def test_many_models_begin_with_one_figure(result: Result, tmp_path: Path) -> None:
    many = [replace(result, run=replace(result.run, name=f"model {n}")) for n in range(5)]
    page = Page(report.build(many, tmp_path).read_text(encoding="utf-8"))
    page.loads_nothing()
    [start] = [place for place, at in enumerate(page.elements) if at[1].get("id") == "short"]
    [stop] = [place for place, at in enumerate(page.elements) if at[1].get("id") == "documents"]
    opening = [tag for tag, _ in page.elements[start:stop]]
    assert opening.count("figure") == opening.count("svg") == 1
    assert len(page.of("verdict")) == 1 + 5  # of all together, and of each, folded
    counted = re.search(r"what 5 models decide by: ([a-z ]+) in 5\.", page.words())
    assert counted is not None
    listed = f"{counted[1].capitalize()}: model 0, model 1, model 2, model 3 and model 4."
    assert listed in page.words()
    assert len(page.of("fae-maps")) == 5


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    class Hostile(HandMade):
        def __init__(self) -> None:
            super().__init__()
            self.classes = [HOSTILE, "good"]

        def chunks(self, start: int) -> Iterator[Chunk]:
            return super().chunks(start)

        def _chunk(self, rows: list[int]) -> Chunk:
            chunk = super()._chunk(rows)
            texts = [[HOSTILE for _ in items] for items in chunk.texts or ()]
            return Chunk(chunk.batch, chunk.gold, chunk.model_label, texts)

    run = experiment.run(Hostile(), FAST, tmp_path / "run", name=HOSTILE)
    page = Page(report.build([run], tmp_path / "report").read_text(encoding="utf-8"))
    page.loads_nothing()
    assert page.tags.count("script") == 1
    assert page.text.count(HOSTILE) > 10
    assert HOSTILE not in page.source
