"""A database that is synced: how it is spoken to, in transactions that are tried again when they only met others."""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

from tailrace.errors import TailraceError
from tailrace.masking import keep_secret
from tailrace.sync import sqlstate
from tailrace.sync.idle import Idle
from tailrace.sync.names import Dialect
from tailrace.sync.packages import check_packages
from tailrace.sync.page import Page, cut

Work = TypeVar("Work")
Values = Mapping[str, Any] | Sequence[Any]

_BUSY_S: Final = 30.0
_WAL_PAGES: Final = 4000
"""So much is in the write-ahead log before SQLite moves it into the file: 16 MB."""
IS_TEXT: Final = "tailrace_is_text"
"""A function of SQL in SQLite: whether bytes are UTF-8. Only connections of sync have it."""
_NO_TEXT: Final = "Could not decode to UTF-8"
"""How the driver's error begins when a text is none."""
_TRIES: Final = 8


class Overtaken(Exception):
    """What a transaction is about was changed by another one meanwhile: it has to be done again."""


class Unfit(Exception):
    """A value that a column would change without a word. The database would take it, and sync does not want it to."""


class Undone(Exception):
    """A row has made SQLite undo the whole transaction, and not only what was tried."""

    def __init__(self, cause: sqlite3.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Link(ABC):
    """One connection, inside a transaction."""

    @abstractmethod
    def run(self, statement: str, values: Values = ()) -> int:
        """Run a statement; says how many rows it changed."""

    @abstractmethod
    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""

    @abstractmethod
    def page(self, query: str, values: Sequence[Any], length_max: int) -> Page:
        """The first rows of a query; all, or as many as have texts of a certain length together, and at least one."""

    @abstractmethod
    def run_many(self, statement: str, values: Iterable[Values]) -> None:
        """Run a statement for each of many."""

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What fails inside is as if it had not been tried. What the database does not want is then raised as one of
        its `refusals`, and nothing else is."""
        self.run("SAVEPOINT tailrace_sync")
        try:
            yield
        except BaseException:
            if self.is_open:
                self.run("ROLLBACK TO SAVEPOINT tailrace_sync")
                self.run("RELEASE SAVEPOINT tailrace_sync")
            raise
        self.run("RELEASE SAVEPOINT tailrace_sync")

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether the transaction can go on."""

    def value(self, statement: str, values: Values = ()) -> Any:
        """The only value of a query; None when there is no row."""
        found = self.rows(statement, values)
        return found[0][0] if found else None


class Database(ABC):
    """Where the tables are. Any number of threads may use it."""

    dialect: ClassVar[Dialect]
    refusals: ClassVar[tuple[type[Exception], ...]]
    """What a savepoint raises when the database does not want a row."""

    @abstractmethod
    def is_refusal(self, error: BaseException | None) -> bool:
        """Whether the database did not want a row, and would take others."""

    @abstractmethod
    def is_about_others(self, error: BaseException | None) -> bool:
        """Whether a row was not wanted only because of others: by a foreign key that it has, or that others have to it,
        or because it collides with one."""

    @abstractmethod
    def is_collision(self, error: BaseException | None) -> bool:
        """Whether that was because another row has what no two may have."""

    @property
    @abstractmethod
    def place(self) -> str:
        """For people; never a secret."""

    @abstractmethod
    def read(self, work: Callable[[Link], Work]) -> Work:
        """Do something that changes nothing, and sees one moment."""

    @abstractmethod
    def write(self, work: Callable[[Link], Work], *, must_last: bool = True) -> Work:
        """Do something in one transaction: all of it, or after an exception nothing. It may be called several times.

        What need not last may be undone by a power cut; it is done faster. Nobody may be told of it before.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of all connections."""


def open_database(address: str, *, must_exist: bool = False) -> Database:
    """`postgresql://…`, `sqlite:///path` or the path of a SQLite file, which is made if it is missing and may be."""
    if address.startswith(("postgresql://", "postgres://")):
        keep_secret(address)
        check_packages("psycopg", extra="postgres")
        return PostgresDatabase(address)
    if "://" in address and not address.startswith("sqlite:///"):
        kind = address.partition("://")[0]
        what = f"databases of the kind {kind} cannot be synced"
        raise TailraceError("config.invalid", what, hint="name a SQLite file, or postgresql://…")
    return SqliteDatabase(address.removeprefix("sqlite:///"), must_exist=must_exist)


class _SqliteLink(Link):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def run(self, statement: str, values: Values = ()) -> int:
        return self.connection.execute(statement, values).rowcount

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._exactly(lambda: self.connection.execute(statement, values).fetchall())

    def page(self, query: str, values: Sequence[Any], length_max: int) -> Page:
        return self._exactly(lambda: cut(self.connection.execute(query, values).fetchmany, length_max))

    def run_many(self, statement: str, values: Iterable[Values]) -> None:
        self.connection.executemany(statement, values)

    @property
    def is_open(self) -> bool:
        return self.connection.in_transaction

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        try:
            with super().savepoint():
                yield
        except sqlite3.Error as error:
            if self.is_open:
                raise
            raise Undone(error) from error

    def _exactly(self, read: Callable[[], Work]) -> Work:
        """SQLite keeps any bytes as text. Those that are no UTF-8 are read as bytes, which is slower, so only then."""
        try:
            return read()
        except sqlite3.OperationalError as error:
            if not str(error).startswith(_NO_TEXT):
                raise
        self.connection.text_factory = _text
        try:
            return read()
        finally:
            self.connection.text_factory = str


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


class SqliteDatabase(Database):
    """A file. Writers of this process wait for each other here, which is fairer than SQLite's own waiting."""

    dialect = Dialect.SQLITE
    refusals = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, Unfit)

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        from tailrace.adaptor.sqlite.database import Database as File

        self._file = File(path, _BUSY_S, "sync.unreachable")
        if must_exist and not self._file.exists():
            hint = "correct `path`; a new one is made by the application, with its tables"
            raise TailraceError("sync.unreachable", f"there is no database {path}", hint=hint)
        self._file.share()
        self._file.make()
        self._turn = threading.Lock()
        self._is_wal = False
        self._idle = Idle[sqlite3.Connection]()

    def is_refusal(self, error: BaseException | None) -> bool:
        return isinstance(error, self.refusals)

    def is_about_others(self, error: BaseException | None) -> bool:
        is_reference = isinstance(error, sqlite3.IntegrityError) and str(error) == "FOREIGN KEY constraint failed"
        return is_reference or self.is_collision(error)

    def is_collision(self, error: BaseException | None) -> bool:
        return isinstance(error, sqlite3.IntegrityError) and str(error).startswith("UNIQUE constraint failed")

    @property
    def place(self) -> str:
        return self._file.path

    def read(self, work: Callable[[Link], Work]) -> Work:
        return self._do(work, "BEGIN")

    def write(self, work: Callable[[Link], Work], *, must_last: bool = True) -> Work:
        with self._turn:
            return self._do(work, "BEGIN IMMEDIATE", "FULL" if must_last else "NORMAL")

    def close(self) -> None:
        self._idle.close()

    def _do(self, work: Callable[[Link], Work], begin: str, synchronous: str | None = None) -> Work:
        connection = self._idle.take() or self._connect()
        with self._file.errors():
            try:
                if synchronous is not None and self._is_wal:  # otherwise less than FULL could damage the file
                    connection.execute(f"PRAGMA synchronous = {synchronous}")
                connection.execute(begin)
                result = work(_SqliteLink(connection))
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._idle.give(connection)
                if isinstance(error, OverflowError):
                    raise _not_a_value("a whole number has more than 64 bits") from error
                if isinstance(error, Unfit):
                    raise _not_a_value(str(error)) from error
                if isinstance(error, Undone):
                    raise error.cause from error
                raise
        self._idle.give(connection)
        return result

    def _connect(self) -> sqlite3.Connection:
        with self._file.errors():
            connection = self._file.connect("rw")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.create_function(IS_TEXT, 1, lambda raw: type(_text(raw)) is str, deterministic=True)
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            self._is_wal = connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            return connection


