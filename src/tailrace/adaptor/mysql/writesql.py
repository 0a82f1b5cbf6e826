"""Every piece of SQL that writes, and nothing else. Names and values from outside are escaped here."""
# ruff: noqa: S608  names cannot be bound; every one that comes from outside goes through `name`

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.mysql.sql import OURS, name, names, text

_NAME: Final = "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
PREPARE: Final = (
    f"CREATE DATABASE IF NOT EXISTS {OURS}",
    f"CREATE TABLE IF NOT EXISTS {OURS}.tailrace_applied (consumer {_NAME}, namespace {_NAME}, target {_NAME},"
    " upto bigint NOT NULL, PRIMARY KEY (consumer, namespace)) ENGINE = InnoDB",
)
IS_PREPARED: Final = (
    f"SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{OURS}' AND TABLE_NAME = 'tailrace_applied'"
)
BEGIN: Final = "START TRANSACTION"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
SAVE: Final = "SAVEPOINT tailrace_batch"
BACK: Final = "ROLLBACK TO SAVEPOINT tailrace_batch"
WITHOUT_FOREIGN_KEYS: Final = "SET foreign_key_checks = 0"
PACKET_BYTES: Final = "SELECT @@max_allowed_packet"
TWO_ROWS: Final = 1242
"""The error of a query that should have had one row. `upsert` provokes it."""


def applied(consumer: str, namespace: str) -> str:
    where = f"consumer = {text(consumer)} AND namespace = {text(namespace)}"
    return f"SELECT upto FROM {OURS}.tailrace_applied WHERE {where}"


def namesake(consumer: str, namespace: str, target: str) -> str:
    """Another namespace that was written to the same table."""
    where = f"consumer = {text(consumer)} AND target = {text(target)} AND namespace <> {text(namespace)}"
    return f"SELECT namespace FROM {OURS}.tailrace_applied WHERE {where} LIMIT 1"


def apply(consumer: str, namespace: str, target: str, upto: int) -> str:
    values = ", ".join([*map(text, (consumer, namespace, target)), str(int(upto))])
    return (
        f"INSERT INTO {OURS}.tailrace_applied (consumer, namespace, target, upto) VALUES ({values})"
        " ON DUPLICATE KEY UPDATE upto = GREATEST(upto, VALUES(upto)), target = VALUES(target)"
    )


def create_database(database: str) -> str:
    return f"CREATE DATABASE IF NOT EXISTS {name(database)} CHARACTER SET utf8mb4"


def create_table(database: str, table: str, columns: Mapping[str, str], key: Sequence[str]) -> str:
    """The types are ours."""
    parts = [f"{name(column)} {kind}" for column, kind in columns.items()]
    if key:
        parts.append(f"PRIMARY KEY ({names(key)})")
    return f"CREATE TABLE {name(database, table)} ({', '.join(parts)}) ENGINE = InnoDB CHARACTER SET utf8mb4"


def add_column(database: str, table: str, column: str, kind: str) -> str:
    return f"ALTER TABLE {name(database, table)} ADD COLUMN {name(column)} {kind}"


def add_unique(database: str, table: str, key: Sequence[str]) -> str:
    return f"ALTER TABLE {name(database, table)} ADD UNIQUE ({names(key)})"


def widen_column(database: str, table: str, column: str, kind: str) -> str:
    return f"ALTER TABLE {name(database, table)} MODIFY COLUMN {name(column)} {kind}"


def delete_all(database: str, table: str) -> str:
    return f"DELETE FROM {name(database, table)}"


def upserts(
    database: str, table: str, columns: Mapping[str, pa.Array[Any]], key: Sequence[str], room: int, *, guarded: bool
) -> Iterator[bytes]:
    """Statements that put rows over those with the same key, none longer than `room` unless one row is.

    A row that is the same as another by some other unique index would silently be written over that one. When
    `guarded` this is an error instead, namely `TWO_ROWS`.
    """
    head = f"INSERT INTO {name(database, table)} ({names(columns)}) VALUES ".encode()
    return _statements(head, columns, _over(columns, key, guarded).encode(), room)


def deletes(database: str, table: str, key: Mapping[str, pa.Array[Any]], room: int) -> Iterator[bytes]:
    """Statements that delete the rows with these keys."""
    listed = f"({names(key)})" if len(key) > 1 else names(key)
    return _statements(f"DELETE FROM {name(database, table)} WHERE {listed} IN (".encode(), key, b")", room)


def _over(columns: Mapping[str, Any], key: Sequence[str], guarded: bool) -> str:
    if not key:
        return ""
    changes = [f"{name(column)} = VALUES({name(column)})" for column in columns if column not in key]
    first = name(key[0])
    if guarded:
        same = " AND ".join(f"{name(part)} <=> VALUES({name(part)})" for part in key)
        changes.insert(0, f"{first} = IF({same}, {first}, (SELECT 1 UNION SELECT 2))")
    return f" ON DUPLICATE KEY UPDATE {', '.join(changes or [f'{first} = {first}'])}"


def _statements(head: bytes, columns: Mapping[str, pa.Array[Any]], tail: bytes, room: int) -> Iterator[bytes]:
    kind = pa.large_binary()
    joined: Any = pc.binary_join_element_wise(*columns.values(), pa.scalar(b", ", kind))  # type: ignore[call-overload]
    rows = [b"(" + row + b")" for row in joined.to_pylist()]
    begin, size = 0, 0
    for at, row in enumerate(rows):
        if size + len(row) > room and at > begin:
            yield head + b", ".join(rows[begin:at]) + tail
            begin, size = at, 0
        size += len(row) + 2
    if rows:
        yield head + b", ".join(rows[begin:]) + tail
