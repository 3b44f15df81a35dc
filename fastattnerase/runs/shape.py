"""What the JSON files of runs hold: a file that was edited or damaged is refused, not trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastattnerase.runs.rundir import RunError

# A shape is a type or several, a list with the shape of each item, or a table with the shapes of
# its keys, "*" for all others. What a file lacks is noticed where it is asked for.
NUMBER = (int, float, type(None))
COUNTS = {"*": int}

RUN = {"name": str, "classes": [str], "config": {}, "source": {}, "versions": {}, "machine": {}}
INFORMATION = {
    **dict.fromkeys(("instances", "used", "ranks", "clusters", "output_labels"), int),
    "notices": [str],
}
CELL = {
    **dict.fromkeys(("accuracy", "f1", "auc", "seconds", "strength"), NUMBER),
    **dict.fromkeys(("epochs", "best_epoch"), int),
    "measurements": {"*": {"accuracy": NUMBER, "run": (str, type(None)), "reason": str}},
    "attention": {"*": NUMBER},
    "divergence": {"*": NUMBER},
    "about": {"documents": {"*": COUNTS}, "filtered": COUNTS, "dropped": COUNTS, "title": str,
              "note": str, "words": int, "mean_length": NUMBER},
    "state": {"options": {}},
}  # fmt: skip
UNIT = {"digest": str, "seconds": NUMBER, "numbers": {}, "state": {}}


def check_shape(content: Any, shape: Any, path: Path, place: str = "") -> None:
    """Check that what was read from a file has its shape.

    Args:
        content: what was read.
        shape: see above.
        path: the file, for errors.
        place: of `content` in it.

    Raises:
        RunError: something of another type; names the file, the place and what is there.

    Example:
        >>> check_shape({"used": "many"}, INFORMATION, Path("result.json"))
        Traceback (most recent call last):
        fastattnerase.runs.rundir.RunError: result.json is damaged: used is 'many'; delete it and \
run again
    """
    if isinstance(shape, dict):
        fits = isinstance(content, dict)
        for key, value in content.items() if fits else ():
            of_value = shape.get(key, shape.get("*"))
            if of_value is not None:
                check_shape(value, of_value, path, f"{place}.{key}" if place else key)
    elif isinstance(shape, list):
        fits = isinstance(content, list)
        for number, value in enumerate(content if fits else ()):
            check_shape(value, shape[0], path, f"{place}[{number}]")
    else:
        fits = isinstance(content, shape) and not isinstance(content, bool)
    if not fits:
        raise RunError(f"{path} is damaged: {place} is {content!r:.60}; delete it and run again")
