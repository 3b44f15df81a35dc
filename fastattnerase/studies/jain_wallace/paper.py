"""What Jain and Wallace (2019) report, number by number, and a row for each data set of the study.

`Table 2` is the paper's. `released` are the tables that were released with its code, which Table 2
equals where both have a number; `data sets` counts documents as Table 1 does, of the released data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NAN = math.nan

# Mean, deviation and Sig. frac. of tau by data set and predicted class: attention with the gradient
# of the BiLSTM, with that of the MLP (`average`), and with leave-one-out of the BiLSTM.
_TABLE_2 = {
    ("SST", "0"): ((0.34, 0.21, 0.48), (0.61, 0.20, 0.87), (0.27, 0.19, 0.33)),
    ("SST", "1"): ((0.36, 0.21, 0.49), (0.60, 0.21, 0.83), (0.32, 0.19, 0.40)),
    ("IMDB", "0"): ((0.44, 0.06, 1.00), (0.67, 0.05, 1.00), (0.34, 0.07, 1.00)),
    ("IMDB", "1"): ((0.43, 0.06, 1.00), (0.68, 0.05, 1.00), (0.34, 0.07, 0.99)),
    ("ADR", "0"): ((0.47, 0.18, 0.76), (0.73, 0.13, 0.96), (0.29, 0.20, 0.44)),
    ("ADR", "1"): ((0.49, 0.15, 0.85), (0.72, 0.12, 0.97), (0.44, 0.16, 0.74)),
    ("20News", "0"): ((0.07, 0.17, 0.37), (0.79, 0.07, 1.00), (0.06, 0.15, 0.29)),
    ("20News", "1"): ((0.21, 0.22, 0.61), (0.75, 0.08, 1.00), (0.20, 0.20, 0.62)),
    ("AG News", "0"): ((0.36, 0.13, 0.82), (0.78, 0.07, 1.00), (0.30, 0.13, 0.69)),
    ("AG News", "1"): ((0.42, 0.13, 0.90), (0.76, 0.07, 1.00), (0.43, 0.14, 0.91)),
    ("Diabetes", "0"): ((0.42, 0.05, 1.00), (0.75, 0.02, 1.00), (0.41, 0.05, 1.00)),
    ("Diabetes", "1"): ((0.40, 0.05, 1.00), (0.75, 0.02, 1.00), (0.45, 0.05, 1.00)),
    ("Anemia", "0"): ((0.47, 0.05, 1.00), (0.77, 0.02, 1.00), (0.46, 0.05, 1.00)),
    ("Anemia", "1"): ((0.46, 0.06, 1.00), (0.77, 0.03, 1.00), (0.47, 0.06, 1.00)),
    ("CNN", "all"): ((0.24, 0.07, 0.99), (0.50, 0.10, 1.00), (0.20, 0.07, 0.98)),
    ("bAbI 1", "all"): ((0.25, 0.16, 0.55), (0.72, 0.12, 0.99), (0.16, 0.14, 0.28)),
    ("bAbI 2", "all"): ((-0.02, 0.14, 0.27), (0.68, 0.06, 1.00), (-0.01, 0.13, 0.27)),
    ("bAbI 3", "all"): ((0.24, 0.11, 0.87), (0.61, 0.13, 1.00), (0.26, 0.10, 0.89)),
    ("SNLI", "0"): ((0.31, 0.23, 0.36), (0.59, 0.18, 0.80), (0.16, 0.26, 0.20)),
    ("SNLI", "1"): ((0.33, 0.21, 0.38), (0.58, 0.19, 0.80), (0.36, 0.19, 0.44)),
    ("SNLI", "2"): ((0.31, 0.21, 0.36), (0.57, 0.19, 0.80), (0.34, 0.20, 0.40)),
}
_COLUMNS = (
    ("bilstm", "additive", "attention_gradient"),
    ("mlp", "additive", "attention_gradient"),
    ("bilstm", "additive", "attention_loo"),
)
_NUMBERS = ("mean", "deviation", "significant")
# Tau of gradient and leave-one-out, BiLSTM and additive attention, all classes.
_GRADIENT_LOO = {
    "SST": 0.66, "IMDB": 0.52, "20News": 0.53, "AG News": 0.61, "ADR": 0.48, "Diabetes": 0.51,
    "Anemia": 0.68, "CNN": 0.54, "bAbI 1": 0.50, "bAbI 2": 0.44, "bAbI 3": 0.50, "SNLI": 0.24,
}  # fmt: skip
# Tau of attention and gradient, BiLSTM and dot attention, all classes.
_DOT = {"SST": 0.07, "IMDB": 0.12, "ADR": -0.12}
# F1 of class 1, accuracy and AUC of BiLSTM and additive attention on test.
_PERFORMANCE = {
    "SST": (0.784, 0.808, 0.902),
    "IMDB": (0.896, 0.898, 0.960),
    "20News": (0.917, 0.922, 0.978),
    "AG News": (0.958, 0.958, 0.990),
    "ADR": (0.569, 0.862, 0.899),
    "Diabetes": (0.754, 0.881, 0.938),
    "Anemia": (0.923, 0.906, 0.974),
    "SNLI": (NAN, 0.779, NAN),
    "CNN": (NAN, 0.644, NAN),
    "bAbI 1": (NAN, 1.00, NAN),
    "bAbI 2": (NAN, 0.653, NAN),
    "bAbI 3": (NAN, 0.643, NAN),
}
# Accuracies of the other encoders on bAbI, additive attention.
_BABI = {
    "mlp": {"bAbI 1": 0.436, "bAbI 2": 0.167, "bAbI 3": 0.320},
    "cnn": {"bAbI 1": 0.887, "bAbI 2": 0.333, "bAbI 3": 0.294},
}
# Words of the vocabulary, and test documents by class.
_DATA = {
    "SST": (13826, "863/862"),
    "IMDB": (12487, "2184/2172"),
    "ADR": (6845, "3636/487"),
    "20News": (6515, "179/178"),
    "AG News": (13715, "1900/1898"),
    "Anemia": (16274, "460/802"),
    "Diabetes": (18888, "1296/319"),
    "SNLI": (20981, ""),
    "bAbI 1": (24, ""),
    "bAbI 2": (38, ""),
    "bAbI 3": (39, ""),
    "CNN": (70190, ""),
}


@dataclass(frozen=True)
class Published:
    """A published number and where it stands.

    Attributes:
        value: As printed; NaN where there is none.
        source: Its table, row and column; empty where there is none.
    """

    value: float = NAN
    source: str = ""


NOTHING = Published()


def _cells() -> dict[tuple[str, str, str, str, str, str], Published]:
    """List every published tau: data set, encoder, attention, pair, class, which number."""
    found = {}
    for (row, predicted), columns in _TABLE_2.items():
        for (encoder, attention, pair), values in zip(_COLUMNS, columns, strict=True):
            for name, value in zip(_NUMBERS, values, strict=True):
                source = f"Table 2, {row} {predicted}, {pair.replace('_', ' ')}, {encoder}, {name}"
                key = (row, encoder, attention, pair, predicted, name)
                found[key] = Published(value, source)
    for row, value in _GRADIENT_LOO.items():
        key = (row, "bilstm", "additive", "gradient_loo", "all", "mean")
        found[key] = Published(value, f"released, {row}, gradient loo, bilstm")
    for row, value in _DOT.items():
        key = (row, "bilstm", "dot", "attention_gradient", "all", "mean")
        found[key] = Published(value, f"released, {row}, attention gradient, bilstm and dot")
    return found


TAUS = _cells()


def tau(
    row: str, encoder: str, attention: str, pair: str, predicted: str, name: str = "mean"
) -> Published:
    """Look a published tau up.

    Args:
        row: data set as the paper calls it.
        encoder: `bilstm`, `cnn` or `mlp`.
        attention: `additive` or `dot`.
        pair: `attention_gradient`, `attention_loo` or `gradient_loo`.
        predicted: class, or `all`.
        name: `mean`, `deviation` or `significant` (Sig. frac.).

    Example:
        >>> tau("SST", "mlp", "additive", "attention_gradient", "0")
        Published(value=0.61, source='Table 2, SST 0, attention gradient, mlp, mean')
        >>> tau("SST", "cnn", "dot", "attention_gradient", "0").value
        nan
    """
    return TAUS.get((row, encoder, attention, pair, predicted, name), NOTHING)


def performance(row: str, encoder: str, attention: str, name: str) -> Published:
    """Look up `f1` of class 1, `accuracy` or `auc` of the released results.

    Example:
        >>> performance("SST", "bilstm", "additive", "accuracy").value
        0.808
    """
    value = NAN
    if attention == "additive" and encoder == "bilstm" and row in _PERFORMANCE:
        value = dict(zip(("f1", "accuracy", "auc"), _PERFORMANCE[row], strict=True))[name]
    elif attention == "additive" and name == "accuracy":
        value = _BABI.get(encoder, {}).get(row, NAN)
    return NOTHING if math.isnan(value) else Published(value, f"released, {row}, {encoder}, {name}")


@dataclass(frozen=True)
class DataSet:
    """A data set of the study.

    Attributes:
        name: The paper's; empty where it has none.
        note: How it differs from the paper's of that name; empty where it does not.
        words: Words of the published vocabulary, that of the released code; None for none.
        test: Published test documents, class 0 and 1.
    """

    name: str = ""
    note: str = ""
    words: int | None = None
    test: str = ""


def _reported(name: str, note: str = "") -> DataSet:
    return DataSet(name, note, *_DATA[name])


# By the name of the preset in `data.presets`. Other presets have no published numbers.
DATA_SETS = {
    "sst": _reported("SST"),
    "imdb": _reported("IMDB"),
    "imdb_official": _reported("IMDB"),
    "imdb_5k": _reported("IMDB", "5,000 of the reviews"),
    "ag_news": _reported("AG News", "rows of the official test file"),
    "ag_news_official": _reported("AG News"),
    "20news_sports": _reported("20News", "another split"),
    "psytar": _reported("ADR", "posts about drugs in place of the tweets"),
    "adr": _reported("ADR"),
    "anemia": _reported("Anemia"),
    "diabetes": _reported("Diabetes"),
    "snli": _reported("SNLI"),
    "babi_1": _reported("bAbI 1", "1,000 questions"),
    "babi_2": _reported("bAbI 2", "1,000 questions"),
    "babi_3": _reported("bAbI 3", "1,000 questions"),
    "cnn": _reported("CNN"),
}


def data_set(name: str) -> DataSet:
    """Look a data set up; one that the paper says nothing of has no numbers.

    Example:
        >>> data_set("sst").name, data_set("my_own").name
        ('SST', '')
    """
    return DATA_SETS.get(name, DataSet())
