"""Live: looks at what runs, keeps the last hour, and tells open pages which of their sections have changed.

Nobody looks more often than is needed: every few seconds for the history, faster only while a page is open, and slower
where looking costs much, so that the node keeps nearly all of its time for its work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from tailrace.errors import TailraceError
from tailrace.observe.history import SAMPLE_S, History
from tailrace.observe.model import Overview
from tailrace.web.html import Markup
from tailrace.web.sections import sections

OPEN_S: Final = 2.0
"""So often an open page gets news."""
SHARE_MAX: Final = 0.015
"""Of the time of one core, for looking."""


class Live:
    """`start`, then any number of readers, then `stop`."""

    def __init__(self, look: Callable[[], Overview]) -> None:
        self._look = look
        self._history = History()
        self._lock = threading.Condition()
        self._stopping = False
        self._pages = 0
        self._opened = False
        self._overview: Overview | None = None
        self._sections: dict[str, Markup] = {}
        self._number = 0
        self._error: TailraceError | None = None
        self._thread = threading.Thread(target=self._run, name="tailrace-page", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def overview(self) -> Overview:
        """How it is now, with rates. Raises what keeps it from being seen."""
        found = self._look()
        with self._lock:
            return self._history.rated(found)

    def shown(self) -> tuple[Overview, dict[str, Markup]]:
        """How it is now, and the sections of a page about it."""
        found = self._look()
        with self._lock:
            rated = self._history.rated(found)
            return rated, sections(rated, self._history)

    @property
    def is_well(self) -> bool:
        """Whether the last look went well."""
        return self._error is None and self._overview is not None

    @property
    def is_stopping(self) -> bool:
        """Whether there will be no more news."""
        return self._stopping

    def opened(self) -> None:
        """A page is open from now on; the first one does not wait."""
        with self._lock:
            self._opened = self._pages == 0
            self._pages += 1
            self._lock.notify_all()

    def closed(self) -> None:
        with self._lock:
            self._pages -= 1

    def changed(self, known: int, timeout_s: float) -> tuple[int, dict[str, Markup]]:
        """Wait for a look after the one that is known; its number and its sections."""
        with self._lock:
            self._lock.wait_for(lambda: self._number > known or self._stopping, timeout_s)
            return self._number, self._sections

    def _run(self) -> None:
        sampled_s = -SAMPLE_S
        while True:
            began_s, spent_s = time.monotonic(), time.thread_time()
            self._take(is_sample=began_s - sampled_s >= SAMPLE_S)
            if began_s - sampled_s >= SAMPLE_S:
                sampled_s = began_s
            with self._lock:
                wait_s = max(OPEN_S if self._pages else SAMPLE_S, (time.thread_time() - spent_s) / SHARE_MAX)
                self._opened = False
                self._lock.wait_for(lambda: self._stopping or self._opened, wait_s)
                if self._stopping:
                    return

    def _take(self, *, is_sample: bool) -> None:
        try:
            found = self._look()
        except TailraceError as error:
            self._error = error
            return
        with self._lock:
            self._error = None
            if is_sample:
                self._history.add(found)
            self._overview = self._history.rated(found)
            if self._pages:
                self._sections = sections(self._overview, self._history)
                self._number += 1
                self._lock.notify_all()
