"""Patience: a part of a pipeline whose end does not answer waits for it, for a while, and goes on where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from tailrace.errors import TailraceError
from tailrace.units import show_seconds

AWAY: Final = frozenset({"source.unreachable", "destination.unreachable"})
WAIT_S: Final = 0.5
"""Before the second attempt; each further one waits twice as long as the one before."""
WAIT_S_MAX: Final = 15.0
TELL_EVERY_S: Final = 60.0


class Patience:
    """The turns of one part. An outage costs turns, not the part, unless it lasts longer than is said."""

    def __init__(
        self,
        name: str,
        turn: Callable[[], bool],
        *,
        was_there: Callable[[], bool],
        again: Callable[[], None],
        patience_s: float,
        stop: threading.Event,
        report: Callable[[str], None],
    ) -> None:
        self._name = name
        self._turn = turn
        self._was_there = was_there
        """Whether the end has answered in this run. One that never did is a mistake, not an outage."""
        self._again = again
        """What is to be done before the first turn after a failure."""
        self._patience_s = patience_s
        self._stop = stop
        self._report = report
        self._away_since_s: float | None = None
        self._told_s = 0.0
        self._wait_s = WAIT_S

    def turn(self) -> bool:
        """One turn, or a while of waiting; False when there is nothing more to do."""
        try:
            if self._away_since_s is not None:
                self._again()
            is_going_on = self._turn()
        except TailraceError as error:
            if error.code not in AWAY or not self._was_there():
                raise
            self._wait(error)
            return True
        self._is_back()
        return is_going_on

    def _wait(self, error: TailraceError) -> None:
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s, self._wait_s, self._told_s = now_s, WAIT_S, 0.0
        away_s = now_s - self._away_since_s
        if away_s >= self._patience_s or self._stop.is_set():
            raise error
        if not self._told_s or now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            left = show_seconds(self._patience_s - away_s)
            self._report(f"{self._name}: {error.what}; it is tried again for {left}")
        self._stop.wait(min(self._wait_s, self._patience_s - away_s))
        self._wait_s = min(2 * self._wait_s, WAIT_S_MAX)

    def _is_back(self) -> None:
        if self._away_since_s is not None:
            away = show_seconds(time.monotonic() - self._away_since_s)
            self._report(f"{self._name}: goes on after {away}")
            self._away_since_s = None
