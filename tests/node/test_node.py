"""Whole nodes from their files, in this process: what a source is asked for, and how far everybody is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tailrace.log.reader import LogReader
from tailrace.node.load import load_node
from tailrace.node.node import Node
from tailrace.node.status import told
from tailrace.relay.applier import State
from tests.relay.nodes import wait_for

TOKEN = "canary-51ab"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


class Place:
    """A node's database `NAME.db` and its file, which can be started."""

    def __init__(self, stack: ExitStack, directory: Path, name: str) -> None:
        self.path = directory / f"{name}.db"
        self.directory = directory
        self.name = name
        self._stack = stack
        self.run("PRAGMA journal_mode = WAL")
        for table in ("t", "u"):
            self.run(f"CREATE TABLE {table}(id INTEGER PRIMARY KEY, word TEXT)")

    def start(self, source: int = 0, *more: str, stack: ExitStack | None = None) -> Node:
        lines = [f"node: {self.name}", f"data: ./{self.name}", "listen: 127.0.0.1:0", "heartbeat: 200ms"]
        lines += [f"tokens: {{all: {TOKEN}}}", f"store: {{sqlite: {{path: {self.name}.db}}}}"]
        if source:
            lines += ["sources:", f'  - {{name: source, address: "127.0.0.1:{source}", token: {TOKEN}']
            lines[-1] += "".join(f", {each}" for each in more) + "}"
        else:
            lines += ["founder: true", *more]
        file = self.directory / f"{self.name}.yml"
        file.write_text("\n".join(lines))
        self.node = (stack or self._stack).enter_context(Node(load_node(str(file)), print))
        return self.node

    def run(self, *statements: str) -> None:
        """As soon as the node lets its users write."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            for statement in statements:
                wait_for(partial(is_written, connection, statement))

    def rows(self, table: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return connection.execute(f"SELECT id, word FROM {table} ORDER BY id").fetchall()

    def namespaces(self) -> set[str]:
        log = str(self.directory / self.name / "log")
        return {entry.message.namespace for entry in LogReader(log).entries()}

    def source(self) -> dict[str, Any]:
        found: dict[str, Any] = told(self.node)["sources"]["source"]
        return found


def is_written(connection: sqlite3.Connection, statement: str) -> bool:
    try:
        connection.execute(statement)
    except sqlite3.IntegrityError as error:
        assert "read-only" in str(error)
        return False
    return True


def test_only_some_namespaces(stack: ExitStack, tmp_path: Path) -> None:
    """The others come as noops, and as such go on: who follows such a node has them from nobody."""
    a, b, c = (Place(stack, tmp_path, name) for name in "abc")
    a.run("INSERT INTO t VALUES (1, 'wanted')", "INSERT INTO u VALUES (1, 'not wanted')")
    b.run("INSERT INTO u VALUES (5, 'of b alone')")
    first = a.start()
    second = b.start(first.port, "namespace: 't$'")
    wait_for(lambda: b.source()["state"] == State.FOLLOW)
    third = c.start(second.port)
    wait_for(lambda: c.source()["state"] == State.FOLLOW)
    a.run("INSERT INTO u VALUES (2, 'nor this')", "INSERT INTO t VALUES (2, 'this too')")
    wait_for(lambda: b.rows("t") == c.rows("t") == a.rows("t"))
    wait_for(lambda: len({node.vclock[first.identity.node] for node in (first, second, third)}) == 1)
    assert b.rows("u") == [(5, "of b alone")]
    assert c.rows("u") == [(5, "of b alone")]  # as b had it when c came
    assert "main.u" in a.namespaces()
    for place in (b, c):
        assert "main.u" not in place.namespaces()
        assert "_tailrace.noop" in place.namespaces()
    assert b.source()["behind"] == 0


def test_without_some_origins(stack: ExitStack, tmp_path: Path) -> None:
    """What they wrote does not come, and is not waited for."""
    a, b, c = (Place(stack, tmp_path, name) for name in "abc")
    first = a.start()
    with ExitStack() as early:
        c.start(first.port, stack=early)
        wait_for(lambda: c.source()["state"] == State.FOLLOW)
    b.start(first.port, stack=stack)
    wait_for(lambda: b.source()["state"] == State.FOLLOW)
    own = b.node.identity.node
    b.run("INSERT INTO t VALUES (1, 'of b')")
    wait_for(lambda: b.node.vclock[own] > 0)
    third = c.start(b.node.port, f"without: [{own}]")
    a.run("INSERT INTO t VALUES (2, 'of a')")
    wait_for(lambda: c.rows("t") == [(2, "of a")])
    wait_for(lambda: c.source()["state"] == State.FOLLOW)
    assert third.vclock[own] == 0
    assert c.source()["behind"] == 0
    wait_for(lambda: [each["behind"] for each in told(b.node)["peers"] if each["is_following"]] == [0])


def test_how_far_everybody_is(stack: ExitStack, tmp_path: Path) -> None:
    """In messages, bytes and seconds, on both sides, with the age of the figures; nothing old after a reconnect."""
    a, b = Place(stack, tmp_path, "a"), Place(stack, tmp_path, "b")
    first = a.start()
    with ExitStack() as running:
        b.start(first.port, stack=running)
        wait_for(lambda: b.source()["state"] == State.FOLLOW)
        a.run("INSERT INTO t VALUES (1, 'one')")
        wait_for(lambda: b.rows("t") == a.rows("t"))
        wait_for(lambda: (b.source()["behind"], b.source()["behind_bytes"], b.source()["behind_s"]) == (0, 0, 0.0))
        (peer,) = told(first)["peers"]
        assert peer["is_following"] is True
        assert peer["age_s"] < 5
        wait_for(lambda: told(first)["peers"][0]["behind_bytes"] == 0)

        held = b.node._journal._turn  # b takes nothing any more
        with held:
            for number in range(10, 20):
                a.run(f"INSERT INTO t VALUES ({number}, '{'x' * 100}')")
            wait_for(lambda: told(first)["peers"][0]["behind"] >= 10)
            (peer,) = told(first)["peers"]
            assert peer["behind_bytes"] > 10 * 100
            assert peer["behind_s"] >= 0
        wait_for(lambda: b.rows("t") == a.rows("t"))
        wait_for(lambda: told(first)["peers"][0]["behind"] == 0)
    wait_for(lambda: told(first)["peers"][0]["is_following"] is False)
    a.run("INSERT INTO t VALUES (30, 'while b was away')")
    wait_for(lambda: told(first)["peers"][0]["behind_bytes"] > 0)
    assert told(first)["peers"][0]["behind"] >= 1

    b.start(first.port)
    assert b.source()["behind_bytes"] is None or b.source()["state"] in (State.SYNC, State.FOLLOW)
    wait_for(lambda: b.source()["state"] == State.FOLLOW and b.source()["behind_bytes"] == 0)
    assert b.source()["age_s"] < 5
