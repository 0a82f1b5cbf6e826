"""The front's server: it listens, and gives each Tarantool that comes a session of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from tailrace.adaptor.tarantool.front.session import Session
from tailrace.adaptor.tarantool.front.state import load_state
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.relay.service import Service

PEERS_MAX: Final = 31


class Front:
    """`with Front(...)`: Tarantools can follow the node until the end of the block."""

    def __init__(
        self,
        service: Service,
        directory: str,
        address: tuple[str, int],
        *,
        tokens: Mapping[str, str],
        heartbeat_s: float,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._service = service
        self._state = load_state(directory, service.identity.node)
        self._tokens = dict(tokens)
        self._heartbeat_s = heartbeat_s
        self._note = note
        self._stopping = threading.Event()
        self._peers: dict[socket.socket, threading.Thread] = {}
        try:
            self._listening = socket.create_server(address)
        except OSError as error:
            what = f"{address[0]}:{address[1]} cannot be listened at: {error.strerror}"
            raise TailraceError("relay.unreachable", what, hint="name another address at `iproto`") from error
        self._thread = threading.Thread(target=self._accept, name="tailrace-iproto", daemon=True)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for peer, thread in list(self._peers.items()):
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            if len(self._peers) >= PEERS_MAX:
                peer.close()
                continue
            thread = threading.Thread(target=self._serve, args=(peer,), name="tailrace-iproto-peer", daemon=True)
            self._peers[peer] = thread
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Session(
                    peer,
                    self._service,
                    self._state,
                    self._tokens,
                    self._heartbeat_s,
                    self._stopping,
                    self._note,
                ).serve()
        finally:
            self._peers.pop(peer, None)
