"""A SQLite node and two PostgreSQL nodes that are all written, and killed again and again, as their server is: in the
end they agree, and nothing came twice."""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.node.test_convergence import lsns
from tests.node.test_postgres_store import VERSIONS, change
from tests.node.test_serve import NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.servers.postgres import PostgresServer

ROWS = 40
_NOT_DONE = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,  # the node is not in sync yet
    psycopg.errors.UniqueViolation,
    sqlite3.IntegrityError,
)
NAMES = ("a", "b", "c")


class PgNodeProcess(NodeProcess):
    """One node with a database of its name."""

    def __init__(self, directory: Path, name: str, file: str, server: PostgresServer) -> None:
        self.url = server.create(name)
        store = f'store: {{postgres: {{url: "{self.url}"}}, namespace: "^main\\\\."}}'
        super().__init__(directory, name, file.replace(f"store: {{sqlite: {{path: {name}.db}}}}", store))

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, options="-c search_path=main,tailrace")

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            connection.execute("CREATE SCHEMA IF NOT EXISTS main")
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode())

    def rows(self, query: str = "SELECT * FROM t ORDER BY id") -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    made.start()
    yield made
    made.remove()


def write_until(over: threading.Event, node: NodeProcess, seed: int) -> None:
    """A user of one database, who knows nothing of nodes; what they do while the server is away is not done."""
    chosen = random.Random(seed)
    number = 0
    while not over.wait(chosen.random() / 20):
        number += 1
        with suppress(*_NOT_DONE):
            node.run(*change(chosen, f"{node.name} {seed} {number}", ROWS))


def versions(node: NodeProcess) -> list[tuple[Any, ...]]:
    if isinstance(node, PgNodeProcess):
        return node.rows(VERSIONS)
    with closing(sqlite3.connect(node.path, timeout=30)) as connection:
        is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_version'").fetchone()
        return connection.execute(VERSIONS).fetchall() if is_there else []


def agree(nodes: list[NodeProcess]) -> bool:
    return all(node.rows() == nodes[0].rows() and versions(node) == versions(nodes[0]) for node in nodes)


def converge(directory: Path, server: PostgresServer, seconds: float, seed: int) -> None:
    ports = dict(zip(NAMES, free_ports(3), strict=True))
    with ExitStack() as stack:
        nodes: list[NodeProcess] = []
        for name in NAMES:
            others = {other: port for other, port in ports.items() if other != name}
            founds = {"founder": "true"} if name == "b" else {}
            file = node_file(name, ports[name], others, quorum="0", **founds)
            made = NodeProcess(directory, name, file) if name == "a" else PgNodeProcess(directory, name, file, server)
            nodes.append(stack.enter_context(made))
        for node in nodes:
            for other in NAMES:
                if other != node.name:
                    node.follows(other)
        over = threading.Event()
        stack.callback(over.set)
        users = [node for node in nodes for _ in range(2)]
        writers = [threading.Thread(target=write_until, args=(over, node, at)) for at, node in enumerate(users)]
        for writer in writers:
            writer.start()
        chosen = random.Random(seed)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(chosen.uniform(0.5, 3.0))
            victims: list[NodeProcess | PostgresServer] = [*nodes, server]
            victim = chosen.choice(victims)
            if isinstance(victim, PostgresServer):
                chosen.choice([victim.stop, victim.kill])()
            else:
                victim.end(signal.SIGKILL)
            time.sleep(chosen.uniform(0.0, 1.5))
            victim.start()
        over.set()
        for writer in writers:
            writer.join()
        wait_for(lambda: agree(nodes), 120)
        for node in nodes:
            assert node.end(signal.SIGTERM) == 0
        assert agree(nodes)
        told = [lsns(node) for node in nodes]
        assert {frozenset(each) for each in told} == {frozenset(told[0])}
        assert len(told[0]) == len(NAMES)
        for each in told:
            for numbers in each.values():
                assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))


def test_a_server_that_is_away_when_the_node_starts(tmp_path: Path, server: PostgresServer) -> None:
    (port,) = free_ports(1)
    file = node_file("b", port, {}, founder="true", quorum="0")
    with PgNodeProcess(tmp_path, "b", file, server) as node:
        wait_for((tmp_path / "b" / "status.json").exists, 60)
        node.run("INSERT INTO t VALUES (1, 'before')")
        wait_for(lambda: versions(node) != [], 60)
        node.end(signal.SIGKILL)
        server.stop()
        node.start()
        wait_for(lambda: "the store is waited for" in node.said(), 60)
        server.start()
        wait_for(lambda: node.said().count("listens at port") == 2, 60)
        node.run("INSERT INTO t VALUES (2, 'after')")
        wait_for(lambda: len(versions(node)) == 2, 60)
        assert node.end(signal.SIGTERM) == 0


def test_a_node_that_waits_for_its_server_can_be_ended(tmp_path: Path, server: PostgresServer) -> None:
    (port,) = free_ports(1)
    with PgNodeProcess(tmp_path, "b", node_file("b", port, {}, founder="true"), server) as node:
        wait_for((tmp_path / "b" / "status.json").exists, 60)
        assert node.end(signal.SIGTERM) == 0
        server.stop()
        node.start()
        wait_for(lambda: "the store is waited for" in node.said(), 60)
        assert node.end(signal.SIGTERM) == 3, "it says that the server was not there"


@pytest.mark.crash
@pytest.mark.long
def test_a_few_kills(tmp_path: Path, server: PostgresServer) -> None:
    converge(tmp_path, server, 6.0, seed=1)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(2))
def test_a_minute_of_kills(tmp_path: Path, server: PostgresServer, seed: int) -> None:
    converge(tmp_path, server, 60.0, seed)
