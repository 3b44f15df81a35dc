"""The tests of Wiegreffe and Pinter: cells, lent weights, adversaries, tables and page."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from report.html_page import Page
from report.layout import faults
from scipy import stats
from studies.wen.wen_study import treebank
from studies.wiegreffe_pinter.kill_wiegreffe_pinter import kill_and_compare
from studies.wiegreffe_pinter.small_tests import OPTIONS, run

from fastattnerase.data import Document, PreparedCorpus
from fastattnerase.data.dataset import collate
from fastattnerase.models import load_model
from fastattnerase.models.fixed_attention import given_attention
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.wiegreffe_pinter import paper, tables
from fastattnerase.studies.wiegreffe_pinter.claims import claims
from fastattnerase.studies.wiegreffe_pinter.figures import figures, shown_adversary
from fastattnerase.studies.wiegreffe_pinter.options import Cell, Options
from fastattnerase.studies.wiegreffe_pinter.report import build
from fastattnerase.studies.wiegreffe_pinter.results import CellResult
from fastattnerase.studies.wiegreffe_pinter.units import WiegreffePinter

BASE = Cell("sst", "bilstm", "additive", "base", 10)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> WiegreffePinter:
    root = treebank(tmp_path_factory.mktemp("root"))
    workspace = WiegreffePinter(OPTIONS, root, tmp_path_factory.mktemp("out"))
    run(workspace)
    return workspace


@pytest.fixture(scope="module")
def family(finished: WiegreffePinter) -> tables.Family:
    [found] = tables.families(finished)
    return found


def test_the_units_of_the_paper() -> None:
    study = WiegreffePinter(Options(), Path("root"), Path("out"))
    cells, units = study.cells(), study.units()
    kinds = [cell.kind for cell in cells]
    assert kinds.count("base") == kinds.count("uniform") == 6
    assert kinds.count("seed") == 2 * 8
    assert [kinds.count(kind) for kind in ("mlp_uniform", "mlp_learned", "mlp_base")] == [2, 2, 2]
    adversaries = [cell for cell in cells if cell.is_adversary]
    assert {(c.dataset, c.strength) for c in adversaries if c.epochs == 80} == {
        ("sst", 5.25e-4), ("imdb_5k", 8e-4), ("sst", 1e-3), ("imdb_5k", 1e-3)
    }  # fmt: skip
    assert [c.strength for c in adversaries if c.epochs == 20] == list(Options().curve)
    listed: set[str] = set()
    for unit in units:
        assert listed.issuperset(unit.needs)  # each after those that must be done before it
        listed.add(unit.key)
    assert (
        len(listed) == len(units) == len(cells) + 6 + 2
    )  # data, and adversaries sought for two base models


def test_base_and_further_seeds_differ_in_their_seed_alone() -> None:
    options = Options()
    other = replace(BASE, kind="seed", seed=257)
    assert replace(options.model(other), seed=10) == options.model(BASE)
    assert replace(options.training(other), seed=10) == options.training(BASE)
    assert options.training(BASE).selection == "auc"
    uniform = replace(BASE, kind="uniform")
    assert replace(options.model(uniform), attention="additive") == options.model(BASE)
    assert options.training(uniform) == options.training(BASE)


def test_uniform_attention_is_uniform(finished: WiegreffePinter) -> None:
    for weights in finished.predictions(replace(BASE, kind="uniform")).weights.values():
        assert weights.tolist() == pytest.approx([1 / len(weights)] * len(weights))


@pytest.mark.parametrize("lender", ["base", "adversary"])
def test_lent_weights_are_the_lender_s_to_the_bit(finished: WiegreffePinter, lender: str) -> None:
    [cell] = [cell for cell in finished.cells() if cell.kind == f"mlp_{lender}"]
    lent = finished.predictions(cell.needs(10)[-1]).weights
    given = finished.predictions(cell).weights
    assert len(lent) == 80 + 30 + 60 - len(_left_out(finished))
    assert len(given) == finished.results()[cell].documents["test"]
    for key, weights in given.items():
        assert torch.equal(weights, lent[key])
    prepared, _ = finished.load_data("sst")
    model = given_attention(finished.options.model(cell), prepared, lent).eval()
    for split in (prepared.train, prepared.test):
        documents = list(split)[::-1]  # not in the order in which the lender saw them
        _equal(model(collate(documents)).weights, documents, lent)
        _equal(model(collate(documents[2:5])).weights, documents[2:5], lent)


def _left_out(finished: WiegreffePinter) -> list[int]:
    prepared, _ = finished.load_data("sst")
    total = len(prepared.train) + len(prepared.dev) + len(prepared.test)
    return list(range(80 + 30 + 60 - total))


def _equal(found: torch.Tensor, documents: list[Document], lent: Any) -> None:
    assert torch.equal(found, torch.cat([lent[document.id] for document in documents]))


def test_the_base_model_s_file_is_what_the_model_gives(finished: WiegreffePinter) -> None:
    prepared: PreparedCorpus = finished.load_data("sst")[0]
    model = load_model(finished.folder(BASE.key) / "model").model
    found = finished.predictions(BASE)
    for document in list(prepared.train)[:3] + list(prepared.test)[:3]:
        with torch.no_grad():
            output = model(collate([document]))
        torch.testing.assert_close(found.weights[document.id], output.weights)
        p = float(output.logits.softmax(1)[0, 1])
        assert found.probability[document.id] == pytest.approx(p, abs=1e-6)


def test_without_the_attention_term_an_adversary_is_the_base_model(
    finished: WiegreffePinter,
) -> None:
    result = finished.results()[replace(BASE, kind="adversary", strength=0.0, epochs=30)]
    assert result.train_divergence is not None
    assert result.train_divergence.tvd <= 0.05
    base = finished.predictions(BASE).probability
    own = finished.predictions(result.cell).probability
    prepared, _ = finished.load_data("sst")
    difference = np.mean([abs(base[d.id] - own[d.id]) for d in prepared.train])
    assert result.train_divergence.tvd == pytest.approx(difference)


def test_attention_moves_with_the_strength(family: tables.Family) -> None:
    rows = tables.adversary_table([family])
    curve = rows[rows["max_epochs"] == 30].sort_values("strength")
    assert curve["jsd"].is_monotonic_increasing
    assert curve["jsd"].iloc[-1] > 5 * curve["jsd"].iloc[0]
    assert (rows["tvd_halved"] == rows["tvd"] / 2).all()
    assert (rows["jsd"] <= math.log(2)).all()
    [summary] = tables.curve_table(rows).to_dict("records")
    assert summary["spearman"] == 1
    assert (summary["values"], summary["max_epochs"]) == (3, 30)


def test_adversaries_of_documents_are_admissible(finished: WiegreffePinter) -> None:
    """Outputs and divergences are recomputed from the weights, in float64."""
    found = finished.sought(BASE)
    assert found is not None
    weights, own = finished.sought_weights(BASE), finished.predictions(BASE)
    model = load_model(finished.folder(BASE.key) / "model").model
    prepared, _ = finished.load_data("sst")
    head, bias = (part.double() for part in model.head())
    documents = {document.id: document for document in prepared.test}
    assert set(found["document"]) == set(documents)
    for row in found.iloc[:10].to_dict("records"):
        key = row["document"]
        with torch.no_grad():
            values = model(collate([documents[key]])).values.double()
        p, q = (
            float(((w.double() / w.double().sum()) @ values @ head.T + bias).softmax(0)[1])
            for w in (weights[key], own.weights[key])
        )
        assert row["tvd"] == pytest.approx(abs(p - q), abs=1e-6)
        assert row["tvd"] <= 0.05
        a, b = (w.double().numpy() for w in (weights[key], own.weights[key]))
        m = (a + b) / 2
        jsd = (np.sum(a * np.log(np.maximum(a, 1e-300) / m)) + np.sum(b * np.log(b / m))) / 2
        assert row["jsd"] == pytest.approx(jsd, abs=1e-5)


def test_seeds_median_and_mean(finished: WiegreffePinter, family: tables.Family) -> None:
    """The median JSD and the mean output difference of each document, from the models' files."""
    rows = tables.seed_instances(finished, family)
    base = finished.predictions(BASE)
    seeds = [finished.predictions(replace(BASE, kind="seed", seed=seed)) for seed in (1, 2, 3)]
    for row in rows.iloc[:5].to_dict("records"):
        key = row["document"]
        b = base.weights[key].double().numpy()
        found = []
        for one in seeds:
            a = one.weights[key].double().numpy()
            m = (a + b) / 2
            found.append((np.sum(a * np.log(a / m)) + np.sum(b * np.log(b / m))) / 2)
        assert row["jsd"] == pytest.approx(sorted(found)[1], abs=1e-6)
        differences = [abs(one.probability[key] - base.probability[key]) for one in seeds]
        assert row["difference"] == pytest.approx(sum(differences) / 3)
        assert row["bin"] == min(3, int(float(base.weights[key].max()) * 4))
    table = tables.seed_table(finished, [family])
    assert table["documents"].iloc[0] == table["documents"].iloc[1:].sum() == len(rows)
    assert table["jsd_median"].iloc[0] == rows["jsd"].median()


