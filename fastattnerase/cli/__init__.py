"""The `fastattnerase` command: one file a command, and what they share."""


def main() -> None:
    """Run the command line."""
    from fastattnerase.cli.app import app
    from fastattnerase.cli.console import prepare

    prepare()
    app()
