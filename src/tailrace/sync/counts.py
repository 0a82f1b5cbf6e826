"""Counts: how often two nodes have exchanged something, as each of them counts it, and has heard it of the other.

A node counts on in the transaction in which it takes rows, and after it has read those that it tells of. So whoever has
heard a count knows that all it was told of was there by then. A node that says less than was heard of it was set back
to an older copy of its database: it lacks what others believe it has.
"""
# ruff: noqa: S608  names cannot be bound; all of them are sync's own

from __future__ import annotations

import time
from typing import Final, NamedTuple

from tailrace.sync.database import Link
from tailrace.sync.names import Dialect, mark

HEADER: Final = "door-count"
_DIGITS_MAX: Final = 18
COUNT_MAX: Final = 10**_DIGITS_MAX - 1


class Counts(NamedTuple):
    """How often something was exchanged with a node."""

    own: int = 0
    heard: int = 0
    """As that node says."""


def read_count(text: str | None) -> int | None:
    """A count as a header has it; None when it is none, and says nothing."""
    is_count = text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if text is not None and is_count else None


def header(count: int | None) -> dict[str, str]:
    return {} if count is None else {HEADER: str(count)}


def find(link: Link, dialect: Dialect, node: int) -> Counts:
    found = link.rows(f"SELECT ownCount, theirCount FROM DoorNode WHERE nodeId = {mark(dialect, 1)}", (node,))
    return Counts(*found[0]) if found else Counts()


def count_on(link: Link, dialect: Dialect, node: int, heard: int | None = None) -> int | None:
    """Something is exchanged with a node; None when that is unknown."""
    greatest = "greatest" if dialect is Dialect.POSTGRES else "max"
    one, two = mark(dialect, 1), mark(dialect, 2)
    query = f"""UPDATE DoorNode SET ownCount = ownCount + 1, theirCount = {greatest}(theirCount, {two})
        WHERE nodeId = {one} RETURNING ownCount"""
    found = link.value(query, (node, heard or 0))
    return None if found is None else int(found)


def hear(link: Link, dialect: Dialect, node: int, count: int) -> None:
    """What a node has counted."""
    one, two = mark(dialect, 1), mark(dialect, 2)
    link.run(f"UPDATE DoorNode SET theirCount = {two} WHERE nodeId = {one} AND theirCount < {two}", (node, count))


def begin_again(link: Link, dialect: Dialect, node: int, counts: Counts) -> None:
    """From now on it is these."""
    marks = [mark(dialect, number) for number in range(1, 4)]
    into = f"UPDATE DoorNode SET ownCount = {marks[1]}, theirCount = {marks[2]} WHERE nodeId = {marks[0]}"
    link.run(into, (node, *counts))


def welcome_own(link: Link, dialect: Dialect) -> None:
    """Versions that this node made until now may come from others: it may not have them any more."""
    now_ms = int(time.time() * 1000) + int(link.value("SELECT clockShift FROM DoorSelf"))
    link.run(f"UPDATE DoorSelf SET ownUntil = {mark(dialect, 1)}", (now_ms,))


def own_until_ms(link: Link) -> int:
    """Until when versions of this node may come from others, though they are not here."""
    return int(link.value("SELECT ownUntil FROM DoorSelf"))
