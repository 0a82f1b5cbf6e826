"""Writing: keys as MySQL sees them, collisions, tables that change, and servers that die."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.mysql.options import MysqlReaderOptions, MysqlWriterOptions
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.message import Offset, Op
from tests.adaptor.contract import FIELDS, KEY, Changes, fields, row, write_of
from tests.adaptor.mysql.databases import MysqlDestination, ask, run
from tests.servers.mariadb import MariaDbServer


def deliver(url: str, *batches: Messages, **options: Any) -> None:
    with closing(MysqlWriterOptions(url=url, consumer="test", **options).open()) as writer:  # type: ignore[arg-type]
        last = 0
        for batch in batches:
            writer.prepare(Target(batch.namespace, pa.schema(list(batch.data.type)), batch.key))
            writer.write(batch)
            last = batch.offsets()[-1].as_py() or 0
        writer.commit(Offset(last))


def applied(url: str, namespace: str) -> int | None:
    with closing(MysqlWriterOptions(url=url, consumer="test").open()) as writer:  # type: ignore[arg-type]
        return writer.applied(namespace)


def test_texts_of_a_key_differ_letter_by_letter(database: str) -> None:
    """Case, accents, spaces at the end and the empty text: to most collations these are the same."""
    keys = ["a", "A", "a ", "á", "", " ", "😀", "null"]
    inserts: Changes = [(Op.INSERT, row(1, key, number)) for number, key in enumerate(keys)]
    deliver(database, write_of(inserts, key=("name",)))
    found = MysqlDestination(database).rows("main.t")
    assert sorted((entry["name"], entry["amount"]) for entry in found) == sorted(
        zip(keys, range(len(keys)), strict=True)
    )
    deliver(database, write_of([(Op.DELETE, row(1, "a", None)), (Op.DELETE, row(1, "", None))], first=8, key=("name",)))
    assert sorted(entry["name"] for entry in MysqlDestination(database).rows("main.t")) == sorted(set(keys) - {"a", ""})


def test_a_key_that_is_too_long(database: str) -> None:
    long = write_of([(Op.INSERT, row(1, "x" * 21))], key=("name",))
    with pytest.raises(TailraceError, match="Data too long for column 'name'") as caught:
        deliver(database, long, key_length=20)
    assert caught.value.code == "destination.refused"
    assert MysqlDestination(database).rows("main.t") == []
    deliver(database, write_of([(Op.INSERT, row(1, "x" * 20))], key=("name",)), key_length=20)
    assert len(MysqlDestination(database).rows("main.t")) == 1


def test_other_unique_indexes(database: str) -> None:
    """A row is never written over one with another key. States that collide on their way only are applied in order."""
    name = database.rpartition("/")[2]
    run(database, "CREATE TABLE t(id bigint PRIMARY KEY, name varchar(9) UNIQUE, amount double)")
    place = f"{name}.t"
    deliver(database, write_of([(Op.INSERT, row(1, "a")), (Op.INSERT, row(2, "b"))], namespace=place))
    swap: Changes = [
        (Op.UPDATE, row(1, "c"), row(1, "a")),
        (Op.UPDATE, row(2, "a"), row(2, "b")),
        (Op.UPDATE, row(1, "b"), row(1, "c")),
    ]
    deliver(database, write_of(swap, first=2, namespace=place))
    assert ask(database, "SELECT id, name FROM t ORDER BY id") == [(1, "b"), (2, "a")]
    with pytest.raises(TailraceError, match="unique index") as caught:
        deliver(database, write_of([(Op.INSERT, row(3, "a"))], first=9, namespace=place))
    assert caught.value.code == "destination.refused"
    assert "offset 9" in caught.value.what
    assert ask(database, "SELECT id, name FROM t ORDER BY id") == [(1, "b"), (2, "a")]
    assert applied(database, place) == 4


def test_a_table_made_in_the_middle_records_what_was_written(database: str) -> None:
    """MySQL commits when a table is made; rows without a key must not come twice all the same."""
    first = write_of([(Op.INSERT, row(1)), (Op.INSERT, row(2))], key=(), first=3)
    with closing(MysqlWriterOptions(url=database, consumer="test").open()) as writer:  # type: ignore[arg-type]
        writer.prepare(Target("main.t", FIELDS, ()))
        writer.write(first)
        writer.prepare(Target("main.u", FIELDS, KEY))
        writer.write(write_of([(Op.INSERT, row(1))], namespace="main.u", first=5))
    assert applied(database, "main.t") == 4
    assert len(MysqlDestination(database).rows("main.t")) == 2
    assert applied(database, "main.u") is None
    assert MysqlDestination(database).rows("main.u") == []


def test_columns_widen(database: str) -> None:
    """No value is lost; a number that fits neither becomes a decimal, anything else text."""
    id_ = ("id", pa.int64())
    steps: list[tuple[pa.DataType, Any]] = [
        (pa.uint8(), 255),
        (pa.int8(), -1),
        (pa.uint32(), 2**32 - 1),
        (pa.int64(), -(2**63)),
        (pa.uint64(), 2**64 - 1),
        (pa.string(), "text"),
    ]
    for number, (kind, value) in enumerate(steps):
        insert: Changes = [(Op.INSERT, {"id": number, "v": value})]
        deliver(database, write_of(insert, first=number, schema=fields(id_, ("v", kind))))
    found = MysqlDestination(database).rows("main.t")
    assert [entry["v"] for entry in found] == [str(value) for _, value in steps]


def test_many_rows_and_statements_of_a_limited_length(mariadb: MariaDbServer, database: str) -> None:
    mariadb.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        rows: Changes = [(Op.INSERT, row(number, "x" * 300)) for number in range(5000)]
        deliver(database, write_of(rows))
        gone: Changes = [(Op.DELETE, row(number)) for number in range(0, 5000, 2)]
        deliver(database, write_of(gone, first=5000))
    finally:
        mariadb.run("SET GLOBAL max_allowed_packet = 16777216")
    assert ask(database, "SELECT count(*), sum(id % 2), min(length(name)) FROM main.t") == [(2500, 2500, 300)]


def test_a_table_is_emptied(database: str) -> None:
    deliver(database, write_of([(Op.INSERT, row(1))]))
    with closing(MysqlWriterOptions(url=database, consumer="test").open()) as writer:  # type: ignore[arg-type]
        writer.clear("main.t")
        writer.clear("main.not_there")
        writer.commit(Offset(1))
        assert writer.applied("main.t") == 1
        assert writer.applied("main.not_there") is None
        writer.prepare(Target("main.t", FIELDS, KEY))
        writer.write(write_of([(Op.INSERT, row(2))], first=2))
        writer.commit(Offset(2))
    assert MysqlDestination(database).rows("main.t") == [row(2)]


def test_tables_are_refused_that_do_not_fit(database: str) -> None:
    name = database.rpartition("/")[2]
    run(database, "CREATE TABLE t(id bigint, name text, amount double)")
    insert: Changes = [(Op.INSERT, row(1))]
    with pytest.raises(TailraceError, match="no unique index on id"):
        deliver(database, write_of(insert, namespace=f"{name}.t"))
    with pytest.raises(TailraceError, match="has no table"):
        deliver(database, write_of(insert), create=False)
    with pytest.raises(TailraceError, match="a database that is ours"):
        deliver(database, write_of(insert, namespace="tailrace.t"))
    deliver(database, write_of(insert, namespace="single"))
    assert ask(database, "SELECT id FROM single") == [(1,)]


@pytest.mark.crash
def test_the_server_is_killed_in_the_middle_of_a_write(own_server: MariaDbServer) -> None:
    """What was committed stays, what was not is not there, and writing on gives each row once."""
    url = own_server.url()
    first = write_of([(Op.INSERT, row(number)) for number in range(100)], key=())
    second = write_of([(Op.INSERT, row(number)) for number in range(100, 200)], first=100, key=())
    deliver(url, first)
    with closing(MysqlWriterOptions(url=url, consumer="test").open()) as writer:  # type: ignore[arg-type]
        writer.write(second)
        own_server.kill()
        with pytest.raises(TailraceError) as caught:
            writer.commit(Offset(199))
        assert caught.value.code == "destination.unreachable"
    own_server.start()
    assert applied(url, "main.t") == 99
    assert own_server.ask("SELECT count(*) FROM main.t") == [(100,)]
    deliver(url, second)
    assert own_server.ask("SELECT count(*), count(DISTINCT id) FROM main.t") == [(200, 200)]
    assert applied(url, "main.t") == 199


def test_what_doctor_says(mariadb: MariaDbServer, database: str) -> None:
    run(database, "CREATE TABLE t(a int)", "CREATE TABLE h(a int) WITH SYSTEM VERSIONING")
    checks = MysqlReaderOptions(url=database).probe()  # type: ignore[arg-type]
    assert [check.what for check in checks if not check.ok] == []
    told = {check.what: check.found for check in checks}
    assert "is left out" in told[f"table {database.rpartition('/')[2]}.h"]
    assert "have no key" in told["updates and deletes"]
    assert all(check.ok for check in MysqlWriterOptions(url=database).probe())  # type: ignore[arg-type]
    mariadb.run("CREATE OR REPLACE USER poor@'127.0.0.1' IDENTIFIED BY 'poorpass'")
    mariadb.run("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        poor = MysqlReaderOptions(url=mariadb.url(user="poor", password="poorpass")).probe()  # type: ignore[arg-type]
    finally:
        mariadb.run("SET GLOBAL binlog_row_image = 'FULL'", "DROP USER poor@'127.0.0.1'")
    failed = {check.what: check.cure for check in poor if not check.ok}
    assert set(failed) == {"binlog_row_image", "user may replicate", "user may ask for the log's end"}
    assert failed["binlog_row_image"] == "set binlog_row_image = FULL"
    (away,) = MysqlReaderOptions(url="mysql://u:canary-3c@127.0.0.1:1/d").probe()  # type: ignore[arg-type]
    assert not away.ok
    assert "canary" not in away.found
