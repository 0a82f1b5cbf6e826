"""The SQL that is sent. Names are quoted and values bound; no other module of this package builds statements."""
# ruff: noqa: S608  names cannot be bound; every one that comes from outside goes through `name`

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.adaptor.sqlite.kinds import Kind
from tailrace.adaptor.values import BrokenText, Value

_SAMPLES: Final = {Kind.INTEGER: "0", Kind.REAL: "0.0", Kind.TEXT: "''", Kind.BLOB: "x''"}
_EXACT_REAL: Final = 1 << 53


def name(text: str) -> str:
    """A name as an identifier."""
    return '"' + text.replace('"', '""') + '"'


def column(text: str) -> str:
    """A column of the table `t`. By itself, a quoted name that no column has would be taken for text."""
    return f"t.{name(text)}"


def columns(texts: Sequence[str]) -> str:
    return ", ".join(map(column, texts))


def names(texts: Sequence[str]) -> str:
    return ", ".join(map(name, texts))


def row(parts: Sequence[str]) -> str:
    """A row value; one part by itself needs no parentheses, which lets SQLite use its plainest code."""
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def placeholder(value: Value) -> str:
    """Where a value is bound; text that is not UTF-8 can only be bound as its bytes."""
    return "CAST(? AS TEXT)" if isinstance(value, BrokenText) else "?"


def bound(order: Sequence[str], sign: str, values: Sequence[Value]) -> str:
    """The columns of an order compared with values to be bound."""
    return f"{row([column(text) for text in order])} {sign} {row([placeholder(value) for value in values])}"


def select(expressions: Sequence[str], source: str, where: Sequence[str], order: Sequence[str] = ()) -> str:
    """A query for some columns of a table, at most as many rows as the last parameter says."""
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    ordered = f" ORDER BY {columns(order)}" if order else ""
    return f"SELECT {', '.join(expressions)} FROM {name(source)} AS t{condition}{ordered} LIMIT ?"


def typed(
    expressions: Sequence[str],
    kinds: Sequence[Kind],
    source: str,
    where: Sequence[str],
    order: Sequence[str],
    *,
    by_rowid: bool,
) -> str:
    """The same query for the ADBC driver, which takes each column's type from the first rows.

    So the first row is ours, and counts. The last column is 1 where a value is of a class that the driver would convert
    silently. A table is read by its rowid as it lies on disk; asking for that order, too, would cost a fifth more time.
    """
    first = ", ".join(f"{_SAMPLES[kind]} AS c{number}" for number, kind in enumerate(kinds))
    guards = [guard for pair in zip(expressions, kinds, strict=True) if (guard := _guard(*pair))]
    wanted = f"{', '.join(expressions)}, ({' OR '.join(guards) or '0'})"
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    if by_rowid:
        rows = f"SELECT {wanted} FROM {name(source)} AS t NOT INDEXED{condition}"
    else:
        rows = f"SELECT * FROM (SELECT {wanted} FROM {name(source)} AS t{condition} ORDER BY {columns(order)})"
    return f"SELECT {first}, 0 AS misfit UNION ALL {rows} LIMIT ?"


def _guard(expression: str, kind: Kind) -> str:
    """Whether a value is of another class: numbers sort before text, text before blobs."""
    if kind is Kind.TEXT:
        return f"{expression} >= x'' OR {expression} < ''"
    if kind is Kind.BLOB:
        return f"{expression} < x''"
    if kind is Kind.REAL:
        beyond = f"{expression} > {_EXACT_REAL} OR {expression} < -{_EXACT_REAL}"
        return f"(({beyond}) AND typeof({expression}) = 'integer')"
    return ""


def classes(texts: Sequence[str], table: str, rows: int) -> str:
    """Which classes of values the first rows hold."""
    kinds = ", ".join(f"typeof({column(text)})" for text in texts)
    return f"SELECT DISTINCT {kinds} FROM (SELECT {columns(texts)} FROM {name(table)} AS t LIMIT {rows:d}) AS t"


