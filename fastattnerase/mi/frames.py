"""Tables of a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastattnerase.extras import needs

if TYPE_CHECKING:
    import pandas as pd


def frame(content: dict[str, Any] | list[dict[str, Any]]) -> pd.DataFrame:
    """Make a data frame of columns or of rows."""
    with needs("text"):
        import pandas as pd
    return pd.DataFrame(content)