def test_bins_have_their_ends() -> None:
    assert tables.bin_of([0, 0.2499, 0.25, 0.5, 0.75, 0.999, 1]).tolist() == [0, 0, 1, 2, 3, 3, 3]


def test_uniform_against_base(finished: WiegreffePinter, family: tables.Family) -> None:
    [row] = tables.uniform_table(finished, [family]).to_dict("records")
    base, uniform = (finished.instances(replace(BASE, kind=kind)) for kind in ("base", "uniform"))
    right = [(rows["decision"] == rows["label"]).to_numpy() for rows in (base, uniform)]
    assert row["base_accuracy"] == right[0].mean()
    assert row["drop_accuracy"] == pytest.approx(right[0].mean() - right[1].mean())
    assert row["base_alone_right"] - row["uniform_alone_right"] == right[0].sum() - right[1].sum()
    both = row["base_alone_right"] + row["uniform_alone_right"]
    exact = stats.binomtest(row["base_alone_right"], both).pvalue if both else 1.0
    assert row["p_mcnemar"] == pytest.approx(exact)
    assert (row["paper_base_f1"], row["paper_uniform_f1"]) == (0.831, 0.822)
    assert row["jain_wallace_f1"] == 0.784
    hits = int(((base["decision"] == 1) & (base["label"] == 1)).sum())
    wanted = 2 * hits / int((base["decision"] == 1).sum() + (base["label"] == 1).sum())
    assert row["base_f1"] == pytest.approx(wanted)


