"""A registry's storage in SQLite or PostgreSQL."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, bindparam, create_engine, delete, event, insert, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tailrace.errors import TailraceError
from tailrace.log.lock import Lock, LockHeld
from tailrace.masking import keep_secret
from tailrace.topology.rows import links_of, pair_of, record_of, row_of, site_of, source_of
from tailrace.topology.site import Site
from tailrace.topology.storage import Kept, Record
from tailrace.topology.tables import CONNECTIONS, FANOUTS, METADATA, OWNER, PHYSREPS, SOURCES, TUNABLES

_LOCK_NUMBER: Final = 0x7461696C72616365
"""The advisory lock of a registry: `tailrace` in ASCII."""
_TRIES: Final = 25
_TRY_S: Final = 0.04
_BATCH_ROWS: Final = 1000
_LINK: Final = {
    "application_name": "tailrace registry",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A server that goes silent is given up."""


class DatabaseStorage:
    """The tables in one database, which nobody else has while this is open."""

    def __init__(self, address: str) -> None:
        """`sqlite:///path`, a plain path, or `postgresql://…`. Raises `topology.registry_taken` if another has it."""
        keep_secret(address)
        self._url = _url(address)
        self._token = secrets.token_hex(16)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self._lock: Lock | None = None
        self._connection: Connection | None = None
        self._engine = _engine(self._url)
        try:
            if self._is_sqlite:
                self._lock = _lock_file(self._url.database or "")
            with self._transaction(is_first=True) as connection:
                METADATA.create_all(connection)
                self._upsert(connection, OWNER, [{"id": 0, "token": self._token}])
        except BaseException:
            self.close()
            raise

    def load(self) -> Kept:
        with self._transaction() as connection:
            links: dict[tuple[Site, bool], Site] = {}
            for row in connection.execute(select(CONNECTIONS)).mappings():
                links[site_of(row), row["is_reserved"]] = source_of(row)
            return Kept(
                tuple(record_of(row, links) for row in connection.execute(select(PHYSREPS)).mappings()),
                tuple((site_of(row), source_of(row)) for row in connection.execute(select(SOURCES)).mappings()),
                {row["name"]: row["value"] for row in connection.execute(select(TUNABLES)).mappings()},
                {row["dbname"]: row["fanout"] for row in connection.execute(select(FANOUTS)).mappings()},
            )

    def save(self, records: Iterable[Record], forgotten: Iterable[Site]) -> None:
        found = list(records)
        gone = list(forgotten)
        with self._transaction() as connection:
            _delete(connection, PHYSREPS, gone)
            self._upsert(connection, PHYSREPS, [row_of(record) for record in found])
            _delete(connection, CONNECTIONS, [record.site for record in found])
            if links := [link for record in found for link in links_of(record)]:
                connection.execute(insert(CONNECTIONS), links)

    def save_reports(self, records: Iterable[Record]) -> None:
        rows = [row_of(record) for record in records]
        with self._transaction() as connection:
            for start in range(0, len(rows), _BATCH_ROWS):
                self._upsert(connection, PHYSREPS, rows[start : start + _BATCH_ROWS])

    def add_rule(self, replica: Site, source: Site) -> None:
        with self._transaction() as connection:
            self._upsert(connection, SOURCES, [pair_of(replica, source)])

    def remove_rule(self, replica: Site, source: Site) -> None:
        with self._transaction() as connection:
            wanted = [SOURCES.c[name] == value for name, value in pair_of(replica, source).items()]
            connection.execute(delete(SOURCES).where(*wanted))

    def set_tunable(self, name: str, text: str) -> None:
        with self._transaction() as connection:
            self._upsert(connection, TUNABLES, [{"name": name, "value": text}])

    def set_fanout(self, database: str, fanout: int | None) -> None:
        with self._transaction() as connection:
            if fanout is None:
                connection.execute(delete(FANOUTS).where(FANOUTS.c.dbname == database))
            else:
                self._upsert(connection, FANOUTS, [{"dbname": database, "fanout": fanout}])

    def close(self) -> None:
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                if not self._is_sqlite:
                    self._connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": _LOCK_NUMBER})
            self._connection.close()
            self._connection = None
        self._engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _upsert(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        make: Callable[[Table], Any] = sqlite.insert if self._is_sqlite else postgresql.insert
        statement = make(table)
        others = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
        keys = list(table.primary_key)
        if others:
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), rows)
        else:
            connection.execute(statement.on_conflict_do_nothing(index_elements=keys), rows)

    @contextmanager
    def _transaction(self, *, is_first: bool = False) -> Iterator[Connection]:
        try:
            connection = self._connected(is_first=is_first)
            with connection.begin():
                yield connection
        except SQLAlchemyError as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated and self._connection is not None:
                self._connection.close()
                self._connection = None
            raise self._failed(error) from None

    def _connected(self, *, is_first: bool) -> Connection:
        """The one connection. After a loss it is good only if nobody else has had the tables since."""
        if self._connection is not None:
            return self._connection
        connection = self._engine.connect()
        try:
            self._take(connection, is_first=is_first)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _take(self, connection: Connection, *, is_first: bool) -> None:
        with connection.begin():
            if not self._is_sqlite:
                _lock_server(connection)
            if not is_first and connection.execute(select(OWNER.c.token)).scalar_one_or_none() != self._token:
                raise _taken("another process has come since, and")

    def _failed(self, error: SQLAlchemyError) -> TailraceError:
        place = self._url.render_as_string(hide_password=True)
        cause = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        what = f"the registry in {place} cannot be used: {cause.strip().splitlines()[0] if cause.strip() else error}"
        return TailraceError("topology.registry_failed", what, hint="look after that database")


