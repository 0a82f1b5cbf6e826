"""What SQLite as a destination does beyond the contract of all writers."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.sqlite.options import SqliteWriterOptions
from tailrace.adaptor.sqlite.writer import SqliteWriter, table_name
from tailrace.adaptor.values import to_json
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.message import Offset, Op
from tests.adaptor.contract import fields, row, write_of
from tests.adaptor.sqlite.databases import ask, connected, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def open_writer(path: Path, **options: Any) -> SqliteWriter:
    return SqliteWriterOptions.model_validate({"path": str(path), "consumer": "c", **options}).open()


def deliver(path: Path, *batches: Messages, **options: Any) -> None:
    writer = open_writer(path, **options)
    try:
        for batch in batches:
            writer.prepare(Target(batch.namespace, pa.schema(list(batch.data.type)), batch.key))
            writer.write(batch)
            writer.commit(Offset(batch.offsets()[-1].as_py() or 0))
    finally:
        writer.close()


def refusal(path: Path, *batches: Messages, **options: Any) -> TailraceError:
    with pytest.raises(TailraceError) as caught:
        deliver(path, *batches, **options)
    return caught.value


def one_column(name: str, column: pa.Array[Any], field: pa.Field[Any] | None = None, first: int = 0) -> Messages:
    """Rows 1, 2, … with one more column."""
    ids = pa.array(range(1, len(column) + 1), pa.int64())
    data = pa.StructArray.from_arrays(
        [ids, column], fields=[pa.field("id", pa.int64()), field or pa.field(name, column.type)]
    )
    return write_of([(Op.INSERT, row(at)) for at in range(len(column))], first=first).with_column("data", data)


def json_column(name: str, values: list[Any], first: int = 0) -> Messages:
    field = pa.field(name, pa.string(), metadata={TYPE_METADATA: JSON})
    return one_column(name, pa.array([to_json(value) for value in values], pa.string()), field, first)


@pytest.mark.parametrize(
    ("namespace", "table"), [("main.orders", "orders"), ("public.a.b", "a.b"), ("orders", "orders"), ("x.", "x.")]
)
def test_the_table_of_a_namespace(namespace: str, table: str) -> None:
    assert table_name(namespace) == table


def test_created_tables_say_what_they_hold(path: Path) -> None:
    schema = fields(
        ("id", pa.int64()),
        ("ok", pa.bool_()),
        ("n", pa.float32()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("d", pa.date32()),
    )
    deliver(path, write_of([(Op.INSERT, {"id": 1})], schema=schema))
    found = ask(path, "SELECT name, type, pk FROM pragma_table_info('t')")
    assert found == [
        ("id", "INTEGER", 1),
        ("ok", "BOOLEAN", 0),
        ("n", "REAL", 0),
        ("s", "TEXT", 0),
        ("b", "BLOB", 0),
        ("d", "TEXT", 0),
    ]
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]


def test_rows_and_offset_are_one_transaction(path: Path) -> None:
    """Whoever looks sees both or neither."""
    writer = open_writer(path)
    batch = write_of([(Op.INSERT, row(1))], first=7)
    writer.prepare(Target("main.t", pa.schema(list(batch.data.type)), batch.key))
    writer.write(batch)
    assert ask(path, "SELECT name FROM sqlite_master") == []
    writer.commit(Offset(9))
    assert ask(path, 'SELECT t.id, a."offset" FROM t, tailrace_applied AS a') == [(1, 9)]
    assert writer.applied("main.t") == 9
    writer.close()


def test_offsets_are_those_of_the_consumer(path: Path) -> None:
    deliver(path, write_of([(Op.INSERT, row(1))], first=7))
    assert open_writer(path).applied("main.t") == 7
    assert open_writer(path, consumer="other").applied("main.t") is None


def test_an_offset_never_goes_back(path: Path) -> None:
    for first in (70, 7):
        deliver(path, write_of([(Op.INSERT, row(1))], first=first))
    assert open_writer(path).applied("main.t") == 70


def test_json_fields_become_what_they_stand_for(path: Path) -> None:
    values = [1, 1.5, "12", b"\x00", None, float("inf"), 2**53 + 1, [1, 2], {"a": None}, True]
    deliver(path, json_column("v", values))
    expected: list[Any] = [*values[:7], "[1, 2]", '{"a": null}', 1]
    assert [found for (found,) in ask(path, "SELECT v FROM t ORDER BY id")] == expected


def test_broken_text_stays_text(path: Path) -> None:
    text = json.dumps({"$text": "/w=="})
    field = pa.field("v", pa.string(), metadata={TYPE_METADATA: JSON})
    deliver(path, one_column("v", pa.array([text, '"fine"']), field))
    assert ask(path, "SELECT typeof(v), CAST(v AS BLOB) FROM t ORDER BY id") == [("text", b"\xff"), ("text", b"fine")]


@pytest.mark.parametrize("later", [pa.array(["007", "x"]), pa.array(["1e3", None])], ids=str)
def test_text_after_numbers_stays_text(path: Path, later: pa.Array[Any]) -> None:
    """SQLite would turn what looks like a number into one, by the column's declared type."""
    deliver(path, one_column("v", pa.array([1, 2, 3])))
    run(path, "CREATE INDEX other ON t(id)")
    deliver(path, one_column("v", later, first=3))
    found = [value for (value,) in ask(path, "SELECT v FROM t ORDER BY id")]
    assert found == [*later.to_pylist(), 3]


