"""The information studies: cells, their order, interruption, tables and claims."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from studies.wen.kill_wen import kill_and_compare
from wen_study import OPTIONS, run, treebank

from fastattnerase import mi
from fastattnerase.models import load_model
from fastattnerase.runs import rundir
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.wen import paper
from fastattnerase.studies.wen.claims import claims
from fastattnerase.studies.wen.layout import MEASUREMENTS
from fastattnerase.studies.wen.options import Cell, Options
from fastattnerase.studies.wen.results import Finding
from fastattnerase.studies.wen.rows import is_chance
from fastattnerase.studies.wen.tables import Tables, collect
from fastattnerase.studies.wen.units import Wen


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Wen:
    root = treebank(tmp_path_factory.mktemp("root"))
    workspace = Wen(OPTIONS, root, tmp_path_factory.mktemp("out"))
    run(workspace)
    return workspace


def test_the_units_of_the_paper() -> None:
    study = Wen(Options(), Path("root"), Path("out"))
    units, cells = study.units(), study.cells()
    grid = [u for u in cells if u.variant == "normal" and u.mechanism == "softmax"]
    assert len(grid) == 4 * 9 * 3
    assert len([u for u in cells if u.mechanism == "gumbel"]) == 2 * 9
    assert len([u for u in cells if u.variant.startswith("attention_")]) == 2 * 4
    assert len([u for u in cells if u.variant.startswith("representation_")]) == 2 * 3
    assert len([u for u in cells if u.variant == "adversary"]) == 2
    assert len(units) == len(cells) + len(study.datasets())
    listed: set[str] = set()
    for unit in units:
        assert listed.issuperset(unit.needs)  # each after those that must be done before it
        listed.add(unit.key)
    assert len(listed) == len(units)


def test_a_study_without_its_grid_still_trains_the_models_it_starts_from() -> None:
    options = replace(Options(), studies=("adversary",), small_datasets=("imdb",))
    units = Wen(options, Path("root"), Path("out")).units()
    assert [unit.key for unit in units] == [
        "data/imdb",
        "cells/imdb/bilstm-additive-softmax-normal-0",
        "cells/imdb/bilstm-additive-softmax-adversary-0",
    ]


def test_every_cell_is_measured(finished: Wen) -> None:
    results = finished.results()
    assert len(results) == 10
    for cell, result in results.items():
        names = (
            ["noise_off", "noise_on", "equal_scores"] if cell.mechanism == "gumbel" else ["main"]
        )
        assert list(result.measurements) == names
        for found in result.measurements.values():
            assert found.run is not None
            measured = mi.load(finished.folder(cell.key) / found.run).measurement
            assert measured.summary.ranks == 5
        assert not (finished.folder(cell.key) / "checkpoint").exists()
        saved = finished.folder(cell.key) / "model"
        assert saved.exists() == (cell.variant in ("normal", "adversary"))
        if saved.exists():
            assert load_model(saved).model.config.encoder == "bilstm"
    adversary = results[Cell("sst", "bilstm", "additive", "softmax", "adversary", 0)]
    assert adversary.divergence is not None
    assert 0 < adversary.divergence.attention_jsd < np.log(2)
    assert adversary.strength == 5.25e-4


def tables_of(study: Wen) -> Tables:
    return collect(study.results(), study.options, study.out)


def test_tables(finished: Wen) -> None:
    results = finished.results()
    tables = tables_of(finished)
    measured = {
        (row.cell.mechanism, row.cell.variant, row.name): row for row in tables.measurements
    }
    assert len(measured) == len(tables.measurements) == 12
    cell = Cell("sst", "bilstm", "additive", "softmax", "normal", 0)
    normal = results[cell]
    own = mi.load(finished.folder(cell.key) / "mi-main").measurement
    row = measured["softmax", "normal", "main"]
    assert row.weighted.value == own.correlation("weighted_product").value
    assert row.plain.value == own.correlation("kendall").value
    assert row.plain.corrected == own.correlation("kendall", "miller_madow").value
    assert row.accuracy == normal.accuracy
    # The normal model is measured against the nulls, special ones are not.
    assert own.repeats is not None
    again = own.repeats.set_index(["measurement", "statistic"])["value"]
    repeats = row.plain.repeats
    assert repeats.permuted == pytest.approx(again["permuted", "kendall"].mean())
    assert repeats.untrained == again["untrained", "kendall"]
    assert repeats.kmeans_low <= row.plain.value <= repeats.kmeans_high
    for null in tables.nulls:
        if null.null == "equal":
            tau = row.tau(null.tau)
            assert null.difference == pytest.approx(tau.value - tau.repeats.equal)
            assert (null.models, null.exceeds + null.below <= 1) == (1, True)
    assert [null.null for null in tables.nulls][:4] == [
        "permuted", "equal", "untrained", "gumbel_noise",
    ]  # fmt: skip
    special = measured["softmax", "attention_trained", "main"]
    assert np.isnan([special.plain.repeats.permuted, special.plain.repeats.kmeans_low]).all()
    assert {repeat.dataset for repeat in tables.repeats} == {"all", "sst"}
    assert len(tables.curves) == 12 * 5
    assert [point.plug_in for point in tables.curves[:5]] == own.ranks["plug_in"].tolist()
    assert {fix.reading for fix in tables.table_2} == {
        "uniform", "trained", "random", "parameters", "trained_kept",
    }  # fmt: skip
    [fix] = [f for f in tables.table_2 if (f.setting, f.reading) == ("Fix Rep", "random")]
    special = measured["softmax", "representation_random", "main"]
    assert (fix.normal, fix.special) == (row, special)
    assert fix.delta("weighted") == row.weighted.value - special.weighted.value
    assert fix.paper_delta == -0.02
    # Without attention ranks are positions, so both taus are of equal weights.
    uniform = measured["softmax", "attention_uniform", "main"]
    assert uniform.weighted.value == pytest.approx(uniform.plain.value)
    [adversary] = tables.adversaries
    assert adversary.normal == row
    assert adversary.paper.tvd == 0.036
    assert adversary.delta("plain") == row.plain.value - adversary.special.plain.value
    [gumbel] = tables.gumbel
    assert gumbel.softmax == row
    every = tables.table_5[-1]
    assert (every.attention, every.models) == ("all", 1)
    assert every.counts["plain", "noise_on"].all_kept == (
        gumbel.noise_on.plain.value >= row.plain.value
    )


def test_an_interrupted_study_ends_with_the_same_numbers(
    finished: Wen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    options = replace(OPTIONS, studies=("gumbel",))
    workspace = Wen(options, finished.root, tmp_path)
    measure = Wen._measure
    calls = 0

    def killed(self: Wen, *arguments: Any) -> Finding:
        nonlocal calls
        calls += 1
        found = measure(self, *arguments)
        if calls == 3:
            raise Killed
        return found

    monkeypatch.setattr(Wen, "_measure", killed)
    with pytest.raises(Killed):
        run(workspace)
    monkeypatch.undo()
    watcher = run(workspace)
    assert watcher.before == 2  # the data and the softmax model
    assert watcher.finished_units == ["cells/sst/bilstm-additive-gumbel-normal-0"]
    assert run(workspace).finished_units == []
    cells = workspace.cells()
    whole = [row for row in tables_of(finished).measurements if row.cell in cells]
    wanted, found = (
        MEASUREMENTS.frame(rows).drop(columns="seconds")
        for rows in (whole, tables_of(workspace).measurements)
    )
    pd.testing.assert_frame_equal(wanted, found)
    manifest = rundir.read_json(tmp_path / "manifest.json")
    assert all(unit["done"] for unit in manifest["units"].values())


@pytest.mark.long
@pytest.mark.long
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
    workspace = Wen(options, treebank(tmp_path / "root"), tmp_path / "out")
    assert len(run(workspace).finished_units) == 10


def test_other_options_in_the_same_folder(finished: Wen) -> None:
    other = Wen(replace(OPTIONS, epochs=3), finished.root, finished.out)
    with pytest.raises(RunError, match=r"epochs is 2 there and 3 here; choose another --out"):
        other.results()
    # More seeds are no other options.
    more = Wen(replace(OPTIONS, seeds=(0, 1)), finished.root, finished.out)
    assert len(more.results()) == 10


def test_a_unit_depends_on_the_options_that_it_uses_only(finished: Wen) -> None:
    """Another number of adversary epochs makes no other normal model."""
    options = replace(
        OPTIONS, studies=("grid", "fix", "gumbel"), adversary_epochs=9, adversary_patience=2,
        strength=0.5, tvd=1.0, channels=7, scaled_dot=True, attention_depth=5, activation="relu",
    )  # fmt: skip
    assert len(Wen(options, finished.root, finished.out).results()) == 9
    for name, value in (("adversary_epochs", 9), ("strength", 0.5), ("tvd", 1.0)):
        other: dict[str, Any] = {name: value}
        changed = Wen(replace(OPTIONS, **other), finished.root, finished.out)
        with pytest.raises(RunError, match=f"adversary-0 was made with .*{name} is .* and {value}"):
            changed.results()
    warmer = Wen(replace(OPTIONS, temperature=0.5), finished.root, finished.out)
    with pytest.raises(RunError, match=r"gumbel-normal-0 was made .*temperature is"):
        warmer.results()
    gpu = Wen(OPTIONS, finished.root, finished.out, device="cuda")
    assert gpu.done(gpu.data_unit("sst")) is not None  # data are the same for any
    with pytest.raises(RunError, match="device is 'cpu' there and 'cuda' here"):
        gpu.results()


def test_the_options_that_each_kind_of_unit_uses() -> None:
    o = Options(vectors="/data/glove/vectors.txt", embedding_size=7)
    every = set(o.used(Cell("sst", "mlp", "deep", "gumbel", "normal")))
    assert o.used_for_data() == {"max_tokens": None, "max_train": None, "max_test": None}
    assert o.used(Cell("sst", *("mlp", "deep", "gumbel", "normal")))["vectors"] == "vectors.txt"
    assert {"hidden_size", "activation", "attention_size", "attention_depth", "temperature",
            "epochs", "clusters", "shuffles", "max_tokens"} <= every  # fmt: skip
    assert not {"embedding_size", "channels", "scaled_dot", "tvd", "seeds"} & every
    cnn = set(o.used(Cell("sst", "cnn", "dot", "softmax", "adversary")))
    assert {"channels", "scaled_dot", "tvd", "strength", "adversary_epochs"} <= cnn
    assert not {"hidden_size", "activation", "attention_size", "temperature"} & cnn
    random = Options().used(Cell("sst", "bilstm", "additive", "softmax", "normal"))
    assert (random["vectors"], random["embedding_size"]) == (None, 300)
    # Special models are measured once; cells that drew weights ∝ 1/E say nothing of it.
    repeats = {"kmeans_seeds", "permutations"}
    fixed = Options().used(Cell("sst", "bilstm", "additive", "softmax", "attention_random"))
    assert fixed.pop("random_weights") == "uniform on the simplex"
    assert random.keys() - fixed.keys() == repeats
    assert not repeats & (every | cnn)


def test_a_result_edited_by_hand(finished: Wen, tmp_path: Path) -> None:
    cell = Cell("sst", "bilstm", "additive", "softmax", "normal", 0)
    workspace = Wen(OPTIONS, finished.root, tmp_path)
    unit = workspace.unit_of(cell)
    workspace.folder(unit.key).mkdir(parents=True)
    path = workspace.folder(unit.key) / rundir.RESULT
    whole = rundir.read_json(finished.folder(cell.key) / rundir.RESULT)
    path.write_text("{")
    with pytest.raises(RunError, match=f"is damaged: .*; delete {path.parent} and run again"):
        workspace.done(unit)
    for edited, place in (
        (whole | {"state": 3}, "state is 3"),
        (whole | {"accuracy": "high"}, "accuracy is 'high'"),
        (whole | {"measurements": {"main": []}}, r"measurements\.main is \[\]"),
    ):
        rundir.write_json(path, edited)
        with pytest.raises(RunError, match=f"is damaged: {place}; delete it and run again"):
            workspace.done(unit)
    rundir.write_json(path, {name: value for name, value in whole.items() if name != "f1"})
    with pytest.raises(RunError, match="is damaged: it lacks 'f1'; delete it and run again"):
        workspace.results()


def test_results_of_the_first_version_are_read(finished: Wen, tmp_path: Path) -> None:
    """They name every option, the vectors' folder, and the device beside the options."""
    folder = tmp_path / "out"
    options = replace(OPTIONS, vectors="elsewhere/vectors.txt")
    workspace = Wen(options, finished.root, folder)
    for unit in finished.units():
        record = finished.done(unit)
        assert record is not None
        result = dict(record.numbers)
        every = {k: v for k, v in vars(options).items() if not isinstance(v, tuple)}
        every |= {"vectors": "/data/vectors.txt"}
        result["state"] = result["state"] | {"options": every, "device": "cpu"}
        workspace.folder(unit.key).mkdir(parents=True)
        rundir.write_json(workspace.folder(unit.key) / rundir.RESULT, result)
    # The one cell that drew weights otherwise is to be made anew.
    assert len(workspace.results()) == 9
    units = workspace.write_manifest()["units"]
    assert [key for key, unit in units.items() if not unit["done"]] == [
        "cells/sst/bilstm-additive-softmax-attention_random-0"
    ]
    for path in folder.rglob(rundir.RESULT):  # they have no nulls and one seed of k-means
        content = rundir.read_json(path)
        for name in ("kmeans_seeds", "permutations"):
            content["state"]["options"].pop(name)
        rundir.write_json(path, content)
    plain = replace(options, kmeans_seeds=1, permutations=0)
    assert len(Wen(plain, finished.root, folder).results()) == 9
    with pytest.raises(RunError, match="kmeans_seeds is 1 there and 5 here; permutations is 0 the"):
        workspace.results()
    other = Wen(replace(plain, vectors="other.txt"), finished.root, folder)
    with pytest.raises(RunError, match=r"vectors is 'vectors.txt' there and 'other.txt' here"):
        other.results()


