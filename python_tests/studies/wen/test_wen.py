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
from fastattnerase.studies.wen import tables as wen_tables
from fastattnerase.studies.wen.options import Cell, Options
from fastattnerase.studies.wen.tables import claims, collect
from fastattnerase.studies.wen.units import Wen, f1


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
    options = replace(Options(), studies=("adversary",), small_datasets=("psytar",))
    units = Wen(options, Path("root"), Path("out")).units()
    assert [unit.key for unit in units] == [
        "data/psytar",
        "cells/psytar/bilstm-additive-softmax-normal-0",
        "cells/psytar/bilstm-additive-softmax-adversary-0",
    ]


def test_every_cell_is_measured(finished: Wen) -> None:
    results = finished.results()
    assert len(results) == 10
    for cell, result in results.items():
        names = (
            ["noise_off", "noise_on", "equal_scores"] if cell.mechanism == "gumbel" else ["main"]
        )
        assert list(result["measurements"]) == names
        for found in result["measurements"].values():
            measured = mi.load(finished.folder(cell.key) / found["run"]).measurement
            assert measured.summary["ranks"] == 5
        assert not (finished.folder(cell.key) / "checkpoint").exists()
        saved = finished.folder(cell.key) / "model"
        assert saved.exists() == (cell.variant in ("normal", "adversary"))
        if saved.exists():
            assert load_model(saved).model.config.encoder == "bilstm"
    adversary = results[Cell("sst", "bilstm", "additive", "softmax", "adversary", 0)]
    assert set(adversary["divergence"]) == {"tvd", "output_jsd", "attention_jsd", "attention_kl"}
    assert adversary["strength"] == 5.25e-4


def test_tables(finished: Wen) -> None:
    results = finished.results()
    tables = collect(results, finished.out)
    measured = tables["measurements"].set_index(["mechanism", "variant", "measurement"])
    assert len(measured) == 12
    normal = results[Cell("sst", "bilstm", "additive", "softmax", "normal", 0)]
    folder = finished.folder(Cell("sst", "bilstm", "additive", "softmax", "normal", 0).key)
    own = mi.load(folder / normal["measurements"]["main"]["run"]).measurement
    row = measured.loc[("softmax", "normal", "main")]
    assert row["weighted"] == own.correlation("weighted_product").value
    assert row["plain"] == own.correlation("kendall").value
    assert row["plain_corrected"] == own.correlation("kendall", "miller_madow").value
    assert row["accuracy"] == normal["accuracy"]
    assert len(tables["curves"]) == 12 * 5
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
    assert every["plain_noise_on_all"] == (gumbel["plain_noise_on"] >= gumbel["plain_softmax"])


