"""Faults of this side: whoever calls hears that there is one, and not where the database is or what it says.

What it is stands in the node's own log, once as long as it is the same, and for a while in its status.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from tailrace.errors import TailraceError

KEPT_S: Final = 60.0
_HINT: Final = "try again later; the log of that node says why"
_log: Final = logging.getLogger(__name__)


class Faults:
    """What failed at this side lately."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last: tuple[TailraceError, float] | None = None

    def told(self, error: TailraceError) -> TailraceError:
        """What a caller hears of it."""
        known = self.latest
        if known is None or (known.code, known.what) != (error.code, error.what):
            _log.warning("a request failed because of this node: %s", error, exc_info=error.__cause__)
        self._last = error, self._now() + KEPT_S
        if error.code == "sync.unreachable":
            return TailraceError(error.code, "the node cannot use its database at the moment", hint=_HINT)
        code = error.code if error.code.startswith("sync.") else "sync.failed"
        return TailraceError(code, "the node cannot do that at the moment", hint=_HINT)

    @property
    def latest(self) -> TailraceError | None:
        """The last one, unless it is long ago."""
        last = self._last
        return None if last is None or last[1] < self._now() else last[0]
