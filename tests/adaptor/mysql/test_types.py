"""Types: a copy and a change give the same value, and what is written into another table comes back the same."""

from __future__ import annotations

from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.mysql.options import MysqlReaderOptions, MysqlWriterOptions
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, key_of
from tailrace.message import Offset
from tailrace.source.contract import Table
from tests.adaptor.mysql.databases import run

COLUMNS = {
    "tiny": ("tinyint", ["-128", "127"], [-128, 127]),
    "tiny_u": ("tinyint unsigned", ["0", "255"], [0, 255]),
    "bool": ("bool", ["true", "false"], [1, 0]),
    "small": ("smallint", ["-32768", "32767"], [-32768, 32767]),
    "small_u": ("smallint unsigned", ["0", "65535"], [0, 65535]),
    "medium": ("mediumint", ["-8388608", "8388607"], [-8388608, 8388607]),
    "medium_u": ("mediumint unsigned", ["0", "16777215"], [0, 16777215]),
    "int_": ("int", ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
    "int_u": ("int(7) unsigned zerofill", ["1", "4294967295"], [1, 2**32 - 1]),
    "big": ("bigint", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    "big_u": ("bigint unsigned", ["0", "18446744073709551615"], [0, 2**64 - 1]),
    "float_": ("float", ["0.1", "-3.4e38"], None),
    "double_": ("double", ["0.1", "-1.7976931348623157e308"], [0.1, -1.7976931348623157e308]),
    "double_2": ("double(10,2)", ["0.12", "-1e7"], [0.12, -1e7]),
    "decimal_": ("decimal(38,10)", ["-1234567890123456789012345678.0123456789", "0"], None),
    "decimal_0": ("decimal(5,0)", ["-99999", "7"], [Decimal(-99999), Decimal(7)]),
    "decimal_s": ("decimal(5,5)", ["-0.00001", "0.99999"], [Decimal("-0.00001"), Decimal("0.99999")]),
    "decimal_65": ("decimal(65,30)", ["-" + "9" * 35 + "." + "9" * 30, "0.1"], None),
    "bit_1": ("bit(1)", ["b'1'", "b'0'"], ["1", "0"]),
    "bit_10": ("bit(10)", ["b'1000000001'", "b'101'"], ["1000000001", "0000000101"]),
    "bit_64": ("bit(64)", ["b'" + "1" * 64 + "'", "b'0'"], ["1" * 64, "0" * 64]),
    "year_": ("year", ["2155", "0"], [2155, 0]),
    "unsigned_after_year": ("int unsigned", ["4294967295", "0"], [2**32 - 1, 0]),
    "date_": ("date", ["'0001-01-01'", "'9999-12-31'"], [date(1, 1, 1), date(9999, 12, 31)]),
    "datetime_": ("datetime", ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'"], None),
    "datetime_3": ("datetime(3)", ["'2024-02-29 12:30:01.005'", "'1969-12-31 23:59:59.999'"], None),
    "datetime_6": ("datetime(6)", ["'2024-02-29 12:30:01.000005'", "'1969-12-31 23:59:59.999999'"], None),
    "timestamp_": ("timestamp NULL", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"], None),
    "timestamp_6": ("timestamp(6) NULL", ["'1970-01-01 00:00:01.000001'", "'2038-01-19 03:14:07.999999'"], None),
    "time_": ("time", ["'-838:59:59'", "'838:59:59'"], [timedelta(seconds=-3020399), timedelta(seconds=3020399)]),
    "time_1": ("time(1)", ["'-00:00:00.1'", "'-01:00:00.9'"], None),
    "time_4": ("time(4)", ["'-00:00:00.0001'", "'23:59:59.9999'"], None),
    "time_6": (
        "time(6)",
        ["'-00:00:00.000001'", "'838:59:58.999999'"],
        [timedelta(microseconds=-1), timedelta(seconds=3020398, microseconds=999999)],
    ),
    "char_": ("char(5)", ["'a'", "'ß日😀'"], ["a", "ß日😀"]),
    "varchar_": ("varchar(300)", ["''", "'null'"], ["", "null"]),
    "text_": ("longtext", ["'😀 ''quoted'' \\\\ \\n'", "repeat('x', 70000)"], ["😀 'quoted' \\ \n", "x" * 70000]),
    "latin1": ("varchar(9) CHARACTER SET latin1", ["'é€'", "_latin1 X'81'"], ["é€", "\x81"]),
    "cyrillic": ("char(9) CHARACTER SET cp1251", ["'Ж'", "''"], ["Ж", ""]),
    "utf16": ("text CHARACTER SET utf16", ["'😀'", "'a'"], ["😀", "a"]),
    "sjis": ("text CHARACTER SET sjis", ["'日本'", "'a'"], ["日本", "a"]),
    "binary_": ("binary(4)", ["X'6100'", "X'00000000'"], [b"a\0\0\0", b"\0\0\0\0"]),
    "varbinary_": ("varbinary(300)", ["X'00FF00'", "''"], [b"\0\xff\0", b""]),
    "blob_": ("blob", ["X'27005C'", "''"], [b"'\0\\", b""]),
    "enum_": ("enum('a','é','it''s')", ["'it''s'", "'é'"], ["it's", "é"]),
    "enum_latin1": ("enum('x','é') CHARACTER SET latin1", ["'é'", "'x'"], ["é", "x"]),
    "set_": ("set('a','b','c')", ["'c,a'", "''"], ["a,c", ""]),
    "json_": ("json", ['\'{"a": [1, null, "ß"]}\'', "'null'"], ['{"a": [1, null, "ß"]}', "null"]),
    "point": ("geometry", ["ST_GeomFromText('POINT(1 2)', 4326)", "ST_GeomFromText('LINESTRING(0 0,1 1)')"], None),
    "uuid_": (
        "uuid",
        ["'00112233-4455-1677-8899-aabbccddee00'", "'00000000-0000-0000-0000-000000000000'"],
        ["00112233-4455-1677-8899-aabbccddee00", "00000000-0000-0000-0000-000000000000"],
    ),
    "inet6_": ("inet6", ["'::ffff:1.2.3.4'", "'2001:db8::'"], ["::ffff:1.2.3.4", "2001:db8::"]),
    "inet4_": ("inet4", ["'1.2.3.0'", "'255.255.255.255'"], ["1.2.3.0", "255.255.255.255"]),
    "stored": ("int AS (tiny + 1) STORED", None, [-127, 128]),
    "virtual_": ("int AS (tiny + 2) VIRTUAL", None, None),
}
"""By name: the type, two values in SQL, and what they are as messages have them, where it is worth writing down."""


def rows_of(batches: list[Batch]) -> list[dict[str, Any]]:
    found: list[Any] = [row for batch in batches for row in batch.rows.column("data").to_pylist()]
    return sorted(found, key=lambda row: row["id"])


def copied(options: MysqlReaderOptions, namespace: str) -> tuple[Table, list[Batch]]:
    with closing(options.open()) as reader:
        table = next(table for table in reader.tables() if table.namespace == namespace)
        pieces = reader.plan_copy(table)
        return table, [batch for piece in pieces for batch in reader.read_copy(namespace, piece)]


def changed(options: MysqlReaderOptions, *statements: str) -> list[Batch]:
    with closing(options.open()) as reader:
        reader.install(reader.tables())
        start = reader.position()
        run(options.url.get_secret_value(), *statements)
        return [
            batch for piece in reader.plan_changes(start, reader.position()) for batch in reader.read_changes(piece)
        ]


def written(batches: list[Batch], options: MysqlWriterOptions, namespace: str) -> None:
    with closing(options.open()) as writer:
        for batch in batches:
            offsets: pa.Array[Any] = pa.array(range(batch.rows.num_rows), pa.int64())
            rows = batch.rows.append_column("offset", offsets)
            messages = Messages(namespace, rows, key_of(rows.schema), batch.mode)
            writer.prepare(Target(namespace, pa.schema(list(messages.data.type)), messages.key))
            writer.write(messages)
        writer.commit(Offset(9))


@pytest.fixture
def options(database: str) -> MysqlReaderOptions:
    return MysqlReaderOptions(url=database)  # type: ignore[arg-type]


def test_a_copy_a_change_and_a_table_that_was_written_agree(database: str, options: MysqlReaderOptions) -> None:
    schema = database.rpartition("/")[2]
    declared = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    run(database, f"CREATE TABLE t(id int PRIMARY KEY, {declared})")
    plain = [name for name, (_, values, _) in COLUMNS.items() if values is not None]
    inserts = [f"INSERT INTO t(id, {', '.join(plain)}) VALUES (9{', NULL' * len(plain)})"]
    for at in (0, 1):
        values = ", ".join(values[at] for _, values, _ in COLUMNS.values() if values is not None)
        inserts.append(f"INSERT INTO t(id, {', '.join(plain)}) VALUES ({at}, {values})")
    changes = changed(options, *inserts)
    table, copy = copied(options, f"{schema}.t")
    assert rows_of(changes) == rows_of(copy)
    assert {batch.rows.column("data").type for batch in (*changes, *copy)} == {pa.struct(list(table.schema))}
    first, second, empty = rows_of(copy)
    for name, (_, _, expected) in COLUMNS.items():
        if expected is not None:
            assert [first[name], second[name]] == expected, name
    assert "virtual_" not in first
    assert {value for name, value in empty.items() if name != "id"} == {None}
    assert first["decimal_"] == Decimal("-1234567890123456789012345678.0123456789")
    assert first["datetime_6"] == datetime(2024, 2, 29, 12, 30, 1, 5)
    assert str(first["timestamp_6"]) == "1970-01-01 00:00:01.000001+00:00"
    written(copy, MysqlWriterOptions(url=database), "main.t")  # type: ignore[arg-type]
    again, other = copied(MysqlReaderOptions(url=database.rpartition("/")[0] + "/main"), "main.t")  # type: ignore[arg-type]
    assert rows_of(other) == rows_of(copy)
    kept = {field.name: field.type for field in again.schema}
    changed_types = {field.name for field in table.schema if kept[field.name] != field.type}
    assert changed_types == set()


def test_updates_and_deletes_have_whole_rows_before(database: str, options: MysqlReaderOptions) -> None:
    run(
        database,
        "CREATE TABLE t(id int, big bigint unsigned, note varchar(9), KEY(id))",
        "INSERT INTO t VALUES (1, 2, 'x')",
    )
    (batch,) = changed(options, "UPDATE t SET big = 18446744073709551615", "DELETE FROM t")
    update, delete = batch.rows.to_pylist()
    assert update["before"] == {"id": 1, "big": 2, "note": "x"}
    assert update["data"] == delete["data"] == {"id": 1, "big": 2**64 - 1, "note": "x"}
    assert delete["before"] is None
    assert update["tx"] == delete["tx"], "they are one transaction"
    assert update["lsn"] < delete["lsn"]
    assert key_of(batch.rows.schema) == ()


ZERO = (
    "SET sql_mode = 'ALLOW_INVALID_DATES'",
    "INSERT INTO t VALUES (1, '0000-00-00', '2024-00-00 01:02:03.45', '0000-00-00', '2024-02-28')",
    "INSERT INTO t VALUES (2, '2024-02-31', '0000-00-00', '2024-02-29 01:02:03', NULL)",
)
ZERO_TABLE = "CREATE TABLE t(id int PRIMARY KEY, d date, m datetime(2), s timestamp NULL, fine date)"


@pytest.mark.parametrize("by_copy", [True, False])
def test_zero_dates(database: str, by_copy: bool) -> None:
    run(database, ZERO_TABLE)
    namespace = database.rpartition("/")[2] + ".t"

    def read(policy: str) -> list[dict[str, Any]]:
        options = MysqlReaderOptions(url=database, zero_dates=policy)  # type: ignore[arg-type]
        run(database, "DELETE FROM t")
        batches = changed(options, *ZERO)
        return rows_of(copied(options, namespace)[1] if by_copy else batches)

    with pytest.raises(TailraceError, match="column d of") as caught:
        read("error")
    assert caught.value.code == "source.unsupported"
    assert "zero_dates" in caught.value.hint
    first, second = read("null")
    assert [first[name] for name in "dms"] == [None, None, None]
    assert first["fine"] == date(2024, 2, 28)
    assert [second["d"], second["m"], str(second["s"])] == [None, None, "2024-02-29 01:02:03+00:00"]
    first, second = read("text")
    assert [first[name] for name in "dms"] == ["0000-00-00", "2024-00-00 01:02:03.45", "0000-00-00 00:00:00"]
    assert [second[name] for name in "dms"] == ["2024-02-31", "0000-00-00 00:00:00.00", "2024-02-29 01:02:03"]
    assert first["fine"] == "2024-02-28"
