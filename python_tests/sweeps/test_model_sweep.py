"""`erase` on a trained model, and `dump` and `sweep` of it, say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from command_line import invoke

ROWS = [
    f"a {'good' if i % 2 else 'bad'} film that is {'very ' * (i % 7)}long,{i % 2}"
    for i in range(60)
]
TINY = ("--embedding-size", "4", "--hidden-size", "4", "--epochs", "1", "--device", "cpu")
FAST = ("--resamples", "20", "--device", "cpu")
NUMBERS = ("counts", "uniform", "single", "multi", "pairs", "head")


def test_a_model_swept_has_the_numbers_of_erase(tmp_path: Path) -> None:
    data, model = tmp_path / "x.csv", tmp_path / "model"
    data.write_text("\n".join(["text,label", *ROWS]) + "\n")
    invoke("train", "--data", data, *TINY, "--encoder", "rnn", "--out", model)
    given = ("--model", model, "--data", data)
    invoke("erase", *given, *FAST, "--out", tmp_path / "run")
    dump, out = tmp_path / "dump", tmp_path / "out"
    invoke("dump", *given, "--device", "cpu", "--shard-bytes", "8KiB", "--out", dump)
    assert len(list(dump.glob("*.safetensors"))) > 2
    invoke("sweep", dump, *FAST, "--out", out)
    run = json.loads((tmp_path / "run" / "result.json").read_text())
    found = json.loads((out / "aggregate" / "result.json").read_text())
    for name in NUMBERS:
        assert found[name] == run[name], name
    for table in ("instances", "single", "multi", "erased"):
        wanted, own = (
            pd.read_parquet(folder / f"{table}.parquet")
            for folder in (tmp_path / "run", out / "aggregate")
        )
        keys = [key for key in ("row", "ranking", "order", "place") if key in wanted]
        pd.testing.assert_frame_equal(
            own.sort_values(keys, ignore_index=True),
            wanted.sort_values(keys, ignore_index=True),
            check_exact=True,
        )
    invoke("report", out)
    assert (out / "report" / "report.html").is_file()
