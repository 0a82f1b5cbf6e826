"""The side of a node that a topology sees: a source that serves its log's bytes, dials those who wait for it, keeps a
registry if its file says so, tells one how far it is, and watches over its copies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from tailrace.node.connecting import registry_at
from tailrace.node.form import NodeForm
from tailrace.relay.guest import Guest
from tailrace.relay.holds import Holds
from tailrace.relay.names import OPERATOR
from tailrace.topology.answers import Row
from tailrace.topology.dialling import dialling
from tailrace.topology.knobs import Knobs, shown
from tailrace.topology.presence import Known, Presence, report_of
from tailrace.topology.pulling import Pulling
from tailrace.topology.registry import Registry
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.registryguest import RegistryGuest
from tailrace.topology.serving import LogGuest
from tailrace.topology.site import Site
from tailrace.topology.slow import Slow
from tailrace.topology.storage import open_storage


class SourceSide:
    """Of one node, for as long as `opening` lasts. Its log is copied by whoever has a token."""

    def __init__(
        self,
        form: NodeForm,
        directory: str,
        holds: Holds,
        knobs: Knobs,
        report: Callable[[str], None],
        opening: ExitStack,
    ) -> None:
        self._form = form
        self._directory = directory
        self._knobs = knobs
        self._report = report
        self._registry: Registry | None = None
        hold = None if form.retention is None else form.retention.hold()
        self.pulling = Pulling(
            directory, holds, fanout=lambda: knobs.number("physrep_fanout"), beat_s=form.heartbeat, hold=hold
        )
        self.slow = Slow(self.pulling.heard, knobs, report)
        self.guests: list[Guest] = [LogGuest(self.pulling)]
        if form.registry is not None:
            registry = self._registry = Registry(open_storage(form.registry.address))
            opening.callback(registry.close)
            self.guests.append(RegistryGuest(registry, lambda peer: peer == OPERATOR))
        knobs.turned = lambda values: report(f"set by the registry: {shown(values)}")

    def topology(self) -> list[Row]:
        """Who replicates from whom, if this node serves the registry that knows."""
        return [] if self._registry is None else self._registry.topology()

    def begin(self, port: int, stopping: threading.Event, opening: ExitStack) -> list[Callable[[], None]]:
        """What has to be run while it is served at a port, each by a thread until `stopping`."""
        form = self._form
        presences = self._presences(port)
        if form.dials is not None:
            opening.enter_context(dialling(form.dials, form.listen, form.tls, self.pulling, self._knobs, self._report))
        work: list[Callable[[], None]] = [partial(self.slow.run, stopping)]
        work += [partial(presence.run, stopping) for presence in presences]
        if self._registry is not None and not presences:
            work.append(partial(self._listen_to, self._registry, stopping))
        return work

    def _presences(self, port: int) -> list[Presence]:
        """Where it is known. The first registry says what holds for it, another one only how often it is told."""
        form, found = self._form, list[tuple[Known, str, str | None]]()
        if self._registry is not None and form.registry is not None and form.registry.database is not None:
            found.append((self._registry, form.registry.database, form.registry.advertise))
        said = [] if form.announce is None else [form.announce]
        if form.dials is not None and form.dials.registry.address not in [each.address for each in said]:
            said.append(form.dials.registry)
        found += [(RegistryClient(registry_at(each)), each.database, each.advertise) for each in said]
        listens = f"{form.listen.rpartition(':')[0]}:{port}"
        report = partial(report_of, self._directory)
        knobs = (self._knobs, knobs_of(form))
        return [
            Presence(known, Site(database, advertise or listens), report, holding, self._report)
            for (known, database, advertise), holding in zip(found, knobs, strict=False)
        ]

    def _listen_to(self, registry: Registry, stopping: threading.Event) -> None:
        """Its own registry does not know how its log is called, and still says what holds for all."""
        while not stopping.is_set():
            self._knobs.learn(registry.tuning())
            self._knobs.pause("physrep_keepalive_freq_sec", stopping)


def knobs_of(form: NodeForm) -> Knobs:
    """What a node's file says, and what holds until a registry is heard."""
    every = {} if form.retention is None else {"physrep_check_minlog_freq_sec": form.retention.every}
    return Knobs({**form.said_tunables(), **form.tunables}, every)
