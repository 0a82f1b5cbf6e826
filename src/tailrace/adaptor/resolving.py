"""Resolving: somebody decides which of two rows stays.

It becomes the newest there is, as a change of the database's own, except where the message waits to be written itself.
"""

from __future__ import annotations

from typing import Protocol

from tailrace.adaptor.clashes import Row, row_of
from tailrace.node.conflict import Conflict, Keep, Policy


class OpenTable(Protocol):
    """A table as its users write it."""

    def found(self, key: Row) -> Row | None:
        """The row with a key."""

    def put(self, row: Row) -> None:
        """Write a row, whatever is there."""

    def delete(self, key: Row) -> int:
        """Delete the row with a key; says how many that are."""


def resolve(conflict: Conflict, keep: Keep, table: OpenTable) -> None:
    """Write what somebody decided."""
    is_waiting = conflict.policy is Policy.STOP and conflict.keep is None
    if conflict.rival:
        _resolve_rival(conflict, keep, table, is_waiting=is_waiting)
    elif not (is_waiting and keep is Keep.THEIRS):
        _resolve_row(conflict, keep, table)


def _resolve_row(conflict: Conflict, keep: Keep, table: OpenTable) -> None:
    key, theirs = row_of(conflict.key), None if conflict.theirs is None else row_of(conflict.theirs)
    there = table.found(key)
    wanted = there if keep is Keep.OURS else theirs
    if wanted is not None:
        table.put(wanted)
    else:
        if there is None and theirs is not None:
            table.put(theirs)  # only what is there can be deleted
        table.delete(key)
    if keep is Keep.THEIRS and conflict.left_key is not None:
        table.delete(row_of(conflict.left_key))


def _resolve_rival(conflict: Conflict, keep: Keep, table: OpenTable, *, is_waiting: bool) -> None:
    if keep is Keep.THEIRS:
        table.delete(row_of(conflict.rival))
    wanted = conflict.theirs if keep is Keep.THEIRS else conflict.ours
    if is_waiting or wanted is None:
        return
    if keep is Keep.OURS:
        table.delete(row_of(conflict.key))
    there = table.found(row_of(conflict.rival)) if keep is Keep.OURS else None
    table.put(there or row_of(wanted))
