"""What is said of the paper: every number in the sentences is one of its tables'."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from committed import FOLDER, measurements

from fastattnerase.studies.wen import claims as rules
from fastattnerase.studies.wen import paper
from fastattnerase.studies.wen.claims import claims, exceptions
from fastattnerase.studies.wen.tables import compare

SHARED = Path(os.environ.get("FASTATTNERASE_SHARED", Path(__file__).parents[4] / "shared"))
PAPER = SHARED / "papers" / "002_5efe73a96e11624d.txt"


def decimals(text: str) -> list[str]:
    return re.findall(r"\d+\.\d+", text)


def is_of_the_paper(text: str) -> bool:
    """Whether a printed number is a cell, or the size of a change, at the digits it has."""
    digits = len(text.split(".")[1])
    known = {f"{abs(value):.{digits}f}" for value in paper.CELLS.values()}
    return text in known


def of_the_paper(texts: Iterable[str]) -> None:
    for text in texts:
        for number in decimals(text):
            assert is_of_the_paper(number), f"{number} in {text!r}"


@pytest.mark.skipif(not PAPER.exists(), reason=f"no file {PAPER}")
def test_the_cells_are_the_paper_s() -> None:
    """Tables 1 to 4 row by row, as the paper prints them."""
    lines = PAPER.read_text(encoding="utf-8").splitlines()
    names = {"ADR": "ADR Tweets", "20News": "20 ?News", "Diabetes": "Diabetes", "bAbI 1": "bAbI 1"}

    def printed(row: str, numbers: list[str]) -> bool:
        name = re.compile(names.get(row, row))
        return any(name.match(line) and all(n in line for n in numbers) for line in lines)

    for row, values in paper._TABLE_2.items():
        assert printed(row, [f"{value:.2f}" for value in values]), row
    for row, (_, *values) in paper._TABLE_3.items():
        assert printed(row, [f"{values[0]:.2f}", *(f"{v:.3f}" for v in values[1:])]), row
    for row, [value] in paper._TABLE_4.items():
        assert printed(row, [f"{value:.2f}"]), row
    for row, values in paper._TABLE_1.items():
        if not row.startswith("bAbI"):  # one line for all three
            assert printed(row, [str(values[0]), str(values[1]), f"{values[2]:.2f}"]), row
    text = PAPER.read_text(encoding="utf-8")
    assert "difference on Kendall τ is 0.02 and the maximum difference is 0.05" in text
    assert "are 0.80, 0.74, and 0.45, respectively" in text
    assert "20/21\t19/21\t20/21\t59/63" in text
    assert "6/9\t6/9\t8/9\t20/27" in text
    assert "2/3\t1/3\t3/3\t6/9" in text


def test_sums_of_table_5() -> None:
    for row in ("classification", "QA", "NLI"):
        each = [paper.number("Table 5", row, name) for name in ("deep", "dot", "additive")]
        assert sum(each) == paper.number("Table 5", row, "all")
        assert 3 * paper.number("Table 5", row, "models of each") == paper.number(
            "Table 5", row, "models of all"
        )
    wanted = {"additive": 20 / 21, "deep": 20 / 21, "dot": 19 / 21, "all": 59 / 63}
    wanted |= {f"{name} (QA)": n / 9 for name, n in (("additive", 8), ("deep", 6), ("dot", 6))}
    wanted |= {f"{name} (NLI)": n / 3 for name, n in (("additive", 3), ("deep", 2), ("dot", 1))}
    assert wanted | {"all (QA)": 20 / 27, "all (NLI)": 6 / 9} == paper.GUMBEL


def test_the_sentence_about_the_rules_names_every_exception() -> None:
    text = exceptions()
    of_the_paper([text])
    fix = paper.column("Table 2", "Fix Attn")
    assert [row for row, value in fix.items() if value <= rules.MIN_FALL] == ["SNLI"]
    assert all(value <= rules.MAX_FALL for value in paper.column("Table 2", "Fix Rep").values())
    assert all(value >= rules.MIN_JSD for value in paper.column("Table 3", "jsd").values())
    assert all(2 * value <= rules.MAX_TVD for value in paper.column("Table 3", "tvd").values())
    assert all(value <= rules.MAX_CHANGE for value in paper.column("Table 4", "delta").values())
    for named in ("Fix Attn on SNLI (0.07)", "QA (20 of 27)", "NLI (6 of 9)"):
        assert named in text
    assert text.count("Table") == 3


def test_every_number_that_statements_give_as_the_paper_s_is_one() -> None:
    found = claims(compare(measurements()))
    of_the_paper(claim.paper for claim in found)
    own = {claim.text: claim.paper for claim in found}
    assert own["Fix Attn, random: fixed attention lowers weighted tau"].startswith(
        "by 0.07 to 1.70"
    )
    assert own["Fix Rep, random: fixed representations do not lower plain tau"].startswith(
        "it rises by 0.00 to 0.07"
    )
    [gumbel] = {text for name, text in own.items() if name.startswith("Gumbel")}
    assert gumbel == "59 of 63 classification models, 94%; 20 of 27 QA and 6 of 9 NLI (weighted)"


def test_every_number_that_the_readme_gives_as_the_paper_s_is_one() -> None:
    """After `the paper`, up to the end of the bracket, or of the clause."""
    readme = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    said = re.findall(r"\(the paper:? ([^)]*)\)", readme)
    said += re.findall(r"like the paper's, (\S+ to \S+)", readme)
    said += re.findall(r"the paper repeats a seed with ([^.]*\.\d+[^.]*\.\d+)", readme)
    assert len(said) > 8
    of_the_paper(said)


def test_a_number_that_the_paper_lacks_is_nan() -> None:
    assert math.isnan(paper.number("Table 3", "SNLI", "jsd"))
    assert math.isnan(paper.data_set("my_own").accuracy)
    psytar = paper.data_set("psytar")
    assert (psytar.name, psytar.adversary.jsd, psytar.strength) == ("ADR", 0.194, 5e-4)
