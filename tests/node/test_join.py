"""Newcomers: they get all there is, once, whatever happens meanwhile."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.message import now
from tailrace.node.filling import version_batch
from tailrace.relay.applier import State
from tailrace.relay.join import Joins
from tailrace.relay.names import CLUSTER as MEMBERS
from tests.node.shops import Shop, settle
from tests.relay.nodes import wait_for, wait_until

CLUSTER = str(uuid.UUID(int=9))
SOME = """INSERT INTO t WITH RECURSIVE n(value) AS
    (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {}) SELECT value, 'old' FROM n"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def source(stack: ExitStack, directory: Path, rows: int = 1000) -> Shop:
    """A node that had rows before it was one, and some that came since."""
    old = directory / "a"
    old.mkdir()
    with closing(sqlite3.connect(old / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, word TEXT)")
        connection.execute(SOME.format(rows))
    shop = stack.enter_context(Shop(old, CLUSTER, piece_rows=100))
    shop.run("INSERT INTO t VALUES (-1, 'new')", "UPDATE t SET word = 'changed' WHERE id = 5")
    shop.turn()
    return shop


def newcomer(stack: ExitStack, directory: Path, name: str = "b") -> Shop:
    return stack.enter_context(Shop(directory / name, None))


def test_a_newcomer_gets_all(stack: ExitStack, tmp_path: Path) -> None:
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    applier = b.join(a)
    wait_until(applier, State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()
    assert len(b.rows()) == 1001
    assert b.identity.cluster == CLUSTER
    a.run("DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (5000, 'later')")
    settle([a, b])
    assert b.rows() == a.rows()


def test_rows_of_its_own_are_not_lost(stack: ExitStack, tmp_path: Path) -> None:
    """Unless it is asked for: then they are replaced, and what happened to them is no news."""
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    b.run("INSERT INTO t VALUES (7777, 'of another life')")
    applier = b.join(a)
    wait_until(applier, State.STOPPED)
    assert applier.progress.error is not None
    assert applier.progress.error.code == "relay.not_empty"
    assert b.rows() == [(7777, "of another life")]
    assert b.identity.cluster is None
    b.store._replaces = True
    wait_until(b.join(a), State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()
    assert (7777, "of another life") not in a.rows()


def test_its_registration_is_in_the_log(stack: ExitStack, tmp_path: Path) -> None:
    """So that every node knows of it; it comes with the final rows."""
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    wait_until(b.join(a), State.FOLLOW)
    for node in (a, b):
        members = [m for m in node.messages() if m.namespace == MEMBERS]
        assert [str(b.id) in (m.data or {})["json"] for m in members] == [True]
    assert b.rows("SELECT name FROM sqlite_master WHERE name LIKE '%cluster%'") == []


def test_what_is_written_meanwhile(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the view and the registration, and before the view's chunks are read."""
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    begin, register = Joins.begin, Joins.register

    def busy_begin(joins: Joins, request: Any, caller: str) -> Any:
        a.run("INSERT INTO t VALUES (6000, 'before the view')")
        joined = begin(joins, request, caller)
        a.run("INSERT INTO t VALUES (6001, 'after the view')", "DELETE FROM t WHERE id < 100")
        a.turn()
        return joined

    def busy_register(joins: Joins, name: str) -> Any:
        a.run("UPDATE t SET word = 'before registration' WHERE id = 200")
        a.turn()
        done = register(joins, name)
        a.run("UPDATE t SET word = 'after registration' WHERE id = 300")
        a.turn()
        return done

    monkeypatch.setattr(Joins, "begin", busy_begin)
    monkeypatch.setattr(Joins, "register", busy_register)
    wait_until(b.join(a), State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()
    words = [word for _, word in b.rows()]
    assert {"before the view", "after the view", "before registration", "after registration"} <= set(words)


def test_a_join_that_is_cut_goes_on(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that were fetched are not fetched again, and nothing is seen before all are there."""
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    chunk, fetched, cut = Joins.chunk, list[int](), threading.Event()

    def fragile(joins: Joins, name: str, number: int) -> Any:
        if number == 6 and not cut.is_set():
            wait_for(lambda: len(list((tmp_path / "b" / "joining").glob("*.chunk"))) >= 3)
            cut.set()
            raise OSError("the cable is pulled")
        yield from chunk(joins, name, number)
        fetched.append(number)

    monkeypatch.setattr(Joins, "chunk", fragile)
    applier = b.join(a)
    wait_for(cut.is_set)
    assert b.rows() == []
    wait_until(applier, State.FOLLOW)
    assert sorted(set(fetched)) == list(range(12))
    assert len(fetched) < 2 * 12
    settle([a, b])
    assert b.rows() == a.rows()


def test_a_snapshot_that_could_not_be_published_is_not_fetched_again(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    chunk, load, fetched, failed = Joins.chunk, b.store.load, list[int](), threading.Event()

    def noted(joins: Joins, name: str, number: int) -> Any:
        fetched.append(number)
        yield from chunk(joins, name, number)

    def fragile(*rows: Any) -> int:
        if not failed.is_set():
            failed.set()
            raise TailraceError("destination.unreachable", "the database is restarted", hint="wait")
        return load(*rows)

    monkeypatch.setattr(Joins, "chunk", noted)
    monkeypatch.setattr(b.store, "load", fragile)
    wait_until(b.join(a), State.FOLLOW)
    assert failed.is_set()
    assert sorted(fetched) == list(range(12))
    settle([a, b])
    assert b.rows() == a.rows()


def test_a_source_that_forgot_the_join(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    register, forgot = Joins.register, threading.Event()

    def forgetful(joins: Joins, name: str) -> Any:
        if not forgot.is_set():
            forgot.set()
            joins.end(name)
        return register(joins, name)

    monkeypatch.setattr(Joins, "register", forgetful)
    wait_until(b.join(a), State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()


def test_a_newcomer_knows_which_rows_are_newer(stack: ExitStack, tmp_path: Path) -> None:
    """A change that is older than a row that it got must not undo that."""
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    wait_until(b.join(a), State.FOLLOW)
    settle([a, b])
    b.run("UPDATE t SET word = 'older' WHERE id = 9", "UPDATE t SET word = 'older' WHERE id = 10")
    b.store.capture()  # nobody follows b yet
    a.run("UPDATE t SET word = 'newer' WHERE id = 9", "DELETE FROM t WHERE id = 10")
    a.turn()
    c = newcomer(stack, tmp_path, "c")
    wait_until(c.join(a), State.FOLLOW)
    settle([a, c])
    for node in (a, c):
        node.follow(b)
    a.follow(c)
    settle([a, b, c])
    assert a.rows() == b.rows() == c.rows()
    assert (9, "newer") in c.rows()
    assert not [row for row in c.rows() if row[0] == 10]


def test_what_was_not_merged_yet_is_in_the_view(stack: ExitStack, tmp_path: Path) -> None:
    """Messages that the source has in its log and not in its database, and what its users have written since."""
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    wait_until(b.join(a), State.FOLLOW)
    a.follow(b)
    settle([a, b])
    b.run("UPDATE t SET word = 'older, of b' WHERE id = 20", "UPDATE t SET word = 'of b' WHERE id = 21")
    b.store.capture()
    wait_for(lambda: a.journal.vclock == b.journal.vclock)
    a.run("UPDATE t SET word = 'newer, of a' WHERE id = 20")
    c = newcomer(stack, tmp_path, "c")
    wait_until(c.join(a), State.FOLLOW)
    assert {(20, "newer, of a"), (21, "of b")} <= set(c.rows())
    settle([a, b, c])
    assert a.rows() == b.rows() == c.rows()
    assert (20, "newer, of a") in a.rows()


def test_a_newcomer_of_a_newcomer(stack: ExitStack, tmp_path: Path) -> None:
    """It has the rows of all, and each message once."""
    a, b = source(stack, tmp_path), newcomer(stack, tmp_path)
    wait_until(b.join(a), State.FOLLOW)
    a.follow(b)
    b.run("INSERT INTO t VALUES (8000, 'from b')")
    settle([a, b])
    c = newcomer(stack, tmp_path, "c")
    wait_until(c.join(b), State.FOLLOW)
    settle([a, b, c])
    assert a.rows() == b.rows() == c.rows()
    a.run("INSERT INTO t VALUES (9000, 'through b')")
    settle([a, b, c])
    assert (9000, "through b") in c.rows()


def test_what_a_node_writes_is_later_than_what_it_got(stack: ExitStack, tmp_path: Path) -> None:
    """Whatever its own clock says: the rows came from a node whose clock is ahead."""
    shop = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    ahead = now() + 3_600_000_000
    shop.store.load([version_batch([("main.t", "[1]", ahead, "1".zfill(20), 1)])])
    shop.run("INSERT INTO t VALUES (1, 'after it')")
    shop.store.capture()
    (written,) = [each for each in shop.messages() if each.namespace == "main.t"]
    assert written.timestamp > ahead
