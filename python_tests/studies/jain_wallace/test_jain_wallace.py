"""The study whole: its numbers from scratch, restart, other options, page, figures, command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from report.html_page import Page
from report.layout import faults
from studies.jain_wallace.jain_wallace_study import OPTIONS, run, stories, study
from studies.jain_wallace.kill_jain_wallace import kill_and_compare
from studies.wen.wen_study import treebank
from torch import Tensor
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.data import collate
from fastattnerase.models import load_model
from fastattnerase.models.storage import read_tensors
from fastattnerase.runs.rundir import RunError
from fastattnerase.statistics.correlation import kendall_tau
from fastattnerase.studies.jain_wallace.cells import ADVERSARIES
from fastattnerase.studies.jain_wallace.claims import claims, unskilled
from fastattnerase.studies.jain_wallace.figures import Review, figures
from fastattnerase.studies.jain_wallace.options import Cell, Options
from fastattnerase.studies.jain_wallace.tables import Tables, collect
from fastattnerase.studies.jain_wallace.units import JainWallace

BILSTM = Cell("sst", "bilstm", "additive")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> JainWallace:
    folder = tmp_path_factory.mktemp("jain_wallace")
    return study(treebank(folder / "root"), folder / "out")


@pytest.fixture(scope="module")
def tables(finished: JainWallace) -> Tables:
    return collect(finished)


def test_units_come_after_what_they_need(finished: JainWallace) -> None:
    keys = [unit.key for unit in finished.units()]
    assert keys[:5] == [
        "data/sst",
        "model/sst/bilstm-additive-0",
        "correlation/sst/bilstm-additive-0",
        "permutation/sst/bilstm-additive-0",
        "adversary/sst/bilstm-additive-0",
    ]
    assert keys[-1] == "report"
    assert len(keys) == 10
    for number, unit in enumerate(finished.units()):
        assert set(unit.needs) <= set(keys[:number])


def outputs_of(values: Tensor, weight: Tensor, bias: Tensor, a: Tensor) -> Tensor:
    """Probabilities of a document's values under weights, in float64."""
    return (weight @ (a.double() / a.double().sum() @ values) + bias).softmax(0)


def test_every_adversary_keeps_its_slack_from_scratch(finished: JainWallace) -> None:
    """From the saved weights and the saved model, document by document, in float64."""
    for cell in OPTIONS.cells():
        rows = finished.found(cell, "adversary")
        assert len(rows) == 9
        kept = read_tensors(finished.folder(f"adversary/{cell.key}") / ADVERSARIES)
        assert rows["row"].tolist() == kept["rows"].tolist()
        model = load_model(finished.folder(f"model/{cell.key}") / "model").model
        test = finished.load_data("sst")[0].test
        weight, bias = (part.double() for part in model.head())
        for number, row in enumerate(rows.to_dict("records")):
            with torch.no_grad():
                output = model(collate([test[row["row"]]]))
            values = output.values.double()
            items = slice(*kept["offsets"][number : number + 2].tolist())
            outputs = partial(outputs_of, values, weight, bias)
            own = output.scores.double().softmax(0)
            torch.testing.assert_close(kept["own"][items], own, rtol=0, atol=1e-6)
            for rule, limit in (("code", 0.05), ("paper", 0.01)):
                other = kept[rule][items]
                moved = float((outputs(other) - outputs(own)).abs().sum()) / 2
                assert moved == pytest.approx(row[f"tvd_{rule}"], abs=1e-6)
                assert moved <= limit + 1e-6
                assert row[f"tvd_{rule}"] <= limit
                other = other / other.sum()
                middle = (other + own) / 2
                jsd = float((other.xlogy(other / middle) + own.xlogy(own / middle)).sum()) / 2
                assert jsd == pytest.approx(row[f"jsd_{rule}"], abs=1e-6)
            assert row["jsd_paper"] <= row["jsd_code"] <= np.log(2)


