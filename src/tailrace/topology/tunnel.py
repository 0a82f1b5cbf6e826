"""A tunnel: two connections made one. What comes at either end goes out at the other, until one of them ends."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

_PIECE_BYTES: Final = 1 << 18


def join_ends(first: socket.socket, second: socket.socket) -> None:
    """Carry bytes both ways; returns when it is over, and both are closed."""
    back = threading.Thread(target=_carry, args=(second, first), name="tailrace-tunnel", daemon=True)
    back.start()
    _carry(first, second)
    back.join()
    for end in (first, second):
        end.close()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            sink.sendall(piece)
    for end in (source, sink):  # whoever still reads is woken
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
