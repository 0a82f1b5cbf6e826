"""A real Tarantool follows a node: the order of the relay's stages is one that a replica takes."""

from __future__ import annotations

import socket
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.front.server import Front
from tailrace.adaptor.tarantool.iproto import Key, Type
from tailrace.adaptor.tarantool.server import Server
from tailrace.errors import TailraceError
from tailrace.log.batch import batches_of
from tailrace.message import Message, Op, now
from tailrace.node.form import assemble
from tailrace.node.node import Node
from tailrace.relay.limbo import Control, Kind
from tests.node.shops import Shop
from tests.relay.nodes import wait_for
from tests.servers import tarantool as servers
from tests.servers.tarantool import TarantoolServer

HEARTBEAT_S = 0.5
TOKEN = "canary-12ab"


@pytest.fixture(autouse=True)
def there_is_one() -> None:
    if why := servers.missing():
        pytest.skip(why)


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
        return port


class Served:
    """A node with a database, and a front at a port that stays."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shop = Shop(directory, str(uuid.uuid4()))
        self.stages: list[str] = []
        self.port = free_port()

    @contextmanager
    def front(self) -> Iterator[Front]:
        at = ("127.0.0.1", self.port)
        with Front(
            self.shop.service,
            str(self.directory),
            at,
            tokens={"replica": TOKEN},
            heartbeat_s=HEARTBEAT_S,
            note=self.stages.append,
        ) as front:
            yield front

    def write(self, *statements: str) -> None:
        """One transaction of the node's database, then what its thread would do."""
        self.shop.run("BEGIN", *statements, "COMMIT")
        self.shop.turn()

    def told(self) -> list[str]:
        """The stages, heartbeats' answers left out."""
        return [stage for stage in self.stages if stage != "ack"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with (made := Served(tmp_path / "node")).shop:
        yield made


@pytest.fixture
def replica(served: Served) -> Iterator[TarantoolServer]:
    settings = {
        "replication": f"replica:{TOKEN}@127.0.0.1:{served.port}",
        "read_only": True,
        "replication_timeout": HEARTBEAT_S,
        "replication_connect_timeout": 30,
    }
    server = TarantoolServer(settings)
    yield server
    server.remove()


def rows_in(replica: TarantoolServer, name: str = "main.t") -> Any:
    return replica.run(f"local s = box.space['{name}'] return s and s:select() or {{}}")


def follows(replica: TarantoolServer) -> None:
    replica.await_true("box.info.replication[1].upstream.status == 'follow'")


def test_a_replica_joins_follows_and_comes_back(served: Served, replica: TarantoolServer) -> None:
    served.write("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    with served.front():
        replica.start()
        follows(replica)
        assert rows_in(replica) == [[1, "one"], [2, "two"]]
        assert served.told()[:6] == ["ok start", "rows 2", "ok stop", "transaction 1", "ok current", "subscribed"]
        members = replica.run("return box.space._cluster:select()")
        assert [id_ for id_, _ in members] == [1, 2]
        changes = ("UPDATE t SET word = 'zwei' WHERE id = 2", "DELETE FROM t WHERE id = 1")
        served.write("INSERT INTO t VALUES (3, 'three')", *changes)
        wait_for(lambda: rows_in(replica) == [[2, "zwei"], [3, "three"]])
        assert "transaction 3" in served.told()
        served.write("UPDATE t SET id = 30 WHERE id = 3")
        wait_for(lambda: rows_in(replica) == [[2, "zwei"], [30, "three"]])
        several = [f"UPDATE t SET id = {to} WHERE id = {at}" for at, to in ((5, 6), (6, 7), (2, 5), (5, 8), (8, 2))]
        served.write("INSERT INTO t VALUES (5, 'five')", *several)
        wait_for(lambda: rows_in(replica) == [[2, "zwei"], [7, "five"], [30, "three"]])
        served.write("DELETE FROM t WHERE id = 7")
        served.shop.run("CREATE TABLE later(name TEXT PRIMARY KEY, n REAL, any)")
        served.shop.store._reader.install(served.shop.store.wanted_tables(served.shop.store._reader))
        served.write("INSERT INTO later VALUES ('x', 1.5, x'00ff'), ('y', NULL, 7)")
        wait_for(lambda: rows_in(replica, "main.later") == [["x", 1.5, b"\x00\xff"], ["y", None, 7]])
        (peer,) = served.shop.service.following.values()
        wait_for(lambda: peer.behind == 0)

        replica.stop()
        wait_for(lambda: not served.shop.service.following)
        served.write("INSERT INTO t VALUES (4, 'four')")
        served.stages.clear()
        replica.start()
        follows(replica)
        wait_for(lambda: rows_in(replica) == [[2, "zwei"], [4, "four"], [30, "three"]])
        assert served.told()[0] == "subscribed"
    served.write("INSERT INTO t VALUES (5, 'five')")
    with served.front():
        wait_for(lambda: len(rows_in(replica)) == 4)


def test_a_synchronous_transaction_is_refused(served: Served, replica: TarantoolServer) -> None:
    """It may still be rolled back; better no row than a wrong one."""
    served.write("INSERT INTO t VALUES (1, 'one')")
    with served.front():
        replica.start()
        follows(replica)
        undecided = Message(Op.INSERT, now(), "main.t", {"id": 2, "word": "two"})
        batches = [*batches_of([Control(kind=Kind.BEGIN, term=1).message()]), *batches_of([undecided])]
        served.shop.journal.append_local(batches)
        replica.await_true("box.info.replication[1].upstream.status == 'stopped'")
        assert "synchronous" in replica.run("return box.info.replication[1].upstream.message")
        assert rows_in(replica) == [[1, "one"]]


def test_a_wrong_password(served: Served, replica: TarantoolServer) -> None:
    replica.settings["replication"] = f"replica:wrong@127.0.0.1:{served.port}"
    with served.front():
        replica.start(wait=False)
        wait_for(lambda: "Incorrect password" in replica.log())
    assert set(served.told()) == {"error 47"}


def test_a_node_file_says_where(tmp_path: Path) -> None:
    """A node as its users declare it answers Tarantool's questions, and refuses those whom it does not know."""
    port = free_port()
    spec, problems = assemble(node_file(tmp_path, f"127.0.0.1:{port}"), str(tmp_path))
    assert spec is not None, problems
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE t(id INTEGER PRIMARY KEY)")
    with Node(spec, lambda _: None) as node:
        with Connection(Server("127.0.0.1", port)) as unknown:
            assert unknown.vote() == {}
            with pytest.raises(TailraceError) as failed:
                unknown.ask(Type.JOIN, {Key.INSTANCE: str(uuid.uuid4())})
            assert failed.value.code == "source.no_rights"
        with Connection(Server("127.0.0.1", port, "replica", TOKEN)) as known:
            assert known.ask(Type.PING).type == Type.OK
            with pytest.raises(TailraceError, match="not served here"):
                known.select(512, [])
        assert node.identity.cluster


def test_only_loopback_is_served(tmp_path: Path) -> None:
    _, problems = assemble(node_file(tmp_path, "0.0.0.0:3301"), str(tmp_path))
    assert any("only loopback" in problem.text for problem in problems)


def node_file(directory: Path, iproto: str) -> dict[str, Any]:
    return {
        "node": "shop",
        "data": str(directory / "shop"),
        "listen": "127.0.0.1:0",
        "founder": True,
        "tokens": {"replica": TOKEN},
        "store": {"sqlite": {"path": str(directory / "shop.db")}},
        "iproto": iproto,
    }
