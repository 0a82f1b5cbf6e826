"""Shutdown: the first signal asks for a clean end, the second one is the end, and so is time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from tailrace.errors import Exit

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
LOOK_EVERY_S: Final = 0.25
CLOSING_S: Final = 5.0
"""What closes when the time for a clean end is over has so much more."""
TELLING_S: Final = 1.0
"""The last line needs a moment until it is seen."""


class Shutdown:
    """Whether somebody has asked for the end."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.signal: int | None = None

    @contextmanager
    def listening(self, tell: Callable[[str], None], limit_s: float) -> Iterator[None]:
        """Take SIGINT and SIGTERM for a while; what does not end within `limit_s`, and a little, of a signal is ended.
        Only for the main thread; elsewhere nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def receive(number: int, _frame: FrameType | None) -> None:
            if self.asked.is_set():
                os._exit(128 + number)  # what is not committed is delivered again, so nothing is lost
            self.signal = number
            self.asked.set()
            tell(f"{signal.Signals(number).name}: finishing what was begun; once more stops at once")

        over = threading.Event()
        arguments = (over, limit_s + CLOSING_S, tell)
        threading.Thread(target=self._guard, args=arguments, name="tailrace-shutdown", daemon=True).start()
        before = {number: signal.signal(number, receive) for number in SIGNALS}
        try:
            yield
        finally:
            over.set()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _guard(self, over: threading.Event, limit_s: float, tell: Callable[[str], None]) -> None:
        """End the process when it is not over so long after the signal."""
        while not over.wait(LOOK_EVERY_S) and not self.asked.is_set():
            pass
        if not over.wait(limit_s):
            tell("what was begun does not end, so it is broken off; it is delivered next time")
            over.wait(TELLING_S)
            os._exit(Exit.RUNTIME)
