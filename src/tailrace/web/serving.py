"""Serving an application over HTTP, in a thread of its own, until it is told to stop."""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp

from tailrace.errors import TailraceError

_START_S: Final = 15.0
_CLOSING_S: Final = 3


class HttpServer:
    """`with HttpServer(app, "127.0.0.1:8480") as server`: it answers within the block. Port 0 takes a free one."""

    def __init__(self, app: ASGIApp, address: str, certificate: str | None = None, key: str | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.host = host.strip("[]")
        self._wanted = int(port)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            timeout_graceful_shutdown=_CLOSING_S,
            limit_concurrency=1000,
            h11_max_incomplete_event_size=64 << 10,
            lifespan="off",
        )
        self._server = uvicorn.Server(config)
        self._scheme = "https" if certificate else "http"
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._socket = self._listen()
        run = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._server.run, kwargs=run, name="tailrace-http", daemon=True)
        self._thread.start()
        over_s = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > over_s:
                self._socket.close()
                what = f"the page at {self.host}:{self._wanted} did not start"
                raise TailraceError("web.not_started", what, hint="see that certificate and key fit together")
            time.sleep(0.01)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        if self._socket is not None:
            self._socket.close()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1]) if self._socket is not None else self._wanted

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self._scheme}://{host}:{self.port}"

    def _listen(self) -> socket.socket:
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listening = socket.socket(family, socket.SOCK_STREAM)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self.host, self._wanted))
            listening.listen(128)
        except OSError as error:
            listening.close()
            what = f"nothing can be served at {self.host}:{self._wanted}: {error.strerror or error}"
            raise TailraceError("web.not_started", what, hint="name another address") from error
        return listening
