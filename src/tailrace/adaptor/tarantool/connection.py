"""A connection to a Tarantool: greeting, proof of who we are, requests and their answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from tailrace.adaptor.tarantool import iproto
from tailrace.adaptor.tarantool.greeting import GREETING_BYTES, Greeting, may_become_greeting, read_greeting, scramble
from tailrace.adaptor.tarantool.iproto import PREFIX_BYTES, Ballot, Head, Key, Packet, Type
from tailrace.adaptor.tarantool.server import VERSION_MIN, Server
from tailrace.adaptor.tarantool.vclock import Vclock, read_vclock

_CONNECT_S: Final = 10.0
_RECEIVE_BYTES: Final = 1 << 20
_WAKE_BYTES: Final = 1 << 18
"""Who waits for much is woken when so much has come: a server sends rows in pieces of a few hundred bytes."""
_WAKE_S: Final = 0.02
"""Or when nothing more came for so long."""
_ALL: Final = 2
"""The iterator that gives everything."""
_SCHEMA: Final = 272


class Connection:
    """One connection. What fails on it is told as an error of the source."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._sync = 0
        self._waiting = bytearray()
        with self.errors():
            self._socket = socket.create_connection((server.host, server.port), _CONNECT_S)
            try:
                self._socket.settimeout(server.silence_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.greeting = self._greeted()
                self._prove()
            except BaseException:
                self._socket.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Also wakes one who waits for something to come."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the network says, as ours."""
        try:
            yield
        except TimeoutError as error:
            raise self.server.unreachable(f"nothing was heard of it for {self.server.silence_s:g} s") from error
        except OSError as error:
            raise self.server.unreachable(error.strerror or str(error)) from error

    def ask(self, type_: Type, body: Mapping[int, Any] | None = None) -> Packet:
        """A request and its answer."""
        self.send(type_, body)
        return self.answer()

    def send(self, type_: Type, body: Mapping[int, Any] | None = None) -> None:
        self._sync += 1
        with self.errors():
            self._socket.sendall(iproto.encode({Head.TYPE: int(type_), Head.SYNC: self._sync}, body))

    def acknowledge(self, vclock: Mapping[int, int]) -> None:
        """Say what is safe with us (I2)."""
        with self.errors():
            self._socket.sendall(iproto.encode({Head.TYPE: int(Type.OK)}, {Key.VCLOCK: dict(vclock)}))

    def answer(self) -> Packet:
        """The next packet; a refusal is raised."""
        packet = self._packet()
        if packet.is_error:
            raise self.server.error(packet)
        return packet

    def receive(self) -> bytes:
        """Whatever has come, whole packets or not: what was received before is given first."""
        if self._waiting:
            given = bytes(self._waiting)
            self._waiting.clear()
            return given
        with self.errors():
            received = self._socket.recv(_RECEIVE_BYTES)
        if not received:
            raise self.server.unreachable("it closed the connection")
        return received

    def receive_much(self, bytes_max: int) -> bytes:
        """Like `receive`, for rows that come without a pause: as much as comes without one, up to a size."""
        received = bytearray(self.receive())
        with self.errors(), self._woken_late():
            while len(received) < bytes_max:
                try:
                    more = self._socket.recv(_RECEIVE_BYTES)
                except TimeoutError:
                    break
                if not more:  # what came before is to be looked at first
                    break
                received += more
        return bytes(received)

    @contextmanager
    def _woken_late(self) -> Iterator[None]:
        """Within it who receives waits for much, and not for long."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _WAKE_BYTES)
        self._socket.settimeout(_WAKE_S)
        try:
            yield
        finally:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            self._socket.settimeout(self.server.silence_s)

    def let_go(self, wait_s: float) -> None:
        """Receive for a while, and keep nothing of it."""
        give_up_s = time.monotonic() + wait_s
        with self.errors():
            while (left_s := give_up_s - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                with suppress(TimeoutError):
                    if not self._socket.recv(_RECEIVE_BYTES):
                        raise self.server.unreachable("it closed the connection")

    def select(
        self, space: int, key: list[Any], *, index: int = 0, iterator: int = _ALL, limit: int = 0xFFFFFFFF
    ) -> list[Any]:
        """Tuples of a space."""
        body: dict[int, Any] = {
            Key.SPACE_ID: space,
            Key.INDEX_ID: index,
            Key.LIMIT: limit,
            Key.OFFSET: 0,
            Key.ITERATOR: iterator,
            Key.KEY: key,
        }
        found = self.ask(Type.SELECT, body).body.get(Key.DATA)
        if not isinstance(found, list):
            raise iproto.malformed("an answer has no rows")
        return found

    def cluster(self) -> str:
        """The uuid of the replica set."""
        found = self.select(_SCHEMA, ["cluster"], iterator=0)
        if not found:
            raise iproto.malformed("the replica set has no uuid")
        return str(found[0][1])

    def vote(self) -> Vclock:
        """How far its own log is, at the end of a transaction."""
        ballot = self.ask(Type.VOTE).body.get(Key.BALLOT)
        if not isinstance(ballot, dict):
            raise iproto.malformed("an answer to a vote has no ballot")
        if self.greeting.version < (2, 6, 1) and ballot.get(Ballot.IS_LOADING):
            raise self.server.unreachable("it is still loading its data", "wait until it has")
        return read_vclock(ballot.get(Ballot.VCLOCK) or {})

    def _packet(self) -> Packet:
        self._fill(PREFIX_BYTES)
        length = iproto.packet_bytes(self._waiting)
        self._fill(PREFIX_BYTES + length)
        content = bytes(self._waiting[PREFIX_BYTES : PREFIX_BYTES + length])
        del self._waiting[: PREFIX_BYTES + length]
        return iproto.decode(content)

    def _fill(self, count: int) -> None:
        while len(self._waiting) < count:
            with self.errors():
                received = self._socket.recv(_RECEIVE_BYTES)
            if not received:
                raise self.server.unreachable("it closed the connection")
            self._waiting += received

    def _greeted(self) -> Greeting:
        said = b""
        give_up_s = time.monotonic() + _CONNECT_S
        self._socket.settimeout(_CONNECT_S)
        while len(said) < GREETING_BYTES and time.monotonic() < give_up_s:
            try:
                received = self._socket.recv(GREETING_BYTES - len(said))
            except TimeoutError:
                break
            if not received:
                break
            said += received
        self._socket.settimeout(self.server.silence_s)
        if may_become_greeting(said):
            hint = "see that the server runs, and that its `listen` says this address"
            raise self.server.unreachable("it closed the connection, or was silent, before it had greeted", hint)
        try:
            greeting = read_greeting(said)
        except ValueError as error:
            hint = "name the address that `listen` of box.cfg says"
            raise self.server.unsupported(str(error), hint) from None
        if greeting.version < VERSION_MIN:
            least = ".".join(map(str, VERSION_MIN))
            why = f"it is version {greeting.version_text}, which cannot be followed without a place in its replica set"
            raise self.server.unsupported(why, f"use Tarantool {least} or later")
        return greeting

    def _prove(self) -> None:
        if not self.server.user:
            return
        proof = scramble(self.server.password, self.greeting.salt)
        self.ask(Type.AUTH, {Key.USER: self.server.user, Key.TUPLE: ["chap-sha1", proof]})


def version_id(version: tuple[int, int, int]) -> int:
    """A version as it is sent."""
    return version[0] << 16 | version[1] << 8 | version[2]
