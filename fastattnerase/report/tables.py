"""Tables as files: CSV for programs, LaTeX for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastattnerase.extras import needs

with needs("report"):
    import pandas as pd


# What LaTeX reads otherwise, in the order of replacement: the backslash first and last.
_BACKSLASH = "\0"
_ESCAPES = (
    ("\\", _BACKSLASH),
    (f"{_BACKSLASH} ", f"{_BACKSLASH}\\space "),
    *((letter, f"\\{letter}") for letter in "&%$#_{}"),
    ("~ ", "~\\space "),
    ("~", "\\textasciitilde "),
    ("^ ", "^\\space "),
    ("^", "\\textasciicircum "),
    (_BACKSLASH, "\\textbackslash "),
)


def latex(table: pd.DataFrame, numbers: str = "%.4g") -> str:
    """Write a table in LaTeX with the rules of booktabs; missing numbers are dashes.

    The same as `DataFrame.to_latex`, which fills templates and takes longer.

    Args:
        table: the table; its index is not written.
        numbers: the form of numbers that are not whole.

    Returns:
        The `tabular`.

    Example:
        >>> import pandas as pd
        >>> from fastattnerase.report.tables import latex
        >>> latex(pd.DataFrame({"share_%": [0.25, None]})).splitlines()[2:6]
        ['share\\\\_\\\\% \\\\\\\\', '\\\\midrule', '0.25 \\\\\\\\', '-- \\\\\\\\']
    """

    def written(cell: Any) -> str:
        if isinstance(cell, str):
            return _escaped(cell)
        if pd.isna(cell):
            return "--"
        return numbers % cell if isinstance(cell, float) else str(cell)

    columns = [table.iloc[:, place] for place in range(table.shape[1])]
    sides = "".join("r" if pd.api.types.is_numeric_dtype(column) else "l" for column in columns)
    rows = zip(*(map(written, column) for column in columns), strict=True)
    lines = [
        f"\\begin{{tabular}}{{{sides}}}",
        "\\toprule",
        *([" & ".join(map(written, table.columns)) + r" \\"] if columns else []),
        "\\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    for found, instead in _ESCAPES:
        text = text.replace(found, instead)
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
