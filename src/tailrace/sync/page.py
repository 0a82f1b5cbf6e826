"""A page: the first rows of a query, as many as are not too long together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tailrace.sync.columns import Columns

_FIRST_ROWS: Final = 8
_FETCHED_ROWS_MAX: Final = 128
"""How long rows are is seen when they are here, so not too many come at a time."""
_GROWTH: Final = 4


class Page(NamedTuple):
    """The first rows of a query."""

    rows: Columns
    is_cut: bool
    """Whether there may be more, which would have been too long together with these."""


def cut(fetch: Callable[[int], list[tuple[Any, ...]]], length_max: int) -> Page:
    """Rows until they are too long together. How many are fetched at a time follows from how long they were."""
    parts: list[Columns] = []
    left, count = length_max, _FIRST_ROWS
    while found := fetch(count):
        more = Columns.of_rows(found)
        left -= more.text_length()
        if left < 0:
            fitting = _fitting(found, left + more.text_length())
            if fitting or not parts:
                parts.append(Columns.of_rows(found[: max(1, fitting)]))
            return Page(Columns.joined(parts), True)
        parts.append(more)
        if len(found) < count:
            break
        count = min(_GROWTH * count, _FETCHED_ROWS_MAX)
    return Page(Columns.joined(parts) if parts else Columns(()), False)


def _fitting(rows: list[tuple[Any, ...]], length_max: int) -> int:
    """How many of the first rows are not too long together."""
    length = 0
    for place, row in enumerate(rows):
        length += Columns.of_rows([row]).text_length()
        if length > length_max:
            return place
    return len(rows)
