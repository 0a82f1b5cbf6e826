"""Applications that are killed while they receive."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.queues.receiving import Receiver
from tests.crash.children import Child
from tests.queues.arrivals import arrive, arrive_snapshot
from tests.queues.workers import apply_in, receive_until_poison

pytestmark = pytest.mark.crash

_TABLE = "CREATE TABLE applied (number INTEGER PRIMARY KEY, source TEXT, said TEXT)"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "queues") as log:
        yield log


@pytest.fixture(params=["sqlite3", "psycopg", "sqlalchemy sqlite", "sqlalchemy postgres"])
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def address(request: pytest.FixtureRequest, library: str, tmp_path: Path) -> str:
    """A database with an empty table."""
    if library in ("sqlite3", "sqlalchemy sqlite"):
        path = str(tmp_path / "application.db")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(_TABLE)
        return path
    found: str = request.getfixturevalue("database")
    with psycopg.connect(found, autocommit=True) as connection_to_postgres:
        connection_to_postgres.execute(_TABLE.replace("INTEGER", "SERIAL"))
    return found


def applied(address: str) -> list[tuple[str, str]]:
    query = "SELECT source, said FROM applied ORDER BY number"
    if "://" in address:
        with psycopg.connect(address) as connection_to_postgres:
            return connection_to_postgres.execute(query).fetchall()
    with closing(sqlite3.connect(address)) as connection:
        return connection.execute(query).fetchall()


def test_what_kills_the_process_is_parked_at_last(log: CommitLog) -> None:
    arrive(log, "stock", "north", "a", "b", "poison", "c")
    arrive(log, "stock", "south", "x")
    lives = []
    for _ in range(4):
        with Child(receive_until_poison, log.directory) as child:
            lives.append(child.rest())
    assert [life[-1] for life in lives[:3]] == [("poison", 1), ("poison", 2), ("poison", 3)]
    assert "c" in [payload for payload, _ in lives[3]]
    assert "poison" not in [payload for payload, _ in lives[3]]
    received = Receiver(log.directory, "stock")
    (parked,) = received.parked()
    assert (parked.attempts, parked.reason) == (3, "tried 3 times: the process ended while it had it")
    assert list(received.messages(0)) == []


def test_poison_in_a_snapshot(log: CommitLog) -> None:
    arrive_snapshot(log, "stock", "north", "r1", "a", "b", "poison", "c")
    lives = []
    for _ in range(4):
        with Child(receive_until_poison, log.directory) as child:
            lives.append([payload for payload, _ in child.rest()])
    assert lives == [["a", "b", "poison"]] * 3 + [["a", "b", "c", ""]]


def test_a_crash_between_apply_and_answer_repeats_it(log: CommitLog) -> None:
    """Without transactions of its own an application gets a message at least once."""
    arrive(log, "stock", "north", "a", "b")
    for message in Receiver(log.directory, "stock").messages(0):
        assert message.payload == b"a"
        break
    found = [message.attempt for message in Receiver(log.directory, "stock").messages(0)]
    assert found == [2]


def test_a_crash_between_apply_and_answer_repeats_nothing(log: CommitLog, address: str, library: str) -> None:
    arrive_snapshot(log, "stock", "north", "r1", "a", "b", "c")
    arrive(log, "stock", "north", "d", "last")
    for dies_before in ("b", "d"):
        with Child(apply_in, log.directory, address, library, dies_before) as child:
            assert dies_before not in child.rest()
    with Child(apply_in, log.directory, address, library, "") as child:
        assert child.rest() == ["last"]
    assert applied(address) == [("north", text) for text in ("a", "b", "c", "", "d", "last")]


@pytest.mark.parametrize("library", ["sqlite3", "psycopg"], indirect=True)
def test_exactly_once_whenever_it_is_killed(log: CommitLog, address: str, library: str) -> None:
    chance = random.Random(7)
    sent = [f"m{number}" for number in range(100)]
    for at in range(0, len(sent), 10):
        arrive(log, "stock", "north", *sent[at : at + 10])
        arrive(log, "stock", "south", *sent[at : at + 10])
    for _ in range(4):
        with Child(apply_in, log.directory, address, library, "") as child:
            for _ in range(chance.randint(1, 40)):
                child.hear()
            child.kill()
    arrive(log, "stock", "north", "last")
    with Child(apply_in, log.directory, address, library, "") as child:
        child.rest()
    found = applied(address)
    assert [text for source, text in found if source == "north"] == [*sent, "last"]
    assert [text for source, text in found if source == "south"] == sent
