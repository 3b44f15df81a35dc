"""The tables of Wen, Subbalakshmi and Yang (2022), from finished cells, beside the paper's."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastattnerase.studies.wen.options import ATTENTIONS, BEST, ENCODERS, Cell

# The paper's numbers, by the data set that stands for each here.
PAPER_ACCURACY = {
    "sst": 0.82, "imdb": 0.90, "imdb_5k": 0.90, "psytar": 0.86, "20news_sports": 0.92,
    "ag_news": 0.96,
}  # fmt: skip
PAPER_FIX = {  # delta tau of Fix Attn, of Fix Rep
    "sst": (0.71, -0.02), "imdb": (0.16, -0.01), "imdb_5k": (0.16, -0.01),
    "ag_news": (0.75, -0.07), "psytar": (0.30, 0.00), "20news_sports": (1.32, -0.07),
}  # fmt: skip
PAPER_ADVERSARY = {  # accuracy, TVD, JSD, delta tau
    "sst": (0.82, 0.036, 0.316, 0.04), "imdb": (0.90, 0.021, 0.482, 0.08),
    "imdb_5k": (0.90, 0.021, 0.482, 0.08), "ag_news": (0.96, 0.009, 0.664, 0.05),
    "psytar": (0.87, 0.001, 0.194, 0.02), "20news_sports": (0.90, 0.037, 0.391, 0.09),
}  # fmt: skip
PAPER_MEANS = {
    ("", "additive"): 0.80, ("", "deep"): 0.74, ("", "dot"): 0.45,
    ("bilstm", "additive"): 0.92, ("cnn", "additive"): 0.88, ("cnn", "deep"): 0.83,
    ("bilstm", "deep"): 0.80,
}  # fmt: skip
PAPER_GUMBEL = {"additive": 20 / 21, "deep": 20 / 21, "dot": 19 / 21}  # of classification models
NEEDED_ACCURACY = {"sst": 0.78, "20news_sports": 0.85, "ag_news": 0.90}

STATISTICS = {"weighted": "weighted_product", "weighted_sum": "weighted_sum", "plain": "kendall"}
ESTIMATORS = {"": "plug_in", "_corrected": "miller_madow"}
TAUS = ("weighted", "plain")  # the two that stand side by side everywhere
SAME = 1e-9  # a tau that falls by less has not fallen

FEW_RANKS = 5  # of four, even a tau of 1 has a two-sided p of 2/24
CHANCE_RULE = (
    "A tau is not different from chance where fewer than five ranks were measured (of four, even a "
    "tau of 1 has a two-sided p of 2/24), or where it lies within the 95 % interval of tau with "
    "outputs shuffled."
)

# The rules of `claims`; the paper's own numbers obey all of them. The paper repeats a fixed seed
# with differences of up to 0.05, which the two rules about falls allow for.
LEAST_FALL = 0.1  # of tau with fixed attention; the paper's least is 0.16
MOST_FALL = 0.05  # of tau with fixed representations; the paper's most is 0.00
LEAST_JSD = 0.19  # of an adversary's attention; the paper's least is 0.194
MOST_TVD = 0.074  # of its outputs; the paper's most is 0.037, half of it in the published code
MOST_MOVED = 0.09  # of its tau, up or down; the paper's most
LEAST_SHARE = 0.8  # of models whose tau Gumbel-softmax does not lower; the paper's is 0.94


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and in how many cases the numbers here agree.

    Attributes:
        text: the statement.
        rule: when a case agrees.
        paper: what the paper reports.
        here: what is found here.
        held: cases that agree.
        cases: models, seeds or cells that can tell; 0 where nothing can.
        cannot_tell: other cases: their premise does not hold, or tau is undefined, is chance before
            anything was changed, has too few ranks or no control.
        needed: the share of the cases that must agree.
        means: whether the means agree, of statements about means; their cases are the cells of
            which the means are.
    """

    text: str
    rule: str
    paper: str
    here: str
    held: int
    cases: int
    cannot_tell: int = 0
    needed: float = 1.0
    means: bool | None = None

    @property
    def agrees(self) -> str:
        """The verdict, as `verdicts` says; empty without any case that can tell."""
        if self.cases == 0:
            return ""
        if self.means is not None:
            return ("no", "partly", "yes")[self.means + (self.held > self.cases / 2)]
        if self.held >= self.needed * self.cases:
            return "yes"
        return "partly" if self.held else "no"

    @property
    def verdicts(self) -> str:
        """When the verdict is yes, partly or no; empty of what is no statement of the paper."""
        if not self.cases + self.cannot_tell:
            return ""
        if self.means is not None:
            return (
                "yes: the means agree, and more than half of the cells; partly: one of both; no: "
                "neither"
            )
        if self.needed < 1:
            return f"yes: at least {self.needed:.0%} of the cases; partly: fewer; no: none"
        return "yes: all cases; partly: some; no: none"

    def record(self) -> dict[str, Any]:
        """Give the row of `claims.csv`."""
        names = ("text", "rule", "verdicts", "paper", "here", "held", "cases", "cannot_tell",
                 "means", "needed", "agrees")  # fmt: skip
        return {name: getattr(self, name) for name in names}