def test_an_interrupted_study_ends_with_the_same_numbers(
    finished: Wen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    options = replace(OPTIONS, studies=("gumbel",))
    workspace = Wen(options, finished.root, tmp_path)
    measure = Wen._measure
    calls = 0

    def killed(self: Wen, *arguments: Any) -> dict[str, Any]:
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
    whole = {u: r for u, r in finished.results().items() if u in workspace.cells()}
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


def test_a_result_edited_by_hand(finished: Wen, tmp_path: Path) -> None:
    cell = Cell("sst", "bilstm", "additive", "softmax", "normal", 0)
    workspace = Wen(OPTIONS, finished.root, tmp_path)
    unit = workspace.unit_of(cell)
    workspace.folder(unit.key).mkdir(parents=True)
    path = workspace.folder(unit.key) / rundir.RESULT
    whole = finished.results()[cell]
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
    assert len(workspace.results()) == 10
    assert all(unit["done"] for unit in workspace.write_manifest()["units"].values())
    other = Wen(replace(options, vectors="other.txt"), finished.root, folder)
    with pytest.raises(RunError, match=r"vectors is 'vectors.txt' there and 'other.txt' here"):
        other.results()


def test_what_cannot_be_measured_is_said(finished: Wen, tmp_path: Path) -> None:
    options = replace(OPTIONS, studies=("grid",), clusters=1000)
    workspace = Wen(options, finished.root, tmp_path)
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
        (
            {"datasets": ("sst", "trec")},
            "datasets: given sst, trec, needed distinct names of sst, imdb",
        ),
        ({"encoders": ("gru",)}, "encoders: given gru, needed distinct names of bilstm, cnn, mlp"),
        ({"seeds": (0, 0)}, r"seeds: given \(0, 0\), needed distinct numbers from 0 to \d+"),
        ({"seeds": (0, -1)}, r"seeds: given \(0, -1\)"),
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


NOTHING = dict.fromkeys(
    ("accuracy", "table_2", "table_3", "table_4", "gumbel", "means", "order", "highest"),
    pd.DataFrame(),
)


def judge(**tables: pd.DataFrame) -> list[tuple[str, int, int]]:
    return [(claim.agrees, claim.held, claim.cases) for claim in claims(NOTHING | tables)]


def compared(**columns: list[Any]) -> pd.DataFrame:
    """Rows of table 2 or 4; plain tau as weighted tau, nothing by chance where it is not given."""
    falls = columns["delta_weighted"]
    taus = {"weighted": [0.9 - fall for fall in falls], "weighted_normal": [0.9] * len(falls)}
    default: dict[str, list[Any]] = {f"{tau}{which}_chance": [False] * len(falls)
                                     for tau in ("weighted", "plain")
                                     for which in ("", "_normal")}  # fmt: skip
    default |= {"ranks": [8] * len(falls), "ranks_normal": [8] * len(falls), "delta_plain": falls}
    default |= taus | {name.replace("weighted", "plain"): tau for name, tau in taus.items()}
    return pd.DataFrame(default | columns)


def grid(taus: dict[tuple[str, str, int], float], **ranks: int) -> pd.DataFrame:
    """Normal models of one data set; plain tau is the negative, `bilstm_deep_0=3` gives ranks."""
    return pd.DataFrame(
        [
            {"dataset": "sst", "encoder": e, "attention": a, "mechanism": "softmax", "seed": s,
             "weighted": t, "plain": -t, "weighted_corrected": t, "plain_corrected": -t,
             "weighted_chance": False, "plain_chance": False, "singletons": 0.0,
             "largest_weight": 0.5, "ranks": ranks.get(f"{e}_{a}_{s}", 8)}
            for (e, a, s), t in taus.items()
        ]
    )  # fmt: skip


def of_means(models: pd.DataFrame) -> list[wen_tables.Claim]:
    tables = {name: getattr(wen_tables, f"_{name}")(models) for name in
              ("means", "order", "highest")}  # fmt: skip
    return claims(NOTHING | tables)


def test_orders_need_the_means_and_most_cells() -> None:
    assert judge() == []
    cells = [("bilstm", 0), ("bilstm", 1), ("cnn", 0), ("mlp", 0)]
    taus = {
        (e, a, s): tau
        for e, s in cells
        for a, tau in (("additive", 0.9), ("deep", 0.8), ("dot", 0.4))
    }
    weighted, plain, *_ = of_means(grid(taus))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 4, 4)
    assert (plain.agrees, plain.held, plain.cases) == ("no", 0, 4)
    assert weighted.here.startswith("means 0.90, 0.80, 0.40; in this order in 4 of 4 cells; mean ±")
    assert "additive less deep 0.10 ± 0.00, deep less dot 0.40 ± 0.00" in weighted.here
    # Two cells of four are not most; the means still agree.
    half = taus | {(e, "deep", 0): 0.91 for e in ("cnn", "mlp")}
    weighted, *_ = of_means(grid(half))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("partly", 2, 4)
    # 0.1, 0.1, -0.01, -0.01: mean 0.045, standard error 0.0318
    assert "additive less deep 0.04 ± 0.03" in weighted.here or "0.05 ± 0.03" in weighted.here
    # Most cells, but one far outlier turns the means.
    turned = taus | {("mlp", "additive", 0): -1.0}
    weighted, *_ = of_means(grid(turned))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("partly", 3, 4)
    # What has few ranks, or no tau, cannot tell.
    weighted, *_ = of_means(grid(taus | {("mlp", "dot", 0): np.nan}, cnn_deep_0=4))
    assert (weighted.held, weighted.cases, weighted.cannot_tell) == (2, 2, 2)
    assert "cannot tell: 1 (fewer than five ranks), 1 (tau is undefined)" in weighted.here
    nothing = of_means(grid(dict.fromkeys(taus, np.nan)))
    assert [(claim.agrees, claim.cases) for claim in nothing[:2]] == [("", 0), ("", 0)]
    assert not any("nan" in claim.here for claim in nothing)


