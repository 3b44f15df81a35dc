"""The command compare: numbers against one forward pass at a time, restarts, pages, bad input."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import invoke, one_line
from numpy.typing import NDArray
from report.html_page import Page
from report.layout import faults
from studies.compare.kill_compare import kill_and_compare
from studies.compare.small_comparison import reviews, saved

from fastattnerase.data import collate
from fastattnerase.data.documents import Document
from fastattnerase.models import AttentionClassifier, load_model
from fastattnerase.studies.compare.figures import figures
from fastattnerase.studies.compare.options import LAYER, RANDOM, WORDS
from fastattnerase.studies.compare.report import _grown_relevance
from fastattnerase.studies.compare.summary import HUMAN
from fastattnerase.studies.compare.units import Compare

FEW = "gradient_norm,attention,gradient"


def compare(model: Path, out: Path, *arguments: object) -> str:
    given = ("--model", model, "--out", out, "--device", "cpu", "--resamples", 30, *arguments)
    return invoke("compare", *given).stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison on six documents of one, three, five and twelve words."""
    folder = tmp_path_factory.mktemp("compare")
    model = saved(folder / "model", reviews(folder / "data"), head="sigmoid")
    grids = ("--grids", "eraser,ferret,every")
    compare(model, folder / "out", "--methods", FEW, "--rationales", "why", *grids)
    return folder / "out"


def probability(model: AttentionClassifier, document: Document, words: list[int]) -> list[float]:
    """What the model says of some of a document's words, computed alone."""
    left = replace(
        document,
        token_ids=document.token_ids[words],
        sentence_lengths=np.array([len(words)] if words else [], dtype=np.int64),
    )
    model.eval()
    with torch.no_grad():
        return model(collate([left])).logits.double().softmax(1)[0].tolist()  # type: ignore[no-any-return]


def value(work: Compare, level: str, measure: str, grid: str, method: str, row: int) -> float:
    table = work.summary("instances")
    [found] = table[
        (table["level"] == level)
        & (table["measure"] == measure)
        & (table["grid"] == grid)
        & (table["method"] == method)
        & (table["row"] == row)
    ]["value"]
    return float(found)


def test_words_erased_one_forward_pass_at_a_time(run: Path) -> None:
    work = Compare.open(run)
    model = load_model(work.subject.model).model
    for row, document in enumerate(work.documents):
        n = len(document)
        scores = work.scores("gradient_norm")[row]
        order = np.argsort(-scores, kind="stable").tolist()
        whole = probability(model, document, list(range(n)))
        label = int(np.argmax(whole))
        assert work.instances()["decision"][row] == label

        def drop(kept: list[int], own: Document = document, of: int = label) -> float:
            return probability(model, own, sorted(kept))[of]

        for measure, left in (
            ("aopc_comprehensiveness", lambda k, o=order: o[k:]),
            ("aopc_sufficiency", lambda k, o=order: o[:k]),
        ):
            for grid, ks in (
                ("eraser", [math.ceil(q * n - 1e-9) for q in (0.01, 0.05, 0.1, 0.2, 0.5)]),
                ("every", list(range(1, n + 1))),
            ):
                expected = np.mean([whole[label] - drop(left(k)) for k in ks])
                found = value(work, WORDS, measure, grid, "gradient_norm", row)
                assert found == pytest.approx(expected, abs=1e-6)
        curve = [drop(order[k:]) for k in range(n + 1)]
        area = sum((a + b) / 2 for a, b in pairwise(curve)) / n
        found = value(work, WORDS, "deletion_area", "", "gradient_norm", row)
        assert found == pytest.approx(area, abs=1e-6)
        flips = [
            k
            for k in range(1, n + 1)
            if int(np.argmax(probability(model, document, sorted(order[k:])))) != label
        ]
        share = flips[0] / n if flips else 1.0
        assert value(work, WORDS, "flip_fraction", "", "gradient_norm", row) == share


def test_gaps_are_known_at_the_attention_layer_alone(run: Path) -> None:
    means = Compare.open(run).summary("means")
    gaps = means[means["measure"] == "optimality_gap"]
    assert set(gaps["level"]) == {LAYER}
    assert (gaps["mean"].dropna() >= 1).all()
    assert set(means["method"]) == {"gradient_norm", "attention", "gradient", RANDOM}


def test_random_rankings_are_averaged_within_documents(run: Path) -> None:
    work = Compare.open(run)
    scores = [work.random_scores(number, 2, 12) for number in range(5)]
    assert all((own > 0).all() for own in scores)
    assert not np.array_equal(scores[0], scores[1])
    curves = work.curves(RANDOM)
    assert sorted(curves["ranking"].unique()) == work.randoms
    document = work.documents[2]
    model = load_model(work.subject.model).model
    whole = probability(model, document, list(range(12)))
    label = int(np.argmax(whole))
    drops = []
    for own in scores:
        order = np.argsort(-own, kind="stable").tolist()
        ks = [1, 1, 2, 3, 6]
        drops += [whole[label] - probability(model, document, sorted(order[k:]))[label] for k in ks]
    found = value(work, WORDS, "aopc_comprehensiveness", "eraser", RANDOM, 2)
    assert found == pytest.approx(np.mean(drops), abs=1e-6)


