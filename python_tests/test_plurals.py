"""What is shown of one thing says one."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastattnerase
from fastattnerase.plurals import are, counted, have, plural

PACKAGE = Path(fastattnerase.__file__).parent
# Counts that are never one where they are shown.
SEVERAL = {
    ("compare/findings.py", "len(own)"),  # measures of a method
    ("data/labels.py", "len(classes)"),  # more than _MANY
    ("explanation/inputs.py", "len(strange)"),  # one has a sentence of its own
    ("mi/outputs.py", "len(used)"),  # likewise
    ("serrano_smith/exact_words.py", "len(values)"),  # likewise
    ("serrano_smith/summary.py", "len(grades)"),  # the opening of several models
    ("studies/pages.py", "len(parts)"),  # classes of a data set
    ("sweeps/page.py", "len(aside)"),  # one has words of its own
}


def counts_with_nouns(source: str) -> Iterator[tuple[int, str, str]]:
    """Find `{len(…)} things` in texts: a count that a noun in the plural follows."""
    for node in ast.walk(ast.parse(source)):
        values = node.values if isinstance(node, ast.JoinedStr) else []
        for value, after in itertools.pairwise(values):
            if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            noun = re.match(r" (?:[a-z-]+ )?[a-z]+[a-rt-z]s\b(?<! is)(?<! has)", str(after.value))
            count = ast.unparse(value.value)
            if noun is not None and count.startswith("len("):
                yield value.lineno, count, noun[0].strip()


def test_a_count_before_a_noun_chooses_its_number() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {{{count}}} {noun}: write {{counted({count}, …)}}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, count, noun in counts_with_nouns(path.read_text(encoding="utf-8"))
        if ("/".join(path.parts[-2:]), count) not in SEVERAL
    ]
    assert not wrong, "\n".join(wrong)


def test_the_search_finds_what_it_is_for() -> None:
    source = 'f"given {len(x)} names, {len(y)} distinct names, {len(z)} as in y, {n} of them"'
    assert [found[1:] for found in counts_with_nouns(source)] == [
        ("len(x)", "names"), ("len(y)", "distinct names"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "thing", "told"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (2, "row", "2 rows"),
        (1, "class", "1 class"),
        (3, "class", "3 classes"),
        (2, "patch", "2 patches"),
        (2, "epoch", "2 epochs"),
    ],
)
def test_nouns(count: int, thing: str, told: str) -> None:
    assert counted(count, thing) == told
    assert plural(count, thing) == told.split()[1]


def test_verbs() -> None:
    assert [are(0), are(1), are(2)] == ["are", "is", "are"]
    assert [have(0), have(1), have(2)] == ["have", "has", "have"]
