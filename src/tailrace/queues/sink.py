"""The sink: what comes from other sites, exactly once into the receive queue of its client.

How far it is with a source is a message in the same group as what has come: both are there or neither is. A snapshot is
staged as it comes, and published in one step.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold
from tailrace.log.batch import Batch, batches_of
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.log.staging import Staged
from tailrace.message import Message, Offset, Op, now
from tailrace.namespace import RESERVED
from tailrace.queues.discovery import LISTENER, listener_consumer, parse_listener
from tailrace.queues.entries import NO_ROWS, SHIPPED, Kind, received_batch
from tailrace.queues.names import progress_namespace, receive_queue
from tailrace.queues.wire import Phase, Session, Shipment, Standing

CONSUMER: Final = "_queues"
"""Keeps the last word about each source from being removed."""
QUEUES_MAX: Final = 1000
_PROGRESS: Final = f"{RESERVED}queue.LRQ_Recv_"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sink is with a source, as it stands in the log."""

    client: str
    source: str
    log: str
    position: int
    """All entries before this place of the source's log are here."""
    applied: str | None = None
    """The last snapshot that is here."""

    def batches(self) -> Iterator[Batch]:
        namespace = progress_namespace(self.client, self.source)
        return batches_of([Message(Op.COMMAND, now(), namespace, {"json": json.dumps(asdict(self))})])


@dataclass(slots=True)
class Staging:
    """A snapshot that comes."""

    request: str
    base: int
    position: int
    """Up to here of the source's log it has come."""
    parts: list[Staged] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(part.messages for part in self.parts)


