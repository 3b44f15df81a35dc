"""Options from the fields of dataclasses: names, types, defaults, help and errors."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner, Result

from fastattnerase import mi
from fastattnerase.cli.app import app
from fastattnerase.cli.bags import BagInput
from fastattnerase.cli.options import Offer, command
from fastattnerase.data import DataConfig
from fastattnerase.data.word2vec import Word2VecConfig
from fastattnerase.fields import choices, documentation, hints
from fastattnerase.models import ModelConfig, TrainConfig
from fastattnerase.studies.serrano_smith.config import Config
from fastattnerase.studies.wen.options import Options

RECORDS = (
    DataConfig, Word2VecConfig, ModelConfig, TrainConfig, Config, mi.Config, Options, BagInput,
)  # fmt: skip


@dataclass(frozen=True)
class Walk:
    """A walk.

    Attributes:
        steps: How many steps are taken
            at `pace`.
        pace: How fast: `slow` or `fast`.
        legs: How many legs: a number or `all`.
        stops: Where it stops.
        sizes: How long its parts are.
        span: Where it begins and ends.
        weight: What is carried; by default nothing.
        barefoot: Whether shoes are off.
        map: The map.
        hidden: No option.
    """

    steps: int = 3
    pace: Literal["slow", "fast"] = "slow"
    legs: int | Literal["all"] = "all"
    stops: tuple[str, ...] = ("hut", "inn")
    sizes: tuple[int, ...] = (1, 2)
    span: tuple[float, float] = (0.0, 1.0)
    weight: float | None = None
    barefoot: bool = False
    map: str | None = None
    hidden: int = 7

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps: given {self.steps}, needed at least 0")


walks: list[tuple[Walk, bool]] = []
application = typer.Typer(rich_markup_mode="rich")


@command("walk --steps 5")
def walk(
    given: Annotated[
        Walk,
        Offer(
            without=("hidden",),
            names={"steps": "count"},
            defaults={"pace": "fast"},
            paths=("map",),
        ),
    ],
    loud: Annotated[bool, typer.Option(help="Whether it sings.")] = False,
) -> None:
    """Walk about."""
    walks.append((given, loud))


walk.add_to(application)


def run(*arguments: str, code: int = 0) -> Result:
    walks.clear()
    result = CliRunner().invoke(application, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result


def test_defaults_are_those_of_the_fields_and_of_the_command() -> None:
    run()
    assert walks == [(Walk(pace="fast"), False)]


def test_values_of_every_type() -> None:
    run(
        *("--count", "5", "--pace", "slow", "--legs", "4", "--stops", "a, b,", "--sizes", "3,4"),
        *("--span", "0.5", "2", "--weight", "1.5", "--barefoot", "--map", "./m/x.txt", "--loud"),
    )
    wanted = Walk(5, "slow", 4, ("a", "b"), (3, 4), (0.5, 2.0), 1.5, True, str(Path("m/x.txt")))
    assert walks == [(wanted, True)]
    run("--legs", "all", "--no-barefoot", "--stops", "")
    assert walks == [(Walk(pace="fast", stops=()), False)]


def test_the_help_is_the_documentation_of_the_fields() -> None:
    text = " ".join(run("--help").stdout.split())
    assert "How many steps are taken at --pace." in text
    assert "[default: hut,inn]" in text
    assert "[default: fast]" in text
    assert "hidden" not in text
    assert "Example: walk --steps 5" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--count", "-1"), "error: --count: given -1, needed at least 0"),
        (("--sizes", "1,x"), "error: --sizes: given '1,x', needed numbers with commas between"),
    ],
)
def test_what_a_record_refuses_is_one_line_by_the_option_s_name(
    arguments: tuple[str, str], message: str
) -> None:
    result = run(*arguments, code=2)
    assert result.stderr.strip() == message
    assert walks == []


def parameters(group: Any, name: str = "fastattnerase") -> list[tuple[str, Any]]:
    """List every option and argument of a command and of those under it."""
    found = [(name, own) for own in group.params]
    for inner, part in getattr(group, "commands", {}).items():
        found += parameters(part, f"{name} {inner}")
    return found


PARAMETERS = parameters(typer.main.get_command(app))
SENTENCE = re.compile(r"[A-Z].*\.", re.DOTALL)


@pytest.mark.parametrize(
    ("name", "parameter"),
    PARAMETERS,
    ids=[f"{name} {parameter.name}" for name, parameter in PARAMETERS],
)
def test_every_option_says_in_a_sentence_what_it_is(name: str, parameter: Any) -> None:
    assert parameter.help, f"{name}: {parameter.name} has no help"
    assert SENTENCE.fullmatch(parameter.help), f"{name}: {parameter.name}: {parameter.help!r}"


def test_there_are_the_options_of_all_commands() -> None:
    assert len(PARAMETERS) > 130
    assert len({name for name, _ in PARAMETERS}) == 17  # those of the two groups, too


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__module__.split(".", 1)[1])
def test_every_field_is_documented_in_sentences_with_the_names_it_takes(kind: Any) -> None:
    texts = documentation(kind)
    assert list(texts) == [field.name for field in dataclasses.fields(kind)]
    for name, text in texts.items():
        assert SENTENCE.fullmatch(text), f"{name}: {text!r}"
        for choice in choices(hints(kind)[name]):
            assert re.search(rf"\b{choice}\b", text), f"{name}: {choice} is not named"


def test_options_measure_as_they_are_documented() -> None:
    """Every option of a measurement is one of the command's, under its name."""
    names = {own.name for name, own in PARAMETERS if name == "fastattnerase measure"}
    assert {field.name for field in dataclasses.fields(mi.Config)} <= names