def test_tables_are_means_of_the_documents(finished: JainWallace, tables: Tables) -> None:
    taus = finished.found(BILSTM, "correlation")
    assert taus["pair"].value_counts().to_dict() == {
        "attention_gradient": 60,
        "attention_loo": 11,
        "gradient_loo": 11,
    }
    table = tables.frame("correlations")
    chosen = (table["encoder"] == "bilstm") & (table["predicted"] == "all")
    for row in table[chosen].to_dict("records"):
        own = taus[taus["pair"] == row["pair"]]
        assert row["documents"] == len(own)
        assert row["mean"] == pytest.approx(float(own["tau"].mean()))
        assert row["deviation"] == pytest.approx(float(own["tau"].std(ddof=0)))
        assert row["significant"] == pytest.approx(float((own["p"] <= 0.05).mean()))
    by_class = table[(table["encoder"] == "bilstm") & (table["predicted"] != "all")]
    assert set(by_class["class"]) == {"negative", "positive"}
    wide = taus.pivot(index="row", columns="pair", values="tau").dropna()
    row = tables.frame("comparisons").set_index(["encoder", "other"]).loc["bilstm", "attention_loo"]
    lead = wide["gradient_loo"] - wide["attention_loo"]
    assert row["difference"] == pytest.approx(lead.mean())
    reach = 1.96 * lead.std(ddof=1) / np.sqrt(11)
    assert (row["low"], row["high"]) == pytest.approx((lead.mean() - reach, lead.mean() + reach))
    shuffled = finished.found(BILSTM, "permutation")
    drawn = tables.frame("permutations")
    everywhere = drawn[
        (drawn["encoder"] == "bilstm")
        & (drawn["predicted"] == "all")
        & (drawn["largest_weight"] == "all")
    ].iloc[0]
    assert everywhere["median"] == pytest.approx(float(np.median(shuffled["median_tvd"])))
    assert everywhere["flips"] == pytest.approx(shuffled["flips"].mean() / 7)
    assert everywhere["documents"] == 60


def test_statements_are_judged_on_models_that_beat_the_most_frequent_class() -> None:
    """Two data sets by hand; the BiLSTM of the second decides by the most frequent class."""
    which = [
        {"dataset": dataset, "encoder": encoder, "attention": "additive", "seed": 0}
        for dataset in ("sst", "babi_3")
        for encoder in ("bilstm", "mlp")
    ]
    models = pd.DataFrame(
        [
            row | {"accuracy": accuracy, "majority": majority}
            for row, accuracy, majority in zip(
                which, (0.8, 0.75, 0.23, 0.4), (0.5, 0.5, 0.2, 0.2), strict=True
            )
        ]
    )
    means = {"attention_gradient": 0.2, "attention_loo": 0.25, "gradient_loo": 0.5}
    correlations = pd.DataFrame(
        [
            row | {"pair": pair, "predicted": "all", "mean": mean + 0.3 * (row["encoder"] == "mlp")}
            for row in which
            for pair, mean in means.items()
        ]
    )
    bins = {"predicted": "all", "median": 0.05, "jsd_code": 0.5}
    binned = pd.DataFrame(
        [row | bins | {"largest_weight": bin} for row in which for bin in ("all", ".75 to 1")]
    )
    found = claims(models, correlations, binned, binned)
    assert unskilled(models)[["dataset", "encoder"]].to_numpy().tolist() == [["babi_3", "bilstm"]]
    assert [(claim.held, claim.cases) for claim in found] == [
        (1, 1), (1, 1), (1, 1), (3, 3), (3, 3), (3, 3)
    ]  # fmt: skip
    assert {claim.verdict for claim in found} == {"agrees"}
    assert found[0].here == "1 of 1; least lead 0.25"
    assert found[1].here == "1 of 1; lead 0.30"
    worse = binned.assign(median=[0.05, 0.2, 0.01, 0.2, 0.01, 0.01, 0.01, 0.3])
    peaked = claims(models, correlations, worse, binned)[4]
    assert (peaked.verdict, peaked.here) == ("disagrees", "0 of 3; median difference 0.20 to 0.30")


def test_published_numbers_stand_beside_with_their_cells(tables: Tables) -> None:
    table = tables.frame("correlations").set_index(["encoder", "pair", "predicted"])
    row = table.loc["mlp", "attention_gradient", "0"]
    assert row["mean_published"] == 0.61
    assert row["mean_source"] == "Table 2, SST 0, attention gradient, mlp, mean"
    assert row["significant_published"] == 0.87
    second = tables.frame("table_2")
    assert second["gradient_bilstm_published"].tolist() == [
        "0.34 ± 0.21 (0.48)",
        "0.36 ± 0.21 (0.49)",
    ]
    assert second["class"].tolist() == ["negative", "positive"]


