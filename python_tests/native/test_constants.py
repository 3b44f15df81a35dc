"""What stands in several languages is equal in all of them: enums, constants, random words.

The random words of the backends are compared by their orders: contract/test_determinism.py.
"""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import oracle

import fastattnerase as fae
from fastattnerase.backends import addresses
from fastattnerase.models import mechanisms
from fastattnerase.problem import FIRST_PERMUTATION, RankingKind
from fastattnerase.rankings import random as random_ranking
from fastattnerase.reference import instance as reference

ROOT = Path(__file__).parents[2]
PARAMS = (ROOT / "csrc" / "include" / "fastattnerase" / "params.h").read_text()
COMMON = import_module("fastattnerase.kernels.triton.common")

# The first outputs of splitmix64 from state 0 (Vigna's splitmix64.c).
SPLITMIX64 = (
    0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC,
    0x1B39896A51A8749B, 0x53CB9F0C747EA2EA, 0x2C829ABE1F4532E1, 0xC584133AC916AB3C,
)  # fmt: skip
GAMMA = 0x9E3779B97F4A7C15
STATES = [(i + 1) * GAMMA % 2**64 for i in range(len(SPLITMIX64))]


def enum(name: str) -> dict[str, int]:
    """The enumerators of params.h: `kLeaveOneOut = 5` is LEAVE_ONE_OUT."""
    [body] = re.findall(rf"^enum {name} : std::int\d+_t \{{(.*?)\}};", PARAMS, re.M | re.S)
    body = re.sub(r"//.*", "", body)
    found = {
        re.sub(r"(?<!^)(?=[A-Z])", "_", key).upper(): int(value)
        for key, value in re.findall(r"\bk(\w+) = (\d+)", body)
    }
    assert len(found) == body.count("=") == body.count(",") + (body.rstrip()[-1] != ",")
    return found


def constant(name: str) -> float:
    [value] = re.findall(rf"^constexpr double {name} = ([\d.e+-]+);", PARAMS, re.M)
    return float(value)


def test_permutations_begin_at_the_same_order() -> None:
    [shift] = re.findall(r"kFirstPermutation = std::int64_t\{1\} << (\d+);", PARAMS)
    assert 1 << int(shift) == FIRST_PERMUTATION


@pytest.mark.parametrize(
    ("name", "python"), [("RankingKind", RankingKind), ("StatusBit", fae.Status)]
)
def test_enums_are_those_of_params_h(name: str, python: type[IntEnum]) -> None:
    assert enum(name) == {key: int(member) for key, member in python.__members__.items()}


def test_triton_has_the_status_bits() -> None:
    assert {key: getattr(COMMON, key).value for key in enum("StatusBit")} == enum("StatusBit")


def test_dtype_tags_are_those_of_params_h() -> None:
    names = {
        torch.float32: "FLOAT32",
        torch.float64: "FLOAT64",
        torch.bfloat16: "B_FLOAT16",
        torch.float16: "FLOAT16",
    }
    assert enum("DType") == {names[dtype]: tag for dtype, tag in addresses._DTYPES.items()}


@pytest.mark.parametrize(
    ("native", "python"),
    [("kUnderflowSpan", "UNDERFLOW_SPAN"), ("kNearTieTolerance", "NEAR_TIE_TOLERANCE")],
)
def test_constants_are_those_of_params_h(native: str, python: str) -> None:
    value = constant(native)
    assert value == {"kUnderflowSpan": 600.0, "kNearTieTolerance": 3e-6}[native]
    assert getattr(reference, python) == value
    assert getattr(COMMON, python).value == value


def code(path: Path) -> str:
    """A file without its comments and docstrings."""
    text = path.read_text()
    if path.suffix == ".py":
        return re.sub(r'#[^\n]*|""".*?"""', "", text, flags=re.S)
    return re.sub(r"//.*", "", text)


def test_no_kernel_has_the_constants_of_its_own() -> None:
    """They are named in params.h and in Triton's common.py, and used by name elsewhere."""
    folders = (ROOT / "csrc", ROOT / "kernels")
    files = [path for folder in folders for path in folder.rglob("*.*") if path.is_file()]
    sources = [path for path in files if path.suffix in (".h", ".cpp", ".cu", ".cuh", ".py")]
    assert len(sources) > 50
    holders = {path.name for path in sources if re.search(r"\b(3e-6|600(\.0)?)\b", code(path))}
    assert holders == {"params.h", "common.py"}


def of_benchmarks() -> list[int]:
    """The words of the benchmarks' generator, for instance 0 of seed 0 and order 0."""
    sys.path.append(str(ROOT / "benchmarks"))
    try:
        problems = import_module("problems")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    keys = problems.random_keys(0, 0, torch.tensor([0, 20]))
    return [key + 2**63 for key in keys.tolist()]


def test_every_generator_in_python_is_splitmix64() -> None:
    assert [random_ranking.mix64(x) for x in STATES] == list(SPLITMIX64)
    assert [oracle._mix(x) for x in STATES] == list(SPLITMIX64)
    with np.errstate(over="ignore"):
        words = mechanisms._mix(np.array(STATES, dtype=np.uint64))
    assert words.tolist() == list(SPLITMIX64)
    assert of_benchmarks() == random_ranking.random_keys(0, 0, 0, 20)
    assert (random_ranking._GOLDEN, int(mechanisms._GOLDEN), oracle._GAMMA) == (GAMMA,) * 3
