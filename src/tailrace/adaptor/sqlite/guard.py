"""The guard: while a node is read-only, programs that write its tables get an error instead.

Its triggers are made when they are first needed, and stay; a table of one row says whether they let writes through. The
node itself opens the guard and closes it again inside its own transactions, which nobody else sees.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.catalog import find_table

_EVENTS: Final = ("INSERT", "UPDATE", "DELETE")
_PREFIX: Final = "_tailrace_guard_"
"""Other than that of the triggers that note changes: those are made anew when a table changes."""
_EXISTS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tailrace_guard'"


def close(connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    """From now on only the node writes these tables."""
    if not is_there(connection):
        connection.execute(sql.GUARD_TABLE)
        connection.execute("INSERT INTO tailrace_guard VALUES (1)")
    for table in tables:
        info = find_table(connection, table)
        if info is not None:
            for event in _EVENTS:
                connection.execute(sql.guard(f"{_PREFIX}{event.lower()}_{info.name}", event, info.name))
    set_closed(connection, True)


def open_again(connection: sqlite3.Connection) -> None:
    """Everybody writes again."""
    if is_there(connection):
        set_closed(connection, False)


def is_there(connection: sqlite3.Connection) -> bool:
    return connection.execute(_EXISTS).fetchone() is not None


def is_closed(connection: sqlite3.Connection) -> bool:
    if not is_there(connection):
        return False
    (closed,) = connection.execute("SELECT closed FROM tailrace_guard").fetchone()
    return bool(closed)


def set_closed(connection: sqlite3.Connection, closed: bool) -> None:
    connection.execute("UPDATE tailrace_guard SET closed = ?", (int(closed),))
