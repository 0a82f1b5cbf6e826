"""A door: the port of a replica that waits to be dialled, because it may not connect upwards itself.

Whoever begins with a handshake is a source: once it has proved itself, the replica pulls through the connection that it
made, as if it were an address on loopback. All others are led on to the replica's own server.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from tailrace.errors import TailraceError
from tailrace.topology.handshake import FIRST_BYTE, TIMEOUT_S, accept, decline, greet_source
from tailrace.topology.site import Site
from tailrace.topology.tunnel import join_ends

_LOOK_S: Final = 0.5
_AT_ONCE: Final = 64
"""So many may be about to say who they are."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """A source that has dialled."""

    source: Site
    address: str
    """Where it can be reached, once, on loopback."""
    until_s: float
    """Until then, by the monotonic clock."""


class Door:
    """Listens from the moment it is made until it is closed."""

    def __init__(
        self,
        listen: str,
        database: str,
        secret: str,
        report: Callable[[str], None],
        trace: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`trace` is told of every connection."""
        host, _, port = listen.rpartition(":")
        self._listener = socket.create_server((host.strip("[]"), int(port)))
        self._listener.settimeout(_LOOK_S)
        self.port: int = self._listener.getsockname()[1]
        self.site = Site(database, f"{host}:{self.port}")
        """Who the replica is, unless it is reached under another name."""
        self.inside = 0
        """The port of the replica's own server, on loopback."""
        self._secret = secret
        self._report = report
        self._trace = trace
        self._is_closed = threading.Event()
        self._coming = threading.Semaphore(_AT_ONCE)
        self._is_wanted = threading.Event()
        self._found: queue.Queue[Dialled] = queue.Queue(1)
        self._thread = threading.Thread(target=self._listen, name="tailrace-door", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._thread.join()
        self._listener.close()

    def dialled(self, timeout_s: float) -> Dialled | None:
        """The next source that dials; None when none does for so long. Only while this is asked sources are let in."""
        ends_s = time.monotonic() + timeout_s
        self._is_wanted.set()
        try:
            while (found := self._found.get(timeout=max(0.0, ends_s - time.monotonic()))).until_s < time.monotonic():
                pass  # it has dialled when somebody else was taken, and was given up
            return found
        except queue.Empty:
            return None
        finally:
            self._is_wanted.clear()

    def _listen(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                continue  # nobody came for a while
            if self._coming.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), name="tailrace-came", daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._let_in(connection)
        except (TailraceError, OSError) as error:
            self._report(f"somebody dialled in vain: {error}")
        finally:
            with suppress(OSError):
                connection.close()

    def _let_in(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(TIMEOUT_S)
            is_source = connection.recv(1, socket.MSG_PEEK) == FIRST_BYTE
            source = greet_source(connection, self.site, self._secret) if is_source else None
        finally:
            self._coming.release()
        if source is None:
            self._lead_on(connection)
        elif source.database != self.site.database:
            decline(connection, f"this is a replica of {self.site.database}")
        elif not self._is_wanted.is_set():
            decline(connection, "nobody waits")
        else:
            self._hand_over(connection, source)

    def _lead_on(self, connection: socket.socket) -> None:
        inside = socket.create_connection(("127.0.0.1", self.inside), timeout=TIMEOUT_S)
        _join(connection, inside)

    def _hand_over(self, connection: socket.socket, source: Site) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:
            door.settimeout(TIMEOUT_S)
            address = f"127.0.0.1:{door.getsockname()[1]}"
            self._found.put(Dialled(source, address, time.monotonic() + TIMEOUT_S), timeout=TIMEOUT_S)
            accept(connection)
            inside, _ = door.accept()
        self._trace(f"{source.host} has dialled")
        _join(connection, inside)
        self._trace(f"the connection of {source.host} has ended")


def _join(first: socket.socket, second: socket.socket) -> None:
    first.settimeout(None)
    second.settimeout(None)
    join_ends(first, second)
