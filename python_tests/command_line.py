"""Commands run in this process: what they print, and how they fail."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from fastattnerase.cli.app import app


def invoke(*arguments: object, code: int = 0) -> Result:
    """Run a command that must end with an exit code; what is unexpected is raised here."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def one_line(*arguments: object, code: int = 2) -> str:
    """Run a command that must fail with one line, perhaps after progress bars; give it."""
    result = invoke(*arguments, code=code)
    assert "Traceback" not in result.output
    [line] = [line for line in result.stderr.splitlines() if line.strip() and "━" not in line]
    assert line.startswith("error: ")
    return line
