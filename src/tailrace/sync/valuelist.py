"""Lists of values in statements of SQLite: `VALUES (?, ?), (?, ?) …`, many rows at a time.

A statement for one row costs about as much as its row, more if there are triggers, and with each one Python lets other
threads run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from tailrace.sync.database import Link

_ROWS: Final = 200
_VALUES_MAX: Final = 30_000
"""SQLite binds a few more."""


def run_with_values(link: Link, statement: Callable[[str], str], columns: Sequence[Sequence[Any]]) -> None:
    """Run a statement for rows whose values are given column by column; it is made with the list in it."""
    width, count = len(columns), len(columns[0])
    rows = max(1, min(_ROWS, _VALUES_MAX // width))
    one = f"({', '.join('?' * width)})"
    flat = list(chain.from_iterable(zip(*columns, strict=True)))

    def pieces(first: int, last: int, size: int) -> Iterator[list[Any]]:
        for start in range(first * width, last * width, size * width):
            yield flat[start : start + size * width]

    whole = count - count % rows
    for first, last, size in ((0, whole, rows), (whole, count, count - whole)):
        if first < last:
            link.run_many(statement(f"VALUES {', '.join([one] * size)}"), pieces(first, last, size))
