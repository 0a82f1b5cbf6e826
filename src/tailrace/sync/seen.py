"""Which nodes were here, written to the database: at once when one comes for the first time, otherwise seldom."""

from __future__ import annotations

from typing import Final

from tailrace.sync.auth import Gate
from tailrace.sync.store import SyncStore

EVERY_S: Final = 30.0
"""That somebody was here is noted so often."""


class Seen:
    """The nodes that came through a gate."""

    def __init__(self, store: SyncStore, gate: Gate) -> None:
        self._store = store
        self._gate = gate
        self._unsaid: set[int] = set()
        self._known: set[int] = set()
        self._noted = float("-inf")

    def note(self, now_s: float, *, at_once: bool = False) -> None:
        """Write down who was here, if it is time. If that fails, it is done the next time."""
        self._unsaid |= self._gate.take_seen()
        is_due = at_once or now_s - self._noted >= EVERY_S
        seen = self._unsaid if is_due else self._unsaid - self._known
        if seen:
            self._store.saw(seen)
            self._known |= seen
            self._unsaid -= seen
            self._noted = now_s if is_due else self._noted
