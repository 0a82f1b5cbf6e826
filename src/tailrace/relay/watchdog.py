"""A watchdog: ends a connection on which nothing comes any more."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class Watchdog:
    """`with Watchdog(reader.cancel, 4.0) as watchdog`; it bites when it was not petted for so long."""

    def __init__(self, bite: Callable[[], None], silence_s: float) -> None:
        self.has_bitten = False
        self._bite = bite
        self._silence_s = silence_s
        self._heard_s = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tailrace-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def pet(self) -> None:
        self._heard_s = time.monotonic()

    def rest(self) -> None:
        """Nobody waits for anything until it is petted again."""
        self._heard_s = math.inf

    def _watch(self) -> None:
        while not self._is_over.wait(self._silence_s / 10):
            if time.monotonic() - self._heard_s > self._silence_s:
                self.has_bitten = True
                self._bite()
                return