def test_the_diagnostic_stands_beside_the_paper(family: tables.Family) -> None:
    [row] = tables.diagnostic_table([family], 0.05).to_dict("records")
    assert [row[f"paper_{name}_f1"] for name in ("uniform", "learned", "base", "adversary")] == [
        0.812, 0.817, 0.824, 0.592
    ]  # fmt: skip
    lent = family.results[replace(BASE, kind="adversary", strength=0.05, epochs=20)]
    assert lent.divergence is not None
    assert row["lender_jsd"] == lent.divergence.attention_jsd
    assert row["lender_strength"] == 0.05
    own = replace(BASE, kind="mlp_adversary", strength=0.05, epochs=20)
    smaller = replace(own, strength=0.01)
    several = family.results | {smaller: replace(family.results[own], cell=smaller)}
    for lender, told in ((0.05, 0.05), (0.01, 0.01), (0.7, 0.01)):
        [row] = tables.diagnostic_table([replace(family, results=several)], lender).to_dict(
            "records"
        )
        assert row["lender_strength"] == told


def _judged(**changed: Any) -> dict[str, str]:
    """Judge made-up numbers; give the verdict of each statement."""
    which = {"dataset": "imdb", "encoder": "bilstm", "attention": "additive"}
    uniform = which | {
        "classes": 2, "base_f1": 0.9, "uniform_f1": 0.85, "drop_f1": 0.05, "base_accuracy": 0.9,
        "majority": 0.5, "p_mcnemar": 0.01, "base_alone_right": 9, "uniform_alone_right": 1,
    }  # fmt: skip
    diagnostic = which | {
        "uniform_f1": 0.8, "learned_f1": 0.85, "base_f1": 0.9, "adversary_f1": 0.7,
        "lender_jsd": 0.45, "lender_strength": 0.001,
    }  # fmt: skip
    adversary = which | {
        "strength": 8e-4, "max_epochs": 80, "paper_jsd": 0.405, "jsd": 0.5, "tvd": 0.1,
        "tvd_halved": 0.05, "train_tvd": 0.01,
    }  # fmt: skip
    zero = adversary | {"strength": 0.0, "paper_jsd": math.nan}
    curve = which | {"max_epochs": 20, "spearman": 0.8, "values": 7}
    rows = [uniform, diagnostic, adversary, zero, curve]
    frames = [pd.DataFrame([{k: changed.get(k, v) for k, v in row.items()}]) for row in rows]
    found = claims(frames[0], frames[1], pd.concat(frames[2:4]), frames[4])
    return {claim.text: claim.verdict for claim in found}


