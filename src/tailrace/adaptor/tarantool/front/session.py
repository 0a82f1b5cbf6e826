"""A session: one Tarantool that is connected, from its greeting to its last acknowledgement.

JOIN, in the order that a replica can observe:
1. OK with the clock of the view.
2. The rows of the view: those that every instance has, the catalog, then the tables.
3. Registration, then OK with the clock at which it is done.
4. The messages since the view, the replica's own registration among them.
5. OK with the clock now.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tailrace.adaptor.tarantool import iproto
from tailrace.adaptor.tarantool.catalog import INDEXES, SPACES
from tailrace.adaptor.tarantool.front import rows
from tailrace.adaptor.tarantool.front.rows import Row
from tailrace.adaptor.tarantool.front.state import CATALOG, MASTER, FrontState
from tailrace.adaptor.tarantool.front.template import VERSION, system_rows
from tailrace.adaptor.tarantool.greeting import greet, scramble
from tailrace.adaptor.tarantool.holder import CLUSTER as MEMBERS
from tailrace.adaptor.tarantool.iproto import COMMIT, ERROR_BIT, PREFIX_BYTES, Ballot, Head, Key, Packet, Type
from tailrace.adaptor.tarantool.vclock import read_vclock
from tailrace.errors import TailraceError
from tailrace.log.watch import Watch
from tailrace.relay.request import Chunk, FinalRows, Finish, Join, Subscribe

if TYPE_CHECKING:
    from tailrace.message import NodeId
    from tailrace.relay.outgoing import Frame
    from tailrace.relay.service import Service
    from tailrace.relay.subscription import Subscription

REQUEST_BYTES_MAX: Final = 1 << 20
_SCHEMA: Final = 272
_NO_ACCESS: Final = 42
_WRONG_PASSWORD: Final = 47
_UNKNOWN_REQUEST: Final = 48
_UNSUPPORTED: Final = 5
_CODES: Final = {
    "relay.loading": 116,
    "relay.unknown_replica": 62,
    "relay.duplicate": 59,
    "relay.wrong_cluster": 63,
    "relay.self": 117,
    "relay.no_rights": _NO_ACCESS,
}
"""How Tarantool numbers our errors; all others are something that is not supported."""


class Refused(Exception):
    """What is answered with an error, and its number."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class Session:
    """`serve` until the peer is gone."""

    def __init__(
        self,
        peer: socket.socket,
        service: Service,
        state: FrontState,
        tokens: Mapping[str, str],
        heartbeat_s: float,
        stopping: threading.Event,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._peer = peer
        self._service = service
        self._state = state
        self._tokens = tokens
        self._heartbeat_s = heartbeat_s
        self._stopping = stopping
        self._note = note
        """Is told each stage, in its order."""
        self._salt = secrets.token_bytes(32)
        self._is_known = not tokens
        self._user = ""
        self._is_gone = threading.Event()
        self._sync = 0

    def serve(self) -> None:
        with suppress(OSError, TailraceError):  # a peer that goes, or that says what cannot be, is let go
            self._peer.sendall(greet(VERSION, self._state.instance, self._salt))
            while not self._stopping.is_set() and (packet := self._request()) is not None:
                self._sync = int(packet.header.get(Head.SYNC) or 0)
                try:
                    self._answer(packet)
                except (Refused, TailraceError) as error:
                    self._refuse(error)

    def _refuse(self, error: Refused | TailraceError) -> None:
        code = error.code if isinstance(error, Refused) else _CODES.get(error.code, _UNSUPPORTED)
        self._note(f"error {code}")
        self._send(ERROR_BIT | code, {Key.ERROR_TEXT: str(error)})

    def _answer(self, packet: Packet) -> None:
        match packet.type:
            case Type.VOTE:
                self._vote()
            case Type.PING:
                self._send(Type.OK, {})
            case Type.AUTH:
                self._authenticate(packet)
            case Type.JOIN:
                self._check_known()
                self._join(packet)
            case Type.SUBSCRIBE:
                self._check_known()
                self._subscribe(packet)
            case Type.FETCH_SNAPSHOT:
                raise Refused(_UNSUPPORTED, "anonymous replicas are not served: set replication_anon = false")
            case _:
                raise Refused(_UNKNOWN_REQUEST, f"a request of type {packet.type} is not served here")

    def _vote(self) -> None:
        ballot = self._service.vote()
        told = {
            int(Ballot.IS_READ_ONLY): False,
            int(Ballot.IS_LOADING): ballot.is_loading,
            int(Ballot.VCLOCK): self._state.numbered(ballot.vclock),
            int(Ballot.GC_VCLOCK): {},
        }
        self._send(Type.OK, {Key.BALLOT: told})

    def _authenticate(self, packet: Packet) -> None:
        user, proof = str(packet.body.get(Key.USER)), packet.body.get(Key.TUPLE)
        token = self._tokens.get(user)
        given = proof[1] if isinstance(proof, list) and len(proof) == 2 else b""
        given = given.encode("utf-8", "surrogateescape") if isinstance(given, str) else bytes(given)
        if token is None or not hmac.compare_digest(scramble(token, self._salt[:20]), given):
            raise Refused(_WRONG_PASSWORD, f"Incorrect password supplied for user '{user[:40]}'")
        self._is_known, self._user = True, user
        self._send(Type.OK, {})

    def _check_known(self) -> None:
        if not self._is_known:
            raise Refused(_NO_ACCESS, "Read access to universe '' is denied for user 'guest'")

    def _join(self, packet: Packet) -> None:
        node = self._state.enter(_uuid(packet))
        joined = self._service.join(Join(node=node), self._user)
        chunks = [Chunk(session=joined.session, chunk=number) for number in range(joined.chunks)]
        for chunk in chunks:
            for first in self._service.chunk(chunk):
                rows.layouts_of(first, self._state)
                break
        self._ok("start", self._state.numbered(joined.vclock))  # 1.
        self._send_snapshot(chunks)  # 2.
        registered = self._service.finish(Finish(session=joined.session))
        self._ok("stop", self._state.numbered(registered.vclock))  # 3.
        for group in self._service.final(FinalRows(session=joined.session)):  # 4.
            self._send_group(group)
        self._ok("current", self._state.numbered(self._service.vote().vclock))  # 5.

    def _send_snapshot(self, chunks: Iterable[Chunk]) -> None:
        count = 0
        for space, row in self._catalog():
            self._send(Type.INSERT, {Key.SPACE_ID: space, Key.TUPLE: row})
        for chunk in chunks:
            for frames in self._service.chunk(chunk):
                for space, row in rows.tuples_of(frames, self._state):
                    self._send(Type.INSERT, {Key.SPACE_ID: space, Key.TUPLE: row})
                    count += 1
        self._note(f"rows {count}")

    def _catalog(self) -> list[tuple[int, list[Any]]]:
        """The rows of all system spaces, space by space."""
        layouts = list(self._state.layouts.values())
        own: list[tuple[int, list[Any]]] = [
            (_SCHEMA, ["cluster", self._service.identity.cluster]),
            (_SCHEMA, ["max_id", max((layout.space for layout in layouts), default=511)]),
            (MEMBERS, [MASTER, self._state.instance]),
            *((SPACES, layout.space_row()) for layout in layouts),
            *((INDEXES, layout.index_row()) for layout in layouts),
        ]
        return sorted([*system_rows(), *own], key=lambda each: each[0])

    def _subscribe(self, packet: Packet) -> None:
        if packet.body.get(Key.ANONYMOUS):
            raise Refused(_UNSUPPORTED, "anonymous replicas are not served: set replication_anon = false")
        node = self._state.enter(_uuid(packet))
        has = read_vclock(packet.body.get(Key.VCLOCK) or {})
        request = Subscribe(
            node=node, cluster=self._service.identity.cluster or "", vclock=self._state.clock(has, node)
        )
        with (
            self._service.subscribe(request, self._user, heartbeat_s=self._heartbeat_s) as (answer, subscription),
            Watch(self._directory) as watch,
        ):
            body: dict[int, Any] = {Key.VCLOCK: self._state.numbered(answer.vclock), Key.CLUSTER: answer.cluster}
            self._send(Type.OK, body, {Head.REPLICA_ID: MASTER})
            self._note("subscribed")
            reading = threading.Thread(target=self._read_acks, args=(subscription, node), daemon=True)
            reading.start()
            try:
                self._follow(subscription, watch, has.get(CATALOG, 0))
            except (Refused, TailraceError) as error:
                self._refuse(error)
            finally:
                with suppress(OSError):
                    self._peer.shutdown(socket.SHUT_RDWR)
                reading.join()

    def _follow(self, subscription: Subscription, watch: Watch, catalog: int) -> None:
        self._heartbeat()
        beaten_s = time.monotonic()
        while not self._stopping.is_set() and not self._is_gone.is_set():
            for group in subscription.groups():
                catalog = self._send_group(group, catalog)
                beaten_s = time.monotonic()
            subscription.check_alive()
            if time.monotonic() - beaten_s >= self._heartbeat_s:
                self._heartbeat()
                beaten_s = time.monotonic()
            watch.wait(self._heartbeat_s / 4)

    def _send_group(self, group: list[Frame], catalog: int | None = None) -> int:
        """One transaction; before it, what it needs in the catalog. Gives how much of that was sent."""
        if rows.waits_for_decision(group):
            raise Refused(_UNSUPPORTED, "synchronous transactions are not served to Tarantools")
        known = self._state.catalog_lsn if catalog is None else catalog
        made = rows.rows_of(group, self._state)
        for row in (*rows.catalog_rows(self._state, known), *rows.moved_rows(group, self._state)):
            self._send_row(row)
        for at, row in enumerate(made):
            self._send_row(row, made[0].lsn if len(made) > 1 else None, is_last=at == len(made) - 1)
        self._note(f"transaction {len(made)}")
        return self._state.catalog_lsn

    def _send_row(self, row: Row, first: int | None = None, *, is_last: bool = False) -> None:
        header: dict[int, Any] = {Head.REPLICA_ID: row.replica, Head.LSN: row.lsn, Head.TIMESTAMP: row.time_s}
        if first is not None:
            header[Head.TSN] = row.lsn - first
            header |= {int(Head.FLAGS): COMMIT} if is_last else {}
        self._send(row.type, row.body, header)

    def _heartbeat(self) -> None:
        self._send(Type.OK, None, {Head.REPLICA_ID: MASTER, Head.TIMESTAMP: time.time()})

    def _read_acks(self, subscription: Subscription, node: NodeId) -> None:
        """What the replica has, as it says so, until it is gone, or says what cannot be."""
        with suppress(OSError, TailraceError):
            while (packet := self._request()) is not None:
                subscription.acknowledge(self._state.clock(read_vclock(packet.body.get(Key.VCLOCK) or {}), node))
                self._note("ack")
        self._is_gone.set()

    def _ok(self, stage: str, vclock: Mapping[int, int]) -> None:
        self._send(Type.OK, {Key.VCLOCK: dict(vclock)})
        self._note(f"ok {stage}")

    def _send(self, type_: int, body: Mapping[int, Any] | None, more: Mapping[int, Any] | None = None) -> None:
        header: dict[int, Any] = {Head.TYPE: int(type_)}
        if self._sync:
            header[Head.SYNC] = self._sync
        header |= more or {}
        self._peer.sendall(iproto.encode(header, body))

    def _request(self) -> Packet | None:
        prefix = self._exactly(PREFIX_BYTES)
        if prefix is None:
            return None
        length = iproto.packet_bytes(prefix)
        if length > REQUEST_BYTES_MAX:
            raise iproto.malformed(f"a request has {length} bytes, {REQUEST_BYTES_MAX} are allowed")
        content = self._exactly(length)
        return None if content is None else iproto.decode(content)

    def _exactly(self, count: int) -> bytes | None:
        received = b""
        while len(received) < count:
            more = self._peer.recv(count - len(received))
            if not more:
                return None
            received += more
        return received

    @property
    def _directory(self) -> str:
        return self._service.journal.log.directory


def _uuid(packet: Packet) -> str:
    found = packet.body.get(Key.INSTANCE)
    if not isinstance(found, str) or len(found) != 36:
        raise Refused(20, "Invalid MsgPack - instance uuid")
    return found