class Sink:
    """Of one site. Any thread may call."""

    def __init__(self, site: str, log: CommitLog, directory: str, hold: Hold | None = None) -> None:
        """What is staged is noted in files of a directory. `hold` says how much is kept for a client that does not
        listen yet."""
        self.site = site
        self._log = log
        self._directory = directory
        self._turn = threading.Lock()
        self._turns: dict[tuple[str, str], threading.Lock] = {}
        self._progress = {(each.client, each.source): each for each in _load(LogReader(log.directory))}
        self._staging: dict[tuple[str, str], Staging] = {}
        self._kept_for: set[str] = set()
        os.makedirs(directory, exist_ok=True)
        for key, progress in self._progress.items():
            self._turns[key] = threading.Lock()
            self._restore(key, progress)
        self._hold = hold
        self._consumers = Consumers(log.directory)
        self._consumers.register(CONSUMER, exist_ok=True)
        self._holding = ConsumerSession(self._consumers, CONSUMER)

    def close(self) -> None:
        self._holding.close()

    def renew(self) -> None:
        """Say again how far it is with everybody, so that the log need not be kept for what was said before."""
        with self._turn:
            begin = self._consumers.view.head().next_offset
            said = list(self._progress.values())
        for progress in said:
            with self._turn_of((progress.client, progress.source)):
                current = self._progress[progress.client, progress.source]
                self._log.append(current.batches())
        if begin:
            self._holding.commit(begin - 1)
            self._holding.flush()

    def negotiate(self, session: Session) -> Standing:
        """What the sink has."""
        self._check_sink(session)
        key = (session.client, session.source)
        turn = self._turn_of(key)
        if not turn.acquire(blocking=False):
            return Standing(is_applying=True)
        try:
            progress, staging = self._progress.get(key), self._staging.get(key)
            return Standing(
                log=None if progress is None else progress.log,
                position=-1 if progress is None else progress.position,
                applied=None if progress is None else progress.applied,
                staged=None if staging is None else staging.request,
                staged_position=-1 if staging is None else staging.position,
            )
        finally:
            turn.release()

    def receive(self, shipment: Shipment, rows: pa.RecordBatch) -> Standing:
        """Take what is new of a shipment; says how far the sink is then. Durable when this returns."""
        session = shipment.session
        self._check_sink(session)
        key = (session.client, session.source)
        with self._turn_of(key):
            match shipment.phase:
                case Phase.ENTRIES:
                    self._take_entries(key, shipment, rows)
                case Phase.SNAPSHOT:
                    self._stage(key, shipment, rows)
                case Phase.SNAPSHOT_END:
                    self._apply(key, shipment)
        return self.negotiate(session)

    def status(self) -> list[dict[str, Any]]:
        """Of every source, as plain JSON."""
        told = []
        for (client, source), progress in sorted(self._progress.items()):
            staging = self._staging.get((client, source))
            told.append(
                {
                    "client": client,
                    "source": source,
                    "queue": receive_queue(client, source),
                    "position": progress.position,
                    "snapshot": progress.applied,
                    "staged": None if staging is None else {"request": staging.request, "messages": staging.messages},
                    "is_consistent": staging is None and progress.position >= 0,
                }
            )
        return told

    def _take_entries(self, key: tuple[str, str], shipment: Shipment, rows: pa.RecordBatch) -> None:
        client, source = key
        self._keep_for(client)
        known = self._progress.get(key) or Progress(client, source, shipment.session.log, -1)
        if known.log != shipment.session.log and shipment.previous < 0:
            known = Progress(client, source, shipment.session.log, -1)  # another log, from its beginning
        if known.log != shipment.session.log:
            what = f"{client} of {source} came from another log until now"
            raise TailraceError("queue.other_log", what, hint="it takes a new snapshot by itself")
        if shipment.previous > known.position:
            what = f"entries before {shipment.previous} are missing: {client} of {source} is at {known.position}"
            raise TailraceError("queue.gap", what, hint="it is negotiated again")
        if shipment.current <= known.position:
            return  # it has come before
        news = _from(rows, known.position)
        progress = replace(known, position=shipment.current)
        batches = [received_batch(client, source, Kind.LOG_ENTRY, news)] if news.num_rows else []
        self._log.append([*batches, *progress.batches()])
        self._progress[key] = progress

    def _stage(self, key: tuple[str, str], shipment: Shipment, rows: pa.RecordBatch) -> None:
        client, source = key
        request = _request(shipment)
        known = self._progress.get(key)
        if known is not None and known.applied == request:
            return  # all of it is here
        staging = self._staging.get(key)
        if staging is None or staging.request != request:
            self._discard(key)
            staging = Staging(request, shipment.base, shipment.base)
        if shipment.previous > staging.position:
            what = f"snapshot {request} of {client} of {source} is at {staging.position}, not at {shipment.previous}"
            raise TailraceError("queue.gap", what, hint="it is negotiated again")
        self._keep_for(client)
        if known is None:
            unknown = Progress(client, source, shipment.session.log, -1)
            self._log.append(unknown.batches())
            self._progress[key] = unknown
        if shipment.current > staging.position:
            news = _from(rows, staging.position)
            if news.num_rows:
                staged = self._staged(key, request, [received_batch(client, source, Kind.SNAPSHOT, news, request)])
                staging.parts.append(staged)
            staging.position = shipment.current
        self._note(key, staging)

    def _apply(self, key: tuple[str, str], shipment: Shipment) -> None:
        """Everything of a snapshot at once, with its end, and where entries go on."""
        client, source = key
        request = _request(shipment)
        known = self._progress.get(key)
        if known is not None and known.applied == request:
            return  # it was applied before
        self._stage(key, shipment, NO_ROWS)
        staging = self._staging[key]
        progress = Progress(client, source, shipment.session.log, staging.base, request)
        end = pa.RecordBatch.from_pylist(
            [{"id": shipment.current, "transaction": request, "timestamp": int(now()), "payload": b""}], schema=SHIPPED
        )
        last = received_batch(client, source, Kind.SNAPSHOT_END, end, request)
        closing = self._staged(key, request, [last, *progress.batches()])
        try:
            self._log.publish(_batch_id(key, request), [*staging.parts, closing])
        except TailraceError as error:
            if error.code.startswith("log.staging"):
                self._discard(key)  # some of it is gone: it has to come again
            raise
        self._progress[key] = progress
        self._forget(key)

    def _keep_for(self, client: str) -> None:
        """What comes for a client is kept until somebody listens, under the name that a listener has unless said."""
        if client in self._kept_for:
            return
        if not any((found := parse_listener(name)) and found[0] == client for name in self._consumers.names()):
            self._consumers.register(listener_consumer(client, LISTENER), hold=self._hold)
        self._kept_for.add(client)

    def _staged(self, key: tuple[str, str], request: str, batches: list[Batch]) -> Staged:
        writer = self._log.staging.writer(_batch_id(key, request), "queue")
        with writer:
            for batch in batches:
                writer.add(batch)
            return writer.close()

    def _note(self, key: tuple[str, str], staging: Staging) -> None:
        path = self._path(key)
        with disk_errors("noting what has come of a snapshot", path):
            Disk().replace_file(path, json.dumps(asdict(staging)).encode())
        self._staging[key] = staging

    def _restore(self, key: tuple[str, str], progress: Progress) -> None:
        try:
            with open(self._path(key), encoding="utf-8") as stream:
                told: dict[str, Any] = json.load(stream)
        except FileNotFoundError:
            return
        parts = [Staged(**each) for each in told.pop("parts")]
        staging = Staging(**told, parts=parts)
        if progress.applied == staging.request:
            self._forget(key)
        else:
            self._staging[key] = staging

    def _discard(self, key: tuple[str, str]) -> None:
        """What has come of another snapshot is not wanted any more."""
        staging = self._staging.get(key)
        if staging is not None:
            self._log.staging.discard(_batch_id(key, staging.request))
        self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        self._staging.pop(key, None)
        with suppress(FileNotFoundError):
            os.remove(self._path(key))

    def _path(self, key: tuple[str, str]) -> str:
        return os.path.join(self._directory, f"{receive_queue(*key)}.json")

    def _turn_of(self, key: tuple[str, str]) -> threading.Lock:
        with self._turn:
            if key not in self._turns:
                if len(self._turns) >= QUEUES_MAX:
                    what = f"there are {QUEUES_MAX} receive queues already"
                    raise TailraceError("queue.too_many", what, hint="remove some, or send as fewer clients")
                self._turns[key] = threading.Lock()
            return self._turns[key]

    def _check_sink(self, session: Session) -> None:
        if session.sink != self.site:
            what = f"this is site {self.site}, and {session.sink} was meant"
            raise TailraceError("queue.other_site", what, hint="correct the address of the destination")


def _load(reader: LogReader) -> Iterator[Progress]:
    for namespace, offset in reader.view.last_offsets().items():
        if namespace.startswith(_PROGRESS):
            for entry in reader.entries(Offset(offset), Offset(offset + 1)):
                yield Progress(**json.loads((entry.message.data or {})["json"]))


def _from(rows: pa.RecordBatch, position: int) -> pa.RecordBatch:
    return rows.filter(pc.greater_equal(rows.column("id"), pa.scalar(position, pa.int64())))


def _request(shipment: Shipment) -> str:
    if shipment.request is None:
        raise TailraceError("relay.malformed", "a snapshot has no request", hint="use the same release at both ends")
    return shipment.request


def _batch_id(key: tuple[str, str], request: str) -> str:
    return f"{receive_queue(*key)}@{request}"
