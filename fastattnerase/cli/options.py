"""Commands, and their options from the fields of dataclasses.

A command takes records of options, `def erase(given: Input, config: Config, …)`; `expand` gives it
one option for each field: name, type and default are the field's, and the help is what the
dataclass says of the field under `Attributes:` in its docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

import fastattnerase
from fastattnerase.cli.console import UsageError, one_line_errors, out
from fastattnerase.fields import choices, documentation, hints, members

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_CODE = re.compile(r"`(\w+)`")


@dataclass(frozen=True)
class Offer:
    """What a command offers of a dataclass's fields; in an annotation, `Annotated[kind, Offer(…)]`.

    Attributes:
        only: The fields that are options, in the order of the help; all where it is empty.
        without: Fields that are no options and keep their defaults.
        names: From a field to its option's name, without dashes, where that is not the field's.
        defaults: From a field to the command's default, where that is not the field's.
        paths: Fields of text that are paths.
    """

    only: Collection[str] = ()
    without: Collection[str] = ()
    names: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    paths: Collection[str] = ()


class _Option:
    """One field of a dataclass as an option of a command."""

    def __init__(self, of: Field[Any], hint: Any, text: str, offer: Offer) -> None:
        self.field = of.name
        self.flag = "--" + offer.names.get(of.name, of.name).replace("_", "-")
        self.parameter = self.flag[2:].replace("-", "_")
        self.text = text
        self.names = choices(hint)
        kinds = [kind for kind in members(hint) if kind is not NoneType]
        self.number = int in kinds  # beside names: a number or one of them
        self.item: Any = None  # the type of the parts of a list with commas between
        self.is_path = of.name in offer.paths
        self.kind: Any = kinds[0]
        if self.is_path:
            self.kind = Path
        elif self.names:
            self.kind = str
        elif get_origin(self.kind) is tuple and get_args(self.kind)[1:] == (...,):
            self.item = get_args(self.kind)[0]
            self.kind = str
        default = offer.defaults.get(of.name, of.default)
        self.required = default is MISSING
        self.default = default
        if self.item is not None and default is not None:
            self.default = ",".join(map(str, default))
        elif self.names and default is not None:
            self.default = str(default)
        self.optional = NoneType in members(hint)

    def signature(self) -> inspect.Parameter:
        """Describe the option as Typer reads it."""
        declarations = (self.flag, f"--no-{self.flag[2:]}") if self.kind is bool else (self.flag,)
        several = get_args(self.kind) if get_origin(self.kind) is tuple else ()
        information = typer.Option(
            "/".join(declarations),
            help=self.text,
            metavar=" ".join("N" for _ in several) or None,
            show_default=self.default is not None,
        )
        return inspect.Parameter(
            self.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.required else self.default,
            annotation=Annotated[self.kind | None if self.optional else self.kind, information],
        )

    def read(self, given: Any) -> Any:
        """Turn what the command line gave into the field's value."""
        if given is None:
            return None
        if self.is_path:
            return str(given)
        if self.item is not None:
            parts = [part.strip() for part in given.split(",") if part.strip()]
            try:
                return tuple(self.item(part) for part in parts)
            except ValueError:
                raise UsageError(
                    f"{self.flag}: given {given!r}, needed numbers with commas between"
                ) from None
        return int(given) if self.names and self.number and given.isdecimal() else given


class _Record:
    """A parameter of a command that is a dataclass, as options."""

    def __init__(self, kind: Any, offer: Offer) -> None:
        self.kind = kind
        texts, types = documentation(kind), hints(kind)
        of = {own.name: own for own in fields(kind)}
        chosen = [name for name in offer.only or of if name not in offer.without]
        flags = {
            name: "--" + offer.names.get(name, name).replace("_", "-") for name in chosen
        }  # fmt: skip
        self.options = [
            _Option(
                of[name],
                types[name],
                _CODE.sub(lambda code: flags.get(code[1], code[0]), texts.get(name, "")),
                offer,
            )
            for name in chosen
        ]

    def build(self, given: dict[str, Any]) -> Any:
        """Take the record's values out of the command's, and make the record.

        Raises:
            UsageError: a value that the dataclass refuses, by the option's name.
        """
        values = {own.field: own.read(given.pop(own.parameter)) for own in self.options}
        try:
            return self.kind(**values)
        except ValueError as error:
            name, colon, rest = str(error).partition(":")
            flag = next((own.flag for own in self.options if own.field == name), name)
            raise UsageError(f"{flag}{colon}{rest}") from error


def expand(function: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters of a function that are dataclasses by one for each of their fields.

    Args:
        function: a command; a parameter is `name: kind` or `name: Annotated[kind, Offer(…)]`.

    Returns:
        The command with the signature that Typer reads.
    """
    records: dict[str, _Record] = {}
    signature: list[inspect.Parameter] = []
    types = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *notes = (
            get_args(types[name]) if get_origin(types[name]) is Annotated else [types[name]]
        )
        if is_dataclass(kind):
            offer = next((note for note in notes if isinstance(note, Offer)), Offer())
            records[name] = _Record(kind, offer)
            signature += [option.signature() for option in records[name].options]
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            signature.append(parameter.replace(kind=kind, annotation=types[name]))

    @functools.wraps(function)
    def command(**given: Any) -> None:
        built = {name: record.build(given) for name, record in records.items()}
        function(**given, **built)

    vars(command)["__signature__"] = inspect.Signature(signature)
    command.__annotations__ = {own.name: own.annotation for own in signature}
    return command


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"fastattnerase {fastattnerase.__version__}")
        raise typer.Exit


def version_option(*, hidden: bool) -> Any:
    """Describe the option --version, which prints the version and ends the command."""
    return typer.Option(
        "--version",
        help="Print the version, and end.",
        is_eager=True,
        callback=_print_version,
        hidden=hidden,
    )


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes:
        function: What it does; its docstring is the help.
        example: A whole command line, for the help.
    """

    function: Callable[..., None]
    example: str

    def add_to(self, app: typer.Typer) -> None:
        """Make it a command of an application, under the function's name."""
        expanded = expand(self.function)

        @functools.wraps(expanded)
        def wrapped(**given: Any) -> None:
            del given["version"]  # has been printed where it was asked for
            with one_line_errors():
                expanded(**given)

        version = inspect.Parameter(
            "version",
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, version_option(hidden=True)],
        )
        signature = inspect.signature(expanded)
        vars(wrapped)["__signature__"] = signature.replace(
            parameters=[*signature.parameters.values(), version]
        )
        wrapped.__annotations__ = expanded.__annotations__ | {"version": version.annotation}
        # Rich would end lines where the docstring does.
        text = "\n\n".join(
            " ".join(paragraph.split())
            for paragraph in (inspect.getdoc(self.function) or "").split("\n\n")
        )
        app.command(help=text, epilog=f"Example: [bold]{self.example}[/bold]")(wrapped)


def command(example: str) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command; its example is a whole command line."""
    return functools.partial(Command, example=example)
