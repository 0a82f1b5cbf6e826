"""Idle connections, which whoever comes next uses again."""

from __future__ import annotations

import threading
from typing import Final, Generic, Protocol, TypeVar


class Closable(Protocol):
    """What is closed when nobody wants it any more."""

    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Closable)

_IDLE_MAX: Final = 16


class Idle(Generic[Connection]):
    """Connections that nobody uses at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Connection] = []
        self._is_closed = False

    def take(self) -> Connection | None:
        with self._lock:
            return self._waiting.pop() if self._waiting else None

    def give(self, connection: Connection) -> None:
        with self._lock:
            if not self._is_closed and len(self._waiting) < _IDLE_MAX:
                self._waiting.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            found, self._waiting = self._waiting, []
            self._is_closed = True
        for connection in found:
            connection.close()