def test_no_number_is_missing_without_its_reason(tables: Tables) -> None:
    for name, columns in (
        ("correlations", ["mean", "deviation", "significant"]),
        ("comparisons", ["difference", "low", "high"]),
        ("models", ["accuracy", "f1", "auc"]),
    ):
        frame = tables.frame(name)
        without = frame[frame["undefined"] == ""]
        assert not without[columns].isna().any().any(), name
    for name in ("permutations", "adversaries"):
        assert not tables.frame(name).isna().any().any()


def test_the_page_is_one_file(finished: JainWallace) -> None:
    folder = finished.folder("report")
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    page.loads_nothing()
    assert "Is attention explanation?" in page.words()
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert {f"figure-{n}-additive" for n in (2, 3, 4, 5)} | {"figure-1"} <= names
    assert {f"figure-{n}-{e}-additive" for n in (6, 7, 8) for e in ("bilstm", "mlp")} <= names
    for name in names:
        for kind in ("png", "svg", "pdf"):
            assert (folder / "figures" / f"{name}.{kind}").stat().st_size > 1000
    for path in (folder / "tables").glob("*.csv"):
        assert len(pd.read_csv(path))
        assert "\\toprule" in path.with_suffix(".tex").read_text()


def test_nothing_is_cut_off_in_figures(tables: Tables) -> None:
    long = replace(
        tables, titles={"sst": "Sentences of a Treebank of Sentiment with $ a long name"}
    )
    draw = np.random.default_rng(0)
    review = Review(
        tokens=[f"word{i}$" for i in range(60)],
        weights=draw.dirichlet(np.ones(60)),
        adversary=draw.dirichlet(np.ones(60)),
        probability=0.91,
        moved=0.04,
        divergence=0.66,
        predicted="negative $",
        title="a model",
    )
    for drawn in figures(long, review):
        if "mlp" in drawn.name:
            continue  # the same figures as the BiLSTM's
        assert faults(drawn.figure) == [], drawn.name


def copied(finished: JainWallace, folder: Path) -> Path:
    """A copy of what a finished study wrote, to go on in."""
    import shutil

    return Path(shutil.copytree(finished.out, folder / "out"))


