"""The committed study of five seeds: its page of words says what its tables say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks/results/serrano-smith-seeds"
LINES = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
WORDS = " ".join(" ".join(LINES).split())
ALL = "0 1 2 3 4"
# Columns of the page that hold a number of a table as it is, in percent.
MEDIANS = ("random", "attention", "gradient", "product", "minimal")
UNDONE = ("attention", "random", "gradient", "product")


def table(name: str) -> pd.DataFrame:
    found: pd.DataFrame = pd.read_csv(FOLDER / f"{name}.csv", dtype={"seed": str})
    if "seed" in found:
        found["model"] = found["model"].str.replace(r", seed \d$", "", regex=True)
    return found


def joined(name: str) -> pd.DataFrame:
    found = table(name)
    return found[found["seed"] == ALL]


def page_rows(start: str) -> dict[str, list[str]]:
    """Give the cells of the page's table whose title begins so, by the first cell."""
    place = next(k for k, line in enumerate(LINES) if line.startswith(start))
    rows = {}
    for line in LINES[place + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name] = cells
    return rows


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def number(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def cell(frame: pd.DataFrame, column: str, **where: str) -> float:
    for name, value in where.items():
        frame = frame[frame[name].fillna("").str.startswith(value)]
    assert len(frame) == 1, where
    return float(frame[column].iloc[0])


def test_table_of_models() -> None:
    models, multi, seeds = joined("models"), joined("multi_weight"), table("seeds")
    rows = page_rows("| model | accuracy |")
    assert list(rows) == [name.replace(" on ", ", ") for name in models["model"]]
    for name, cells in rows.items():
        model = name.replace(", ", " on ")
        accuracy = [
            cell(seeds, column, model=model, quantity="accuracy") for column in ("mean", "sd")
        ]
        skill = [
            cell(seeds, column, model=model, quantity="skill", ranking="attention")
            for column in ("mean", "sd", "least", "most")
        ]
        kl = cell(models, "uniform_kl_mean", model=model)
        assert cells == [
            " ± ".join(map(percent, accuracy)),
            number(kl, 4 if kl < 0.01 else 3 if kl < 0.1 else 2),
            percent(cell(models, "largest_weight_mean", model=model)),
            *(
                percent(cell(multi, "all_fraction_median", model=model, ranking=ranking))
                for ranking in MEDIANS
            ),
            "{} ± {} ({} to {})".format(*map(number, skill)),
        ]


def test_table_of_claims() -> None:
    """Counts over models; the page shortens the claims, so that rows are compared in order."""
    found = table("findings")
    counts = []
    for _, rows in found.groupby("claim", sort=False):
        sure = rows["corrected"] <= 0.05
        known = rows["corrected"].notna().any()
        counts.append(
            (
                f"{rows['holds'].sum()} of {len(rows)}",
                str(rows["tied"].sum() or ""),
                str((sure & rows["holds"]).sum()) if known else "–",
                str((sure & ~rows["holds"]).sum()) if known else "–",
            )
        )
    told = [tuple(cells[:4]) for cells in page_rows("| claim |").values()]
    assert sorted(counts) == sorted(told)
    levels = found["p"].notna().sum()
    assert f"holds {len(found)} findings: {len(counts)} claims" in WORDS
    assert f"of which {levels} findings have a level" in WORDS
    assert found["corrected"].min() == pytest.approx(2 / 10_001 * levels, rel=1e-12)


def test_single_seeds_of_the_claims() -> None:
    rows = page_rows("| claim |")
    multi = table("multi_weight")
    multi = multi[multi["seed"] != ALL]
    medians = multi.pivot(index=["model", "seed"], columns="ranking", values="all_fraction_median")
    encodes = ~medians.index.get_level_values("model").str.contains("noenc")
    others = medians[["attention", "gradient", "product"]].max(axis=1)
    pairs = table("pairs")
    pairs = pairs[pairs["seed"] != ALL]
    gradient = pairs[(pairs["first"] == "gradient") & (pairs["second"] == "attention")]
    with_encoder = gradient[~gradient["model"].str.contains("noenc")]
    without = gradient[gradient["model"].str.contains("noenc")]
    product = pairs[(pairs["first"] == "product") & (pairs["second"] == "gradient")]
    random = pairs[(pairs["first"] == "attention") & (pairs["second"] == "random")]
    surely = random["p_mcnemar"] <= 0.05
    more = random["flips_only_second"] > random["flips_only_first"]
    single = table("single_weight")
    single = single[(single["seed"] != ALL) & (single["ranking"] == "attention")]
    negative = single["expected_negative"] < 0.1
    ahead = without["first_smaller"] > without["second_smaller"]
    for start, held in {
        "Gradient erases": (medians["gradient"] < medians["attention"])[encodes],
        "A random order erases": medians["random"] > others,
        "Gradient flips first": with_encoder["first_smaller"]
        >= 1.6 * with_encoder["second_smaller"],
        "Gradient finds": with_encoder["share_first_smaller"] > 0.5,
        "Product needs": product["first_smaller"] > product["second_smaller"],
        "A random order flips no more": ~(surely & more),
        "ΔJS is negative": negative,
        "Without an encoder attention": ~(ahead & (without["p_sign"] <= 0.05)),
    }.items():
        (cells,) = (cells for name, cells in rows.items() if name.startswith(start))
        assert cells[4] == f"{held.sum()} of {len(held)}", start
    text = "calls {} of 90 trained models reversed at .05 and {} the other way"
    assert text.format((surely & more).sum(), (surely & ~more).sum()) in WORDS
    kl = single["uniform_kl_mean"]
    low, high = kl < 0.05, kl >= 0.5
    assert (
        f"{(~negative)[low].sum()} of the {low.sum()} with a KL below .05 are over a tenth, "
        f"{(~negative)[~low & ~high].sum()} of the {(~low & ~high).sum()} between, and none of "
        f"the {high.sum()} from .5"
    ) in WORDS
    assert negative[high].all()


def test_tables_of_exact_erasure() -> None:
    minimum, lasting = table("exact_minimum"), table("exact_lasting")
    items, skill, curves = table("exact_items"), table("exact_skill"), table("exact_curves")
    for name, cells in page_rows("| model | smallest set").items():
        model = name.replace(", ", " on ")
        smallest = [
            cell(minimum, column, model=model, quantity="smallest", by="all")
            for column in ("all", "least", "most")
        ]
        spared = cell(minimum, "all", model=model, quantity="unavoidable", ranking="attention")
        assert cells == [
            "{} ({} to {})".format(*map(percent, smallest)),
            percent(spared),
            *(
                percent(cell(lasting, "all", model=model, quantity="undone", ranking=ranking))
                for ranking in UNDONE
            ),
            percent(cell(items, "all", model=model, quantity="first", ranking="attention")),
            f"{cell(items, 'all', model=model, quantity='rank', ranking='attention'):g}",
            percent(cell(items, "all", model=model, quantity="negative", ranking="attention")),
        ]
    groups = [("bias", "as the"), ("bias", "otherwise")]
    groups += [(by, f"quarter {k}") for by in ("length", "confidence") for k in (1, 4)]
    skill = skill[(skill["quantity"] == "skill") & (skill["ranking"] == "attention")]
    for name, cells in page_rows("| model | bias").items():
        model = name.replace(", ", " on ")
        assert cells == [
            *(number(cell(skill, "all", model=model, by=by, group=g)) for by, g in groups),
            *(
                number(cell(curves, "all", model=model, quantity="js_area", ranking=ranking), 3)
                for ranking in MEDIANS[:4]
            ),
        ]


def test_flips_that_erasing_more_undoes() -> None:
    multi = joined("multi_weight").set_index(["model", "ranking"])["flipped"]
    undone = table("exact_lasting").query("quantity == 'undone'")
    shares = undone.set_index(["model", "ranking"])["all"]
    two = ~shares.index.get_level_values("model").str.endswith("Hotel stars")
    counts = (shares * multi.reindex(shares.index))[two].groupby("ranking").sum()
    flips = multi.reindex(shares.index)[two].groupby("ranking").sum()
    assert counts["gradient"] == 0
    assert counts["product"] == pytest.approx(1, abs=1e-6)
    assert flips["gradient"] == flips["product"] == 30_628
    assert "none of 30,628 by gradient and one of 30,628 by product" in WORDS
