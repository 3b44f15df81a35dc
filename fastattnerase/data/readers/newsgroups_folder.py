"""20 Newsgroups by date as distributed: a folder for each half and group, a file a post."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fastattnerase.data.errors import DataError
from fastattnerase.data.files import open_binary
from fastattnerase.data.readers.registry import register_reader, require_columns

SPORTS = ("rec.sport.baseball", "rec.sport.hockey")

_COLUMNS = ("text", "label", "split")
_HALVES = {"train": "20news-bydate-train", "test": "20news-bydate-test"}
_QUOTE = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^[|>]")
# The seeds that scikit-learn has where no other is given: of its two halves, and of the whole.
_HALF_SEED, _SEED = 0, 42


@register_reader("newsgroups_folder")
def read_newsgroups_folder(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the posts as scikit-learn's `fetch_20newsgroups(subset="all")` gives them.

    Headers, signatures and quotations are removed, and posts are in the same shuffled order.
    Columns: `text`, which can be empty; `label`, the group; `split`, train or test by date.

    Args:
        path: the folder of `20news-bydate-train` and `20news-bydate-test`.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its text.

    Raises:
        DataError: a missing folder or column, a folder without posts.

    Source: Lang, ICML 1995; the cleaning is that of Pedregosa et al., JMLR 2011.
    """
    return _read(path, columns, None)


@register_reader("newsgroups_sports")
def read_newsgroups_sports(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream baseball and hockey alone: as `newsgroups_folder`, with both as `categories`."""
    return _read(path, columns, SPORTS)


def _read(
    path: Path, columns: Sequence[str], groups: Sequence[str] | None
) -> Iterator[Mapping[str, object]]:
    require_columns(path, columns, _COLUMNS)
    posts: list[tuple[str, Path]] = []
    for split, name in _HALVES.items():
        folder = path / name
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder, needed {' and '.join(_HALVES.values())}")
        half = sorted(post for post in folder.glob("*/*") if not post.name.startswith("."))
        if not half:
            raise DataError(f"{folder}: given no posts, needed files GROUP/NUMBER")
        # The whole half is shuffled before groups are chosen, or the order would be another.
        shuffled = [half[i] for i in _shuffle(len(half), _HALF_SEED)]
        posts += [(split, p) for p in shuffled if groups is None or p.parent.name in groups]
    for i in _shuffle(len(posts), _SEED):
        split, post = posts[i]
        with open_binary(post) as file:
            text = file.read().decode("latin-1")
        row = {"text": strip_post(text), "label": post.parent.name, "split": split}
        yield {column: row[column] for column in columns}


def _shuffle(count: int, seed: int) -> list[int]:
    """Shuffle as scikit-learn does: with numpy's generator of old, whose numbers never change."""
    order = np.arange(count)
    np.random.RandomState(seed).shuffle(order)
    return [int(i) for i in order]


def strip_post(text: str) -> str:
    """Remove a post's header, its signature and what it quotes, as scikit-learn does.

    The header ends at the first empty line; the signature begins at the last line of hyphens or
    white space alone; a quotation is a line that begins with `>` or `|`, or introduces one.

    Args:
        text: the post with its header.

    Returns:
        What is left; nothing where there is no empty line.

    Example:
        >>> strip_post("From: A\\n\\nB writes:\\n> Who won?\\nWe did.\\n--\\nA")
        'We did.'
    """
    body = text.partition("\n\n")[2]
    lines = body.strip().split("\n")
    last = max((i for i, line in enumerate(lines) if not line.strip().strip("-")), default=0)
    kept = lines[:last] if last else body.split("\n")
    return "\n".join(line for line in kept if not _QUOTE.search(line))
