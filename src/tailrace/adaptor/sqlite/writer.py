"""Writing into a SQLite database: rows and the offset that they came up to, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tailrace.adaptor.binding import bindable
from tailrace.adaptor.sqlite import changelog, conflicts, gate, sql, target
from tailrace.adaptor.sqlite.binding import as_json
from tailrace.adaptor.sqlite.catalog import OURS, SCHEMA
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.target import Destination
from tailrace.adaptor.sqlite.versions import SqliteVersions
from tailrace.adaptor.values import BrokenText, read_text
from tailrace.adaptor.versions import Judgement, VersionRow
from tailrace.deliver.contract import Spread, Target
from tailrace.deliver.messages import Messages
from tailrace.deliver.outcome import outcome
from tailrace.deliver.refusal import refuse_changes, refuse_without_key, refused, span
from tailrace.errors import TailraceError
from tailrace.log.documents import is_json
from tailrace.message import Offset
from tailrace.node.conflict import Clash, Conflict, Keep


class SqliteWriter:
    """A destination in one file. A transaction is open from the first `prepare` or `write` to `commit` or `close`."""

    spread = Spread.NONE

    def __init__(
        self,
        database: Database,
        consumer: str,
        keys: Mapping[str, tuple[str, ...]],
        *,
        creates: bool,
        unnoted: bool = False,
    ) -> None:
        self._database = database
        self._consumer = consumer
        self._keys = keys
        self._creates = creates
        self._unnoted = unnoted
        self._noted_before: int | None = None
        """The last number of the changelog before this transaction, when there is a changelog."""
        self._is_gated = False
        """Whether others cannot write now: this transaction can, and leaves it so."""
        self._connection: sqlite3.Connection | None = None
        self._destinations: dict[str, Destination] = {}
        self._written: dict[str, str] = {}
        """The namespaces written in this transaction, each with its table."""

    def applied(self, namespace: str) -> Offset | None:
        if self._connection is None and not self._database.exists():
            return None
        if self._connection is not None:
            return self._applied(self._connection, namespace)
        with self._database.reading() as connection:
            return self._applied(connection, namespace)

    def applied_last(self) -> Offset | None:
        """Up to where anything was applied."""
        if not self._database.exists():
            return None
        with self._database.reading() as connection:
            if not _has_applied(connection):
                return None
            (last,) = connection.execute(sql.APPLIED_LAST, (self._consumer,)).fetchone()
        return None if last is None else Offset(last)

    def prepare(self, target_: Target) -> None:
        namespace = target_.namespace
        table = table_name(namespace)
        if self._unnoted and namespace != f"{SCHEMA}.{table}":
            what = f"{namespace} would be table {table!r} here, whose changes are those of {SCHEMA}.{table}"
            hint = f"have it in a schema {SCHEMA} at the nodes that know schemas, or leave it out with `namespace`"
            raise TailraceError("destination.refused", what, hint=hint)
        key = self._keys.get(namespace, target_.key)
        connection = self._begin()
        with self._database.errors():
            self._refuse_namesake(connection, namespace, table)
            found = target.find(connection, table, key)
            if found is None and not self._creates:
                what = f"{namespace} has no table {table!r} in {self._database.path}"
                raise TailraceError("destination.refused", what, hint="create it, or say `create: true`")
            is_noted = self._noted_before is not None and (found is None or changelog.is_noted(connection, table))
            try:
                if found is None:
                    target.create(connection, table, target_.schema, key)
                elif self._creates and not found.is_view:
                    target.extend(connection, table, target_.schema, key)
                if is_noted:  # users may write it as soon as they see it
                    changelog.install(connection, [table], "")
            except sqlite3.OperationalError as error:
                raise refused(namespace, "its table cannot be made ready", error) from error
            found = target.find(connection, table, key)
            assert found is not None  # noqa: S101  it was there or has just been made
            target.check_key(connection, found, namespace)
            self._destinations[namespace] = found

    def write(self, messages: Messages) -> None:
        if not len(messages):
            return
        namespace = messages.namespace
        if namespace not in self._destinations:
            self.prepare(Target(namespace, pa.schema(list(messages.data.type)), messages.key))
        destination = self._destinations[namespace]
        connection = self._begin()
        self._written[namespace] = destination.table
        try:
            if destination.key:
                _apply(connection, destination, messages)
            else:
                _append(connection, destination, messages)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNREACHABLE:
                raise self._database.error(error) from error
            raise refused(namespace, span(messages), error) from error
        except (OverflowError, UnicodeError, KeyError, pa.ArrowException) as error:
            raise refused(namespace, span(messages), error) from error

    def clear(self, namespace: str) -> None:
        connection = self._begin()
        with self._database.errors():
            found = self._destinations.get(namespace) or target.find(connection, table_name(namespace), ())
            if found is not None:
                connection.execute(sql.delete_all(found.delete_from))
                self._written[namespace] = found.table

    def is_captured(self, position: Mapping[str, Any]) -> bool:
        """Whether all that others did in the database is before a position of its reader. Until `commit` it stays so:
        nobody else can write."""
        connection = self._begin()
        if self._noted_before is None:
            return True
        with self._database.errors():
            return connection.execute(sql.NOTED_SINCE, (position["seq"], self._noted_before)).fetchone() is None

    def judge(self, messages: Messages) -> Judgement:
        with self._database.errors():
            return SqliteVersions(self._begin()).judge(messages, self._keys.get(messages.namespace, messages.key))

    def beaten(self, messages: Messages, is_known: Callable[[int, int], bool]) -> list[bool]:
        with self._database.errors():
            return SqliteVersions(self._begin()).beaten(
                messages, self._keys.get(messages.namespace, messages.key), is_known
            )

    def note_versions(self, messages: Messages, *, always: bool = False) -> None:
        key = self._keys.get(messages.namespace, messages.key)
        with self._database.errors():
            SqliteVersions(self._begin()).note(messages, key, always=always)

    def clashes(self, messages: Messages, judged: Judgement) -> Iterator[Clash]:
        namespace = messages.namespace
        key = self._keys.get(namespace, messages.key)
        with self._database.errors():
            yield from conflicts.find_clashes(self._begin(), table_name(namespace), key, messages, judged)

    def rivals(self, messages: Messages) -> Iterator[Clash]:
        key = self._keys.get(messages.namespace, messages.key)
        with self._database.errors():
            yield from conflicts.find_rivals(self._begin(), table_name(messages.namespace), key, messages)

    def drop_rival(self, conflict: Conflict) -> None:
        with self._database.errors():
            conflicts.drop_rival(self._begin(), table_name(conflict.namespace), conflict)

    def quarantine(self, found: Iterable[Conflict]) -> None:
        with self._database.errors():
            conflicts.note(self._begin(), found)

    def decision(self, conflict: Conflict) -> Keep | None:
        with self._database.errors():
            return conflicts.decision(self._begin(), conflict)

    def remember(self, name: str, text: str) -> None:
        connection = self._begin()
        with self._database.errors():
            connection.execute(sql.NODE_TABLE)
            connection.execute(sql.REMEMBER, (name, text))

    def recalled(self, name: str) -> str | None:
        connection = self._begin()
        with self._database.errors():
            connection.execute(sql.NODE_TABLE)
            found = connection.execute(sql.RECALL, (name,)).fetchone()
        return None if found is None else str(found[0])

    def put_versions(self, rows: Iterable[VersionRow]) -> None:
        with self._database.errors():
            SqliteVersions(self._begin()).put(rows)

    def has_rows(self, namespace: str) -> bool:
        connection = self._begin()
        with self._database.errors():
            found = target.find(connection, table_name(namespace), ())
            return found is not None and connection.execute(sql.any_row(found.table)).fetchone() is not None

    def commit(self, upto: Offset) -> None:
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return  # nothing was prepared or written
        with self._database.errors():
            for namespace, table in self._written.items():
                connection.execute(sql.APPLY, (self._consumer, namespace, table, upto))
            if self._noted_before is not None:  # nobody else can have written since: SQLite has one writer at a time
                connection.execute(sql.FORGET_SINCE, (self._noted_before,))
            if self._is_gated:
                gate.set_closed(connection, True)
            connection.execute("COMMIT")
        self._written.clear()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._destinations.clear()
        self._written.clear()
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.rollback()
            connection.close()

    def _applied(self, connection: sqlite3.Connection, namespace: str) -> Offset | None:
        if not _has_applied(connection):
            return None
        found = connection.execute(sql.APPLIED, (self._consumer, namespace)).fetchone()
        return Offset(found[0]) if found else None

    def _begin(self) -> sqlite3.Connection:
        """The connection, inside a transaction."""
        if self._connection is None:
            self._connection = self._open()
        if not self._connection.in_transaction:
            with self._database.errors():
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute(sql.APPLIED_TABLE)
                self._noted_before = _last_noted(self._connection) if self._unnoted else None
                self._is_gated = self._unnoted and gate.is_closed(self._connection)
                if self._is_gated:
                    gate.open_again(self._connection)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        with self._database.errors():
            if self._creates:
                self._database.make()
            connection = self._database.connect("rw")
            connection.text_factory = read_text
        return connection

    def _refuse_namesake(self, connection: sqlite3.Connection, namespace: str, table: str) -> None:
        if table.lower().startswith((OURS, "sqlite_")):
            what = f"{namespace} would be written to {table!r}, a name that is reserved"
            raise TailraceError("destination.refused", what, hint="rename it with a function")
        found = connection.execute(sql.NAMESAKE, (table, namespace)).fetchone()
        others = [other for other, made in self._destinations.items() if made.table.lower() == table.lower()]
        other = found[0] if found else next((other for other in others if other != namespace), None)
        if other is not None:
            what = f"{namespace} and {other} would both be written to table {table!r}"
            raise TailraceError("destination.refused", what, hint="give them databases of their own")


_UNREACHABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
}


def _has_applied(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_applied'").fetchone() is not None


def _last_noted(connection: sqlite3.Connection) -> int | None:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_changelog'").fetchone() is None:
        return None
    (last,) = connection.execute(sql.LAST_CHANGE).fetchone()
    return int(last)


def table_name(namespace: str) -> str:
    """The table that a namespace goes to: what comes after its first dot."""
    _, _, rest = namespace.partition(".")
    return rest or namespace


def _apply(connection: sqlite3.Connection, destination: Destination, messages: Messages) -> None:
    """Write the last state of every key. Where these states collide on the way, every change in its order; where that
    collides with others' rows, all rows anew."""
    refuse_without_key(messages, destination.key)
    for way in (_write_outcome, _write_in_order, _write_anew):
        connection.execute("SAVEPOINT apply")
        try:
            way(connection, destination, messages)
        except sqlite3.IntegrityError:
            if len(messages) == 1 or way is _write_anew:
                raise
            connection.execute("ROLLBACK TO apply")
        else:
            break
    connection.execute("RELEASE apply")


