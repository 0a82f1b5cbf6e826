"""Placing: a replica asks the registry from whom to copy, tells it how far it is, and does what it is told.

A registry that is away changes nothing for a replica that has a source; one that has none tries those that it was
offered last, and then those at the top.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tailrace.errors import TailraceError
from tailrace.relay.applier import Source
from tailrace.topology.answers import Refusal
from tailrace.topology.member import Report, State
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.replica import Replica
from tailrace.topology.site import Site


class Placing:
    """Of one replica. `sources`, `connected` and `failed` are called by its thread, `tend` by another."""

    def __init__(
        self,
        client: RegistryClient,
        site: Site,
        top: Mapping[Site, Source],
        reach: Callable[[Site], Source],
        report: Callable[[], Report],
        say: Callable[[str], None],
    ) -> None:
        """`top` are the sources of tier 0; `reach` says how any node of the log is reached."""
        self._client = client
        self._site = site
        self._top = dict(top)
        self._reach = reach
        self._report = report
        self._say = say
        self._offered: list[Site] = []
        self._unreachable: list[Site] = []
        self._wanted: Site | None = None
        """Where the registry wants this replica to be."""
        self._places: dict[str, Site] = {}
        self._waits = True
        """Whether it was last to wait until it is dialled; so it is when the registry does not say."""

    def sources(self) -> Sequence[Source]:
        """Whom to follow now, the best first."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            return [self._source(wanted)]
        try:
            answer = self._client.register_replicant(
                self._site, self._report(), sources=list(self._top), unreachable=self._unreachable
            )
        except TailraceError as error:
            self._say(f"the registry does not answer: {error}")
            return [self._source(site) for site in self._offered or self._top]
        self._unreachable.clear()
        if answer.refusal is not None:
            self._say(f"the registry has no source: {answer.refusal.what} ({answer.refusal.reason})")
            return []
        self._offered = [candidate.site for candidate in answer.candidates]
        return [self._source(site) for site in self._offered]

    def must_wait(self) -> bool:
        """Whether a source is going to dial; a registry that is away changes nothing."""
        with suppress(TailraceError):
            self._waits = self._client.should_wait_for_con(self._site)
        return self._waits

    def place(self, source: Source, site: Site) -> None:
        """That source, which has dialled, is there."""
        self._places[source.name] = site

    def connected(self, source: Source) -> None:
        """A source was matched; raises when the registry has no slot there any more."""
        try:
            found = self._client.update_registry(self._site, self._places[source.name])
        except TailraceError:
            return  # without a registry it goes on, and the next keepalive tells
        if isinstance(found, Refusal):
            raise found.error()

    def failed(self, source: Source) -> None:
        """A source could not be followed: others are spared the attempt."""
        self._unreachable.append(self._places[source.name])

    def tend(self, replica: Replica, stopping: threading.Event, every_s: float) -> None:
        """Tell the registry how far the replica is, again and again, and do what it answers."""
        while not stopping.wait(every_s):
            try:
                answer = self._client.keepalive(self._site, self._report())
            except TailraceError:
                continue  # it goes on without
            replica.pause(answer.is_stopped)
            if answer.move is not None:
                self._say(f"the registry wants it to copy from {answer.move.host}")
                self._wanted = answer.move
                replica.change_source()
            elif not answer.is_known and not answer.is_stopped:
                replica.change_source()

    def leave(self) -> None:
        """The replica ends."""
        with suppress(TailraceError):
            self._client.reset_nodes([self._site], State.INACTIVE)

    def _source(self, site: Site) -> Source:
        source = self._top.get(site) or self._reach(site)
        self._places[source.name] = site
        return source
