"""Serving: the HTTP server in a thread of its own. It begins when its port is open, and ends when nobody is served."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from tailrace.errors import TailraceError
from tailrace.limits import KIB, SYNC_BODY_BYTES_MAX, SYNC_HEAD_S, SYNC_REQUESTS_MAX
from tailrace.relay.address import is_loopback_host
from tailrace.sync.server import ServerOptions, app
from tailrace.sync.store import SyncStore

_BACKLOG: Final = 512
_IDLE_S: Final = 75
_END_S: Final = 10
_HEAD_BYTES_MAX: Final = 64 * KIB


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are encrypted: two files in PEM."""

    certificate: str
    key: str


class SyncServer:
    """Serves a store to other nodes: `with SyncServer(store, "127.0.0.1:0") as server: server.url`."""

    def __init__(
        self,
        store: SyncStore,
        listen: str = "127.0.0.1:0",
        options: ServerOptions | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Raises `config.invalid` for an address that others can reach without encryption."""
        self._host, self._port = _checked(listen, is_safe=tls is not None)
        self._tls = tls
        if tls is not None:
            _check_key(tls.key)
        self._app = app(store, options)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it is reached."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    def start(self) -> None:
        """Serve. Raises `config.invalid` when the address cannot be used, or the certificate."""
        opened = self._open()
        config = uvicorn.Config(
            self._app,
            http=_PromptProtocol,
            ws="none",
            lifespan="on",
            loop="asyncio",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=SYNC_REQUESTS_MAX,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_END_S,
            h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
            ssl_certfile=self._tls.certificate if self._tls else None,
            ssl_keyfile=self._tls.key if self._tls else None,
        )
        try:
            config.load()
        except OSError as error:  # ssl's own errors are such
            opened.close()
            what = f"certificate or key cannot be used: {error.strerror or error}"
            raise TailraceError("config.invalid", what, hint="name two files in PEM that belong together") from None
        self._port = opened.getsockname()[1]
        server = self._server = _Server(config)
        self._thread = threading.Thread(target=server.run, args=([opened],), name="tailrace sync server", daemon=True)
        self._thread.start()
        server.is_up.wait()
        if not server.started:
            self._thread.join()
            raise TailraceError("sync.failed", "the server did not start", hint="look into the log, and report it")

    def stop(self) -> None:
        """Serve nobody any more. What is being done is done to its end."""
        if self._server is None or self._thread is None:
            return
        self._app.state.service.hang_up()
        self._server.should_exit = True
        self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> SyncServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _open(self) -> socket.socket:
        try:
            opened = socket.create_server(
                (self._host, self._port),
                family=socket.AF_INET6 if ":" in self._host else socket.AF_INET,
                backlog=_BACKLOG,
            )
            # An answer goes out in two parts, and the second would wait 40 ms for the caller to confirm the first.
            # asyncio does this only for sockets that say what TCP they are; those that are accepted inherit it.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            what = f"{self._host}:{self._port} cannot be listened at: {error.strerror or error}"
            raise TailraceError("config.invalid", what, hint="name another address with `listen`") from None
        return opened


class _Server(uvicorn.Server):
    """Tells when it is up, or will not be."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.is_up.set()


class _PromptProtocol(H11Protocol):
    """A connection that says nothing for long, only bits of a request, or more than anybody wants to hear, is closed:
    it would take another one's place."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limit: asyncio.TimerHandle | None = None
        self._unwanted_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._end()
            return
        self._unwanted_bytes += len(data)  # of a body that was refused already
        if self._unwanted_bytes > SYNC_BODY_BYTES_MAX:
            self.transport.close()
        elif self._limit is None and not self.transport.is_closing():
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._limit = self.loop.call_later(SYNC_HEAD_S, self.transport.close)

    def _end(self) -> None:
        self._unwanted_bytes = 0
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def _checked(listen: str, *, is_safe: bool) -> tuple[str, int]:
    """Host and port."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise TailraceError("config.invalid", f"listen: {listen!r} is not host:port", hint="write 127.0.0.1:8087")
    if not is_loopback_host(host) and not is_safe:
        what = f"listen: {host} can be reached by others, and secrets would travel in the clear"
        raise TailraceError("config.invalid", what, hint="add `tls`, or listen at 127.0.0.1 behind a proxy with it")
    return host, int(port)


def _check_key(path: str) -> None:
    """A key that others can read is none."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}"
        raise TailraceError("config.invalid", what, hint="name a file in PEM that can be read") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise TailraceError("config.invalid", f"others can read {path}", hint=f"chmod 600 {path}")
