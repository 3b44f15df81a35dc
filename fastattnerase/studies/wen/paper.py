"""What Wen, Subbalakshmi and Yang (2022) report, and a row for each data set of the studies."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

NAN = math.nan

# Every number of the paper that is used here, as printed, by its table, row and column. Sentences
# about the paper take theirs from here.
_TABLE_1 = {
    "SST": (16175, 19, 0.82),
    "IMDB": (13916, 179, 0.90),
    "ADR": (8686, 20, 0.86),
    "20News": (8853, 115, 0.92),
    "AG News": (14752, 36, 0.96),
    "Diabetes": (22316, 1858, 0.89),
    "Anemia": (19743, 2188, 0.91),
    "bAbI 1": (40, 8, 0.98),
    "bAbI 2": (40, 67, 0.74),
    "bAbI 3": (40, 421, 0.57),
    "SNLI": (20982, 14, 0.78),
}
_TABLE_2 = {
    "SST": (0.71, -0.02),
    "IMDB": (0.16, -0.01),
    "AG News": (0.75, -0.07),
    "ADR": (0.30, 0.00),
    "20News": (1.32, -0.07),
    "Anemia": (0.97, -0.01),
    "Diabetes": (1.23, -0.01),
    "bAbI 1": (1.70, -0.02),
    "bAbI 2": (1.22, -0.06),
    "bAbI 3": (0.66, 0.00),
    "SNLI": (0.07, -0.05),
}
_TABLE_3 = {
    "SST": (5.25e-4, 0.82, 0.036, 0.316),
    "IMDB": (8e-4, 0.90, 0.021, 0.482),
    "AG News": (5e-4, 0.96, 0.009, 0.664),
    "ADR": (5e-4, 0.87, 0.001, 0.194),
    "20News": (5e-4, 0.90, 0.037, 0.391),
    "Anemia": (5e-4, 0.91, 0.020, 0.384),
    "Diabetes": (2e-4, 0.89, 0.021, 0.464),
}
_TABLE_4 = {
    "SST": (0.04,),
    "IMDB": (0.08,),
    "AG News": (0.05,),
    "ADR": (0.02,),
    "20News": (0.09,),
    "Anemia": (0.02,),
    "Diabetes": (0.05,),
}
_TABLE_5 = {
    "classification": (20, 19, 20, 59, 21, 63),
    "QA": (6, 6, 8, 20, 9, 27),
    "NLI": (2, 1, 3, 6, 3, 9),
}
_SECTION_5 = {
    "all encoders": {"additive": 0.80, "deep": 0.74, "dot": 0.45},
    "bilstm": {"additive": 0.92, "deep": 0.80},
    "cnn": {"additive": 0.88, "deep": 0.83},
    "repeats": {"mean difference": 0.02, "largest difference": 0.05},
}
_ROWS: dict[str, dict[str, tuple[float, ...]]] = {
    "Table 1": {**_TABLE_1},
    "Table 2": {**_TABLE_2},
    "Table 3": {**_TABLE_3},
    "Table 4": {**_TABLE_4},
    "Table 5": {**_TABLE_5},
}
_COLUMNS = {
    "Table 1": ("words", "length", "accuracy"),
    "Table 2": ("Fix Attn", "Fix Rep"),
    "Table 3": ("strength", "accuracy", "tvd", "jsd"),
    "Table 4": ("delta",),
    "Table 5": ("deep", "dot", "additive", "all", "models of each", "models of all"),
}
CELLS: dict[tuple[str, str, str], float] = {
    (table, row, column): value
    for table, columns in _COLUMNS.items()
    for row, values in _ROWS[table].items()
    for column, value in zip(columns, values, strict=True)
} | {
    ("section 5", row, column): value
    for row, texts in _SECTION_5.items()
    for column, value in texts.items()
}


def number(table: str, row: str, column: str) -> float:
    """Look a number of the paper up; NaN where it has none.

    Example:
        >>> number("Table 2", "SNLI", "Fix Attn"), number("Table 4", "SNLI", "delta")
        (0.07, nan)
    """
    return CELLS.get((table, row, column), NAN)


def column(table: str, name: str) -> dict[str, float]:
    """Give a column of one of the paper's tables, by row.

    Example:
        >>> max(column("Table 4", "delta").values())
        0.09
    """
    return {row: value for (of, row, own), value in CELLS.items() if (of, own) == (table, name)}


def ends(values: Iterable[float], digits: int = 2) -> str:
    """Write the smallest and the largest of some numbers of the paper: `0.07 to 1.70`.

    Example:
        >>> ends([0.3, 0.07])
        '0.07 to 0.30'
    """
    numbers = sorted(values)
    return f"{numbers[0]:.{digits}f} to {numbers[-1]:.{digits}f}"


@dataclass(frozen=True)
class Adversary:
    """What the paper reports of an adversary, tables 3 and 4.

    Attributes:
        accuracy: Test accuracy.
        tvd: Total variation distance of the outputs, by the published code half of it.
        jsd: Jensen-Shannon divergence of the attention distributions, nats.
        delta: Weighted tau of the normal model less the adversary's.
    """

    accuracy: float = NAN
    tvd: float = NAN
    jsd: float = NAN
    delta: float = NAN


@dataclass(frozen=True)
class DataSet:
    """A data set of the studies with the paper's numbers for it; NaN where there are none.

    Attributes:
        name: The paper's; empty where it has none.
        accuracy: Test accuracy of BiLSTM with additive attention, table 1.
        delta_fix_attention: Fall of weighted tau with fixed attention, table 2.
        delta_fix_representation: Fall of weighted tau with fixed representations, table 2.
        adversary: The adversary on it.
        strength: λ, the weight of the adversary's divergence, as published; None for none.
        needed: Least accuracy of a seed that agrees with the paper's, given narrower word vectors
            and another split; NaN where none is asked for.
    """

    name: str = ""
    accuracy: float = NAN
    delta_fix_attention: float = NAN
    delta_fix_representation: float = NAN
    adversary: Adversary = field(default_factory=Adversary)
    strength: float | None = None
    needed: float = NAN


def _reported(name: str, needed: float = NAN) -> DataSet:
    """Collect the paper's numbers for one of its data sets."""
    accuracy, tvd, jsd = (number("Table 3", name, own) for own in ("accuracy", "tvd", "jsd"))
    strength = number("Table 3", name, "strength")
    return DataSet(
        name,
        number("Table 1", name, "accuracy"),
        number("Table 2", name, "Fix Attn"),
        number("Table 2", name, "Fix Rep"),
        Adversary(accuracy, tvd, jsd, number("Table 4", name, "delta")),
        strength=None if math.isnan(strength) else strength,
        needed=needed,
    )