def test_the_best_combination_needs_the_mean_and_most_cells() -> None:
    taus = {
        (e, a, s): 0.9 - 0.1 * (3 * i + j) - 0.01 * s
        for i, e in enumerate(("bilstm", "cnn", "mlp"))
        for j, a in enumerate(("additive", "deep", "dot"))
        for s in range(3)
    }
    *_, weighted, plain = of_means(grid(taus))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 3, 3)
    assert (plain.agrees, plain.held, plain.cases) == ("no", 0, 3)
    assert weighted.here.startswith(
        "mean 0.89; best other mean 0.79, bilstm with deep, a lead of 0.10; highest in 3 of 3 "
        "cells, in 0 of these with another"
    )
    # A tie is highest; a higher one of few ranks cannot be compared.
    other = taus | {("cnn", "dot", 0): 0.9, ("mlp", "dot", 1): 1.0}
    *_, weighted, _ = of_means(grid(other, mlp_dot_1=4))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 3, 3)
    assert "in 1 of these with another" in weighted.here
    *_, weighted, _ = of_means(grid(other))
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 2, 3)
    *_, weighted, _ = of_means(grid(taus, bilstm_additive_0=4))
    assert (weighted.held, weighted.cases, weighted.cannot_tell) == (2, 2, 1)


def test_accuracy_by_seed() -> None:
    accuracy = pd.DataFrame(
        {"dataset": ["sst"], "accuracy": [0.8], "lowest": [0.77], "paper": [0.82],
         "needed": [0.78], "reached": [2], "seeds": [3]}
    )  # fmt: skip
    assert judge(accuracy=accuracy) == [("partly", 2, 3)]


@pytest.mark.parametrize(
    ("setting", "falls", "expected"),
    [
        ("Fix Attn", [0.7, 0.2], ("yes", 2, 2)),
        ("Fix Attn", [0.7, 0.05], ("partly", 1, 2)),
        ("Fix Attn", [0.0, -0.3], ("no", 0, 2)),
        ("Fix Rep", [-0.07, 0.0], ("yes", 2, 2)),  # the paper's range
        ("Fix Rep", [0.04, 0.06], ("partly", 1, 2)),
        ("Fix Rep", [np.nan, 0.3], ("no", 0, 1)),
        ("Fix Rep", [np.nan, np.nan], ("", 0, 0)),
    ],
)
def test_fix_claims_by_model(
    setting: str, falls: list[float], expected: tuple[str, int, int]
) -> None:
    table = compared(setting=[setting] * 2, reading=["random"] * 2, delta_weighted=falls)
    assert judge(table_2=table) == [expected, expected]  # weighted, plain
    assert not any("nan" in claim.here for claim in claims(NOTHING | {"table_2": table}))


@pytest.mark.parametrize("setting", ["Fix Attn", "Fix Rep"])
def test_what_was_chance_before_or_has_few_ranks_cannot_tell(setting: str) -> None:
    rows = {"setting": [setting] * 3, "reading": ["random"] * 3}
    falls = [0.5] * 3 if setting == "Fix Attn" else [0.0] * 3
    base = {"weighted_normal_chance": [True, False, False], "ranks": [8, 4, 8]}
    table = compared(**rows, delta_weighted=falls, **base)
    weighted, plain = claims(NOTHING | {"table_2": table})
    assert (weighted.agrees, weighted.held, weighted.cases) == ("yes", 1, 1)
    assert weighted.cannot_tell == 2
    assert (plain.held, plain.cases, plain.cannot_tell) == (2, 2, 1)
    assert weighted.here.endswith(
        "cannot tell: 1 (tau of the normal model is chance), 1 (fewer than five ranks)"
    )
    # Without shuffles nothing is told from chance: no verdict.
    unknown: dict[str, list[Any]] = {
        "weighted_chance": [None] * 3, "weighted_normal_chance": [None] * 3,
    }  # fmt: skip
    weighted, _ = claims(NOTHING | {"table_2": compared(**rows, delta_weighted=falls, **unknown)})
    assert (weighted.agrees, weighted.cases, weighted.cannot_tell) == ("", 0, 3)
    assert weighted.here == "cannot tell: 3 (no shuffled outputs to compare with)"


