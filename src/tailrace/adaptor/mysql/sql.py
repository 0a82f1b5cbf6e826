"""Every piece of SQL that reads, and nothing else. Names and values from outside are escaped here."""
# ruff: noqa: S608  names cannot be bound; every one that comes from outside goes through `name`

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

OURS: Final = "tailrace"
"""The database for what is ours in a destination."""
SYSTEM: Final = ("information_schema", "mysql", "performance_schema", "sys", OURS)
_DIGITS: Final = re.compile(r"-?\d+(\.\d+)?")


class Form(StrEnum):
    """How a value is written."""

    NUMBER = "number"
    TEXT = "text"
    BINARY = "binary"


SNAPSHOT: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
SNAPSHOT_PLACE: Final = "SHOW STATUS LIKE 'binlog_snapshot_%'"
END: Final = "COMMIT"
LOCK: Final = "FLUSH TABLES WITH READ LOCK"
UNLOCK: Final = "UNLOCK TABLES"
PLACE: Final = ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
"""The newer name is the only one from MySQL 8.4 on."""
LOGS: Final = "SHOW BINARY LOGS"
SETTINGS: Final = "SHOW GLOBAL VARIABLES"
GRANTS: Final = "SHOW GRANTS"
COLLATIONS: Final = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
FRESH_SIZES: Final = "SET SESSION information_schema_stats_expiry = 0"
HAS_CHECKS: Final = (
    "SELECT 1 FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = 'information_schema' AND TABLE_NAME = 'CHECK_CONSTRAINTS' AND COLUMN_NAME = 'LEVEL'"
)


def name(*parts: str) -> str:
    """A name, qualified when there are several parts."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def names(columns: Iterable[str]) -> str:
    return ", ".join(name(column) for column in columns)


def text(value: str) -> str:
    """A literal, as the session's `sql_mode` reads it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def tables(database: str, table: str = "") -> str:
    """The tables there are: of one database, or of all that are not the server's own."""
    return (
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, DATA_LENGTH FROM information_schema.TABLES"
        f" WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {_where(database, table)}"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME"
    )


def columns(database: str, table: str = "") -> str:
    return (
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_OCTET_LENGTH,"
        " NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,"
        " COLLATION_NAME"
        f" FROM information_schema.COLUMNS WHERE {_where(database, table)}"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
    )


def uniques(database: str, table: str = "") -> str:
    """The columns of unique indexes, the primary key first."""
    return (
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE"
        f" FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {_where(database, table)}"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
    )


def json_checks(database: str, table: str = "") -> str:
    """The columns that MariaDB's type JSON stands for: text that is checked."""
    return (
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.CHECK_CONSTRAINTS"
        f" WHERE LEVEL = 'Column' AND {_where(database, table, 'CONSTRAINT_SCHEMA')}"
        " AND CHECK_CLAUSE LIKE 'json\\_valid(%'"
    )


def gtid_at(file: str, at: int) -> str:
    """What MariaDB says of the transactions before a place, NULL when there is no such place."""
    return f"SELECT BINLOG_GTID_POS({text(file)}, {int(at)})"


def has_gtids(gtids: str) -> str:
    """Whether MySQL has had all of these transactions."""
    return f"SELECT GTID_SUBSET({text(gtids)}, @@GLOBAL.gtid_executed)"


def select_rows(
    schema: str, table: str, asked: Mapping[str, str], key: Mapping[str, Form], piece: Mapping[str, Any]
) -> str:
    """The rows of one piece. `asked` says how each column is asked for, `key` how its parts are written."""
    chosen = ", ".join(f"{how.format(name(column))} AS {name(column)}" for column, how in asked.items())
    bounds = [
        *([f"({after(key, piece['after'])})"] if piece.get("after") else []),
        *([f"NOT ({after(key, piece['upto'])})"] if piece.get("upto") else []),
    ]
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return f"SELECT {chosen} FROM {name(schema, table)}{where}"


def extremes(schema: str, table: str, column: str) -> str:
    return f"SELECT MIN({name(column)}), MAX({name(column)}) FROM {name(schema, table)}"


def key_after(schema: str, table: str, key: Mapping[str, Form], last: Sequence[str] | None, rows: int) -> str:
    """The key so many rows after another, in the key's order."""
    where = f" WHERE {after(key, last)}" if last else ""
    chosen = ", ".join(f"HEX({name(part)})" if form is Form.BINARY else name(part) for part, form in key.items())
    return f"SELECT {chosen} FROM {name(schema, table)}{where} ORDER BY {names(key)} LIMIT 1 OFFSET {int(rows) - 1}"


def after(key: Mapping[str, Form], border: Sequence[str]) -> str:
    """A condition: the key comes after the border. Comparing rows as such would not use an index."""
    parts = [name(part) for part in key]
    values = [_value(value, form) for value, form in zip(border, key.values(), strict=True)]
    choices = []
    for last in range(len(parts)):
        same = [f"{part} = {value}" for part, value in zip(parts[:last], values[:last], strict=True)]
        choices.append(" AND ".join([*same, f"{parts[last]} > {values[last]}"]))
    return choices[0] if len(choices) == 1 else " OR ".join(f"({choice})" for choice in choices)


def _value(value: str, form: Form) -> str:
    if form is Form.BINARY:
        return f"X'{bytes.fromhex(value).hex()}'"
    if form is Form.TEXT:
        return text(value)
    if not _DIGITS.fullmatch(value):
        raise ValueError(f"{value!r} is no number")
    return value


def _where(database: str, table: str = "", column: str = "TABLE_SCHEMA") -> str:
    if not database:
        return f"{column} NOT IN ({', '.join(map(text, SYSTEM))})"
    chosen = f"{column} = {text(database)}"
    return f"{chosen} AND TABLE_NAME = {text(table)}" if table else chosen
