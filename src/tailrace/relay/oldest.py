"""Which messages a node's log still has: all of those behind a clock, and who is behind that clock cannot be served."""

from __future__ import annotations

import threading
from collections.abc import Collection

from tailrace.errors import TailraceError
from tailrace.log.view import LogView
from tailrace.message import Lsn, NodeId
from tailrace.relay.vclock import LOCAL, Vclock

Span = tuple[NodeId, int, int]
"""An origin, and which of its messages: the first and the last."""
_TOLD_MAX = 5


class Oldest:
    """Of one log. May be asked by several threads."""

    def __init__(self, directory: str) -> None:
        self._view = LogView(directory)
        self._lock = threading.Lock()

    def clock(self, vclock: Vclock, begin: Vclock) -> Vclock:
        """The clock before the oldest message, of a node that is at `vclock` and whose log begins at `begin`."""
        lowest: dict[NodeId, int] = {}
        with self._lock:
            for _, found in self._view.all_contents():
                for number, (low, high) in found.origins.items():
                    origin = NodeId(number)
                    if origin != LOCAL and high > begin[origin]:
                        lowest.setdefault(origin, max(low, begin[origin] + 1))
        return Vclock({origin: Lsn(lowest.get(origin, last + 1) - 1) for origin, last in vclock.items()})


def missing(oldest: Vclock, theirs: Vclock, without: Collection[NodeId] = ()) -> list[Span]:
    """What one with that clock lacks and cannot get from a log."""
    return [
        (origin, theirs[origin] + 1, lsn)
        for origin, lsn in oldest.items()
        if lsn > theirs[origin] and origin not in without
    ]


def check_kept(oldest: Vclock, theirs: Vclock, without: Collection[NodeId] = ()) -> None:
    """Refuse a peer that needs what the log does not have (I8)."""
    if spans := missing(oldest, theirs, without):
        raise gap(f"{told(spans)} are not in this node's log any more")


def check_contained(here: Vclock, theirs: Vclock) -> None:
    """Refuse a snapshot that lacks something that is here: it would be lost."""
    if spans := missing(here, theirs):
        what = f"{told(spans)} are here, and the source lacks them: with its snapshot they would be lost"
        hint = "let the source follow this node until it has them, or name a source that has them"
        raise TailraceError("relay.unsent", what, hint=hint)


def told(spans: list[Span]) -> str:
    """For people."""
    some = [f"messages {first} to {last} of node {origin}" for origin, first, last in spans[:_TOLD_MAX]]
    more = len(spans) - len(some)
    return ", ".join(some) + (f" and of {more} other nodes" if more else "")


def gap(what: str, hint: str = "take a new snapshot, or ask a node that still has them") -> TailraceError:
    return TailraceError("relay.gap", what, hint=hint)