@pytest.mark.usefixtures("undrawn_figures")
def test_nothing_is_done_twice_and_more_can_be_added(finished: JainWallace, tmp_path: Path) -> None:
    out = copied(finished, tmp_path)
    assert run(JainWallace(OPTIONS, finished.root, out)).finished_units == []
    # The report is on all that is there, of this call or not.
    more = replace(OPTIONS, encoders=("cnn",), adversary_rule="paper", permutations=3)
    done = run(JainWallace(more, finished.root, out)).finished_units
    assert done == [
        "model/sst/cnn-additive-0",
        "correlation/sst/cnn-additive-0",
        "permutation/sst/cnn-additive-0",
        "adversary/sst/cnn-additive-0",
        "report",
    ]
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert "3 models" in page
    table = pd.read_csv(out / "report" / "tables" / "permutations.csv")
    assert list(dict.fromkeys(table["encoder"])) == ["bilstm", "cnn", "mlp"]
    assert run(JainWallace(more, finished.root, out)).finished_units == []
    # The first call knows of the CNN now, and of nothing new.
    assert run(JainWallace(OPTIONS, finished.root, out)).finished_units == []


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"epochs": 3}, r"bilstm-additive-0 was made .*epochs is 2 there and 3 here"),
        ({"permutations": 8}, r"permutation.* was made .*permutations is 7 there and 8 here"),
        ({"max_test": 30}, r"sst was made .*max_test is None there and 30 here"),
        ({"adversary_rule": "paper"}, r"adversary.* adversary_rule is 'code' there and 'paper'"),
    ],
)
def test_a_folder_made_otherwise_is_refused(
    finished: JainWallace, other: dict[str, object], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        run(JainWallace(replace(OPTIONS, **other), finished.root, finished.out))  # type: ignore[arg-type]


@pytest.mark.usefixtures("undrawn_figures")
def test_a_killed_study_goes_on_with_the_same_numbers(
    finished: JainWallace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def killed(*arguments: object) -> Iterator[object]:
        raise Killed

    out = tmp_path / "out"
    options = replace(OPTIONS, encoders=("bilstm",))
    with monkeypatch.context() as patched:
        patched.setattr("fastattnerase.studies.jain_wallace.cells.write_rows", killed)
        with pytest.raises(Killed):
            run(JainWallace(options, finished.root, out))
    watcher = run(JainWallace(options, finished.root, out))
    assert watcher.before == 2  # data and model
    for test in ("correlation", "permutation", "adversary"):
        name = f"{test}/sst/bilstm-additive-0/instances.csv"
        assert (out / name).read_bytes() == (finished.out / name).read_bytes()


@pytest.mark.usefixtures("undrawn_figures")
def test_a_data_set_with_a_query(tmp_path: Path) -> None:
    """Answers of bAbI are predicted by a decoder that is no linear head; all are one group."""
    options = replace(OPTIONS, datasets=("babi_1",), encoders=("mlp",), pair_epochs=2)
    workspace = study(stories(tmp_path / "root"), tmp_path / "out", options)
    [cell] = options.cells()
    config = options.model(cell)
    assert (config.kind, config.decoder, config.hidden_size, config.embedding_size) == (
        "pair",
        "tanh",
        1,
        50,
    )
    assert options.training(cell).batch_size == 50
    assert workspace.search(cell).slack == 0.005
    tables = collect(workspace)
    assert set(tables.frame("correlations")["predicted"]) == {"all"}
    models = tables.frame("models")
    assert models["undefined"].tolist() == ["F1, AUC: more than two classes"]
    assert tables.frame("table_2")["gradient_mlp_published"].tolist() == ["0.72 ± 0.12 (0.99)"]
    rows = workspace.found(cell, "adversary")
    assert (rows["jsd_code"] > 0.01).any()  # the output of a small decoder hardly moves
    assert (rows["tvd_paper"] <= 0.05).all()
    longer = JainWallace(replace(options, pair_epochs=3), workspace.root, workspace.out)
    with pytest.raises(RunError, match=r"was made .*: pair_epochs is 2 there and 3 here;"):
        run(longer)


def test_epochs_of_two_texts_are_the_published_ones_by_default() -> None:
    """Results call them by the names that the first ones had, so that these still open."""
    options = Options(datasets=("snli", "babi_1"), encoders=("mlp",))
    found = {cell.dataset: options.used_for_model(cell) for cell in options.cells()}
    assert found["snli"]["query_epochs"] == 25
    assert found["babi_1"]["babi_epochs"] == 100
    assert [options.training(cell).epochs for cell in options.cells()] == [25, 100]


def test_bad_options() -> None:
    for given, message in (
        ({"datasets": ("nowhere",)}, r"datasets: given nowhere, needed distinct names of sst"),
        ({"encoders": ()}, r"encoders: given none, needed at least one of bilstm, cnn, mlp"),
        ({"attentions": ("deep",)}, r"attentions: given deep, needed .* additive, dot"),
        ({"seeds": (1, 1)}, r"seeds: given 1, 1, needed distinct numbers from 0"),
        ({"loo_instances": 0}, r"loo_instances: given 0, needed at least 1"),
        ({"adversary_rule": "mine"}, r"adversary_rule: given 'mine', needed"),
    ):
        with pytest.raises(RunError, match=message):
            Options(**given)  # type: ignore[arg-type]


def test_the_command_says_what_it_does() -> None:
    found = CliRunner().invoke(app, ["reproduce", "jain-wallace", "--help"], env={"COLUMNS": "200"})
    words = " ".join(found.output.replace("│", " ").split())
    for text in ("is attention explanation?", "--loo-instances", "--adversary-instances", "--jobs"):
        assert text in words


def test_taus_in_the_files_are_kendall_s(finished: JainWallace) -> None:
    """The first document's tau of attention and gradient, from the model anew."""
    first = finished.found(BILSTM, "correlation").iloc[0]
    model = load_model(finished.folder(f"model/{BILSTM.key}") / "model").model.eval()
    batch = collate([finished.load_data("sst")[0].test[0]])
    words = model.embed(batch).detach().requires_grad_()
    output = model.from_embeddings(words, batch)
    weights = output.weights.detach()
    # With attention held constant, p depends on the words through the values alone.
    pooled = weights @ output.values
    weight, bias = model.head()
    p = (weight @ pooled + bias).softmax(0).max()
    [gradient] = torch.autograd.grad(p, words)
    scores = (gradient * words.detach()).sum(1).abs()
    wanted = kendall_tau(weights.numpy(), scores.numpy())
    assert first["tau"] == pytest.approx(wanted.value, abs=1e-9)
    assert first["p"] == pytest.approx(wanted.p_value, abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_at_any_moment_it_ends_with_the_same_numbers(tmp_path: Path, jobs: int) -> None:
    compared, differences = kill_and_compare(tmp_path, kills=3, jobs=jobs, seed=jobs)
    assert compared >= 20
    assert differences == []
