"""Backends under test, seeds, and the count of tests each backend ran."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest
import torch

GPU = torch.cuda.is_available()
if not GPU:
    # Read when a kernel is defined, so before any kernel module is imported.
    os.environ["TRITON_INTERPRET"] = "1"

from contract import runners  # noqa: E402
from contract.cases import CAPS, CASES, Caps, chosen, within  # noqa: E402
from contract.harness import Runner  # noqa: E402
from contract.tally import ABSENT, Tally, counted  # noqa: E402
from gpus import GPUS  # noqa: E402

from fastattnerase import _C  # noqa: E402

CONTRACT = Path(__file__).parent / "contract"
if os.environ.get("FASTATTNERASE_TEST_HIDE"):
    runners.hide(os.environ["FASTATTNERASE_TEST_HIDE"])
MUST = [name for name in os.environ.get("FASTATTNERASE_TEST_REQUIRE", "").split(",") if name]

_tally = Tally(pinned=runners.REFUSALS)
_skips: list[str] = []  # of tests of no backend, and others than refusals and absences
_processor: dict[str, float] = {}  # seconds by test
_whole = False
_BEFORE = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fastattnerase")
    group.addoption("--gpu", action="store_true", help="fail where no GPU is found")
    group.addoption("--durations-by-file", action="store_true", help="processor time, summed")
    group.addoption("--shard", default="1/1", help="i/n: every n-th test from the i-th on")
    group.addoption(
        "--emulated-gpu", default="", choices=["", *GPUS], help="default: drawn by a test's name"
    )
    group.addoption("--backends", default="", help="comma list of backends, default all that must")


def pytest_configure(config: pytest.Config) -> None:
    global _whole
    if config.getoption("--gpu") and not GPU:
        raise pytest.UsageError("--gpu: torch finds no GPU")
    if lost := set(MUST) - set(runners.required(GPU)):
        raise pytest.UsageError(
            f"FASTATTNERASE_TEST_REQUIRE: given {', '.join(sorted(lost))}, "
            f"needed backends of this build: {', '.join(runners.required(GPU))}"
        )
    named = config.getoption("--backends")
    _tally.required[:] = named.split(",") if named else runners.required(GPU)
    config.addinivalue_line("markers", "long: runs in `make test-long` and CI, not in `make test`")
    config.addinivalue_line("markers", "long_where(these): long for parameters that fulfil `these`")
    # A run that leaves out no contract test has to have run every backend. Where pytest-xdist deals
    # the tests out, the process that hands them to others sees every report and is the judge.
    narrowed = (
        config.option.keyword
        or config.option.markexpr not in ("", "not long")
        or getattr(config.option, "lf", False)
        or config.getoption("--shard") != "1/1"
    )
    paths = [Path(arg.split("::")[0]).resolve() for arg in config.args if "::" not in arg]
    covered = any(path in (CONTRACT, *CONTRACT.parents) for path in paths)
    ignored = CONTRACT in [Path(path).resolve() for path in config.getoption("ignore") or ()]
    _whole = covered and not narrowed and not ignored and not hasattr(config, "workerinput")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"runner", "case"} <= set(metafunc.fixturenames):
        names = _tally.required
        pairs = [(name, case) for name in names for case in chosen(CAPS.get(name, Caps()))]
        metafunc.parametrize(("runner", "case"), pairs, indirect=["runner"])
    elif "runner" in metafunc.fixturenames:
        names = [name for name in _tally.required if not runners.cases_only(name)]
        metafunc.parametrize("runner", names, indirect=True)
    elif "permuter" in metafunc.fixturenames:
        names = [name for name in _tally.required if runners.permutes(name)]
        metafunc.parametrize("permuter", names, indirect=True)
    elif "cpu_variant" in metafunc.fixturenames:
        variants = [*_C.cpu_variants_built(), "wide"]
        metafunc.parametrize("cpu_variant", variants, indirect=True)


@pytest.hookimpl(tryfirst=True)  # before -m chooses by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine, shards = map(int, config.getoption("--shard").split("/"))
    if not 1 <= mine <= shards:
        raise pytest.UsageError(f"--shard: given {mine}/{shards}, needed i/n with 1 <= i <= n")
    _leave_to_the_long_stage(items)
    items[:] = items[mine - 1 :: shards]


def _leave_to_the_long_stage(items: list[pytest.Item]) -> None:
    """Mark what `long_where` says, and contract tests in the interpreter but every fourth."""
    seen: Counter[str] = Counter()
    for item in items:
        parameters = getattr(item, "callspec", None) and item.callspec.params
        if any(mark.kwargs["these"](parameters) for mark in item.iter_markers("long_where")):
            item.add_marker(pytest.mark.long)
        elif not GPU and parameters and parameters.get("runner") == "triton":
            case = CASES.get(parameters.get("case", ""))
            if case and case.heads > 1:
                continue  # refused, and counted
            function = item.nodeid.split("[")[0]
            if seen[function] % 4:
                item.add_marker(pytest.mark.long)
            seen[function] += 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Deal tests out so that what one process makes is made once: an oracle, a file's fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return Scheduling(config, log)


def scope(nodeid: str) -> str:
    """A case through all backends; else a file, but tests of kernels and operators one by one."""
    file = nodeid.split("::")[0]
    if "::test_case[" in nodeid:
        parameters = nodeid.split("[")[1].rstrip("]")
        backend = next((x for x in _tally.required if parameters.startswith(f"{x}-")), "")
        return parameters.removeprefix(f"{backend}-")
    return nodeid if Path(file).parent.name in ("contract", "cuda", "triton") else file


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Runner:
    """One backend, with the device its tensors have to be on."""
    _here(request.node, request.param)
    if request.param == "cuda-emulated":
        runners.emulate(request.node.nodeid, request.config.getoption("--emulated-gpu"))
    return runners.load(request.param, GPU)


@pytest.fixture
def permuter(request: pytest.FixtureRequest) -> Runner:
    """One backend of those that permute weights."""
    _here(request.node, request.param)
    return runners.load(request.param, GPU)


@pytest.fixture
def cpu_variant(request: pytest.FixtureRequest) -> str:
    """One instruction-set variant of the CPU engine."""
    _here(request.node, f"cpu-{request.param}")
    return request.param


def _here(item: pytest.Item, backend: str) -> None:
    """Count the test as one of the backend; skip it where the machine lacks what it needs."""
    item.user_properties.append(("backend", backend))
    if why := runners.absent(backend):
        if backend in MUST:
            pytest.fail(f"{backend}: {why}, but FASTATTNERASE_TEST_REQUIRE names it")
        item.user_properties.append(("not_run", ABSENT))
        pytest.skip(f"{backend}: {why}")


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """A known random state, and one thread unless a test sets more: the problems are small."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def undrawn_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are saved but not drawn: for tests of what stands around them."""
    from matplotlib.figure import Figure

    def save(figure: Figure, target: Path | TextIO, **options: object) -> None:
        if isinstance(target, Path):
            target.write_text("not drawn")
        else:
            target.write('<svg width="1pt" height="1pt"></svg>')

    monkeypatch.setattr(Figure, "savefig", save)


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


