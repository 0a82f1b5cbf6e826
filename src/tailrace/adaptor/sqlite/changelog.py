"""The changelog: what is installed in a database so that it notes its own changes.

Triggers copy each changed row, before and after, into one table without declared types, so values stay exactly as
they are. `tailrace_tables` says which columns a number in `tbl` stands for; a table with new columns gets a new one.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace.adaptor.rowkeys import key_text
from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.catalog import OURS, SCHEMA, TableInfo, find_source, kinds_of
from tailrace.adaptor.sqlite.kinds import Kind
from tailrace.adaptor.sqlite.triggers import triggers, uniques_of
from tailrace.adaptor.sqlite.versions import SqliteVersions
from tailrace.errors import TailraceError
from tailrace.message import Op

_TABLES: Final = ("tailrace_changelog", "tailrace_tables", "tailrace_source", "tailrace_replaced")
COLUMNS_MAX: Final = 990
"""A row before and a row after must fit into SQLite's 2000 columns."""


@dataclass(frozen=True, slots=True)
class Version:
    """The columns and the key of a table while changes were noted under one number."""

    tbl: int
    name: str
    kinds: Mapping[str, Kind]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """How far the changelog has come, and up to where it was emptied."""

    id: str
    """Made at random with the changelog, so that one that was made anew is not taken for the old one."""
    last: int
    forgotten: int
    pipeline: str | None
    """For which changes are noted, and which alone may let them be forgotten."""

    @property
    def is_broken(self) -> bool:
        """Whether numbers begin again, as they do when a program empties `sqlite_sequence`."""
        return self.last < self.forgotten


def install(connection: sqlite3.Connection, names: Iterable[str], pipeline: str) -> None:
    """Make the tables note their changes, from now on or, when their columns have changed, in their new form."""
    for statement in sql.CAPTURE_TABLES:
        connection.execute(statement)
    known = state(connection)
    if known is None or known.is_broken:
        connection.execute("DELETE FROM tailrace_changelog")
        connection.execute("DROP TABLE tailrace_source")
        connection.execute(sql.SOURCE_TABLE)
        connection.execute("INSERT INTO tailrace_source VALUES (?, 0, ?)", (uuid.uuid4().hex, pipeline or None))
    for name in names:
        table = find_source(connection, name)
        if table is not None and not _is_current(connection, table):
            _install_table(connection, table)


def adopt(connection: sqlite3.Connection, name: str, versions: SqliteVersions, key: tuple[str, ...] = ()) -> None:
    """Make a table of a node's store note its changes, and note what it has that no node can know of: rows that came
    before their table was known, and values that came before their column was."""
    table = find_source(connection, name)
    if table is None or _is_current(connection, table):
        return
    before, present = _latest(connection, table.name), _triggers_on(connection, table)
    tbl = _install_table(connection, table)
    if before is None:
        _note_unknown(connection, tbl, table, versions, key or table.key)
    elif present:
        _note_filled(connection, tbl, table, before)


def is_noted(connection: sqlite3.Connection, name: str) -> bool:
    """Whether a table notes its changes, in the form that it has now."""
    table = find_source(connection, name)
    return table is not None and state(connection) is not None and _is_current(connection, table)


def is_current(connection: sqlite3.Connection, names: Iterable[str]) -> bool:
    """Whether `install` would change nothing."""
    known = state(connection)
    if known is None or known.is_broken:
        return False
    tables = [table for name in names if (table := find_source(connection, name)) is not None]
    return all(_is_current(connection, table) for table in tables)


def uninstall(connection: sqlite3.Connection) -> None:
    """Remove every table and trigger that was installed."""
    for name, _ in _all_triggers(connection):
        connection.execute(sql.drop("TRIGGER", name))
    for table in _TABLES:
        connection.execute(sql.drop("TABLE", table))


