"""`_C.pyi` says what the module has: names, parameters, and types of what it returns."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import BuiltinFunctionType, ModuleType

import pytest
from contract import runners

import fastattnerase
from fastattnerase import _C

STUB = ast.parse((Path(fastattnerase.__file__).parent / "_C.pyi").read_text()).body
FUNCTIONS = {node.name: node for node in STUB if isinstance(node, ast.FunctionDef)}
VALUES = {
    node.target.id: ast.unparse(node.annotation)
    for node in STUB
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
}


def signature(function: ast.FunctionDef) -> tuple[object, ...]:
    """Parameters and types; those by keyword may have any name."""
    parameters = [(a.arg, a.annotation and ast.unparse(a.annotation)) for a in function.args.args]
    assert function.returns is not None
    return parameters, function.args.kwarg is not None, ast.unparse(function.returns)


def public(module: ModuleType, kind: type) -> set[str]:
    return {n for n, x in vars(module).items() if not n.startswith("_") and isinstance(x, kind)}


def cuda() -> ModuleType:
    """The module that has the CUDA functions here: the emulator's where `_C` was built without."""
    if _C.has_cuda:
        return _C
    return runners.load("cuda-emulated", False).backend._module


def test_the_stub_has_every_name_of_the_module_and_no_other() -> None:
    built = {name for name in FUNCTIONS if _C.has_cuda or not name.startswith("cuda_")}
    assert public(_C, BuiltinFunctionType) == built
    assert public(_C, object) == built | set(VALUES)
    assert {n for n in public(cuda(), BuiltinFunctionType) if n.startswith("cuda_")} == {
        n for n in FUNCTIONS if n.startswith("cuda_")
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures(name: str) -> None:
    """pybind11 writes each function's signature, made from its C++ types, above its description."""
    module = cuda() if name.startswith("cuda_") else _C
    written = getattr(module, name).__doc__.splitlines()[0]
    # pybind11 3 spells out what else it takes for an integer.
    written = re.sub(r"typing\.SupportsInt( \| typing\.SupportsIndex)?", "int", written)
    [function] = ast.parse(f"def {written}: ...").body
    assert isinstance(function, ast.FunctionDef)
    *parameters, returns = signature(FUNCTIONS[name])
    # A list that C++ fills by hand has no type of its elements there: see below.
    assert [*parameters, "list" if written.endswith("-> list") else returns] == [
        *signature(function)
    ]


def type_of(found: object) -> str:
    """A type as the stub writes it; of a list, that of all its elements."""
    if isinstance(found, list):
        [element] = {type_of(x) for x in found}
        return f"list[{element}]"
    if isinstance(found, tuple):
        return f"tuple[{', '.join(type_of(x) for x in found)}]"
    return type(found).__name__


def test_what_is_returned() -> None:
    for name, annotation in VALUES.items():
        assert type_of(getattr(_C, name)) == annotation, name
    without = [name for name, node in FUNCTIONS.items() if signature(node)[:2] == ([], False)]
    assert len(without) >= 4
    calls = {name: getattr(_C, name)() for name in without}
    calls["cuda_why_not"] = cuda().cuda_why_not(0)
    for name, found in calls.items():
        assert type_of(found) == signature(FUNCTIONS[name])[2], name
