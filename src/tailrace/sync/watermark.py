"""The watermark of the ChangeLog in PostgreSQL: up to it all lines are worked off, and none will come any more.

Lines that were deleted stay in the file until they are vacuumed, which takes a while, and as long as a backup runs does
not happen at all. So a look begins behind it. Numbers are not committed in their order: one counts only when
all transactions have ended that were under way when it was the last one.

1. A look reads the last number that was given out.
2. The next look, whose snapshot is later, says before which transaction all are that have such numbers or lower ones.
3. A look that sees all of these ended makes that number the watermark, or the one before the first line that it finds.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

import threading
from typing import NamedTuple

from tailrace.sync import names
from tailrace.sync.database import Database, Link
from tailrace.sync.shape import Shape


class _Look(NamedTuple):
    """What a look sees."""

    first: int | None
    """The first line that is there."""
    last: int
    """The last number that was given out."""
    ended: int
    """All transactions before this one have ended."""
    begun: int
    """None of this number or a later one had begun."""


class Watermark:
    """Any number of threads may look; they do so one after the other, so that snapshots are later each time."""

    def __init__(self) -> None:
        self.after = 0
        self._turn = threading.Lock()
        self._last: int | None = None
        self._next: tuple[int, int] | None = None
        """A number, and the transaction before which all are that may have lower ones."""

    def has_changes(self, database: Database, about: str, shape: Shape) -> bool:
        """Whether there are lines of all tables that this process knows."""
        with self._turn:
            look = database.read(lambda link: _look(link, shape, about, self.after))
            if look.last < self.after:  # somebody has begun to number anew
                self.after, self._last, self._next = 0, None, None
                look = database.read(lambda link: _look(link, shape, about, self.after))
            self._note(look)
        return look.first is not None

    def _note(self, look: _Look) -> None:
        if self._next is not None and look.ended >= self._next[1]:
            worked_off = self._next[0] if look.first is None else min(self._next[0], look.first - 1)
            self.after, self._next = max(self.after, worked_off), None  # 3
        if self._next is None and self._last is not None:
            self._next = self._last, look.begun  # 2
        self._last = look.last  # 1


def _look(link: Link, shape: Shape, about: str, after: int) -> _Look:
    changes = shape.own_table(names.CHANGES)
    link.run("SELECT set_config('enable_seqscan', 'off', true)")  # the table looks small, and is large
    query = f"""SELECT (SELECT chid FROM {changes} WHERE chid > $1 AND {about} ORDER BY chid LIMIT 1),
        CASE WHEN has_sequence_privilege(s, 'SELECT') THEN coalesce(pg_sequence_last_value(s), 0) ELSE 0 END,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        FROM (SELECT pg_get_serial_sequence($2, 'chid')::regclass) AS numbers(s)"""
    return _Look(*link.rows(query, (after, changes))[0])
