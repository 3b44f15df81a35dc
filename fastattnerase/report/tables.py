"""Tables as files: CSV for programs, LaTeX for papers."""

from __future__ import annotations

from pathlib import Path

from fastattnerase.extras import needs

with needs("report"):
    import pandas as pd


def latex(table: pd.DataFrame, numbers: str = "%.4g") -> str:
    """Write a table in LaTeX with the rules of booktabs; missing numbers are dashes."""
    text: str = table.to_latex(index=False, escape=True, na_rep="--", float_format=numbers)
    return text


def save(table: pd.DataFrame, path: Path, numbers: str = "%.4g") -> None:
    """Write a table as CSV and in LaTeX.

    Args:
        table: the table.
        path: where to, without extension.
        numbers: the form of numbers in LaTeX.
    """
    table.to_csv(path.with_name(f"{path.name}.csv"), index=False)
    path.with_name(f"{path.name}.tex").write_text(latex(table, numbers), encoding="utf-8")
