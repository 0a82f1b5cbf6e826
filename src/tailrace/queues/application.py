"""An application's connection to its own database: one of SQLite, of psycopg or of SQLAlchemy, spoken to in one way."""

from __future__ import annotations

import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tailrace.errors import TailraceError

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    from sqlalchemy import orm

    Connection: TypeAlias = "sqlite3.Connection | psycopg.Connection[Any] | sqlalchemy.Connection | orm.Session"
    """What an application sends through."""


class Application(ABC):
    """Statements are written with `?`, and `{now}` is the database's time in seconds."""

    is_sqlite: bool

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def driver(self) -> Any:
        """The connection of the driver."""
        return self._connection

    @abstractmethod
    def run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement in the transaction that the connection is in, or begins; gives a cursor."""

    @abstractmethod
    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def _text(self, statement: str) -> str:
        if self.is_sqlite:
            return statement.replace("{now}", "((julianday('now') - 2440587.5) * 86400.0)")
        return statement.replace("{now}", "extract(epoch FROM clock_timestamp())::float8").replace("?", "%s")


class SqliteApplication(Application):
    """Through Python's own driver."""

    is_sqlite = True

    def run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._cursor().execute(self._text(statement), values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._cursor().executemany(self._text(statement), rows)

    def _cursor(self) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self._connection.cursor()
        cursor.row_factory = None  # the application may want its rows otherwise
        return cursor


class PsycopgApplication(Application):
    """Through psycopg."""

    is_sqlite = False

    def run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._cursor().execute(self._text(statement), values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._cursor().executemany(self._text(statement), rows)

    def _cursor(self) -> Any:
        from psycopg.rows import tuple_row

        return self._connection.cursor(row_factory=tuple_row)  # the application may want its rows otherwise


class SqlAlchemyApplication(Application):
    """Through SQLAlchemy, so that it knows that a transaction has begun."""

    def __init__(self, connection: sqlalchemy.Connection | orm.Session) -> None:
        super().__init__(connection)
        dialect = self._speaking.dialect.name
        if dialect not in ("sqlite", "postgresql"):
            raise _unknown(f"a connection to {dialect}")
        self.is_sqlite = dialect == "sqlite"

    @property
    def driver(self) -> Any:
        return self._speaking.connection.driver_connection

    def run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._speaking.exec_driver_sql(self._text(statement), tuple(values))

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._speaking.exec_driver_sql(self._text(statement), [tuple(row) for row in rows])

    @property
    def _speaking(self) -> Any:
        """A session has another connection after each transaction."""
        is_connection = hasattr(self._connection, "exec_driver_sql")
        return self._connection if is_connection else self._connection.connection()


def application_of(connection: Connection) -> Application:
    """Whatever an application has; what it has not imported it cannot have."""
    if isinstance(connection, sqlite3.Connection):
        return SqliteApplication(connection)
    kinds: list[tuple[str, str, Any]] = [
        ("psycopg", "Connection", PsycopgApplication),
        ("sqlalchemy", "Connection", SqlAlchemyApplication),
        ("sqlalchemy.orm", "Session", SqlAlchemyApplication),
    ]
    for module, name, kind in kinds:
        found = getattr(sys.modules.get(module), name, None)
        if found is not None and isinstance(connection, found):
            application: Application = kind(connection)
            return application
    raise _unknown(f"{type(connection).__module__}.{type(connection).__qualname__}")


def _unknown(what: str) -> TailraceError:
    hint = "give a connection of sqlite3 or psycopg, or one of SQLAlchemy to SQLite or PostgreSQL"
    return TailraceError("input.invalid", f"{what} has no outbox", hint=hint)
