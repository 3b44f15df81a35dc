"""Several threads give what one gives, in its order, and errors end them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fastattnerase.threads import cores, side_by_side


@pytest.mark.parametrize("threads", [None, 1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads: int | None) -> None:
    assert list(side_by_side(lambda x: x + 1, range(20), threads)) == list(range(1, 21))
    assert list(side_by_side(lambda x: x + 1, [], threads)) == []


def test_several_items_are_worked_on_at_a_time() -> None:
    both = threading.Barrier(2)  # passed only by two at once

    def meet(item: int) -> int:
        both.wait(timeout=60)
        return item

    assert list(side_by_side(meet, range(4), threads=2)) == [0, 1, 2, 3]


def test_few_items_are_made_ahead() -> None:
    made = []

    def items() -> Iterator[int]:
        for item in range(100):
            made.append(item)
            yield item

    found = side_by_side(lambda x: x, items(), threads=2)
    assert next(found) == 0
    assert len(made) == 3
    found.close()
    assert len(made) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_raised_where_its_item_would_be(threads: int) -> None:
    found = side_by_side(lambda x: 1 / x, [1, 2, 0, 4], threads)
    assert [next(found), next(found)] == [1.0, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_there_is_a_core() -> None:
    assert cores() >= 1
