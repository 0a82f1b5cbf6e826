"""Delivery in the application's own transactions: what is taken back, and databases that are away."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.queues.answers import Ack, Answer, Park, Retry
from tailrace.queues.application import application_of
from tailrace.queues.desk import Patience
from tailrace.queues.incoming import Incoming
from tailrace.queues.ledger import own_transaction
from tailrace.queues.receiving import Receiver
from tests.queues.arrivals import arrive, arrive_snapshot, working
from tests.relay.nodes import wait_for

QUICK = Patience(attempts_max=3, wait_s=0.01, wait_s_max=0.05)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "queues") as log:
        yield log


class Application:
    """A SQLite database with a table, and a handler that notes what it is given there."""

    def __init__(self, path: Path, log: CommitLog) -> None:
        self.path = path
        self.receiver = Receiver(log.directory, "stock", patience=QUICK)
        self.answers: dict[str, list[Answer | Exception]] = {}
        self.errors: list[str] = []
        self.seen: list[tuple[str, bool, bool]] = []
        """What was given: the payload, whether a snapshot starts, whether it is a replay."""
        self.is_away = False
        self.ends_itself = False
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE applied (number INTEGER PRIMARY KEY, said TEXT)")

    def connect(self) -> sqlite3.Connection:
        if self.is_away:
            raise OSError("nobody is there")
        return sqlite3.connect(self.path, timeout=30)

    def handle(self, connection: sqlite3.Connection, source: str, message: Incoming) -> Answer:
        text = message.payload.decode()
        self.seen.append((text, message.starts_snapshot, message.is_replay))
        connection.execute("INSERT INTO applied (said) VALUES (?)", (text,))
        if self.ends_itself:
            connection.commit()
        planned = self.answers.get(text)
        answer = planned.pop(0) if planned else Ack()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def work(self, stopping: threading.Event) -> None:
        self.receiver.listen_in(
            self.connect, self.handle, stopping, lambda source, error: self.errors.append(f"{source}: {error}")
        )

    def applied(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            return [said for (said,) in connection.execute("SELECT said FROM applied ORDER BY number")]


@pytest.fixture
def application(tmp_path: Path, log: CommitLog) -> Application:
    return Application(tmp_path / "application.db", log)


def test_whatever_is_not_acknowledged_is_taken_back(application: Application, log: CommitLog) -> None:
    arrive(log, "stock", "north", "a", "b", "c", "d")
    application.answers = {"a": [Retry(0.01)], "b": [Park("odd")], "c": [ValueError("not yet")]}
    with working(application.work):
        wait_for(lambda: "d" in application.applied())
    assert application.applied() == ["a", "c", "d"]
    assert application.errors == ["north: not yet"]
    assert [parked.reason for parked in application.receiver.parked()] == ["odd"]


def test_a_snapshot_goes_on_where_it_was(application: Application, log: CommitLog) -> None:
    arrive_snapshot(log, "stock", "north", "r1", "a", "b", "c")
    application.answers = {"c": [Retry(600.0)]}
    with working(application.work):
        wait_for(lambda: len(application.seen) == 3)
    with working(application.work):
        wait_for(lambda: len(application.applied()) == 4)
    starts = [(text, is_start) for text, is_start, _ in application.seen]
    assert starts == [("a", True), ("b", False), ("c", False), ("c", False), ("", False)]


def test_a_replay_is_applied_once(application: Application, log: CommitLog) -> None:
    arrive(log, "stock", "north", "a", "b")
    application.answers = {"a": [Park("odd")]}
    with working(application.work):
        wait_for(lambda: application.applied() == ["b"])
        application.receiver.replay([application.receiver.parked()[0].id])
        wait_for(lambda: application.applied() == ["b", "a"])
    assert application.seen[-1] == ("a", False, True)
    assert application.receiver.parked() == []


def test_a_database_that_is_away_costs_no_attempts(application: Application, log: CommitLog) -> None:
    arrive(log, "stock", "north", "a")
    application.is_away = True
    with working(application.work):
        wait_for(lambda: len(application.errors) > 5)
        application.is_away = False
        wait_for(lambda: application.applied() == ["a"])
    assert set(application.errors) == {": nobody is there"}
    assert application.receiver.parked() == []


def test_a_handler_that_ends_the_transaction_is_told(application: Application, log: CommitLog) -> None:
    arrive(log, "stock", "north", "a")
    application.ends_itself = True
    with working(application.work):
        wait_for(lambda: bool(application.errors))
    assert "leave commit and rollback to the receiver" in application.errors[0]


def check_transactions(connection: Any) -> None:
    """They are taken back after an exception, and committed otherwise, whatever was begun before."""
    application = application_of(connection)
    application.run("CREATE TABLE t (n INTEGER)")
    with pytest.raises(ValueError, match="no"), own_transaction(connection, application):
        application.run("INSERT INTO t VALUES (?)", (1,))
        raise ValueError("no")
    with own_transaction(connection, application):
        application.run("INSERT INTO t VALUES (?)", (2,))
    application.rollback()
    with own_transaction(connection, application):
        assert application.run("SELECT n FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize("isolation", [None, "DEFERRED"])
def test_every_mode_of_sqlite_has_transactions(tmp_path: Path, isolation: Any) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=isolation)) as connection:
        check_transactions(connection)


@pytest.mark.parametrize("autocommit", [False, True])
def test_every_mode_of_psycopg_has_transactions(database: str, autocommit: bool) -> None:
    with psycopg.connect(database, autocommit=autocommit) as connection:
        check_transactions(connection)


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_both_kinds_of_sqlalchemy_have_transactions(database: str, kind: str) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import NullPool

    url = database.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() if kind == "connection" else Session(engine) as connection:
        check_transactions(connection)


def test_other_libraries_are_refused() -> None:
    with pytest.raises(TailraceError, match=r"builtins\.object"):
        application_of(object())  # type: ignore[arg-type]
