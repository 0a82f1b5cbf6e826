"""An outbox in SQLite.

One connection at a time writes, and numbers are never used again. So all rows that are seen at one moment are whole
transactions, and none with a lower number comes later. `begins` says where a transaction is known to begin: only there
a batch may end before the last row that is seen.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tailrace.adaptor.sqlite.database import Database
from tailrace.errors import TailraceError
from tailrace.queues.entries import PAYLOAD_BYTES_MAX, Outgoing
from tailrace.queues.fullness import Fullness
from tailrace.queues.outbox import (
    BATCH_BYTES,
    REFUSED,
    Asked,
    OutboxBatch,
    Owner,
    Position,
    SuppliedRow,
    outbox_taken,
    outgoing,
    position_lost,
    snapshot_rows,
)

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS LRQ_Outbox (token TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS LRQ_Site (site TEXT NOT NULL, log TEXT NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS LRQ_Send_LogEntries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        client TEXT NOT NULL,
        payload BLOB NOT NULL CHECK (typeof(payload) = 'blob' AND length(payload) <= {PAYLOAD_BYTES_MAX}),
        destinations TEXT NOT NULL CHECK (json_type(destinations) = 'array'),
        created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
        begins INTEGER NOT NULL DEFAULT 0)""",
    f"""CREATE TABLE IF NOT EXISTS LRQ_Send_SnapSync (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        client TEXT NOT NULL,
        request TEXT NOT NULL,
        kind INTEGER NOT NULL,
        payload BLOB NOT NULL CHECK (typeof(payload) = 'blob' AND length(payload) <= {PAYLOAD_BYTES_MAX}))""",
    """CREATE TABLE IF NOT EXISTS LRQ_Destinations (
        client TEXT NOT NULL,
        site TEXT NOT NULL,
        is_full INTEGER NOT NULL,
        policy TEXT NOT NULL,
        PRIMARY KEY (client, site))""",
    """CREATE TABLE IF NOT EXISTS LRQ_Requests (
        request TEXT PRIMARY KEY,
        client TEXT NOT NULL,
        sites TEXT NOT NULL,
        created REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
        attempts INTEGER NOT NULL DEFAULT 0,
        attempt TEXT UNIQUE,
        claimed_at REAL,
        claimed_by TEXT,
        done_at REAL,
        error TEXT,
        failures INTEGER NOT NULL DEFAULT 0,
        retry_at REAL NOT NULL DEFAULT 0,
        supplied INTEGER NOT NULL DEFAULT 0,
        total INTEGER)""",
)
_IS_MINE: Final = "SELECT EXISTS (SELECT 1 FROM LRQ_Site WHERE log = ?)"
_HAS_ROWS: Final = "SELECT EXISTS (SELECT 1 FROM LRQ_Send_LogEntries) OR EXISTS (SELECT 1 FROM LRQ_Send_SnapSync)"
_ENTRIES: Final = """SELECT id, client, payload, destinations, begins FROM LRQ_Send_LogEntries
    WHERE id > ? ORDER BY id"""
_SNAPSHOTS: Final = """SELECT rows.id, rows.client, rows.request, rows.kind, rows.payload, wanted.sites
    FROM LRQ_Send_SnapSync AS rows LEFT JOIN LRQ_Requests AS wanted ON wanted.attempt = rows.request
    WHERE rows.id > ? ORDER BY rows.id"""


