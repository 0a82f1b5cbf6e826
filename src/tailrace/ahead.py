"""Ahead: the next item of a stream is made while somebody is busy with the last one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def one_ahead(items: Iterator[Item]) -> Generator[Item]:
    """The same items, of which one is made ahead, in a thread of its own. What that raises comes in its turn."""

    def make() -> list[Item]:
        return list(islice(items, 1))

    with ThreadPoolExecutor(1, thread_name_prefix="tailrace-ahead") as pool:
        coming = pool.submit(make)
        while made := coming.result():
            coming = pool.submit(make)
            yield from made