def state(connection: sqlite3.Connection) -> State | None:
    """None when nothing is installed."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_source'").fetchone() is None:
        return None
    found = connection.execute("SELECT id, forgotten FROM tailrace_source").fetchone()
    if found is None:
        return None
    (last,) = connection.execute(sql.LAST_CHANGE).fetchone()
    return State(found[0], last, found[1], _pipeline(connection))


def _pipeline(connection: sqlite3.Connection) -> str | None:
    """For whom changes are noted; a changelog of an earlier release does not say."""
    if ("pipeline",) not in connection.execute("SELECT name FROM pragma_table_info('tailrace_source')").fetchall():
        return None
    (found,) = connection.execute("SELECT pipeline FROM tailrace_source").fetchone()
    return str(found) if found else None


def versions(connection: sqlite3.Connection) -> dict[int, Version]:
    """All numbers that changes may have been noted under."""
    found = connection.execute("SELECT tbl, name, columns, key FROM tailrace_tables")
    return {row[0]: _version(*row) for row in found}


def renamed(connection: sqlite3.Connection) -> set[int]:
    """The numbers whose table has another name now: triggers stay with a table, and its changes are no longer those of
    the one that it was. Under its new name a table is new."""
    named = {version.tbl: version.name for version in versions(connection).values()}
    return {tbl for tbl, on in _owners(connection).items() if named.get(tbl, on) != on}


def forget(connection: sqlite3.Connection, upto: int) -> None:
    """Remove changes up to a number."""
    connection.execute("DELETE FROM tailrace_changelog WHERE seq <= ?", (upto,))
    connection.execute("UPDATE tailrace_source SET forgotten = max(forgotten, ?)", (upto,))


def _note_unknown(
    connection: sqlite3.Connection, tbl: int, table: TableInfo, versions: SqliteVersions, key: tuple[str, ...]
) -> None:
    """Note all rows of a new table as inserted, but for those that messages have written."""
    connection.execute(sql.record_all(tbl, table.exposed, table.name, op=Op.INSERT))
    places = [f"n{table.exposed.index(column)}" for column in key]
    noted = connection.execute(sql.noted_rows(tbl, places)).fetchall()
    keys = {key_text(values): seq for seq, *values in noted}
    known = versions.find(table.namespace, keys) if versions.has_any(table.namespace) else {}
    connection.executemany("DELETE FROM tailrace_changelog WHERE seq = ?", [(keys[each],) for each in known])


def _note_filled(connection: sqlite3.Connection, tbl: int, table: TableInfo, before: Version) -> None:
    """Note the rows of a table as updated that have values in its new columns which nobody noted."""
    query = "SELECT name, coalesce(dflt_value, 'NULL') FROM pragma_table_xinfo(?, ?) WHERE hidden = 0"
    found = connection.execute(query, (table.name, SCHEMA)).fetchall()
    added = {name: default for name, default in found if name not in before.kinds}
    if added:
        connection.execute(sql.record_filled(tbl, table.exposed, table.name, added))


def _install_table(connection: sqlite3.Connection, table: TableInfo) -> int:
    if len(table.exposed) > COLUMNS_MAX:
        what = (
            f"table {table.name!r} has {len(table.exposed)} columns; changes of at most {COLUMNS_MAX} can be captured"
        )
        raise TailraceError("source.unsupported", what, hint="leave the table out with `namespace`")
    before = _latest(connection, table.name)
    present = _triggers_on(connection, table)
    owners = _owners(connection)
    for other in renamed(connection):
        if owners[other] == table.name:
            connection.execute("DELETE FROM tailrace_changelog WHERE tbl = ?", (other,))
    for name in present:
        connection.execute(sql.drop("TRIGGER", name))
    kinds = kinds_of(connection, table)
    described = (table.name, json.dumps(list(kinds.items())), json.dumps(table.key))
    tbl = connection.execute("INSERT INTO tailrace_tables(name, columns, key) VALUES (?, ?, ?)", described).lastrowid
    assert tbl is not None  # noqa: S101  an insert has a rowid
    _make_room(connection, len(kinds))
    for trigger in triggers(tbl, table, uniques_of(connection, table)):
        connection.execute(trigger.create(table.name))
    if before is not None and f"{OURS}{before.tbl}_insert" not in present:
        # The table was made anew, as migrations do, and nobody noted what happened to it meanwhile.
        connection.execute(sql.record_all(tbl, table.exposed, table.name))
    return tbl


def _is_current(connection: sqlite3.Connection, table: TableInfo) -> bool:
    latest = _latest(connection, table.name)
    if latest is None or tuple(latest.kinds) != table.exposed or latest.key != table.key:
        return False
    wanted = {trigger.name for trigger in triggers(latest.tbl, table, uniques_of(connection, table))}
    return wanted == _triggers_on(connection, table)


def _triggers_on(connection: sqlite3.Connection, table: TableInfo) -> set[str]:
    return {name for name, on in _all_triggers(connection) if on == table.name}


def _owners(connection: sqlite3.Connection) -> dict[int, str]:
    """The table that each number's triggers are on now."""
    numbers = [(name.removeprefix(OURS).partition("_")[0], on) for name, on in _all_triggers(connection)]
    return {int(number): on for number, on in numbers if number.isdecimal()}


def _all_triggers(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Our triggers, each with its table."""
    query = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?"
    return connection.execute(query, (len(OURS), OURS)).fetchall()


def _latest(connection: sqlite3.Connection, name: str) -> Version | None:
    query = "SELECT tbl, name, columns, key FROM tailrace_tables WHERE name = ? ORDER BY tbl DESC LIMIT 1"
    found = connection.execute(query, (name,)).fetchone()
    return _version(*found) if found else None


def _version(tbl: int, name: str, columns: str, key: str) -> Version:
    kinds = {column: Kind(kind) for column, kind in json.loads(columns)}
    return Version(tbl, name, kinds, tuple(json.loads(key)))


def _make_room(connection: sqlite3.Connection, count: int) -> None:
    """As many columns as the widest table needs."""
    for table, prefixes in (("tailrace_changelog", ("n", "o")), ("tailrace_replaced", ("n",))):
        found = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        wanted = [column for prefix in prefixes for column in sql.change_columns(prefix, count)]
        for column in wanted:
            if (column,) not in found:
                connection.execute(sql.add_column(table, column))
