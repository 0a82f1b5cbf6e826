"""By what the rows of a table are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.adaptor.sqlite.options import SqliteReaderOptions
from tailrace.adaptor.sqlite.reader import SqliteReader
from tailrace.log.batch import key_of
from tailrace.message import Message
from tests.adaptor.contract import messages, plain
from tests.adaptor.sqlite.databases import ask, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def open_reader(path: Path) -> SqliteReader:
    return SqliteReaderOptions(path=str(path), piece_rows=2).open()


def key(path: Path) -> tuple[str, ...]:
    (table,) = open_reader(path).tables()
    return table.key


def copy(path: Path) -> list[Message]:
    reader = open_reader(path)
    (table,) = reader.tables()
    batches = [batch for piece in reader.plan_copy(table) for batch in reader.read_copy("main.t", plain(piece))]
    assert {key_of(batch.rows.schema) for batch in batches} == {table.key}
    return messages(batches)


@pytest.mark.parametrize(
    ("form", "rows", "expected"),
    [
        ("k TEXT PRIMARY KEY, v", "('a', 1), ('b', 2)", ("k",)),
        ("k TEXT PRIMARY KEY, v", "('a', 1), (NULL, 2), (NULL, 3)", ("rowid",)),
        ("k TEXT PRIMARY KEY, rowid", "('a', 1), (NULL, 2), (NULL, 3)", ("_rowid_",)),
        ("k TEXT, v, PRIMARY KEY(v, k)", "('a', 1), (NULL, 2), (NULL, 2)", ("rowid",)),
        ("k INTEGER PRIMARY KEY, v", "(NULL, 1), (NULL, 2)", ("k",)),
        ("k INTEGER PRIMARY KEY DESC, v", "(NULL, 1), (NULL, 2)", ("rowid",)),
        ("k TEXT PRIMARY KEY NOT NULL, v", "('a', 1)", ("k",)),
    ],
)
def test_rows_are_known_by_a_key_that_tells_them_apart(
    path: Path, form: str, rows: str, expected: tuple[str, ...]
) -> None:
    run(path, f"CREATE TABLE t({form})", f"INSERT INTO t VALUES {rows}")
    assert key(path) == expected
    found = [message.data for message in copy(path)]
    assert len({tuple(row[name] for name in expected) for row in found if row}) == len(found) == rows.count("(")


def test_a_key_stays_what_it_was_when_capture_began(path: Path) -> None:
    """Whatever comes or goes later: destinations know the rows by it."""
    run(path, "CREATE TABLE t(k TEXT PRIMARY KEY, v)", "INSERT INTO t VALUES (NULL, 1), (NULL, 2)")
    reader = open_reader(path)
    reader.install(reader.tables())
    start = reader.position()
    run(path, "UPDATE t SET v = 3 WHERE v = 2", "DELETE FROM t WHERE v = 1", "UPDATE t SET k = 'a' WHERE v = 3")
    assert key(path) == ("rowid",)
    installed = ask(path, "SELECT name FROM sqlite_master ORDER BY name")
    reader.install(reader.tables())
    assert ask(path, "SELECT name FROM sqlite_master ORDER BY name") == installed
    pieces = reader.plan_changes(start, reader.position())
    told = [message.data for message in messages(b for piece in pieces for b in reader.read_changes(piece))]
    assert [(row["rowid"], row["k"], row["v"]) for row in told if row] == [(2, None, 3), (1, None, 1), (2, "a", 3)]


def test_a_key_with_nulls_that_come_later_stays(path: Path) -> None:
    run(path, "CREATE TABLE t(k TEXT PRIMARY KEY, v)", "INSERT INTO t VALUES ('a', 1)")
    reader = open_reader(path)
    reader.install(reader.tables())
    run(path, "INSERT INTO t VALUES (NULL, 1), (NULL, 2)")
    assert key(path) == ("k",)


def test_a_row_that_nothing_tells_apart(path: Path) -> None:
    run(path, "CREATE TABLE t(k TEXT PRIMARY KEY, rowid, _rowid_, oid)", "INSERT INTO t(k) VALUES (NULL), (NULL)")
    assert open_reader(path).tables() == []
    assert "NULL in its key" in open_reader(path).left_out()["main.t"]
