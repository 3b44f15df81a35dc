"""The tables of Wen, Subbalakshmi and Yang (2022), from finished cells, beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastattnerase.experiments.wen import ATTENTIONS, BEST, ENCODERS, Unit

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
SAME = 1e-9  # a tau that falls by less has not fallen

# The rules of `claims`; the paper's own numbers obey all of them.
LEAST_FALL = 0.1  # of tau with fixed attention; the paper's least is 0.16
MOST_FALL = 0.05  # of tau with fixed representations; the paper's most is 0.00
LEAST_JSD = 0.15  # of an adversary's attention; the paper's least is 0.194
MOST_TVD = 0.08  # of its outputs; the paper's most is 0.037, which may be half of it
MOST_MOVED = 0.1  # of its tau, up or down; the paper's most is 0.09
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
        cases: models, seeds or means that can tell; 0 where nothing can.
        needed: the share of the cases that must agree.
    """

    text: str
    rule: str
    paper: str
    here: str
    held: int
    cases: int
    needed: float = 1.0

    @property
    def agrees(self) -> str:
        """`yes`: enough cases do; `partly`: some do; `no`: none does; empty without any case."""
        if self.cases == 0:
            return ""
        if self.held >= self.needed * self.cases:
            return "yes"
        return "partly" if self.held else "no"


def collect(results: dict[Unit, dict[str, Any]], out: Path) -> dict[str, pd.DataFrame]:
    """Make every table from the finished cells of a study.

    Args:
        results: the cells' results.
        out: the study's folder.

    Returns:
        By name: `measurements` (a row for each cell and measurement: accuracy, attention, the
        choice of ranks and clusters, the share of clusters with a single state, weighted and plain
        tau, the interval of tau with outputs shuffled, and whether tau is within it, that is, not
        different from chance),
        `curves` (information and attention of every rank), `figure_2`, `means`, `accuracy`,
        `table_2`, `table_3`, `table_4`, `table_5`, `gumbel`. A table without rows has no columns.

    Example:
        >>> from pathlib import Path
        >>> sorted(collect({}, Path("runs/wen")))[:3]
        ['accuracy', 'curves', 'figure_2']
    """
    rows: list[dict[str, Any]] = []
    curves: list[pd.DataFrame] = []
    for unit, result in results.items():
        for name, found in result["measurements"].items():
            row, curve = _measurement(unit, name, result, found, out)
            rows.append(row)
            if curve is not None:
                curves.append(curve)
    table = pd.DataFrame(rows)
    tables = {
        "measurements": table,
        "curves": pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(),
    }
    for name in ("figure_2", "means", "accuracy", "table_2", "table_3", "table_4", "gumbel",
                 "table_5"):  # fmt: skip
        tables[name] = pd.DataFrame()
    if rows:
        grid = table[
            (table["variant"] == "normal") & table["mechanism"].isin(["softmax", "sparsemax"])
        ]
        tables["figure_2"] = _figure_2(grid)
        tables["means"] = _means(grid[grid["mechanism"] == "softmax"])
        tables["accuracy"] = _accuracy(grid[grid["mechanism"] == "softmax"])
        tables["table_2"] = _fix(table)
        tables["table_3"], tables["table_4"] = _adversary(table)
        tables["gumbel"] = _gumbel(table)
        tables["table_5"] = _table_5(tables["gumbel"])
    return tables


