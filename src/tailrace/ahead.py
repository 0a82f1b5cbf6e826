"""Ahead: the next item of a stream is made while somebody is busy with the last one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Item = TypeVar("Item")

_END: Final = object()


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, of which one is made ahead, in a thread of its own. What that raises comes in its turn."""
    with ThreadPoolExecutor(1, thread_name_prefix="tailrace-ahead") as pool:
        made = pool.submit(next, items, _END)
        while (item := made.result()) is not _END:
            made = pool.submit(next, items, _END)
            yield item  # type: ignore[misc]
