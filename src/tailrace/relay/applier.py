"""The applier: follows one source, puts what comes into this node's journal, and says so.

    connect → (join) → ready → (register) → sync → follow, and back to connect whenever the connection is lost

What ends it for good and what is only waited for is in `RETRIED`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.message import Micros, NodeId, now
from tailrace.relay import flight
from tailrace.relay.acknowledging import Acknowledging
from tailrace.relay.flight import Call
from tailrace.relay.heartbeat import HEARTBEAT_S, SILENCE
from tailrace.relay.journal import span_of
from tailrace.relay.refusal import malformed, unexpected
from tailrace.relay.request import RUN, Ack, Ballot, Heartbeat, Register, Subscribe, Subscribed
from tailrace.relay.vclock import Vclock
from tailrace.relay.watchdog import Watchdog
from tailrace.relay.wire import Unpacker

if TYPE_CHECKING:
    from tailrace.node.identity import Identity
    from tailrace.relay.journal import Journal

SYNC_LAG_S: Final = 10.0
"""A node that is not further behind than this follows."""
_CONNECT_S: Final = 10.0
_PAUSES_MAX: Final = 8
"""A source that cannot be followed is tried again after a heartbeat, then after longer, at most after so many."""


JoinCluster = Callable[[fl.FlightClient, "Source", str], "Identity"]
"""Joins a cluster through a source; gives who the node is then."""
CloseGap = Callable[[fl.FlightClient, "Source", TailraceError], None]
"""What a source no longer has is got in another way; raises an error that says more when it cannot be."""


class State(StrEnum):
    """What an applier does."""

    CONNECT = "connect"
    READY = "ready"
    JOIN = "join"
    REGISTER = "register"
    SYNC = "sync"
    """It gets what it missed."""
    FOLLOW = "follow"
    LOADING = "loading"
    """The source is there and not ready; it is tried again."""
    DISCONNECTED = "disconnected"
    """The source is not there; it is tried again."""
    STOPPED = "stopped"
    """Something is wrong that time does not heal."""
    OFF = "off"
    """It is not wanted: the source is this node itself, or the node ends."""


RETRIED: Final = {
    "relay.loading": State.LOADING,
    "relay.busy": State.LOADING,
    "relay.unknown_replica": State.LOADING,
    "relay.duplicate": State.LOADING,
    "relay.no_rights": State.LOADING,
    "relay.gap": State.LOADING,
    "relay.anonymous": State.LOADING,
    "relay.ahead": State.LOADING,
    "relay.unsent": State.LOADING,
    "relay.join_lost": State.LOADING,
    "relay.no_snapshot": State.LOADING,
    "relay.conflict": State.LOADING,
    "source.unreachable": State.LOADING,
    "destination.unreachable": State.LOADING,
    "relay.unreachable": State.DISCONNECTED,
    "relay.self": State.OFF,
}
"""By error: what comes then. After every other error the applier is stopped."""


@dataclass(frozen=True, slots=True)
class Source:
    """A node that is followed."""

    name: str
    location: str
    token: str = field(repr=False)
    ca: bytes | None = field(default=None, repr=False)
    """The certificates that are trusted, when the connection is encrypted."""
    certificate: bytes | None = field(default=None, repr=False)
    """What this node shows a source that wants to see one, and its key."""
    key: bytes | None = field(default=None, repr=False)
    namespace: str | None = None
    """A pattern: messages of other namespaces come as noops."""
    without: frozenset[NodeId] = frozenset()
    """Origins whose messages do not come."""
    hostname: str | None = None
    """For whom its certificate is, where that is not whom one connects to."""

    def wanted(self, vclock: Vclock) -> Vclock:
        """How far this node is to come, of a clock of the source's."""
        return Vclock({origin: lsn for origin, lsn in vclock.items() if origin not in self.without})

    def client(self) -> fl.FlightClient:
        tls: Any = {
            "tls_root_certs": self.ca,
            "cert_chain": self.certificate,
            "private_key": self.key,
            "override_hostname": self.hostname,
        }
        return fl.FlightClient(self.location, **{name: value for name, value in tls.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Progress:
    """How an applier is doing."""

    state: State = State.OFF
    error: TailraceError | None = None
    source_clock: Vclock = field(default_factory=Vclock)
    """How far the source was when it last said so."""
    lag_s: float | None = None
    """How old the last message was when it came, by this node's clock and the source's."""
    behind_bytes: int | None = None
    """So much of its log the source had still to send, or had not heard that it came."""
    behind_s: float | None = None
    """How old the oldest of that was, by the source's own clock alone."""
    seen_s: float = 0.0
    """When the source was last heard of, on the monotonic clock: the age of these figures."""


class Applier:
    """Follows one source in a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        source: Source,
        identity: Identity,
        journal: Journal,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        changed: Callable[[], None] = lambda: None,
        join: JoinCluster | None = None,
        is_anonymous: bool = False,
        close_gap: CloseGap | None = None,
    ) -> None:
        self.source = source
        self._is_anonymous = is_anonymous
        self.progress = Progress()
        self._identity = identity
        self._journal = journal
        self._heartbeat_s = heartbeat_s
        self._changed = changed
        self._join = join
        self._close_gap = close_gap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tailrace-applier-{source.name}", daemon=True)
        self._reader: fl.FlightStreamReader | None = None
        self._was_in_touch = False
        """Whether the source was followed the last time."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, between two groups."""
        self._stopping.set()
        reader = self._reader
        if reader is not None:
            reader.cancel()
        self._thread.join()

    def _run(self) -> None:
        pause_s = self._heartbeat_s
        while not self._stopping.is_set():
            self._was_in_touch = False
            error = self._try()
            if error is None or self._stopping.is_set():
                break
            state = RETRIED.get(error.code, State.STOPPED)
            self._become(state, error)
            if state in (State.STOPPED, State.OFF):
                return
            pause_s = self._heartbeat_s if self._was_in_touch else min(2 * pause_s, _PAUSES_MAX * self._heartbeat_s)
            self._stopping.wait(pause_s)
        self._become(State.OFF, None)

    def _try(self) -> TailraceError | None:
        """Follow for as long as it goes well; says why it does not."""
        try:
            with flight.our_errors():
                self._follow()
        except TailraceError as error:
            return error
        except Exception as error:  # noqa: BLE001  a thread that ends without a word would be taken for one that works
            return unexpected(error)
        return None

    def _follow(self) -> None:
        self._become(State.CONNECT, self.progress.error)
        with self.source.client() as client:
            ballot = flight.vote(client, _CONNECT_S)
            if ballot.node == self._identity.node:
                check_is_us(ballot)
                raise TailraceError("relay.self", "the source is this node itself", hint="name another source")
            if ballot.is_loading or ballot.cluster is None:
                raise TailraceError("relay.loading", "the source is not ready yet", hint="it is tried again")
            is_outside = self._identity.cluster is None or self._identity.is_anonymous != self._is_anonymous
            if is_outside and self._join is not None:
                self._become(State.JOIN, None)
                self._identity = self._join(client, self.source, ballot.cluster)
            if ballot.cluster != self._identity.cluster:
                what = f"the source is of cluster {ballot.cluster}, this node of {self._identity.cluster}"
                raise TailraceError("relay.wrong_cluster", what, hint="name a source of this node's cluster")
            self._become(State.READY, None)
            try:
                with flight.our_errors():
                    self._subscribe(client)
            except TailraceError as error:
                self._mend(client, error)
                self._subscribe(client)

    def _mend(self, client: fl.FlightClient, error: TailraceError) -> None:
        """Do what lets the source be followed after all, if that can be done now."""
        if error.code == "relay.unknown_replica" and not self._is_anonymous:
            self._become(State.REGISTER, None)
            try:
                return register(client, self.source, self._identity, self._journal.vclock)
            except TailraceError as refusal:
                error = refusal
        if error.code != "relay.gap" or self._close_gap is None:
            raise error
        self._become(State.JOIN, error)
        self._close_gap(client, self.source, error)

    def _subscribe(self, client: fl.FlightClient) -> None:
        since = self._journal.vclock
        self._note(lag_s=None, behind_bytes=None, behind_s=None, seen_s=0.0)  # what was told before is old
        request = Subscribe(
            node=self._identity.node,
            cluster=self._identity.cluster or "",
            vclock=since,
            is_anonymous=self._is_anonymous,
            term=self._journal.term,
            namespace=self.source.namespace,
            without=sorted(self.source.without),
        )
        reader = client.do_get(fl.Ticket(request.packed()), flight.options(self.source.token))
        self._reader = reader
        try:
            with Watchdog(reader.cancel, max(_CONNECT_S, SILENCE * self._heartbeat_s)):
                answer = Subscribed.read(_metadata(reader.read_chunk()))
            self._note(source_clock=answer.vclock, seen_s=time.monotonic())
            self._become(State.SYNC, None)
            self._was_in_touch = True
            silence_s = SILENCE * max(self._heartbeat_s, answer.heartbeat_s)

            def acknowledge(vclock: Vclock) -> None:
                ack = Ack(node=self._identity.node, session=answer.session, vclock=vclock, term=self._journal.term)
                flight.ask(client, Call.ACK, ack, self.source.token, silence_s)

            every_s = min(self._heartbeat_s, answer.heartbeat_s)
            with (
                Watchdog(reader.cancel, silence_s) as watchdog,
                Acknowledging(acknowledge, since, every_s, reader.cancel) as acks,
            ):
                try:
                    with flight.our_errors():
                        self._receive(reader, since, answer.vclock, watchdog, acks)
                except TailraceError as error:
                    if error.code == "relay.unreachable" and acks.failure is not None:
                        raise acks.failure from error
                    raise
        finally:
            self._reader = None
            reader.cancel()

    def _receive(self, reader: Any, received: Vclock, target: Vclock, watchdog: Watchdog, acks: Acknowledging) -> None:
        """Take what comes until the connection ends. `received` is what came through this connection."""
        unpacker = Unpacker()
        while not self._stopping.is_set():
            watchdog.pet()
            chunk = reader.read_chunk()
            watchdog.rest()  # who is busy with what came cannot hear
            if chunk.app_metadata is not None:
                beat = Heartbeat.read(_metadata(chunk))
                self._note(source_clock=beat.vclock, seen_s=time.monotonic())
                self._note(behind_bytes=beat.behind_bytes, behind_s=beat.behind_s)
            groups = list(unpacker.groups(chunk.data))
            self._journal.append_groups(groups)
            for group in groups:
                origin, _, last = span_of([head for head, _ in group])
                received = received.advanced(origin, last)
                newest = max(head.timestamp for head, _ in group)
                self._note(lag_s=_age_s(newest), seen_s=time.monotonic())
            if self.progress.state is State.SYNC and self._has(target) and self._is_near():
                self._become(State.FOLLOW, None)
            if groups or chunk.app_metadata is not None:
                acks.has(received)

    def _has(self, vclock: Vclock) -> bool:
        return self.source.wanted(vclock) <= self._journal.vclock

    def _is_near(self) -> bool:
        lag_s = self.progress.lag_s
        return lag_s is None or lag_s <= SYNC_LAG_S or self._has(self.progress.source_clock)

    def _note(self, **news: Any) -> None:
        self.progress = replace(self.progress, **news)

    def _become(self, state: State, error: TailraceError | None) -> None:
        self.progress = replace(self.progress, state=state, error=error)
        self._changed()


def check_is_us(ballot: Ballot) -> None:
    """Refuse another process that runs as this node: both would give the same numbers to different messages (I8)."""
    if ballot.run != RUN:
        what = f"another process runs as this node, {ballot.node}: its directory was copied"
        raise TailraceError("relay.duplicate", what, hint="end one of them, and let it join with a new `data`")


def register(
    client: fl.FlightClient, source: Source, identity: Identity, vclock: Vclock, *, is_newcomer: bool = False
) -> None:
    """Make a source keep its log for this node."""
    request = Register(node=identity.node, cluster=identity.cluster or "", vclock=vclock, is_newcomer=is_newcomer)
    flight.ask(client, Call.REGISTER, request, source.token)


def _metadata(chunk: Any) -> bytes:
    if chunk.app_metadata is None:
        what = "rows came where the source should say something"
        raise malformed(what)
    found: bytes = chunk.app_metadata.to_pybytes()
    return found


def _age_s(timestamp: Micros) -> float:
    return max(0.0, (now() - timestamp) / 1_000_000)
