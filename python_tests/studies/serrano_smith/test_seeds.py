"""A study with two seeds: folders, records, tables and findings."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from studies.serrano_smith.small_study import write_small_study
from typer.testing import CliRunner

from fastattnerase.cli.app import app
from fastattnerase.runs.rundir import RunError
from fastattnerase.statistics.multiple import holm
from fastattnerase.statistics.two_level import SeedBootstrap, less
from fastattnerase.studies.serrano_smith.exact import describe
from fastattnerase.studies.serrano_smith.exact_tables import exact_tables
from fastattnerase.studies.serrano_smith.findings import findings, tally
from fastattnerase.studies.serrano_smith.grid import arrange
from fastattnerase.studies.serrano_smith.levels import Levels
from fastattnerase.studies.serrano_smith.report import build
from fastattnerase.studies.serrano_smith.result import Result, load
from fastattnerase.studies.serrano_smith.seeds import join
from fastattnerase.studies.serrano_smith.study import Study, read_study
from fastattnerase.studies.serrano_smith.tables import tables
from fastattnerase.studies.serrano_smith.units import SerranoSmith


def _write(folder: Path, seeds: str = "seeds = [3, 5]") -> Path:
    path = write_small_study(folder)
    text = path.read_text().replace('name = "small"', f'name = "small"\n{seeds}')
    # One corpus is enough.
    path.write_text(text.partition('[[corpora]]\nname = "Stars"')[0])
    return path


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> SerranoSmith:
    folder = tmp_path_factory.mktemp("seeds")
    made = SerranoSmith(read_study(_write(folder)), folder, folder / "out", until="erase")
    for unit in made.units():
        made.run(unit, lambda share: None)
    return made


@pytest.fixture(scope="module")
def results(workspace: SerranoSmith) -> list[Result]:
    return workspace.results()


def test_each_seed_has_units_and_folders_of_its_own(workspace: SerranoSmith) -> None:
    keys = [unit.key for unit in workspace.units()]
    assert keys[:2] == ["prepare/films-2", "embed/films-2"]
    assert keys[2:6] == [
        "train/films-2/FLANnoenc-3", "erase/films-2/FLANnoenc-3",
        "train/films-2/FLANnoenc-5", "erase/films-2/FLANnoenc-5",
    ]  # fmt: skip
    assert (workspace.out / "erase" / "films-2" / "hanconv-5" / "result.json").is_file()
    about = {unit.key: unit.about for unit in workspace.units()}
    assert about["train/films-2/HANconv-5"]["seed"] == 5
    assert "seed" not in about["prepare/films-2"]


def test_models_are_trained_with_the_seed(workspace: SerranoSmith, results: list[Result]) -> None:
    for result in results:
        source = result.run.source
        assert source["seed"] == source["model_config"]["seed"] == source["train_config"]["seed"]
        assert result.run.name == f"{source['architecture']} on Films (2), seed {source['seed']}"
    first, second = (
        workspace.out / "train" / "films-2" / f"flannoenc-{seed}" / "model.safetensors"
        for seed in (3, 5)
    )
    assert first.read_bytes() != second.read_bytes()


def test_a_study_without_seeds_is_as_before(tmp_path: Path) -> None:
    study = read_study(_write(tmp_path, seeds=""))
    assert "seeds" not in study.to_dict()
    plain = SerranoSmith(study, tmp_path, tmp_path / "out")
    train = plain.units()[2]
    assert train.key == "train/films-2/FLANnoenc"
    assert "seed" not in train.about
    assert "seed" not in train.state()["model"]


def test_seeds_are_read_and_written(tmp_path: Path) -> None:
    study = read_study(_write(tmp_path))
    assert study.seeds == (3, 5)
    path = tmp_path / "study.json"
    path.write_text(json.dumps(study.to_dict()))
    assert read_study(path) == study


@pytest.mark.parametrize("wrong", ["[1, 1]", "[-1]", "[9223372036854775808]"])
def test_seeds_are_distinct_numbers(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"seeds: given .*, needed distinct numbers from 0"):
        read_study(_write(tmp_path, f"seeds = {wrong}"))


def test_a_seed_goes_over_all_other_options(tmp_path: Path) -> None:
    study = read_study(_write(tmp_path))
    study = Study(study.name, study.corpora, training={"seed": 9}, seeds=(3,))
    assert study.options(study.corpora[0], "FLANnoenc")[1] == {"seed": 9}
    assert study.options(study.corpora[0], "FLANnoenc", 3)[1] == {"seed": 3}


def test_the_command_takes_seeds(tmp_path: Path) -> None:
    path = _write(tmp_path)
    command = ["reproduce", "serrano-smith", "--data-root", str(tmp_path), "--study", str(path)]
    command += ["--until", "prepare", "--out", str(tmp_path / "out"), "--seeds"]
    assert CliRunner().invoke(app, [*command, "7"]).exit_code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["study"]["seeds"] == [7]
    for wrong in ("1,1", "a", "-2", ""):
        refused = CliRunner().invoke(app, [*command, wrong])
        assert refused.exit_code != 0
        assert "--seeds: given" in refused.output


# --- the runs of all seeds as one ----------------------------------------------------------------


@pytest.fixture(scope="module")
def joined(workspace: SerranoSmith, results: list[Result]) -> Result:
    whole = SerranoSmith(workspace.study, workspace.data_root, workspace.out, until="seeds")
    for unit in whole.units():
        whole.run(unit, lambda share: None)
    assert [unit.key for unit in whole.units() if unit.key.startswith("seeds/")] == [
        "seeds/films-2/FLANnoenc", "seeds/films-2/HANconv",
    ]  # fmt: skip
    return load(workspace.out / "seeds" / "films-2" / "flannoenc")


def test_the_joined_run_holds_all_instances(joined: Result, results: list[Result]) -> None:
    of_model = [result for result in results if result.run.source["architecture"] == "FLANnoenc"]
    assert joined.run.name == "FLANnoenc on Films (2)"
    assert joined.seeds == (3, 5)
    assert "seed" not in joined.run.source["model_config"]
    for table in ("instances", "multi", "single", "erased", "curves"):
        whole, parts = joined.table(table), [result.table(table) for result in of_model]
        assert len(whole) == sum(map(len, parts))
        pd.testing.assert_frame_equal(whole.iloc[: len(parts[0])], parts[0])
        below = whole.iloc[len(parts[0]) :].reset_index(drop=True)
        below["row"] -= of_model[0].counts.instances
        pd.testing.assert_frame_equal(below, parts[1])
    assert joined.counts.instances == sum(result.counts.instances for result in of_model)
    pair = joined.pairs["gradient", "attention"]
    each = [result.pairs["gradient", "attention"] for result in of_model]
    assert pair.first_smaller == sum(one.first_smaller for one in each)


def test_numbers_over_the_seeds(joined: Result, results: list[Result]) -> None:
    of_model = [result for result in results if result.run.source["architecture"] == "FLANnoenc"]
    found = {(record.quantity, record.ranking): record for record in joined.over_seeds}
    accuracy = found["accuracy", ""]
    assert accuracy.values == tuple(result.counts.accuracy for result in of_model)
    assert accuracy.spread.mean == pytest.approx(accuracy.estimate.value)
    assert accuracy.spread.least == min(filter(None, accuracy.values))
    flips = found["flips", "attention"]
    assert flips.values == pytest.approx(
        [result.multi["attention"].share_flipped.value for result in of_model]
    )
    negative = found["negative_delta_js", "attention"].values
    assert negative == pytest.approx(
        [result.single["attention"].negative_delta_js.value for result in of_model]
    )
    wins = found["gradient_first", "gradient"].values
    assert wins == tuple(
        result.pairs["gradient", "attention"].share_first_smaller.value for result in of_model
    )
    skill = found["skill", "gradient"]
    assert skill.estimate == joined.multi["gradient"].counted.skill.overall
    assert skill.values == tuple(
        result.multi["gradient"].counted.skill.overall.value for result in of_model
    )
    medians = found["fraction_median", "random"].values
    for median, result in zip(medians, of_model, strict=True):
        multi = result.table("multi").query("ranking == 'random'")
        expected = np.median(multi["fraction"].where(multi["first_flip"] > 0, math.inf))
        assert median == expected


def test_exact_numbers_over_the_seeds(joined: Result, results: list[Result]) -> None:
    of_model = [result for result in results if result.run.source["architecture"] == "FLANnoenc"]
    whole, parts = describe(joined), [describe(result) for result in of_model]
    compared = 0
    for found in whole.numbers:
        alone = [part.value(found.quantity, found.ranking, found.by, found.group) for part in parts]
        if found.by == "all":  # quarters and classes are of all seeds together
            values = [np.nan if value is None else value for value in found.values]
            expected = [np.nan if one.value is None else one.value for one in alone]
            np.testing.assert_allclose(values, expected)
            compared += 1
    assert compared > 30
    assert {"seeds", "sd", "by_seed"} <= set(exact_tables([joined], [whole])["exact_items"])


def test_intervals_are_those_of_seeds_and_instances(joined: Result, results: list[Result]) -> None:
    of_model = [result for result in results if result.run.source["architecture"] == "FLANnoenc"]
    config = joined.run.config
    two = SeedBootstrap(
        [result.counts.analysed for result in of_model],
        seed=config.seed,
        resamples=config.resamples,
    )
    kl = joined.table("instances").query("excluded == ''")["uniform_kl"].to_numpy()
    assert joined.uniform.kl.mean == two.summarise(kl)["mean"]
    pair = joined.pairs["attention", "random"]
    flips = (
        joined.table("multi")
        .query("order == 0")
        .pivot(index="row", columns="ranking", values="first_flip")
    )
    a, b = (flips[name].where(flips[name] > 0, math.inf) for name in ("attention", "random"))
    judged = (np.isfinite(a) | np.isfinite(b)).to_numpy()
    assert pair.share_first_smaller == two.of(judged).means((a < b).to_numpy()[judged, None])[0]
    signs = (a < b).to_numpy(float) - (b < a).to_numpy(float)
    ten_times = SeedBootstrap(two.sizes, seed=config.seed, resamples=10 * config.resamples)
    assert pair.p_sign == ten_times.against(signs, 0.0).p


def test_runs_that_lack_a_column_are_joined(results: list[Result], tmp_path: Path) -> None:
    """A version before wrote no `others_larger_share`: what rests on it is undefined."""
    before = []
    for result in results[:2]:
        folder = tmp_path / str(result.seeds[0])
        shutil.copytree(result.folder, folder)
        table = pq.read_table(folder / "single.parquet").drop_columns("others_larger_share")
        pq.write_table(table, folder / "single.parquet")
        before.append(load(folder))
    record = join(before, tmp_path / "joined", name="both").single["attention"]
    assert record.expected_negative.value is None
    assert record.instances == sum(result.counts.analysed for result in before)


@pytest.mark.usefixtures("undrawn_figures")
def test_tables_carry_the_seed(joined: Result, results: list[Result], tmp_path: Path) -> None:
    of_model = [result for result in results if result.run.source["architecture"] == "FLANnoenc"]
    made = tables([joined], of_model)
    for name in ("models", "multi_weight", "single_weight", "contingency", "pairs", "exclusions"):
        assert list(dict.fromkeys(made[name]["seed"])) == ["3 5", "3", "5"]
    row = made["seeds"].query("quantity == 'accuracy'").iloc[0]
    assert row["seeds"] == 2
    assert row["least"] <= row["all"] <= row["most"]
    assert "seeds" not in tables(of_model)
    page = build([joined], tmp_path / "all", of_seeds=of_model).read_text()
    assert "FLANnoenc on Films (2): 2 seeds (3, 5)" in page
    assert "bootstrap intervals over seeds and instances" in page
    page = build(of_model, tmp_path / "one").read_text()
    assert "Each sentence is on one trained model: intervals are over its instances only" in page
    assert "Over the seeds" not in page


# --- findings ------------------------------------------------------------------------------------


def test_findings_carry_levels_corrected_together(joined: Result, workspace: SerranoSmith) -> None:
    other = load(workspace.out / "seeds" / "films-2" / "hanconv")
    found = findings(arrange([joined, other]))
    assert {f.model for f in found} >= {"FLANnoenc", "HANconv"}
    levels = [f.p for f in found]
    known = [p for p in levels if p is not None]
    assert len(known) > 8
    # 20 resamples for intervals, ten times as many for levels.
    assert min(known) >= 2 / 201
    assert [f.corrected for f in found if f.p is not None] == pytest.approx(holm(known))
    for row in tally(found):
        tested = any(f.p is not None for f in found if f.claim == row["claim"])
        assert (row["surely"] is not None) == (row["surely_not"] is not None) == tested
        if tested:
            assert row["surely"] <= row["holds"]
            assert row["surely_not"] <= row["of"] - row["holds"]


def test_levels_are_those_of_the_comparisons(joined: Result, results: list[Result]) -> None:
    of_model = [result for result in results if result.run.source["architecture"] == "FLANnoenc"]
    levels, config = Levels(joined), joined.run.config
    sizes = [result.counts.analysed for result in of_model]
    two = SeedBootstrap(sizes, seed=config.seed, resamples=10 * config.resamples)
    multi = joined.table("multi")
    multi["fraction"] = multi["fraction"].where(multi["first_flip"] > 0, math.inf)
    wide = multi.pivot(index="row", columns=["ranking", "order"], values="fraction")

    def of(ranking: str) -> np.ndarray:
        return np.asarray(wide[ranking])  # [N, orders]

    assert (
        levels.median("gradient", "attention") == two.difference(of("gradient"), of("attention")).p
    )
    most = np.max([two.values(of(r), "median") for r in ("attention", "gradient")], axis=0)
    drawn = less(two.values(of("random"), "median"), most)
    assert levels.largest_median("random", ("attention", "gradient")) == two.compared(drawn, 0.0).p
    gradient, attention = of("gradient")[:, 0], of("attention")[:, 0]
    wins, losses = (gradient < attention).astype(float), (attention < gradient).astype(float)
    judged = np.isfinite(gradient) | np.isfinite(attention)
    assert levels.times("gradient", "attention", 1.6) == two.against(wins - 1.6 * losses, 0.0).p
    assert levels.over_half("gradient", "attention") == two.against(wins - 0.5 * judged, 0.0).p
    single = joined.table("single").query("ranking == 'attention'")
    # In exact expectation over the other item: only i* flips in t (1 - o), only it in (1 - t) o.
    top = (single["flip_label"].to_numpy() >= 0).astype(float)
    other = single["others_flip_share"].to_numpy()
    assert levels.top_item() == two.against(top - other, 0.0).p
    assert levels.neither() == two.against((1 - top) * (1 - other) - 0.5, 0.0).p
    larger = single["others_larger_share"].to_numpy()
    assert levels.negative(0.1) == two.against(larger - 0.1, 0.0).p
    assert Levels(of_model[0]).median("random", "attention", levels) is not None
    before = levels.neither()
    levels.forget()
    assert levels.neither() == before  # drawn again