def test_marked_words(run: Path) -> None:
    work = Compare.open(run)
    # One word in 5, 1 and 12, and in 5, 3 and 12: a single word that is marked is all of a text.
    assert work.subject.share == pytest.approx((1 / 5 + 1 + 1 / 12 + 1 / 5 + 1 / 3 + 1 / 12) / 6)
    assert work.subject.marked == 6
    scores = work.scores("attention")[0]
    human = np.array([False, True, True, False, False])  # a fine film indeed .
    k = math.ceil(work.subject.share * 5 - 1e-9)
    chosen = np.argsort(-scores, kind="stable")[:k]
    hits = int(human[chosen].sum())
    f1 = 2 * hits / (k + 2)
    assert value(work, HUMAN, "token_f1", "", "attention", 0) == pytest.approx(f1)
    means = work.summary("means")
    own = means[(means["measure"] == "auprc") & (means["method"] == "attention")].iloc[0]
    assert own["documents"] == 5
    assert own["reasons"] == "all words human: 1"
    assert set(work.summary("f1").columns) == {"method", "measure", "micro", "macro"}


def test_intervals_hold_the_means(run: Path) -> None:
    work = Compare.open(run)
    means = work.summary("means").dropna(subset=["mean"])
    assert (means["low"] <= means["mean"] + 1e-12).all()
    assert (means["mean"] <= means["high"] + 1e-12).all()
    pairs = work.summary("pairs")
    table = means.set_index(["level", "measure", "grid", "method"])["mean"]
    whole = pairs[(pairs["measure"] == "aopc_sufficiency") & (pairs["grid"] == "eraser")]
    assert len(whole) == 2 * 6
    for row in whole.to_dict("records"):
        key = row["level"], row["measure"], row["grid"]
        expected = table[(*key, row["method"])] - table[(*key, row["other"])]
        assert row["difference"] == pytest.approx(expected, abs=1e-9)


def test_the_page(run: Path) -> None:
    page = Page((run / "report" / "compare.html").read_text(encoding="utf-8"))
    page.loads_nothing()
    words = page.words()
    assert "Does attention ever come first, when words of the input are erased" in words
    assert "Hooker et al. 2019" in words
    assert "The model is right about" in words
    assert "Words erased at the attention layer" in words
    assert "u" in page.tags  # marked words
    work = Compare.open(run)
    drawn = list(figures(work, work.summary("agreement")))
    curves = [f"curves-{of}-{verb}" for of in ("words", "layer") for verb in ("erased", "kept")]
    assert [one.name for one in drawn] == [*curves, "agreement"]
    assert [faults(one.figure) for one in drawn] == [[]] * 5


def test_report_again(run: Path, tmp_path: Path, undrawn_figures: None) -> None:
    invoke("report", run, "--out", tmp_path / "again")
    for name in ("means", "pairs", "findings", "firsts", "agreement", "checks", "f1"):
        tables = [
            folder / "tables" / f"{name}.csv" for folder in (run / "report", tmp_path / "again")
        ]
        assert tables[0].read_bytes() == tables[1].read_bytes()
    assert "alone" in one_line("report", run, run)


def test_methods_are_added_and_nothing_is_done_twice(tmp_path: Path, undrawn_figures: None) -> None:
    model = saved(tmp_path / "model", reviews(tmp_path / "data"))
    out = tmp_path / "out"
    compare(model, out, "--methods", "attention", "--instances", 4)
    before = {
        path: path.stat().st_mtime_ns
        for path in (*out.glob("scores/**/done.json"), *out.glob("curves/**/done.json"))
    }
    assert len(before) == 3
    compare(model, out, "--methods", "attention,product", "--instances", 4)
    for path, modified in before.items():
        assert path.stat().st_mtime_ns == modified
    assert set(Compare.open(out).summary("means")["method"]) == {"attention", "product", RANDOM}
    other = ("--methods", "attention", "--instances", 3)
    error = one_line("compare", "--model", model, "--out", out, "--device", "cpu", *other)
    assert "holds a run with another" in error