class _PostgresLink(Link):
    def __init__(self, connection: Any, database: PostgresDatabase) -> None:
        self.connection = connection
        self._database = database

    def run(self, statement: str, values: Values = ()) -> int:
        return int(self.connection.execute(statement, values or None).rowcount)

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(statement, values or None).fetchall()
        return found

    def page(self, query: str, values: Sequence[Any], length_max: int) -> Page:
        self.run(f"DECLARE tailrace_page NO SCROLL CURSOR FOR {query}", values)
        rows = cut(lambda count: self.rows(f"FETCH {count:d} FROM tailrace_page"), length_max)
        self.run("CLOSE tailrace_page")
        return rows

    def run_many(self, statement: str, values: Iterable[Values]) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(statement, values)

    @property
    def is_open(self) -> bool:
        return not self.connection.closed

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        import psycopg

        try:
            with super().savepoint():
                yield
        except psycopg.Error as error:
            if self._database.is_refusal(error):
                raise
            raise self._database.told(error) from error


class PostgresDatabase(Database):
    """A database of a server, through as many connections as there is work at the same time."""

    dialect = Dialect.POSTGRES

    def __init__(self, address: str) -> None:
        from tailrace.adaptor.postgres.server import Server

        self._server = Server(address, "sync.unreachable")
        self._idle = Idle[Any]()

    def is_refusal(self, error: BaseException | None) -> bool:
        from psycopg import DataError

        return isinstance(error, Unfit | DataError) or sqlstate.is_about_row(error)

    def is_about_others(self, error: BaseException | None) -> bool:
        return getattr(error, "sqlstate", None) in sqlstate.REFERENCES or self.is_collision(error)

    def is_collision(self, error: BaseException | None) -> bool:
        return getattr(error, "sqlstate", None) == sqlstate.COLLISION

    @property
    def place(self) -> str:
        return self._server.place

    @property
    def refusals(self) -> tuple[type[Exception], ...]:  # type: ignore[override]
        from psycopg import Error

        return Unfit, Error

    def told(self, error: Exception) -> TailraceError:
        """An error of the driver as ours."""
        return self._server.error(error)

    def read(self, work: Callable[[Link], Work]) -> Work:
        return self._do(work, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def write(self, work: Callable[[Link], Work], *, must_last: bool = True) -> Work:
        return self._do(work, "BEGIN" if must_last else "BEGIN; SET LOCAL synchronous_commit = off")

    def close(self) -> None:
        self._idle.close()

    def _do(self, work: Callable[[Link], Work], begin: str) -> Work:
        import psycopg

        for tries_left in reversed(range(_TRIES)):
            try:
                with self._server.errors():
                    return self._once(self._begun(begin), work)
            except Overtaken as error:
                if not tries_left:
                    what = f"rows of database {self.place} are changed by others all the time"
                    raise TailraceError("sync.unreachable", what, hint="try again") from error
            except Unfit as error:
                raise _not_a_value(str(error)) from error
            except TailraceError as error:
                cause = error.__cause__
                if isinstance(cause, psycopg.DataError) and error.code == "sync.unreachable":
                    raise _not_a_value(str(cause).strip().partition("\n")[0]) from cause
                if not isinstance(cause, psycopg.Error) or cause.sqlstate not in sqlstate.MET_OTHERS or not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _begun(self, begin: str) -> Any:
        """A connection in a transaction. One that was idle may have died, which says nothing about a new one."""
        import psycopg

        while (connection := self._idle.take()) is not None:
            try:
                connection.execute(begin)
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection
        connection = self._server.connect()
        connection.cursor_factory = psycopg.RawCursor  # names may have signs in them that mean something elsewhere
        connection.execute(begin)
        return connection

    def _once(self, connection: Any, work: Callable[[Link], Work]) -> Work:
        try:
            result = work(_PostgresLink(connection, self))
            connection.execute("COMMIT")
        except BaseException:
            if not connection.closed:
                connection.rollback()
                self._idle.give(connection)
            raise
        self._idle.give(connection)
        return result


def _not_a_value(why: str) -> TailraceError:
    """What was bound cannot be what the column has; that says nothing about the database."""
    what = f"a value is none that the table could have: {why}"
    return TailraceError("sync.malformed", what, hint="send values of the columns' own types")
