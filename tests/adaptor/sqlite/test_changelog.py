"""What the triggers note, whatever users do to their tables."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.sqlite import reader as reader_module
from tailrace.adaptor.sqlite.options import SqliteReaderOptions
from tailrace.adaptor.sqlite.reader import SqliteReader
from tailrace.errors import TailraceError
from tailrace.message import Message, Op
from tailrace.source.contract import Position
from tests.adaptor.contract import HOSTILE_NAMES, messages
from tests.adaptor.sqlite.databases import ask, connected, run


@dataclass
class Shop:
    """A database whose changes are captured since `install`."""

    path: Path
    start: Position | None = None

    @property
    def reader(self) -> SqliteReader:
        return SqliteReaderOptions(path=str(self.path), busy=1).open()

    def install(self) -> None:
        self.reader.install(self.reader.tables())
        if self.start is None:
            self.start = self.reader.position()

    def changes(self) -> list[Message]:
        assert self.start is not None
        pieces = self.reader.plan_changes(self.start, self.reader.position())
        return messages(batch for piece in pieces for batch in self.reader.read_changes(piece))

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        return [(message.op.name, dict(message.data or {})) for message in self.changes()]

    def replayed(self, *key: str) -> list[dict[str, Any]]:
        """The state that somebody ends with who had the table when it was empty, and applies the changes by key."""
        state: dict[tuple[Any, ...], dict[str, Any]] = {}
        for message in self.changes():
            if message.before is not None:
                state.pop(tuple(message.before[name] for name in key), None)
            data = dict(message.data or {})
            place = tuple(data[name] for name in key)
            state.pop(place, None)
            if message.op is not Op.DELETE:
                state[place] = data
        return sorted(state.values(), key=repr)

    def held(self, table: str, *columns: str) -> list[dict[str, Any]]:
        found = ask(self.path, f"SELECT {', '.join(columns)} FROM {table}")
        return sorted((dict(zip(columns, row, strict=True)) for row in found), key=repr)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    path = tmp_path / "shop.db"
    run(path, "PRAGMA journal_mode = WAL")
    yield Shop(path)


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
def test_rows_replaced_by_another_unique_value(shop: Shop, recursive: str) -> None:
    """SQLite fires no delete trigger for them, unless recursive triggers are on."""
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT UNIQUE, b INT, c INT, UNIQUE(b, c))")
    shop.install()
    run(
        shop.path,
        f"PRAGMA recursive_triggers = {recursive}",
        "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2), (3, 'z', 3, 3), (4, NULL, 4, NULL)",
        "INSERT OR REPLACE INTO t VALUES (10, 'x', 2, 2)",  # takes the place of two rows
        "REPLACE INTO t VALUES (3, 'z', 30, 3)",  # and of itself
        "UPDATE OR REPLACE t SET a = 'z' WHERE id = 10",
        "UPDATE OR REPLACE t SET id = 11, b = 4 WHERE id = 10",
    )
    columns = ("id", "a", "b", "c")
    assert shop.replayed("id") == shop.held("t", *columns)
    deleted = {data["id"] for op, data in shop.told() if op == "DELETE"}
    assert deleted == {1, 2, 3} if recursive == "OFF" else {1, 2, 3} <= deleted


def test_a_replaced_row_without_a_primary_key(shop: Shop) -> None:
    """A key-value table, in which each REPLACE makes a row with a new rowid."""
    run(shop.path, "CREATE TABLE kv(k TEXT UNIQUE COLLATE NOCASE, v INT)")
    shop.install()
    run(shop.path, *(f"INSERT OR REPLACE INTO kv VALUES ('{key}', {v})" for v, key in enumerate("abAcBa")))
    assert shop.replayed("rowid") == shop.held("kv", "k", "v", "rowid")
    assert len(shop.held("kv", "k")) == 3


def test_inserts_that_were_ignored_or_turned_into_updates(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT UNIQUE)")
    shop.install()
    run(
        shop.path,
        "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
        "INSERT OR IGNORE INTO t VALUES (3, 'x'), (4, 'z')",
        "INSERT INTO t VALUES (5, 'x') ON CONFLICT(a) DO UPDATE SET id = 50",
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET id = 51 WHERE id = 50",
    )
    assert shop.replayed("id") == shop.held("t", "id", "a") == [{"id": 4, "a": "z"}, {"id": 51, "a": "x"}]
    with connected(shop.path) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO t VALUES (9, 'z')")
    assert shop.replayed("id") == shop.held("t", "id", "a")


def test_what_was_rolled_back_is_not_noted(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        connection.rollback()
        connection.execute("INSERT INTO t VALUES (2)")
        connection.commit()
    assert shop.told() == [("INSERT", {"id": 2})]


def test_the_program_does_not_notice(shop: Shop) -> None:
    """Neither its last rowid nor its count of changes."""
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT UNIQUE)")
    shop.install()
    with connected(shop.path) as connection:
        cursor = connection.execute("INSERT INTO t(a) VALUES ('x'), ('y'), ('z')")
        assert (cursor.lastrowid, cursor.rowcount) == (3, 3)
        assert connection.execute("SELECT last_insert_rowid(), changes()").fetchone() == (3, 3)
        cursor = connection.execute("INSERT OR REPLACE INTO t(a) VALUES ('x')")
        assert (cursor.lastrowid, cursor.rowcount) == (4, 1)
        assert connection.execute("DELETE FROM t").rowcount == 3


def test_the_users_own_triggers(shop: Shop) -> None:
    run(
        shop.path,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT)",
        "CREATE TABLE audit(id INTEGER PRIMARY KEY, what TEXT)",
        "CREATE TRIGGER tell AFTER INSERT ON t BEGIN INSERT INTO audit(what) VALUES ('new ' || NEW.id);"
        " UPDATE t SET n = n + 1 WHERE id = NEW.id; END",
    )
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (1, 10)")
    changes = sorted(shop.changes(), key=lambda message: message.lsn)
    audits = [message.data for message in changes if message.namespace == "main.audit"]
    assert audits == [{"id": 1, "what": "new 1"}]
    assert {"id": 1, "n": 11} in [message.data for message in changes]


def test_rows_that_go_with_others(shop: Shop) -> None:
    run(
        shop.path,
        "CREATE TABLE p(id INTEGER PRIMARY KEY)",
        "CREATE TABLE c(id INTEGER PRIMARY KEY, p INT REFERENCES p ON DELETE CASCADE)",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO c VALUES (7, 1)",
    )
    shop.install()
    run(shop.path, "PRAGMA foreign_keys = ON", "DELETE FROM p")
    assert ("DELETE", {"id": 7, "p": 1}) in shop.told()


def test_updates_and_deletes_carry_the_row_before(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (3, 'z')", "UPDATE t SET a = 'X' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    found = [(message.op, message.data, message.before) for message in shop.changes()]
    assert found == [
        (Op.INSERT, {"id": 3, "a": "z"}, None),
        (Op.UPDATE, {"id": 1, "a": "X"}, {"id": 1, "a": "x"}),
        (Op.DELETE, {"id": 2, "a": "y"}, {"id": 2, "a": "y"}),
    ]


def test_generated_columns(shop: Shop) -> None:
    columns = "id INTEGER PRIMARY KEY, a INT, v INT AS (a * 2) VIRTUAL, s INT AS (a * 3) STORED"
    run(shop.path, f"CREATE TABLE t({columns})")
    shop.install()
    run(shop.path, "INSERT INTO t(id, a) VALUES (1, 5)")
    assert shop.told() == [("INSERT", {"id": 1, "a": 5, "v": 10, "s": 15})]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names(shop: Shop, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    run(shop.path, f'CREATE TABLE {quoted}({quoted} TEXT PRIMARY KEY, {quoted[:-1]}2" INT UNIQUE) WITHOUT ROWID')
    shop.install()
    run(shop.path, f"INSERT INTO {quoted} VALUES ('a', 1), ('b', 2)", f"REPLACE INTO {quoted} VALUES ('c', 1)")
    assert shop.replayed(name) == [{name: "b", f"{name}2": 2}, {name: "c", f"{name}2": 1}]
    (table,) = shop.reader.tables()
    pieces = shop.reader.plan_copy(table)
    copied = messages(batch for piece in pieces for batch in shop.reader.read_copy(table.namespace, piece))
    assert [message.data for message in copied] == [{name: "b", f"{name}2": 2}, {name: "c", f"{name}2": 1}]


def test_columns_named_like_the_rowid(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE a(rowid TEXT, _rowid_ TEXT)", "CREATE TABLE b(rowid INTEGER PRIMARY KEY, x)")
    run(shop.path, "CREATE TABLE hidden(rowid TEXT, _rowid_ TEXT, oid TEXT)")
    keys = {table.namespace: table.key for table in shop.reader.tables()}
    assert keys == {"main.a": ("oid",), "main.b": ("rowid",)}
    shop.install()
    run(shop.path, "INSERT INTO a VALUES ('x', 'y')", "UPDATE a SET oid = 5")
    assert shop.replayed("oid") == [{"rowid": "x", "_rowid_": "y", "oid": 5}]


def test_what_is_no_ordinary_table_is_left_alone(shop: Shop) -> None:
    run(
        shop.path,
        "CREATE VIRTUAL TABLE words USING fts5(text)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "CREATE VIEW v AS SELECT * FROM t",
        'CREATE TABLE "a/b"(id INTEGER PRIMARY KEY)',
    )
    shop.install()
    assert [table.namespace for table in shop.reader.tables()] == ["main.t"]


def test_changes_keep_the_columns_they_were_written_with(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT)")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (1, 'x')", "ALTER TABLE t ADD COLUMN b INT DEFAULT 5")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (2, 'y', 6)", "ALTER TABLE t RENAME COLUMN a TO z")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (3, 'w', 7)")
    assert shop.told() == [
        ("INSERT", {"id": 1, "a": "x"}),
        ("INSERT", {"id": 2, "a": "y", "b": 6}),
        ("INSERT", {"id": 3, "z": "w", "b": 7}),
    ]


def test_a_table_that_was_made_anew_is_noted_whole(shop: Shop) -> None:
    """As migrations do: its triggers went with the old table, so nobody knows what changed."""
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x')")
    shop.install()
    run(
        shop.path,
        "CREATE TABLE new(id INTEGER PRIMARY KEY, a TEXT)",
        "INSERT INTO new SELECT * FROM t",
        "DROP TABLE t",
        "ALTER TABLE new RENAME TO t",
        "INSERT INTO t VALUES (2, 'unseen')",
    )
    shop.install()
    assert shop.told() == [("UPDATE", {"id": 1, "a": "x"}), ("UPDATE", {"id": 2, "a": "unseen"})]
    shop.install()
    assert len(shop.told()) == 2


def test_a_table_with_another_name(shop: Shop) -> None:
    """Its triggers follow it; they must not note everything twice."""
    run(shop.path, "CREATE TABLE old(id INTEGER PRIMARY KEY)")
    shop.install()
    run(shop.path, "ALTER TABLE old RENAME TO new")
    shop.install()
    run(shop.path, "INSERT INTO new VALUES (1)")
    assert [(message.namespace, message.data) for message in shop.changes()] == [("main.new", {"id": 1})]


def test_a_new_unique_index(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT)")
    shop.install()
    run(shop.path, "CREATE UNIQUE INDEX u ON t(a)")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (1, 'x')", "REPLACE INTO t VALUES (2, 'x')")
    assert shop.replayed("id") == [{"id": 2, "a": "x"}]


def test_a_wider_table_comes_later(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    names = [f"c{number}" for number in range(300)]
    run(shop.path, "INSERT INTO t VALUES (1)", f"CREATE TABLE wide({', '.join(f'{name} INT' for name in names)})")
    shop.install()
    run(shop.path, f"INSERT INTO wide VALUES ({', '.join(map(str, range(300)))})", "UPDATE wide SET c0 = -1")
    last = shop.changes()[-1].data
    assert last == {**{name: number for number, name in enumerate(names)}, "c0": -1, "rowid": 1}


def test_a_table_too_wide_to_capture(shop: Shop) -> None:
    run(shop.path, f"CREATE TABLE wide({', '.join(f'c{number}' for number in range(1000))})")
    with pytest.raises(TailraceError) as caught:
        shop.install()
    assert caught.value.code == "source.unsupported"
    assert ask(shop.path, "SELECT name FROM sqlite_master WHERE name LIKE 'tailrace%'") == []


def test_a_changelog_made_anew_is_not_taken_for_the_old_one(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    shop.reader.uninstall()
    shop.reader.install(shop.reader.tables())
    with pytest.raises(TailraceError) as caught:
        shop.changes()
    assert caught.value.code == "source.position_lost"


def test_a_backup_that_knows_less(shop: Shop, tmp_path: Path) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)", "PRAGMA journal_mode = DELETE")
    shop.install()
    backup = tmp_path / "backup.db"
    shutil.copy(shop.path, backup)
    run(shop.path, "INSERT INTO t VALUES (1)")
    shop.start = shop.reader.position()
    shutil.copy(backup, shop.path)
    with pytest.raises(TailraceError) as caught:
        shop.changes()
    assert caught.value.code == "source.position_lost"
    assert "ends at 0" in caught.value.what


def test_what_was_forgotten_is_not_skipped_silently(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (1)")
    shop.reader.forget(shop.reader.position())
    with pytest.raises(TailraceError) as caught:
        shop.changes()
    assert caught.value.code == "source.position_lost"


def test_without_a_changelog(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    with pytest.raises(TailraceError) as caught:
        shop.reader.position()
    assert caught.value.code == "source.position_lost"
    shop.reader.uninstall()


def test_numbers_are_not_used_again(shop: Shop) -> None:
    """Else a position would be taken for one that has passed."""
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (1)")
    first = shop.reader.position()
    shop.reader.forget(first)
    assert ask(shop.path, "SELECT count(*) FROM tailrace_changelog") == [(0,)]
    assert shop.reader.position() == first
    run(shop.path, "INSERT INTO t VALUES (2)")
    assert shop.reader.position()["seq"] == first["seq"] + 1


def test_a_program_that_empties_the_sequences(shop: Shop) -> None:
    """Numbers begin again at 1, below what was read already; nobody would ever read them."""
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (1), (2)", "DELETE FROM sqlite_sequence")
    assert len(shop.told()) == 2
    shop.reader.forget(shop.reader.position())
    run(shop.path, "DELETE FROM sqlite_sequence", "INSERT INTO t VALUES (3)")
    for ask_reader in (shop.reader.position, shop.changes):
        with pytest.raises(TailraceError) as caught:
            ask_reader()
        assert caught.value.code == "source.position_lost"
        assert "sqlite_sequence" in caught.value.what
    shop.install()
    assert shop.start is not None
    assert shop.reader.position()["id"] != shop.start["id"]


def test_changes_forgotten_while_they_are_read(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    with connected(shop.path) as connection:
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(2000)])
    assert shop.start is not None
    (piece,) = shop.reader.plan_changes(shop.start, shop.reader.position())
    batches = shop.reader.read_changes(piece)
    next(iter(batches))
    shop.reader.forget(shop.reader.position())
    with pytest.raises(TailraceError) as caught:
        list(batches)
    assert caught.value.code == "source.position_lost"


def test_forgetting_waits_for_nobody(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_FORGET_BUSY_S", 0.01)
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (1), (2)")
    end = shop.reader.position()
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        shop.reader.forget(end)
        other.execute("COMMIT")
    assert len(shop.told()) == 2
    shop.reader.forget(end)
    assert ask(shop.path, "SELECT count(*) FROM tailrace_changelog") == [(0,)]


def test_a_locked_database_is_waited_for(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    with closing(sqlite3.connect(shop.path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.2, other.execute, ["COMMIT"])
        release.start()
        shop.install()
        release.join()
    assert shop.reader.position()["seq"] == 0


def test_time_is_when_it_happened(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    ((before,),) = ask(shop.path, "SELECT CAST(strftime('%s', 'now') AS INTEGER)")
    run(shop.path, "INSERT INTO t VALUES (1)")
    ((after,),) = ask(shop.path, "SELECT CAST(strftime('%s', 'now') AS INTEGER)")
    (message,) = shop.changes()
    assert before * 1_000_000 - 1000 <= message.timestamp <= (after + 1) * 1_000_000


def test_many_changes_in_many_pieces(shop: Shop) -> None:
    run(shop.path, "CREATE TABLE a(id INTEGER PRIMARY KEY)", "CREATE TABLE b(id INTEGER PRIMARY KEY, x TEXT)")
    shop.install()
    with connected(shop.path) as connection:
        for number in range(60_000):
            table = "a(id)" if number % 2 else "b(id)"
            connection.execute(f"INSERT INTO {table} VALUES (?)", (number,))
    assert shop.start is not None
    assert len(shop.reader.plan_changes(shop.start, shop.reader.position())) == 2
    found = sorted(shop.changes(), key=lambda message: message.lsn)
    assert [message.data["id"] for message in found if message.data] == list(range(60_000))


def test_a_table_that_gets_another_name(shop: Shop) -> None:
    """Its triggers go with it, but what happens to it from then on is nothing of the table that it was."""
    run(shop.path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    run(shop.path, "ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (1)")
    assert shop.changes() == []
    shop.install()
    run(shop.path, "INSERT INTO u VALUES (2)", "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    shop.install()
    run(shop.path, "INSERT INTO t VALUES (3)")
    assert [(m.namespace, m.data) for m in shop.changes()] == [("main.u", {"id": 2}), ("main.t", {"id": 3})]


def test_a_second_pipeline_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    first, second = (SqliteReaderOptions(path=path, pipeline=name).open() for name in ("first", "second"))
    first.install(first.tables())
    with pytest.raises(TailraceError, match=r"noted for pipeline first.*uninstall"):
        second.install(second.tables())
    with pytest.raises(TailraceError, match=r"noted for pipeline first"):
        second.uninstall()
    run(path, "INSERT INTO t VALUES (1)")
    assert first.plan_changes({**first.position(), "seq": 0}, first.position())
    first.uninstall()
    second.install(second.tables())
