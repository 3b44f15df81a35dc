"""The README's lines on slides, with files as the field has them."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from published import Clam, spread

import fastattnerase as fae

README = Path(__file__).parents[2] / "README.md"


def test_a_slide_model_in_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = README.read_text(encoding="utf-8").partition("### Your slide model in ten lines")[2]
    block = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    assert len(block[1].splitlines()) <= 11  # and a line between
    torch.manual_seed(0)
    torch.save(spread(Clam(6)).state_dict(), tmp_path / "clam.pt")
    (tmp_path / "labels.csv").write_text("slide_id,label\na,0\nb,1\nc,1\n")
    (tmp_path / "splits_0.csv").write_text(",train,val,test\n0,c,,a\n1,,,b\n")
    (tmp_path / "h5_files").mkdir()
    for name in "abc":
        with h5py.File(tmp_path / "h5_files" / f"{name}.h5", "w") as file:
            file["features"] = torch.randn(20, 6).numpy()
            file["coords"] = np.zeros((20, 2), int)
    monkeypatch.chdir(tmp_path)
    exec(block[1], {"fae": fae})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines] == [["a", "20"], ["b", "20"]]
    assert all(-1 <= int(number) <= 20 for line in lines for number in line[2:])
