"""A figure that costs something to find, asked for seldom, by a thread of its own: whoever looks does not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tailrace.errors import TailraceError

_REST: Final = 100
"""Finding it takes at most one part in so many of the time."""
T = TypeVar("T")


class Gauge(Generic[T]):
    """What was found when it was last asked for; None before the first answer, and while there is none."""

    def __init__(self, ask: Callable[[], T | None], every_s: float) -> None:
        self._ask = ask
        self._every_s = every_s
        self._again_s = 0.0
        self._asking: threading.Thread | None = None
        self._is_closed = False
        self._found: T | None = None
        self._lock = threading.Lock()

    def read(self) -> T | None:
        """What is known. If that is old, somebody is sent to ask."""
        with self._lock:
            if self._asking is None and not self._is_closed and time.monotonic() >= self._again_s:
                self._asking = threading.Thread(target=self._work, name="tailrace-gauge", daemon=True)
                self._asking.start()
            return self._found

    def close(self) -> None:
        """Nobody is asked any more when this returns."""
        with self._lock:
            self._is_closed = True
            asking = self._asking
        if asking is not None:
            asking.join()

    def _work(self) -> None:
        began_s = time.monotonic()
        try:
            found = self._ask()
        except TailraceError:  # others tell what is wrong with whom it asks
            found = None
        took_s = time.monotonic() - began_s
        with self._lock:
            self._found = found
            self._asking = None
            self._again_s = time.monotonic() + max(self._every_s, _REST * took_s)
