"""The rooms of the package import one another in one direction; prints the cycles when run.

`python python_tests/test_imports.py [PACKAGE_FOLDER]` lists the cycles of another tree.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "fastattnerase"
# Folders whose own folders are rooms: one study may not import another.
HALLS = ("studies",)

Graph = dict[str, set[str]]


def modules(package: Path) -> dict[str, Path]:
    """Find every module of a package, by its dotted name; the native one is known by its stub."""
    found = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Walk all imports, inside functions too, but for those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from statements(ast.Module(child.orelse, []))
        else:
            yield from statements(child)


def imported(source: str, known: Iterable[str]) -> set[str]:
    """Name the modules of the package that a source imports; all imports are absolute."""
    names: set[str] = set()
    for statement in statements(ast.parse(source)):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
            continue
        assert statement.level == 0, f"a relative import: {ast.unparse(statement)}"
        for alias in statement.names:
            inner = f"{statement.module}.{alias.name}"
            names.add(inner if inner in known else str(statement.module))
    return names & set(known)


def module_graph(package: Path) -> Graph:
    """Map every module to those that it imports, a package to its `public` (`lazy.py`), too."""
    files = modules(package)
    return {
        name: (imported(path.read_text(), files) - {name}) | ({f"{name}.public"} & set(files))
        for name, path in files.items()
    }


def room_of(module: str) -> str:
    """Name the room of a module: its folder, or the module itself where it is in none."""
    parts = module.split(".")[1:]
    if not parts:
        return "the package itself"
    return ".".join(parts[: 2 if parts[0] in HALLS else 1])


def room_graph(graph: Graph) -> Graph:
    """Map every room to those that its modules import."""
    rooms: Graph = {room_of(module): set() for module in graph}
    for module, targets in graph.items():
        rooms[room_of(module)] |= {room_of(target) for target in targets} - {room_of(module)}
    return rooms


def knots(graph: Graph) -> list[tuple[str, ...]]:
    """Find the sets of nodes that all reach one another (strongly connected components)."""
    reach: Graph = {}
    for start in graph:
        seen: set[str] = set()
        left = [start]
        while left:
            new = graph[left.pop()] - seen
            seen |= new
            left += new
        reach[start] = seen
    found = {
        tuple(sorted(other for other in reach[node] if node in reach[other]))
        for node in graph
        if node in reach[node]
    }
    return sorted(found)


def cycles(graph: Graph) -> list[tuple[str, ...]]:
    """List the elementary cycles, each from its first node by name."""
    found = []

    def walk(path: tuple[str, ...]) -> None:
        for target in sorted(graph[path[-1]]):
            if target == path[0]:
                found.append(path)
            elif target > path[0] and target not in path:
                walk((*path, target))

    for start in sorted({node for knot in knots(graph) for node in knot}):
        walk((start,))
    return found


def test_no_room_imports_one_that_imports_it() -> None:
    assert cycles(room_graph(module_graph(PACKAGE))) == []


def test_no_module_imports_one_that_imports_it() -> None:
    assert knots(module_graph(PACKAGE)) == []


def test_only_commands_and_what_is_made_of_studies_know_a_study() -> None:
    # `debate` asks the tests of several studies of one text; `sweeps` runs `erase` on dumps.
    rooms = room_graph(module_graph(PACKAGE))
    found = {
        (room, target)
        for room in rooms.keys() - {"cli", "debate", "reproduce", "studies", "sweeps"}
        for target in rooms[room]
        if target.startswith("studies.") and (PACKAGE / target.replace(".", "/")).is_dir()
    }
    assert found == set()
    assert {room for room in rooms if {"debate", "sweeps"} & rooms[room]} == {"cli"}


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {
        str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_cycles_are_found() -> None:
    graph: Graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"b"}, "e": {"a"}}
    assert knots(graph) == [("a", "b", "c", "d")]
    assert cycles(graph) == [("a", "b"), ("b", "c", "d")]
    source = (
        "import torch\nfrom p.a import x\nif TYPE_CHECKING:\n    import p.b\nelse:\n"
        "    import p.c\ndef f():\n    from p import d, y\n"
    )
    assert imported(source, ["p", "p.a", "p.b", "p.c", "p.d"]) == {"p", "p.a", "p.c", "p.d"}


def report(package: Path) -> str:
    """List the cycles between rooms and between modules, and how many there are."""
    graph = module_graph(package)
    rooms, tangled = cycles(room_graph(graph)), knots(graph)
    lines = [f"rooms: {' -> '.join((*cycle, cycle[0]))}" for cycle in rooms]
    lines += [f"modules: {', '.join(knot)}" for knot in tangled]
    return "\n".join([*lines, f"{len(rooms)} between rooms, {len(tangled)} between modules"])


if __name__ == "__main__":
    sys.stdout.write(report(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE) + "\n")