def test_what_cannot_be_measured_is_said(finished: Wen, tmp_path: Path) -> None:
    options = replace(OPTIONS, studies=("grid",), clusters=1000)
    workspace = Wen(options, finished.root, tmp_path)
    run(workspace)
    [result] = workspace.results().values()
    assert result.measurements["main"].run is None
    assert "clusters: given 1000, needed at most" in result.measurements["main"].reason
    tables = tables_of(workspace)
    [row] = tables.measurements
    assert np.isnan(row.weighted.value)
    assert row.ranks is None
    assert tables.curves == []
    assert [row.undefined for row in tables.figure_2] == [1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"datasets": ("sst", "trec")},
            "datasets: given sst, trec, needed distinct names of sst, imdb",
        ),
        ({"encoders": ("gru",)}, "encoders: given gru, needed distinct names of bilstm, cnn, mlp"),
        ({"seeds": (0, 0)}, r"seeds: given 0, 0, needed distinct numbers from 0 to \d+"),
        ({"seeds": (0, -1)}, r"seeds: given 0, -1"),
        (
            {"small_seeds": (2**63 - 1,)},
            "distinct numbers from 0 to 9223372036852775804",
        ),
        ({"studies": ()}, "studies: given none"),
        ({"channels": 0}, "channels: given 0, needed at least 1"),
        ({"adversary_patience": 0}, "adversary_patience: given 0, needed at least 1"),
        ({"attention_size": 0}, "attention_size: given 0, needed at least 1"),
        ({"max_test": 0}, "max_test: given 0, needed at least 1"),
        ({"channels": 10**9}, "hidden_size: given 1000000000, needed 1 to 65,536"),
        (
            {"shuffles": 10**9},
            "shuffles: given 1000000000, needed 0, for no control, or 20 to 100,000",
        ),
        ({"shuffles": 1}, "shuffles: given 1, needed 0, for no control"),
        ({"clusters": 1}, "clusters: given 1, needed a number from 2"),
        ({"encoders": ()}, "encoders: given none, needed at least one of bilstm, cnn, mlp"),
        ({"datasets": ()}, "datasets: given none, needed at least one of sst, imdb"),
        ({"strength": -1.0}, r"strength: given -1.0, needed a number from 0"),
        ({"strength": np.nan}, "strength: given nan, needed a number from 0"),
        ({"tvd": np.nan}, "tvd: given nan, needed a number above 0"),
        ({"tvd": np.inf}, "tvd: given inf, needed a number above 0"),
        ({"tvd": 0.0}, "tvd: given 0.0, needed a number above 0"),
        ({"temperature": np.nan}, "temperature: given nan, needed a positive number"),
        ({"attention_weight_decay": np.nan}, "attention_weight_decay: given nan"),
        ({"gumbel_noise": "old"}, "gumbel_noise: given 'old', needed fresh or shared"),
        ({"selection": "f1"}, "selection: given 'f1'"),
        ({"clusters": "many"}, "clusters: given 'many', needed largest, smallest or a number"),
    ],
)
def test_bad_options(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        replace(Options(), **values)


def test_every_claim_states_its_rule(finished: Wen) -> None:
    found = claims(tables_of(finished))
    assert len(found) == 1 + 2 * 7 + 2 + 5  # accuracy, fixed, adversary, Gumbel and its noise
    assert all(claim.rule for claim in found)
    assert all(re.search(r"\d|not lower than softmax's", c.rule) for c in found[:-1])
    assert all(re.fullmatch("yes: .*; partly: .*; no: .*", c.verdicts) for c in found[:-1])
    assert found[-1].verdicts == found[-1].agrees == ""
    assert not any("nan" in claim.here for claim in found)


def test_chance_marks(finished: Wen) -> None:
    """Few ranks are chance whatever tau is; else what is in the control's interval, ends in."""
    assert [is_chance(tau, -0.5, 0.7, 5) for tau in (-0.5, 0.0, 0.7 + 1e-12, 0.71)] == [
        True, True, True, False,
    ]  # fmt: skip
    # Identical cases of four ranks, whose interval the draw of shuffles decides: 2/24 > 0.05.
    assert is_chance(1.0, -0.99, 0.99, 4) is is_chance(1.0, -1.0, 1.0, 4) is True
    assert is_chance(np.nan, -0.5, 0.5, 5) is None
    assert is_chance(0.1, np.nan, np.nan, 5) is None
    assert is_chance(0.1, np.nan, np.nan, 4) is True
    tables = tables_of(finished)
    for row in tables.measurements:
        assert row.ranks == 5
        for tau in (row.weighted, row.plain):
            assert tau.chance == (tau.low - 1e-9 <= tau.value <= tau.high + 1e-9)
        assert 0 < row.largest_weight <= 1  # also of given weights and Gumbel-softmax
    [seeds] = tables.figure_2
    normal = tables.gumbel[0].softmax
    assert seeds.weighted.chance == int(normal.weighted.chance is True)
    folder = finished.folder(normal.cell.key)
    ranks = mi.load(folder / "mi-main").measurement.ranks
    assert normal.largest_weight == ranks["attention"][0]
    assert normal.singletons == ranks["singletons"].sum() / ranks["clusters"].sum()
    assert seeds.singletons == normal.singletons
    [adversary] = tables.adversaries
    assert adversary.special.max_epochs == 3 >= adversary.special.result.epochs


def test_a_data_set_of_which_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be in the grid; an adversary on it needs a strength."""
    assert Options().strength_on("imdb") == 8e-4
    monkeypatch.delitem(paper.DATA_SETS, "sst")
    grid = Options(datasets=("sst",), studies=("grid",))
    assert len(Wen(grid, Path("root"), Path("out")).cells()) == 27
    with pytest.raises(RunError, match="strength: given none, needed a number, for sst has no"):
        Options(studies=("adversary",), small_datasets=("sst",))
    own = Options(studies=("adversary",), small_datasets=("sst",), strength=0.5)
    assert own.strength_on("sst") == 0.5


def test_options_reach_the_models() -> None:
    options = Options(
        attention_size=7, attention_depth=3, scaled_dot=True, activation="relu", temperature=0.5,
        gumbel_hard=True, gumbel_noise="shared", channels=16, selection="accuracy",
        class_weights="none", attention_weight_decay=1e-5, epochs=4,
    )  # fmt: skip
    model = options.model(Cell("sst", "cnn", "deep", "gumbel", "normal", 5))
    assert (model.hidden_size, model.attention_size, model.attention_depth) == (16, 7, 3)
    assert (model.attention_scaled, model.activation, model.temperature) == (True, "relu", 0.5)
    assert (model.gumbel_hard, model.gumbel_noise, model.seed) == (True, "shared", 5)
    assert (model.kind, model.head, model.mechanism) == ("sequence", "sigmoid", "gumbel")
    assert model.dropout_embedding == model.dropout_output == model.conv_dropout == 0.0
    default = Options().model(Cell("sst", "cnn", "additive", "softmax", "normal", 0))
    assert (default.hidden_size, default.attention_size) == (32, 80)
    training = options.training(Cell("sst", "cnn", "deep", "gumbel", "normal", 5))
    assert (training.selection, training.class_weights, training.epochs) == ("accuracy", "none", 4)
    assert training.attention_weight_decay == training.weight_decay == 1e-5
    assert (training.amsgrad, training.loss, training.first_epoch) == (True, "sum", 2)
