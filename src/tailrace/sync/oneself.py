"""What a node knows about itself beside its number and its secret: how wrong its clock is, and the number for keys."""
# ruff: noqa: S608  names cannot be bound; all of them are sync's own

from __future__ import annotations

from tailrace.sync.database import Link
from tailrace.sync.names import Dialect, mark
from tailrace.sync.nodes import WE_CALL


def clock_shift_ms(link: Link) -> int:
    """What is added to the clock."""
    return int(link.value("SELECT clockShift FROM DoorSelf"))


def shift_clock(link: Link, dialect: Dialect, shift_ms: int) -> None:
    """From now on so much is added to the clock."""
    link.run(f"UPDATE DoorSelf SET clockShift = {mark(dialect, 1)}", (shift_ms,))


def adopt_key_node(link: Link, dialect: Dialect, number: int) -> int:
    """Make keys with the number that the first node which is called has kept free; gives the one that counts.

    Another node's number would not do: each of them sees only that those whom it knows do not have the same.
    """
    if link.value(f"SELECT 1 FROM DoorNode WHERE rel & {WE_CALL} <> 0 LIMIT 1") is None:
        link.run(f"UPDATE DoorSelf SET keyNode = {mark(dialect, 1)}", (number,))
    return int(link.value("SELECT keyNode FROM DoorSelf"))