def test_whole_numbers_after_floats_stay_exact(path: Path) -> None:
    deliver(path, one_column("v", pa.array([0.5, 0.5])), one_column("v", pa.array([2**60 + 1]), first=2))
    assert ask(path, "SELECT v FROM t ORDER BY id") == [(2**60 + 1,), (0.5,)]


def test_a_key_cannot_change_its_type(path: Path) -> None:
    deliver(path, write_of([(Op.INSERT, {"id": 1})], schema=fields(("id", pa.int64()))))
    error = refusal(path, write_of([(Op.INSERT, {"id": "007"})], schema=fields(("id", pa.string())), first=1))
    assert error.code == "destination.refused"
    assert "'id'" in error.what
    assert ask(path, "SELECT id FROM t") == [(1,)]


def test_an_existing_table_is_used_as_it_is(path: Path) -> None:
    run(
        path,
        "CREATE TABLE T(ID INTEGER PRIMARY KEY, own DEFAULT 'mine', name TEXT, amount REAL, twice AS (amount * 2))",
    )
    schema = fields(("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("twice", pa.float64()))
    changes = [(Op.INSERT, {**row(1, "x", 2.0), "twice": 99.0})]
    for first in (0, 1):
        deliver(path, write_of(changes, first=first, schema=schema))
    assert ask(path, "SELECT * FROM t") == [(1, "mine", "x", 2.0, 4.0)]


def test_columns_of_others_survive_an_update(path: Path) -> None:
    deliver(path, write_of([(Op.INSERT, row(1, "a"))]))
    run(path, "ALTER TABLE t ADD COLUMN note TEXT", "UPDATE t SET note = 'kept'")
    deliver(path, write_of([(Op.UPDATE, row(1, "b"))], first=1))
    assert ask(path, "SELECT name, note FROM t") == [("b", "kept")]


def test_a_table_without_a_unique_key_is_refused(path: Path) -> None:
    run(path, "CREATE TABLE t(id INT, name TEXT, amount REAL)")
    error = refusal(path, write_of([(Op.INSERT, row(1))]))
    assert error.code == "destination.refused"
    assert "unique" in error.what
    run(path, 'CREATE UNIQUE INDEX later ON t("id")')
    deliver(path, write_of([(Op.INSERT, row(1)), (Op.UPDATE, row(1, "m"))]))
    assert ask(path, "SELECT id, name FROM t") == [(1, "m")]


def test_a_partial_index_is_no_key(path: Path) -> None:
    run(path, "CREATE TABLE t(id INT, name TEXT, amount REAL)", "CREATE UNIQUE INDEX p ON t(id) WHERE id > 5")
    assert refusal(path, write_of([(Op.INSERT, row(1))])).code == "destination.refused"


def test_another_key(path: Path) -> None:
    changes = [(Op.INSERT, row(1, "a")), (Op.INSERT, row(2, "a")), (Op.DELETE, row(3, "b"))]
    deliver(path, write_of(changes, key=()), key={"main.t": ["name"]})
    assert ask(path, "SELECT id, name FROM t") == [(2, "a")]


def test_a_key_without_a_value(path: Path) -> None:
    """No two such rows are the same one, so none may take the place of another."""
    key = ("id", "name")
    deliver(path, write_of([(Op.INSERT, row(1, "a"))], key=key))
    error = refusal(path, write_of([(Op.INSERT, row(2, None)), (Op.INSERT, row(2, None))], key=key, first=5))
    assert error.code == "destination.refused"
    assert "key column name at offset 5" in error.what
    deliver(path, write_of([(Op.UPDATE, row(2, "b"), row(2, None))], key=key, first=7))  # it has got its key
    assert ask(path, "SELECT id, name FROM t") == [(1, "a"), (2, "b")]


def test_messages_without_their_key(path: Path) -> None:
    part = fields(("name", pa.string()))
    deliver(path, write_of([(Op.INSERT, row(1))]))
    error = refusal(path, write_of([(Op.UPDATE, {"name": "x"})], schema=part, first=5))
    assert error.code == "destination.refused"
    assert "id" in error.what
    assert "5" in error.what


def test_two_namespaces_of_one_table(path: Path) -> None:
    deliver(path, write_of([(Op.INSERT, row(1))]))
    error = refusal(path, write_of([(Op.INSERT, row(2))], namespace="public.T", first=1))
    assert error.code == "destination.refused"
    assert "main.t" in error.what
    together = (write_of([(Op.INSERT, row(1))], namespace=f"{schema}.new") for schema in ("a", "b"))
    assert refusal(path, *together).code == "destination.refused"


@pytest.mark.parametrize("namespace", ["main.tailrace_applied", "main.sqlite_master"])
def test_reserved_names(path: Path, namespace: str) -> None:
    assert refusal(path, write_of([(Op.INSERT, row(1))], namespace=namespace)).code == "destination.refused"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT NOT NULL, amount REAL)", "NOT NULL"),
        ("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT CHECK (length(name) < 6), amount REAL)", "CHECK"),
        ("CREATE TABLE t(id INTEGER PRIMARY KEY, name INT, amount REAL) STRICT", "TEXT value in INT column"),
        ("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, amount REAL UNIQUE)", "UNIQUE"),
    ],
)
def test_what_sqlite_refuses(path: Path, form: str, said: str) -> None:
    run(path, form)
    changes = [(Op.INSERT, row(1, "fine", 1.0)), (Op.INSERT, row(2, "secret", 1.0)), (Op.INSERT, row(3, None, 1.0))]
    error = refusal(path, write_of(changes, first=10), create=False)
    assert error.code == "destination.refused"
    assert "main.t, offsets 10..12" in error.what
    assert said in error.what
    assert "secret" not in str(error)
    assert ask(path, "SELECT * FROM t") == []


