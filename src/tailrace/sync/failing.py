"""What fails and is tried again: functions and SQL of the application that say who gets rows, and the unexpected.

The changes of a table whose hook fails stay in the ChangeLog, together with those of tables that the hook watches. All
other tables go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync.backoff import Backoff

_log: Final = logging.getLogger(__name__)


class HookFailed(TailraceError):
    """A hook has failed, and the changes of these tables cannot be worked off without it."""

    def __init__(self, what: str, hint: str, tables: Collection[int]) -> None:
        super().__init__("sync.hook_failed", what, hint=hint)
        self.tables = frozenset(tables)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.hint, self.tables)


class Failing:
    """The hooks that fail at the moment. Any number of threads may use it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._found: dict[frozenset[int], tuple[HookFailed, Backoff, float]] = {}

    def failed(self, error: HookFailed) -> None:
        """It is left alone for a while, longer each time."""
        with self._lock:
            known = self._found.get(error.tables)
            backoff = Backoff() if known is None else known[1]
            self._found[error.tables] = (error, backoff, self._now() + backoff.next_s())
        if known is None or known[0].what != error.what:
            _log.warning("changes wait, it is tried again: %s", error, exc_info=error.__cause__)

    def done(self, tables: Collection[int]) -> None:
        """There is nothing left of these tables that could fail."""
        with self._lock:
            for each in [each for each in self._found if each <= {*tables}]:
                del self._found[each]

    def held(self) -> set[int]:
        """The tables that are left alone now."""
        with self._lock:
            now_s = self._now()
            return {table for each, (_, _, until_s) in self._found.items() if now_s < until_s for table in each}

    def errors(self) -> list[HookFailed]:
        with self._lock:
            return [error for error, *_ in self._found.values()]


def unexpected(error: Exception) -> TailraceError:
    """An error as it is told to people. What nobody thought of is in the log, too."""
    if isinstance(error, TailraceError):
        return error
    _log.error("sync failed in a way that nobody thought of", exc_info=error)
    what = f"sync failed in a way that nobody thought of: {type(error).__name__}: {error}"
    return TailraceError("sync.failed", what, hint="it is tried again; look into the log of this node, and report it")
