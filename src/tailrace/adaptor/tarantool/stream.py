"""The stream of changes: rows in whole transactions, from a place in the changes to another."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from tailrace.adaptor.tarantool import iproto
from tailrace.adaptor.tarantool.connection import Connection, version_id
from tailrace.adaptor.tarantool.frames import walk
from tailrace.adaptor.tarantool.iproto import COMMIT, Head, Key, Packet, Type
from tailrace.adaptor.tarantool.vclock import Vclock, covers, text
from tailrace.errors import TailraceError

VERSION: Final = (2, 6, 0)
"""As what we follow: later versions then send nothing that this one did not know."""
_DATA: Final = (Type.INSERT, Type.REPLACE, Type.UPDATE, Type.DELETE, Type.UPSERT)
_PASSED: Final = (Type.NOP, Type.RAFT, Type.PROMOTE, Type.DEMOTE, Type.CONFIRM)
_ACK_EVERY_S: Final = 0.5
_HEARTBEATS_MAX: Final = 10
"""So often a server says that it has nothing to send, although there are changes, before it is believed: a log that is
gone is only missed when the next one begins."""


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the server's log."""

    type: Type
    replica: int
    lsn: int
    time_us: int
    body: Mapping[int, Any]


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that were made together."""

    name: str
    changes: tuple[Change, ...]
    replica: int
    last: int
    """The lsn of its last row, be it one without data."""


def subscribe(connection: Connection, cluster: str, vclock: Vclock, replica: str = "") -> None:
    """Ask for the changes after a place, as the registered `replica`, or as one that nobody knows."""
    body: dict[int, Any] = {
        Key.CLUSTER: cluster,
        Key.INSTANCE: replica or str(uuid.uuid4()),
        Key.VCLOCK: dict(vclock),
        Key.SERVER_VERSION: version_id(VERSION),
        Key.ANONYMOUS: not replica,
    }
    told = connection.ask(Type.SUBSCRIBE, body).body.get(Key.CLUSTER)
    if told != cluster:
        raise connection.server.lost(f"the server is of replica set {told} now, and was of {cluster}")


class Stream:
    """The changes that come through a connection on which they were asked for. While it is open what is safe is
    acknowledged again and again: a server lets go of a replica of which it hears nothing, however busy that is."""

    def __init__(self, connection: Connection, vclock: Vclock, safe: Vclock) -> None:
        self.vclock = dict(vclock)
        """As of where the last transaction is that was given."""
        self._connection = connection
        self._safe = dict(safe)
        """What may be acknowledged (I2)."""
        self._rows = self._received()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._acknowledge, name="tailrace-acks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def transactions(self, upto: Vclock) -> Iterator[Transaction]:
        """Whole transactions until this place is reached."""
        open_rows: list[Packet] = []
        while not covers(self.vclock, upto):
            open_rows.append(next(self._rows))
            if not _is_last(open_rows[-1]):
                continue
            done = _transaction(self._connection, open_rows)
            open_rows = []
            if self.vclock.get(done.replica, 0) < done.last:
                self.vclock[done.replica] = done.last
                yield done

    def _received(self) -> Iterator[Packet]:
        """Rows as they come, for ever."""
        server = self._connection.server
        data = b""
        heartbeats = 0
        while True:
            data += self._connection.receive()
            starts, end = walk(data)
            for packet in iproto.decode_all(data, starts, end):
                if packet.is_error:
                    raise server.error(packet)
                if packet.header.get(Head.LSN) is None:
                    heartbeats += 1
                    continue
                heartbeats = 0
                yield packet
            data = data[end:]
            if heartbeats > _HEARTBEATS_MAX:
                raise server.lost(f"it has changes after {text(self.vclock)}, but not their log")

    def _acknowledge(self) -> None:
        with suppress(TailraceError):  # whoever receives will notice, too
            while not self._closing.wait(_ACK_EVERY_S):
                self._connection.acknowledge(self._safe)


def _is_last(packet: Packet) -> bool:
    """Whether a transaction ends here. One of a single row says nothing of transactions."""
    return packet.header.get(Head.TSN) is None or bool(int(packet.header.get(Head.FLAGS) or 0) & COMMIT)


def _transaction(connection: Connection, packets: list[Packet]) -> Transaction:
    first, last = packets[0].header, packets[-1].header
    replica, lsn = int(first.get(Head.REPLICA_ID) or 0), int(first[Head.LSN])
    if int(first.get(Head.TSN) or 0) != 0:
        raise connection.server.lost(f"lsn {lsn} of instance {replica} is in the middle of a transaction")
    for packet in packets:
        if int(packet.header[Head.LSN]) - int(packet.header.get(Head.TSN) or 0) != lsn:
            raise iproto.malformed(f"transaction {replica}:{lsn} has a row of another one")
    changes = tuple(_change(connection, packet) for packet in packets if packet.type not in _PASSED)
    return Transaction(f"{replica}:{lsn}", changes, replica, int(last[Head.LSN]))


def _change(connection: Connection, packet: Packet) -> Change:
    if packet.type not in _DATA:
        why = f"its log has a row of type {packet.type}, whose meaning is not known here"
        raise connection.server.unsupported(why, "use a newer release of tailrace for this server")
    header = packet.header
    moment = float(header.get(Head.TIMESTAMP) or 0.0)
    replica = int(header.get(Head.REPLICA_ID) or 0)
    return Change(Type(packet.type), replica, int(header[Head.LSN]), max(0, int(moment * 1_000_000)), packet.body)