def test_a_tau_that_becomes_chance_has_fallen() -> None:
    chance = {"weighted_chance": [True, False], "delta_weighted": [0.04, 0.04]}
    rows = {"reading": ["random"] * 2} | chance
    assert judge(table_2=compared(setting=["Fix Attn"] * 2, **rows))[0] == ("partly", 1, 2)
    table = compared(setting=["Fix Rep"] * 2, **rows)
    assert judge(table_2=table)[0] == ("partly", 1, 2)
    weighted, _ = claims(NOTHING | {"table_2": table})
    assert weighted.here == "weighted tau falls by 0.04, 1 of 2 to chance"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ("yes", 2, 2)),
        ({"attention_jsd": [0.0, 0.4]}, ("yes", 1, 1)),  # the same attention cannot tell
        ({"attention_jsd": [0.0, 0.18]}, ("", 0, 0)),
        ({"tvd": [0.5, 0.01]}, ("yes", 1, 1)),  # nor can other outputs
        ({"delta_weighted": [-0.21, 0.11]}, ("no", 0, 2)),  # up as well as down
        ({"weighted_chance": [True, False]}, ("partly", 1, 2)),
        ({"weighted_normal_chance": [True, False]}, ("yes", 1, 1)),
    ],
)
def test_adversaries_agree_where_attention_differs_and_tau_does_not(
    change: dict[str, list[Any]], expected: tuple[str, int, int]
) -> None:
    table = {"attention_jsd": [0.2, 0.6], "tvd": [0.03, 0.01], "delta_weighted": [0.02, -0.05]}
    assert judge(table_4=compared(**table | change))[0] == expected


def test_the_adversaries_numbers_are_those_of_the_rule() -> None:
    table = compared(attention_jsd=[0.1, 0.6], tvd=[0.03, 0.01], delta_weighted=[0.02, -0.001])
    weighted, plain = claims(NOTHING | {"table_4": table})
    assert weighted.here == (
        "JSD 0.10 to 0.60, TVD 0.01 to 0.03; weighted tau falls by 0.00; cannot tell: 1 (JSD of "
        "attention below 0.19)"
    )
    assert "a JSD of attention of at least 0.19 and a TVD of outputs of at most 0.074" in plain.rule
    assert "weighted tau of a model moves by at most 0.09 up or down" in weighted.rule
    assert "plain tau of a model moves by at most 0.09" in plain.rule


def gumbel_models(**columns: list[Any]) -> pd.DataFrame:
    """Five models: lowered, kept, chance after, chance before, of few ranks."""
    columns = {
        "attention": ["additive", "additive", "deep", "deep", "dot"],
        "ranks": [8, 8, 8, 8, 4],
        "weighted": [0.8, 0.95, 0.95, 0.95, 1.0],
        "weighted_chance": [False, False, True, False, True],
    } | columns
    table: dict[str, Any] = {"attention": columns["attention"]}
    for state in ("softmax", "noise_off", "noise_on", "equal_scores"):
        for tau in ("weighted", "plain"):
            after = state != "softmax"
            table[f"{tau}_{state}"] = columns["weighted"] if after else [0.9] * 5
            table[f"{tau}_chance_{state}"] = (
                columns["weighted_chance"] if after else [False, False, False, True, False]
            )
        table[f"ranks_{state}"] = columns["ranks"] if state != "softmax" else [8] * 5
    return pd.DataFrame(table)


def test_gumbel_agrees_by_the_models_that_can_tell() -> None:
    table = gumbel_models()
    expected = ("partly", 1, 3)  # the third has fallen to chance, the last two cannot tell
    assert judge(gumbel=table) == [expected] * 4 + [("", 0, 0)]
    first, *_ = claims(NOTHING | {"gumbel": table})
    assert first.cannot_tell == 2
    assert first.here == (
        "weighted tau falls by -0.05 to 0.10, 1 of 3 to chance; cannot tell: 1 (tau of the normal "
        "model is chance), 1 (fewer than five ranks); not lower in 4 of all 5, chance or not"
    )
    rows = wen_tables._table_5(table).set_index("attention")
    names = ["models", "weighted_noise_on", "weighted_noise_on_cases", "weighted_noise_on_all"]
    assert rows.loc["additive", names].tolist() == [2, 1, 2, 1]
    assert rows.loc["deep", names].tolist() == [2, 0, 1, 2]
    assert rows.loc["dot", names].tolist() == [1, 0, 0, 1]
    assert rows.loc["all", names].tolist() == [5, 1, 3, 4]
    # Four of five are 80%.
    kept = gumbel_models(
        weighted=[0.8] + [0.95] * 4, weighted_chance=[False] * 5, ranks=[8] * 5
    ).assign(weighted_chance_softmax=False)
    assert judge(gumbel=kept)[0] == ("yes", 4, 5)
    assert claims(NOTHING | {"gumbel": kept})[0].verdicts.startswith("yes: at least 80% of the")


