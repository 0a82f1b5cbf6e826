"""Presence: a source tells a registry that it is there and how far its log is, and hears the tunables. A registry that
is away changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from tailrace.errors import TailraceError
from tailrace.log.segment import list_segments
from tailrace.log.standing import standing_of
from tailrace.log.view import LogView
from tailrace.topology.answers import Answer, Tuning
from tailrace.topology.knobs import Knobs
from tailrace.topology.member import Report, State
from tailrace.topology.site import Site


class Known(Protocol):
    """A registry, in this process or elsewhere."""

    def keepalive(self, site: Site, report: Report) -> Answer: ...

    def reset_nodes(self, sites: Sequence[Site], state: State) -> None: ...

    def tuning(self, database: str = "") -> Tuning: ...


class Presence:
    """Of one source at one registry."""

    def __init__(
        self, registry: Known, site: Site, report: Callable[[], Report], knobs: Knobs, say: Callable[[str], None]
    ) -> None:
        self._registry = registry
        self._site = site
        self._report = report
        self._knobs = knobs
        self._say = say
        self._trace = knobs.tracing("physrep_debug", say)
        self._is_announced = False
        self._told = ""

    def run(self, stopping: threading.Event) -> None:
        """Again and again, until it is over; then it says goodbye."""
        while not stopping.is_set():
            self._try()
            self._knobs.pause("physrep_keepalive_freq_sec", stopping)
        with suppress(TailraceError):
            self._registry.reset_nodes([self._site], State.INACTIVE)

    def turn(self) -> None:
        """One keepalive. Who begins, or is not known any more, says first that it is a source."""
        if not self._is_announced:
            self._registry.reset_nodes([self._site], State.ACTIVE)
            self._is_announced = True
        report = self._report()
        answer = self._registry.keepalive(self._site, report)
        self._trace(f"the registry was told that {self._site} is at offset {report.received}")
        self._knobs.heed(answer, lambda: self._registry.tuning(self._site.database))
        self._is_announced = answer.is_known

    def _try(self) -> None:
        try:
            self.turn()
            if not self._is_announced:
                self.turn()
            self._told = ""
        except TailraceError as error:
            if str(error) != self._told:
                self._told = str(error)
                self._say(f"the registry does not answer: {error}")


def report_of(directory: str) -> Report:
    """How far a log is at its source."""
    return Report(
        generation=standing_of(directory).generation,
        first_offset=list_segments(directory)[0],
        received=LogView(directory).head().next_offset,
    )
