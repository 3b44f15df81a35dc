"""Stages of a study: run, go on, refuse what does not fit; kills change no number."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from studies.serrano_smith.kill_serrano_smith import kill_and_compare
from studies.serrano_smith.small_study import write_small_study

from fastattnerase import sources
from fastattnerase.data import DataConfig, DataError
from fastattnerase.runs import schedule
from fastattnerase.runs.rundir import RunError
from fastattnerase.runs.workspace import Record
from fastattnerase.sources import ModelSource
from fastattnerase.statistics import together
from fastattnerase.studies.serrano_smith import experiment
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.serrano_smith.result import load
from fastattnerase.studies.serrano_smith.rows import write_rows
from fastattnerase.studies.serrano_smith.study import CorpusSpec, read_study
from fastattnerase.studies.serrano_smith.units import SerranoSmith


class Quiet:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.shares: list[float] = []
        self.before = 0

    def plan(self, costs: dict[str, float], done: int) -> None:
        assert all(cost > 0 for cost in costs.values())
        self.before = done

    def at(self, key: str, share: float) -> None:
        self.shares.append(share)

    def finished(self, key: str, record: Record) -> None:
        self.keys.append(key)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SerranoSmith:
    folder = tmp_path_factory.mktemp("study")
    workspace = SerranoSmith(read_study(write_small_study(folder)), folder, folder / "out")
    watcher = Quiet()
    schedule.run(workspace, 1, watcher)
    assert len(watcher.keys) == 11
    assert watcher.keys[-1] == "report"
    assert all(0 <= share <= 1 for share in watcher.shares)
    return workspace


def test_the_manifest_names_units_numbers_and_files(small: SerranoSmith) -> None:
    manifest = json.loads((small.out / "manifest.json").read_text())
    units = {unit["unit"]: unit for unit in manifest["units"]}
    assert all(unit["done"] for unit in units.values())
    assert units["prepare/films-2"]["numbers"]["documents"] == {"train": 64, "dev": 8, "test": 8}
    assert units["train/films-2/HANconv"]["numbers"]["epochs"] == 1
    assert units["train/stars/FLANnoenc"]["numbers"]["epochs"] == 2
    erased = units["erase/stars/FLANnoenc"]
    assert erased["folder"] == "erase/stars/flannoenc"
    assert {"result.json", "multi.parquet", "run.json"} <= set(erased["files"])
    assert manifest["study"]["name"] == "small"
    assert "torch" in manifest["versions"]
    assert str(small.out) not in json.dumps(manifest)


def test_stars_are_read_from_the_id_and_rows_are_cut(small: SerranoSmith) -> None:
    config = json.loads((small.out / "prepare" / "stars" / "config.json").read_text())
    rows = pd.read_parquet(config["path"])
    assert Counter(rows["label"]) == {"1": 27, "2": 27}  # the wanted 60 are not there
    run = load(small.out / "erase" / "stars" / "flannoenc")
    assert run.run.classes == ("1", "2")
    assert run.run.source["architecture"] == "FLANnoenc"
    assert run.run.name == "FLANnoenc on Stars"


def test_nothing_is_done_twice(small: SerranoSmith) -> None:
    before = {path: path.stat().st_mtime_ns for path in small.out.rglob("done.json")}
    watcher = Quiet()
    schedule.run(small, 1, watcher)
    assert (watcher.keys, watcher.before) == ([], 11)
    assert {path: path.stat().st_mtime_ns for path in small.out.rglob("done.json")} == before


def test_other_options_are_refused_and_other_models_added(
    small: SerranoSmith, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(small.out, out)
    text = (small.data_root / "study.toml").read_text()
    path = tmp_path / "study.toml"
    path.write_text(text.replace("epochs = 2", "epochs = 3"))
    changed = SerranoSmith(read_study(path), small.data_root, out)
    with pytest.raises(RunError, match=r"device: training\.epochs is 2 there and 3 here;"):
        schedule.run(changed, 1, Quiet())
    path.write_text(text.replace('["FLANnoenc"]', '["FLANnoenc", "FLANconv"]'))
    more = SerranoSmith(read_study(path), small.data_root, out, until="train")
    watcher = Quiet()
    schedule.run(more, 1, watcher)
    assert watcher.keys == ["train/stars/FLANconv"]


def test_a_part_of_the_study(small: SerranoSmith, tmp_path: Path) -> None:
    part = SerranoSmith(
        small.study, small.data_root, tmp_path, only=("films*/han*",), until="prepare"
    )
    watcher = Quiet()
    schedule.run(part, 1, watcher)
    assert watcher.keys == ["prepare/films-2"]


@pytest.mark.usefixtures("undrawn_figures")
def test_a_part_of_a_finished_study_replaces_nothing(small: SerranoSmith, tmp_path: Path) -> None:
    """Report and manifest are on all models of the study that are finished."""
    out = tmp_path / "out"
    shutil.copytree(small.out, out)
    shutil.rmtree(out / "report")
    part = SerranoSmith(small.study, small.data_root, out, only=("stars",))
    watcher = Quiet()
    schedule.run(part, 1, watcher)
    assert watcher.keys == ["report"]
    assert [result.run.name for result in part.results()] == [
        "FLANnoenc on Films (2)", "HANconv on Films (2)", "FLANnoenc on Stars",
    ]  # fmt: skip
    manifest = json.loads((out / "manifest.json").read_text())
    assert len(manifest["units"]) == 11
    assert all(unit["done"] for unit in manifest["units"])
    whole = SerranoSmith(small.study, small.data_root, out)
    watcher = Quiet()
    schedule.run(whole, 1, watcher)
    assert watcher.keys == []  # the report is the same
    assert part.unfit() == []


@pytest.mark.usefixtures("undrawn_figures")
def test_models_with_other_options_stay_out_of_the_report(
    small: SerranoSmith, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(small.out, out)
    path = tmp_path / "study.toml"
    text = (small.data_root / "study.toml").read_text()
    path.write_text(text.replace("[models.HANconv.training]\nepochs = 1",
                                 "[models.HANconv.training]\nepochs = 2"))  # fmt: skip
    part = SerranoSmith(read_study(path), small.data_root, out, only=("stars",))
    schedule.run(part, 1, Quiet())
    assert [unit.key for unit in part.unfit()] == ["erase/films-2/HANconv"]
    assert len(part.results()) == 2
    whole = SerranoSmith(read_study(path), small.data_root, out)
    with pytest.raises(RunError, match=r"hanconv was .* training\.epochs is 1 there and 2 here"):
        schedule.run(whole, 1, Quiet())


def test_what_has_changed_is_named(small: SerranoSmith, tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    shutil.copytree(small.out, out)
    (root / "films.jsonl").write_bytes((small.data_root / "films.jsonl").read_bytes() + b"\n")
    with pytest.raises(RunError, match=r"data or device: films\.jsonl has changed; choose another"):
        schedule.run(SerranoSmith(small.study, root, out), 1, Quiet())
    other = SerranoSmith(small.study, small.data_root, out, device="cuda")
    with pytest.raises(RunError, match="device is 'cpu' there and 'cuda' here"):
        schedule.run(other, 1, Quiet())
    done = out / "train" / "stars" / "flannoenc" / "done.json"
    record = json.loads(done.read_text())
    del record["state"]  # as the first version wrote it
    done.write_text(json.dumps(record | {"digest": "0"}))
    with pytest.raises(RunError, match="made with other options, data or device; choose another"):
        schedule.run(SerranoSmith(small.study, small.data_root, out), 1, Quiet())


def test_a_missing_corpus(small: SerranoSmith, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"films\.jsonl: no such file"):
        schedule.run(SerranoSmith(small.study, tmp_path, tmp_path / "out"), 1, Quiet())


@pytest.mark.long
def test_killed_and_restarted_it_ends_with_the_same_numbers(tmp_path: Path) -> None:
    compared, differences = kill_and_compare(tmp_path, kills=3, jobs=1, until="erase")
    assert (compared > 0, differences) == (True, [])


def test_rows_are_cut_in_proportion(tmp_path: Path) -> None:
    lines = ["text,label,part"]
    lines += [f"word {n},{'ab'[n % 4 == 0]},{'train' if n % 5 else 'test'}" for n in range(200)]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    config = DataConfig(path=str(tmp_path / "x.csv"), split_column="part")
    write_rows(CorpusSpec("X", {"path": "x.csv"}, rows=50), config, tmp_path / "rows.parquet")
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert len(rows) == 50
    counts = Counter(zip(rows["split"], rows["label"], strict=True))
    # Of 120, 40, 30 and 10 rows a quarter; the two places left go to the largest remainders.
    assert counts[("train", "a")] == 30
    assert counts[("train", "b")] == 10
    assert counts[("test", "a")] + counts[("test", "b")] == 10
    order = [int(text.split()[1]) for text in rows["text"]]
    assert order == sorted(order)


def test_a_pattern_that_finds_nothing_names_the_row(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,label\nword,7_3\nword,none\n")
    config = DataConfig(path=str(tmp_path / "x.csv"))
    spec = CorpusSpec("X", {"path": "x.csv"}, label_pattern=r"_(\d)")
    with pytest.raises(RunError, match=r"row 2: .*'none'"):
        write_rows(spec, config, tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()


def test_memory_of_erasing_does_not_grow_with_the_test_set(
    small: SerranoSmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents are read, and results written, in parts: four times the documents, one peak."""
    from fastattnerase.data import Dataset
    from fastattnerase.models import load_model

    monkeypatch.setattr(sources, "DOCUMENTS", 32)
    monkeypatch.setattr(experiment, "_PART", 64)
    monkeypatch.setattr(together, "_HELD", 1 << 16)  # bytes of samples that wait for others
    loaded = load_model(small.folder("train/films-2/FLANnoenc"))
    test = small._prepared(small.study.corpora[0]).test

    class Repeated(Dataset):
        """The same few documents, read anew whenever they are asked for."""

        size = 0

        def __len__(self) -> int:
            return self.size

        def __iter__(self):
            return (self[index] for index in range(self.size))

        def __getitem__(self, index):
            if isinstance(index, slice):
                rows = range(*index.indices(self.size))
                asked.append(len(rows))
                return Dataset([test[row % len(test)] for row in rows])
            return test[index % len(test)]

    peaks = []
    for size in (128, 256, 1024):
        asked: list[int] = []
        documents = Repeated(test.documents)
        object.__setattr__(documents, "size", size)
        source = ModelSource(loaded.model, documents, loaded.classes, {})
        tracemalloc.start()
        config = Config(resamples=2, exhibits=0)
        folder = tmp_path / str(size)
        experiment.run(source, config, folder, name="x")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert max(asked) <= 32
        # One part of tables at a time, too.
        assert pq.read_metadata(folder / "instances.parquet").num_row_groups == size // 64
    # What grows is a few numbers an instance while summarising, not the documents.
    assert peaks[2] < peaks[1] * 1.5, peaks
