"""A transformer's comparison beside a BiLSTM's: rules by hand, the page by its tables."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from fastattnerase.studies.compare.findings import firsts
from fastattnerase.studies.compare.options import RANDOM, WORDS

SCRIPT = Path(__file__).parents[3] / "benchmarks/compare_transformer.py"
KEY = {"level": WORDS, "grid": "eraser"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_transformer", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["compare_transformer"] = made
    spec.loader.exec_module(made)
    return made


def written(folder: Path, of: dict[str, dict[str, float]], half: float) -> Path:
    """Write a comparison's tables: each measure's means by method, all intervals of one width."""
    means, pairs, taus = [], [], []
    for measure, values in of.items():
        better = "lower" if measure == "aopc_sufficiency" else "higher"
        key = KEY | {"measure": measure}
        names = list(values)
        means += [
            key | {"better": better, "method": name, "mean": mean, "reasons": ""}
            for name, mean in values.items()
        ]
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                d = values[a] - values[b]
                pairs.append(
                    key | {"method": a, "other": b, "difference": d, "low": d - half,
                           "high": d + half}
                )  # fmt: skip
                taus.append({"level": WORDS, "method": a, "other": b, "tau": 0.25})
    folder.mkdir(parents=True)
    for name, rows in (("means", means), ("pairs", pairs), ("agreement", taus)):
        pd.DataFrame(rows).drop_duplicates().to_csv(folder / f"{name}.csv", index=False)
    found = firsts(pd.DataFrame(means), pd.DataFrame(pairs))
    pd.DataFrame([vars(one) | {"beside": " ".join(one.beside)} for one in found]).to_csv(
        folder / "firsts.csv", index=False
    )
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A BiLSTM's comparison with LRP, and a transformer's without, of two measures in both."""
    bilstm = {
        "aopc_comprehensiveness": {
            "lrp": 0.9, "omission": 0.5, "attention": 0.3, "gradient": 0.31, RANDOM: 0.1,
        },
        "aopc_sufficiency": {
            "lrp": 0.0, "omission": 0.2, "attention": 0.5, "gradient": 0.1, RANDOM: 0.9,
        },
        "optimality_gap": {"lrp": 2.0, "omission": 2.0, "attention": 1.0, "gradient": 1.0},
    }  # fmt: skip
    transformer = {
        "aopc_comprehensiveness": {
            "omission": 0.2, "attention": 0.6, "gradient": 0.3, RANDOM: 0.6,
        },
        "aopc_sufficiency": {"omission": 0.2, "attention": 0.4, "gradient": 0.12, RANDOM: 0.8},
    }  # fmt: skip
    return (
        written(tmp_path / "bilstm", bilstm, 0.05),
        written(tmp_path / "transformer", transformer, 0.05),
    )


def test_orders_are_reversed_only_where_both_are_sure(
    script: ModuleType, folders: tuple[Path, Path]
) -> None:
    order = script.orders(script.beside(*folders))
    assert set(order["measure"]) == {"aopc_comprehensiveness", "aopc_sufficiency"}
    found = {
        (row["measure"][5:9], row["method"], row["other"]): (
            row["bilstm"], row["transformer"], row["change"]
        )
        for row in order.to_dict("records")
    }  # fmt: skip
    assert found == {
        ("comp", "omission", "attention"): ("omission", "attention", "reversed"),
        ("comp", "omission", "gradient"): ("omission", "gradient", "reversed"),
        # 0.31 against 0.3 with an interval of 0.05 on either side is not sure.
        ("comp", "attention", "gradient"): ("", "attention", "open"),
        # Of sufficiency the lower is better.
        ("suff", "omission", "attention"): ("omission", "omission", "kept"),
        ("suff", "omission", "gradient"): ("gradient", "gradient", "kept"),
        ("suff", "attention", "gradient"): ("gradient", "gradient", "kept"),
    }


def test_first_places_are_of_the_methods_in_both(
    script: ModuleType, folders: tuple[Path, Path]
) -> None:
    place = script.places(script.beside(*folders))
    rows = place.drop(columns=["level", "grid", "measure"]).to_numpy().tolist()
    assert rows == [
        # LRP, first in the BiLSTM, is not asked here.
        ["omission", "attention", "changed", 3, 1, "better", "alike", 3],
        ["gradient", "gradient", "kept", 3, 3, "better", "better", 3],
    ]
    assert script.first_counts(place, "bilstm") == [0, 0, 3, 2]
    assert script.first_counts(place, "transformer") == [1, 0, "1 to 3", 1]


