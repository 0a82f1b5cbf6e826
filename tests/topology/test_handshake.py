"""Reverse connections: who may speak, and who is turned away."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.relay.applier import Source
from tailrace.topology.dialling import Dialling
from tailrace.topology.door import Dialled, Door
from tailrace.topology.handshake import accept, greet_replica, greet_source
from tailrace.topology.knobs import Knobs
from tailrace.topology.site import Site
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, Copying, Served, append, segments

SECRET = "both-know-this"
QUICK = Knobs({"revsql_connect_freq_sec": 0.1, "revsql_host_refresh_freq_sec": 0.1})
SOURCE, REPLICA = Site("shop", "10.0.0.1:4700"), Site("shop", "10.0.0.2:4700")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def meet(at_source: Callable[[socket.socket], object], at_replica: Callable[[socket.socket], object]) -> list[object]:
    """Both ends at work; what each gave or raised."""
    found: list[object] = [None, None]
    first, second = socket.socketpair()

    def run(at: int, end: socket.socket, work: Callable[[socket.socket], object]) -> None:
        end.settimeout(5)
        try:
            found[at] = work(end)
        except (TailraceError, OSError) as error:
            found[at] = error
        with suppress(OSError):
            end.close()

    threads = [
        threading.Thread(target=run, args=(0, first, at_source)),
        threading.Thread(target=run, args=(1, second, at_replica)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def replica_end(secret: str) -> Callable[[socket.socket], Site]:
    def greet(end: socket.socket) -> Site:
        found = greet_source(end, REPLICA, secret)
        accept(end)
        return found

    return greet


def test_both_know_each_other_then() -> None:
    assert meet(lambda end: greet_replica(end, SOURCE, SECRET), replica_end(SECRET)) == [REPLICA, SOURCE]


def test_another_secret() -> None:
    at_source, at_replica = meet(lambda end: greet_replica(end, SOURCE, "another"), replica_end(SECRET))
    assert isinstance(at_source, TailraceError), "the source does not speak to a replica that knows another one"
    assert at_source.code == "topology.handshake"
    assert isinstance(at_replica, TailraceError | OSError)


def test_a_proof_is_good_once() -> None:
    """What a source once said does not open another connection."""
    heard: list[bytes] = []

    def listen(end: socket.socket) -> Site:
        class Ear:
            def recv(self, count: int) -> bytes:
                heard.append(end.recv(count))
                return heard[-1]

            def sendall(self, data: bytes) -> None:
                end.sendall(data)

        ear: socket.socket = Ear()  # type: ignore[assignment]
        found = greet_source(ear, REPLICA, SECRET)
        accept(end)
        return found

    meet(lambda end: greet_replica(end, SOURCE, SECRET), listen)

    def replay(end: socket.socket) -> None:
        end.sendall(b"".join(heard))
        while end.recv(4096):
            pass

    _, at_replica = meet(replay, replica_end(SECRET))
    assert isinstance(at_replica, TailraceError)
    assert "does not know the secret" in at_replica.what


@pytest.mark.parametrize(
    "said", [b"", b"{}\n", b"[1]\n", b"x" * 5000, b'{"source": ["shop"], "nonce": "a"}\n', b"\xff\n"]
)
def test_nonsense(said: bytes) -> None:
    def speak(end: socket.socket) -> None:
        end.sendall(said)
        end.shutdown(socket.SHUT_WR)

    _, at_replica = meet(speak, replica_end(SECRET))
    assert isinstance(at_replica, TailraceError)


def test_a_log_is_copied_through_a_connection_that_the_source_made(stack: ExitStack, tmp_path: Path) -> None:
    log = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(log, 0, 100)
    root = stack.enter_context(Served(tmp_path / "root"))
    said: list[str] = []
    door = stack.enter_context(Door("127.0.0.1:0", "shop", SECRET, said.append))
    dialled = Dialling(SOURCE, SECRET, root.pulling, lambda: [door.site], QUICK, said.append)
    stack.enter_context(dialled)

    def sources() -> list[Source]:
        found = door.dialled(1.0)
        return [] if found is None else [Source(found.source.host, f"grpc://{found.address}", SECRET)]

    copy = stack.enter_context(Copying(tmp_path / "copy", sources))
    copy.reaches(log)
    append(log, 100, 100)
    copy.reaches(log)
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")
    assert copy.progress.source == SOURCE.host
    wait_for(lambda: any("nobody waits" in line for line in said) or copy.progress.behind_bytes == 0)


def test_a_door_leads_others_to_the_server_behind_it(stack: ExitStack, tmp_path: Path) -> None:
    log = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(log, 0, 50)
    root = stack.enter_context(Served(tmp_path / "root"))
    door = stack.enter_context(Door("127.0.0.1:0", "shop", SECRET, lambda _: None))
    door.inside = int(root.server.port)
    through = Source("door", f"grpc://127.0.0.1:{door.port}", root.source.token)
    copy = stack.enter_context(Copying(tmp_path / "copy", [through]))
    copy.reaches(log)
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")


def test_a_source_that_was_given_up_meanwhile_is_passed_over(stack: ExitStack) -> None:
    """Two have dialled at once, one was taken, and the other one has ended when somebody is wanted again."""
    door = stack.enter_context(Door("127.0.0.1:0", "shop", SECRET, lambda _: None))
    now_s = time.monotonic()
    door._found.put(Dialled(REPLICA, "127.0.0.1:1", now_s - 1))
    assert door.dialled(0.0) is None
    door._found.put(Dialled(SOURCE, "127.0.0.1:2", now_s + 60))
    found = door.dialled(0.0)
    assert found is not None and found.source == SOURCE


def test_nobody_waits(stack: ExitStack) -> None:
    door = stack.enter_context(Door("127.0.0.1:0", "shop", SECRET, lambda _: None))
    for source, why in ((SOURCE, "nobody waits"), (Site("other", "10.0.0.1:1"), "this is a replica of shop")):
        with (
            socket.create_connection(("127.0.0.1", door.port), timeout=10) as connection,
            pytest.raises(TailraceError, match=why),
        ):
            greet_replica(connection, source, SECRET)
    with socket.create_connection(("127.0.0.1", door.port), timeout=10) as connection:
        connection.sendall(json.dumps({"source": ["shop", "10.0.0.1:1"], "nonce": "a"}).encode() + b"\n")
        connection.recv(4096)
        connection.sendall(b'{"proof": "0"}\n')
        assert connection.recv(4096) == b"", "closed without a word"
