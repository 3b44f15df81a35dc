"""Both sides of the debate on a made-up text: rules by hand, premises, the command, its page."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report.html_page import Page
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.data import DataConfig, DataError
from fastattnerase.data.presets import read_prepared
from fastattnerase.debate import points as rules
from fastattnerase.debate.data import write_texts
from fastattnerase.debate.options import TEXTS, Options
from fastattnerase.debate.points import Evidence, Point, collect, interval, points
from fastattnerase.debate.report import build
from fastattnerase.debate.units import Debate
from fastattnerase.runs import schedule
from fastattnerase.runs.rundir import RunError
from fastattnerase.runs.workspace import Record
from fastattnerase.statistics.divergence import Divergence

OPTIONS = Options(
    embedding_size=16,
    hidden_size=8,
    epochs=12,
    seeds=(1, 2, 3),
    strengths=(0.001, 0.1),
    adversary_epochs=4,
    permutations=5,
    loo_instances=30,
    adversary_instances=30,
)


class Quiet:
    """Watches a schedule in silence; remembers what was finished."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def plan(self, costs: dict[str, float], done: int) -> None:
        pass

    def at(self, key: str, share: float) -> None:
        assert 0 <= share <= 1

    def finished(self, key: str, record: Record) -> None:
        self.done.append(key)


