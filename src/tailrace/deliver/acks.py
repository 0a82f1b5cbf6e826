"""Acks: how far a task has come with messages that it delivers one by one, for a driver that may not see it end."""

from __future__ import annotations

import os
import time
from typing import Final

from tailrace.limits import OFFSET_FLUSH_S
from tailrace.log.consumers import PREFIX
from tailrace.log.disk import Disk
from tailrace.message import Offset
from tailrace.namespace import check_file_name

NAME: Final = "acks"


class Acks:
    """The last message that a task has delivered, written every second (I4)."""

    def __init__(self, log: str, consumer: str) -> None:
        self._path = os.path.join(log, PREFIX + check_file_name(consumer, "consumer"), NAME)
        self._disk = Disk()
        self._written_s = 0.0

    def note(self, offset: Offset, *, now: bool = False) -> None:
        """Everything up to `offset` is delivered."""
        if now or time.monotonic() - self._written_s >= OFFSET_FLUSH_S:
            self._disk.replace_file(self._path, b"%d" % offset)
            self._written_s = time.monotonic()

    def take(self) -> Offset | None:
        """The last one noted, if any."""
        try:
            with open(self._path, "rb") as stream:
                return Offset(int(stream.read(20)))
        except FileNotFoundError:
            return None

    def clear(self) -> None:
        if os.path.lexists(self._path):
            self._disk.remove(self._path)
