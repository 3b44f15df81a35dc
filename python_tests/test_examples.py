"""The examples in docstrings do what they say; those of the engine are run beside its tests."""

from __future__ import annotations

import ast
import doctest
import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastattnerase
from fastattnerase.saliency import registry

FILES = (
    "extras", "fields", "input_erasure", "item_texts", "kept_items", "lazy", "problem", "sizes",
    "sources",
)  # fmt: skip
PARTS = (
    "cli", "data", "dumps", "explanation", "huggingface", "interop", "measures", "mi", "mil",
    "models", "rankings", "reference", "report", "runs", "saliency", "statistics", "studies",
    "sweeps",
)  # fmt: skip
MODULES = [
    module.name
    for part in PARTS
    for module in pkgutil.walk_packages(
        importlib.import_module(f"fastattnerase.{part}").__path__, f"fastattnerase.{part}."
    )
]


@pytest.fixture
def _own_methods() -> Iterator[None]:
    """An example registers a saliency method that later tests are not to see."""
    methods = registry.methods_of_files()
    before = dict(methods)
    yield
    methods.clear()
    methods.update(before)


@pytest.mark.usefixtures("_own_methods")
@pytest.mark.parametrize("name", [*(f"fastattnerase.{name}" for name in FILES), *MODULES])
def test_examples(name: str) -> None:
    if name == "fastattnerase.interop.quantus":
        pytest.importorskip("quantus", exc_type=ImportError)
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_modules_of_all_parts() -> None:
    assert {name.split(".")[1] for name in MODULES} == set(PARTS)
    assert fastattnerase.__doc__


PACKAGE = Path(fastattnerase.__file__).parent


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_fields_are_documented_under_attributes(path: Path) -> None:
    """In the docstring of the class, neither as arguments nor in strings below them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        makers = [ast.unparse(maker) for maker in (*node.decorator_list, *node.bases)]
        if any("dataclass" in maker or maker == "NamedTuple" for maker in makers):
            assert "\nArgs:\n" not in (ast.get_docstring(node) or ""), node.name
        for field, below in itertools.pairwise(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                assert not isinstance(below.value, ast.Constant), node.name