def test_a_number_too_large(path: Path) -> None:
    error = refusal(path, one_column("v", pa.array([2**63], pa.uint64())))
    assert error.code == "destination.refused"


def test_nan_becomes_null(path: Path) -> None:
    deliver(path, one_column("v", pa.array([float("nan")])))
    assert ask(path, "SELECT v FROM t") == [(None,)]


def test_a_missing_directory(tmp_path: Path) -> None:
    error = refusal(tmp_path / "no" / "copy.db", write_of([(Op.INSERT, row(1))]))
    assert error.code == "destination.unreachable"
    assert "mkdir" in error.hint
    assert not (tmp_path / "no").exists()


def test_nothing_is_created_unless_allowed(path: Path) -> None:
    assert refusal(path, write_of([(Op.INSERT, row(1))]), create=False).code == "destination.unreachable"
    assert not path.exists()
    run(path, "CREATE TABLE other(id)")
    error = refusal(path, write_of([(Op.INSERT, row(1))]), create=False)
    assert error.code == "destination.refused"
    assert ask(path, "SELECT name FROM sqlite_master") == [("other",)]


def test_what_is_no_database(path: Path) -> None:
    path.write_text("nothing of the kind" * 100)
    assert refusal(path, write_of([(Op.INSERT, row(1))])).code == "destination.unreachable"


