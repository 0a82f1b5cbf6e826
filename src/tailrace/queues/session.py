"""A session: what one client sends to one site, from this site's log into the receive queue there.

    negotiate → (snapshot) → entries, and back whenever something fails

Only frames with the session's own tags are read. Whole groups go, in the order in which they were sent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold
from tailrace.log.batch import decode_body
from tailrace.log.consumers import Consumers
from tailrace.log.consumers import State as ConsumerState
from tailrace.log.identity import identity_of
from tailrace.log.session import ConsumerSession
from tailrace.message import now
from tailrace.queues import wire
from tailrace.queues.backlog import Backlog, Remaining
from tailrace.queues.entries import NO_ROWS, Kind, in_order, placed_at, shipped_rows
from tailrace.queues.memory import Memory
from tailrace.queues.names import client_tag, entry_tag, snapshot_tag
from tailrace.queues.negotiation import Course, Source, decide
from tailrace.queues.wire import SHIP_BYTES, Call, Phase, Shipment, Standing
from tailrace.relay.flight import options, our_errors

if TYPE_CHECKING:
    from tailrace.queues.requests import Request, Requests
    from tailrace.queues.tags import Tags
    from tailrace.relay.applier import Source as Peer

_LOOK_S: Final = 0.25
_BACK_OFF_S: Final = 0.5
_BACK_OFF_MAX_S: Final = 60.0
_ANSWER_S: Final = 60.0
_APPLY_S: Final = 3600.0
"""A snapshot is put in place before it is acknowledged."""
_NOTE_S: Final = 1.0


class State(StrEnum):
    """What a session does."""

    CONNECT = "connect"
    WAIT = "wait"
    """The sink puts a snapshot in place."""
    SNAPSHOT = "snapshot"
    ENTRIES = "log entries"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Progress:
    """How a session is doing."""

    state: State = State.CONNECT
    position: int = -1
    """The sink has everything before this place of the log; -1 when it is not known."""
    request: str | None = None
    """The snapshot that is sent, or was sent last."""
    is_forced: bool = False
    completed_us: int | None = None
    """When the last snapshot was in place."""
    error: TailraceError | None = None
    failures: int = 0
    """In a row."""
    shipped_entries: int = 0
    shipped_bytes: int = 0
    read_bytes: int = 0
    """Of the log, since the start."""


class Session:
    """`run` is for one thread; everything else for any."""

    def __init__(
        self,
        site: str,
        client: str,
        peer: Peer,
        tags: Tags,
        requests: Requests,
        directory: str,
        *,
        takes_snapshots: bool = True,
        hold: Hold | None = None,
    ) -> None:
        """From one site to the one that `peer` names. What it must remember is in a file of a directory."""
        self.client = client
        self.sink = peer.name
        self.woken = threading.Event()
        """Set when there may be something to send."""
        self._peer = peer
        self._tags = tags
        self._requests = requests
        self.takes_snapshots = takes_snapshots
        self._log = identity_of(tags.directory)
        self._session = wire.Session(client=client, source=site, sink=peer.name, log=self._log)
        self._path = os.path.join(directory, f"{client}@{peer.name}.json")
        self._noted_s = 0.0
        self._memory = self._noted = Memory.load(self._path).within(tags.end)
        self.progress = Progress(request=self._memory.request, completed_us=self._memory.completed_us)
        self.consumer = f"queue-{client}@{peer.name}"
        self._hold = hold
        self._consumers = Consumers(tags.directory)
        self._holding = self._held()
        start, seen = self._holding.resume_offset, self._memory.counted
        self._entries = Backlog(tags, entry_tag(self.sink), client_tag(client), start, seen=seen)
        self._snapshot: Backlog | None = None
        self._snapshot_position = 0

    def close(self) -> None:
        self.note()
        self._holding.close()

    def note(self) -> None:
        """Keep what was enqueued, as before something is removed from the log."""
        self.remaining()
        self.remaining_entries()
        last = max(self._memory.last_enqueued, self._entries.last)
        self._remember(last_enqueued=last, counted=max(self._memory.counted, self._entries.counted))
        self._noted_s = time.monotonic()
        if self._memory != self._noted:
            self._memory.save(self._path)
            self._noted = self._memory

    def run(self, stopping: Callable[[], bool]) -> None:
        """Until it is stopped."""
        while not stopping():
            try:
                with self._peer.client() as client:
                    self._converse(client, stopping)
                self._tell(error=None)
            except TailraceError as error:
                self._fail(error, stopping)
            except Exception as error:  # noqa: BLE001  such as a file of the log that was removed while it was read
                what = f"{self.client} to {self.sink}: {error!r}"
                self._fail(TailraceError("queue.failed", what, hint="report it"), stopping)
        self._tell(state=State.STOPPED)

    def _fail(self, error: TailraceError, stopping: Callable[[], bool]) -> None:
        failures = self.progress.failures + 1
        self._tell(state=State.CONNECT, error=error, failures=failures)
        self._pause(min(_BACK_OFF_MAX_S, _BACK_OFF_S * 2 ** min(failures - 1, 10)), stopping)

    @property
    def lost_before(self) -> int | None:
        """A sink that gets no snapshots lacks messages before this place, which are gone."""
        return None if self._memory.lost < 0 else self._memory.lost

    def remaining(self) -> Remaining:
        """What is in the log for the sink and not there: of the snapshot until that is over, of entries otherwise."""
        snapshot = self._snapshot
        return self.remaining_entries() if snapshot is None else snapshot.count(self._snapshot_position)

    def remaining_entries(self) -> Remaining:
        return self._entries.count(max(self.progress.position, self._holding.resume_offset))

    def following_entries(self) -> int:
        """How many entries follow the snapshot that is sent now."""
        return 0 if self._snapshot is None else self.remaining_entries().entries

    def _held(self) -> ConsumerSession:
        """The log is kept for the sink, up to the cap. One that was past it begins again: entries may be missing then,
        which negotiation finds out."""
        known = self.consumer in self._consumers.names()
        if known and self._consumers.get(self.consumer).state is ConsumerState.INVALIDATED:
            self._consumers.delete(self.consumer, "it was past its cap, and goes on with what there is")
        self._consumers.register(self.consumer, hold=self._hold, exist_ok=True)
        return ConsumerSession(self._consumers, self.consumer)

    def _converse(self, client: fl.FlightClient, stopping: Callable[[], bool]) -> None:
        """Negotiate, and do what that says until it is over."""
        if self._consumers.get(self.consumer).state is ConsumerState.INVALIDATED:
            self._holding.close()
            self._holding = self._held()
        standing = self._ask(client, Call.NEGOTIATE, self._session.packed(), _ANSWER_S)
        self._tell(error=None)
        self._note_applied(standing)
        match decide(self._source(), standing):
            case Course.WAIT:
                self._tell(state=State.WAIT)
                self._pause(_LOOK_S, stopping)
            case Course.SNAPSHOT:
                self._tell(state=State.SNAPSHOT, is_forced=self._is_forced)
                self._send_snapshot(client, standing, stopping)
            case Course.RESUME:
                self._snapshot = None
                position = standing.position if standing.log == self._log else -1
                self._note_lost(position)
                self._tell(state=State.ENTRIES, position=position)
                self._send_entries(client, position, stopping)

    def _source(self) -> Source:
        self.note()
        return Source(
            log=self._log,
            acknowledged=self._memory.acknowledged,
            last_enqueued=self._memory.last_enqueued,
            first_kept=self._tags.first,
            end=self._tags.end,
            takes_snapshots=self.takes_snapshots,
            is_forced=self._is_forced,
        )

    @property
    def _is_forced(self) -> bool:
        return self._requests.is_forced(self.client, self.sink)

    def _send_entries(self, client: fl.FlightClient, acknowledged: int, stopping: Callable[[], bool]) -> None:
        position = max(acknowledged, self._tags.first, 0)
        if acknowledged < 0:
            position = max(position, self._holding.resume_offset)
        while not stopping() and not (self._is_forced and self.takes_snapshots):
            self.woken.clear()
            rows, end = self._read(entry_tag(self.sink), position)
            if self._entries.is_missing(position):
                return  # the log was not kept for the sink while this was read
            if rows.num_rows:
                shipment = Shipment(session=self._session, phase=Phase.ENTRIES, previous=acknowledged, current=end)
                standing = self._ship_or_force(client, shipment, rows)
                acknowledged = max(acknowledged, standing.position)
                self._remember(acknowledged=acknowledged)
                self._tell(position=acknowledged, failures=0, error=None)
                if acknowledged < end:
                    return  # the sink has another opinion
            if end > position:
                position = end
                self._holding.commit(position - 1)
                self._note_now_and_then()
            if not rows.num_rows:
                self._tell(failures=0)  # the sink has everything
                self.woken.wait(_LOOK_S)

    def _send_snapshot(self, client: fl.FlightClient, standing: Standing, stopping: Callable[[], bool]) -> None:
        """As its provider supplies it. A provider that begins again makes the sink forget what it had got."""
        request = self._request(stopping)
        if request is None:
            return
        attempt, position = None, request.base
        if standing.staged is not None and standing.staged.startswith(f"{request.id}."):
            attempt, position = standing.staged, standing.staged_position
        self._snapshot = Backlog(self._tags, snapshot_tag(self.sink), client_tag(self.client), request.base)
        self._snapshot_position = position
        self._tell(request=request.id)
        if request.base > 0:
            self._holding.commit(request.base - 1)  # what was before is in the snapshot
        while not stopping():
            if request not in self._requests.open(self.client) or self.sink not in request.sites:
                return  # another one is wanted
            self.woken.clear()
            end = position
            for attempt_, kind, rows, end in self._read_snapshot(request, position):
                if attempt_ != attempt:
                    attempt, position = attempt_, request.base
                if self._snapshot.is_missing(position):
                    break
                self._ship_snapshot(client, request, attempt_, kind, position, end, rows)
                position = self._snapshot_position = end
                if kind is Kind.SNAPSHOT_END:
                    self._complete(request)
                    return
            if self._snapshot.is_missing(position):
                self._requests.give_up(self.client, self.sink, request.id)
                return  # the log was not kept for it: another one is needed
            if end == position:
                self.woken.wait(_LOOK_S)

    def _request(self, stopping: Callable[[], bool]) -> Request | None:
        """The one that is for the sink; None when it is stopped before."""
        while not stopping():
            found = self._requests.need(self.client, self.sink)
            if found is not None:
                return found
            self._pause(_LOOK_S, stopping)
        return None

    def _ship_snapshot(
        self,
        client: fl.FlightClient,
        request: Request,
        attempt: str,
        kind: Kind,
        position: int,
        end: int,
        rows: pa.RecordBatch,
    ) -> None:
        is_end = kind is Kind.SNAPSHOT_END
        shipment = Shipment(
            session=self._session,
            phase=Phase.SNAPSHOT_END if is_end else Phase.SNAPSHOT,
            previous=position,
            current=end,
            request=attempt,
            base=request.base,
        )
        self._ship(client, shipment, NO_ROWS if is_end else rows)
        self._tell(error=None)

    def _note_applied(self, standing: Standing) -> None:
        """The answer that a snapshot is in place may have been lost."""
        found = next((each for each in self._requests.open(self.client) if self.sink in each.sites), None)
        if found is not None and standing.applied is not None and standing.applied.startswith(f"{found.id}."):
            self._complete(found)

    def _complete(self, request: Request) -> None:
        at_us = int(now())
        self._remember(acknowledged=request.base, request=request.id, completed_us=at_us)
        self._requests.done(self.client, self.sink, request.id)
        self._snapshot = None
        self._tell(position=request.base, completed_us=at_us, failures=0)
        self.note()

    def _read(self, tag: str, start: int) -> tuple[pa.RecordBatch, int]:
        """Some rows with a tag, those of whole groups, in the order in which they were sent; and where that ends."""
        end: int = self._tags.end
        found: list[pa.RecordBatch] = []
        size, last = 0, start
        cut: int | None = None
        for frame in self._tags.frames(tag, client_tag(self.client), start, end):
            if size >= SHIP_BYTES:
                cut = self._tags.group_end(last) if cut is None else cut
                if frame.head.offset >= cut:
                    end = cut
                    break
            found.append(shipped_rows(decode_body(frame.body())))
            size += frame.head.body_bytes
            last = frame.head.offset
        self._tell(read_bytes=self.progress.read_bytes + size)
        return in_order(found), end

    def _read_snapshot(self, request: Request, start: int) -> Iterator[tuple[str, Kind, pa.RecordBatch, int]]:
        """What was supplied for a request behind a place, frame by frame: by which attempt, and where it ends."""
        end = self._tags.end
        for frame in self._tags.frames(snapshot_tag(self.sink), client_tag(self.client), start, end):
            stored = decode_body(frame.body())
            self._tell(read_bytes=self.progress.read_bytes + frame.head.body_bytes)
            kinds: Any = stored.column("data")
            attempt, kind = stored.column("tx")[0].as_py(), Kind(kinds.field("kind")[0].as_py())
            if attempt.startswith(f"{request.id}."):
                yield attempt, kind, placed_at(frame.head.offset, shipped_rows(stored)), frame.head.end

    def _ship_or_force(self, client: fl.FlightClient, shipment: Shipment, rows: pa.RecordBatch) -> Standing:
        """What is too large to be sent is in the next snapshot."""
        try:
            return self._ship(client, shipment, rows)
        except TailraceError as error:
            if error.code == "queue.too_large" and self.takes_snapshots:
                self._requests.force(self.client, self.sink)
            raise

    def _ship(self, client: fl.FlightClient, shipment: Shipment, rows: pa.RecordBatch) -> Standing:
        timeout_s = _APPLY_S if shipment.phase is Phase.SNAPSHOT_END else _ANSWER_S
        standing = self._ask(client, Call.SHIP, wire.pack(shipment, rows), timeout_s)
        self._tell(
            shipped_entries=self.progress.shipped_entries + rows.num_rows,
            shipped_bytes=self.progress.shipped_bytes + rows.nbytes,
        )
        return standing

    def _ask(self, client: fl.FlightClient, call: Call, body: bytes, timeout_s: float) -> Standing:
        with our_errors():
            (answer,) = client.do_action(fl.Action(call, body), options(self._peer.token, timeout_s))
            return Standing.read(answer.body.to_pybytes())

    def _pause(self, seconds: float, stopping: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + seconds
        while not stopping() and time.monotonic() < ends_s:
            time.sleep(min(_LOOK_S, max(0.0, ends_s - time.monotonic())))

    def _note_lost(self, position: int) -> None:
        """A sink that gets no snapshots has to do without what is gone."""
        if not self.takes_snapshots and self._entries.is_missing(max(position, 0)):
            self._remember(lost=self._tags.first)

    def _note_now_and_then(self) -> None:
        if time.monotonic() - self._noted_s >= _NOTE_S:
            self.note()

    def _remember(self, **changes: Any) -> None:
        self._memory = replace(self._memory, **changes)

    def _tell(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)