def test_sentences_of_a_hierarchical_model_are_apart(tmp_path: Path, undrawn_figures: None) -> None:
    rows = [
        {"text": "It is fine. It is long.", "label": label, "split": split}
        for split in ("train", "dev", "test")
        for label in ("0", "1")
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    config = replace(reviews(tmp_path / "data"), path=str(path), sentences="rules")
    model = saved(tmp_path / "model", config, kind="han", encoder="rnn")
    compare(model, tmp_path / "out", "--methods", FEW)
    work = Compare.open(tmp_path / "out")
    assert work.subject.items == "sentences"
    means = work.summary("means")
    assert set(means.loc[means["level"] == WORDS, "method"]) == {"gradient_norm", RANDOM}
    assert "attention" in set(means.loc[means["level"] == LAYER, "method"])
    summed = work.scores_of_items("gradient_norm")[0]
    own = work.scores("gradient_norm")[0]
    assert summed.tolist() == pytest.approx([own[:4].sum(), own[4:].sum()])
    page = Page((tmp_path / "out/report/compare.html").read_text(encoding="utf-8"))
    assert "Sentences erased at the attention layer" in page.words()
    assert "This table cannot be read beside that on words" in page.words()


def test_a_class_is_explained(tmp_path: Path, undrawn_figures: None) -> None:
    model = saved(tmp_path / "model", reviews(tmp_path / "data"))
    compare(model, tmp_path / "out", "--methods", "gradient_norm", "--target", "bad")
    work = Compare.open(tmp_path / "out")
    assert set(work.instances()["target"]) == {0}
    of_layer, curves = work.layer_tables()
    first = curves[curves["ranking"] == "gradient_norm"]["erased"].iloc[0][0]
    assert first == pytest.approx(work.instances()["probability"][0], abs=1e-6)
    assert len(of_layer) == 6


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (("--methods", "guess"), "--methods: given 'guess', needed"),
        (("--methods", ""), "--methods: given none, needed some of"),
        (("--grids", "all"), "--grids: given 'all', needed some of eraser, ferret, every"),
        (("--target", "fair"), "--target: given 'fair', needed decision or a class, bad or good"),
        (("--rationales", "because"), "has no column 'because'"),
        (("--instances", "0"), "--instances: given 0, needed at least 1"),
        (("--max-bytes", "10"), "max_bytes: given 10"),
        (("--text-column", "text"), "given without --data, needed with it"),
        (("--rationales-unit", "characters"), "given without --rationales, needed with it"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: tuple[str, ...], needed: str) -> None:
    model = saved(tmp_path / "model", reviews(tmp_path / "data"))
    methods = () if "--methods" in arguments else ("--methods", "attention,gradient_norm")
    out = ("--out", tmp_path / "out", "--device", "cpu")
    assert needed in one_line("compare", "--model", model, *out, *methods, *arguments)


def test_a_column_of_rationales_with_none(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", reviews(tmp_path / "data", rationales=False))
    given = ("--model", model, "--rationales", "why", "--out", tmp_path / "out")
    assert "in which no word of 6 documents is marked" in one_line("compare", *given)


def test_numbers_of_words_need_a_model_of_such_words(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", replace(reviews(tmp_path / "data"), sentences="rules"))
    given = ("--model", model, "--rationales", "why", "--out", tmp_path / "out")
    wanted = "--rationales: given numbers of words for a model that cuts words by rules, needed"
    assert wanted in one_line("compare", *given)


def test_the_page_says_where_relevance_has_grown() -> None:
    """Above 1,000 in 5 % of the documents, without signs: 20 documents, one of 600 and −600."""

    class Scored:
        methods = ("lrp",)
        grown = 600.0

        def scores(self, method: str) -> list[NDArray[np.float64]]:
            return [np.array([self.grown, -self.grown])] + [np.array([1.0, -2.0])] * 19

    work: Any = Scored()
    [told] = _grown_relevance(work)
    assert "more than 1,000 in 5% of the documents (median 3.0e+00, at most 1.2e+03)" in told
    work.grown = 500.0  # 1,000 is not above it
    assert _grown_relevance(work) == []
    work.methods, work.grown = ("attention",), 600.0
    assert _grown_relevance(work) == []


def test_rationales_outside_the_text(tmp_path: Path) -> None:
    config = reviews(tmp_path / "data")
    model = saved(tmp_path / "model", config)
    new = tmp_path / "new.jsonl"
    new.write_text(json.dumps({"text": "fine", "label": "good", "why": [[0, 2]]}))
    given = ("--model", model, "--data", new, "--rationales", "why", "--out", tmp_path / "out")
    assert "needed spans of the 1 word of the text" in one_line("compare", *given)


def test_new_texts_have_their_own_number_of_marked_words(
    tmp_path: Path, undrawn_figures: None
) -> None:
    model = saved(tmp_path / "model", reviews(tmp_path / "data"))
    new = tmp_path / "new.csv"
    pd.DataFrame(
        {"text": ["a fine film", "a dull one"], "label": ["good", "bad"], "why": ["2:6", "2:4"]}
    ).to_csv(new, index=False)
    given = ("--data", new, "--rationales", "why", "--rationales-unit", "characters")
    found = compare(model, tmp_path / "out", "--methods", "gradient_norm", *given)
    assert "1 marked span without a word or not of whole words" in found
    assert "the first: document 1: characters 2:4, 'du': inside of words" in found
    work = Compare.open(tmp_path / "out")
    assert work.subject.share is None
    assert work.documents[1].spans is not None
    assert work.documents[1].spans.tolist() == [[1, 2]]


@pytest.mark.long
def test_killed_at_random(tmp_path: Path) -> None:
    compared, differences = kill_and_compare(tmp_path, kills=3)
    assert compared > 30
    assert differences == []
