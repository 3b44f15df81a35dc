"""Progress bars that nobody sees: what moves them tells how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastattnerase.extras import needs

with needs("cli"):
    from rich.progress import Progress, Task


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
        self._report(share_of(self.tasks, self._epochs))


def share_of(tasks: Sequence[Task], epochs: int | None = None) -> float:
    """Give the share that is done, as the first bar has it.

    Args:
        tasks: the bars.
        epochs: of a training, whose first bar counts epochs and second documents of one.

    Example:
        >>> from rich.progress import Progress
        >>> bars = Progress(disable=True)
        >>> for total, done in ((4, 1), (10, 5)):
        ...     _ = bars.add_task("", total=total, completed=done)
        >>> share_of(bars.tasks), share_of(bars.tasks, epochs=4)
        (0.25, 0.375)
    """
    shares = [task.completed / task.total for task in tasks if task.total]
    if not shares:
        return 0.0
    if epochs is not None and len(shares) > 1:
        return min(shares[0] + shares[1] / epochs, 1.0)
    return min(shares[0], 1.0)