def test_a_locked_database(path: Path) -> None:
    run(path, "CREATE TABLE other(id)")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        error = refusal(path, write_of([(Op.INSERT, row(1))]), busy=0.01)
        assert error.code == "destination.unreachable"
        assert "locked" in error.what
        release = threading.Timer(0.2, other.execute, ["COMMIT"])
        release.start()
        deliver(path, write_of([(Op.INSERT, row(1))]), busy=20)
        release.join()
    assert ask(path, "SELECT id FROM t") == [(1,)]


def test_a_receive_view_gets_the_rows(path: Path) -> None:
    run(
        path,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, amount REAL)",
        "CREATE VIEW t_ReceiveView AS SELECT * FROM t",
        "CREATE TRIGGER receive INSTEAD OF INSERT ON t_ReceiveView WHEN NEW.amount > 0 BEGIN"
        " INSERT OR REPLACE INTO t VALUES (NEW.id, upper(NEW.name), NEW.amount); END",
    )
    changes = [(Op.INSERT, row(1, "a")), (Op.INSERT, row(2, "b", -1.0)), (Op.INSERT, row(3, "c")), (Op.DELETE, row(3))]
    deliver(path, write_of(changes), write_of([(Op.UPDATE, row(1, "z"))], first=4))
    assert ask(path, "SELECT id, name FROM t") == [(1, "Z")]
    deliver(path, write_of([(Op.DELETE, row(1))], first=5))
    assert ask(path, "SELECT * FROM t") == []


def test_a_receive_view_that_deletes(path: Path) -> None:
    run(
        path,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, amount REAL, gone INT)",
        "INSERT INTO t(id) VALUES (1)",
        "CREATE VIEW t_ReceiveView AS SELECT * FROM t",
        "CREATE TRIGGER gone INSTEAD OF DELETE ON t_ReceiveView BEGIN UPDATE t SET gone = 1 WHERE id = OLD.id; END",
    )
    deliver(path, write_of([(Op.DELETE, row(1))]))
    assert ask(path, "SELECT id, gone FROM t") == [(1, 1)]


def test_rows_without_a_key_are_appended(path: Path) -> None:
    batch = write_of([(Op.INSERT, row(1)), (Op.INSERT, row(1))], key=())
    deliver(path, batch)
    assert len(ask(path, "SELECT * FROM t")) == 2


def test_a_field_without_a_column_is_refused(path: Path) -> None:
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)")
    error = refusal(path, write_of([(Op.INSERT, row(1))]), create=False)
    assert error.code == "destination.refused"
    assert "amount" in error.what


def test_a_failed_write_takes_everything_back(path: Path) -> None:
    writer = open_writer(path)
    good, bad = write_of([(Op.INSERT, row(1))]), one_column("v", pa.array([2**63], pa.uint64()), first=1)
    writer.write(good)
    with pytest.raises(TailraceError):
        writer.write(bad)
    writer.close()
    assert ask(path, "SELECT name FROM sqlite_master") == []


def test_a_program_reads_meanwhile(path: Path) -> None:
    deliver(path, write_of([(Op.INSERT, row(1))]))
    writer = open_writer(path)
    writer.write(write_of([(Op.INSERT, row(2))], first=1))
    with connected(path) as other:
        assert other.execute("SELECT count(*) FROM t").fetchone() == (1,)
    writer.commit(Offset(1))
    writer.close()
    assert ask(path, "SELECT count(*) FROM t") == [(2,)]
