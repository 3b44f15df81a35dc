"""The count of what ran: what it says of a backend, and when it fails a run."""

from __future__ import annotations

from contract.cases import CAPS, CASES, Caps, chosen, within
from contract.runners import REFUSALS
from contract.tally import ABSENT, REFUSED, Tally, counted


def tally() -> Tally:
    """Two tests of the reference, one refused by Triton, three for an absent variant."""
    count = Tally(required=["reference", "cpu-wide", "triton"], pinned={"triton": 1})
    count.add({}, skipped=False)
    count.add({"backend": "reference", "instances": 5, "near_ties": 1}, skipped=False)
    count.add({"backend": "reference", "instances": 2}, skipped=False)
    count.add({"backend": "triton"}, skipped=False)
    count.add({"backend": "triton", "not_run": REFUSED}, skipped=True, reason="one head")
    why = f"cpu-wide: {ABSENT}"
    for _ in range(3):
        count.add({"backend": "cpu-wide", "not_run": ABSENT}, skipped=True, reason=why)
    return count


def test_what_ran_and_what_did_not_is_said() -> None:
    count = tally()
    assert [line.strip() for line in count.lines()] == [
        "reference:      2 tests, 7 instances compared, 1 tied",
        "cpu-wide: built, not on this machine: 3 tests not run",
        "triton:      1 tests, 1 refused",
    ]
    assert list(count.not_run()) == [
        "cpu-wide: built, not on this machine: 3 tests not run",
        "triton: 1 tests refused: one head",
    ]
    assert list(count.faults()) == []


def test_a_backend_that_ran_nothing_is_a_fault() -> None:
    count = tally()
    count.required.append("cpu-lost")
    assert list(count.faults()) == ["cpu-lost ran nothing"]


def test_one_refusal_more_or_less_is_a_fault() -> None:
    count = tally()
    count.add({"backend": "triton", "not_run": REFUSED}, skipped=True, reason="too long")
    assert list(count.faults()) == [
        "triton refused 2 tests, needed 1 (REFUSALS in contract/runners.py)"
    ]
    count.refused["triton"] = 0
    count.refused["reference"] = 1
    assert [fault.split(" tests")[0] for fault in count.faults()] == [
        "reference refused 1",
        "triton refused 0",
    ]


def test_refusals_are_those_of_several_heads() -> None:
    for name, number in REFUSALS.items():
        heads = [case for case in chosen(CAPS.get(name, Caps())) if CASES[case].heads > 1]
        assert number == len(heads) + 2 * (name != "triton")  # pooled prefixes


def test_what_caps_leave_is_said() -> None:
    said = within(CAPS["triton"])
    assert said.startswith(f"capped to {len(chosen(CAPS['triton']))} of {len(CASES)} cases, ")
    assert within(Caps()).split(", ")[0] == f"capped to {len(CASES)} of {len(CASES)} cases"


def test_equal_lines_are_counted() -> None:
    assert counted(["a", "b", "a"]) == ["2x a", "1x b"]
