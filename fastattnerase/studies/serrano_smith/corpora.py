"""The paper's four corpora with its 24 models, as a study."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fastattnerase.data import DataError
from fastattnerase.runs.rundir import RunError
from fastattnerase.studies.serrano_smith.presets import (
    PAPER_NAMES,
    STYLES,
    Style,
    corpus_config,
    preset,
)
from fastattnerase.studies.serrano_smith.study import MODELS, CorpusSpec, Study


def original_study(data_root: Path, style: str) -> Study:
    """Make the study of the paper's corpora that are in a folder, with the paper's 24 models.

    Args:
        data_root: holds the corpora under the names they are distributed by; see
            `fastattnerase.studies.serrano_smith.presets.corpus_config`.
        style: `paper`, what the paper says, or `code`, what its published code did, down to the
            rule of drawing the random item.

    Returns:
        The study.

    Raises:
        RunError: none of the corpora is there, or another style.

    Source:
        Serrano and Smith 2019, section 3 and appendix A.1, and their code.

    Example:
        >>> from pathlib import Path
        >>> from fastattnerase.studies.serrano_smith.corpora import original_study
        >>> original_study(Path("corpora"), "paper").name  # doctest: +SKIP
        'serrano-smith-paper'
    """
    if style not in STYLES:
        raise RunError(f"--preset: given {style!r}, needed {' or '.join(STYLES)}")
    chosen: Style = "code" if style == "code" else "paper"
    corpora, missing = [], []
    for data_set, name in PAPER_NAMES.items():
        try:
            config = corpus_config(data_set, data_root, style=chosen)
        except DataError as error:
            missing.append(str(error))
            continue
        data = config.to_dict()
        for key in ("path", "train", "dev", "test"):
            if data[key] is not None:
                data[key] = Path(data[key]).relative_to(data_root).as_posix()
        presets = {model: preset(f"{data_set}-{model.lower()}", style=chosen) for model in MODELS}
        corpora.append(
            CorpusSpec(
                name,
                data,
                word2vec=dataclasses.asdict(presets[MODELS[0]].word2vec),
                each={
                    model: {"model": own.model.to_dict(), "training": own.train.to_dict()}
                    for model, own in presets.items()
                },
                paper=name,
            )
        )
    if not corpora:
        raise RunError("; ".join(missing))
    erase: dict[str, Any] = {"random_orders": 5}
    if style == "code":
        erase |= {"random_item": "legacy", "never_flips": "minus_one"}
    return Study(f"serrano-smith-{style}", tuple(corpora), erase=erase)
