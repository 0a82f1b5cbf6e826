"""Placing: a replica asks the registry from whom to copy, tells it how far it is, and does what it is told.

A registry that is away changes nothing for a replica that has a source; one that has none tries those that it was
offered last, and then those at the top.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from tailrace.errors import TailraceError
from tailrace.relay.applier import Source
from tailrace.topology.answers import Reason, Refusal
from tailrace.topology.knobs import Knobs
from tailrace.topology.member import Report, State
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.replica import Replica
from tailrace.topology.site import Site

_LACKING: Final = (Reason.NO_OVERLAP, Reason.GENERATION)
"""Refusals that mean that nobody has what is needed next."""
_LATER: Final = 1.2
"""Who was refused asks again after the time that was said, or so much later: not all at once."""


class Placing:
    """Of one replica. `sources`, `connected` and `failed` are called by its thread, `tend` by another."""

    def __init__(
        self,
        client: RegistryClient,
        site: Site,
        top: Mapping[Site, Source],
        reach: Callable[[Site], Source],
        report: Callable[[], Report],
        knobs: Knobs,
        say: Callable[[str], None],
        trace: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`top` are the sources of tier 0; `reach` says how any node of the log is reached; `trace` is
        told more than people usually want to know."""
        self._client = client
        self._site = site
        self._top = dict(top)
        self._reach = reach
        self._report = report
        self._knobs = knobs
        self._say = say
        self._trace = trace
        self._clock = clock
        self._offered: list[Site] = []
        self._unreachable: list[Site] = []
        self._wanted: Site | None = None
        """Where the registry wants this replica to be."""
        self._places: dict[str, Site] = {}
        self._waits = True
        """Whether it was last to wait until it is dialled; so it is when the registry does not say."""
        self._at: Site | None = None
        """Where it is connected."""
        self._confirmed_s = -math.inf
        """When the registry last confirmed that."""
        self._placed_s = math.inf
        """When the registry last chose its place; a replica that was dialled has no other one."""
        self._refused_until_s = -math.inf
        """Before that the registry wants not to be asked again."""

    def sources(self) -> Sequence[Source]:
        """Whom to follow now, the best first."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._placed_s = self._clock()
            return [self._source(wanted)]
        if self._clock() < self._refused_until_s:
            return []
        try:
            answer = self._client.register_replicant(
                self._site, self._report(), sources=list(self._top), unreachable=self._unreachable
            )
        except TailraceError as error:
            self._say(f"the registry does not answer: {error}")
            return [self._source(site) for site in dict.fromkeys([*self._offered, *self._top])]
        self._unreachable.clear()
        if answer.refusal is not None:
            self._say(f"the registry has no source: {answer.refusal.what} ({answer.refusal.reason})")
            wait_s = answer.refusal.retry_after_s * random.uniform(1.0, _LATER)  # noqa: S311
            self._refused_until_s = self._clock() + wait_s
            return [self._source(site) for site in self._top] if answer.refusal.reason in _LACKING else []
        self._placed_s = self._clock()
        self._offered = [candidate.site for candidate in answer.candidates]
        self._trace(f"the registry offers {', '.join(site.host for site in self._offered)}")
        return [self._source(site) for site in self._offered]

    def must_wait(self) -> bool:
        """Whether a source is going to dial; a registry that is away changes nothing."""
        with suppress(TailraceError):
            self._waits = self._client.should_wait_for_con(self._site)
        return self._waits

    def place(self, source: Source, site: Site) -> None:
        """That source, which has dialled, is there."""
        self._places[source.name] = site
        self._placed_s = math.inf

    def connected(self, source: Source) -> None:
        """A source was matched; raises `topology.refused` when the registry has no slot there any more."""
        at = self._places[source.name]
        try:
            found = self._client.update_registry(self._site, at, unreachable=self._unreachable)
            self._confirmed_s = self._clock()
            self._unreachable.clear()
        except TailraceError:
            self._confirmed_s = -math.inf  # without a registry it goes on, and the next keepalive tells
        else:
            if isinstance(found, Refusal):
                raise found.error()
            self._trace(f"the registry confirms {at.host}")
        self._at = at

    def failed(self, source: Source) -> None:
        """A source could not be followed: others are spared the attempt."""
        self._at = None
        self._unreachable.append(self._places[source.name])

    def hear(self) -> None:
        """Learn the tunables, before anything is done by them."""
        with suppress(TailraceError):
            self._knobs.learn(self._client.tuning(self._site.database))

    def tend(self, replica: Replica, stopping: threading.Event) -> None:
        """Tell the registry how far the replica is, again and again, and do what it answers."""
        while not self._knobs.pause("physrep_keepalive_freq_sec", stopping):
            with suppress(TailraceError):  # it goes on without
                self.turn(replica)

    def turn(self, replica: Replica) -> None:
        """One keepalive, and what follows from its answer."""
        report = self._report()
        answer = self._client.keepalive(self._site, report)
        self._trace(f"the registry was told that {self._site} is at offset {report.received}")
        self._knobs.heed(answer, lambda: self._client.tuning(self._site.database))
        replica.pause(answer.is_stopped)
        if answer.is_stopped:
            self._at = None
        elif answer.move is not None and answer.move not in self._unreachable:
            self._say(f"the registry wants it to copy from {answer.move.host}")
            self._wanted = answer.move
            self._leave_source(replica)
        elif not answer.is_known:
            self._leave_source(replica)
        elif self._is_over("physrep_register_interval", self._placed_s):
            self._say("it registers anew")
            self._leave_source(replica)
        elif self._at is not None and self._is_over("physrep_update_registry_interval", self._confirmed_s):
            self._confirm(replica, self._at)

    def leave(self) -> None:
        """The replica ends."""
        with suppress(TailraceError):
            self._client.reset_nodes([self._site], State.INACTIVE)

    def _confirm(self, replica: Replica, at: Site) -> None:
        """Again, which mends what the registry has lost."""
        found = self._client.update_registry(self._site, at)
        self._confirmed_s = self._clock()
        if isinstance(found, Refusal):
            self._say(f"the registry does not confirm {at.host} any more: {found.what} ({found.reason})")
            self._leave_source(replica)

    def _leave_source(self, replica: Replica) -> None:
        self._at, self._placed_s = None, math.inf
        replica.change_source()

    def _is_over(self, interval: str, since_s: float) -> bool:
        return self._clock() - since_s >= self._knobs.seconds(interval)

    def _source(self, site: Site) -> Source:
        source = self._top.get(site) or self._reach(site)
        self._places[source.name] = site
        return source
