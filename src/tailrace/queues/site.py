"""A site: one end of routing queues. It keeps what its clients send, carries it to other sites, takes what comes."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, Final, Self

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.log.group import OffsetRange
from tailrace.message import now
from tailrace.node.form import RetentionForm
from tailrace.node.retaining import remove_unneeded
from tailrace.queues import wishes
from tailrace.queues.applicationside import ApplicationSide
from tailrace.queues.entries import Kind, Outgoing, outgoing_batches, snapshot_batches
from tailrace.queues.form import ClientForm, QueuesForm
from tailrace.queues.fullness import Fullness, WhenFull, full_error
from tailrace.queues.payload import check_payload
from tailrace.queues.requests import Request, Requests
from tailrace.queues.sent import Sent
from tailrace.queues.session import Session
from tailrace.queues.sink import Sink
from tailrace.queues.staged import StagedPart
from tailrace.queues.supply import Provider, Supply
from tailrace.queues.tags import Tags
from tailrace.relay.applier import Source
from tailrace.relay.pem import read_pem

LOG: Final = "queues"
"""The log, in the data directory of the node."""
STATE: Final = "queue-state"
"""What else a site must remember, beside it."""
_FULL_LOOK_S: Final = 0.05
_LOOK_S: Final = 0.5
_AGAIN_S: Final = 5.0
_FULL_HINT: Final = "tailrace queue status says why; try again later"


class Site:
    """`with Site(form, name, directory, report) as site`: everything runs until the end of the block."""

    def __init__(self, form: QueuesForm, name: str, data: str, report: Callable[[str], None]) -> None:
        self.name = form.site or name
        self._form = form
        self._state = os.path.join(data, STATE)
        self.directory = os.path.join(data, LOG)
        self._report = report
        self._stopping = threading.Event()
        self._closing = ExitStack()
        self._providers: dict[str, Provider] = {}
        self._supplied: set[str] = set()
        """The requests that somebody supplies now: two at once would spoil each other's rows."""
        self._turn = threading.Lock()
        self._shed: dict[tuple[str, str], int] = {}
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self.log = opening.enter_context(
                CommitLog.open(self.directory, LogConfig(segment_bytes=self._form.segment_bytes))
            )
            self._tags = Tags(self.directory)
            self.sink = Sink(self.name, self.log, os.path.join(self._state, "incoming"), self._form.hold())
            opening.callback(self.sink.close)
            path = os.path.join(self._state, "requests.json")
            self.requests = Requests(path, lambda: self.log.next_offset, self._ask, self._over)
            sessions = os.path.join(self._state, "sessions")
            os.makedirs(sessions, exist_ok=True)
            self.sessions = {
                (client, site): self._session(client, said, site, sessions)
                for client, said in self._form.clients.items()
                for site in self._form.destinations
            }
            for session in self.sessions.values():
                opening.callback(session.close)
            self._release_removed()
            for session in self.sessions.values():
                self._run(partial(session.run, self._stopping.is_set), opening)
            self._outboxes = self._open_outboxes(opening)
            self._run(self._retain, opening)
            self._run(self._obey, opening)
            self.requests.ask_again()
            self._closing = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._wake()
        self._closing.close()

    def transmit(self, entries: Sequence[Outgoing], *, timeout_s: float | None = None) -> Sent:
        """One transaction, as one group; durable when this returns. Destinations that are full are treated as their
        client's `when_full` says."""
        wanted = [self._admitted(entry, timeout_s) for entry in entries]
        pairs = zip(entries, wanted, strict=True)
        left_out = {site for entry, admitted in pairs for site in entry.sites if site not in admitted.sites}
        name = uuid.uuid4().hex
        found = [entry for entry in wanted if entry.sites]
        if not found:
            return Sent(tuple(sorted(left_out)))
        offsets = self.append(lambda first: outgoing_batches([(name, found)], first, now()))
        return Sent(tuple(sorted(left_out)), offsets)

    def supply(
        self, client: str, attempt: str, payloads: Sequence[bytes], sites: Sequence[str], kind: Kind = Kind.SNAPSHOT
    ) -> OffsetRange:
        """Some messages of a snapshot, or its end."""
        return self.append(lambda first: snapshot_batches(client, attempt, payloads, sites, kind, first, now()))

    def publish(self, part: StagedPart) -> None:
        """Some messages of a snapshot, which tasks of Spark have staged."""
        self.log.publish(part.batch, [part.file])
        self._wake()

    def append(self, make: Callable[[int], Iterable[Batch]]) -> OffsetRange:
        """One group, of the batches that are made when it is known where it begins."""
        with self.log.group() as group:
            for batch in make(self.log.next_offset):
                group.add(batch)
        self._wake()
        return group.range

    def provide(self, client: str, provider: Provider) -> None:
        """Who supplies a client's data, also for what was asked before."""
        self._providers[client] = provider
        for request in self.requests.open(client):
            self._ask(request)

    def resync(self, client: str, site: str) -> None:
        """A destination gets a new snapshot, whatever it has."""
        if (client, site) not in self.sessions:
            known = ", ".join(f"{each} to {sink}" for each, sink in sorted(self.sessions)) or "none"
            what = f"{client} sends nothing to {site}"
            raise TailraceError("queue.unknown_destination", what, hint=f"there are: {known}")
        if not self.sessions[client, site].takes_snapshots:
            what = f"{client} has no snapshots"
            raise TailraceError("input.invalid", what, hint="take `snapshots: false` out of the node file")
        self.requests.force(client, site)
        self.sessions[client, site].woken.set()

    def is_full(self, client: str, site: str) -> bool:
        """Whether too much waits for a destination."""
        said = self._form.clients.get(client) or ClientForm()
        if said.limit_entries is None and said.limit_bytes is None:
            return False
        found = self.sessions[client, site].remaining_entries()
        return (said.limit_entries is not None and found.entries >= said.limit_entries) or (
            said.limit_bytes is not None and found.bytes >= said.limit_bytes
        )

    def status(self) -> dict[str, Any]:
        """Everything there is to know, as plain JSON."""
        return {
            "site": self.name,
            "sessions": [_told(session, self._shed.get(key, 0)) for key, session in sorted(self.sessions.items())],
            "received": self.sink.status(),
            "requests": [asdict(asked) for side in self._outboxes for asked in side.asked],
            "outbox_errors": [
                side.capturing.error.encode() for side in self._outboxes if side.capturing.error is not None
            ],
        }

    def _admitted(self, entry: Outgoing, timeout_s: float | None) -> Outgoing:
        """An entry for those destinations to which it goes."""
        check_payload(entry.payload)
        if not entry.sites:
            raise TailraceError("queue.no_destination", "a message goes nowhere", hint="name at least one destination")
        for site in entry.sites:
            if (entry.client, site) not in self.sessions:
                known = ", ".join(sorted(sink for client, sink in self.sessions if client == entry.client))
                what = f"{entry.client} cannot send to {site}"
                hint = f"it can send to: {known}" if known else "name the client and its destinations in the node file"
                raise TailraceError("queue.unknown_destination", what, hint=hint)
        full = [site for site in entry.sites if self.is_full(entry.client, site)]
        if not full:
            return entry
        match self._form.clients[entry.client].when_full:
            case WhenFull.REJECT:
                raise full_error(entry.client, full, _FULL_HINT)
            case WhenFull.BLOCK:
                self._await_room(entry.client, full, timeout_s)
                return entry
        for site in full:
            self._shed[entry.client, site] = self._shed.get((entry.client, site), 0) + 1
        return Outgoing(entry.client, entry.payload, tuple(site for site in entry.sites if site not in full))

    def _await_room(self, client: str, sites: Sequence[str], timeout_s: float | None) -> None:
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        while any(self.is_full(client, site) for site in sites):
            if self._stopping.is_set() or (ends_s is not None and time.monotonic() >= ends_s):
                raise full_error(client, sites, _FULL_HINT)
            self._stopping.wait(_FULL_LOOK_S)

    def _session(self, client: str, said: ClientForm, site: str, directory: str) -> Session:
        where = self._form.destinations[site]
        peer = Source(
            site,
            f"{'grpc+tls' if where.ca else 'grpc'}://{where.address}",
            where.token.get_secret_value(),
            read_pem(where.ca),
            read_pem(where.certificate),
            read_pem(where.key),
        )
        return Session(
            self.name,
            client,
            peer,
            self._tags,
            self.requests,
            directory,
            takes_snapshots=said.snapshots,
            hold=self._form.hold(),
        )

    def _open_outboxes(self, opening: ExitStack) -> list[ApplicationSide]:
        """One for each database, whichever clients use it."""
        by_address: dict[str, list[str]] = {}
        for client, said in self._form.clients.items():
            if said.outbox is not None:
                by_address.setdefault(said.outbox.address, []).append(client)
        found = []
        for clients in by_address.values():
            form = self._form.clients[clients[0]].outbox
            if form is None:
                continue
            side = ApplicationSide(
                form, self.name, clients, self.log, self.requests, self._fullness, self._report, self._wake
            )
            opening.callback(side.close)
            self._run(partial(side.run, self._stopping), opening)
            self._run(partial(side.tend, self._stopping), opening)
            found.append(side)
        return found

    def _fullness(self, client: str) -> dict[str, Fullness]:
        policy = self._form.clients[client].when_full
        return {site: Fullness(self.is_full(each, site), policy) for each, site in self.sessions if each == client}

    def _wake(self) -> None:
        """There may be something to send."""
        for session in self.sessions.values():
            session.woken.set()

    def _release_removed(self) -> None:
        """The log is not kept any more for destinations and clients that the file does not name, nor are snapshots
        wanted for them."""
        self.requests.keep_only(self.sessions)
        consumers = Consumers(self.directory)
        known = {session.consumer for session in self.sessions.values()}
        for name in consumers.names():
            if name.startswith("queue-") and name not in known:
                consumers.delete(name, "its destination or client was removed")
                self._report(f"the log is not kept any more for {name.removeprefix('queue-')}")

    def _ask(self, request: Request) -> None:
        with self._turn:
            if request.client not in self._providers or request.id in self._supplied:
                return
            self._supplied.add(request.id)
        threading.Thread(target=self._provide, args=(request,), name="tailrace-supply", daemon=True).start()

    def _over(self, request: Request) -> None:
        self._report(f"snapshot {request.id} of {request.client} is at all its destinations")

    def _provide(self, request: Request) -> None:
        """Until it is supplied, or nobody wants it any more."""
        attempt = 0
        while not self._stopping.is_set() and request in self.requests.open(request.client):
            attempt += 1
            supply = Supply(self, request, f"{request.id}.{time.time_ns()}-{attempt}")
            try:
                self._providers[request.client](supply)
                supply.flush(is_end=True)
            except Exception as error:  # noqa: BLE001  what a provider raises is told, and it is asked again
                self._report(f"the snapshot of {request.client} was not supplied: {type(error).__name__}: {error}")
                self._stopping.wait(_AGAIN_S)
            else:
                return

    def retain(self) -> None:
        """Let go of what everybody has."""
        self.sink.renew()
        for session in self.sessions.values():
            session.note()
        remove_unneeded(self.directory, RetentionForm(), self._report)

    def _retain(self) -> None:
        while not self._stopping.wait(self._form.every):
            try:
                self.retain()
            except TailraceError as error:
                self._tell_once("retention", f"nothing was removed from the log of queues: {error}")

    def _obey(self) -> None:
        """Do what operators ask for."""
        while not self._stopping.wait(_LOOK_S):
            for client, site in wishes.taken(self._state):
                try:
                    self.resync(client, site)
                except TailraceError as error:
                    self._report(f"no snapshot was forced: {error}")
                else:
                    self._report(f"{site} gets a new snapshot of {client}, as somebody wished")

    def _run(self, work: Callable[[], None], opening: ExitStack) -> None:
        worker = threading.Thread(target=self._keep_at, args=(work,), name="tailrace-queue", daemon=True)
        worker.start()
        opening.callback(worker.join)
        opening.callback(self._stopping.set)

    def _keep_at(self, work: Callable[[], None]) -> None:
        """A thread that ends without a word would be taken for one that works."""
        while not self._stopping.is_set():
            try:
                return work()
            except Exception as error:  # noqa: BLE001  whatever it is
                self._tell_once(repr(work), f"queues of {self.name}: {error!r}; it is tried again")
                self._stopping.wait(_AGAIN_S)

    def _tell_once(self, about: str, text: str) -> None:
        if self._told.get(about) != text:
            self._told[about] = text
            self._report(text)


def _told(session: Session, shed: int) -> dict[str, Any]:
    progress = session.progress
    remaining = session.remaining()
    lag_s = None if remaining.oldest_us is None else max(0.0, (now() - remaining.oldest_us) / 1_000_000)
    return {
        "client": session.client,
        "sink": session.sink,
        "state": progress.state.value,
        "position": progress.position,
        "remaining_entries": remaining.entries,
        "remaining_bytes": remaining.bytes,
        "lag_s": 0.0 if lag_s is None else lag_s,
        "following_entries": session.following_entries(),
        "takes_snapshots": session.takes_snapshots,
        "snapshot": progress.request,
        "is_forced": progress.is_forced,
        "completed_us": progress.completed_us,
        "shipped_entries": progress.shipped_entries,
        "shipped_bytes": progress.shipped_bytes,
        "read_bytes": progress.read_bytes,
        "shed": shed,
        "lost_before": session.lost_before,
        "failures": progress.failures,
        "error": None if progress.error is None else progress.error.encode(),
    }
