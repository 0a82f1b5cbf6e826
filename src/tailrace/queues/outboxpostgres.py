"""An outbox in PostgreSQL.

Many transactions write at once, and one that began early may commit late. Each row has the number of its transaction,
and only rows below the oldest transaction that still runs are read: all of those have ended, and no other can come. So
a transaction that writes for long holds up what is sent meanwhile, and loses nothing.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import psycopg

from tailrace.adaptor.postgres.server import Server
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

_INSTALL_LOCK: Final = 0x4C52515F
"""Two sites, or two threads, do not make the tables at once: `LRQ_` in ASCII."""
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS LRQ_Outbox (token text NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS LRQ_Site (site text NOT NULL, log text NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS LRQ_Send_LogEntries (
        id bigint GENERATED ALWAYS AS IDENTITY,
        client text NOT NULL,
        payload bytea NOT NULL CHECK (octet_length(payload) <= {PAYLOAD_BYTES_MAX}),
        destinations text NOT NULL CHECK (json_typeof(destinations::json) = 'array'),
        created timestamptz NOT NULL DEFAULT clock_timestamp(),
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        PRIMARY KEY (xid, id))""",
    f"""CREATE TABLE IF NOT EXISTS LRQ_Send_SnapSync (
        id bigint GENERATED ALWAYS AS IDENTITY,
        client text NOT NULL,
        request text NOT NULL,
        kind integer NOT NULL,
        payload bytea NOT NULL CHECK (octet_length(payload) <= {PAYLOAD_BYTES_MAX}),
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        PRIMARY KEY (xid, id))""",
    """CREATE TABLE IF NOT EXISTS LRQ_Destinations (
        client text NOT NULL,
        site text NOT NULL,
        is_full boolean NOT NULL,
        policy text NOT NULL,
        PRIMARY KEY (client, site))""",
    """CREATE TABLE IF NOT EXISTS LRQ_Requests (
        request text PRIMARY KEY,
        client text NOT NULL,
        sites text NOT NULL,
        created double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
        attempts integer NOT NULL DEFAULT 0,
        attempt text UNIQUE,
        claimed_at double precision,
        claimed_by text,
        done_at double precision,
        error text,
        failures integer NOT NULL DEFAULT 0,
        retry_at double precision NOT NULL DEFAULT 0,
        supplied bigint NOT NULL DEFAULT 0,
        total bigint)""",
)
_HAS_ROWS: Final = """SELECT EXISTS (SELECT FROM LRQ_Send_LogEntries) OR EXISTS (SELECT FROM LRQ_Send_SnapSync)
    OR NOT EXISTS (SELECT FROM LRQ_Outbox) OR NOT EXISTS (SELECT FROM LRQ_Site WHERE log = %s)"""
_STATE: Final = """SELECT (SELECT token FROM LRQ_Outbox LIMIT 1), EXISTS (SELECT FROM LRQ_Site WHERE log = %s),
    pg_snapshot_xmin(found)::text::bigint, pg_snapshot_xmax(found)::text::bigint FROM pg_current_snapshot() AS found"""
_SIZES: Final = """SELECT xid::text::bigint, sum(octet_length(payload))::bigint FROM {table}
    WHERE xid > %s::text::xid8 AND xid < %s::text::xid8 GROUP BY xid ORDER BY xid LIMIT 1000"""
_ENTRIES: Final = """SELECT xid::text::bigint, id, client, payload, destinations FROM LRQ_Send_LogEntries
    WHERE xid > %s::text::xid8 AND xid <= %s::text::xid8 ORDER BY xid, id"""
_SNAPSHOTS: Final = """SELECT found.id, found.client, found.request, found.kind, found.payload, wanted.sites
    FROM LRQ_Send_SnapSync AS found JOIN LRQ_Requests AS wanted ON wanted.attempt = found.request
    WHERE found.xid > %s::text::xid8 AND found.xid <= %s::text::xid8 ORDER BY found.xid, found.id"""


