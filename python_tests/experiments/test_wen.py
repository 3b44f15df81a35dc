"""The information studies: cells, their order, interruption, tables and claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from experiments.kill_wen import kill_and_compare
from wen_study import OPTIONS, run, treebank

from fastattnerase import mi
from fastattnerase.experiments import rundir
from fastattnerase.experiments.rundir import RunError
from fastattnerase.experiments.wen import Options, Unit, Workspace, f1
from fastattnerase.experiments.wen_tables import claims, collect
from fastattnerase.models import load_model


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = treebank(tmp_path_factory.mktemp("root"))
    workspace = Workspace(OPTIONS, root, tmp_path_factory.mktemp("out"))
    run(workspace)
    return workspace


def test_the_units_of_the_paper() -> None:
    units = Workspace(Options(), Path("root"), Path("out")).units()
    cells = [unit for unit in units if not unit.is_data]
    grid = [u for u in cells if u.variant == "normal" and u.mechanism == "softmax"]
    assert len(grid) == 4 * 9 * 3
    assert len([u for u in cells if u.mechanism == "gumbel"]) == 2 * 9
    assert len([u for u in cells if u.variant.startswith("attention_")]) == 2 * 4
    assert len([u for u in cells if u.variant.startswith("representation_")]) == 2 * 3
    assert len([u for u in cells if u.variant == "adversary"]) == 2
    listed: set[Unit] = set()
    for unit, needs in units.items():
        assert listed.issuperset(needs)  # each after those that must be done before it
        listed.add(unit)
    assert len({unit.key for unit in units}) == len(units)


def test_a_study_without_its_grid_still_trains_the_models_it_starts_from() -> None:
    options = replace(Options(), studies=("adversary",), small_datasets=("psytar",))
    units = Workspace(options, Path("root"), Path("out")).units()
    assert [unit.key for unit in units] == [
        "data/psytar",
        "cells/psytar/bilstm-additive-softmax-normal-0",
        "cells/psytar/bilstm-additive-softmax-adversary-0",
    ]


def test_every_cell_is_measured(finished: Workspace) -> None:
    results = finished.results()
    assert len(results) == 10
    for unit, result in results.items():
        names = (
            ["noise_off", "noise_on", "equal_scores"] if unit.mechanism == "gumbel" else ["main"]
        )
        assert list(result["measurements"]) == names
        for found in result["measurements"].values():
            measured = mi.load(finished.folder(unit) / found["run"]).measurement
            assert measured.summary["ranks"] == 4
        assert not (finished.folder(unit) / "checkpoint").exists()
        saved = finished.folder(unit) / "model"
        assert saved.exists() == (unit.variant in ("normal", "adversary"))
        if saved.exists():
            assert load_model(saved).model.config.encoder == "bilstm"
    adversary = results[Unit("sst", "bilstm", "additive", "softmax", "adversary", 0)]
    assert set(adversary["divergence"]) == {"tvd", "output_jsd", "attention_jsd", "attention_kl"}
    assert adversary["strength"] == 5.25e-4


def test_tables(finished: Workspace) -> None:
    results = finished.results()
    tables = collect(results, finished.out)
    measured = tables["measurements"].set_index(["mechanism", "variant", "measurement"])
    assert len(measured) == 12
    normal = results[Unit("sst", "bilstm", "additive", "softmax", "normal", 0)]
    folder = finished.folder(Unit("sst", "bilstm", "additive", "softmax", "normal", 0))
    own = mi.load(folder / normal["measurements"]["main"]["run"]).measurement
    row = measured.loc[("softmax", "normal", "main")]
    assert row["weighted"] == own.correlation("weighted_product").value
    assert row["plain"] == own.correlation("kendall").value
    assert row["plain_corrected"] == own.correlation("kendall", "miller_madow").value
    assert row["accuracy"] == normal["accuracy"]
    assert len(tables["curves"]) == 12 * 4
    assert set(tables["table_2"]["reading"]) == {
        "uniform", "trained", "random", "parameters", "trained_kept",
    }  # fmt: skip
    fix = tables["table_2"].set_index(["setting", "reading"]).loc[("Fix Rep", "random")]
    special = measured.loc[("softmax", "representation_random", "main")]
    assert fix["delta_weighted"] == row["weighted"] - special["weighted"]
    assert fix["paper_delta"] == -0.02
    # Without attention ranks are positions, so both taus are of equal weights.
    uniform = measured.loc[("softmax", "attention_uniform", "main")]
    assert uniform["weighted"] == pytest.approx(uniform["plain"])
    [third] = tables["table_3"].to_dict("records")
    assert third["half_tvd"] == third["tvd"] / 2
    [fourth] = tables["table_4"].to_dict("records")
    assert fourth["delta_plain"] == fourth["plain_normal"] - fourth["plain"]
    [gumbel] = tables["gumbel"].to_dict("records")
    assert gumbel["weighted_softmax"] == row["weighted"]
    every = tables["table_5"].set_index("attention").loc["all"]
    assert every["models"] == 1
    assert every["plain_noise_on"] == (gumbel["plain_noise_on"] >= gumbel["plain_softmax"])


def test_an_interrupted_study_ends_with_the_same_numbers(
    finished: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    options = replace(OPTIONS, studies=("gumbel",))
    workspace = Workspace(options, finished.root, tmp_path)
    measure = Workspace._measure
    calls = 0

    def killed(self: Workspace, *arguments: Any) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        found = measure(self, *arguments)
        if calls == 3:
            raise Killed
        return found

    monkeypatch.setattr(Workspace, "_measure", killed)
    with pytest.raises(Killed):
        run(workspace)
    monkeypatch.undo()
    watcher = run(workspace)
    assert watcher.before == 2  # the data and the softmax model
    assert watcher.finished_units == ["cells/sst/bilstm-additive-gumbel-normal-0"]
    assert run(workspace).finished_units == []
    whole = {u: r for u, r in finished.results().items() if u in workspace.units()}
    wanted, found = (
        collect(r, out)["measurements"].drop(columns="seconds")
        for r, out in ((whole, finished.out), (workspace.results(), workspace.out))
    )
    columns = list(found.columns)  # the whole study has the adversary's, too
    pd.testing.assert_frame_equal(wanted[columns], found)
    manifest = rundir.read_json(tmp_path / "manifest.json")
    assert all(unit["done"] for unit in manifest["units"].values())


def test_killed_and_restarted_it_ends_with_the_same_numbers(tmp_path: Path) -> None:
    compared, differences = kill_and_compare(tmp_path, kills=2, jobs=1, studies="adversary")
    assert compared > 10
    assert differences == []


def test_the_largest_seed_is_one_of_every_generator(tmp_path: Path) -> None:
    """An adversary's is larger than its study's; the data are made as for any seed."""
    most = 2**63 - 1 - 2_000_003
    options = replace(
        OPTIONS, small_seeds=(most,), studies=("adversary", "fix"), adversary_epochs=1
    )
    workspace = Workspace(options, treebank(tmp_path / "root"), tmp_path / "out")
    assert len(run(workspace).finished_units) == 10


def test_other_options_in_the_same_folder(finished: Workspace) -> None:
    other = Workspace(replace(OPTIONS, epochs=3), finished.root, finished.out)
    with pytest.raises(RunError, match="epochs is 2 there and 3 here"):
        other.results()
    # More seeds are no other options.
    more = Workspace(replace(OPTIONS, seeds=(0, 1)), finished.root, finished.out)
    assert len(more.results()) == 10


def test_what_cannot_be_measured_is_said(finished: Workspace, tmp_path: Path) -> None:
    options = replace(OPTIONS, studies=("grid",), clusters=1000)
    workspace = Workspace(options, finished.root, tmp_path)
    run(workspace)
    [result] = workspace.results().values()
    assert result["measurements"]["main"]["run"] is None
    assert "fewer than the 1000 clusters" in result["measurements"]["main"]["reason"]
    tables = collect(workspace.results(), tmp_path)
    assert np.isnan(tables["measurements"]["weighted"][0])
    assert tables["curves"].empty
    assert tables["figure_2"]["undefined"].tolist() == [1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"datasets": ("sst", "trec")}, "datasets is sst, trec; distinct names of sst, imdb"),
        ({"encoders": ("gru",)}, "encoders is gru; distinct names of bilstm, cnn, mlp"),
        ({"seeds": (0, 0)}, r"seeds is \(0, 0\); distinct numbers from 0 to \d+ are needed"),
        ({"seeds": (0, -1)}, r"seeds is \(0, -1\)"),
        (
            {"small_seeds": (2**63 - 1,)},
            "distinct numbers from 0 to 9223372036852775804 are needed",
        ),
        ({"studies": ()}, "studies is empty"),
        ({"channels": 0}, "channels is 0; at least 1 is needed"),
        ({"gumbel_noise": "old"}, "gumbel_noise: got 'old'; fresh or shared is needed"),
        ({"selection": "f1"}, "selection: got 'f1'"),
        ({"clusters": "many"}, "clusters is 'many'; it must be largest, smallest or a number"),
    ],
)
def test_bad_options(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        replace(Options(), **values)


def table_of(taus: dict[tuple[str, str], float]) -> pd.DataFrame:
    rows = [
        {"encoder": e, "attention": a, "models": 1, "weighted": t, "plain": -t}
        for (e, a), t in taus.items()
    ]
    return pd.DataFrame(rows)


def test_claims_agree_only_where_the_numbers_do() -> None:
    empty = pd.DataFrame()
    tables = dict.fromkeys(("accuracy", "table_2", "table_3", "table_4", "table_5", "means"), empty)
    assert claims(tables) == []
    taus = {("all", "additive"): 0.8, ("all", "deep"): 0.7, ("all", "dot"): 0.4}
    for i, e in enumerate(("bilstm", "cnn", "mlp")):
        for j, a in enumerate(("additive", "deep", "dot")):
            taus[e, a] = 0.9 - 0.1 * (3 * i + j)
    found = claims(tables | {"means": table_of(taus)})
    assert [claim.agrees for claim in found] == [True, False, True, False]
    accuracy = pd.DataFrame(
        {"dataset": ["sst"], "accuracy": [0.8], "lowest": [0.77], "paper": [0.82], "needed": [0.78]}
    )
    [claim] = claims(tables | {"accuracy": accuracy})
    assert claim.agrees is False
    adversaries = pd.DataFrame({"delta_weighted": [0.02, 0.05], "delta_plain": [0.1, 0.3]})
    third = pd.DataFrame({"attention_jsd": [0.2, 0.6]})
    [claim] = claims(tables | {"table_4": adversaries, "table_3": third})
    assert claim.agrees is True
    assert claim.here == "weighted +0.02 to +0.05, plain +0.10 to +0.30; JSD 0.20 to 0.60"
    fix = pd.DataFrame(
        {
            "setting": ["Fix Attn", "Fix Attn", "Fix Rep"],
            "reading": ["uniform", "trained", "random"],
            "delta_weighted": [0.7, 0.0, np.nan],
            "delta_plain": [0.2, 0.0, np.nan],
        }
    )
    assert [c.agrees for c in claims(tables | {"table_2": fix})] == [True, False, None]


def test_options_reach_the_models() -> None:
    options = Options(
        attention_size=7, attention_depth=3, scaled_dot=True, activation="relu", temperature=0.5,
        gumbel_hard=True, gumbel_noise="shared", channels=16, selection="accuracy",
        class_weights="none", attention_weight_decay=1e-5, epochs=4,
    )  # fmt: skip
    model = options.model(Unit("sst", "cnn", "deep", "gumbel", "normal", 5))
    assert (model.hidden_size, model.attention_size, model.attention_depth) == (16, 7, 3)
    assert (model.attention_scaled, model.activation, model.temperature) == (True, "relu", 0.5)
    assert (model.gumbel_hard, model.gumbel_noise, model.seed) == (True, "shared", 5)
    assert (model.kind, model.head, model.mechanism) == ("sequence", "sigmoid", "gumbel")
    assert model.dropout_embedding == model.dropout_output == model.conv_dropout == 0.0
    default = Options().model(Unit("sst", "cnn", "additive", "softmax", "normal", 0))
    assert (default.hidden_size, default.attention_size) == (32, 80)
    training = options.training(5)
    assert (training.selection, training.class_weights, training.epochs) == ("accuracy", "none", 4)
    assert training.attention_weight_decay == training.weight_decay == 1e-5
    assert (training.amsgrad, training.loss, training.first_epoch) == (True, "sum", 2)


def test_f1_by_hand() -> None:
    assert f1(np.array([1, 1, 1, 0]), np.array([1, 0, 1, 1])) == pytest.approx(2 / 3)
    assert f1(np.array([0, 0]), np.array([0, 0])) == 0.0