def _write_outcome(connection: sqlite3.Connection, destination: Destination, messages: Messages) -> None:
    """1. What is gone, 2. what is there."""
    result = outcome(messages, destination.key, as_json)
    _delete(connection, destination, result.gone)
    _insert(connection, destination, result.put)


def _write_in_order(connection: sqlite3.Connection, destination: Destination, messages: Messages) -> None:
    for at in range(len(messages)):
        _write_outcome(connection, destination, messages.slice(at, 1))


def _write_anew(connection: sqlite3.Connection, destination: Destination, messages: Messages) -> None:
    """Rows that exchange their values are taken out first. That is only possible with whole rows."""
    result = outcome(messages, destination.key, as_json)
    told = {field.name.lower() for field in result.put.type}
    if destination.is_view or not destination.written <= told:
        _write_in_order(connection, destination, messages)
        return
    _delete(connection, destination, result.gone)
    fields = {field.name: field for field in result.put.type}
    _delete(connection, destination, [(result.put.field(name), fields[name]) for name in destination.key])
    _insert(connection, destination, result.put)


def _delete(
    connection: sqlite3.Connection, destination: Destination, keys: Sequence[tuple[pa.Array[Any], pa.Field[Any]]]
) -> None:
    values = [bindable(column, field) for column, field in keys]
    connection.executemany(sql.delete(destination.delete_from, destination.key), list(zip(*values, strict=True)))