def texts(path: Path, classes: tuple[str, ...] = ("bad", "good"), count: int = 400) -> Path:
    """Write texts whose class a word gives away."""
    draw = random.Random(0)
    rows = ["review,mark"]
    for index in range(count):
        words = [draw.choice("abcdefghij") for _ in range(draw.randint(4, 9))]
        mark = classes[index % len(classes)]
        words[draw.randrange(len(words))] = f"so{mark}"
        rows.append(f"{' '.join(words)},{mark}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def config(path: Path) -> DataConfig:
    return DataConfig(path=str(path), text_column="review", label_column="mark")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Debate:
    folder = tmp_path_factory.mktemp("debate")
    debate = Debate(OPTIONS, config(texts(folder / "reviews.csv")), "reviews", folder / "out")
    schedule.run(debate, 1, Quiet())
    return debate


@pytest.fixture(scope="module")
def evidence(finished: Debate) -> Evidence:
    return collect(finished)


def test_what_is_trained_and_asked(finished: Debate) -> None:
    kinds = [cell.kind for cell in finished.cells()]
    assert kinds == [
        "base", "uniform", *["seed"] * 3, *["adversary"] * 2,
        "mlp_uniform", "mlp_learned", "mlp_base", "mlp_adversary",
    ]  # fmt: skip
    [lent] = [cell for cell in finished.cells() if cell.kind == "mlp_adversary"]
    assert lent.strength == 0.1  # of the adversary with the largest λ
    assert dataclasses.replace(lent, kind="adversary") in finished.cells()
    listed: set[str] = set()
    for unit in finished.units():
        assert listed.issuperset(unit.needs)
        listed.add(unit.key)
    watcher = Quiet()
    schedule.run(finished, 1, watcher)
    assert watcher.done == []


def test_lent_weights_go_by_document(finished: Debate) -> None:
    base = finished.predictions(finished.base).weights
    [cell] = [cell for cell in finished.cells() if cell.kind == "mlp_base"]
    for key, weights in finished.predictions(cell).weights.items():
        assert weights.tolist() == base[key].tolist()


def test_evidence_is_of_the_test_texts(finished: Debate, evidence: Evidence) -> None:
    count = finished.results()[finished.base].documents["test"]
    assert len(evidence.seeds) == len(evidence.permutation) == count
    assert len(evidence.adversaries) == 30
    assert set(evidence.correlation["pair"]) == {
        "attention_gradient", "attention_loo", "gradient_loo"
    }  # fmt: skip
    assert (evidence.adversaries["jsd"] <= np.log(2)).all()
    # Rows of different tests are of the same documents.
    ids = dict(zip(evidence.permutation["id"], evidence.permutation["largest_weight"], strict=True))
    for row in evidence.seeds.to_dict("records"):
        assert ids[row["document"]] == pytest.approx(row["largest_weight"], abs=1e-5)


def test_the_page(finished: Debate, tmp_path: Path) -> None:
    path, found = build(finished, tmp_path)
    page = Page(path.read_text(encoding="utf-8"))
    page.loads_nothing()
    words = page.words()
    for point in found:
        assert point.question in words
        assert " ".join(point.rule.split()) in words
    table = pd.read_csv(tmp_path / "tables" / "points.csv")
    assert list(table["side"]) == [point.side for point in found]
    assert len(pd.read_csv(tmp_path / "tables" / "models.csv")) == 11
    # The model first; captions without the paper's numbers, and no figure too narrow to read.
    rows = ("the model", "uniform attention", "another seed, 1", "adversary, λ", "MLP, uniform")
    body = words[words.index("Attention differs by (JSD)") :]
    places = [body.index(row) for row in rows]
    assert places == sorted(places)
    assert "Figures Divergence from the base model's attention" in words
    assert 'style="width: 1587px; max-width: max(100%, 748px)"' in path.read_text("utf-8")


# --- the rules, on made-up numbers ---------------------------------------------------------------


def decided(right: int, count: int = 100) -> pd.DataFrame:
    """Rows of a model that is right for the first so many documents."""
    return pd.DataFrame({"label": [1] * count, "decision": [1] * right + [0] * (count - right)})


def taus(gradient: float, loo: float, both: float) -> pd.DataFrame:
    pairs = {"attention_gradient": gradient, "attention_loo": loo, "gradient_loo": both}
    return pd.DataFrame(
        [
            {"row": row, "pair": pair, "tau": tau + (row % 2) / 100, "reason": ""}
            for row in range(30)
            for pair, tau in pairs.items()
        ]
    )


def changed(evidence: Evidence, **fields: Any) -> Evidence:
    """Give evidence of a good model with uneven attention, but for some fields."""
    base = evidence.family.base
    results = {
        cell: dataclasses.replace(
            result,
            accuracy=0.9,
            majority=0.5,
            documents={"test": 100},
            divergence=Divergence(0.02, 0.0, 0.1, 0.1) if cell != base else None,
        )
        for cell, result in evidence.family.results.items()
    }
    instances = dict.fromkeys(evidence.instances, decided(90))
    documents = range(30)
    defaults: dict[str, Any] = {
        "family": dataclasses.replace(evidence.family, results=results),
        "instances": instances,
        "seeds": pd.DataFrame({"document": documents, "jsd": [0.1] * 30}),
        "correlation": taus(0.5, 0.5, 0.5),
        "permutation": pd.DataFrame({"words": [5] * 30, "median_tvd": [0.07] * 30}),
        "adversaries": pd.DataFrame({"document": documents, "words": [5] * 30, "jsd": [0.3] * 30}),
    }
    return dataclasses.replace(evidence, **(defaults | fields))


def verdict(evidence: Evidence, source: str, question: str = "") -> Point:
    [found] = [p for p in points(evidence) if source in p.source and question in p.question]
    return found


@pytest.fixture(autouse=True)
def uneven(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Attention that is not nearly uniform, but for tests that say otherwise."""
    if "even" not in request.node.name:
        monkeypatch.setattr(rules, "is_even", lambda result: False)
        monkeypatch.setattr(rules, "is_constant", lambda result: False)


@pytest.mark.parametrize(("uniform", "side"), [(90, "against"), (95, "against"), (80, "for")])
def test_uniform(evidence: Evidence, uniform: int, side: str) -> None:
    """10 documents that the model alone gets right: McNemar's p is 2 / 2^10."""
    instances = {**changed(evidence).instances, "uniform": decided(uniform)}
    found = verdict(changed(evidence, instances=instances), "uniform baseline")
    assert found.side == side
    if uniform == 80:
        assert "alone right 10 and 0, McNemar's p 0.00195" in found.here


@pytest.mark.parametrize(
    ("gradient", "both", "side"), [(0.3, 0.5, "against"), (0.5, 0.3, "for"), (0.5, 0.5, "neither")]
)
def test_correlation(evidence: Evidence, gradient: float, both: float, side: str) -> None:
    found = verdict(changed(evidence, correlation=taus(gradient, 0.4, both)), "correlation")
    assert found.side == side
    assert f"Mean tau of attention and gradient {gradient + 0.005:.2f}" in found.here


def test_taus_that_are_undefined_are_counted(evidence: Evidence) -> None:
    table = taus(0.3, 0.3, 0.5)
    table.loc[table["row"] < 15, ["tau", "reason"]] = [np.nan, "gradient constant"]
    found = verdict(changed(evidence, correlation=table), "correlation")
    assert found.side == "cannot tell"
    assert "15 documents; taus undefined: 45 gradient constant" in found.here


@pytest.mark.parametrize(("moved", "side"), [(0.04, "against"), (0.07, "neither"), (0.1, "for")])
def test_permutation(evidence: Evidence, moved: float, side: str) -> None:
    table = pd.DataFrame({"words": [5] * 30 + [1] * 90, "median_tvd": [moved] * 30 + [0.0] * 90})
    found = verdict(changed(evidence, permutation=table), "permutation")
    assert found.side == side  # documents of one word cannot be permuted and are not asked
    assert f"over 30 documents of the median difference of outputs {moved:.3f}" in found.here


@pytest.mark.parametrize(("share", "side"), [(15, "against"), (14, "neither"), (3, "for")])
def test_adversarial_attention(evidence: Evidence, share: int, side: str) -> None:
    table = pd.DataFrame(
        {"document": range(30), "words": [5] * 30, "jsd": [0.4] * share + [0.1] * (30 - share)}
    )
    assert verdict(changed(evidence, adversaries=table), "adversarial").side == side


@pytest.mark.parametrize(("jsd", "side"), [(0.15, "for"), (0.2, "neither"), (0.3, "against")])
def test_seeds(evidence: Evidence, jsd: float, side: str) -> None:
    seeds = pd.DataFrame({"document": range(30), "jsd": [jsd] * 30})
    assert verdict(changed(evidence, seeds=seeds), "variance over seeds").side == side


@pytest.mark.parametrize(
    ("base", "uniform", "side"),
    [(90, 80, "for"), (90, 90, "against"), (80, 90, "against"), (90, 88, "neither")],
)
def test_frozen_weights(evidence: Evidence, base: int, uniform: int, side: str) -> None:
    own = {"mlp_base": decided(base), "mlp_uniform": decided(uniform)}
    instances = {**changed(evidence).instances, **own}
    found = verdict(changed(evidence, instances=instances), "frozen weights", "sees each word")
    assert found.side == side


def with_adversaries(evidence: Evidence, given: Mapping[float, tuple[float, float]]) -> Evidence:
    """Give adversaries of some λ a JSD and a TVD; accuracy 0.9 as the model's."""
    results = {
        cell: dataclasses.replace(
            result,
            divergence=Divergence(given[cell.strength][1], 0.0, given[cell.strength][0], 0.0),
        )
        if cell.is_adversary and cell.strength is not None
        else result
        for cell, result in changed(evidence).family.results.items()
    }
    return changed(evidence, family=dataclasses.replace(evidence.family, results=results))


@pytest.mark.parametrize(
    ("given", "side"),
    [
        ({0.001: (0.1, 0.01), 0.1: (0.3, 0.01)}, "cannot tell"),  # attention has not moved
        ({0.001: (0.1, 0.01), 0.1: (0.5, 0.06)}, "for"),  # it has, and outputs with it
        ({0.001: (0.4, 0.05), 0.1: (0.5, 0.06)}, "against"),
    ],
)
def test_trained_adversaries(
    evidence: Evidence, given: Mapping[float, tuple[float, float]], side: str
) -> None:
    found = verdict(with_adversaries(evidence, given), "trained adversaries")
    assert found.side == side
    assert f"λ 0.001: JSD {given[0.001][0]:.3f}, TVD {given[0.001][1]:.3f}" in found.here


@pytest.mark.parametrize(("nearest", "side"), [(0.07, "against"), (0.059, "for")])
def test_outputs_that_differ_less_than_those_of_seeds_are_the_same(
    evidence: Evidence, nearest: float, side: str
) -> None:
    given = with_adversaries(evidence, {0.001: (0.1, 0.01), 0.1: (0.5, 0.06)})
    results = {
        cell: dataclasses.replace(result, divergence=Divergence(nearest, 0.0, 0.1, 0.1))
        if cell.kind == "seed"
        else result
        for cell, result in given.family.results.items()
    }
    family = dataclasses.replace(given.family, results=results)
    found = verdict(dataclasses.replace(given, family=family), "trained adversaries")
    assert found.side == side
    assert f"TVD from {nearest:.3f}" in found.here


def test_an_adversary_that_has_not_moved_lends_nothing_to_judge(evidence: Evidence) -> None:
    instances = {**changed(evidence).instances, "mlp_adversary": decided(80)}
    for jsd, side in ((0.3, "cannot tell"), (0.5, "for")):
        moved = with_adversaries(evidence, {0.001: (0.1, 0.0), 0.1: (jsd, 0.0)})
        found = verdict(
            dataclasses.replace(moved, instances=instances), "frozen weights", "adversary's"
        )
        assert found.side == side


def test_a_model_at_chance_tells_nothing(evidence: Evidence) -> None:
    given = changed(evidence)
    results = dict(given.family.results)
    results[given.family.base] = dataclasses.replace(results[given.family.base], accuracy=0.54)
    family = dataclasses.replace(given.family, results=results)
    found = points(dataclasses.replace(given, family=family))
    assert {point.side for point in found} == {"cannot tell"}
    assert all("hardly beats the most frequent class" in point.here for point in found)


def test_even_attention_tells_of_its_necessity_alone(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "is_even", lambda result: True)
    found = points(changed(evidence))
    told = {point.source for point in found if "nearly uniform" not in point.here}
    assert told == {
        "Wiegreffe and Pinter 2019, uniform baseline",
        "Jain and Wallace 2019, adversarial attention",
        "Wiegreffe and Pinter 2019, trained adversaries",
    }
    assert verdict(changed(evidence), "permutation").side == "cannot tell"


def test_the_interval_of_a_mean() -> None:
    """Of 0 and 2: mean 1, deviation √2, error 1.96 √2 / √2."""
    assert interval(np.array([0.0, 2.0])) == pytest.approx((-0.96, 2.96))


# --- the text, the options, the command ----------------------------------------------------------


def test_texts_are_prepared_once(tmp_path: Path) -> None:
    path = texts(tmp_path / "reviews.csv")
    about = write_texts(config(path), tmp_path / "prepared", "reviews")
    prepared, again = read_prepared(tmp_path / "prepared")
    for split, counts in about["documents"].items():
        labels = [document.label for document in getattr(prepared, split)]
        assert list(counts.values()) == [labels.count(0), labels.count(1)]
    assert sum(sum(n.values()) for n in about["documents"].values()) == 400
    ids = [d.id for split in (prepared.train, prepared.dev, prepared.test) for d in split]
    assert len(set(ids)) == len(ids)  # lent weights go by them
    assert "sogood" in prepared.vocabulary.words
    assert again.path == str(tmp_path / "prepared" / "texts.parquet")


def test_more_than_two_classes_are_refused(tmp_path: Path) -> None:
    path = texts(tmp_path / "reviews.csv", ("bad", "fair", "good"))
    with pytest.raises(DataError, match=r"given 3 classes \(bad, fair, good\), needed two"):
        write_texts(config(path), tmp_path / "prepared", "reviews")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoder": "gru"}, "encoder: given 'gru', needed one of bilstm, cnn, mlp"),
        ({"strengths": ()}, "strengths: given none, needed one or more"),
        ({"seeds": ()}, "seeds: given none"),
        ({"seeds": (0,)}, "seeds: given 0, needed others than base_seed"),
        ({"permutations": 0}, "permutations: given 0, needed at least 1"),
    ],
)
def test_bad_options(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        Options(**given)


def test_the_command(tmp_path: Path) -> None:
    arguments = [
        *("debate", "--data", str(texts(tmp_path / "reviews.csv", count=200))),
        *("--text-column", "review", "--label-column", "mark", "--out", str(tmp_path / "out")),
        *("--epochs", "1", "--adversary-epochs", "1", "--strengths", "0.01", "--other-seeds", "1"),
        *("--embedding-size", "4", "--hidden-size", "2", "--permutations", "2"),
        *("--loo-instances", "5", "--adversary-instances", "5"),
    ]
    finished = CliRunner().invoke(app, arguments)
    assert finished.exit_code == 0, finished.output
    assert finished.stdout.strip().splitlines()[-1].endswith("debate.html")
    assert "Cannot tell: Does the model need its attention?" in finished.stdout
    three = texts(tmp_path / "three.csv", ("bad", "fair", "good"), count=60)
    arguments[2] = str(three)
    refused = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "other")])
    assert refused.exit_code == 2
    assert "given 3 classes (bad, fair, good), needed two" in " ".join(refused.stderr.split())


def test_the_shipped_sentences_are_the_default() -> None:
    assert TEXTS in Options().datasets
    debate = Debate(Options(), DataConfig(path="reviews.csv"), "reviews", Path("out"))
    assert len(debate.units()) == 1 + 12 + 4
