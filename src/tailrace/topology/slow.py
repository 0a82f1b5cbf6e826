"""Slow copies: a source tells of those that it serves and has not heard of for long. It forgets whoever says goodbye,
and whoever it does not keep its log for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tailrace.topology.knobs import Knobs


class Slow:
    """Of one source. `run` is for one thread; `copies` may be read by any."""

    def __init__(self, heard: Callable[[], Mapping[str, float]], knobs: Knobs, report: Callable[[str], None]) -> None:
        """`heard` says how many seconds ago each copy was heard of."""
        self._heard = heard
        self._knobs = knobs
        self._report = report
        self._told: frozenset[str] = frozenset()

    @property
    def copies(self) -> dict[str, float]:
        """Who is slow, as it was told last, and how long ago each was heard of."""
        heard = self._heard()
        return {name: heard[name] for name in sorted(self._told & heard.keys())}

    def run(self, stopping: threading.Event) -> None:
        while not self._knobs.pause("physrep_hung_replicant_check_freq_sec", stopping):
            self.look()

    def look(self) -> None:
        """Tell what has changed."""
        heard = self._heard()
        threshold_s = self._knobs.seconds("physrep_hung_replicant_threshold")
        slow = frozenset(name for name, age_s in heard.items() if age_s > threshold_s)
        before, self._told = self._told, slow
        if slow - before:
            names = ", ".join(f"{name} for {heard[name]:.0f} s" for name in sorted(slow))
            self._report(f"ALARM: slow or hung, not heard of: {names}")
        for name in sorted(before - slow):
            self._report(f"{name} is heard of again" if name in heard else f"{name} is not served any more")
