"""The engine needs torch and numpy alone; what an extra brings is named where it is missing."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CORE = {"torch", "numpy"}
# Import names that are not those of the distributions.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "huggingface_hub": "huggingface-hub"}
SOME = "some"  # in place of an extra: a package that something else stands in for


def names(requirements: list[str]) -> set[str]:
    """Name the distributions of requirements."""
    return {Requirement(text).name for text in requirements}


def imports(node: ast.AST, extra: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Walk a source's imports at run time: the package, and the extra that guards it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name.partition(".")[0], extra) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield str(child.module).partition(".")[0], extra
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from imports(ast.Module(child.orelse, []), extra)
        elif isinstance(child, ast.With) and (
            found := re.fullmatch(r"needs\('(\w+)'\)", ast.unparse(child.items[0].context_expr))
        ):
            yield from imports(ast.Module(child.body, []), found[1])
        elif isinstance(child, ast.Try) and any(
            handler.type is not None and ast.unparse(handler.type) == "ImportError"
            for handler in child.handlers
        ):
            yield from imports(ast.Module(child.body, []), SOME)
            yield from imports(ast.Module([*child.handlers, *child.orelse], []), extra)
        else:
            yield from imports(child, extra)


def test_the_engine_depends_on_torch_and_numpy_alone() -> None:
    assert names(PROJECT["dependencies"]) == CORE


def test_all_is_text_report_and_cli() -> None:
    [everything] = map(Requirement, EXTRAS["all"])
    assert everything.name == "fastattnerase"
    assert everything.extras == {"text", "report", "cli"}


PACKAGE = ROOT / "fastattnerase"
SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=[str(p.relative_to(PACKAGE)) for p in SOURCES])
def test_every_other_package_is_guarded_by_an_extra_that_brings_it(path: Path) -> None:
    # `main` guards the command line as a whole.
    default = "cli" if path.parent.name == "cli" else None
    for package, extra in imports(ast.parse(path.read_text(encoding="utf-8")), default):
        if package in sys.stdlib_module_names or package in CORE | {"fastattnerase"}:
            continue
        assert extra is not None, f"{package} is imported unguarded"
        bringing = [extra] if extra != SOME else EXTRAS
        brought = set().union(*(names(EXTRAS[name]) for name in bringing))
        assert DISTRIBUTIONS.get(package, package) in brought, (package, extra)


def test_guards_are_seen() -> None:
    source = (
        "import a.b\nwith needs('text'):\n    from c import d\nif TYPE_CHECKING:\n    import e\n"
        "def f():\n    with open('x'):\n        import g\n"
        "try:\n    import h\nexcept ImportError:\n    import i\n"
    )
    assert list(imports(ast.parse(source))) == [
        ("a", None), ("c", "text"), ("g", None), ("h", SOME), ("i", None)
    ]  # fmt: skip


# --- the bare wheel in a clean environment --------------------------------------------------------


def closure(distributions: set[str]) -> set[str]:
    """Name distributions with all that they require here, extras apart."""
    found: set[str] = set()
    left = list(distributions)
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # such as what another platform needs
        found.add(name)
        for requirement in map(Requirement, required):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                left.append(requirement.name)
    return found


def link(distributions: set[str], folder: Path) -> None:
    """Make a folder of links to what distributions installed here."""
    for name in distributions:
        for file in importlib.metadata.files(name) or ():
            top = file.parts[0]
            if top != ".." and not (folder / top).exists():
                place = Path(str(file.locate()))
                (folder / top).symlink_to([place, *place.parents][len(file.parts) - 1])


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it, with torch and numpy and what they need, and nothing else.

    The native module, which takes minutes to compile, is the one that is installed here.
    """
    folder = tmp_path_factory.mktemp("bare")
    build = (
        "import sys\nfrom scikit_build_core.build import build_wheel\n"
        "build_wheel(sys.argv[1], {'wheel.cmake': 'false'})"
    )
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True)
    [wheel] = folder.glob("fastattnerase-*.whl")
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    python = folder / "environment" / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.check_output([python, "-c", where], text=True).strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    native = importlib.util.find_spec("fastattnerase._C")
    assert native is not None
    assert native.origin is not None
    (site / "fastattnerase" / Path(native.origin).name).symlink_to(native.origin)
    link(closure(CORE), site)
    return python