class PostgresOutbox:
    """In one database of a server. The tables are where the user's search path makes them."""

    def __init__(self, url: str, owner: Owner, *, batch_bytes: int = BATCH_BYTES) -> None:
        self._server = Server(url)
        self._owner = owner
        self._batch_bytes = batch_bytes
        self._connection: psycopg.Connection[Any] | None = None
        self._is_installed = False
        self._turn = threading.RLock()

    def install(self) -> None:
        self._is_installed = False
        with self._transaction():
            pass

    def set_destinations(self, client: str, destinations: Mapping[str, Fullness]) -> None:
        wanted = {site: (each.is_full, each.policy.value) for site, each in destinations.items()}
        query = "SELECT site, is_full, policy FROM LRQ_Destinations WHERE client = %s"
        with self._transaction() as connection:
            known = {site: (is_full, policy) for site, is_full, policy in connection.execute(query, (client,))}
            gone = [site for site in known if site not in wanted]
            changed = [(client, site, *told) for site, told in wanted.items() if known.get(site) != told]
            if gone:
                connection.execute("DELETE FROM LRQ_Destinations WHERE client = %s AND site = ANY(%s)", (client, gone))
            if changed:
                connection.cursor().executemany(
                    """INSERT INTO LRQ_Destinations VALUES (%s, %s, %s, %s)
                    ON CONFLICT (client, site) DO UPDATE SET is_full = excluded.is_full, policy = excluded.policy""",
                    changed,
                )

    def clients(self) -> set[str]:
        with self._transaction() as connection:
            return {client for (client,) in connection.execute("SELECT DISTINCT client FROM LRQ_Destinations")}

    def read(self, after: Position | None) -> OutboxBatch | None:
        with self._connected() as connection:
            if connection.execute(_HAS_ROWS, (self._owner.log,)).fetchone() == (False,):
                return None
        with self._transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            found = connection.execute(_STATE, (self._owner.log,)).fetchone() or (None, False, 0, 0)
            token, is_mine, oldest, following = found
            if token is None or not is_mine:
                self._is_installed = False
                return None
            start = after if after is not None and after.outbox == token else Position(token)
            if following <= max(start.entries, start.snapshots):
                raise position_lost(self._server.place)
            entries_end = self._end(connection, "LRQ_Send_LogEntries", start.entries, oldest)
            transactions = _transactions(connection, start, entries_end)
            snapshots_end = self._end(connection, "LRQ_Send_SnapSync", start.snapshots, oldest)
            supplied = _snapshots(connection, start, snapshots_end)
        position = Position(token, entries_end, snapshots_end)
        return None if position == start else OutboxBatch(transactions, *snapshot_rows(supplied), position)

    def forget(self, upto: Position) -> None:
        with self._transaction() as connection:
            for table, xid in (("LRQ_Send_LogEntries", upto.entries), ("LRQ_Send_SnapSync", upto.snapshots)):
                connection.execute(
                    f"DELETE FROM {table} WHERE xid <= %s::text::xid8 AND (SELECT token FROM LRQ_Outbox LIMIT 1) = %s",  # noqa: S608  names of our own
                    (xid, upto.outbox),
                )

    def ask(self, request: str, client: str, sites: Sequence[str]) -> bool:
        wanted = json.dumps(sorted(sites))
        with self._transaction() as connection:
            connection.execute(
                """INSERT INTO LRQ_Requests AS known (request, client, sites) VALUES (%s, %s, %s)
                ON CONFLICT (request) DO UPDATE SET sites = excluded.sites
                WHERE known.attempt IS NULL AND known.done_at IS NULL""",
                (request, client, wanted),
            )
            found = connection.execute("SELECT sites FROM LRQ_Requests WHERE request = %s", (request,)).fetchone()
        return bool(found == (wanted,))

    def withdraw(self, request: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM LRQ_Requests WHERE request = %s", (request,))

    def refuse(self, attempt: str, why: str) -> None:
        with self._transaction() as connection:
            connection.execute(REFUSED.format(value="%s"), (why, attempt))

    def requests(self) -> list[Asked]:
        query = """SELECT request, client, sites, attempt, claimed_by, done_at, error, failures, supplied, total
            FROM LRQ_Requests ORDER BY created, request"""
        with self._transaction() as connection:
            return [
                Asked(request, client, tuple(json.loads(sites)), attempt, by, done_at is not None, *others)
                for request, client, sites, attempt, by, done_at, *others in connection.execute(query)
            ]

    def close(self) -> None:
        with self._turn:
            if self._connection is not None:
                with suppress(psycopg.Error):
                    self._connection.close()
                self._connection = None

    def _end(self, connection: psycopg.Connection[Any], table: str, start: int, oldest: int) -> int:
        """The last transaction of a batch that is large enough."""
        size, end = 0, start
        for xid, some in connection.execute(_SIZES.format(table=table), (start, oldest)):
            end = xid
            size += some
            if size >= self._batch_bytes:
                break
        return end

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with self._connected() as connection, connection.transaction():
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """The one connection, made anew when it is lost; the tables are there."""
        with self._turn:
            try:
                with self._server.errors():
                    if self._connection is None:
                        self._connection = self._server.connect()
                    if not self._is_installed:
                        _install(self._connection)
                        self._take(self._connection)
                        self._is_installed = True
                    yield self._connection
            except BaseException:
                self._is_installed = False  # perhaps it is another database now
                self.close()
                raise

    def _take(self, connection: psycopg.Connection[Any]) -> None:
        query = "SELECT site, log FROM LRQ_Site"
        with connection.transaction():
            known = connection.execute(query).fetchone()
            if known is None:
                connection.execute("LOCK TABLE LRQ_Site IN EXCLUSIVE MODE")
                connection.execute(
                    "INSERT INTO LRQ_Site SELECT %s, %s WHERE NOT EXISTS (SELECT FROM LRQ_Site)",
                    (self._owner.site, self._owner.log),
                )
                known = connection.execute(query).fetchone() or ("", "")
        if known[1] != self._owner.log:
            raise outbox_taken(self._server.place, known[0])


def _install(connection: psycopg.Connection[Any]) -> None:
    present = connection.execute("SELECT count(to_regclass(name)) FROM unnest(%s::text[]) AS name", (_names(),))
    with connection.transaction():
        if present.fetchone() != (len(_TABLES),):
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_INSTALL_LOCK,))
            connection.execute("SET LOCAL client_min_messages = warning")
            for table in _TABLES:
                connection.execute(table)
        if connection.execute("SELECT FROM LRQ_Outbox").fetchone() is None:
            connection.execute("LOCK TABLE LRQ_Outbox IN EXCLUSIVE MODE")
            connection.execute(
                "INSERT INTO LRQ_Outbox SELECT %s WHERE NOT EXISTS (SELECT FROM LRQ_Outbox)", (secrets.token_hex(8),)
            )


def _names() -> list[str]:
    return ["LRQ_Outbox", "LRQ_Site", "LRQ_Send_LogEntries", "LRQ_Send_SnapSync", "LRQ_Destinations", "LRQ_Requests"]


def _transactions(connection: psycopg.Connection[Any], start: Position, end: int) -> list[tuple[str, list[Outgoing]]]:
    if end == start.entries:
        return []
    rows = connection.execute(_ENTRIES, (start.entries, end), binary=True)
    return [
        (f"{start.outbox}.{xid}", [outgoing(*row) for _, *row in each]) for xid, each in groupby(rows, itemgetter(0))
    ]


def _snapshots(connection: psycopg.Connection[Any], start: Position, end: int) -> list[SuppliedRow]:
    if end == start.snapshots:
        return []
    return connection.execute(_SNAPSHOTS, (start.snapshots, end), binary=True).fetchall()
