"""A PostgreSQL server: how it is reached, and how its errors are told.

A connection that goes silent is given up: keepalives find a dead peer, and nothing waits for bytes without a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import conninfo

from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from adbc_driver_manager import dbapi

SETTINGS: Final = {
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "DateStyle": "ISO,YMD",
    "extra_float_digits": "1",
    "IntervalStyle": "iso_8601",
    "lc_monetary": "C",
    "TimeZone": "UTC",
}
"""What a session writes its values with; `texts` reads them."""
_LINK: Final = {
    "application_name": "tailrace",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_count": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "tcp_user_timeout": "30000",
}
_LOGIN: Final = ("authentication failed", "no password supplied")
_AWAY: Final = ("08", "53", "57", "58", "XX")
"""Classes of SQLSTATE that say something about the server and not about what was asked."""


@dataclass(frozen=True, slots=True)
class Server:
    """One database of a server, as a source or as a destination."""

    url: str = field(repr=False)
    """How it is reached, with the password."""
    unreachable: str = "source.unreachable"
    """The code of the error when it cannot be used."""

    @property
    def place(self) -> str:
        """The database, for people: without the password."""
        told = conninfo.conninfo_to_dict(self.url)
        host, port = told.get("host") or "localhost", told.get("port")
        return f"{host}{f':{port}' if port else ''}/{told.get('dbname') or told.get('user') or ''}"

    def connect(self, *, replication: bool = False) -> psycopg.Connection[Any]:
        """A connection that commits each statement; the caller closes it."""
        more = {"replication": "database"} if replication else {}
        with self.errors():
            return psycopg.connect(self._conninfo(**more), autocommit=True, prepare_threshold=None)

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection for some statements."""
        with self.errors(), self.connect() as connection:
            yield connection

    def arrow(self) -> dbapi.Connection:
        """A connection that answers in Arrow columns; the caller closes it."""
        from adbc_driver_postgresql import dbapi as driver

        with self.errors():
            connection: dbapi.Connection = driver.connect(self._conninfo(), autocommit=True)
            return connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The driver's errors as ours."""
        from adbc_driver_manager import dbapi

        try:
            yield
        except (psycopg.Error, dbapi.Error) as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> TailraceError:
        """What an error of the driver means, and what to do."""
        sqlstate = getattr(error, "sqlstate", None)
        what = f"database {self.place}: {_first_line(str(error))}"
        if (function := _raised_in(error)) is not None:
            return TailraceError(self.unreachable, what, hint=f"look into what raises it: {function}")
        is_login = any(words in what for words in _LOGIN)  # libpq gives no SQLSTATE while it connects
        if is_login or sqlstate in ("28000", "28P01", "3D000"):
            return TailraceError(self.unreachable, what, hint="correct user, password or database in `url`")
        if sqlstate == "42501":
            return TailraceError(self.unreachable, what, hint="tailrace doctor names the grants that are needed")
        if is_away(error):
            return TailraceError(self.unreachable, what, hint="see that the server runs and can be reached")
        return TailraceError(self.unreachable, what, hint="tailrace doctor")

    def _conninfo(self, **more: str) -> str:
        told = conninfo.conninfo_to_dict(self.url)
        options = " ".join([*(f"-c {name}={value}" for name, value in SETTINGS.items()), str(told.get("options", ""))])
        parts: dict[str, Any] = {**_LINK, **told, **more, "options": options.strip()}
        return conninfo.make_conninfo(**parts)


def is_away(error: Exception) -> bool:
    """Whether an error says that the server is gone or going, and nothing about what was asked."""
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate:
        return str(sqlstate).startswith(_AWAY)
    return not isinstance(error, psycopg.DataError | psycopg.ProgrammingError)


def _raised_in(error: Exception) -> str | None:
    """The function of the database that has raised an error itself, whatever state it gives it."""
    if not isinstance(error, psycopg.Error) or error.diag.source_function != "exec_stmt_raise":
        return None
    return _first_line(error.diag.context or "")


def _first_line(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return lines[0] if lines else "no reason was given"
