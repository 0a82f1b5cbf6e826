"""A proxy that writes down every request, and drops the connection before or after one of them."""

from __future__ import annotations

import http.client
import socket
import threading
from dataclasses import dataclass
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.sync.threaded import ThreadedServer


class Cut(Enum):
    """When the connection ends."""

    BEFORE = auto()
    """The request is lost."""
    AFTER = auto()
    """It is done, and its answer is lost."""


@dataclass(frozen=True)
class Seen:
    """A request."""

    method: str
    path: str
    table: int | None
    headers: dict[str, str]


class CuttingProxy(ThreadedServer):
    """What comes to `url` goes on to `target`."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target).netloc
        self._lock = threading.Lock()
        self._cut: tuple[int, Cut] | None = None
        self.seen: list[Seen] = []
        super().__init__(self._handler())

    def cut(self, number: int, how: Cut) -> None:
        """From now on counted from 0, one request is cut."""
        self.seen.clear()
        self._cut = (number, how)

    def _next(self, seen: Seen) -> Cut | None:
        with self._lock:
            self.seen.append(seen)
            return self._cut[1] if self._cut is not None and self._cut[0] == len(self.seen) - 1 else None

    def _forward(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        table = parse_qs(parts.query).get("tableId")
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.rfile.read(int(headers.get("content-length", 0)))
        how = self._next(Seen(request.command, parts.path, int(table[0]) if table else None, headers))
        if how is not Cut.BEFORE:
            connection = http.client.HTTPConnection(self._target, timeout=60)
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            told = answer.read()
            connection.close()
        if how is not None:
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                request.send_header(name, value)
        request.send_header("content-length", str(len(told)))
        request.end_headers()
        request.wfile.write(told)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        forward = self._forward

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                forward(self)

            do_PUT = do_POST = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        return Handler