def collect(results: dict[Cell, dict[str, Any]], out: Path) -> dict[str, pd.DataFrame]:
    """Make every table from the finished cells of a study.

    Args:
        results: the cells' results.
        out: the study's folder.

    Returns:
        By name: `measurements` (a row for each cell and measurement: accuracy, attention, the
        choice of ranks and clusters, the share of clusters with a single state, weighted and plain
        tau, the interval of tau with outputs shuffled, and whether tau is chance),
        `curves` (information and attention of every rank), `figure_2`, `means`, `order` and
        `highest` (the paper's order of attentions and its best combination, cell by cell),
        `accuracy`, `table_2`, `table_3`, `table_4`, `table_5`, `gumbel`. A table without rows has
        no columns. `largest_weight` is the mean weight of rank 1, of the instances measured;
        `entropy_share` is known where a model's own softmax makes the weights, and empty for given
        weights and Gumbel-softmax. A tau is not different from chance (`…_chance`) where fewer than
        five ranks were measured (of four, even a tau of 1 has a two-sided p of 2/24), or where it
        lies within the 95 % interval of tau with outputs shuffled.

    Example:
        >>> from pathlib import Path
        >>> sorted(collect({}, Path("runs/wen")))[:3]
        ['accuracy', 'curves', 'figure_2']
    """
    rows: list[dict[str, Any]] = []
    curves: list[pd.DataFrame] = []
    for cell, result in results.items():
        for name, found in result["measurements"].items():
            row, curve = _measurement(cell, name, result, found, out)
            rows.append(row)
            if curve is not None:
                curves.append(curve)
    table = pd.DataFrame(rows)
    tables = {
        "measurements": table,
        "curves": pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(),
    }
    for name in ("figure_2", "means", "order", "highest", "accuracy", "table_2", "table_3",
                 "table_4", "gumbel", "table_5"):  # fmt: skip
        tables[name] = pd.DataFrame()
    if rows:
        grid = table[
            (table["variant"] == "normal") & table["mechanism"].isin(["softmax", "sparsemax"])
        ]
        tables["figure_2"] = _figure_2(grid)
        softmax = grid[grid["mechanism"] == "softmax"]
        tables["means"] = _means(softmax)
        tables["order"] = _order(softmax)
        tables["highest"] = _highest(softmax)
        tables["accuracy"] = _accuracy(softmax)
        tables["table_2"] = _fix(table)
        tables["table_3"], tables["table_4"] = _adversary(table)
        tables["gumbel"] = _gumbel(table)
        tables["table_5"] = _table_5(tables["gumbel"])
    return tables


