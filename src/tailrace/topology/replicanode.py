"""A replica at work: its copy is kept up, and served to those who copy it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Final, Self

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.log.segment import list_segments
from tailrace.log.session import ConsumerSession
from tailrace.log.standing import standing_of
from tailrace.log.view import LogView
from tailrace.message import Offset, now
from tailrace.node.connecting import registry_at, server_options, source_of
from tailrace.node.form import PlacingForm, StoreSpec
from tailrace.node.retaining import remove_unneeded
from tailrace.relay.applier import Source
from tailrace.relay.holds import REPLICA, Holds
from tailrace.topology.applynow import asked
from tailrace.topology.candidates import Candidates
from tailrace.topology.copied import is_begun
from tailrace.topology.door import Dialled, Door
from tailrace.topology.form import ReplicaForm, ReplicaSpec
from tailrace.topology.hung import Standstill
from tailrace.topology.knobs import Knobs, shown
from tailrace.topology.matching import Rollback
from tailrace.topology.member import UNKNOWN, Report
from tailrace.topology.placing import Placing
from tailrace.topology.pulling import Pulling
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.replica import Replica, Settings, State
from tailrace.topology.replicastore import ReplicaStore
from tailrace.topology.serving import GuestServer, LogGuest
from tailrace.topology.site import Site
from tailrace.topology.slow import Slow
from tailrace.topology.tunables import Value

_TEND_S: Final = 1.0
_DIALLED_S: Final = 5.0
"""So long it waits to be dialled before it asks again whether it is to wait."""
_STORE_S: Final = 0.1
"""How often it is looked whether there is something to apply."""
_STORE_AGAIN_S: Final = 1.0
_OWN: Final = "_copy"
"""The consumer that says up to where the copy itself is; with it retention knows what nobody needs."""


class ReplicaNode:
    """`with ReplicaNode(spec, report) as node`: everything runs until the end of the block."""

    def __init__(self, spec: ReplicaSpec, report: Callable[[str], None]) -> None:
        form = self._form = spec.form
        self._spec = spec
        self._report = report
        self._stopping = threading.Event()
        self._closing = ExitStack()
        self._directory = os.path.join(form.data, "log")
        self._told = ""
        self._retained_s = time.monotonic()
        self._tending = threading.Lock()
        """Held while the copy is looked after, and while it is cut or thrown away."""
        self._placing: Placing | None = None
        self._door: Door | None = None
        every = {} if form.retention is None else {"physrep_check_minlog_freq_sec": form.retention.every}
        self.knobs = Knobs({**form.said_tunables(), **form.tunables}, every)
        """What can be changed while it runs."""
        self._candidates = Candidates(self.knobs)
        self.store: ReplicaStore | None = None
        self.alarms: list[str] = []
        """What an operator should look at."""
        self._watched_s = self._begun_s = self._stopped_s = time.monotonic()
        self._copying = Standstill("copying")
        self._applying = Standstill("applying")

    def __enter__(self) -> Self:
        form = self._form
        os.makedirs(form.data, exist_ok=True)
        with ExitStack() as opening:
            self._sources = [source_of(said) for said in form.replicate_from.sources]
            self.replica = Replica(
                self._directory, form.node, self._choose, settings_of(form, self.knobs), self._tell_once
            )
            self.replica.trace = self.knobs.tracing("physrep_debug", self._report)
            self.replica.failed = self._candidates.failed
            self.knobs.turned = self._be_tuned
            self._holds = Holds(Consumers(self._directory), form.hold)
            self.pulling = Pulling(
                self._directory,
                self._holds,
                fanout=lambda: self.knobs.number("physrep_fanout"),
                beat_s=form.heartbeat,
                hold=None if form.retention is None else form.retention.hold(),
            )
            self.slow = Slow(self.pulling.heard, self.knobs, self._report)
            self.replica.itself = self.pulling.run
            self.pulling.above = lambda: self.replica.above
            self.pulling.age_s = self._age_s
            self.replica.floor = self._floor
            self.replica.cutting = self._cutting
            self._server = self._serve(form, opening)
            if form.replicate_from.registry is not None:
                self._be_placed(form.replicate_from.registry, opening)
            if self._spec.store is not None:
                self._keep_store(self._spec.store, opening)
            self._run(self._tend, opening)
            self._run(lambda: self.slow.run(self._stopping), opening)
            self._run(self.replica.run, opening)
            opening.callback(self.replica.stop)
            self._closing = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._closing.close()

    @property
    def port(self) -> int:
        return int(self._server.port) if self._door is None else self._door.port

    def status(self) -> dict[str, Any]:
        """Everything there is to know, as plain JSON."""
        progress = self.replica.progress
        heard_s = progress.heard_s
        return {
            "at_us": now(),
            "kind": "replica",
            "name": self._form.node,
            "port": self.port,
            "state": progress.state.value,
            "source": progress.source,
            "error": None if progress.error is None else progress.error.encode(),
            "generation": standing_of(self._directory).generation if os.path.isdir(self._directory) else None,
            "next_offset": progress.next_offset,
            "source_offset": progress.source_offset,
            "behind_bytes": progress.behind_bytes,
            "heard_s": None if heard_s is None else time.monotonic() - heard_s,
            "top_s": None if progress.top_s is None else time.monotonic() - progress.top_s,
            "copied_bytes": progress.copied_bytes,
            "thrown_bytes": progress.thrown_bytes,
            "sent_bytes": self.pulling.sent_bytes,
            "copies": self.pulling.copies,
            "slow": self.slow.copies,
            "alarms": self.alarms,
            "store": None if self.store is None else _told(self.store),
        }

    def _serve(self, form: ReplicaForm, opening: ExitStack) -> GuestServer:
        """Its log, for those who copy it; behind the door where it waits to be dialled, if it does."""
        reverse, listen = form.replicate_from.reverse, form.listen
        if reverse is not None:
            door = self._door = Door(
                listen,
                reverse.database,
                reverse.secret.get_secret_value(),
                self._tell_once,
                self.knobs.tracing("revsql_debug", self._report),
            )
            opening.enter_context(door)
            listen = "127.0.0.1:0"
        server = GuestServer([LogGuest(self.pulling)], **server_options(listen, form.tokens, form.tls))
        opening.callback(server.stop)
        if self._door is not None:
            self._door.inside = int(server.port)
        return server

    def _choose(self) -> Sequence[Source]:
        reverse = self._form.replicate_from.reverse
        if self._door is not None and reverse is not None and (self._placing is None or self._placing.must_wait()):
            found = self._door.dialled(_DIALLED_S)
            return [] if found is None else [self._through(found, reverse.secret.get_secret_value())]
        return self._candidates.now(self._sources if self._placing is None else self._placing.sources())

    def _through(self, found: Dialled, secret: str) -> Source:
        """A source that has dialled."""
        first, host = self._sources[0], found.source.host
        source = replace(
            first,
            name=f"{host} (dialled)",
            location=f"{first.location.partition('://')[0]}://{found.address}",
            token=secret,
            hostname=host.rpartition(":")[0].strip("[]") if first.ca is not None else None,
        )
        if self._placing is not None:
            self._placing.place(source, found.source)
        return source

    def _be_placed(self, said: PlacingForm, opening: ExitStack) -> None:
        """A registry says from whom to copy."""
        replica, first = self.replica, self._sources[0]
        host = said.advertise or f"{self._form.listen.rpartition(':')[0]}:{self.port}"
        placing = self._placing = Placing(
            RegistryClient(registry_at(said)),
            Site(said.database, host),
            {Site(said.database, each.address): source_of(each) for each in self._form.replicate_from.sources},
            lambda site: replace(first, name=site.host, location=f"{first.location.partition('://')[0]}://{site.host}"),
            self._report_of,
            self.knobs,
            self._tell_once,
            replica.trace,
        )
        replica.connected, replica.failed = placing.connected, self._failed
        opening.callback(placing.leave)
        placing.hear()
        self._run(lambda: placing.tend(replica, self._stopping), opening)

    def _failed(self, source: Source) -> None:
        self._candidates.failed(source)
        if self._placing is not None:
            self._placing.failed(source)

    def _be_tuned(self, values: Mapping[str, Value]) -> None:
        self._report(f"set by the registry: {shown(values)}")
        self.replica.settings = settings_of(self._form, self.knobs)

    def _report_of(self) -> Report:
        """How far this replica is, as the registry is told."""
        if not is_begun(self._directory):
            return UNKNOWN
        progress = self.replica.progress
        return Report(
            generation=standing_of(self._directory).generation,
            first_offset=list_segments(self._directory)[0],
            received=progress.next_offset or LogView(self._directory).head().next_offset,
            applied=None if self.store is None else self.store.applied,
            lag_bytes=progress.behind_bytes,
        )

    def _run(self, work: Callable[[], None], opening: ExitStack) -> None:
        worker = threading.Thread(target=work, name="tailrace-replica", daemon=True)
        worker.start()
        opening.callback(worker.join)
        opening.callback(self._stopping.set)

    def _floor(self) -> Offset | None:
        """The lowest offset that copies of this copy need: what is above must hold for them, too, since they may come
        there when this replica is gone."""
        if not is_begun(self._directory):
            return None
        consumers = Consumers(self._directory)
        held = [each for each in consumers.all() if each.name.startswith(REPLICA) and each.holds]
        return min((Offset(consumers.position(each) + 1) for each in held), default=None)

    def _tend(self) -> None:
        """Let go of what nobody needs any more."""
        while not self._stopping.wait(_TEND_S):
            with self._tending:
                if is_begun(self._directory):
                    self._look_for_alarms()
                    self._let_go()

    def _let_go(self) -> None:
        try:
            self._holds.sweep()
            self._retain()
        except TailraceError as error:
            self._tell_once(f"nothing was removed from the log: {error}")

    @contextmanager
    def _cutting(self, offset: Offset) -> Iterator[None]:
        with self._tending, nullcontext() if self.store is None else self.store.cutting(offset):
            yield

    def _retain(self) -> None:
        said = self._form.retention
        every_s = self.knobs.seconds("physrep_check_minlog_freq_sec")
        if said is None or time.monotonic() - self._retained_s < every_s:
            return
        self._retained_s = time.monotonic()
        consumers = Consumers(self._directory)
        consumers.register(_OWN, exist_ok=True)
        reached = self.replica.progress.next_offset
        if self.store is not None:
            reached = min(reached, self.store.needed_from or Offset(0))
        with suppress(TailraceError), ConsumerSession(consumers, _OWN) as session:
            if reached > session.resume_offset:
                session.commit(reached - 1)
        remove_unneeded(self._directory, said, self._report)

    def _keep_store(self, spec: StoreSpec, opening: ExitStack) -> None:
        """A database is kept up with the copy."""
        form = self._form
        sources = form.replicate_from.rows_from or form.replicate_from.sources
        store = self.store = ReplicaStore(
            spec,
            form.node,
            form.data,
            [source_of(said) for said in sources],
            self._report,
            wait_s=form.replicate_wait,
            ignored=form.physrep_ignore,
        )
        opening.callback(store.close)
        self._run(lambda: self._tend_store(store), opening)

    def _tend_store(self, store: ReplicaStore) -> None:
        told = ""
        while not self._stopping.is_set():
            is_busy = False
            try:
                if is_begun(self._directory):
                    store.hurry(asked(self._form.data) or Offset(0))
                    is_matched = self.replica.progress.state in (State.COPY, State.FOLLOW)
                    is_busy = store.tend(may_fill=is_matched)
                store.error, told = None, ""
            except TailraceError as error:
                store.error = error
                if told != str(error):
                    told = str(error)
                    self._report(f"the store is not kept up: {error}")
            self._stopping.wait(0.0 if is_busy else _STORE_AGAIN_S if store.error else _STORE_S)

    def _look_for_alarms(self) -> None:
        """Whether the replica hangs; what is meant to wait does not."""
        progress = self.replica.progress
        self._copying.note(progress.next_offset, progress.source_offset or 0)
        if self.store is not None and self.store.applied is not None:
            self._applying.note(self.store.applied, self.store.allowed)
        if progress.state is State.STOPPED:
            self._stopped_s = time.monotonic()
        if time.monotonic() - self._watched_s < self.knobs.seconds("physrep_hung_replicant_check_freq_sec"):
            return
        self._watched_s = time.monotonic()
        hung_s = self.knobs.seconds("physrep_hung_replicant_threshold")
        found = [self._copying.alarm(hung_s), self._applying.alarm(hung_s)]
        if min(self._age_s(), time.monotonic() - self._stopped_s) > hung_s:
            silent_s = time.monotonic() - (progress.heard_s or self._begun_s)
            who = "no source was" if silent_s > hung_s else "its source hears nothing from above: the top was not"
            found.append(f"{who} heard of for more than {hung_s:g} s")
        alarms = [each for each in found if each is not None]
        for each in alarms:
            if each not in self.alarms:
                self._report(f"alarm: {each}")
        self.alarms = alarms

    def _age_s(self) -> float:
        """How long ago the log itself was heard of, or this began."""
        return time.monotonic() - (self.replica.progress.top_s or self._begun_s)

    def _tell_once(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._report(text)


def _told(store: ReplicaStore) -> dict[str, Any]:
    """How a store is doing, as plain JSON."""
    return {
        "applied": store.applied,
        "allowed": store.allowed,
        "wait_s": store.waiting.wait_s,
        "ignored": store.ignored,
        "backfilled": store.backfilled,
        "error": None if store.error is None else store.error.encode(),
    }


def settings_of(form: ReplicaForm, knobs: Knobs) -> Settings:
    """How a replica behaves now."""
    said = form.replicate_from
    return Settings(
        beat_s=form.heartbeat,
        keep_s=knobs.seconds("physrep_keepalive_freq_sec"),
        waits=knobs.is_on("blocking_physrep"),
        poll_s=knobs.seconds("physrep_pollms") / 1000,
        max_rollback=Rollback(said.max_rollback, knobs.number("physrep_max_rollback")),
        alarm_after=knobs.number("physrep_no_source_alarm_threshold"),
        may_recopy=said.resync,
        ends_when_invalid=knobs.is_on("physrep_exit_on_invalid_logstream"),
    )