# By the name of the preset in `data.presets`. Other presets have no published numbers.
DATA_SETS = {
    "sst": _reported("SST", needed=0.78),
    "imdb": _reported("IMDB"),
    "imdb_5k": _reported("IMDB"),  # a part of IMDB, with the numbers of the whole
    "ag_news": _reported("AG News", needed=0.90),
    "20news_sports": _reported("20News", needed=0.85),
    "psytar": _reported("ADR"),  # posts about drugs, with the numbers of the paper's tweets
    "snli": _reported("SNLI", needed=0.50),
    **{f"babi_{task}": _reported(f"bAbI {task}") for task in (1, 2, 3)},
}

# Mean weighted tau over the paper's data sets by encoder (empty: all three) and attention.
MEANS = {
    ("" if encoder == "all encoders" else encoder, attention): value
    for encoder, values in _SECTION_5.items()
    if encoder != "repeats"
    for attention, value in values.items()
}

# Share of the models whose weighted tau Gumbel-softmax does not lower, table 5: of classification,
# and, with the task beside the attention, of questions and inference.
GUMBEL = {
    attention: number("Table 5", "classification", attention)
    / number(
        "Table 5", "classification", "models of all" if attention == "all" else "models of each"
    )
    for attention in ("additive", "deep", "dot", "all")
} | {
    f"{attention} ({task})": number("Table 5", task, attention)
    / number("Table 5", task, "models of all" if attention == "all" else "models of each")
    for task in ("QA", "NLI")
    for attention in ("additive", "deep", "dot", "all")
}


def data_set(name: str) -> DataSet:
    """Look a data set up; one that the paper says nothing of has no numbers.

    Example:
        >>> data_set("sst").accuracy, data_set("my_own").accuracy
        (0.82, nan)
    """
    return DATA_SETS.get(name, DataSet())
