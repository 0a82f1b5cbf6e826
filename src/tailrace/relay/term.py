"""Terms: who leads, what a node has promised to those who want to, and where that is kept."""

from __future__ import annotations

import json
import os
import re
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.log.cursor import Cursor
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.selection import Selection
from tailrace.log.view import LogView
from tailrace.message import Lsn, NodeId, Offset
from tailrace.relay.limbo import Limbo, control_in
from tailrace.relay.names import SYNCHRO
from tailrace.relay.refusal import malformed

NAME: Final = "term.json"
LEAP_MAX: Final = 1_000_000
"""So many elections can have passed a node by."""
CONTROLS: Final = Selection(namespace=re.compile(f"^{re.escape(SYNCHRO)}$"))


def check_leap(known: int, term: int) -> None:
    """Refuse a term that nobody can have come to: after it there would be none."""
    if term > known + LEAP_MAX:
        raise malformed(f"a peer speaks of term {term}, and this node knows only of {known}")


class Terms:
    """What one node keeps beside its log, because messages are removed from it one day."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, NAME)
        self.promised, self.promised_to = 0, NodeId(0)
        """The highest term that this node has heard of, and to whom it has promised that it may lead then, if to
        anybody."""
        self._kept = self._read()

    def limbo(self, view: LogView) -> Limbo:
        """What is undecided at the end of a log."""
        limbo = self._kept  # how its term began may not be in the log any more
        cursor = Cursor(view, view.bases()[0], CONTROLS)
        for frame in cursor.advance(view.head().next_offset):
            head = frame.head
            control = control_in(frame.rows())
            limbo, _ = limbo.after(control, head.origin, last_lsn(view, head.offset), head.offset)
        cursor.close()
        return limbo

    def promise(self, term: int, node: NodeId, limbo: Limbo) -> None:
        self.promised, self.promised_to = term, node
        self.keep(limbo)

    def keep(self, limbo: Limbo) -> None:
        """Durably."""
        self._kept = Limbo(limbo.term, limbo.leader)
        said = {
            "term": limbo.term,
            "leader": str(limbo.leader),
            "promised": self.promised,
            "promised_to": str(self.promised_to),
        }
        with disk_errors("keeping the term", self._path):
            Disk().replace_file(self._path, json.dumps(said).encode())

    def _read(self) -> Limbo:
        with disk_errors("reading the term", self._path):
            try:
                with open(self._path, encoding="ascii") as stream:
                    said = json.load(stream)
                self.promised, self.promised_to = int(said["promised"]), NodeId(int(said["promised_to"]))
                return Limbo(int(said["term"]), NodeId(int(said["leader"])))
            except FileNotFoundError:
                return Limbo()
            except (ValueError, KeyError, TypeError) as error:
                what = f"a node's term cannot be read: {error}"
                raise TailraceError("log.corrupt", what, place=Place(self._path), hint="mend the file") from error


def last_lsn(view: LogView, offset: Offset) -> Lsn:
    """Of the group that begins at an offset."""
    last = Lsn(0)
    for head in view.heads(offset):
        last = max(last, head.last_lsn)
        if head.closes_group:
            break
    return last
