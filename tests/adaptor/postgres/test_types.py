"""Every type of PostgreSQL: a copy and a change give the same value, and written to another database it is the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.postgres.options import PostgresReaderOptions, PostgresWriterOptions
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, key_of
from tailrace.message import Offset
from tests.adaptor.postgres.databases import ask, connected, run
from tests.servers.postgres import PostgresServer

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'it''s "ok"');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN cents AS numeric(10,2) CHECK (VALUE > -1000);
"""
VALUES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "oid": ("4294967295",),
    "real": ("1e-37", "'NaN'", "'-Infinity'", "0.1"),
    "double precision": ("1e-307", "'NaN'", "'Infinity'", "-0.0", "0.1"),
    "numeric": ("12345678901234567890123456789012345678901234567890.5", "'NaN'", "'-Infinity'", "1.50", "0"),
    "numeric(12,2)": ("-9999999999.99", "0.01", "1"),
    "numeric(38,10)": ("1234567890123456789012345678.0123456789", "-0.0000000001"),
    "numeric(50,5)": ("123456789012345678901234567890123456789012345.12345",),
    "numeric(5,-2)": ("1234500",),
    "cents": ("12.34",),
    "text": ("''", "'null'", "'NULL'", "'grüße 日本 🐘'", "E'tab\\tnew\\nline\\\\'", "repeat('long ', 3000)"),
    "varchar(5)": ("'abc'", "''"),
    "char(5)": ("'ab'",),
    "name": ("'a name'",),
    "bytea": (r"'\x00ff5c'", r"'\x'", "decode(repeat('ab', 9000), 'hex')"),
    "date": ("'2024-02-29'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'5874897-12-31'", "'10000-01-01'"),
    "time": ("'23:59:59.999999'", "'24:00:00'", "'00:00'"),
    "timetz": ("'10:00:00.5+02'",),
    "timestamp": ("'2024-02-29 12:30:01.000005'", "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'12024-01-01'"),
    "timestamptz": (
        "'2024-02-29 12:30:01.000005+02'",
        "'infinity'",
        "'-infinity'",
        "'0001-01-01 BC'",
        "'294246-01-01'",
    ),
    "interval": ("'1 year 2 mons -3 days 04:05:06.789'", "'-1 microsecond'", "'0'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    "json": ("""'{"a" : [1, null]}'""", "'null'"),
    "jsonb": ("""'{"a" : [1, null], "é": 1e400}'""", "'null'", """'"text"'"""),
    "money": ("'-1234.56'", "'92233720368547758.07'"),
    "inet": ("'10.1.2.3/8'", "'::1'"),
    "cidr": ("'10.0.0.0/8'",),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "bit(3)": ("B'101'",),
    "bit varying(8)": ("B'1'", "B''"),
    "int4range": ("'[1,10)'", "'empty'", "'(,5)'"),
    "nummultirange": ("'{[1.5,2), (3,4]}'",),
    "tsvector": ("to_tsvector('simple', 'a fat cat')",),
    "point": ("'(1.5,-2)'",),
    "mood": ("'sad'", """'it''s "ok"'"""),
    "pair": ("""ROW(1, 'x, "y"')""", "ROW(NULL, '')"),
    "integer[]": ("'{1,NULL,3}'", "'{}'"),
    "integer[][]": ("'{{1,2},{3,NULL}}'", "'{}'"),
    "text[]": ("""ARRAY['a', NULL, '', 'NULL', 'b "c"', E'\\\\', '{}', 'x,y', ' pad ']""",),
    "uuid[]": ("ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11']::uuid[]",),
    "timestamptz[]": ("ARRAY['2024-02-29 12:30:01.000005+02', NULL]::timestamptz[]",),
    "date[]": ("'{infinity,-infinity,2024-02-29}'",),
    "time[]": ("'{24:00:00,NULL}'",),
    "numeric(6,2)[]": ("'{1.50,NULL,-2.25}'",),
    "bytea[]": (r"ARRAY['\x00ff', NULL]::bytea[]",),
    "jsonb[]": ("""ARRAY['{"a": "b,c"}', NULL]::jsonb[]""",),
    "mood[]": ("'{sad,NULL}'",),
}
"""What SQL can write, by type. Every column also has a NULL."""


def columns() -> list[str]:
    return [f"c{number}" for number in range(len(VALUES))]


def table(name: str) -> str:
    declared = ", ".join(f"{column} {kind}" for column, kind in zip(columns(), VALUES, strict=True))
    return f"CREATE TABLE {name}(id int PRIMARY KEY, {declared})"


def inserts(name: str) -> Iterator[str]:
    """Row 0 is all NULL; each value has a row in which the others are NULL, so that an error names its column."""
    yield f"INSERT INTO {name}(id) VALUES (0)"
    number = 0
    for column, (kind, values) in zip(columns(), VALUES.items(), strict=True):
        for value in values:
            number += 1
            yield f"INSERT INTO {name}(id, {column}) VALUES ({number}, ({value})::{kind})"


def messages_of(batch: Batch, first: int) -> Messages:
    offsets = pa.array(range(first, first + len(batch)), pa.int64())
    rows = batch.rows.append_column("offset", offsets)
    return Messages(batch.namespace, rows, key_of(batch.rows.schema), batch.mode)


def pieces(batch: Batch, rows: int) -> Iterator[Batch]:
    """Batches of so few rows that they are sent as text."""
    for begin in range(0, len(batch), rows):
        yield replace(batch, rows=batch.rows.slice(begin, rows))


def data(batches: list[Batch]) -> pa.Table:
    structs: list[Any] = [batch.rows.column("data") for batch in batches]
    tables = [pa.Table.from_struct_array(struct) for struct in structs]
    return pa.concat_tables(tables).sort_by("id")


def comparable(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """NaN differs from itself, its text does not."""
    return column.cast(pa.string()) if pa.types.is_floating(column.type) else column


@pytest.fixture
def other(postgres: PostgresServer) -> Iterator[str]:
    yield postgres.create("types_copy")
    postgres.drop("types_copy")


def test_a_copy_a_change_and_what_is_written_are_the_same(database: str, other: str) -> None:
    run(database, TYPES, table("t"))
    options = PostgresReaderOptions(url=database, slot="tailrace_types")  # type: ignore[arg-type]
    with closing(options.open()) as reader:
        reader.install(reader.tables())
        start = reader.position()
        reader.copied()
        run(database, *inserts("t"))
        changed = [b for piece in reader.plan_changes(start, reader.position()) for b in reader.read_changes(piece)]
        (found,) = reader.tables()
        copied = [b for piece in reader.plan_copy(found) for b in reader.read_copy("public.t", piece)]
        reader.uninstall()
    assert data(copied).schema.equals(data(changed).schema, check_metadata=True)
    for column in data(copied).column_names:
        assert comparable(data(copied).column(column)).equals(comparable(data(changed).column(column))), column
    run(other, TYPES)
    few = [batch for whole in copied for batch in pieces(whole, 7)]
    for target, batches in (("copied", copied), ("changed", changed), ("few", few)):
        write_to(other, target, batches)
        assert _texts(other, f"public.{target}") == _texts(database, "public.t")


def test_where_types_are_not_known_they_are_text(database: str, other: str) -> None:
    run(database, TYPES, "CREATE TABLE t(id int PRIMARY KEY, a mood, b pair, c cents, d mood[])")
    run(database, "INSERT INTO t VALUES (1, 'sad', ROW(1, 'x'), 1.5, '{sad,NULL}')")
    with closing(PostgresReaderOptions(url=database, slot="tailrace_unknown").open()) as reader:  # type: ignore[arg-type]
        (found,) = reader.tables()
        copied = [b for piece in reader.plan_copy(found) for b in reader.read_copy("public.t", piece)]
    write_to(other, "t", copied)
    assert ask(other, "SELECT a, b, c::text, d FROM public.t") == [("sad", "(1,x)", "1.50", ["sad", None])]


@pytest.mark.parametrize(
    ("kind", "value", "option"),
    [
        ("numeric(5,2)", "'NaN'", "numerics"),
        ("timestamptz", "'294276-12-31'", "moments"),
        ("integer[]", "'{{1}}'", "arrays"),
        ("integer[]", "'[2:3]={1,2}'", "arrays"),
    ],
)
def test_what_has_no_place_is_an_error_or_text(database: str, kind: str, value: str, option: str) -> None:
    run(database, f"CREATE TABLE t(id int PRIMARY KEY, odd {kind})", f"INSERT INTO t VALUES (1, {value})")
    with pytest.raises(TailraceError, match=rf"column odd of public\.t.*{option}: text"):
        _copy(database)
    copied = _copy(database, **{option: "text"})
    (text,) = data(copied).column("odd").to_pylist()
    assert ask(database, "SELECT odd = %s::text::" + kind + " FROM t", (text,)) == [(True,)]


def _copy(database: str, **options: Any) -> list[Batch]:
    given: dict[str, Any] = {"url": database, "slot": "tailrace_odd", **options}
    with closing(PostgresReaderOptions(**given).open()) as reader:
        (found,) = reader.tables()
        return [b for piece in reader.plan_copy(found) for b in reader.read_copy("public.t", piece)]


def write_to(url: str, target: str, batches: list[Batch]) -> None:
    with closing(PostgresWriterOptions(url=url, consumer=target).open()) as writer:  # type: ignore[arg-type]
        first = 0
        for batch in batches:
            messages = messages_of(batch, first)
            renamed = Messages(f"public.{target}", messages.rows, messages.key, messages.mode)
            writer.prepare(Target(renamed.namespace, pa.schema(list(renamed.data.type)), renamed.key))
            writer.write(renamed)
            first += len(batch)
        writer.commit(Offset(first))


def _texts(url: str, name: str) -> list[tuple[Any, ...]]:
    """The rows as the server writes them, and the types of the columns."""
    with connected(url) as connection:
        connection.execute("SET extra_float_digits = 1")
        rows = connection.execute(f"SELECT t::text FROM {name} t ORDER BY id").fetchall()
    return rows