class SqliteOutbox:
    """In one database file, which is made if it is missing."""

    def __init__(self, path: str, owner: Owner, *, busy_s: float = 30.0, batch_bytes: int = BATCH_BYTES) -> None:
        self._owner = owner
        self._database = Database(path, busy_s)
        self._database.share()
        self._batch_bytes = batch_bytes
        self._is_installed = False
        self._turn = threading.Lock()

    def install(self) -> None:
        self._database.make()
        with self._database.writing() as connection:
            for table in _TABLES:
                connection.execute(table)
            if _token(connection) is None:
                connection.execute("INSERT INTO LRQ_Outbox VALUES (?)", (secrets.token_hex(8),))
            known = connection.execute("SELECT site, log FROM LRQ_Site").fetchone()
            if known is None:
                connection.execute("INSERT INTO LRQ_Site VALUES (?, ?)", (self._owner.site, self._owner.log))
            elif known[1] != self._owner.log:
                raise outbox_taken(self._database.path, known[0])
        self._is_installed = True

    def set_destinations(self, client: str, destinations: Mapping[str, Fullness]) -> None:
        wanted = {site: (int(each.is_full), each.policy.value) for site, each in destinations.items()}
        query = "SELECT site, is_full, policy FROM LRQ_Destinations WHERE client = ?"
        with self._reading() as connection:
            known = {site: (is_full, policy) for site, is_full, policy in connection.execute(query, (client,))}
        if known == wanted:
            return
        gone = [(client, site) for site in known if site not in wanted]
        changed = [(client, site, *told) for site, told in wanted.items() if known.get(site) != told]
        with self._writing() as connection:
            connection.executemany("DELETE FROM LRQ_Destinations WHERE client = ? AND site = ?", gone)
            connection.executemany("INSERT OR REPLACE INTO LRQ_Destinations VALUES (?, ?, ?, ?)", changed)

    def clients(self) -> set[str]:
        with self._reading() as connection:
            return {client for (client,) in connection.execute("SELECT DISTINCT client FROM LRQ_Destinations")}

    def read(self, after: Position | None) -> OutboxBatch | None:
        with self._reading() as connection:
            token = _token(connection)
            if token is None or not connection.execute(_IS_MINE, (self._owner.log,)).fetchone()[0]:
                self._is_installed = False
                return None
            if not connection.execute(_HAS_ROWS).fetchone()[0]:
                return None
            start = after if after is not None and after.outbox == token else Position(token)
            self._check_age(connection, start)
            transactions, entries_end = self._transactions(connection, start)
            supplied, snapshots_end = self._snapshots(connection, start)
        position = Position(token, entries_end, snapshots_end)
        return None if position == start else OutboxBatch(transactions, *snapshot_rows(supplied), position)

    def forget(self, upto: Position) -> None:
        with self._reading() as connection:
            if not connection.execute(_HAS_ROWS).fetchone()[0]:
                return
        with self._writing() as connection:
            if _token(connection) == upto.outbox:
                connection.execute("DELETE FROM LRQ_Send_LogEntries WHERE id <= ?", (upto.entries,))
                connection.execute("DELETE FROM LRQ_Send_SnapSync WHERE id <= ?", (upto.snapshots,))

    def ask(self, request: str, client: str, sites: Sequence[str]) -> bool:
        wanted = json.dumps(sorted(sites))
        with self._writing() as connection:
            connection.execute(
                """INSERT INTO LRQ_Requests (request, client, sites) VALUES (?, ?, ?)
                ON CONFLICT (request) DO UPDATE SET sites = excluded.sites WHERE attempt IS NULL AND done_at IS NULL""",
                (request, client, wanted),
            )
            found = connection.execute("SELECT sites FROM LRQ_Requests WHERE request = ?", (request,)).fetchone()
        return bool(found == (wanted,))

    def withdraw(self, request: str) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM LRQ_Requests WHERE request = ?", (request,))

    def refuse(self, attempt: str, why: str) -> None:
        with self._writing() as connection:
            connection.execute(REFUSED.format(value="?"), (why, attempt))

    def requests(self) -> list[Asked]:
        query = """SELECT request, client, sites, attempt, claimed_by, done_at, error, failures, supplied, total
            FROM LRQ_Requests ORDER BY created, request"""
        with self._reading() as connection:
            return [
                Asked(request, client, tuple(json.loads(sites)), attempt, by, done_at is not None, *others)
                for request, client, sites, attempt, by, done_at, *others in connection.execute(query)
            ]

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _transactions(
        self, connection: sqlite3.Connection, start: Position
    ) -> tuple[list[tuple[str, list[Outgoing]]], int]:
        found: list[tuple[str, list[Outgoing]]] = []
        size, end = 0, start.entries
        for row, client, payload, destinations, begins in connection.execute(_ENTRIES, (start.entries,)):
            if begins and size >= self._batch_bytes:
                break
            if begins or not found:
                found.append((f"{start.outbox}.{row}", []))
            found[-1][1].append(outgoing(row, client, payload, destinations))
            size += len(payload) + len(destinations)
            end = row
        return found, end

    def _snapshots(self, connection: sqlite3.Connection, start: Position) -> tuple[list[SuppliedRow], int]:
        """Rows of attempts that do not count any more are passed over."""
        found: list[SuppliedRow] = []
        size, end = 0, start.snapshots
        for row in connection.execute(_SNAPSHOTS, (start.snapshots,)):
            if size >= self._batch_bytes:
                break
            end = row[0]
            if row[-1] is not None:
                found.append(row)
                size += len(row[4])
        return found, end

    def _check_age(self, connection: sqlite3.Connection, position: Position) -> None:
        last = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        if (
            last.get("LRQ_Send_LogEntries", 0) < position.entries
            or last.get("LRQ_Send_SnapSync", 0) < position.snapshots
        ):
            raise position_lost(self._database.path)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._installed(), self._database.reading() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._installed(), self._database.writing() as connection:
            yield connection

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with self._turn:
            if not self._is_installed:
                self.install()
        try:
            yield
        except TailraceError as error:
            if error.code == "source.unreachable":
                self._is_installed = False  # perhaps it is another file now
            raise


def _token(connection: sqlite3.Connection) -> str | None:
    found = connection.execute("SELECT token FROM LRQ_Outbox").fetchone()
    return str(found[0]) if found else None
