"""Progress bars that nobody sees: what moves them tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastattnerase.extras import needs

with needs("cli"):
    from rich.progress import Progress


class Reporting(Progress):
    """Progress bars that are not drawn, and say how far the first of them is.

    Args:
        report: called with the share that is done.
        epochs: of a training, whose first bar counts epochs and second documents of one.

    Example:
        >>> shares = []
        >>> progress = Reporting(shares.append)
        >>> progress.update(progress.add_task("reading", total=4), completed=3)
        >>> shares
        [0.75]
    """

    def __init__(self, report: Callable[[float], None], epochs: int | None = None) -> None:
        super().__init__(disable=True)
        self._report = report
        self._epochs = epochs

    def update(self, *arguments: Any, **options: Any) -> None:
        """Move a bar, and report."""
        super().update(*arguments, **options)
        tasks = [task for task in self.tasks if task.total]
        if not tasks:
            return
        share = tasks[0].completed / (tasks[0].total or 1)
        if self._epochs is not None and len(tasks) > 1:
            share += tasks[1].completed / (tasks[1].total or 1) / self._epochs
        self._report(min(share, 1.0))