def test_sentences_follow_from_the_rules(script: ModuleType, folders: tuple[Path, Path]) -> None:
    both = script.beside(*folders)
    said = list(script.findings(script.SETS[0], script.orders(both), script.places(both)))
    assert {one["data"] for one in said} == {"SST"}
    assert [one["answer"] for one in said] == [
        "Here attention (1), gradient (1); in the BiLSTM omission (1), gradient (1).",
        "For 1 of 2 measures: sufficiency, ERASER’s shares.",
        "Of 6 orders of two methods 5 are sure in both, and 2 of these are reversed: attention "
        "before omission (1); gradient before omission (1).",
        "A better one for 1, a worse one for 0 of 2 measures. Of its orders that are reversed 1 "
        "put it ahead now and 0 behind.",
    ]


def test_cells_have_both_means(script: ModuleType, folders: tuple[Path, Path]) -> None:
    lines = script.side_by_side(WORDS, folders[::-1])
    assert lines[0] == "| method | comp. ERASER | suff. ERASER |"
    cells = {line.split(" | ")[0]: line for line in lines}
    assert cells["| lrp"] == "| lrp | – / **0.900** | – / **0.000** |"
    assert cells["| attention"] == "| attention | **0.600** / 0.300 | 0.400 / 0.500 |"
    assert script.agreement(folders, "omission") == "0.250 / 0.250"
    assert script.written(float("inf")) == "never"


def test_commands_are_those_of_the_command_line(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    monkeypatch.setattr(script, "run", lambda *arguments: given.append(arguments))
    for data in script.SETS:
        script.train(data, Path("d.csv"), Path("minilm"), tmp_path)
        script.compare(data, tmp_path, 7)
    assert [(data.key, step, folder) for data, step, _, _, folder in given] == [
        (key, step, folder)
        for key in ("sst", "movies")
        for step, folder in (("train", "models"), ("compare", "compare"), ("erase", "erase"))
    ]
    options = [of for _, _, of, _, _ in given]
    own = [["minilm", *[str(tmp_path / "models" / key)] * 2] for key in ("sst", "movies")]
    assert [of[1] for of in options] == own[0] + own[1]
    assert options[1][-2:] == ["--instances", "7"]
    assert "--rationales" in options[4]


def test_a_failing_command_names_its_log(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"erase on sst failed; see .*erase-sst\.log"):
        script.run(script.SETS[0], "erase", ["--no-such-option"], tmp_path, "erase")
    assert "--no-such-option" in (tmp_path / "erase-sst.log").read_text(encoding="utf-8")


def test_the_page_says_what_the_tables_say(script: ModuleType) -> None:
    text = (script.RESULTS / "README.md").read_text(encoding="utf-8")
    assert script.BEGIN + text.partition(script.BEGIN)[2].partition(script.END)[0] + script.END == (
        script.page()
    )


@pytest.mark.parametrize("data", ["sst", "movies"])
def test_first_places_follow_from_the_tables(script: ModuleType, data: str) -> None:
    folder = script.RESULTS / data
    made = firsts(script.read(folder, "means"), script.read(folder, "pairs"))
    first = script.read(folder, "firsts").to_dict("records")
    assert len(made) == len(first)
    for one, row in zip(made, first, strict=True):
        assert (one.level, one.measure, one.grid, one.best, one.alone, " ".join(one.beside)) == (
            row["level"], row["measure"], row["grid"], row["best"], row["alone"], row["beside"],
        )  # fmt: skip


def test_numbers_of_the_words_before_the_tables_stand_in_them(script: ModuleType) -> None:
    text = (script.RESULTS / "README.md").read_text(encoding="utf-8")
    said, _, tables = text.partition(script.BEGIN)
    said = said.partition("Test accuracy")[2].partition("*How it was asked.*")[0]
    numbers = re.findall(r"\d*\.\d+", said)
    assert len(numbers) >= 5
    assert [number for number in numbers if number not in tables] == []