def _measurement(
    cell: Cell, name: str, result: dict[str, Any], found: dict[str, Any], out: Path
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    from fastattnerase import mi

    row: dict[str, Any] = {
        "dataset": cell.dataset,
        "encoder": cell.encoder,
        "attention": cell.attention,
        "mechanism": cell.mechanism,
        "variant": cell.variant,
        "seed": cell.seed,
        "measurement": name,
        "accuracy": found["accuracy"],
        "f1": result["f1"],
        "auc": result["auc"],
        "epochs": result["epochs"],
        "most_epochs": _most_epochs(cell, result),
        "best_epoch": result["best_epoch"],
        "seconds": result["seconds"],
        "largest_weight": np.nan,
        "entropy_share": result.get("attention", {}).get("entropy_share", np.nan),
        **dict.fromkeys(
            ("ranks", "clusters", "singletons", "instances", "first_over_second"), np.nan
        ),
        **{f"{tau}{e}": np.nan for tau in STATISTICS for e in ESTIMATORS},
        **{f"{tau}_control_{end}": np.nan for tau in STATISTICS for end in ("low", "high")},
        **{f"{tau}_chance": None for tau in STATISTICS},
        "reason": found["reason"],
        "strength": result.get("strength", np.nan),
        **result.get("divergence", {}),
    }
    if found["run"] is None:
        return row, None
    measured = mi.load(out / cell.key / found["run"]).measurement
    summary = measured.summary
    row |= {
        "ranks": summary["ranks"],
        "clusters": summary["clusters"],
        "singletons": measured.ranks["singletons"].sum() / measured.ranks["clusters"].sum(),
        "instances": summary["used"],
    }
    weights = measured.ranks["attention"].to_numpy()
    row["largest_weight"] = weights[0]
    if len(weights) > 1 and weights[1] > 0:
        row["first_over_second"] = weights[0] / weights[1]
    table = measured.correlations.set_index(["estimator", "statistic"])
    for tau, statistic in STATISTICS.items():
        for suffix, estimator in ESTIMATORS.items():
            row[f"{tau}{suffix}"] = table.loc[(estimator, statistic), "value"]
        for end in ("low", "high"):
            row[f"{tau}_control_{end}"] = table.loc[("plug_in", statistic), f"control_{end}"]
        row[f"{tau}_chance"] = _chance(
            row[tau], row[f"{tau}_control_low"], row[f"{tau}_control_high"], row["ranks"]
        )
    reason = str(table.loc[("plug_in", "kendall"), "reason"])
    row["reason"] = reason
    keep = ["rank", "instances", "attention", "clusters", "singletons", "plug_in", "miller_madow",
            "control_mean", "control_low", "control_high", "bound"]  # fmt: skip
    curve = measured.ranks[keep].copy()
    keys = ("dataset", "encoder", "attention", "mechanism", "variant", "seed", "measurement")
    curve = curve.rename(columns={"attention": "weight"})
    for place, key in enumerate(keys):
        curve.insert(place, key, row[key])
    return row, curve


def _most_epochs(cell: Cell, result: dict[str, Any]) -> int:
    """Give the epochs after which training stops in any case."""
    name = "adversary_epochs" if cell.variant == "adversary" else "epochs"
    return int(result["state"]["options"][name])


def _chance(tau: float, low: float, high: float, ranks: int) -> bool | None:
    """Say whether tau is chance by `CHANCE_RULE`; None without a tau or a control that tells."""
    if np.isnan(tau):
        return None
    if ranks < FEW_RANKS:
        return True
    if np.isnan([low, high]).any():
        return None
    return bool(low - SAME <= tau <= high + SAME)


def _figure_2(grid: pd.DataFrame) -> pd.DataFrame:
    """Spread of tau over seeds, for each data set, encoder, attention and attention function."""
    if grid.empty:
        return pd.DataFrame()
    groups = grid.groupby(["dataset", "encoder", "attention", "mechanism"], sort=False)
    rows = []
    for key, group in groups:
        row = dict(zip(("dataset", "encoder", "attention", "mechanism"), key, strict=True))
        row["seeds"] = len(group)
        for tau in ("weighted", "plain"):
            values = group[tau].dropna()
            for statistic in ("min", "median", "mean", "max"):
                row[f"{tau}_{statistic}"] = getattr(values, statistic)() if len(values) else np.nan
            row[f"{tau}_chance"] = int(group[f"{tau}_chance"].eq(True).sum())
        row["undefined"] = int(group["weighted"].isna().sum())
        row["fewest_ranks"] = group["ranks"].min()
        row["singletons"] = group["singletons"].mean()
        row["largest_weight"] = group["largest_weight"].mean()
        row["accuracy"] = group["accuracy"].mean()
        rows.append(row)
    return pd.DataFrame(rows)


def _means(grid: pd.DataFrame) -> pd.DataFrame:
    """Mean tau by attention, and by encoder and attention, beside the paper's."""
    rows = []
    for encoder in ("", *ENCODERS):
        for attention in ATTENTIONS:
            group = grid[grid["attention"] == attention]
            if encoder:
                group = group[group["encoder"] == encoder]
            if len(group):
                rows.append(
                    {
                        "encoder": encoder or "all",
                        "attention": attention,
                        "models": len(group),
                        "weighted": group["weighted"].mean(),
                        "plain": group["plain"].mean(),
                        "weighted_corrected": group["weighted_corrected"].mean(),
                        "plain_corrected": group["plain_corrected"].mean(),
                        "weighted_chance": int(group["weighted_chance"].eq(True).sum()),
                        "plain_chance": int(group["plain_chance"].eq(True).sum()),
                        "singletons": group["singletons"].mean(),
                        "largest_weight": group["largest_weight"].mean(),
                        "paper_weighted": PAPER_MEANS.get((encoder, attention), np.nan),
                    }
                )
    return pd.DataFrame(rows)


def _order(grid: pd.DataFrame) -> pd.DataFrame:
    """Tau of the three attentions side by side, and whether it falls in the paper's order.

    A row is a cell: a data set, an encoder and a seed. `…_falls` is empty where the cell cannot
    tell, and `…_untold` says why.
    """
    if not set(ATTENTIONS) <= set(grid["attention"]):
        return pd.DataFrame()
    rows = []
    for key, group in grid.groupby(["dataset", "encoder", "seed"], sort=False):
        row: dict[str, Any] = dict(zip(("dataset", "encoder", "seed"), key, strict=True))
        of = group.set_index("attention").reindex(list(ATTENTIONS))
        row |= {f"ranks_{attention}": of["ranks"][attention] for attention in ATTENTIONS}
        for tau in TAUS:
            taus = of[tau].to_numpy(dtype=float)
            row |= {f"{tau}_{a}": t for a, t in zip(ATTENTIONS, taus, strict=True)}
            row[f"{tau}_untold"] = _untold_of_several(of, tau)
            told = not row[f"{tau}_untold"]
            row[f"{tau}_falls"] = bool((np.diff(taus) < -SAME).all()) if told else None
        rows.append(row)
    return pd.DataFrame(rows)


def _highest(grid: pd.DataFrame) -> pd.DataFrame:
    """Tau of BiLSTM with additive attention and the best of the other combinations.

    A row is a cell: a data set and a seed. `…_highest` says whether no other is higher; empty where
    the cell cannot tell, and `…_untold` says why.
    """
    if len(grid.groupby(["encoder", "attention"])) < len(ENCODERS) * len(ATTENTIONS):
        return pd.DataFrame()
    every = pd.MultiIndex.from_product([ENCODERS, ATTENTIONS])
    rows = []
    for key, group in grid.groupby(["dataset", "seed"], sort=False):
        row: dict[str, Any] = dict(zip(("dataset", "seed"), key, strict=True))
        of = group.set_index(["encoder", "attention"]).reindex(every)
        row["ranks"] = of["ranks"][BEST]
        for tau in TAUS:
            # What has few ranks cannot be compared; of the others the best.
            others = of.loc[of["ranks"] >= FEW_RANKS, tau].drop(BEST, errors="ignore").dropna()
            untold = _untold_of_several(of.loc[[BEST]], tau)
            if not untold and others.empty:
                untold = "tau of all others is undefined or has fewer than five ranks"
            row |= {tau: of[tau][BEST], f"{tau}_untold": untold}
            row[f"{tau}_other"] = _top(others) if len(others) else ""
            row[f"{tau}_best_other"] = others.max() if len(others) else np.nan
            told = not untold
            row[f"{tau}_highest"] = bool(row[tau] >= others.max() - SAME) if told else None
        rows.append(row)
    return pd.DataFrame(rows)


def _top(taus: pd.Series) -> str:
    """Name the combination with the highest tau."""
    encoder, attention = taus.index[int(taus.argmax())]
    return f"{encoder} with {attention}"


def _untold_of_several(rows: pd.DataFrame, tau: str) -> str:
    """Say why taus cannot be compared; empty where they can."""
    if rows[tau].isna().any():
        return "tau is undefined"
    return "fewer than five ranks" if (rows["ranks"] < FEW_RANKS).any() else ""


def _accuracy(grid: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of BiLSTM with additive attention, beside the paper's."""
    best = grid[(grid["encoder"] == BEST[0]) & (grid["attention"] == BEST[1])]
    rows = []
    for dataset, group in best.groupby("dataset", sort=False):
        name = str(dataset)
        rows.append(
            {
                "dataset": name,
                "seeds": len(group),
                "accuracy": group["accuracy"].mean(),
                "lowest": group["accuracy"].min(),
                "paper": PAPER_ACCURACY.get(name, np.nan),
                "needed": (needed := NEEDED_ACCURACY.get(name, np.nan)),
                "reached": int((group["accuracy"] >= needed).sum()),
            }
        )
    return pd.DataFrame(rows)


_COMPARED = (
    "ranks_normal", "ranks",
    "weighted_normal", "weighted_normal_chance", "weighted", "weighted_chance", "delta_weighted",
    "plain_normal", "plain_normal_chance", "plain", "plain_chance", "delta_plain",
)  # fmt: skip


def _with_base(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Add the normal model's tau and accuracy to rows of BiLSTM with additive attention."""
    normal = table[
        (table["variant"] == "normal")
        & (table["mechanism"] == "softmax")
        & (table["encoder"] == BEST[0])
        & (table["attention"] == BEST[1])
    ]
    keys = ["dataset", "seed"]
    columns = ["weighted", "weighted_sum", "plain", "weighted_chance", "plain_chance", "accuracy",
               "ranks"]  # fmt: skip
    before = normal[columns].add_suffix("_normal").rename(columns=lambda name: name.replace(
        "_chance_normal", "_normal_chance"))  # fmt: skip
    merged = chosen.merge(before.join(normal[keys]), on=keys, how="left")
    for tau in ("weighted", "weighted_sum", "plain"):
        merged[f"delta_{tau}"] = merged[f"{tau}_normal"] - merged[tau]
    return merged


def _fix(table: pd.DataFrame) -> pd.DataFrame:
    """Table 2: tau of the normal model less that of the special one, for each reading."""
    chosen = table[table["variant"].str.startswith(("attention_", "representation_"))]
    if chosen.empty:
        return pd.DataFrame()
    merged = _with_base(table, chosen)
    setting = merged["variant"].str.startswith("attention_")
    merged["setting"] = np.where(setting, "Fix Attn", "Fix Rep")
    merged["reading"] = merged["variant"].str.partition("_")[2]
    paper = [PAPER_FIX.get(d, (np.nan, np.nan)) for d in merged["dataset"]]
    merged["paper_delta"] = [
        pair[0] if attention else pair[1] for pair, attention in zip(paper, setting, strict=True)
    ]
    columns = ["dataset", "setting", "reading", "seed", "accuracy", "accuracy_normal",
               "largest_weight", *_COMPARED, "delta_weighted_sum", "paper_delta",
               "reason"]  # fmt: skip
    return merged[columns]


def _adversary(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables 3 and 4: the adversaries, and tau of the normal model less theirs."""
    chosen = table[table["variant"] == "adversary"]
    if chosen.empty:
        return pd.DataFrame(), pd.DataFrame()
    merged = _with_base(table, chosen)
    paper = [PAPER_ADVERSARY.get(d, (np.nan,) * 4) for d in merged["dataset"]]
    for place, name in enumerate(("accuracy", "tvd", "jsd", "delta")):
        merged[f"paper_{name}"] = [numbers[place] for numbers in paper]
    merged["half_tvd"] = merged["tvd"] / 2
    third = ["dataset", "seed", "strength", "epochs", "most_epochs", "accuracy",
             "accuracy_normal", "f1", "tvd", "half_tvd", "attention_jsd", "output_jsd",
             "paper_accuracy", "paper_tvd", "paper_jsd"]  # fmt: skip
    fourth = ["dataset", "seed", "attention_jsd", "tvd", *_COMPARED, "paper_delta"]
    return merged[third], merged[fourth]


def _gumbel(table: pd.DataFrame) -> pd.DataFrame:
    """Tau of each model with softmax and with Gumbel: noise off, on, and on with equal scores."""
    keys = ["dataset", "encoder", "attention", "seed"]
    normal = table[table["variant"] == "normal"]
    gumbel = normal[normal["mechanism"] == "gumbel"]
    if gumbel.empty:
        return pd.DataFrame()
    columns = ["ranks", "weighted", "weighted_chance", "plain", "plain_chance", "accuracy",
               "largest_weight"]  # fmt: skip
    found = normal.loc[normal["mechanism"] == "softmax", keys + columns]
    found = found.rename(columns={name: f"{name}_softmax" for name in columns})
    for name in ("noise_off", "noise_on", "equal_scores"):
        part = gumbel.loc[gumbel["measurement"] == name, keys + columns]
        part = part.rename(columns={column: f"{column}_{name}" for column in columns})
        found = found.merge(part, on=keys)
    return found


def _table_5(gumbel: pd.DataFrame) -> pd.DataFrame:
    """Table 5: models whose tau does not fall with Gumbel-softmax.

    By tau and noise: of how many models it does not fall (`…`) of those that can tell (`…_cases`),
    and of all, chance or not (`…_all`), as the paper counts.
    """
    rows = []
    for attention in (*ATTENTIONS, "all"):
        group = gumbel
        if len(gumbel) and attention != "all":
            group = gumbel[gumbel["attention"] == attention]
        if group.empty:
            continue
        row: dict[str, Any] = {"attention": attention, "models": len(group)}
        for tau in TAUS:
            for noise in ("noise_off", "noise_on"):
                pairs = _gumbel_pairs(group, tau, noise)
                told = pairs[_untold(pairs, tau) == ""]
                kept = pairs[f"delta_{tau}"] <= SAME
                row[f"{tau}_{noise}"] = int(_kept(told, tau, SAME).sum())
                row[f"{tau}_{noise}_cases"] = len(told)
                row[f"{tau}_{noise}_all"] = int(kept.sum())
            row[f"{tau}_equal_scores_mean"] = group[f"{tau}_equal_scores"].mean()
        row["paper_share"] = PAPER_GUMBEL.get(attention, 59 / 63)
        rows.append(row)
    return pd.DataFrame(rows)


def _gumbel_pairs(gumbel: pd.DataFrame, tau: str, noise: str) -> pd.DataFrame:
    """Give softmax and Gumbel-softmax the names of a normal model and a special one."""
    columns = {}
    for name in (tau, f"{tau}_chance", "ranks"):
        normal = f"{tau}_normal_chance" if name.endswith("_chance") else f"{name}_normal"
        columns[normal] = gumbel[f"{name}_softmax"]
        columns[name] = gumbel[f"{name}_{noise}"]
    pairs = pd.DataFrame(columns)
    pairs[f"delta_{tau}"] = pairs[f"{tau}_normal"] - pairs[tau]
    return pairs


# --- claims --------------------------------------------------------------------------------------


def claims(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Set the paper's statements against the numbers, by rules that the paper's numbers obey.

    The paper has weighted tau alone; each statement about it is judged for plain tau, too. A case
    of which one tau is undefined, has fewer than five ranks or no control, whose normal model's tau
    is chance, or whose premise does not hold (an adversary with the same attention), cannot tell
    and is counted apart. A tau that was not chance and becomes chance has fallen.

    Args:
        tables: of `collect`.

    Returns:
        The statements about what was run, in the paper's order.
    """
    return [
        *_order_claims(tables["order"], tables["means"]),
        *_highest_claims(tables["highest"], tables["means"]),
        *_accuracy_claims(tables["accuracy"]),
        *_fix_claims(tables["table_2"]),
        *_adversary_claims(tables["table_4"]),
        *_gumbel_claims(tables["gumbel"]),
    ]


def _untold(table: pd.DataFrame, tau: str) -> pd.Series:
    """Say of each pair of a normal and a special model why it cannot tell; empty where it can."""
    before, after = table[f"{tau}_normal"], table[tau]
    few = (table["ranks_normal"] < FEW_RANKS) | (table["ranks"] < FEW_RANKS)
    chance = table[f"{tau}_normal_chance"]
    reasons = (
        (before.isna() | after.isna(), "tau is undefined"),
        (few, "fewer than five ranks"),
        (chance.isna() | table[f"{tau}_chance"].isna(), "no shuffled outputs to compare with"),
        (chance.eq(True), "tau of the normal model is chance"),
    )
    return pd.Series(
        np.select([condition for condition, _ in reasons], [why for _, why in reasons], ""),
        index=table.index,
        dtype=object,
    )


def _kept(told: pd.DataFrame, tau: str, most: float) -> pd.Series:
    """Whether tau falls by at most so much, and not to chance."""
    return (told[f"delta_{tau}"] <= most + SAME) & told[f"{tau}_chance"].eq(False)


def _apart(reasons: Iterable[str]) -> str:
    """Count the cases that cannot tell, by the reason."""
    counts = Counter(reason for reason in reasons if reason)
    if not counts:
        return ""
    return "cannot tell: " + ", ".join(f"{n} ({reason})" for reason, n in counts.items())


def _sentence(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _number(value: float) -> str:
    """Write a number of two digits, never -0.00."""
    return "undefined" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def _mean_and_error(values: pd.Series) -> str:
    """Write a mean and its standard error, of two or more."""
    if values.empty:
        return "undefined"
    error = f" ± {_number(values.std() / len(values) ** 0.5)}" if len(values) > 1 else ""
    return _number(values.mean()) + error


def _order_claims(order: pd.DataFrame, means: pd.DataFrame) -> list[Claim]:
    if order.empty:
        return []
    overall = means[means["encoder"] == "all"].set_index("attention").loc[list(ATTENTIONS)]
    found = []
    for tau in TAUS:
        told = order[order[f"{tau}_untold"] == ""]
        falls = told[f"{tau}_falls"].eq(True)
        steps = ", ".join(
            f"{a} less {b} {_mean_and_error(told[f'{tau}_{a}'] - told[f'{tau}_{b}'])}"
            for a, b in itertools.pairwise(ATTENTIONS)
        )
        taus = overall[tau].to_numpy(dtype=float)
        chance, models = int(overall[f"{tau}_chance"].sum()), int(overall["models"].sum())
        found.append(
            Claim(
                f"Additive above deep above dot attention, {tau} tau",
                f"{tau} tau falls in this order; a cell is a data set, an encoder and a seed, all "
                "three taus of five ranks or more",
                "means 0.80, 0.74, 0.45 (weighted, of eleven data sets)",
                _sentence(
                    f"means {', '.join(map(_number, taus))}",
                    f"in this order in {int(falls.sum())} of {len(told)} cells",
                    f"mean ± standard error over the cells: {steps}",
                    "means with bias correction "
                    + ", ".join(map(_number, overall[f"{tau}_corrected"])),
                    f"{chance} of {models} models not different from chance",
                    _apart(order[f"{tau}_untold"]),
                ),
                int(falls.sum()),
                len(told),
                len(order) - len(told),
                means=bool((np.diff(taus) < -SAME).all()),
            )
        )
    return found


def _highest_claims(highest: pd.DataFrame, means: pd.DataFrame) -> list[Claim]:
    if highest.empty:
        return []
    pairs = means[means["encoder"] != "all"].set_index(["encoder", "attention"])
    found = []
    for tau in TAUS:
        told = highest[highest[f"{tau}_untold"] == ""]
        is_highest = told[f"{tau}_highest"].eq(True)
        tied = is_highest & (told[tau] <= told[f"{tau}_best_other"] + SAME)
        own = pairs[tau][BEST]
        others = pairs[tau].drop(BEST).dropna()
        second = ""
        if len(others):
            lead = _number(own - others.max())
            second = f"best other mean {_number(others.max())}, {_top(others)}, a lead of {lead}"
        chance, models = int(pairs[f"{tau}_chance"][BEST]), int(pairs["models"][BEST])
        found.append(
            Claim(
                f"BiLSTM with additive attention has the highest {tau} tau",
                f"no other of the nine combinations has a higher {tau} tau; a cell is a data set "
                "and a seed, of the combinations with five ranks or more",
                "mean 0.92 (weighted); highest most of the time",
                _sentence(
                    f"mean {_number(own)}",
                    second,
                    f"highest in {int(is_highest.sum())} of {len(told)} cells, in "
                    f"{int(tied.sum())} of these with another",
                    f"{chance} of {models} models not different from chance",
                    _apart(highest[f"{tau}_untold"]),
                ),
                int(is_highest.sum()),
                len(told),
                len(highest) - len(told),
                means=bool(len(others) and own >= others.max() - SAME),
            )
        )
    return found


def _accuracy_claims(table: pd.DataFrame) -> list[Claim]:
    return [
        Claim(
            f"BiLSTM with additive attention classifies {row['dataset']}",
            f"accuracy of a seed at least {row['needed']:.2f}: less than the paper's, for narrower "
            "vectors and another split",
            f"{row['paper']:.2f}",
            f"mean {row['accuracy']:.3f}, lowest {row['lowest']:.3f}",
            int(row["reached"]),
            int(row["seeds"]),
        )
        for _, row in table.iterrows()
        if not np.isnan(row["needed"])
    ]


def _fix_claims(table: pd.DataFrame) -> list[Claim]:
    if table.empty:
        return []
    found = []
    for setting, text, rule, paper in (
        (
            "Fix Attn",
            "fixed attention lowers {tau} tau",
            f"{{tau}} tau of a model falls by more than {LEAST_FALL}, or to chance",
            "by 0.16 to 1.32 (weighted)",
        ),
        (
            "Fix Rep",
            "fixed representations do not lower {tau} tau",
            f"{{tau}} tau of a model falls by at most {MOST_FALL} and not to chance; it may rise",
            "it rises by 0.00 to 0.07 (weighted)",
        ),
    ):
        for reading, group in table[table["setting"] == setting].groupby("reading", sort=False):
            positions = "; ranks are positions, so this tau is another quantity"
            remark = positions if reading == "uniform" else ""
            for tau in TAUS:
                reasons = _untold(group, tau)
                told = group[reasons == ""]
                if setting == "Fix Attn":
                    held = ~_kept(told, tau, LEAST_FALL)
                else:
                    held = _kept(told, tau, MOST_FALL)
                found.append(
                    Claim(
                        f"{setting}, {str(reading).replace('_', ' ')}: {text.format(tau=tau)}",
                        rule.format(tau=tau) + remark,
                        paper,
                        _sentence(_change(told, tau), _apart(reasons)),
                        int(held.sum()),
                        len(told),
                        len(group) - len(told),
                    )
                )
    return found


def _adversary_claims(table: pd.DataFrame) -> list[Claim]:
    if table.empty:
        return []
    distances = ", ".join(
        f"{name} {' to '.join(_ends(table[column]))}"
        for name, column in (("JSD", "attention_jsd"), ("TVD", "tvd"))
    )
    found = []
    for tau in TAUS:
        reasons = _untold(table, tau)
        for holds, why in (
            (table["attention_jsd"] >= LEAST_JSD, f"JSD of attention below {LEAST_JSD}"),
            (table["tvd"] <= MOST_TVD, f"TVD of outputs above {MOST_TVD}"),
        ):
            reasons = reasons.mask((reasons == "") & ~holds, why)
        told = table[reasons == ""]
        held = (told[f"delta_{tau}"].abs() <= MOST_MOVED) & told[f"{tau}_chance"].eq(False)
        found.append(
            Claim(
                f"Adversaries with another attention and the same outputs keep {tau} tau",
                f"{tau} tau of a model moves by at most {MOST_MOVED} up or down, and not to "
                f"chance; the premise is a JSD of attention of at least {LEAST_JSD} and a TVD of "
                f"outputs of at most {MOST_TVD}, twice the paper's most, which may be half of it",
                "JSD 0.19 to 0.66, TVD 0.001 to 0.037, tau falls by 0.02 to 0.09 (weighted)",
                _sentence(distances, _change(told, tau), _apart(reasons)),
                int(held.sum()),
                len(told),
                len(table) - len(told),
            )
        )
    return found


def _gumbel_claims(gumbel: pd.DataFrame) -> list[Claim]:
    if gumbel.empty:
        return []
    found = []
    for tau in TAUS:
        for noise in ("off", "on"):
            pairs = _gumbel_pairs(gumbel, tau, f"noise_{noise}")
            reasons = _untold(pairs, tau)
            told = pairs[reasons == ""]
            held = _kept(told, tau, SAME)
            kept = pairs[f"delta_{tau}"] <= SAME
            found.append(
                Claim(
                    f"Gumbel-softmax does not lower {tau} tau, noise {noise} at evaluation",
                    f"{tau} tau of a model is not lower than softmax's, and not chance",
                    "59 of 63 classification models, 94% (weighted)",
                    _sentence(
                        _change(told, tau),
                        _apart(reasons),
                        f"not lower in {int(kept.sum())} of all {len(pairs)}, chance or not",
                    ),
                    int(held.sum()),
                    len(told),
                    len(pairs) - len(told),
                    LEAST_SHARE,
                )
            )
    means = [_number(gumbel[f"{tau}_equal_scores"].mean()) for tau in TAUS]
    found.append(
        Claim(
            "The noise alone makes tau positive: with equal scores, no attention learned",
            "none: no statement of the paper",
            "not looked at",
            f"mean weighted tau {means[0]}, plain {means[1]}",
            0,
            0,
        )
    )
    return found


def _change(told: pd.DataFrame, tau: str) -> str:
    """Say by how much tau falls, and how often to chance."""
    if told.empty:
        return ""
    text = f"{tau} tau falls by {' to '.join(_ends(told[f'delta_{tau}']))}"
    chance = int(told[f"{tau}_chance"].eq(True).sum())
    return text + (f", {chance} of {len(told)} to chance" if chance else "")


def _ends(values: pd.Series) -> list[str]:
    """Write the least and the largest number, or the one that both are."""
    return sorted({_number(values.min()), _number(values.max())}, key=float)
