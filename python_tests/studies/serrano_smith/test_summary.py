"""How a report opens, on numbers made by hand: plain sentences, premises before them, steps."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies.serrano_smith.hand_made import HandMade, with_skill

from fastattnerase.runs.rundir import read_json, write_json
from fastattnerase.sources import Chunk
from fastattnerase.studies.serrano_smith import experiment, sentences
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.findings import findings
from fastattnerase.studies.serrano_smith.grid import arrange
from fastattnerase.studies.serrano_smith.result import Result, load
from fastattnerase.studies.serrano_smith.summary import summarise

FAST = Config(resamples=5, exhibits=0)
INF = float("inf")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return experiment.run(HandMade(), FAST, tmp_path_factory.mktemp("run"), name="mine")


def made(
    result: Result,
    gaps: list[float],
    *,
    source: dict[str, object],
    skill: float = 0.95,
    wins: tuple[int, int, float] = (9, 0, 0.004),
    **counts: object,
) -> Result:
    """A result with other gaps of attention, counts, source, and wins over a random order."""

    class Made(Result):
        def gaps(self, ranking: str) -> np.ndarray:
            return np.array(gaps, dtype=np.float64)

    fewer, more, p = wins
    pair = replace(
        result.pairs["attention", "random"],
        judged=20,
        first_smaller=fewer,
        second_smaller=more,
        p_sign=p,
    )
    sets = replace(result.counts.smallest_set, known=max(1, len(gaps)), some=len(gaps))
    changes = {
        "run": replace(result.run, source=source),
        "counts": replace(result.counts, smallest_set=sets, **counts),
        "pairs": {("attention", "random"): pair},
    }
    return Made(**vars(with_skill(result, skill)) | changes)


WORDS = {"item": "words"}


@pytest.mark.parametrize(
    ("gaps", "skill", "wins", "sentence"),
    [
        (
            [1, 1, 1, 9],
            0.934,
            (9, 0, 0.004),
            "Attention is a good guide to what this model decides by: of the 4 texts whose "
            "decision removing some of their words can change, removing the words with the most "
            "attention first changes 75\u00a0% with as few words as possible. "
            "It saves 93\u00a0% of the words that a random order removes needlessly.",
        ),
        (
            [1, 2.4, 9],
            0.41,
            (9, 0, 0.004),
            "Attention is a poor guide to what this model decides by: in the 3 texts whose "
            "decision removing some of their words can change, removing the words with the most "
            "attention first typically takes 2.4 times as many words as needed. It "
            "saves 41\u00a0% of the words that a random order removes needlessly.",
        ),
        (
            [1, INF, INF],
            -0.3,
            (9, 0, 0.004),
            "Attention is a poor guide to what this model decides by: of the 3 texts whose "
            "decision removing some of their words can change, removing the words with the most "
            "attention first never changes 67\u00a0%, although removing others would. It "
            "saves none of the words that a random order removes needlessly.",
        ),
        (
            [1, 1],
            0.95,
            (9, 2, 0.07),
            "Attention tells no more than chance what this model decides by: of the 20 texts whose "
            "decision either changes, removing the words with the most attention first takes fewer "
            "words than removing them in a random order in 9 and more in 2, a difference that "
            "chance explains.",
        ),
        (
            [1, 1],
            0.95,
            (1, 15, 0.0005),
            "Attention misleads about what this model decides by: of the 20 texts whose decision "
            "either changes, removing the words with the most attention first takes fewer words "
            "than removing them in a random order in 1 and more in 15.",
        ),
        (
            [],
            0.95,
            (9, 0, 0.004),
            "Attention has nothing to point at: no decision changes while any of the words are "
            "left.",
        ),
    ],
)
def test_a_sentence_for_a_reader_who_has_not_read_the_paper(
    finished: Result,
    gaps: list[float],
    skill: float,
    wins: tuple[int, int, float],
    sentence: str,
) -> None:
    assert summarise([made(finished, gaps, source=WORDS, skill=skill, wins=wins)]).models == (
        ("mine", sentence),
    )


def test_too_few_decisions_get_no_verdict(finished: Result) -> None:
    """With attention better in each of five the sign test is at 2 / 2^5 = 0.0625."""
    names = ("attention", "random")
    for judged, p in ((5, 0.0625), (6, 0.03125)):
        one = made(finished, [1] * judged, source=WORDS, skill=0.95, wins=(judged, 0, p))
        pairs = one.pairs | {names: replace(one.pairs[names], judged=judged)}
        one = replace(one, pairs=pairs)
        [(_, told)], steps, _ = summarise([one])
        few = judged == 5
        assert told.startswith("Too few texts to say whether attention tells") == few
        assert sentences.verdict(one).startswith("Too few decisions for a verdict. ") == few
        assert not [step for step in steps if step.startswith("Do not show")]


def test_items_are_called_as_the_record_calls_them(finished: Result) -> None:
    for source, items in (({"item": "sentences"}, "sentences"), ({"tensors": "x"}, "items")):
        [(_, sentence)] = summarise([made(finished, [1], source=source)]).models
        assert f"removing some of their {items} can change" in sentence


def test_nothing_to_test(tmp_path: Path) -> None:
    run = experiment.run(HandMade(rows=[5, 6]), FAST, tmp_path, name="x")
    assert summarise([run]).models == (
        ("x", "There is nothing to test: none of the instances has two items or more."),
    )


class Otherwise(HandMade):
    """Tensors whose logits say another decision than the values, weights and head."""

    def _chunk(self, rows: list[int]) -> Chunk:
        chunk = super()._chunk(rows)
        assert chunk.model_label is not None
        return replace(chunk, model_label=1 - chunk.model_label)


def test_a_premise_that_fails_stands_first_and_no_verdict_is_given(tmp_path: Path) -> None:
    run = experiment.run(Otherwise(rows=[0, 1, 2, 3, 4, 7]), FAST, tmp_path, name="x")
    # The instance that is not a number is decided neither way.
    start = "No verdict: before anything is erased, 5 of 5 decisions"
    assert sentences.premises(run)[0].startswith(start)
    assert sentences.verdict(run) == sentences.premises(run)[0]
    summary = summarise([run])
    assert summary.models[0][1].startswith("No verdict: 5 of 5 decisions computed from the given")
    assert summary.next_steps[0].startswith("Check the tensors of x, then erase again")
    assert "guide" not in sentences.verdict(run) + summary.models[0][1]
    assert findings(arrange([run])) == []  # no case of any claim


def test_a_model_at_chance_is_flagged(finished: Result) -> None:
    assert finished.counts.majority == 4 / 7  # of the labels 1, 1, 1, 0, 0, 1, 0
    chance = made(finished, [1], source=WORDS, accuracy=0.55, majority=0.5)
    assert sentences.notices(chance)[-1].startswith(
        "The model is hardly better than chance: 55.0\u00a0% of its decisions are right, and "
        "deciding the most frequent class always is right in 50.0\u00a0%"
    )
    assert summarise([chance]).next_steps[0] == (
        "Mend mine (55.0\u00a0% against 50.0\u00a0%) before its attention is looked at: always "
        "deciding the most frequent class is about as good."
    )
    for accuracy, majority in ((0.56, 0.5), (0.99, 0.9), (0.5, None), (None, None)):
        better = made(finished, [1], source=WORDS, accuracy=accuracy, majority=majority)
        assert len(sentences.notices(better)) == 1  # what is not a number


def test_a_run_of_before_has_no_majority_and_opens(finished: Result, tmp_path: Path) -> None:
    shutil.copytree(finished.folder, tmp_path / "run")
    content = read_json(tmp_path / "run" / "result.json")
    del content["counts"]["majority"]
    write_json(tmp_path / "run" / "result.json", content)
    before = load(tmp_path / "run")
    assert before.counts == replace(finished.counts, majority=None)


def test_steps_are_told_once_and_the_most_urgent_first(finished: Result) -> None:
    poor = made(finished, [1, 5, 9], source={"tensors": "layer"}, skill=0.3, compared_with_model=0)
    other = replace(poor, run=replace(poor.run, name="other {names}"))
    steps = summarise([poor, other]).next_steps
    assert [step.split()[0] for step in steps] == ["Store", "Do", "Erase"]
    # Of the instances by hand, gradient and product are as short as possible in all three.
    assert steps[1] == (
        "Do not show the attention of mine and other {names} as an explanation. Show the smallest "
        "sets instead, or rank by the gradient or the product of attention and gradient: most "
        "often as few items as possible."
    )
    assert steps[2] == (
        "Erase from more instances, for intervals that are less wide: fewer than 100 could be "
        "judged of mine (3) and other {names} (3)."
    )
    good = made(finished, [1] * 100, source=WORDS)
    [step] = summarise([good]).next_steps
    assert step.startswith("Before the attention of mine is shown as an explanation, look at")
