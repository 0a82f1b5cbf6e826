"""Servers that refuse, that are none, or that say things that cannot be."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tailrace.adaptor.tarantool import iproto
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.greeting import greet, read_greeting
from tailrace.adaptor.tarantool.iproto import Type
from tailrace.adaptor.tarantool.options import TarantoolReaderOptions
from tailrace.adaptor.tarantool.server import Server, parse_address
from tailrace.errors import TailraceError
from tests.servers.tarantool import PASSWORD, USER, TarantoolServer

UUID = "89475911-8d51-45fd-81ed-6d2675aa193a"
GREETING = greet((2, 6, 0), UUID, bytes(32))


@pytest.fixture
def impostor() -> Iterator[Callable[[bytes], Server]]:
    """Something that says these bytes to whoever comes, and no more."""
    opened: list[socket.socket] = []

    def make(said: bytes) -> Server:
        listening = socket.create_server(("127.0.0.1", 0))
        opened.append(listening)

        def talk() -> None:
            visitor, _ = listening.accept()
            with visitor:
                visitor.sendall(said)
                visitor.shutdown(socket.SHUT_WR)
                while visitor.recv(1 << 16):
                    pass

        threading.Thread(target=talk, daemon=True).start()
        return Server("127.0.0.1", listening.getsockname()[1], timeout_s=5)

    yield make
    for each in opened:
        each.close()


def refusal(ask: Callable[[], object]) -> TailraceError:
    with pytest.raises(TailraceError) as failed:
        ask()
    return failed.value


def test_a_greeting_and_back() -> None:
    read = read_greeting(GREETING)
    assert (read.version, read.instance, read.salt) == ((2, 6, 0), UUID, bytes(20))


@pytest.mark.parametrize("said", [b"220 smtp ready\r\n", b"\x00" * 128, GREETING[:64] + b"?" * 64])
def test_what_is_no_tarantool(impostor: Callable[[bytes], Server], said: bytes) -> None:
    error = refusal(lambda: Connection(impostor(said)))
    assert error.code == "source.unsupported"
    assert "greet" in error.what


@pytest.mark.parametrize("words", [0, 4, 100])
def test_one_that_ends_before_it_has_greeted(impostor: Callable[[bytes], Server], words: int) -> None:
    """As a port does whose server is restarted behind it: it is waited for."""
    error = refusal(lambda: Connection(impostor(GREETING[:words])))
    assert error.code == "source.unreachable"
    assert "before it had greeted" in error.what


def test_an_old_version(impostor: Callable[[bytes], Server]) -> None:
    error = refusal(lambda: Connection(impostor(greet((1, 10, 6), UUID, bytes(32)))))
    assert "version 1.10.6" in error.what
    assert "2.3.1" in error.hint


@pytest.mark.parametrize(
    "packet",
    [
        b"\xce\xff\xff\xff\xff",
        b"\x93\x01\x02\x03\x04",
        struct.pack(">BI", 0xCE, 3) + b"\x81\x00\xd9",
        struct.pack(">BI", 0xCE, 2) + b"\x01\x02",
        struct.pack(">BI", 0xCE, 0),
        iproto.encode({0: 0}, {0x29: 7}),
        iproto.encode({0: 0}, {0x29: {2: "x"}}),
        iproto.encode({0: 0}, {0x29: {2: {"x": "y"}}}),
    ],
)
def test_what_cannot_be(impostor: Callable[[bytes], Server], packet: bytes) -> None:
    with closing(Connection(impostor(GREETING + packet))) as connection:
        assert refusal(connection.vote).code == "source.malformed"


def test_one_that_ends(impostor: Callable[[bytes], Server]) -> None:
    with closing(Connection(impostor(GREETING))) as connection:
        assert refusal(connection.vote).code == "source.unreachable"


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert refusal(lambda: Connection(Server("127.0.0.1", port))).code == "source.unreachable"


@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
def test_wrong_users(tarantool: TarantoolServer, user: str, password: str) -> None:
    error = refusal(lambda: Connection(Server("127.0.0.1", tarantool.port, user, password)))
    assert error.code == "source.no_rights"
    assert password not in str(error)


@pytest.mark.parametrize("user", ["powerless", ""])
def test_users_without_rights(tarantool: TarantoolServer, user: str) -> None:
    with Connection(Server("127.0.0.1", tarantool.port, user, PASSWORD if user else "")) as connection:
        assert connection.vote()
        error = refusal(lambda: connection.ask(Type.FETCH_SNAPSHOT))
    assert error.code == "source.no_rights"
    assert f"box.schema.user.grant('{user or 'guest'}', 'replication')" in error.hint


def test_a_server_without_a_log() -> None:
    server = TarantoolServer({"wal_mode": "none"})
    try:
        server.start()
        options = TarantoolReaderOptions.model_validate({"address": server.address()})
        failed = [check for check in options.probe() if not check.ok]
        assert ["wal_mode = 'write'" in check.cure for check in failed] == [True]
    finally:
        server.remove()


def test_what_doctor_says(tarantool: TarantoolServer) -> None:
    tarantool.run("box.schema.space.create('a'):create_index('pk') box.schema.space.create('b')")
    options = TarantoolReaderOptions.model_validate({"address": tarantool.address()})
    checks = options.probe()
    assert all(check.ok for check in checks)
    assert "Tarantool 2." in checks[0].found
    assert any("box.b" in check.what and "no primary index" in check.found for check in checks)
    powerless = TarantoolReaderOptions.model_validate({"address": tarantool.address("powerless")})
    assert [check.what for check in powerless.probe() if not check.ok] == ["server may be followed"]


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("host", ("host", 3301, "", "")),
        ("host:1", ("host", 1, "", "")),
        ("me@host", ("host", 3301, "me", "")),
        ("me:se:c@ret@host:99", ("host", 99, "me", "se:c@ret")),
        ("tarantool://me:x@[::1]:5/", ("::1", 5, "me", "x")),
    ],
)
def test_addresses(address: str, parts: tuple[object, ...]) -> None:
    assert tuple(parse_address(address).values()) == parts


@pytest.mark.parametrize("address", ["", "host:0", "host:99999", "host:port", ":1", "a b@"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="no address of Tarantool"):
        parse_address(address)
