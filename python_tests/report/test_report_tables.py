"""Tables in LaTeX: what pandas writes of them, which takes longer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fastattnerase.report.tables import latex

TABLES = {
    "kinds": pd.DataFrame(
        {
            "model_name": ["a & b", "50 % of $x_{1}$", "C:\\\\ x~ y~z ^ ^2 #"],
            "whole": [1, -2, 300_000],
            "share": [0.123456, np.nan, np.inf],
            "missing": [1, None, 2],
            "told": [True, False, True],
            "mixed": [0.5, None, "never"],
            "integers": pd.array([1, None, 3], dtype="Int64"),
        }
    ),
    "no row": pd.DataFrame({"a": [], "b_%": []}),
    "no column": pd.DataFrame(),
    "one": pd.DataFrame({"é": ["–"]}),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("numbers", ["%.4g", "%.1f"])
def test_latex_is_that_of_pandas(name: str, numbers: str) -> None:
    table = TABLES[name]
    expected = table.to_latex(index=False, escape=True, na_rep="--", float_format=numbers)
    assert latex(table, numbers) == expected
