"""Random problems of every shape and kind, drawn by Hypothesis, judged like the cases."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from contract.cases import ALL, Case, build, shrink
from contract.harness import Judge, Runner, compare_with_reference, run, to_cpu, wanted
from contract.test_contract import reference_of

DTYPES = ("float32", "float64", "bfloat16", "float16")
ATTENTION = (
    "scores 0.5",
    "scores 3",
    "scores 12",
    "scores steps",
    "scores equal",
    "scores holes 1",
    "scores span 610",
    "scores span 5000",
    "weights softmax 1",
    "weights uniform 9",
    "weights holes 1",
    "weights heavy",
    "weights onehot",
    "weights binary",
    "weights zero",
)

cases = st.builds(
    Case,
    name=st.integers(0, 10**6).map("random problem {}".format),
    lengths=st.lists(st.integers(0, 24), max_size=6).map(tuple),
    features=st.integers(1, 40),
    classes=st.integers(1, 12),
    values=st.sampled_from(("normal", "integers", "repeated", "scaled 30", "scaled 1e-3")),
    head=st.sampled_from(("normal", "integers", "scaled 10", "zero")),
    bias=st.sampled_from(("zero", "normal", "instance", "integers", "large")),
    attention=st.sampled_from(ATTENTION),
    dtype=st.sampled_from(DTYPES),
    attention_dtype=st.sampled_from(("", *DTYPES)),
    layout=st.sampled_from(("packed", "sliced", "offset", "expanded", "column")),
    rankings=st.lists(st.sampled_from(ALL), max_size=4, unique=True).map(tuple),
    keep=st.booleans(),
    single=st.booleans(),
    minimal=st.booleans(),
)


def check(runner: Runner, case: Case, bad: tuple[int, int] | None) -> None:
    """Run and judge one problem, with a NaN among its values where `bad` says so."""
    if bad and bad[0] < len(case.lengths) and bad[1] < case.lengths[bad[0]]:
        case = replace(case, spoil=(("values", *bad, float("nan")),))
    built = build(shrink(case, runner.caps), runner.device)
    out = to_cpu(run(runner, built.problem, wanted(built.case)))
    if runner.device != "cpu":
        built = build(built.case)
    Judge(built, out).judge()
    if runner.name != "reference":
        mine, ref = reference_of(built, out)
        compare_with_reference(mine, ref, exact=False)


@pytest.mark.long_where(these=lambda p: p["runner"] == "triton")
def test_random_problems(runner: Runner) -> None:
    examples = 10 if runner.caps.rankings < 10 else 60
    drawn = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )(
        given(case=cases, bad=st.none() | st.tuples(st.integers(0, 5), st.integers(0, 23)))(
            lambda case, bad: check(runner, case, bad)
        )
    )
    drawn()