def test_verdicts() -> None:
    assert set(_judged().values()) == {"agrees"}
    assert len(_judged()) == 6
    worse = "Uniform attention does worse than learned attention"
    assert _judged(p_mcnemar=0.2)[worse] == "disagrees"
    assert _judged(drop_f1=0.005)[worse] == "disagrees"
    assert _judged(base_accuracy=0.54)[worse] == "cannot tell"
    as_well = "Uniform attention does as well as learned attention"
    assert _judged(dataset="ag_news")[as_well] == "disagrees"
    assert _judged(dataset="ag_news", p_mcnemar=0.2)[as_well] == "agrees"
    lent = "The adversary's weights serve an MLP worse than the base model's"
    assert _judged(lender_jsd=0.39)[lent] == "cannot tell"
    assert _judged(adversary_f1=0.95)[lent] == "disagrees"
    apart = "A trained adversary has other attention and much the same outputs"
    assert _judged(jsd=0.3)[apart] == "disagrees"
    assert _judged(tvd_halved=0.06)[apart] == "disagrees"
    rises = "The larger λ, the further the adversary's attention is from the base model's"
    assert _judged(spearman=0.79)[rises] == "disagrees"
    assert _judged(spearman=math.nan)[rises] == "cannot tell"
    imitates = "Without the attention term (λ = 0) an adversary reproduces the base model"
    assert _judged(train_tvd=0.06)[imitates] == "disagrees"


def test_the_page_and_its_files(finished: WiegreffePinter, tmp_path: Path) -> None:
    path = build(finished, tmp_path)
    page = Page(path.read_text(encoding="utf-8"))
    page.loads_nothing()
    words = page.words()
    for text in ("Table 2", "Table 3", "Table 4", "recalled", "chosen on dev", "0.592"):
        assert text in words, text
    names = {file.stem for file in (tmp_path / "tables").glob("*.csv")}
    assert names == {
        "table_1", "table_2", "table_3", "table_4", "seeds", "curve", "sought", "models", "claims",
        "paper",
    }  # fmt: skip
    assert {file.stem for file in (tmp_path / "tables").glob("*.tex")} == names
    drawn = {file.name for file in (tmp_path / "figures").iterdir()}
    for number in (2, 3, 5):
        for kind in ("png", "svg", "pdf"):
            assert f"figure-{number}-sst-bilstm-additive.{kind}" in drawn
    of_paper = pd.read_csv(tmp_path / "tables" / "paper.csv")
    assert len(of_paper) == 6 * 2 + 4 * 4 + 4 * 4 + 6
    assert of_paper["source"].str.contains("recalled").sum() == 6 * 2 + 4 * 4 + 4 * 4
    models = pd.read_csv(tmp_path / "tables" / "models.csv")
    assert len(models) == len(finished.results())


def test_nothing_in_a_figure_is_cut(finished: WiegreffePinter, family: tables.Family) -> None:
    drawn = list(figures(finished, [family], {"sst": "A name of a data set that is rather long"}))
    assert len(drawn) == 3
    for one in drawn:
        assert not faults(one.figure), one.name


def test_the_adversary_that_is_shown_has_the_published_strength(family: tables.Family) -> None:
    shown = shown_adversary(family)
    assert shown is not None
    assert shown.strength == 10  # the furthest, where none has the published one
    published = replace(BASE, kind="adversary", strength=5.25e-4, epochs=80)
    result = dataclasses.replace(family.results[shown], cell=published)
    more = dataclasses.replace(family, results=family.results | {published: result})
    assert shown_adversary(more) == published