def _url(address: str) -> URL:
    try:
        url = make_url(address if "://" in address else f"sqlite:///{os.path.abspath(address)}")
    except ArgumentError:
        raise _bad_address() from None
    match url.get_backend_name():
        case "sqlite" if url.database and url.database != ":memory:":
            return url
        case "postgresql":
            return url.set(drivername="postgresql+psycopg")
    raise _bad_address()


def _bad_address() -> TailraceError:
    hint = "name a file, or postgresql://user:password@host/database"
    return TailraceError("input.invalid", "that is no address of a registry's database", hint=hint)


def _engine(url: URL) -> Engine:
    try:
        link = {} if url.get_backend_name() == "sqlite" else _LINK
        engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=link)
    except (ImportError, NoSuchModuleError):
        hint = "pip install 'tailrace[registry,postgres]'"
        raise TailraceError("topology.registry_failed", "the driver of that database is missing", hint=hint) from None
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    for statement in ("PRAGMA foreign_keys=ON", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"):
        connection.execute(statement)


def _lock_file(path: str) -> Lock:
    lock = Lock(f"{path}.lock")
    try:
        lock.acquire()
    except LockHeld as held:
        raise _taken(str(held)) from None
    except OSError as error:
        what = f"the registry in {path} cannot be used: {error.strerror}"
        raise TailraceError("topology.registry_failed", what, hint="look after that directory") from None
    return lock


def _lock_server(connection: Connection) -> None:
    """A few tries: the server needs a moment to notice that the process which had it before has ended."""
    for _ in range(_TRIES):
        if connection.execute(text("SELECT pg_try_advisory_lock(:number)"), {"number": _LOCK_NUMBER}).scalar_one():
            return
        time.sleep(_TRY_S)
    raise _taken("another process")


def _taken(who: str) -> TailraceError:
    return TailraceError("topology.registry_taken", f"{who} keeps this registry", hint="end that process first")


def _delete(connection: Connection, table: Table, sites: list[Site]) -> None:
    if sites:
        wanted = table.c.dbname == bindparam("database"), table.c.host == bindparam("place")
        rows = [{"database": site.database, "place": site.host} for site in sites]
        connection.execute(delete(table).where(*wanted), rows)