def _append(connection: sqlite3.Connection, destination: Destination, messages: Messages) -> None:
    refuse_changes(messages)
    _insert(connection, destination, messages.data)


def _insert(connection: sqlite3.Connection, destination: Destination, rows: pa.StructArray) -> None:
    if not len(rows):
        return
    fields: list[pa.Field[Any]] = [field for field in rows.type if field.name.lower() not in destination.generated]
    names = [field.name for field in fields]
    columns = [bindable(rows.field(field.name), field) for field in fields]
    values = list(zip(*columns, strict=True))
    broken = []
    if _has_broken_text(fields, columns):
        broken = [row for row in values if any(isinstance(value, BrokenText) for value in row)]
        values = [row for row in values if not any(isinstance(value, BrokenText) for value in row)]
    connection.executemany(_statement(destination, names, ["?"] * len(names)), values)
    for row in broken:
        connection.execute(_statement(destination, names, [sql.placeholder(value) for value in row]), row)


def _has_broken_text(fields: list[pa.Field[Any]], columns: list[list[Any]]) -> bool:
    """Only columns of values of any class can have it."""
    mixed = [column for field, column in zip(fields, columns, strict=True) if is_json(field)]
    return any(isinstance(value, BrokenText) for column in mixed for value in column)


def _statement(destination: Destination, names: list[str], places: list[str]) -> str:
    if destination.is_view or not destination.key:
        return sql.insert(destination.into, names, places)
    return sql.upsert(destination.into, names, places, destination.key)