def test_more_can_be_added_in_the_same_folder(finished: WiegreffePinter) -> None:
    before = set(finished.results())
    seeds = replace(OPTIONS, seeds=(4,), tests=("seeds",))
    more = WiegreffePinter(seeds, finished.root, finished.out)
    assert run(more) == ["cells/sst/bilstm-additive/seed-4"]
    found = set(finished.results())
    assert found - before == {replace(BASE, kind="seed", seed=4)}
    other = WiegreffePinter(replace(seeds, epochs=3), finished.root, finished.out)
    with pytest.raises(RunError, match="epochs is 10 there and 3 here"):
        run(other)
    folder = finished.folder(replace(BASE, kind="seed", seed=4).key)
    (folder / "done.json").unlink()


def test_uniform_attention_with_a_query(tmp_path: Path) -> None:
    """Who went where, and where is one of them: the question is the query, answers are classes."""
    (tmp_path / "root" / "babi").mkdir(parents=True)
    for split in ("train", "test"):
        lines = []
        for story in range(30):
            people, places = ("Ann", "Bob"), ("hall", "park", "shop")
            for at, who in enumerate(people, start=1):
                lines.append(f"{at} {who} went to the {places[(story + at) % 3]}.")
            asked = story % 2
            answer = places[(story + asked + 1) % 3]
            lines.append(f"3 Where is {people[asked]}? \t{answer}\t{asked + 1}")
        file = tmp_path / "root" / "babi" / f"qa1_single-supporting-fact_{split}.txt"
        file.write_text("\n".join(lines) + "\n")
    options = Options(datasets=("babi_1",), tests=("uniform",), pair_epochs=2)
    study = WiegreffePinter(options, tmp_path / "root", tmp_path / "out")
    assert run(study)[1:] == [
        "cells/babi_1/bilstm-additive/base-10", "cells/babi_1/bilstm-additive/uniform-10"
    ]  # fmt: skip
    [found] = tables.families(study)
    base, uniform = found.of_kind("base")[0], found.of_kind("uniform")[0]
    assert load_model(study.folder(base.cell.key) / "model").model.config.kind == "pair"
    assert base.classes > 2
    assert (base.f1, uniform.divergence) == (None, None)
    for weights in study.predictions(uniform.cell).weights.values():
        assert weights.tolist() == pytest.approx([1 / len(weights)] * len(weights))
    [row] = tables.uniform_table(study, [found]).to_dict("records")
    assert row["drop_accuracy"] == pytest.approx(base.accuracy - uniform.accuracy)
    words = Page(build(study, tmp_path / "report").read_text(encoding="utf-8")).words()
    assert "where there is a second text (Vashishth et al. 2019)" in words


def test_more_than_two_classes_are_compared_by_accuracy_alone() -> None:
    result = CellResult(BASE, 3, 0.6, 0.4, None, None, 0.6, 2, 8, 8, {"test": 50}, 0)
    assert tables.model_table([tables.Family(BASE, {BASE: result})])["f1"].isna().all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"datasets": ("wiki",)}, "datasets: given wiki, needed distinct names of"),
        ({"tested": ("sst", "sst")}, "tested: given sst, sst, needed distinct names"),
        ({"tests": ()}, "tests: given none, needed at least one of uniform"),
        ({"seeds": (-1,)}, "seeds: given"),
        ({"seeds": (10, 2)}, "seeds: given 10, needed others than base_seed"),
        ({"seeds": ()}, "seeds: given none, needed one or more"),
        ({"tested": ("ag_news",)}, "strengths: given none, needed numbers, for ag_news has no"),
        ({"tested": ("snli",)}, "tested: given snli, of two texts, needed data sets of one"),
        ({"curve": (0.1, 0.1)}, "curve: given"),
        ({"lender": -1.0}, "lender: given -1.0"),
        ({"tvd": 0.0}, "tvd: given 0.0, needed a number above 0"),
        ({"epochs": 0}, "epochs: given 0, needed at least 1"),
    ],
)
def test_bad_options(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        Options(**changed)


def test_the_paper_s_numbers() -> None:
    assert paper.number("Table 4", "imdb_5k", "strength") == 8e-4
    assert math.isnan(paper.number("Table 4", "ag_news", "strength"))
    assert len({(cell.table, cell.row, cell.column) for cell in paper.CELLS}) == len(paper.CELLS)
    assert {cell.source for cell in paper.CELLS} == set(paper.SOURCES)


@pytest.mark.long
def test_killed_and_called_again_it_ends_with_the_same_numbers(tmp_path: Path) -> None:
    compared, differences = kill_and_compare(tmp_path, kills=2, jobs=2)
    assert compared > 20
    assert differences == []
