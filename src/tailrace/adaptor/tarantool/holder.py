"""The holder: a place in the server's replica set, for which the server keeps its log until it is told to forget.

A server forgets only what a replica acknowledges on a connection of its own. So the driver keeps one open, lets what
comes through it go unread, for tasks read the changes themselves, and acknowledges what is safe in the log (I2).
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from typing import Final

from tailrace.adaptor.tarantool import stream
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.iproto import Key, Type
from tailrace.adaptor.tarantool.server import Server
from tailrace.adaptor.tarantool.vclock import Vclock
from tailrace.errors import TailraceError

CLUSTER: Final = 320
_BY_UUID: Final = 1
_ACK_EVERY_S: Final = 1.0


def replica_uuid(pipeline: str) -> str:
    """By what the server knows a pipeline."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tailrace:{pipeline}"))


class Holder:
    """One registered replica."""

    def __init__(self, server: Server, replica: str) -> None:
        self.replica = replica
        self._server = server
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._safe: Vclock = {}
        self._closing = threading.Event()

    def unregister(self) -> None:
        """Give the place up: the server keeps nothing for it any more."""
        self.close()
        with Connection(self._server) as connection:
            if connection.select(CLUSTER, [self.replica], index=_BY_UUID, iterator=0):
                connection.ask(Type.DELETE, {Key.SPACE_ID: CLUSTER, Key.INDEX_ID: _BY_UUID, Key.KEY: [self.replica]})

    def release(self, cluster: str, upto: Vclock) -> None:
        """Everything up to here is safe in the log. When the server does not take that now, it is told the next time:
        the connection of one who was here before may not have ended yet."""
        self._safe = dict(upto)
        if self._thread is not None and self._thread.is_alive():
            return
        try:
            self._open(cluster)
        except TailraceError as error:
            if error.code != "source.unreachable":
                raise

    def close(self) -> None:
        self._closing.set()
        if self._connection is not None:
            self._connection.close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _open(self, cluster: str) -> None:
        if self._connection is not None:
            self._connection.close()
        self._closing.clear()
        self._connection = Connection(self._server)
        stream.subscribe(self._connection, cluster, self._safe, self.replica)
        self._thread = threading.Thread(
            target=self._hold, args=(self._connection,), name="tailrace-holder", daemon=True
        )
        self._thread.start()

    def _hold(self, connection: Connection) -> None:
        """Acknowledge now and then, and let go of what comes. When the connection breaks, the next release opens it."""
        with suppress(TailraceError):
            while not self._closing.is_set():
                connection.acknowledge(self._safe)
                connection.let_go(_ACK_EVERY_S)
