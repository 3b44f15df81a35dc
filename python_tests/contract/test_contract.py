"""Every case of the contract, through every backend, judged by the oracle and the reference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from contract.cases import CASES, Built, Case, build
from contract.harness import (
    Judge,
    Runner,
    allocate,
    bits,
    compare_with_reference,
    on_orders,
    run,
    skip_where_refused,
    subset,
    take,
    tensors,
    to_cpu,
    wanted,
)
from fastattnerase.backends.reference import BACKEND as REFERENCE
from fastattnerase.problem import Outputs

REFERENCE_INSTANCES = 30  # the reference takes one instance at a time
_known: dict[tuple[object, ...], Outputs] = {}
_judged: set[tuple[Case, str]] = set()


def reference_of(built: Built, out: Outputs) -> tuple[Outputs, Outputs]:
    """The backend's results on some instances, and the reference's on the same orders."""
    instances = built.some(REFERENCE_INSTANCES)
    problem = subset(on_orders(built.problem, out.order), instances)
    key = (built.case, *(order.numpy().tobytes() for order in problem.orders))
    if key not in _known:
        _known[key] = allocate(problem, wanted(built.case) | {"order": False}, float("nan"))
        REFERENCE.sweep(problem, _known[key])
    return take(out, built.problem, instances), _known[key]


def numbers_of(out: Outputs) -> str:
    """A digest of all results, bit for bit."""
    digest = hashlib.sha256()
    for name, tensor in tensors(out):
        digest.update(name.encode())
        digest.update(bits(tensor.contiguous()).cpu().numpy().tobytes())
    return digest.hexdigest()


def test_case(runner: Runner, case: str, record_property: Callable[[str, object], None]) -> None:
    """Poison, guard bands, repeats, then the oracle, then the reference on the same orders."""
    built = runner.build(CASES[case])
    skip_where_refused(runner, built.problem, record_property)
    out = to_cpu(run(runner, built.problem, wanted(built.case)))
    built = built if runner.device == "cpu" else build(built.case)
    verdict = (built.case, numbers_of(out))
    if verdict not in _judged:  # by another variant of the same numbers, the verdict is the same
        Judge(built, out).judge()
        _judged.add(verdict)
    if runner.name != "reference":
        mine, ref = reference_of(built, out)
        tied = compare_with_reference(mine, ref, built.case.exact)
        record_property("near_ties", tied)
        record_property("instances", len(mine.label))


def test_cases_are_one_description_of_distinct_problems() -> None:
    assert len(CASES) > 180
    kinds = {replace(case, name="", kind="") for case in CASES.values()}
    assert len(kinds) == len(CASES), "two cases describe the same problem"
