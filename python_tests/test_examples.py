"""The examples in docstrings do what they say; those of the engine are run beside its tests."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fastattnerase

FILES = ("extras", "fields", "sources")
PARTS = ("cli", "data", "mi", "models", "runs", "statistics", "studies")
MODULES = [
    module.name
    for part in PARTS
    for module in pkgutil.walk_packages(
        importlib.import_module(f"fastattnerase.{part}").__path__, f"fastattnerase.{part}."
    )
]


@pytest.mark.parametrize("name", [*(f"fastattnerase.{name}" for name in FILES), *MODULES])
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_modules_of_all_parts() -> None:
    assert {name.split(".")[1] for name in MODULES} == set(PARTS)
    assert fastattnerase.__doc__