def run(python: Path, code: str, *, code_expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run code in the bare environment, seeing neither this folder nor this environment."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    result = subprocess.run(
        [str(python), "-I", "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=python.parent,
    )
    assert result.returncode == code_expected, result.stderr
    return result


SWEEP = """
import torch
import fastattnerase as fae

batch = fae.AttentionBatch(
    torch.tensor([[2.0], [-1.0], [-0.5]]), torch.tensor([0, 3]),
    weights=torch.tensor([0.5, 0.3, 0.2]), head_weight=torch.tensor([[0.0], [1.0]]),
)
result = fae.sweep(batch, rankings=("attention", "gradient", "greedy", "minimal"), curves=("js",))
"""


def test_a_sweep_on_the_bare_wheel(bare: Path) -> None:
    """Logits [0, 0.6]; without the first item the average is below 0, so that the label flips."""
    wheel = importlib.metadata.PathDistribution(
        next((bare.parents[1]).glob("lib/python*/site-packages/fastattnerase-*.dist-info"))
    )
    required = [text for text in wheel.requires or [] if "extra ==" not in text]
    assert names(required) == CORE
    code = SWEEP + (
        "assert result.prefixes.first_flip.tolist() == [[1]] * 4\n"
        "assert result.minimal.size.tolist() == [1]\n"
        "assert {'cpu', 'reference'} <= {n for n, why in fae.backends().items() if not why}\n"
        "print(fae.__file__)\n"
    )
    assert str(bare.parents[1]) in run(bare, code).stdout


def test_the_bare_wheel_names_the_extra_that_is_missing(bare: Path) -> None:
    code = (
        SWEEP
        + """
import fastattnerase.data, fastattnerase.mi, fastattnerase.models, fastattnerase.sources
from fastattnerase.extras import MissingPackageError

for call in (result.prefixes.to_pandas, lambda: __import__("fastattnerase.report.figures")):
    try:
        call()
    except MissingPackageError as error:
        print(error)
"""
    )
    text, report = run(bare, code).stdout.splitlines()
    assert text.startswith("pandas: not installed")
    assert text.endswith("`pip install 'fastattnerase[text]'`")
    assert report.endswith("`pip install 'fastattnerase[report]'`")


def test_the_command_without_its_extra_is_one_line(bare: Path) -> None:
    result = run(bare, "from fastattnerase.cli import main; main()", code_expected=2)
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("`pip install 'fastattnerase[cli]'`")


def test_the_command_alone_says_what_there_is_and_what_each_command_takes(bare: Path) -> None:
    """With typer and rich, and nothing of what the commands then need."""
    [site] = (bare.parents[1]).glob("lib/python*/site-packages")
    link(closure({"typer", "rich"}), site)
    code = """
import sys
from fastattnerase.cli import main

commands = (
    "info", "train --help", "measure --help", "reproduce wen --help", "train --data x.csv", "demo"
)
for command in commands:
    sys.argv[1:] = command.split()
    try:
        main()
    except SystemExit as end:
        print(command, end.code)
"""
    result = run(bare, code)
    ends = [line.rpartition(" ")[2] for line in result.stdout.splitlines() if line[-1:].isdigit()]
    assert ends[-6:] == ["0", "0", "0", "0", "2", "2"]
    assert "backend reference" in result.stdout
    for line in result.stderr.splitlines():
        assert line.endswith("install it with `pip install 'fastattnerase[text]'`")
    assert len(result.stderr.splitlines()) == 2
