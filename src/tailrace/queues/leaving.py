"""Leaving messages in an outbox, inside the transaction of the application."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol
from urllib.parse import quote

from tailrace.errors import TailraceError
from tailrace.queues.application import Application
from tailrace.queues.fullness import Fullness, WhenFull

Addressed = tuple[bytes, Sequence[str]]
"""A payload and the sites that get it."""
_SAVEPOINT: Final = "tailrace_transmit"
_KNOWN: Final = "SELECT site, is_full, policy FROM LRQ_Destinations WHERE client = ? AND site IN (SELECT {sites})"
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'LRQ_Send_LogEntries'"
_BUSY_S: Final = 0.5
"""Perhaps it is the application itself that keeps others from reading."""


class Leaving(Protocol):
    """An outbox as an application sees it."""

    def fullness(self, client: str, sites: Sequence[str]) -> dict[str, Fullness]:
        """How those of some sites stand to which a client can send: as it is now, if `can_wait`."""
        ...

    def can_wait(self) -> bool:
        """Whether `fullness` can be another one before the transaction ends."""
        ...

    def write(self, client: str, messages: Sequence[Addressed]) -> None:
        """All of them or, after an exception, none."""
        ...


class Beside:
    """Second connections to SQLite databases, which see what is committed and nothing else. Any thread may use it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._open: dict[str, tuple[tuple[int, int], sqlite3.Connection]] = {}

    def ask(self, path: str, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._turn:
            found = self._connection(path).execute(query, values).fetchall()
        return found

    def close(self) -> None:
        with self._turn:
            while self._open:
                self._open.popitem()[1][1].close()

    def _connection(self, path: str) -> sqlite3.Connection:
        stat = os.stat(path)
        file = (stat.st_dev, stat.st_ino)
        known = self._open.get(path)
        if known is not None and known[0] == file:
            return known[1]
        if known is not None:  # another file has this name now
            known[1].close()
        uri = f"file:{quote(path)}?mode=ro"
        made = sqlite3.connect(uri, timeout=_BUSY_S, isolation_level=None, uri=True, check_same_thread=False)
        self._open[path] = (file, made)
        return made


class SqliteLeaving:
    """In SQLite. Who has written holds up everybody else until the transaction ends, the site as well: a destination
    that is full stays so. So transmit first, then write."""

    def __init__(self, application: Application, beside: Beside) -> None:
        self._application = application
        self._beside = beside

    def fullness(self, client: str, sites: Sequence[str]) -> dict[str, Fullness]:
        query, values = _KNOWN.replace("{sites}", "value FROM json_each(?)"), (client, json.dumps(list(sites)))
        with _no_outbox(sqlite3.OperationalError):
            found = self._committed(query, values)
            return _fullness(self._application.run(query, values).fetchall() if found is None else found)

    def can_wait(self) -> bool:
        return True

    def write(self, client: str, messages: Sequence[Addressed]) -> None:
        was_begun = self._application.driver.in_transaction
        with _no_outbox(Exception):
            self._application.run("DELETE FROM LRQ_Send_LogEntries WHERE false")  # from here on nobody else writes
        begins = not was_begun or self._is_first()
        self._application.run(f"SAVEPOINT {_SAVEPOINT}")  # where each statement commits, this begins a transaction
        try:
            for payload, sites in messages:
                row = (client, payload, json.dumps(list(sites)), int(begins))
                self._application.run(
                    "INSERT INTO LRQ_Send_LogEntries (client, payload, destinations, begins) VALUES (?, ?, ?, ?)", row
                )
                begins = False
        except BaseException:
            self._application.run(f"ROLLBACK TO {_SAVEPOINT}")
            raise
        finally:
            self._application.run(f"RELEASE {_SAVEPOINT}")

    def _is_first(self) -> bool:
        """Whether it is certain that the transaction has left nothing yet."""
        committed = self._committed(_LAST)
        return committed is not None and committed == [tuple(self._application.run(_LAST).fetchone())]

    def _committed(self, query: str, values: Sequence[Any] = ()) -> list[Any] | None:
        """What others see; None in a database that is nobody else's, or that nobody else can read now."""
        path = self._path()
        if not path:
            return None
        try:
            return self._beside.ask(path, query, values)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return None

    def _path(self) -> str:
        for _, name, file in self._application.run("PRAGMA database_list").fetchall():
            if name in ("main", b"main"):
                return os.fsdecode(file or "")
        return ""


class PostgresLeaving:
    """In PostgreSQL."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def fullness(self, client: str, sites: Sequence[str]) -> dict[str, Fullness]:
        query = _KNOWN.replace("{sites}", "json_array_elements_text(?::json)")
        with _no_outbox(Exception):
            return _fullness(self._application.run(query, (client, json.dumps(list(sites)))).fetchall())

    def can_wait(self) -> bool:
        (found,) = self._application.run("SELECT current_setting('transaction_isolation')").fetchone()
        return bool(found == "read committed")

    def write(self, client: str, messages: Sequence[Addressed]) -> None:
        """One statement, so it is whole also where each statement commits."""
        payloads = [payload for payload, _ in messages]
        sites = [json.dumps(list(sites)) for _, sites in messages]
        self._application.run(
            """INSERT INTO LRQ_Send_LogEntries (client, payload, destinations)
            SELECT ?, payload, sites FROM unnest(?::bytea[], ?::text[]) WITH ORDINALITY AS sent(payload, sites, place)
            ORDER BY place""",
            (client, payloads, sites),
        )


def leaving_of(application: Application, beside: Beside) -> Leaving:
    """The outbox at the other end of an application's connection."""
    return SqliteLeaving(application, beside) if application.is_sqlite else PostgresLeaving(application)


def _fullness(rows: Sequence[tuple[str, int, str]]) -> dict[str, Fullness]:
    return {site: Fullness(bool(is_full), WhenFull(policy)) for site, is_full, policy in rows}


@contextmanager
def _no_outbox(kind: type[Exception]) -> Iterator[None]:
    """Whether an error of any driver says that the tables are missing."""
    try:
        yield
    except kind as error:
        cause = getattr(error, "orig", error)  # SQLAlchemy wraps those of drivers
        if getattr(cause, "sqlstate", None) != "42P01" and "no such table: LRQ_" not in str(cause):
            raise
        what = "the database has no outbox: the tables LRQ_… are missing"
        raise TailraceError(
            "queue.no_outbox", what, hint="name it as the client's `outbox` in the node file"
        ) from error