def _processor_time() -> float:
    """Seconds of this process and its ended children: the same on a busy machine."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEFORE] = _processor_time()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append(("processor", _processor_time() - item.stash[_BEFORE]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _processor[report.nodeid] = dict(report.user_properties).get("processor", 0.0)
    if report.when != "call" and not report.skipped:
        return
    properties = dict(report.user_properties)
    reason = report.longrepr[2].removeprefix("Skipped: ") if report.skipped else ""
    _tally.add(properties, report.skipped, reason)
    if report.skipped and "not_run" not in properties:
        _skips.append(reason)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    if _whole and list(_tally.faults()) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    notes = os.environ.get("FASTATTNERASE_TEST_NOT_RUN")  # the file .ci/run collects them in
    if notes:
        with Path(notes).open("a") as file:
            file.writelines(f"{line}\n" for line in _not_run())


def _not_run() -> list[str]:
    """A line for everything that did not run."""
    capped = [
        f"{name}: {within(CAPS[name])}"
        for name in _tally.required
        if name in CAPS and _tally.ran[name] and not (GPU and name == "triton")
    ]
    return [*_tally.not_run(), *(capped if _whole else ()), *counted(_skips)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if terminalreporter.config.getoption("--durations-by-file"):
        terminalreporter.section("processor time")
        for line in (
            *_summed(lambda test: "all tests", 1),
            *_summed(lambda test: test.split("::")[0], 200),
            *_summed(lambda test: test.split("[")[0], 100),
            *_summed(lambda test: test, 100),
        ):
            terminalreporter.write_line(line)
    if not _tally.ran and not _whole:
        return
    terminalreporter.section("tests per backend")
    for line in _tally.lines():
        terminalreporter.write_line(line)
    terminalreporter.section("what did not run")
    for line in _not_run():
        terminalreporter.write_line(line)
    ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    whole = _whole and ended and not terminalreporter.config.option.collectonly
    for fault in _tally.faults() if whole else ():
        terminalreporter.write_line(f"THE RUN FAILS: {fault}")


def _summed(key: Callable[[str], str], most: int) -> list[str]:
    """Processor times summed by what `key` makes of a test's name, the longest first."""
    sums: Counter[str] = Counter()
    for test, seconds in _processor.items():
        sums[key(test)] += seconds  # type: ignore[assignment]
    return [f"{seconds:8.1f} s  {name}" for name, seconds in sums.most_common(most)]
