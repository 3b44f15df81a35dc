"""`erase --bags` from files to the page: numbers, interruptions, damaged slides, wrong options."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import Result
from published import Clam, spread
from typer.testing import CliRunner

import fastattnerase as fae
from fastattnerase import mil
from fastattnerase.cli.app import app
from fastattnerase.mil.run import load

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from html_page import Page

D = 6
LENGTHS = {"a.1": 40, "b": 130, "c": 7, "d": 60}


def invoke(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four slides, one without coordinates, their labels and a model."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(spread(Clam(D)).float().state_dict(), tmp_path / "clam.pt")
    (tmp_path / "h5").mkdir()
    rows = ["slide_id,label,split"]
    for place, (name, n) in enumerate(LENGTHS.items()):
        with h5py.File(tmp_path / "h5" / f"{name}.h5", "w") as file:
            file["features"] = torch.randn(n, D).numpy()
            if name != "c":
                file["coords"] = 256 * np.stack([np.arange(n) % 10, np.arange(n) // 10], 1)
                file["coords"].attrs["patch_size"] = 256
        rows.append(f"{name},{('normal', 'tumour')[place % 2]},{'test' if place else 'train'}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


ERASE = ("erase", "--bags", "h5", "--labels", "labels.csv", "--model", "clam.pt", "--out", "run")


@pytest.mark.usefixtures("undrawn_figures")
def test_slides_from_files_to_tables(study: Path) -> None:
    told = invoke(*ERASE, "--rankings", "shapley", "--random-orders", "3").output
    assert "Next: fastattnerase report run" in told
    result = load(study / "run")
    slides = result.table("slides").set_index("slide_id")
    rankings = result.table("rankings").set_index(["slide_id", "ranking"])
    patches = result.table("patches").set_index("slide_id")
    curves = result.table("curves").set_index(["slide_id", "ranking", "percent"])
    assert list(slides.index) == list(LENGTHS)
    assert result.classes == ["normal", "tumour"]
    assert result.summary["slides"] == 4
    model = mil.read_model(study / "clam.pt")
    names = ("attention", "single", "one_removed", "gradient", "product", "shapley")
    for place, (slide, n) in enumerate(LENGTHS.items()):
        batch = model.batch(mil.open_bag(study / "h5" / f"{slide}.h5"))
        row = slides.loc[slide]
        assert (row["n"], row["label"]) == (n, place % 2)
        found = mil.patch_flipping(batch, names)
        swept = found.swept
        assert swept.minimal is not None
        assert row["decision"] == int(swept.prefixes.label[0])
        assert row["minimal_size"] == int(swept.minimal.size[0])
        assert row["minimal_optimal"]
        assert row["sufficient_size"] == int(fae.minimal_sufficient_set(batch).size[0])
        own = patches.loc[slide]
        marked = set(swept.minimal.order[: max(0, int(swept.minimal.size[0]))].tolist())
        assert set(np.flatnonzero(own["in_smallest_set"])) == marked
        assert bool(row["has_coordinates"]) is (slide != "c")
        assert bool(own["x"].isna().all()) is (slide == "c")
        for name, scores in mil.patch_scores(batch, ["attention", "single", "shapley"]).items():
            np.testing.assert_allclose(own[name], scores.double(), rtol=1e-6, atol=1e-9)
        measured = found.measures(envelope=fae.envelope(batch, found.given, grid=101))
        for r, name in enumerate(names):
            line = rankings.loc[(slide, name)]
            first = int(found.first_flip[r, 0])
            assert line["first_flip"] == first if first > 0 else np.isnan(line["first_flip"])
            gain = measured["symmetric_relevance_gain"].values[r, 0]
            assert line["symmetric_relevance_gain"] == pytest.approx(gain)
            area = measured["normalized_area"].values[r, 0]
            assert line["normalized_area"] == pytest.approx(area, nan_ok=True)
            steps = found.most_first[r].double()
            assert line["aopc_percent"] == pytest.approx(float((steps[0] - steps[1:]).mean()))
            assert curves.loc[(slide, name, 100), "most_first"] == pytest.approx(float(steps[-1]))
            assert curves.loc[(slide, name, 0), "least_first"] == pytest.approx(float(steps[0]))
        low, high = curves.loc[(slide, "bounds", 50)]
        for name in (*names, "random"):
            drawn = curves.loc[(slide, name, 50)]
            assert low - 1e-6 <= drawn.min() <= drawn.max() <= high + 1e-6
    gains = rankings.loc[(slice(None), "single"), "symmetric_relevance_gain"]
    assert result.summary["rankings"]["single"]["symmetric_relevance_gain"][
        "value"
    ] == pytest.approx(gains.mean())
    # The same command finds it done; another one is another run.
    before = (study / "run" / "slides.parquet").stat().st_mtime_ns
    invoke(*ERASE, "--rankings", "shapley", "--random-orders", "3")
    assert (study / "run" / "slides.parquet").stat().st_mtime_ns == before
    error = invoke(*ERASE, code=2).output
    assert "error: run holds a run with another config" in " ".join(error.split())
    assert str(study) not in (study / "run" / "run.json").read_text()


def test_an_interrupted_run_goes_on(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke(*ERASE)
    whole = {path.name: pd.read_parquet(path) for path in (study / "run").glob("*.parquet")}
    erased: list[str] = []
    pool = mil.PoolModel.pool

    def watched(self: mil.PoolModel, bag: mil.Bag, **options: int) -> mil.PooledBag:
        if len(erased) == 2:
            raise KeyboardInterrupt
        erased.append(bag.slide_id)
        return pool(self, bag, **options)

    monkeypatch.setattr(mil.PoolModel, "pool", watched)
    second = (*ERASE[:-1], "second")
    invoke(*second, code=130)
    assert erased == ["a.1", "b"]
    assert "is not finished" in " ".join(invoke("report", "second", code=2).output.split())
    monkeypatch.setattr(mil.PoolModel, "pool", pool)
    reopened: list[str] = []
    monkeypatch.setattr(
        mil.PoolModel, "pool", lambda self, bag: reopened.append(bag.slide_id) or pool(self, bag)
    )
    invoke(*second)
    assert reopened == ["c", "d"]
    for name, table in whole.items():
        pd.testing.assert_frame_equal(pd.read_parquet(study / "second" / name), table)
    assert not (study / "second" / "parts").exists()


def test_damaged_slides_end_the_run_unless_they_are_skipped(study: Path) -> None:
    with h5py.File(study / "h5" / "b.h5", "a") as file:
        file["features"][17, 3] = np.nan
    with h5py.File(study / "h5" / "d.h5", "w") as file:
        file["features"] = np.zeros((0, D))
    with (study / "labels.csv").open("a") as file:
        file.write("absent,normal,test\n")
    error = " ".join(invoke(*ERASE, code=2).output.split())
    assert "b.h5: given NaN in the features of patch 17, needed finite numbers" in error
    told = " ".join(invoke(*ERASE, "--skip-damaged").output.split())
    assert "3 of 5 slides could not be read and are in no number." in told
    result = load(study / "run")
    assert (result.summary["slides"], result.summary["damaged"]) == (5, 3)
    slides = result.table("slides").set_index("slide_id")
    assert slides.loc["b", "damaged"].startswith("b.h5: given NaN in the features of patch 17")
    assert slides.loc["d", "damaged"] == "d.h5: given no patches, needed one patch or more"
    assert slides.loc["absent", "damaged"] == (
        "labels.csv: given absent without a file, needed one a slide"
    )
    assert slides.loc[["a.1", "c"], "damaged"].isna().all()
    assert set(result.table("rankings")["slide_id"]) == {"a.1", "c"}
    page = Page(Path(invoke("report", "run").output.strip()).read_text(encoding="utf-8"))
    page.loads_nothing()
    assert "given no patches, needed one patch or more" in page.words()


def test_slides_that_change_under_a_run_are_noticed(study: Path) -> None:
    """A damaged file that is mended lets the run go on; one that was done may not change."""
    whole = (study / "h5" / "d.h5").read_bytes()
    (study / "h5" / "d.h5").write_bytes(b"")
    invoke(*ERASE, code=2)
    (study / "h5" / "d.h5").write_bytes(whole)
    invoke(*ERASE)
    assert load(study / "run").summary["damaged"] == 0
    with h5py.File(study / "h5" / "b.h5", "a") as file:
        file["more"] = np.zeros(1000)
    error = " ".join(invoke(*ERASE, code=2).output.split())
    assert "run holds a run in which the file of b had" in error


def test_all_slides_damaged(study: Path) -> None:
    for path in (study / "h5").iterdir():
        path.write_bytes(b"")
    told = " ".join(invoke(*ERASE, "--skip-damaged").output.split())
    assert "No slide could be read." in told
    page = Page(Path(invoke("report", "run").output.strip()).read_text(encoding="utf-8"))
    assert "No slide could be read." in page.words()


def test_the_page_with_heat_maps(study: Path) -> None:
    invoke(*ERASE, "--split", "test")
    path = Path(invoke("report", "run", "--out", "page").output.strip())
    assert path == (study / "page" / "slides.html").resolve()
    page = Page(path.read_text(encoding="utf-8"))
    page.loads_nothing()
    words = page.words()
    assert "1 of 3 slides have no coordinates and no heat map." in words
    assert "CLAM. Patches are embedded each by itself" in words
    assert "one removed" in words
    pictures = [found for tag, found in page.elements if tag == "img"]
    assert len(pictures) == 2 + 2 * 2  # curves, and two scores of each slide with coordinates
    files = {file.name for file in (study / "page" / "slides").iterdir()}
    assert files == {
        f"{name}{end}"
        for name in "bd"
        for end in ("-attention.png", "-single.png", ".csv", ".geojson")
    }
    features = json.loads((study / "page" / "slides" / "b.geojson").read_text())["features"]
    slides = load(study / "run").table("slides").set_index("slide_id")
    marked = sum("classification" in feature["properties"] for feature in features)
    assert (len(features), marked) == (130, max(0, slides.loc["b", "minimal_size"]))
    tables = {file.name for file in (study / "page" / "tables").glob("*.csv")}
    assert tables == {"slides.csv", "rankings.csv", "curves.csv"}


@pytest.mark.usefixtures("undrawn_figures")
def test_multi_branch_models_have_sets_with_a_proof_where_there_is_one(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    torch.save(spread(Clam(D, 3, multi=True)).float().state_dict(), study / "clam.pt")
    error = " ".join(invoke(*ERASE, code=2).output.split())
    assert "labels.csv: given 2 classes (normal, tumour), needed 3 as CLAM has" in error
    names = ("--class-names", "normal,tumour,other")
    told = " ".join(invoke(*ERASE, *names).output.split())
    assert "attention" in told
    result = load(study / "run")
    assert result.classes == ["normal", "tumour", "other"]
    assert (result.table("curves")["ranking"] != "bounds").all()
    slides, patches = result.table("slides").set_index("slide_id"), result.table("patches")
    model = mil.read_model(study / "clam.pt")
    for slide in LENGTHS:
        smallest = fae.minimal_flip_set(model.batch(mil.open_bag(study / "h5" / f"{slide}.h5")))
        row = slides.loc[slide]
        assert row["minimal_size"] == int(smallest.size[0])
        none = int(smallest.lower_bound[0]) < 0
        assert row["minimal_optimal"] == (bool(smallest.optimal[0]) or none)
        own = patches.loc[patches["slide_id"] == slide, "in_smallest_set"]
        assert own.sum() == max(0, int(smallest.size[0]))
    proved = float(slides["minimal_optimal"].astype(float).mean())
    assert result.summary["proved"] == pytest.approx(proved)
    page = Page(Path(invoke("report", "run").output.strip()).read_text(encoding="utf-8"))
    page.loads_nothing()
    assert "each class reads an attention branch of its own" in page.words()
    # Beyond some number of patches none is searched for, and that is said.
    monkeypatch.setattr("fastattnerase.mil.slides.SEARCHED", 6)
    told = " ".join(invoke(*ERASE[:-1], "large", *names).output.split())
    assert "No smallest set is known: the classifier is not linear, or there are several" in told
    assert load(study / "large").table("slides")["minimal_size"].isna().all()
    invoke("report", "large")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--labels", "labels.csv"), "--labels: given without --bags, needed with it"),
        (("--model", "m", "--skip-damaged"), "--skip-damaged: given without --bags"),
        (("--bags", "h5"), "--labels: given none with --bags, needed a CSV of slides"),
        (("--bags", "h5", "--labels", "l", "--model", "h5"), "--model: given h5, which is no file"),
        (("--bags", "h5", "--labels", "l", "--tensors", "t"), "--tensors: given with --bags"),
        (("--bags", "h5", "--labels", "l", "--model", "clam.pt", "--data", "d"), "--data: given w"),
        (("--bags", "h5", "--labels", "l", "--model", "clam.pt", "--items"), "--items: given with"),
        (
            ("--bags", "h5", "--labels", "absent.csv", "--model", "clam.pt"),
            "absent.csv: given no f",
        ),
        (("--bags", "x", "--labels", "labels.csv", "--model", "clam.pt"), "x: given no folder"),
        (
            ("--bags", "h5", "--labels", "labels.csv", "--model", "labels.csv"),
            "labels.csv: given a",
        ),
        ((*ERASE[1:7], "--device", "cuda:0"), "--device: given cuda:0 with --bags, needed cpu"),
        ((*ERASE[1:7], "--layout", "resnet"), "--layout"),
        ((*ERASE[1:7], "--rankings", "absolute"), "--ranking"),
    ],
)
def test_wrong_options_are_one_line(study: Path, arguments: tuple[str, ...], told: str) -> None:
    given = arguments if "--model" in arguments or "--tensors" in arguments else (
        *arguments, "--model", "clam.pt")  # fmt: skip
    error = " ".join(invoke("erase", *given, code=2).output.split())
    assert told in error


def test_coordinates_beside_the_features(study: Path) -> None:
    (study / "coords").mkdir()
    for name, n in LENGTHS.items():
        np.save(study / "coords" / f"{name}.npy", np.stack([np.arange(n)] * 2, 1))
    invoke(*ERASE, "--coords", "coords")
    patches = load(study / "run").table("patches")
    assert patches.loc[patches["slide_id"] == "c", "x"].tolist() == list(range(7))
    (study / "coords" / "c.npy").unlink()
    error = " ".join(invoke(*ERASE[:-1], "other", "--coords", "coords", code=2).output.split())
    assert re.search(r"coords: given no file of c, needed its coordinates", error)


def test_reports_of_several_runs_and_of_another_kind(study: Path) -> None:
    invoke(*ERASE)
    error = " ".join(invoke("report", "run", "run", code=2).output.split())
    assert "given 2 with a run over slides among them, needed that alone" in error
