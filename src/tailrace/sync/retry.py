"""When rows that wait for others are tried again: after something has come, and never most of the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_MANY: Final = 1000
_PAUSES: Final = 10
"""If many rows wait, there is no other try for so many times as long as one has taken."""


class Retry:
    """Any number of threads may ask; one of them at a time tries."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._turn = threading.Lock()
        self._may_wait = True  # a process before this one may have left some
        self._has_come = True
        self._not_before_s = 0.0

    def came(self) -> None:
        """Rows come: some of them may have to wait, others may be those that were waited for."""
        self._may_wait = self._has_come = True

    def is_due(self, *, has_changed: bool) -> bool:
        """Whether to try, now that somebody here may have changed something, too."""
        self._has_come |= has_changed
        return self._may_wait and self._has_come and self._now() >= self._not_before_s

    def did(self, attempt: Callable[[], tuple[int, int]]) -> bool:
        """Try as long as that helps; says whether it did. An attempt says how many waited before it and after it."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            began_s = self._now()
            self._has_come = False
            before, after = attempt()
            has_helped = after < before
            while 0 < after < before:
                before, after = attempt()
            self._may_wait = self._has_come or after > 0
            self._not_before_s = self._now() + (_PAUSES * (self._now() - began_s) if after > _MANY else 0)
            return has_helped
        finally:
            self._turn.release()
