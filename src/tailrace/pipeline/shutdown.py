"""Shutdown: the first signal asks for a clean end, the second one is the end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Shutdown:
    """Whether somebody has asked for the end."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.signal: int | None = None

    @contextmanager
    def listening(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Take SIGINT and SIGTERM for a while. Only for the main thread; elsewhere nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def receive(number: int, _frame: FrameType | None) -> None:
            if self.asked.is_set():
                os._exit(128 + number)  # what is not committed is delivered again, so nothing is lost
            self.signal = number
            self.asked.set()
            tell(f"{signal.Signals(number).name}: finishing what was begun; once more stops at once")

        before = {number: signal.signal(number, receive) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
