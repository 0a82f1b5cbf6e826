"""The next item is made while somebody is busy with the last one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tailrace.ahead import one_ahead


def test_the_same_items_in_the_same_order() -> None:
    assert list(one_ahead(iter(range(100)))) == list(range(100))
    assert list(one_ahead(iter(()))) == []


def test_the_next_one_is_made_meanwhile() -> None:
    made = [threading.Event() for _ in range(3)]

    def make() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    stream = one_ahead(make())
    assert next(stream) == 0
    assert made[1].wait(10)
    assert not made[2].is_set(), "only one ahead"
    assert list(stream) == [1, 2]


def test_an_error_comes_in_its_turn() -> None:
    def make() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    stream = one_ahead(make())
    assert next(stream) == 1
    with pytest.raises(ValueError, match="broken"):
        next(stream)
