"""Acks: how far a task has come with messages that it delivers one by one, for a driver that may not see it end."""

from __future__ import annotations

import time
from typing import Final

from tailrace.limits import OFFSET_FLUSH_S
from tailrace.log.note import ConsumerNote
from tailrace.message import Offset

NAME: Final = "acks"


class Acks:
    """The last message that a task has delivered, written every second (I4)."""

    def __init__(self, log: str, consumer: str) -> None:
        self._note = ConsumerNote(log, consumer, NAME)
        self._written_s = 0.0

    def note(self, offset: Offset) -> None:
        """Everything up to `offset` is delivered."""
        if time.monotonic() - self._written_s >= OFFSET_FLUSH_S:
            self._note.write(b"%d" % offset)
            self._written_s = time.monotonic()

    def take(self) -> Offset | None:
        """The last one noted, if any."""
        noted = self._note.read()
        return None if noted is None else Offset(int(noted))

    def clear(self) -> None:
        self._note.clear()
