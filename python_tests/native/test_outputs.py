"""The table of results has the same lines in Python and in native code."""

from __future__ import annotations

from fastattnerase import _C
from fastattnerase.problem import BIT, RESULTS


def test_the_tables_of_results_agree():
    python = [(line.name, line.dtype.capitalize(), "".join(line.axes)) for line in RESULTS]
    assert _C.outputs() == python


def test_what_every_sweep_fills_comes_first_and_the_rest_has_a_bit_each():
    always = [line.name for line in RESULTS if line.always]
    assert always == [
        "label", "probabilities", "status", "first_flip", "flip_label", "removed_mass"
    ]  # fmt: skip
    assert [line.name for line in RESULTS][:6] == always
    assert list(BIT.values()) == [2**i for i in range(len(RESULTS) - 6)]
