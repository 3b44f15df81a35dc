"""Reviews of the Yelp dataset challenge, as distributed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fastattnerase.data.files import stream_json
from fastattnerase.data.readers.registry import register_reader, require_columns


@register_reader("yelp_json")
def read_yelp_json(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Stream the reviews: `text`, and `label`, the stars.

    Objects of another `type` than `review`, which early rounds keep in the same file, are skipped.
    The other keys of the file (`review_id`, `date`, ...) are columns too.

    Args:
        path: `review.json` or `yelp_academic_dataset_review.json`, plain or `.xz`, `.gz`, `.zst`.
        columns: names of the wanted columns.

    Yields:
        A mapping from each wanted column to its value.

    Raises:
        DataError: not such JSON, a review without a wanted key, a byte that is not UTF-8.
    """
    for number, review in enumerate(stream_json(path), start=1):
        if review.get("type", "review") != "review":
            continue
        keys = ["stars" if column == "label" else column for column in columns]
        require_columns(Path(f"{path}, object {number}"), keys, list(review))
        yield {column: review[key] for column, key in zip(columns, keys, strict=True)}
