"""Which synchronous transactions of a log happened, as far as somebody has decided."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING

from tailrace.log.cursor import Cursor
from tailrace.relay.limbo import Kind, Limbo, control_in
from tailrace.relay.names import SYNCHRO
from tailrace.relay.term import CONTROLS, last_lsn

if TYPE_CHECKING:
    from tailrace.log.view import LogView
    from tailrace.message import Offset


class Decisions:
    """Follows what leaders say in a log. What was looked at once is not looked at again."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._turn = threading.Lock()
        self._next = view.bases()[0]
        self._limbo: Limbo | None = None
        self._happened: set[Offset] = set()

    def upto(self, end: Offset) -> Collection[Offset]:
        """Where the transactions begin that happened, by what was said before an offset."""
        with self._turn:
            if self._next < end and any(SYNCHRO in found.namespaces for _, found in self._view.all_contents()):
                self._follow(end)
            self._next = max(self._next, end)
            return frozenset(self._happened)

    def undone(self, start: Offset, end: Offset) -> list[range]:
        """The offsets of each transaction in a stretch that has not happened, by what was said before its end."""
        happened = self.upto(end)
        found = []
        with closing(Cursor(self._view, start, CONTROLS)) as cursor:
            for frame in cursor.advance(end):
                begins = control_in(frame.rows()).kind is Kind.BEGIN
                if begins and frame.head.offset not in happened:
                    last = next(head for head in self._view.heads(frame.head.offset) if head.closes_group)
                    found.append(range(frame.head.offset, last.end))
        return found

    def _follow(self, end: Offset) -> None:
        oldest = self._view.bases()[0]
        self._happened = {offset for offset in self._happened if offset >= oldest}
        cursor = Cursor(self._view, max(self._next, oldest), CONTROLS)
        try:
            for frame in cursor.advance(end):
                head, control = frame.head, control_in(frame.rows())
                if self._limbo is None:  # what came before is gone from the log; whoever speaks first leads
                    self._limbo = Limbo(control.term, head.origin)
                last = last_lsn(self._view, head.offset)
                self._limbo, confirmed = self._limbo.after(control, head.origin, last, head.offset)
                self._happened |= {each.offset for each in confirmed}
        finally:
            cursor.close()
