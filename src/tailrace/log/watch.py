"""Waiting for the log to grow without looking all the time: the kernel wakes us when the head file is written.

Where the kernel cannot (another system, a network file system) the file is looked at a few times a second.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Final, Self

from tailrace.log.head import head_path

if sys.platform == "linux":
    from inotify_simple import INotify, flags

LOOK_EVERY_S: Final = 0.25
GATHER_S: Final = 0.005
"""While a log is busy its readers wait this long for more, so that many small groups wake them once."""
BUSY_S: Final = 0.02
"""A log is busy when its next write follows so soon."""


class Watch:
    """Wakes its owner when a log may have grown. Make it before looking at the head, so that no growth is missed."""

    def __init__(self, directory: str) -> None:
        self._path = head_path(directory)
        self._inotify: INotify | None = None
        self._woken_s = 0.0
        self._watch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, timeout_s: float) -> None:
        """Return when the head file was written since the last call, or after a while."""
        if self._inotify is None:
            self._watch()
        pause_s = max(0.0, min(timeout_s, LOOK_EVERY_S))
        if self._inotify is None:
            time.sleep(pause_s)
        else:
            is_woken = any(self._inotify.read(timeout=pause_s * 1000))
            before_s, self._woken_s = self._woken_s, time.monotonic()
            if is_woken and self._woken_s - before_s < BUSY_S:
                time.sleep(GATHER_S)
                self._inotify.read(timeout=0)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def _watch(self) -> None:
        if sys.platform != "linux":
            return
        # no head file yet, or no watches left: then we look now and then
        with contextlib.suppress(OSError), contextlib.ExitStack() as unless_watching:
            inotify = unless_watching.enter_context(INotify())
            inotify.add_watch(self._path, flags.MODIFY)
            unless_watching.pop_all()
            self._inotify = inotify