def null_in(texts: Sequence[str], table: str) -> str:
    """Whether one of some columns is NULL anywhere; one question each, so that SQLite looks it up where it can."""
    asked = (f"SELECT 1 FROM {name(table)} AS t WHERE {column(text)} IS NULL" for text in texts)
    return f"SELECT 1 WHERE {' OR '.join(f'EXISTS ({each})' for each in asked)}"


def extremes(text: str, table: str) -> str:
    """The lowest and the highest value; one question each, so that SQLite looks them up."""
    low, high = (f"(SELECT {side}({column(text)}) FROM {name(table)} AS t)" for side in ("min", "max"))
    return f"SELECT {low}, {high}"


def step(order: Sequence[str], table: str, after: Sequence[Value] | None) -> str:
    """The key a number of rows further on."""
    condition = f" WHERE {bound(order, '>', after)}" if after is not None else ""
    return f"SELECT {columns(order)} FROM {name(table)} AS t{condition} ORDER BY {columns(order)} LIMIT 1 OFFSET ?"


def probe(text: str, table: str) -> str:
    """How many of some rows there are from a place on, and where the last of them is."""
    place = column(text)
    rows = f"SELECT {place} AS place FROM {name(table)} AS t WHERE {place} >= ? ORDER BY 1 LIMIT ?"
    return f"SELECT count(*), max(place) FROM ({rows})"


# What is installed in a source to capture its changes.

