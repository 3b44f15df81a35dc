"""The tables of the study, from the files of its units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastattnerase.attention_tests.bins import BINS, bin_of
from fastattnerase.attention_tests.correlation import PAIRS
from fastattnerase.data.prepared import PreparedData
from fastattnerase.extras import needs
from fastattnerase.studies.jain_wallace.cells import RULES, Cells, Trained
from fastattnerase.studies.jain_wallace.claims import claims
from fastattnerase.studies.jain_wallace.options import Cell
from fastattnerase.studies.jain_wallace.paper import data_set, performance, tau

with needs("report"):
    import pandas as pd

Floats = NDArray[np.float64]
LEVEL = 0.05  # a tau of at most this p-value is significant
ALL = "all"
_MOST_CLASSES = 3  # with more, all documents are one group, as in the paper
NONE = "no document"  # why there is no mean
ONE = "one document"  # why there is no interval
_ERRORS = 1.96  # standard errors of a 95 % interval


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        name: Name of its files.
        title: Title on the page.
        frame: The table.
        shown: From a column on the page and in LaTeX to its head there.
        note: What a reader must know.
    """

    name: str
    title: str
    frame: pd.DataFrame
    shown: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True)
class Found:
    """What the units found of one model.

    Attributes:
        cell: The model.
        classes: Names of its classes.
        taus: A row for each document and pair of importances.
        permuted: A row for each document.
        adversaries: A row for each document that was looked at.
        permutations: Number of permutations of each document.
    """

    cell: Cell
    classes: tuple[str, ...]
    taus: pd.DataFrame
    permuted: pd.DataFrame
    adversaries: pd.DataFrame
    permutations: int

    def groups(self, frame: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
        """Cut documents by predicted class: its number, its name, and the rows; then all."""
        if len(self.classes) <= _MOST_CLASSES:
            for number, name in enumerate(self.classes):
                yield str(number), name, frame[frame["predicted"] == number]
        yield ALL, ALL, frame


@dataclass(frozen=True)
class Tables:
    """Everything the report shows.

    Attributes:
        found: What each model's units found.
        titles: Names of the data sets.
        tables: The tables.
    """

    found: list[Found]
    titles: dict[str, str]
    tables: list[Table] = field(default_factory=list)

    def frame(self, name: str) -> pd.DataFrame:
        """Give a table by its name."""
        return next(table.frame for table in self.tables if table.name == name)


def collect(workspace: Cells) -> Tables:
    """Read what a finished study found, and make its tables.

    Args:
        workspace: the study; at least one of its cells is finished.

    Returns:
        The tables.
    """
    found = [
        Found(
            cell,
            workspace.trained(cell).classes,
            workspace.found(cell, "correlation"),
            workspace.found(cell, "permutation"),
            workspace.found(cell, "adversary"),
            workspace.asked(cell, "permutation")["permutations"],
        )
        for cell in workspace.finished()
    ]
    about = {name: workspace.data(name) for name in dict.fromkeys(x.cell.dataset for x in found)}
    tables = Tables(found, {name: own.title for name, own in about.items()})
    models = pd.DataFrame([_model(workspace, one.cell) for one in found])
    correlations = pd.DataFrame([row for one in found for row in _correlations(one)])
    comparisons = pd.DataFrame([row for one in found for row in _comparisons(one)])
    permutations = pd.DataFrame([row for one in found for row in _permutations(one)])
    adversaries = pd.DataFrame([row for one in found for row in _adversaries(one)])
    judged = claims(models, correlations, permutations, adversaries)
    model = {"dataset": "Data", "encoder": "Encoder", "attention": "Attention", "seed": "Seed"}
    tables.tables.extend(
        [
            Table(
                "claims",
                "Statements",
                pd.DataFrame([vars(claim) for claim in judged]),
                {"text": "Statement", "verdict": "Verdict", "paper": "Paper", "here": "Here"},
            ),
            Table(
                "table_1",
                "Table 1: data",
                pd.DataFrame([_data(name, own) for name, own in about.items()]),
                {
                    "title": "Data", "words": "Words", "words_published": "published",
                    "mean_length": "Mean length", "train": "Train by class",
                    "test": "Test by class", "test_published": "published", "note": "Note",
                },
                "Published: words of the vocabulary and test documents of the released data.",
            ),
            Table(
                "table_2",
                "Table 2: tau of attention with gradients and leave-one-out",
                _table_2(correlations),
                _TABLE_2_HEADS,
                "Additive attention; mean ± deviation over the test documents of a predicted class "
                "and, in brackets, Sig. frac., the share with p ≤ .05; the published ones below. "
                "Mean over the seeds.",
            ),
            Table(
                "models",
                "Models",
                models,
                model | {
                    "accuracy": "Accuracy", "accuracy_published": "published", "f1": "F1",
                    "f1_published": "published", "auc": "AUC", "auc_published": "published",
                    "best_epoch": "Epoch", "undefined": "Undefined",
                },
                "Published: the released results of BiLSTM and additive attention.",
            ),
            Table(
                "correlations",
                "Taus of every encoder and attention",
                correlations,
                model | {
                    "pair": "Tau of", "class": "Predicted", "documents": "Documents",
                    "mean": "Mean", "mean_published": "published", "deviation": "Deviation",
                    "significant": "Sig. frac.", "significant_published": "published",
                    "significant_code": "Sig. frac. (code)", "undefined": "Undefined",
                },
                "Undefined taus are left out of mean, deviation and Sig. frac.; the published code "
                "counts them as not significant. Deviations are of the population.",
            ),
            Table(
                "comparisons",
                "Figures 3 and 4: tau of gradient and leave-one-out against those of attention",
                comparisons,
                model | {
                    "other": "Less tau of", "documents": "Documents", "difference": "Difference",
                    "low": "95 % from", "high": "to", "undefined": "Undefined",
                },
                "Mean over documents of tau of gradient and leave-one-out less the tau that is "
                "named; above 0, the two importances agree more with each other than with "
                "attention.",
            ),
            Table(
                "permutations",
                "Figure 6: permuted attention",
                permutations,
                model | {
                    "class": "Predicted", "largest_weight": "Largest weight",
                    "documents": "Documents", "median": "Median difference", "low": "Quartiles",
                    "high": "", "flips": "Flips",
                },
                "Of each document the median over its permutations of the difference of outputs, "
                "½ Σ|p − p′|; then the median over documents. Flips: share of permutations with "
                "another decision.",
            ),
            Table(
                "adversaries",
                "Figures 7 and 8: adversarial attention",
                adversaries,
                model | {
                    "class": "Predicted", "largest_weight": "Largest weight",
                    "documents": "Documents", "jsd_code": "JSD (code)",
                    "none_code": "None (code)", "jsd_paper": "JSD (paper)",
                    "none_paper": "None (paper)",
                },
                "Largest Jensen-Shannon divergence from the model’s attention, at most ln 2 = "
                ".693, of weights whose output differs by at most .05 (code), or .01 and with a "
                "query .05 (paper): mean over documents. None: share of documents whose own "
                "attention alone keeps to that.",
            ),
        ]
    )  # fmt: skip
    return tables


def _data(name: str, about: PreparedData) -> dict[str, Any]:
    """Describe a data set beside the published one."""
    published = data_set(name)

    def counts(split: str) -> str:
        return "/".join(str(n) for n in about.documents[split].values())

    note = "; ".join(text for text in (published.note, about.note) if text)
    return {
        "dataset": name,
        "title": about.title,
        "words": about.words,
        "words_published": published.words,
        "mean_length": about.mean_length,
        "train": counts("train"),
        "dev": counts("dev"),
        "test": counts("test"),
        "test_published": published.test,
        "note": note,
    }


def _model(workspace: Cells, cell: Cell) -> dict[str, Any]:
    """Describe a trained model beside the published one."""
    trained = workspace.trained(cell)
    row = {**vars(cell)}
    for name in ("accuracy", "f1", "auc"):
        published = performance(data_set(cell.dataset).name, cell.encoder, cell.attention, name)
        row |= {
            name: getattr(trained, name),
            f"{name}_published": published.value,
            f"{name}_source": published.source,
        }
    return row | {
        "majority": trained.majority,
        "dev_accuracy": trained.dev_accuracy,
        "best_epoch": trained.best_epoch,
        "epochs": trained.epochs,
        "vectors_found": trained.vectors_found,
        "undefined": _missing(trained),
    }


def _missing(trained: Trained) -> str:
    """Say why a model has no F1 or AUC."""
    if len(trained.classes) > 2:
        return "F1, AUC: more than two classes"
    return "AUC: one class in test" if trained.auc is None else ""


def summary(taus: Floats, ps: Floats) -> dict[str, float]:
    """Summarise taus [N], NaN where undefined, with their p-values.

    Returns:
        `documents`, `mean`, population `deviation`, `significant` (of those that are defined),
        `significant_code` (of all).

    Example:
        >>> import numpy as np
        >>> found = summary(np.array([0.5, 0.3, np.nan, 0.1]), np.array([0.01, 0.05, np.nan, 0.5]))
        >>> [round(value, 3) for value in found.values()]
        [4, 0.3, 0.163, 0.667, 0.5]
    """
    known = ~np.isnan(taus)
    counted = int(((ps <= LEVEL) & known).sum())
    some = bool(known.any())
    return {
        "documents": len(taus),
        "mean": float(taus[known].mean()) if some else math.nan,
        "deviation": float(taus[known].std()) if some else math.nan,
        "significant": counted / int(known.sum()) if some else math.nan,
        "significant_code": counted / len(taus) if len(taus) else math.nan,
    }


def _correlations(found: Found) -> Iterator[dict[str, Any]]:
    """Summarise the taus of a model by pair and predicted class."""
    cell = found.cell
    for pair in PAIRS:
        own = found.taus[found.taus["pair"] == pair]
        for predicted, name, rows in found.groups(own):
            numbers = summary(rows["tau"].to_numpy(float), rows["p"].to_numpy(float))
            reasons = rows["reason"][rows["reason"] != ""].value_counts().sort_index()
            row = {**vars(cell), "pair": pair, "predicted": predicted, "class": name, **numbers}
            row["undefined"] = "; ".join(f"{n}: {why}" for why, n in reasons.items())
            if not len(rows):
                row["undefined"] = NONE
            for number in ("mean", "deviation", "significant"):
                published = tau(
                    data_set(cell.dataset).name, cell.encoder, cell.attention, pair, predicted,
                    number,
                )  # fmt: skip
                row |= {
                    f"{number}_published": published.value,
                    f"{number}_source": published.source,
                }
            yield row


def _comparisons(found: Found) -> Iterator[dict[str, Any]]:
    """Compare tau(gradient, leave-one-out) with both taus of attention, document by document."""
    taus = found.taus.pivot(index="row", columns="pair", values="tau").reindex(columns=PAIRS)
    for other in ("attention_loo", "attention_gradient"):
        both = (taus["gradient_loo"] - taus[other]).dropna().to_numpy(float)
        mean = float(both.mean()) if len(both) else math.nan
        error = float(both.std(ddof=1)) / math.sqrt(len(both)) if len(both) > 1 else math.nan
        yield {
            **vars(found.cell),
            "other": other,
            "documents": len(both),
            "difference": mean,
            "low": mean - _ERRORS * error,
            "high": mean + _ERRORS * error,
            "undefined": NONE if not len(both) else ONE if len(both) == 1 else "",
        }


def _binned(found: Found, frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Cut documents by predicted class and by the largest weight; groups without any are left."""
    for predicted, name, rows in found.groups(frame):
        place = bin_of(rows["largest_weight"].to_numpy(float))
        for number, text in [*enumerate(BINS), (-1, ALL)]:
            chosen = rows if number < 0 else rows[place == number]
            if len(chosen):
                head = {**vars(found.cell), "predicted": predicted, "class": name}
                yield head | {"largest_weight": text, "documents": len(chosen)}, chosen


def _permutations(found: Found) -> Iterator[dict[str, Any]]:
    for head, rows in _binned(found, found.permuted):
        low, median, high = np.quantile(rows["median_tvd"].to_numpy(float), [0.25, 0.5, 0.75])
        yield head | {
            "median": float(median),
            "low": float(low),
            "high": float(high),
            "flips": float(rows["flips"].mean()) / found.permutations,
        }


def _adversaries(found: Found) -> Iterator[dict[str, Any]]:
    for head, rows in _binned(found, found.adversaries):
        for rule in RULES:
            jsd = rows[f"jsd_{rule}"].to_numpy(float)
            head |= {
                f"jsd_{rule}": float(jsd.mean()),
                f"jsd_{rule}_median": float(np.median(jsd)),
                f"tvd_{rule}": float(rows[f"tvd_{rule}"].mean()),
                f"none_{rule}": float((rows[f"admissible_{rule}"] == 0).mean()),
            }
        yield head


# The columns of Table 2: encoder, pair.
TABLE_2 = {
    "gradient_bilstm": ("bilstm", "attention_gradient"),
    "gradient_mlp": ("mlp", "attention_gradient"),
    "loo_bilstm": ("bilstm", "attention_loo"),
}
_NUMBERS = ("mean", "deviation", "significant")
_TABLE_2_HEADS = {
    "dataset": "Data",
    "class": "Predicted",
    "gradient_bilstm": "Gradient, BiLSTM",
    "gradient_bilstm_published": "published",
    "gradient_mlp": "Gradient, MLP",
    "gradient_mlp_published": "published",
    "loo_bilstm": "Leave-one-out, BiLSTM",
    "loo_bilstm_published": "published",
}


def _table_2(correlations: pd.DataFrame) -> pd.DataFrame:
    """Lay the taus of additive attention out as Table 2 of the paper does."""
    additive = correlations[correlations["attention"] == "additive"]
    rows = []
    for (dataset, predicted), own in additive.groupby(["dataset", "predicted"], sort=False):
        if predicted == ALL and len(own) < len(additive[additive["dataset"] == dataset]):
            continue  # there are rows by class
        row = {"dataset": dataset, "class": own["class"].iloc[0]}
        for column, (encoder, pair) in TABLE_2.items():
            cells = own[(own["encoder"] == encoder) & (own["pair"] == pair)]
            for suffix in ("", "_published"):
                numbers = [_mean(cells[f"{n}{suffix}"]) for n in _NUMBERS]
                row[f"{column}{suffix}"] = written(*numbers)
            if len(cells) and math.isnan(_mean(cells["mean"])):
                row[column] = "; ".join(dict.fromkeys(cells["undefined"]))
        rows.append(row)
    return pd.DataFrame(rows, columns=list(_TABLE_2_HEADS))


def _mean(values: pd.Series) -> float:
    known = values.dropna()
    return float(known.mean()) if len(known) else math.nan


def written(mean: float, deviation: float, significant: float) -> str:
    """Write a tau as Table 2 does.

    Example:
        >>> written(0.344, 0.21, 0.48), written(math.nan, math.nan, math.nan)
        ('0.34 ± 0.21 (0.48)', '–')
    """
    return "–" if math.isnan(mean) else f"{mean:.2f} ± {deviation:.2f} ({significant:.2f})"