def _measurement(
    unit: Unit, name: str, result: dict[str, Any], found: dict[str, Any], out: Path
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    from fastattnerase import mi

    row: dict[str, Any] = {
        "dataset": unit.dataset,
        "encoder": unit.encoder,
        "attention": unit.attention,
        "mechanism": unit.mechanism,
        "variant": unit.variant,
        "seed": unit.seed,
        "measurement": name,
        "accuracy": found["accuracy"],
        "f1": result["f1"],
        "auc": result["auc"],
        "epochs": result["epochs"],
        "best_epoch": result["best_epoch"],
        "seconds": result["seconds"],
        "largest_weight": result.get("attention", {}).get("largest_weight", np.nan),
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
    measured = mi.load(out / unit.key / found["run"]).measurement
    summary = measured.summary
    row |= {
        "ranks": summary["ranks"],
        "clusters": summary["clusters"],
        "singletons": measured.ranks["singletons"].sum() / measured.ranks["clusters"].sum(),
        "instances": summary["used"],
    }
    weights = measured.ranks["attention"].to_numpy()
    if len(weights) > 1 and weights[1] > 0:
        row["first_over_second"] = weights[0] / weights[1]
    table = measured.correlations.set_index(["estimator", "statistic"])
    for tau, statistic in STATISTICS.items():
        for suffix, estimator in ESTIMATORS.items():
            row[f"{tau}{suffix}"] = table.loc[(estimator, statistic), "value"]
        for end in ("low", "high"):
            row[f"{tau}_control_{end}"] = table.loc[("plug_in", statistic), f"control_{end}"]
        row[f"{tau}_chance"] = _within(
            row[tau], row[f"{tau}_control_low"], row[f"{tau}_control_high"]
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


def _within(tau: float, low: float, high: float) -> bool | None:
    """Say whether tau is not different from chance; None without a tau or a control."""
    if np.isnan([tau, low, high]).any():
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
    columns = ["weighted", "weighted_sum", "plain", "weighted_chance", "plain_chance", "accuracy"]
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
               *_COMPARED, "delta_weighted_sum", "paper_delta", "reason"]  # fmt: skip
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
    third = ["dataset", "seed", "strength", "epochs", "accuracy", "accuracy_normal", "f1", "tvd",
             "half_tvd", "attention_jsd", "output_jsd", "paper_accuracy", "paper_tvd",
             "paper_jsd"]  # fmt: skip
    fourth = ["dataset", "seed", "attention_jsd", "tvd", *_COMPARED, "paper_delta"]
    return merged[third], merged[fourth]


def _gumbel(table: pd.DataFrame) -> pd.DataFrame:
    """Tau of each model with softmax and with Gumbel: noise off, on, and on with equal scores."""
    keys = ["dataset", "encoder", "attention", "seed"]
    normal = table[table["variant"] == "normal"]
    gumbel = normal[normal["mechanism"] == "gumbel"]
    if gumbel.empty:
        return pd.DataFrame()
    columns = ["weighted", "weighted_chance", "plain", "plain_chance", "accuracy"]
    found = normal.loc[normal["mechanism"] == "softmax", keys + columns]
    found = found.rename(columns={name: f"{name}_softmax" for name in columns})
    for name in ("noise_off", "noise_on", "equal_scores"):
        part = gumbel.loc[gumbel["measurement"] == name, keys + columns]
        part = part.rename(columns={column: f"{column}_{name}" for column in columns})
        found = found.merge(part, on=keys)
    return found


def _table_5(gumbel: pd.DataFrame) -> pd.DataFrame:
    """Table 5: models whose tau does not fall with Gumbel-softmax."""
    rows = []
    for attention in (*ATTENTIONS, "all"):
        group = gumbel
        if len(gumbel) and attention != "all":
            group = gumbel[gumbel["attention"] == attention]
        if group.empty:
            continue
        row: dict[str, Any] = {"attention": attention, "models": len(group)}
        for tau in ("weighted", "plain"):
            before = group[f"{tau}_softmax"]
            for noise in ("noise_off", "noise_on"):
                after = group[f"{tau}_{noise}"]
                kept = after >= before - SAME
                chance = group[f"{tau}_chance_{noise}"].eq(True)
                row[f"{tau}_{noise}"] = int(kept.sum())
                row[f"{tau}_{noise}_chance"] = int(chance.sum())
                row[f"{tau}_{noise}_not_chance"] = int((kept & ~chance).sum())
            row[f"{tau}_equal_scores_mean"] = group[f"{tau}_equal_scores"].mean()
        row["paper_share"] = PAPER_GUMBEL.get(attention, 59 / 63)
        rows.append(row)
    return pd.DataFrame(rows)


# --- claims --------------------------------------------------------------------------------------


def claims(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Set the paper's statements against the numbers, by rules that the paper's numbers obey.

    The paper has weighted tau alone; each statement about it is judged for plain tau, too.

    Args:
        tables: of `collect`.

    Returns:
        The statements about what was run, in the paper's order.
    """
    return [
        *_mean_claims(tables["means"]),
        *_accuracy_claims(tables["accuracy"]),
        *_fix_claims(tables["table_2"]),
        *_adversary_claims(tables["table_4"]),
        *_gumbel_claims(tables["table_5"]),
    ]


def _mean_claims(means: pd.DataFrame) -> list[Claim]:
    if means.empty:
        return []
    found: list[Claim] = []
    overall = means[means["encoder"] == "all"].set_index("attention")
    if set(ATTENTIONS) <= set(overall.index):
        for tau in ("weighted", "plain"):
            mean = overall[tau].to_dict()
            a, d, o = (mean[name] for name in ATTENTIONS)
            chance, models = int(overall[f"{tau}_chance"].sum()), int(overall["models"].sum())
            found.append(
                Claim(
                    f"Additive above deep above dot attention, mean {tau} tau",
                    "the mean over data sets, encoders and seeds falls in this order",
                    "0.80, 0.74, 0.45 (weighted)",
                    f"{a:.2f}, {d:.2f}, {o:.2f}; {chance} of {models} models not different from "
                    "chance",
                    int(a > d > o),
                    1,
                )
            )
    pairs = means[means["encoder"] != "all"].dropna(subset=["weighted"])
    if len(pairs) == len(ENCODERS) * len(ATTENTIONS):
        for tau in ("weighted", "plain"):
            top = pairs.sort_values(tau).iloc[-1]
            own = pairs[(pairs["encoder"] == BEST[0]) & (pairs["attention"] == BEST[1])].iloc[0]
            found.append(
                Claim(
                    f"BiLSTM with additive attention has the highest mean {tau} tau",
                    "its mean over data sets and seeds is the highest of the nine combinations",
                    "0.92 (weighted)",
                    f"{own[tau]:.2f}, {int(own[f'{tau}_chance'])} of {int(own['models'])} models "
                    f"not different from chance; highest: {top['encoder']} with "
                    f"{top['attention']}, {top[tau]:.2f}",
                    int((top["encoder"], top["attention"]) == BEST),
                    1,
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
            f"{{tau}} tau of a model falls by more than {LEAST_FALL}, from one that is different "
            "from chance",
            "by 0.16 to 1.32 (weighted)",
        ),
        (
            "Fix Rep",
            "fixed representations do not lower {tau} tau",
            f"{{tau}} tau of a model falls by at most {MOST_FALL}, to one that is different from "
            "chance; it may rise",
            "it rises by 0.00 to 0.07 (weighted)",
        ),
    ):
        for reading, group in table[table["setting"] == setting].groupby("reading", sort=False):
            for tau in ("weighted", "plain"):
                known = group.dropna(subset=[f"delta_{tau}"])
                fall = known[f"delta_{tau}"]
                if setting == "Fix Attn":
                    held = (fall > LEAST_FALL) & ~known[f"{tau}_normal_chance"].eq(True)
                else:
                    held = (fall <= MOST_FALL) & ~known[f"{tau}_chance"].eq(True)
                found.append(
                    Claim(
                        f"{setting}, {str(reading).replace('_', ' ')}: {text.format(tau=tau)}",
                        rule.format(tau=tau),
                        paper,
                        _change(known, tau),
                        int(held.sum()),
                        len(known),
                    )
                )
    return found


def _adversary_claims(table: pd.DataFrame) -> list[Claim]:
    if table.empty:
        return []
    found = []
    for tau in ("weighted", "plain"):
        known = table.dropna(subset=[f"delta_{tau}"])
        held = (
            (known["attention_jsd"] >= LEAST_JSD)
            & (known["tvd"] <= MOST_TVD)
            & (known[f"delta_{tau}"].abs() <= MOST_MOVED)
            & ~known[f"{tau}_chance"].eq(True)
        )
        distances = ", ".join(
            f"{name} {known[column].min():.2f} to {known[column].max():.2f}"
            for name, column in (("JSD", "attention_jsd"), ("TVD", "tvd"))
            if len(known)
        )
        found.append(
            Claim(
                f"Adversaries with another attention and the same outputs keep {tau} tau",
                f"JSD of a model's attention at least {LEAST_JSD}, TVD of its outputs at most "
                f"{MOST_TVD}, {tau} tau moves by at most {MOST_MOVED} up or down and is different "
                "from chance",
                "JSD 0.19 to 0.66, TVD 0.001 to 0.037, tau falls by 0.02 to 0.09 (weighted)",
                "; ".join(filter(None, (distances, _change(known, tau)))),
                int(held.sum()),
                len(known),
            )
        )
    return found


def _gumbel_claims(table: pd.DataFrame) -> list[Claim]:
    if table.empty:
        return []
    every = table[table["attention"] == "all"].iloc[0]
    n = int(every["models"])
    found = []
    for tau in ("weighted", "plain"):
        for noise in ("off", "on"):
            kept, chance, told = (
                int(every[f"{tau}_noise_{noise}{end}"]) for end in ("", "_chance", "_not_chance")
            )
            found.append(
                Claim(
                    f"Gumbel-softmax does not lower {tau} tau, noise {noise} at evaluation",
                    f"{tau} tau of a model is different from chance and not lower than softmax's; "
                    f"at least {LEAST_SHARE:.0%} of those that are different from chance",
                    "59 of 63 classification models, 94% (weighted)",
                    f"{told} of {n - chance} models, {chance} more not different from chance; "
                    f"{kept} of all {n}",
                    told,
                    n - chance,
                    LEAST_SHARE,
                )
            )
    found.append(
        Claim(
            "The noise alone makes tau positive: with equal scores, no attention learned",
            "none: no statement of the paper",
            "not looked at",
            f"mean weighted tau {every['weighted_equal_scores_mean']:.2f}, plain "
            f"{every['plain_equal_scores_mean']:.2f}",
            0,
            0,
        )
    )
    return found


def _change(table: pd.DataFrame, tau: str) -> str:
    """Say by how much tau falls, and where it is not different from chance."""
    if table.empty:
        return f"{tau} tau is undefined"
    ends = table[f"delta_{tau}"].agg(["min", "max"]).round(2) + 0.0  # no -0.00
    falls = sorted({f"{end:.2f}" for end in ends}, key=float)
    text = f"{tau} tau falls by {' to '.join(falls)}"
    chance = int(table[f"{tau}_chance"].eq(True).sum())
    return text + (f", {chance} of {len(table)} not different from chance" if chance else "")
