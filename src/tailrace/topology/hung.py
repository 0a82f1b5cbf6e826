"""Hung: a replica that gets nowhere although there is somewhere to get to.

Places are offsets of the log, so a new segment changes nothing; what waits because it is meant to wait does not hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Standstill:
    """One position that should reach a goal."""

    doing: str
    """What stands still then."""
    clock: Callable[[], float] = time.monotonic
    _position: int | None = None
    _since_s: float | None = None

    def note(self, position: int, goal: int) -> None:
        """How far it is, and how far it could be."""
        if position >= goal:
            self._since_s = None
        elif position != self._position or self._since_s is None:
            self._since_s = self.clock()
        self._position = position

    def alarm(self, threshold_s: float) -> str | None:
        """What to tell when it has stood still for longer."""
        if self._since_s is None or self.clock() - self._since_s <= threshold_s:
            return None
        return f"{self.doing} has stood still at offset {self._position} for more than {threshold_s:g} s"
