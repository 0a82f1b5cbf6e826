"""A server has bounds: whoever takes its time is cut off, and nobody else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tailrace.serving.bounds import Bounds
from tailrace.serving.server import HttpServer, Tls
from tests.servers import certificate

BOUNDS = Bounds(connections_max=20, head_s=30.0, stalled_s=30.0, unwanted_bytes_max=1000, closing_s=1)


async def who(request: Request) -> Response:
    return JSONResponse(request.client.host if request.client else None)


async def much(_: Request) -> Response:
    async def pieces() -> object:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)  # others have their turn

    return StreamingResponse(pieces())  # type: ignore[arg-type]


@contextmanager
def serving(tls: Tls | None = None, **bounds: float) -> Iterator[HttpServer]:
    app = Starlette(routes=[Route("/who", who), Route("/much", much)])
    with HttpServer(app, "127.0.0.1:0", replace(BOUNDS, **bounds), tls) as server:  # type: ignore[arg-type]
        yield server


def connect(server: HttpServer, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))


def is_cut_off(link: socket.socket) -> bool:
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    over_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < over_s


def connections(server: HttpServer) -> int:
    assert server._server is not None
    return len(server._server.server_state.connections)


def test_idle_connections_make_room(stack: ExitStack) -> None:
    """A thousand who say nothing keep nobody out, and have no more files open than may be."""
    with serving() as server:
        links = [connect(server, stack) for _ in range(1000)]
        wait_for(lambda: connections(server) == BOUNDS.connections_max)
        assert httpx.get(f"{server.url}/who", trust_env=False).json() == "127.0.0.1"
        assert all(is_cut_off(link) for link in links[: -BOUNDS.connections_max])
        assert connections(server) <= BOUNDS.connections_max


def test_those_who_are_served_stay(stack: ExitStack) -> None:
    with serving(connections_max=2) as server:
        served = [connect(server, stack) for _ in range(2)]
        for link in served:
            link.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
            assert link.recv(12) == b"HTTP/1.1 200"
        assert is_cut_off(connect(server, stack)), "there is no room"
        for link in served:
            assert len(link.recv(1000)) == 1000


def test_who_waits_after_an_answer_makes_room(stack: ExitStack) -> None:
    with serving(connections_max=1) as server:
        first = connect(server, stack)
        first.sendall(b"GET /who HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(12) == b"HTTP/1.1 200"
        assert httpx.get(f"{server.url}/who", trust_env=False).status_code == 200
        while first.recv(4096):
            pass


def test_who_does_not_take_the_answer_is_cut_off(stack: ExitStack) -> None:
    with serving(stalled_s=0.2) as server:
        link = connect(server, stack)
        link.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: connections(server) == 1)
        wait_for(lambda: connections(server) == 0)


def test_nonsense_is_told_by_our_own_logger(stack: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    """Another one would write past what shows a run, in another form."""
    with serving() as server, caplog.at_level("WARNING"):
        link = connect(server, stack)
        link.sendall(b"nonsense\r\n\r\n")
        assert link.recv(12) == b"HTTP/1.1 400"
    assert {record.name for record in caplog.records} == {"tailrace.serving.prompt"}


def test_who_says_that_somebody_else_calls_is_not_believed() -> None:
    """A proxy's headers would let a guesser be a new one with each guess."""
    with serving() as server:
        said = {"x-forwarded-for": "203.0.113.9", "forwarded": "for=203.0.113.9"}
        assert httpx.get(f"{server.url}/who", headers=said, trust_env=False).json() == "127.0.0.1"


@pytest.mark.skipif(bool(certificate.missing()), reason=certificate.missing())
def test_who_does_not_begin_to_encrypt_is_cut_off(stack: ExitStack) -> None:
    made = stack.enter_context(certificate.certificate())
    with serving(Tls(str(made.path), str(made.key)), head_s=0.2) as server:
        assert is_cut_off(connect(server, stack))
        trusted = ssl.create_default_context(cafile=str(made.path))
        assert httpx.get(f"{server.url}/who", verify=trusted, trust_env=False).status_code == 200


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened
