"""The README's lines on transformers, with a tiny model in the place of a fine-tuned one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from huggingface.tiny import save_tiny

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8").partition("### Your transformer in ten lines")[2]
    [block] = re.findall(r"^```python\n(.*?)^```", text.partition("\n## ")[0], re.DOTALL | re.M)
    folder = save_tiny("bert", tmp_path / "m")
    capsys.readouterr()
    exec(block.replace("runs/minilm-sst", str(folder)), {})
    flips, *_, scores = capsys.readouterr().out.split("tensor(")[1:]
    assert len(re.findall(r"-?\d+", flips)) == 2  # one text by two rankings
    assert len(re.findall(r"-?\d\.\d+", scores)) == 4  # four words
