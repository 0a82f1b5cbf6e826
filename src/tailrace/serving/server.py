"""An HTTP server in a thread of its own. It begins when its port is open, and ends when nobody is served."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from starlette.types import ASGIApp

from tailrace.errors import TailraceError
from tailrace.relay.address import is_loopback_host
from tailrace.serving.bounds import Bounds
from tailrace.serving.prompt import BoundedConfig

_BACKLOG: Final = 512


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are encrypted: two files in PEM."""

    certificate: str
    key: str


class HttpServer:
    """`with HttpServer(app, "127.0.0.1:0", bounds) as server: server.url`. It can begin and end again and again."""

    def __init__(
        self, app: ASGIApp, listen: str, bounds: Bounds, tls: Tls | None = None, *, has_lifespan: bool = False
    ) -> None:
        """Raises `config.invalid` for an address that others can reach without encryption."""
        self._host, self._port = _checked(listen, is_safe=tls is not None)
        if tls is not None:
            _check_key(tls.key)
        self._app = app
        self._bounds = bounds
        self._tls = tls
        self._lifespan: Final = "on" if has_lifespan else "off"
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_serving(self) -> bool:
        return self._server is not None

    @property
    def port(self) -> int:
        """The one that was named; where that is 0, the one that was free."""
        return self._port

    @property
    def url(self) -> str:
        """Where it is reached."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    def start(self) -> None:
        """Serve. Raises `config.invalid` when the address cannot be used, or the certificate."""
        opened = self._open()
        config = self._config()
        try:
            config.load()
        except OSError as error:  # ssl's own errors are such
            opened.close()
            what = f"certificate or key cannot be used: {error.strerror or error}"
            raise TailraceError("config.invalid", what, hint="name two files in PEM that belong together") from None
        self._port = opened.getsockname()[1]
        server = self._server = _Server(config)
        run = partial(_run, server, opened, self._bounds.head_s)
        self._thread = threading.Thread(target=run, name="tailrace http server", daemon=True)
        self._thread.start()
        server.is_up.wait()
        if not server.started:
            self._thread.join()
            what = f"the server at {self.url} did not start"
            raise TailraceError("web.not_started", what, hint="look into the log, and report it")

    def stop(self) -> None:
        """Serve nobody any more. What is being done is done to its end."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _config(self) -> BoundedConfig:
        bounds = self._bounds
        return BoundedConfig(
            self._app,
            bounds=bounds,
            ws="none",
            lifespan=self._lifespan,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,  # whoever calls could say that somebody else does
            timeout_keep_alive=bounds.idle_s,
            timeout_graceful_shutdown=bounds.closing_s,
            h11_max_incomplete_event_size=bounds.head_bytes_max,
            ssl_certfile=self._tls.certificate if self._tls else None,
            ssl_keyfile=self._tls.key if self._tls else None,
        )

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
            raise TailraceError("config.invalid", what, hint="name another address") from None
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # somebody does not take the rest of an answer
            connection.transport.abort()
        await asyncio.sleep(0)  # so that they are closed before the loop is


class _Loop(asyncio.SelectorEventLoop):
    """Whoever does not begin to speak encrypted is cut off, too."""

    def __init__(self, handshake_s: float) -> None:
        super().__init__()
        self._handshake_s = handshake_s

    async def create_server(self, *given: Any, **named: Any) -> asyncio.Server:
        if named.get("ssl") is not None:
            named["ssl_handshake_timeout"] = self._handshake_s
        return await super().create_server(*given, **named)


def _run(server: uvicorn.Server, opened: socket.socket, handshake_s: float) -> None:
    with asyncio.Runner(loop_factory=partial(_Loop, handshake_s)) as runner:
        runner.run(server.serve([opened]))


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
