"""Sentences agree with the numbers beside them: ties, medians of everything, groups, rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from studies.serrano_smith.hand_made import HandMade

from fastattnerase import AttentionBatch
from fastattnerase.sources import Chunk
from fastattnerase.statistics.bootstrap import Estimate
from fastattnerase.studies.serrano_smith import experiment, sentences
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.findings import findings, tally
from fastattnerase.studies.serrano_smith.grid import arrange
from fastattnerase.studies.serrano_smith.result import Result

FAST = Config(resamples=5, exhibits=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return experiment.run(HandMade(), FAST, tmp_path_factory.mktemp("run"), name="mine")


def with_numbers(result: Result, **numbers: tuple[float, float | None, float]) -> Result:
    """A result with other shares flipped, medians and shares as short as possible."""

    def sure(value: float | None) -> Estimate:
        return Estimate(value, value, value)

    multi = dict(result.multi)
    for ranking, (flipped, median, optimal) in numbers.items():
        record = multi[ranking]
        multi[ranking] = replace(
            record,
            share_flipped=sure(flipped),
            counted=replace(
                record.counted, fraction=replace(record.counted.fraction, median=sure(median))
            ),
            share_optimal=sure(optimal),
        )
    return replace(result, multi=multi)


def words_of(result: Result) -> str:
    return sentences.paragraphs(result)[0].replace("\u00a0", " ")


def test_what_every_ranking_flips_names_the_group_of_its_median(finished: Result) -> None:
    """Of the five instances, four flip by attention: after 1/3, 1/2, 1 and 1 of their items.

    With the fifth, never, the median is 1; by the smallest sets 1/3, 1/2, 1/2, 1, never: 1/2.
    """
    text = words_of(finished)
    assert text.startswith(
        "By attention 80 % of the decisions flip, and half of all only when everything is erased "
        "and the bias alone decides; by the smallest sets 80 % of the decisions flip, half of all "
        "with at most 50 % of the items erased;"
    )
    facts = dict(sentences.facts(finished))
    assert facts["Erased by attention, median of all, never beyond everything"] == "100\u00a0%"
    assert facts["The same of those that it flips, as in the paper"] == "75\u00a0%"
    assert facts["Smallest set, median of all, never beyond everything"] == "50\u00a0%"
    # Random orders 2/3, 1, 1/2, 1, 1 with never as 1: (1/3 + 1/2 − 1/2) of (1/3 + 1/2).
    assert facts["Skill of attention: 0 a random order, 1 the smallest sets"] == "0.40"
    assert facts["Largest weight, mean"] == "58.0\u00a0%"  # .5, .8, .6, .5, .5
    assert facts["Of these, flip by attention"] == "80\u00a0%"
    assert facts["Accuracy of the most frequent class"] == "57.1\u00a0%"


def test_a_median_of_everything_or_never_is_said_as_what_it_is(finished: Result) -> None:
    everything = with_numbers(finished, attention=(0.8, 1.0, 0.5))
    assert words_of(everything).startswith(
        "By attention 80 % of the decisions flip, and half of all only when everything is erased "
        "and the bias alone decides; by the smallest sets"
    )
    never = with_numbers(finished, attention=(0.4, float("inf"), 0.5))
    assert words_of(never).startswith("By attention 40 % of the decisions flip; by the smallest")
    facts = dict(sentences.facts(never))
    assert facts["Erased by attention, median of all, never beyond everything"] == "never"
    # Where never is stored as everything, there is no median of the paper's to show.
    run = replace(finished.run, config=replace(FAST, never_flips="one"))
    counted = dict(sentences.facts(replace(finished, run=run)))
    assert "The same of those that it flips, as in the paper" not in counted


def test_ties_are_no_more_often(finished: Result) -> None:
    alike = with_numbers(
        finished, attention=(1, 0.5, 1.0), gradient=(1, 0.5, 1.0), product=(1, 0.5, 1.0)
    )
    text = words_of(alike)
    assert (
        "Of the 3 decisions that some, not all, items can flip, by attention 100 %, by the "
        "gradient 100 % and by the product of attention and gradient 100 % are flipped with no "
        "more items than the smallest set." in text
    )
    assert "more often" not in text
    # As many is no win of either: 39 of the 40 that either order flips are ties.
    pair = replace(
        finished.pairs["attention", "random"],
        judged=40, first_smaller=1, second_smaller=0, ties=39, p_sign=1.0,
    )  # fmt: skip
    pairs = finished.pairs | {("attention", "random"): pair}
    assert "not told apart" not in words_of(replace(finished, pairs=pairs))  # the verdict says it
    assert sentences.verdict(replace(finished, pairs=pairs)).startswith(
        "Attention is not told apart from a random order: it needs fewer items in 1 of the 40 "
        "decisions that either flips, more in 0 and as many in 39 (sign test, p 1)."
    )


def test_a_share_that_is_not_everything_is_not_written_so() -> None:
    written = {0.0: "0", 1.0: "100", 0.996: "99.6", 0.9996: "99.96", 0.001: "0.1", 0.41: "41"}
    for value, text in written.items():
        assert sentences.percent(value) == f"{text}\u00a0%"
    assert sentences.percent(0.9999, 1) == "99.99\u00a0%"
    assert sentences.percent(None) == "–"
    multiples = {1.0: "1.0×", 1.001: "1.01×", 1.04: "1.04×", 1.05: "1.1×", 12.3: "12×"}
    for value, text in multiples.items():
        assert sentences.times(value) == text


def test_the_random_item_is_called_as_it_was_drawn(finished: Result) -> None:
    """The item of most attention flips 2 of 5 decisions alone, the one drawn 1 of 5."""
    told = "Erasing only the item with the most attention changes 40.0 % of the decisions, "
    for rule, item in (("different", "a random other item"), ("legacy", "a random item")):
        run = replace(finished.run, config=replace(FAST, random_item=rule))
        texts = " ".join(sentences.paragraphs(replace(finished, run=run))).replace("\u00a0", " ")
        assert f"{told}erasing only {item} 20.0 %; in 40.0 % neither does." in texts
        assert f"In exact expectation over {item}, only the first does in" in texts


def test_two_premises_that_fail_are_both_told_once(tmp_path: Path) -> None:
    class Even(HandMade):
        def _chunk(self, rows: list[int]) -> Chunk:
            batch = AttentionBatch(
                torch.tensor([[1.0], [-3.0]]),
                torch.tensor([0, 2]),
                scores=torch.zeros(2),
                head_weight=torch.tensor([[0.0], [1.0]]),
                head_bias=torch.zeros(2),
            )
            return Chunk(batch, model_label=torch.tensor([1]))

    run = experiment.run(Even(rows=[0]), FAST, tmp_path, name="x")
    assert "1 of 1 decision computed from" in sentences.verdict(run)
    constant, one = sentences.notices(run)
    assert constant.startswith("No verdict: attention is constant")
    assert one.startswith("The model decides “bad” for every instance")


def test_none_of_all_is_not_told_as_few(tmp_path: Path) -> None:
    none = experiment.run(HandMade(rows=[5, 6]), Config(resamples=5), tmp_path, name="none")
    assert none.counts.analysed == 0
    assert not [text for text in sentences.notices(none) if text.startswith("Only")]


def test_few_of_many_are_told(tmp_path: Path) -> None:
    few = experiment.run(HandMade(rows=[0, 5, 5, 6]), FAST, tmp_path / "few", name="x")
    assert sentences.notices(few)[0] == (
        "Only 1 of 4 instances is analysed, so the numbers say little of the others: 3 have a "
        "single item or none."
    )
    half = experiment.run(HandMade(rows=[0, 1, 5, 6]), FAST, tmp_path / "half", name="x")
    assert not any(notice.startswith("Only") for notice in sentences.notices(half))


def test_findings_on_equal_numbers_are_tied(finished: Result) -> None:
    attention = finished.single["attention"]
    exact = attention.expected_contingency["different"]
    cells = {"different": exact | {"only_random": exact["only_top"]}}
    single = finished.single | {"attention": replace(attention, expected_contingency=cells)}
    everything = dict.fromkeys(("random", "attention", "gradient", "product"), (0.8, 1.0, 0.5))
    equal = with_numbers(replace(finished, single=single), **everything)
    source = {"model_config": {"kind": "flan", "encoder": "rnn"}}
    equal = replace(equal, run=replace(equal.run, source=source))
    found = findings(arrange([equal]))
    tied = {finding.claim for finding in found if finding.tied}
    assert tied == {
        "With an encoder, gradient erases a smaller median fraction than attention (5.4)",
        "With an encoder, product erases a smaller median fraction than attention (5.4)",
        "A random order erases the largest median fraction (5.4)",
        "Erasing i* alone flips more often than erasing r alone (4.2)",
        "The product needs fewer items than the gradient more often than not (5.4: often, not "
        "always)",
    }
    assert not any(finding.holds for finding in found if finding.tied)
    counted = {row["claim"]: (row["holds"], row["tied"], row["of"]) for row in tally(found)}
    assert all(counted[claim] == (0, 1, 1) for claim in tied)
