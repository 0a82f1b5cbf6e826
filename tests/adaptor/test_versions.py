"""What messages are against the rows that are there, in SQLite and in PostgreSQL alike."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tailrace.adaptor.postgres import storesql
from tailrace.adaptor.postgres.versions import PostgresVersions
from tailrace.adaptor.postgres.versions import all_versions as all_of_postgres
from tailrace.adaptor.sqlite.versions import SqliteVersions
from tailrace.adaptor.sqlite.versions import all_versions as all_of_sqlite
from tailrace.adaptor.versions import VersionRow
from tailrace.deliver.messages import Messages
from tailrace.log.batch import TIMESTAMP
from tailrace.message import NodeId, Op
from tests.adaptor.postgres.conftest import database, postgres

__all__ = ["database", "postgres"]  # fixtures

Versions = SqliteVersions | PostgresVersions
KEY = ("id",)


class Kept:
    """The versions of one store, in one transaction."""

    def __init__(self, versions: Versions, connection: Any) -> None:
        self.versions = versions
        self._connection = connection

    def all(self) -> list[VersionRow]:
        every = all_of_sqlite if isinstance(self.versions, SqliteVersions) else all_of_postgres
        return [row for rows in every(self._connection) for row in rows]


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            yield Kept(SqliteVersions(connection), connection)
    else:
        with psycopg.connect(request.getfixturevalue("database")) as server:
            for statement in storesql.PREPARE_STORE:
                server.execute(statement)
            yield Kept(PostgresVersions(server), server)


def messages(origin: int, *told: tuple[int, int | None, int]) -> Messages:
    """Updates: key, the key before or None, and time, which is the lsn too."""
    id_ = [pa.field("id", pa.int64())]
    times = pa.array([at for _, _, at in told], pa.int64())
    mask = pa.array([was is None for _, was, _ in told])
    columns: dict[str, Any] = {
        "op": pa.array([int(Op.UPDATE)] * len(told), pa.int8()),
        "timestamp": times.cast(TIMESTAMP),
        "lsn": times,
        "data": pa.StructArray.from_arrays([pa.array([key for key, _, _ in told], pa.int64())], fields=id_),
        "before": pa.StructArray.from_arrays(
            [pa.array([was for _, was, _ in told], pa.int64())], fields=id_, mask=mask
        ),
    }
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Messages("main.t", made, KEY, origin=NodeId(origin))


def test_nothing_is_known(kept: Kept) -> None:
    judged = kept.versions.judge(messages(1, (1, None, 5), (1, None, 4), (2, None, 1)), KEY)
    assert judged.is_newer == [True, False, True]
    assert judged.is_foreign == [False, False, False]
    assert kept.all() == []


def test_newer_and_foreign(kept: Kept) -> None:
    first = messages(2, (1, None, 10), (2, None, 10))
    kept.versions.note(first, KEY)
    judged = kept.versions.judge(messages(3, (1, None, 9), (1, None, 11), (1, None, 12), (2, None, 10)), KEY)
    assert judged.is_newer == [False, True, True, True]  # at the same time the greater node is newer
    assert judged.is_foreign == [True, True, False, True]
    assert kept.versions.judge(messages(2, (1, None, 12)), KEY).is_foreign == [False]
    assert kept.versions.judge(first, KEY).is_newer == [False, False]


def test_moves(kept: Kept) -> None:
    kept.versions.note(messages(2, (1, None, 10)), KEY)
    judged = kept.versions.judge(messages(3, (5, 1, 9), (6, 1, 11), (7, 6, 12)), KEY)
    assert judged.is_move == [True, True, True]
    assert judged.is_newer == [True, True, True]
    assert judged.may_move == [False, True, True]
    assert judged.is_foreign == [True, True, False]


def test_beaten(kept: Kept) -> None:
    """By what is newer, of another node, and was there before."""
    kept.versions.note(messages(2, (1, None, 10), (2, None, 20)), KEY)
    late = messages(3, (1, None, 9), (1, None, 11), (2, None, 15), (3, None, 1), (5, 1, 8), (2, 1, 7))
    assert kept.versions.beaten(late, KEY, lambda _, lsn: lsn <= 10) == [True, False, False, False, False, False]
    assert kept.versions.beaten(late, KEY, lambda _, lsn: lsn <= 20) == [True, False, True, False, False, True]
    own = messages(2, (1, None, 9), (2, None, 15))
    assert kept.versions.beaten(own, KEY, lambda *_: True) == [False, False]


def test_what_is_noted_never_goes_back(kept: Kept) -> None:
    """Unless that is said."""
    kept.versions.note(messages(2, (1, None, 10), (1, None, 12), (1, None, 11)), KEY)
    kept.versions.note(messages(3, (1, None, 5), (2, 1, 6)), KEY)
    two, three = f"{2:020d}", f"{3:020d}"
    assert kept.all() == [("main.t", "[1]", 12, two, 12), ("main.t", "[2]", 6, three, 6)]
    kept.versions.note(messages(3, (1, None, 7)), KEY, always=True)
    assert kept.all()[0] == ("main.t", "[1]", 7, three, 7)


def test_what_a_source_knows(kept: Kept) -> None:
    """Versions may come twice: the newer one stays."""
    origin = f"{7:020d}"
    rows: list[VersionRow] = [("main.t", f"[{number}]", 5, origin, number) for number in range(25_000)]
    kept.versions.put([*rows, ("main.t", "[3]", 9, origin, 9), ("main.t", "[4]", 1, origin, 1)])
    found = kept.all()
    assert len(found) == len(rows)
    assert ("main.t", "[3]", 9, origin, 9) in found
    assert ("main.t", "[4]", 5, origin, 4) in found