SOURCE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS tailrace_source(id TEXT NOT NULL, forgotten INTEGER NOT NULL, pipeline TEXT)"
)
CAPTURE_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS tailrace_changelog(
        seq INTEGER PRIMARY KEY AUTOINCREMENT, tbl INTEGER NOT NULL, op INTEGER NOT NULL, at INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS tailrace_tables(
        tbl INTEGER PRIMARY KEY, name TEXT NOT NULL, columns TEXT NOT NULL, key TEXT NOT NULL)""",
    SOURCE_TABLE,
    "CREATE TABLE IF NOT EXISTS tailrace_replaced(tbl INTEGER NOT NULL)",
)
_NOW: Final = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
"""Microseconds since 1970, in the SQL of old SQLite versions too."""


def any_row(table: str) -> str:
    return f"SELECT 1 FROM {name(table)} LIMIT 1"


def delete_all(table: str) -> str:
    return f"DELETE FROM {name(table)}"


def add_column(table: str, column: str, declared: str = "") -> str:
    return f"ALTER TABLE {name(table)} ADD COLUMN {name(column)} {declared}".rstrip()


def drop(what: str, named: str) -> str:
    return f"DROP {what} IF EXISTS {name(named)}"


def change_columns(prefix: str, count: int) -> list[str]:
    """The columns of the changelog that hold a row."""
    return [f"{prefix}{number}" for number in range(count)]


def record(tbl: int, op: int, texts: Sequence[str], *, new: str, old: str = "", source: str = "") -> str:
    """A statement that notes a change: the row as it is (of a deleted one, as it was) and, if any, as it was before."""
    targets = change_columns("n", len(texts))
    values = [f"{new}.{name(text)}" for text in texts]
    if old:
        targets += change_columns("o", len(texts))
        values += [f"{old}.{name(text)}" for text in texts]
    into = f"INSERT INTO tailrace_changelog(tbl, op, at, {', '.join(targets)})"
    return f"{into} SELECT {tbl:d}, {op:d}, {_NOW}, {', '.join(values)}{source}"


def trigger(named: str, event: str, table: str, statements: Sequence[str]) -> str:
    body = " ".join(f"{statement};" for statement in statements)
    return f"CREATE TRIGGER {name(named)} {event} ON {name(table)} FOR EACH ROW BEGIN {body} END"


def record_all(tbl: int, texts: Sequence[str], table: str, op: int = 1) -> str:
    """A statement that notes all rows of a table, as updated unless another operation is given."""
    return record(tbl, op, texts, new="t", source=f" FROM {name(table)} AS t")


def record_filled(tbl: int, texts: Sequence[str], table: str, added: Mapping[str, str]) -> str:
    """A statement that notes rows as updated that have other values in columns that were added than these columns'
    defaults; before, there was nothing."""
    targets = [*change_columns("n", len(texts)), *change_columns("o", len(texts))]
    values = [*map(column, texts), *("NULL" if text in added else column(text) for text in texts)]
    filled = " OR ".join(f"{column(text)} COLLATE BINARY IS NOT ({default})" for text, default in added.items())
    into = f"INSERT INTO tailrace_changelog(tbl, op, at, {', '.join(targets)})"
    return f"{into} SELECT {tbl:d}, 1, {_NOW}, {', '.join(values)} FROM {name(table)} AS t WHERE {filled}"


def noted_rows(tbl: int, places: Sequence[str]) -> str:
    """The numbers of a table's changes, each with some columns of its row."""
    return f"SELECT seq, {', '.join(places)} FROM tailrace_changelog WHERE tbl = {tbl:d}"


def stage_replaced(
    tbl: int, texts: Sequence[str], table: str, uniques: Sequence[Sequence[tuple[str, str]]], but: Sequence[str]
) -> list[str]:
    """Statements that set rows aside which have a unique value of NEW, but for the one with the key `but` of OLD."""
    alike = " OR ".join(
        "("
        + " AND ".join(f"{column(text)} = NEW.{name(text)} COLLATE {name(collation)}" for text, collation in parts)
        + ")"
        for parts in uniques
    )
    same = " AND ".join(f"{column(text)} IS OLD.{name(text)}" for text in but)
    where = f"({alike}) AND NOT ({same})" if but else alike
    into = f"INSERT INTO tailrace_replaced(tbl, {', '.join(change_columns('n', len(texts)))})"
    return [forget_replaced(tbl), f"{into} SELECT {tbl:d}, {columns(texts)} FROM {name(table)} AS t WHERE {where}"]


def record_replaced(tbl: int, texts: Sequence[str], table: str, key: Sequence[str]) -> list[str]:
    """Statements that note the rows set aside as deleted, if they are gone now."""
    same = " AND ".join(f"{column(text)} IS r.n{texts.index(text)}" for text in key)
    gone = f"NOT EXISTS (SELECT 1 FROM {name(table)} AS t WHERE {same})"
    aside = change_columns("n", len(texts))
    source = f" FROM tailrace_replaced AS r WHERE r.tbl = {tbl:d} AND {gone}"
    return [record(tbl, 2, aside, new="r", old="r", source=source), forget_replaced(tbl)]


def forget_replaced(tbl: int) -> str:
    return f"DELETE FROM tailrace_replaced WHERE tbl = {tbl:d}"


LAST_CHANGE: Final = """SELECT max(
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tailrace_changelog'), 0),
    coalesce((SELECT max(seq) FROM tailrace_changelog), 0))"""
NOTED_SINCE: Final = "SELECT 1 FROM tailrace_changelog WHERE seq > ? AND seq <= ? LIMIT 1"
FORGET_SINCE: Final = "DELETE FROM tailrace_changelog WHERE seq > ?"
CHANGED_TABLES: Final = """SELECT tbl, min(seq), max(seq) FROM tailrace_changelog
    WHERE seq > ? AND seq <= ? GROUP BY tbl ORDER BY min(seq)"""


# What is sent to a destination.

APPLIED_TABLE: Final = """CREATE TABLE IF NOT EXISTS tailrace_applied(
    consumer TEXT NOT NULL, namespace TEXT NOT NULL, tbl TEXT NOT NULL, "offset" INTEGER NOT NULL,
    PRIMARY KEY(consumer, namespace))"""
APPLIED: Final = 'SELECT "offset" FROM tailrace_applied WHERE consumer = ? AND namespace = ?'
APPLIED_LAST: Final = 'SELECT max("offset") FROM tailrace_applied WHERE consumer = ?'
APPLY: Final = """INSERT INTO tailrace_applied VALUES (?, ?, ?, ?) ON CONFLICT(consumer, namespace)
    DO UPDATE SET tbl = excluded.tbl, "offset" = max("offset", excluded."offset")"""
NAMESAKE: Final = """SELECT namespace FROM tailrace_applied
    WHERE tbl = ? COLLATE NOCASE AND namespace <> ? LIMIT 1"""


# What the store of a node has beside its tables.

NODE_TABLE: Final = "CREATE TABLE IF NOT EXISTS tailrace_node(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
GATE_TABLE: Final = "CREATE TABLE tailrace_gate(closed INTEGER NOT NULL)"
READ_ONLY: Final = "this node is read-only now; tailrace node status says why"


def gate(named: str, event: str, table: str) -> str:
    """A trigger that lets nothing through while the gate is closed."""
    raised = f"SELECT RAISE(ABORT, '{READ_ONLY}')"
    when = "WHEN (SELECT closed FROM tailrace_gate)"
    return (
        f"CREATE TRIGGER IF NOT EXISTS {name(named)} BEFORE {event} ON {name(table)} FOR EACH ROW {when} "
        f"BEGIN {raised}; END"
    )


REMEMBER: Final = "INSERT INTO tailrace_node VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value"
RECALL: Final = "SELECT value FROM tailrace_node WHERE name = ?"


def create_table(table: str, fields: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
    """A table; one key column of whole numbers becomes the rowid itself."""
    is_rowid = len(key) == 1 and (key[0], "INTEGER") in fields
    columns = [
        f"{name(text)} {declared}".rstrip() + (" PRIMARY KEY" if is_rowid and text == key[0] else "")
        for text, declared in fields
    ]
    if key and not is_rowid:
        columns.append(f"PRIMARY KEY({names(key)})")
    return f"CREATE TABLE {name(table)}({', '.join(columns)})"


def create_unique(table: str, key: Sequence[str]) -> str:
    return f"CREATE UNIQUE INDEX {name(f'{table}_key')} ON {name(table)}({names(key)})"


def untype_column(table: str, text: str, beside: str) -> list[str]:
    """Statements that take a column's declared type away."""
    return [
        add_column(table, beside),
        f"UPDATE {name(table)} SET {name(beside)} = {name(text)}",
        f"ALTER TABLE {name(table)} DROP COLUMN {name(text)}",
        f"ALTER TABLE {name(table)} RENAME COLUMN {name(beside)} TO {name(text)}",
    ]


def insert(table: str, texts: Sequence[str], places: Sequence[str]) -> str:
    return f"INSERT INTO {name(table)}({names(texts)}) VALUES ({', '.join(places)})"


def upsert(table: str, texts: Sequence[str], places: Sequence[str], key: Sequence[str]) -> str:
    """Put a row in the place of the one with its key; columns that are not named keep their values."""
    rest = [text for text in texts if text not in key]
    setting = ", ".join(f"{name(text)} = excluded.{name(text)}" for text in rest)
    action = f"UPDATE SET {setting}" if rest else "NOTHING"
    return f"{insert(table, texts, places)} ON CONFLICT({names(key)}) DO {action}"


def row_of(table: str, key: Sequence[str]) -> str:
    return f"SELECT * FROM {name(table)} WHERE {_has(key)}"


def delete(table: str, key: Sequence[str]) -> str:
    return f"DELETE FROM {name(table)} WHERE {_has(key)}"


def _has(key: Sequence[str]) -> str:
    return " AND ".join(f"{name(text)} IS ?" for text in key)