def test_the_paper_s_own_numbers_obey_the_rules() -> None:
    for attention, representation in wen_tables.PAPER_FIX.values():
        for setting, delta in (("Fix Attn", attention), ("Fix Rep", representation)):
            table = compared(setting=[setting], reading=["x"], delta_weighted=[delta])
            assert judge(table_2=table)[0] == ("yes", 1, 1)
    for _, tvd, jsd, delta in wen_tables.PAPER_ADVERSARY.values():
        for whole in (tvd, 2 * tvd):  # theirs may be half of it
            table = compared(attention_jsd=[jsd], tvd=[whole], delta_weighted=[delta])
            assert judge(table_4=table)[0] == ("yes", 1, 1)
    assert min(wen_tables.PAPER_GUMBEL.values()) >= wen_tables.LEAST_SHARE
    for dataset, needed in wen_tables.NEEDED_ACCURACY.items():
        assert wen_tables.PAPER_ACCURACY[dataset] >= needed


def test_every_claim_states_its_rule(finished: Wen) -> None:
    tables = collect(finished.results(), finished.out)
    found = claims(tables)
    assert len(found) == 1 + 2 * 7 + 2 + 5  # accuracy, fixed, adversary, Gumbel and its noise
    assert all(claim.rule for claim in found)
    assert all(re.search(r"\d|not lower than softmax's", c.rule) for c in found[:-1])
    assert all(re.fullmatch("yes: .*; partly: .*; no: .*", c.verdicts) for c in found[:-1])
    assert found[-1].verdicts == found[-1].agrees == ""
    assert not any("nan" in claim.here for claim in found)


def test_chance_marks(finished: Wen) -> None:
    """Few ranks are chance whatever tau is; else what is in the control's interval, ends in."""
    assert [wen_tables._chance(tau, -0.5, 0.7, 5) for tau in (-0.5, 0.0, 0.7 + 1e-12, 0.71)] == [
        True, True, True, False,
    ]  # fmt: skip
    # Identical cases of four ranks, whose interval the draw of shuffles decides: 2/24 > 0.05.
    assert wen_tables._chance(1.0, -0.99, 0.99, 4) is wen_tables._chance(1.0, -1.0, 1.0, 4) is True
    assert wen_tables._chance(np.nan, -0.5, 0.5, 5) is None
    assert wen_tables._chance(0.1, np.nan, np.nan, 5) is None
    assert wen_tables._chance(0.1, np.nan, np.nan, 4) is True
    assert wen_tables.CHANCE_RULE in " ".join((wen_tables.collect.__doc__ or "").replace(
        "(`…_chance`) ", "").split())  # fmt: skip
    tables = collect(finished.results(), finished.out)
    measured = tables["measurements"]
    for tau in ("weighted", "plain"):
        inside = measured[tau].between(
            measured[f"{tau}_control_low"] - 1e-9, measured[f"{tau}_control_high"] + 1e-9
        )
        assert (measured["ranks"] == 5).all()
        assert measured[f"{tau}_chance"].tolist() == inside.tolist()
    [row] = tables["figure_2"].to_dict("records")
    [normal] = measured[
        (measured["variant"] == "normal") & (measured["mechanism"] == "softmax")
    ].to_dict("records")
    assert row["weighted_chance"] == int(normal["weighted_chance"])
    assert tables["table_4"]["plain_normal_chance"].tolist() == [normal["plain_chance"]]
    folder = finished.folder(Cell("sst", "bilstm", "additive", "softmax", "normal", 0).key)
    ranks = mi.load(folder / "mi-main").measurement.ranks
    assert normal["largest_weight"] == ranks["attention"][0]
    assert measured["largest_weight"].notna().all()  # also of given weights and Gumbel-softmax
    assert tables["table_2"][["ranks", "ranks_normal"]].eq(5).all(axis=None)
    assert tables["table_4"][["ranks", "ranks_normal"]].eq(5).all(axis=None)
    assert tables["table_3"]["epochs"].le(tables["table_3"]["most_epochs"]).all()
    assert tables["table_3"]["most_epochs"].tolist() == [3]
    assert normal["singletons"] == ranks["singletons"].sum() / ranks["clusters"].sum()
    assert row["singletons"] == normal["singletons"]


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
    training = options.training(5)
    assert (training.selection, training.class_weights, training.epochs) == ("accuracy", "none", 4)
    assert training.attention_weight_decay == training.weight_decay == 1e-5
    assert (training.amsgrad, training.loss, training.first_epoch) == (True, "sum", 2)


def test_f1_by_hand() -> None:
    assert f1(np.array([1, 1, 1, 0]), np.array([1, 0, 1, 1])) == pytest.approx(2 / 3)
    assert f1(np.array([0, 0]), np.array([0, 0])) == 0.0
