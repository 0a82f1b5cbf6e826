"""What `tailrace doctor` asks a SQLite database. Nothing is changed."""

from __future__ import annotations

import os
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tailrace.adaptor.options import Check
from tailrace.adaptor.sqlite import catalog
from tailrace.adaptor.sqlite.changelog import COLUMNS_MAX
from tailrace.adaptor.sqlite.database import Database
from tailrace.errors import TailraceError

_VERSION_MIN: Final = (3, 37, 0)
"""Earlier ones cannot tell ordinary tables from the hidden parts of others."""


def of_source(database: Database) -> list[Check]:
    """Whether a database can be read, and its changes captured."""
    checks = [_version()]
    try:
        with database.reading() as connection:
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
            tables = catalog.all_tables(connection)
    except TailraceError as error:
        return [*checks, Check(what="database opens", ok=False, found=error.what, cure=error.hint)]
    checks.append(Check(what="database opens", ok=True, found=f"{len(tables)} tables"))
    checks.append(_journal(journal))
    checks.append(_writable(Path(database.path), "changes can be captured"))
    checks += _driver()
    checks += [check for table in tables if (check := _table(table)) is not None]
    return checks


def of_destination(database: Database, *, creates: bool) -> list[Check]:
    """Whether a database can be written."""
    path = Path(database.path)
    if path.exists():
        try:
            with database.reading() as connection:
                (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except TailraceError as error:
            return [_version(), Check(what="database opens", ok=False, found=error.what, cure=error.hint)]
        return [_version(), _journal(journal), _writable(path, "database can be written")]
    if not creates:
        cure = "create the database, or say `create: true`"
        return [_version(), Check(what="database exists", ok=False, found=f"no file {path}", cure=cure)]
    if not path.parent.is_dir():
        found = f"no directory {path.parent}"
        return [_version(), Check(what="directory exists", ok=False, found=found, cure=f"mkdir -p {path.parent}")]
    return [_version(), _writable(path.parent, "database can be created")]


def _version() -> Check:
    ok = sqlite3.sqlite_version_info >= _VERSION_MIN
    cure = "" if ok else f"use a Python with SQLite {'.'.join(map(str, _VERSION_MIN))} or later"
    return Check(what="SQLite version", ok=ok, found=sqlite3.sqlite_version, cure=cure)


def _driver() -> list[Check]:
    """A line when the driver for copying is missing."""
    if find_spec("adbc_driver_sqlite") is not None:
        return []
    return [Check(what="adbc-driver-sqlite", ok=False, found="not installed", cure="pip install 'tailrace[spark]'")]


def _journal(mode: str) -> Check:
    cure = "" if mode == "wal" else "PRAGMA journal_mode = WAL lets others write while it is read"
    return Check(what="journal mode", ok=True, found=mode, cure=cure)


def _writable(path: Path, what: str) -> Check:
    places = [path] if path.is_dir() else [path, path.parent]
    closed = [str(place) for place in places if not os.access(place, os.W_OK)]
    found = f"no permission to write {', '.join(closed)}" if closed else "allowed"
    return Check(what=what, ok=not closed, found=found, cure="allow writing there" if closed else "")


def _table(table: catalog.TableInfo) -> Check | None:
    """A line for a table about which there is something to say."""
    what = f"table {table.name}"
    why = catalog.why_unusable(table)
    if why:
        return Check(what=what, ok=False, found=f"left out: {why}", cure="rename it")
    if len(table.exposed) > COLUMNS_MAX:
        found = f"{len(table.exposed)} columns; changes of at most {COLUMNS_MAX} can be captured"
        return Check(what=what, ok=False, found=found, cure="leave it out with `namespace`")
    if not table.primary_key:
        cure = "declare a primary key: VACUUM may renumber rows that have none"
        return Check(what=what, ok=True, found=f"no primary key; rows are known by their {table.rowid}", cure=cure)
    if table.has_null_keys:
        cure = "declare the columns of the primary key NOT NULL: VACUUM may renumber rows that are known otherwise"
        found = f"NULL in its primary key; rows are known by their {table.rowid}"
        return Check(what=what, ok=True, found=found, cure=cure)
    return None
