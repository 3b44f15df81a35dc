"""Presets of MIMIC-III, on the tables of users who have access to it."""

from __future__ import annotations

from pathlib import Path

from fastattnerase.data.cleaning import clean_note
from fastattnerase.data.config import DataConfig
from fastattnerase.data.published.record import DataPreset, Draw


def _anemia(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "mimic"),
        reader="mimic_anemia",
        classes=("chronic", "acute"),
        fractions=(1.0, 0.0, 0.0),
    )


def _diabetes(root: Path) -> DataConfig:
    return DataConfig(
        path=str(root / "mimic"),
        reader="mimic_diabetes",
        split_column="split",
        classes=("other", "diabetes"),
    )


PRESETS: dict[str, DataPreset] = {
    "anemia": DataPreset(
        "Anemia",
        _anemia,
        clean_note,
        5,
        None,
        4000,
        "admissions by number; an admission without a discharge summary is left out",
        draws=(Draw(12939, 0.2, "test", True), Draw(13448, 0.15, "dev", True)),
    ),
    "diabetes": DataPreset("Diabetes", _diabetes, clean_note, 5, 6, 4000),
}
