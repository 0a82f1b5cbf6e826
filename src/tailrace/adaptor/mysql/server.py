"""A MySQL or MariaDB server: how it is reached, and how its errors are told.

A connection that goes silent is given up: keepalives find a dead peer, and nothing that was sent waits for ever.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql import converters

from tailrace.errors import TailraceError

PORT: Final = 3306
SQL_MODE: Final = (
    "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
)
"""Nothing is cut off or rounded silently; zero dates, which sources have, are written as they are."""
_SETTINGS: Final = f"SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '{SQL_MODE}'"
_CONNECT_S: Final = 10
_WRITE_S: Final = 120
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
_AS_WRITTEN: Final[dict[Any, Any]] = {
    kind: read for kind, read in converters.conversions.items() if not isinstance(kind, int)
}
"""Values come as the server writes them; only what is sent is converted."""
_DENIED: Final = (1044, 1045, 1130, 1142, 1143, 1227, 1370, 1698)
_AWAY: Final = (1040, 1053, 1077, 1078, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1290, 1836, 1927)
"""Errors that say something about the server and not about what was asked."""
AGAIN: Final = (1205, 1213)
"""A lock was waited for too long, or two transactions waited for each other: another time it may succeed."""
_FIRST_OF_CLIENT: Final = 2000
_IN_TRANSACTION: Final = 1


class Tls(StrEnum):
    """How a connection is protected."""

    OFF = "off"
    PREFER = "prefer"
    """Encrypted if the server can; whose certificate it is is not looked at."""
    REQUIRE = "require"
    """Encrypted; whose certificate it is is not looked at."""
    VERIFY = "verify"
    """Encrypted, with a certificate of the server that somebody trusted has signed."""


@dataclass(frozen=True, slots=True)
class Server:
    """One server, as a source or as a destination."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""
    """The only database that matters, all of them when empty."""
    tls: Tls = Tls.PREFER
    ca: str = ""
    """A file with the certificates that are trusted; those of the system when empty."""
    unreachable: str = "source.unreachable"
    """The code of the error when it cannot be used."""

    @property
    def place(self) -> str:
        """The server, for people: without the password."""
        return f"{self.host}:{self.port}/{self.database}"

    def connect(self) -> pymysql.Connection[Any]:
        """A connection that commits each statement and gives values as text; the caller closes it."""
        with self.errors():
            connection = pymysql.Connection(
                host=self.host,
                user=self.user,
                password=self.password,
                database=self.database or None,
                port=self.port,
                charset="utf8mb4",
                autocommit=True,
                conv=_AS_WRITTEN,
                connect_timeout=_CONNECT_S,
                write_timeout=_WRITE_S,
                program_name="tailrace",
                ssl=None if self.tls is Tls.OFF else _tls_context(self.tls, self.ca),
                ssl_disabled=self.tls is Tls.OFF,
                defer_connect=True,
            )
            if self.tls is Tls.PREFER:
                connection._ssl_required = False  # type: ignore[attr-defined]  # it prefers by itself, but slowly
            connection.connect(self._socket())
            with connection.cursor() as cursor:
                cursor.execute(_SETTINGS)
            return connection

    @contextmanager
    def session(self) -> Iterator[pymysql.Connection[Any]]:
        """A connection for some statements."""
        with self.errors(), closing(self.connect()) as connection:
            yield connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The driver's errors as ours."""
        try:
            yield
        except (pymysql.err.MySQLError, OSError, RuntimeError) as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> TailraceError:
        """What an error of the driver means, and what to do."""
        what = f"server {self.place}: {told(error)}"
        if "cryptography" in str(error):
            return TailraceError(self.unreachable, what, hint="say `tls: require`, so that the password can be sent")
        if code_of(error) in _DENIED:
            return TailraceError(self.unreachable, what, hint="correct user, password or grants; tailrace doctor")
        if is_away(error):
            return TailraceError(self.unreachable, what, hint="see that the server runs and can be reached")
        return TailraceError(self.unreachable, what, hint="tailrace doctor")

    def _socket(self) -> socket.socket:
        made = socket.create_connection((self.host, self.port), _CONNECT_S)
        made.settimeout(None)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return made


@cache
def _tls_context(tls: Tls, ca: str) -> ssl.SSLContext:
    """Made once: reading the system's certificates takes longer than connecting."""
    if tls is Tls.VERIFY:
        return ssl.create_default_context(cafile=ca or None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def parse_url(url: str) -> dict[str, Any]:
    """The parts of an address. Raises `ValueError`, which does not repeat it."""
    parts = urlsplit(url)
    if parts.scheme not in ("mysql", "mariadb") or not parts.hostname:
        raise ValueError("this is no address of MySQL: write mysql://user@host:3306/database")
    if not parts.username:
        raise ValueError("the address names no user: write mysql://user@host:3306/database")
    if parts.query or parts.fragment:
        raise ValueError("the address has more than user, host, port and database; other things have options")
    return {
        "host": parts.hostname,
        "port": parts.port or PORT,
        "user": unquote(parts.username),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.lstrip("/")),
    }


def rows(connection: pymysql.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    """What a query gives, all values as text. It is sent as it is: names may have percent signs."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def execute(connection: pymysql.Connection[Any], statement: str | bytes) -> None:
    """Do something, as it is written."""
    connection.query(statement)


def full_version(connection: pymysql.Connection[Any]) -> str:
    """As the server tells it when one connects."""
    return str(connection.get_server_info())  # type: ignore[no-untyped-call]


def is_mariadb(connection: pymysql.Connection[Any]) -> bool:
    return "MariaDB" in full_version(connection)


def is_in_transaction(connection: pymysql.Connection[Any]) -> bool:
    """As the server told with its last answer."""
    status: int = connection.server_status  # type: ignore[attr-defined]
    return bool(status & _IN_TRANSACTION)


def version(connection: pymysql.Connection[Any]) -> tuple[int, ...]:
    """Major and minor version. MariaDB once called itself 5.5.5 in front of its real version."""
    found = full_version(connection).removeprefix("5.5.5-").partition("-")[0]
    return tuple(int(part) for part in found.split(".")[:2] if part.isdigit())


def code_of(error: Exception) -> int:
    """The server's number for an error, 0 when it has none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(error, pymysql.err.MySQLError) and isinstance(first, int) else 0


def is_away(error: Exception) -> bool:
    """Whether an error says that the server is gone or going, and nothing about what was asked."""
    code = code_of(error)
    if isinstance(error, pymysql.err.InterfaceError | OSError) or code >= _FIRST_OF_CLIENT:
        return True
    return code in _AWAY


def told(error: Exception) -> str:
    """What the server says, in one line."""
    said = error.args[1] if len(error.args) > 1 and isinstance(error, pymysql.err.MySQLError) else str(error)
    return " ".join(str(said).split()) or "no reason was given"
