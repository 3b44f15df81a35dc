"""Backends under test, seeds, and the count of tests each backend ran."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
import torch

GPU = torch.cuda.is_available()
if not GPU:
    # Read when a kernel is defined, so before any kernel module is imported.
    os.environ["TRITON_INTERPRET"] = "1"

from contract import runners  # noqa: E402
from contract.cases import CAPS, Caps, chosen  # noqa: E402
from contract.harness import Runner  # noqa: E402

CONTRACT = Path(__file__).parent / "contract"

_required: list[str] = []
_whole = False
_ran: Counter[str] = Counter()
_compared: dict[str, Counter[str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fastattnerase")
    group.addoption("--gpu", action="store_true", help="fail where no GPU is found")
    group.addoption("--shard", default="1/1", help="i/n: every n-th test from the i-th on")
    group.addoption("--backends", default="", help="comma list of backends, default all that must")


def pytest_configure(config: pytest.Config) -> None:
    global _whole
    if config.getoption("--gpu") and not GPU:
        raise pytest.UsageError("--gpu: torch finds no GPU")
    named = config.getoption("--backends")
    _required[:] = named.split(",") if named else runners.required(GPU)
    # A run that leaves out no contract test has to have run every backend. Where pytest-xdist deals
    # the tests out, the process that hands them to others sees every report and is the judge.
    narrowed = (
        config.option.keyword or config.option.markexpr or getattr(config.option, "lf", False)
    )
    paths = [Path(arg.split("::")[0]).resolve() for arg in config.args if "::" not in arg]
    covered = any(path in (CONTRACT, *CONTRACT.parents) for path in paths)
    ignored = CONTRACT in [Path(path).resolve() for path in config.getoption("ignore") or ()]
    _whole = covered and not narrowed and not ignored and not hasattr(config, "workerinput")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"runner", "case"} <= set(metafunc.fixturenames):
        pairs = [(name, case) for name in _required for case in chosen(CAPS.get(name, Caps()))]
        metafunc.parametrize(("runner", "case"), pairs, indirect=["runner"])
    elif "runner" in metafunc.fixturenames:
        metafunc.parametrize("runner", _required, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine, shards = map(int, config.getoption("--shard").split("/"))
    if not 1 <= mine <= shards:
        raise pytest.UsageError(f"--shard: given {mine}/{shards}, needed i/n with 1 <= i <= n")
    items[:] = items[mine - 1 :: shards]


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Runner:
    """One backend, with the device its tensors have to be on."""
    request.node.user_properties.append(("backend", request.param))
    return runners.load(request.param, GPU)


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """A known random state, and one thread unless a test sets more: the problems are small."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that torch hands out uninitialised is full of NaN or of the least integer."""
    for name in ("empty", "empty_like", "empty_strided"):
        monkeypatch.setattr(torch, name, _poisoning(getattr(torch, name)))
    monkeypatch.setattr(torch.Tensor, "new_empty", _poisoning(torch.Tensor.new_empty))


def _poisoning(function):
    def poisoned(*args, **kwargs):
        tensor = function(*args, **kwargs)
        if tensor.device.type == "meta":
            return tensor
        if tensor.is_floating_point():
            return tensor.fill_(float("nan"))
        return tensor.fill_(1 if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).min)

    return poisoned


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and not report.skipped:
        properties = dict(report.user_properties)
        backend = properties.get("backend")
        if backend is None:
            return
        _ran[backend] += 1
        counts = {name: properties.get(name, 0) for name in ("instances", "near_ties")}
        _compared.setdefault(backend, Counter()).update(counts)


def _idle() -> list[str]:
    return [name for name in _required if not _ran[name]] if _whole else []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _idle() and not session.config.option.collectonly and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _ran and not _idle():
        return
    terminalreporter.section("contract tests per backend")
    for name in dict.fromkeys((*_required, *_ran)):
        note = ", it RAN NOTHING: the run fails" if name in _idle() else ""
        seen = _compared.get(name, Counter())
        if seen["instances"]:
            note += f", {seen['instances']} instances compared, {seen['near_ties']} tied"
        terminalreporter.write_line(f"{name:>14} {_ran[name]:6d} tests{note}")
