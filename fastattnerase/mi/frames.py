"""Tables of a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastattnerase.extras import needs

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # imported where they are used; hints that are read at run time say Any
    DataFrame = Any


def frame(content: dict[str, Any] | list[dict[str, Any]]) -> DataFrame:
    """Make a data frame of columns or of rows."""
    with needs("text"):
        import pandas as pd
    return pd.DataFrame(content)
