"""The committed results of the information studies: the page of words says what the tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from committed import FOLDER, measurements

from fastattnerase.studies.wen.claims import claims
from fastattnerase.studies.wen.layout import frames
from fastattnerase.studies.wen.rows import is_chance
from fastattnerase.studies.wen.tables import compare
from fastattnerase.studies.wen.words import at_least

README = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())


def table(name: str) -> pd.DataFrame:
    found: pd.DataFrame = pd.read_csv(FOLDER / f"{name}.csv")
    return found


def number(value: float, digits: int = 2) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def test_every_committed_table_follows_from_the_measurements() -> None:
    """Byte for byte, the statements and their verdicts too."""
    tables = compare(measurements())
    written = {layout.name: frame for layout, frame in frames(tables, claims(tables))}
    files = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.csv")}
    assert written.keys() == files.keys()
    for name, frame in written.items():
        assert frame.to_csv(index=False) == files[name], name


def test_chance_in_the_measurements_is_the_rule() -> None:
    rows = measurements()
    for row in rows:
        for tau in (row.weighted, row.weighted_sum, row.plain):
            assert row.ranks is not None
            assert tau.chance == is_chance(tau.value, tau.low, tau.high, row.ranks)
        assert row.largest_weight > 0
    grid = [r for r in rows if r.cell.variant == "normal" and r.cell.mechanism == "softmax"]
    weighted = sum(row.weighted.chance is True for row in grid)
    plain = sum(row.plain.chance is True for row in grid)
    few = sum(row.has_few_ranks for row in grid)
    assert f"{weighted} weighted and {plain} plain taus of {len(grid)}" in README
    assert f"{few} of them by their few ranks" in README


def test_the_readme_s_means_and_cells() -> None:
    means, order, highest = table("means"), table("order"), table("highest")
    overall = means[means["encoder"] == "all"]
    for tau, place in (("weighted", "weighted tau {} (the"), ("plain", "plain tau {}.")):
        taus = ", ".join(map(number, overall[tau]))
        assert place.format(taus) in README
    assert f"reverses them ({', '.join(map(number, overall['plain_corrected']))})" in README
    counts = {}
    for tau in ("weighted", "plain"):
        decided = order[order[f"{tau}_undecided_reason"].isna()]
        counts[tau] = (decided[f"{tau}_falls"].astype(str).eq("True").sum(), len(decided))
        for one, other, text in (
            ("additive", "deep", "Additive less deep is 0.02 ± 0.02 in both"),
            ("deep", "dot", "Deep less dot is 0.11 ± 0.05 and 0.06 ± 0.04"),
        ):
            step = decided[f"{tau}_{one}"] - decided[f"{tau}_{other}"]
            error = np.std(step, ddof=1) / np.sqrt(len(step))
            assert text in README
            assert f"{number(step.mean())} ± {number(error)}" in text
    (a, cells), (b, _) = counts.values()
    assert f"{a} of {cells} in weighted and {b} of {cells} in plain tau do" in README
    p = [at_least(int(held), cells, 1 / 6) for held in (a, b)]
    assert f"(p {p[0]:.0e}), the plain one is not (p {p[1]:.2f})".replace("e-05", "e-5") in README
    leads = order["weighted_additive"] - order["weighted_deep"]
    last = leads.idxmax()
    assert (order.loc[last, ["dataset", "encoder", "seed"]]).tolist() == ["ag_news", "bilstm", 2]
    assert f"AG News, seed 2, tau {number(order.loc[last, 'weighted_deep'])})" in README
    assert leads.drop(last).mean() < leads.mean() / 5
    p = [at_least(held, 11, 1 / 9) for held in (5, 3)]
    assert f"one of nine (p {p[0]:.3f} and {p[1]:.2f}), so plain" in README
    best = {}
    for tau in ("weighted", "plain"):
        decided = highest[highest[f"{tau}_undecided_reason"].isna()]
        won = decided[decided[f"{tau}_highest"].astype(str).eq("True")]
        best[tau] = len(won), len(decided), int((won[tau] <= won[f"{tau}_best_other"] + 1e-9).sum())
    assert best == {"weighted": (5, 11, 3), "plain": (3, 11, 3)}
    assert "here it is in 5 of 11 data sets and seeds in weighted tau, 3 of these tied" in README
    assert "and in 3 of 11 in plain tau, all tied" in README


def test_the_readme_s_nulls_and_clusters() -> None:
    nulls = table("nulls").set_index(["null", "tau"])
    for tau, text in (
        ("weighted", "{:.0f} of them (mean {} against {}, the difference {} ± {}, sign test p {})"),
        ("plain", "plain tau in {:.0f} ({} against {}, {} ± {}, p {})"),
    ):
        row = nulls.loc[("gumbel_noise", tau)]
        assert row["models"] == 18
        numbers = (number(row[n]) for n in ("learned", "null_mean", "difference", "error"))
        assert text.format(row["exceeds"], *numbers, number(row["p_sign"], 3)) in README
    clusters = table("clusters").set_index("dataset")
    whole = clusters.loc["all"]
    assert f"fails in {whole['failed']} of the {whole['models']} models" in README
    assert (whole["fewest"], whole["most"]) == (50, 50)
    assert clusters.loc[["imdb_5k", "ag_news"], "failed"].sum() == 54
    assert "(in all 54 of IMDB and AG News)" in README


def test_the_readme_s_special_models() -> None:
    second, third, fourth = table("table_2"), table("table_3"), table("table_4")
    taus = ["delta_weighted", "delta_plain"]

    def falls(reading: str, setting: str = "Fix Attn") -> pd.DataFrame:
        found: pd.DataFrame = second[
            (second["setting"] == setting) & (second["reading"] == reading)
        ]
        return found[taus]

    for reading, text in (
        ("uniform", "So its fall by {} to {}, though"),
        ("parameters", "untrained parameters lowers tau by {} to {}, on"),
    ):
        ends = falls(reading).min(axis=None), falls(reading).max(axis=None)
        assert text.format(*map(number, ends)) in README
    weight = second.set_index(["dataset", "reading", "setting"])["largest_weight"]
    sst, news = (
        {own: weight[name, own, "Fix Attn"] for own in ("random", "parameters", "uniform")}
        for name in ("sst", "20news_sports")
    )
    assert f"weight of {number(sst['random'])} and {number(news['random'])}, nearly" in README
    assert (
        f"weight {number(sst['parameters'], 3)}, where uniform is {number(sst['uniform'], 3)}, on "
        f"SST; {number(news['parameters'], 3)} and {number(news['uniform'], 3)} on 20"
    ) in README
    weighted, plain = (falls("random")[tau] for tau in taus)
    assert f"plain tau by {number(plain[2])} and {number(plain[9])}, weighted" in README
    assert f"weighted tau by {number(weighted[2])} on SST and {number(weighted[9])} on 20" in README
    _, plain = (falls("random", "Fix Rep")[tau] for tau in taus)
    assert f"lowers plain tau by {number(plain.min())} and {number(plain.max())}" in README
    jsd = third.set_index("dataset")["attention_jsd"]
    assert f"JSD {number(jsd['20news_sports'])};" in README
    assert f"a JSD of {number(jsd['sst'])} only" in README
    tvd = third.set_index("dataset")["tvd"]["20news_sports"]
    assert f"TVD {number(tvd, 3)}, half of it {number(tvd / 2, 3)};" in README
    own = fourth.set_index("dataset").loc["20news_sports"]
    assert f"of {own['ranks']} ranks against {own['ranks_normal']}" in README
    assert third.set_index("dataset").loc["sst", ["epochs", "max_epochs"]].tolist() == [80, 80]


def test_the_readme_s_gumbel_models() -> None:
    every = table("table_5").set_index("attention").loc["all"]
    gumbel = table("gumbel")
    assert every["weighted_noise_on_cases"] == every["plain_noise_off_cases"] == 10
    assert f"in {every['weighted_noise_on']:.0f} of the 10 models that decide, just" in README
    assert f"it is {every['weighted_noise_on_all']:.0f} of {every['models']:.0f} here" in README
    assert f"in {every['weighted_noise_off']:.0f} of the 10 models that decide, and" in README
    assert f"plain tau in {every['plain_noise_off']:.0f}; with the noise on" in README
    assert f"plain tau in {every['plain_noise_on']:.0f}. The" in README
    means = [every[f"{tau}_equal_scores_mean"] for tau in ("weighted", "plain")]
    assert f"weighted tau is {number(means[0])} and plain {number(means[1])}" in README
    gains = {}
    for tau in ("weighted", "plain"):
        of = []
        for noise in ("noise_off", "noise_on"):
            decided = gumbel[(gumbel["ranks_softmax"] >= 5) & (gumbel[f"ranks_{noise}"] >= 5)]
            of.append((decided[f"{tau}_{noise}"] - decided[f"{tau}_softmax"]).max())
        gains[tau] = number(max(of))
    assert f"up to {gains['weighted']} weighted and {gains['plain']} plain" in README


@pytest.mark.parametrize("dataset", ["sst", "20news_sports", "imdb_5k", "ag_news"])
def test_the_readme_s_accuracies(dataset: str) -> None:
    accuracy = table("accuracy").set_index("dataset")["accuracy"][dataset]
    assert f"{accuracy:.3f}".removeprefix("0") in README
