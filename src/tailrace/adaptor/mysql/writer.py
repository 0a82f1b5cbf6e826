"""Writing into a MySQL or MariaDB server: rows and the offset that they came up to, in one transaction.

Making or changing a table ends a transaction in MySQL. What was written until then is committed with the offset that
each namespace has come up to, so it is not written again after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
import pymysql

from tailrace.adaptor.mysql import target, writesql
from tailrace.adaptor.mysql.catalog import Column
from tailrace.adaptor.mysql.literals import as_text, literals
from tailrace.adaptor.mysql.server import AGAIN, Server, code_of, execute, is_away, is_in_transaction, rows, told
from tailrace.adaptor.mysql.sql import OURS
from tailrace.adaptor.mysql.target import Destination
from tailrace.deliver.contract import Spread, Target
from tailrace.deliver.messages import Messages
from tailrace.deliver.outcome import Outcome, outcome
from tailrace.deliver.refusal import refuse_changes, refuse_shared, refuse_without_key, refused, span
from tailrace.errors import TailraceError
from tailrace.message import Offset

_ROOM_MAX: Final = 4 << 20
"""Longer statements are no faster."""
_DUPLICATE: Final = 1062
_TOO_LONG: Final = 1406


class MysqlWriter:
    """A destination. A transaction is open from the first `write` to `commit` or `close`."""

    spread = Spread.NONE

    def __init__(
        self,
        server: Server,
        consumer: str,
        keys: Mapping[str, tuple[str, ...]],
        *,
        database: str = "",
        creates: bool = True,
        key_length: int = 255,
        foreign_keys: bool = True,
    ) -> None:
        self._server = server
        self._consumer = consumer
        self._keys = keys
        self._database = database
        self._creates = creates
        self._key_length = key_length
        self._foreign_keys = foreign_keys
        self._connection: pymysql.Connection[Any] | None = None
        self._room = _ROOM_MAX
        self._is_prepared = False
        self._destinations: dict[str, Destination] = {}
        self._prepared: dict[str, pa.Schema] = {}
        self._written: dict[str, Offset] = {}
        """The namespaces written in this transaction, each with its last offset."""
        self._cleared: dict[str, str] = {}
        """Those emptied in this transaction, each with its table."""

    def applied(self, namespace: str) -> Offset | None:
        with self._server.errors():
            connection = self._session()
            if not rows(connection, writesql.IS_PREPARED):
                return None
            found = rows(connection, writesql.applied(self._consumer, namespace))
        return Offset(int(found[0][0])) if found else None

    def prepare(self, target_: Target) -> None:
        namespace = target_.namespace
        if self._prepared.get(namespace) == target_.schema:
            return
        database, table = target.place_of(namespace, self._database, self._server.database)
        key = self._keys.get(namespace, target_.key)
        with self._errors(namespace, "its table cannot be made ready"):
            connection = self._session()
            self._make_ours(connection)
            self._refuse_namesake(namespace, database, table)
            found = target.find(connection, database, table, key)
            if found is None and not self._creates:
                what = f"{namespace} has no table {database}.{table} in {self._server.place}"
                raise TailraceError("destination.refused", what, hint="create it, or say `create: true`")
            if self._creates:
                self._make(connection, found, database, table, target_.schema, key)
                found = target.find(connection, database, table, key)
            if found is None:
                raise TailraceError("destination.refused", f"{database}.{table} cannot be seen", hint="tailrace doctor")
            target.check_key(connection, found, namespace)
        self._destinations[namespace] = found
        self._prepared[namespace] = target_.schema

    def write(self, messages: Messages) -> None:
        if not len(messages):
            return
        namespace = messages.namespace
        if namespace not in self._destinations:
            self.prepare(Target(namespace, pa.schema(list(messages.data.type)), messages.key))
        destination = self._destinations[namespace]
        with self._errors(namespace, span(messages)):
            connection = self._begin()
            if destination.key:
                self._apply(connection, destination, messages)
            else:
                refuse_changes(messages)
                with _all_or_nothing(connection):
                    self._put(connection, destination, messages.data)
        self._written[namespace] = Offset(messages.offsets()[-1].as_py() or 0)

    def clear(self, namespace: str) -> None:
        """Empty the table of a namespace, as its source did."""
        database, table = target.place_of(namespace, self._database, self._server.database)
        with self._errors(namespace, "it cannot be emptied"):
            connection = self._session()
            if target.find(connection, database, table, ()) is None:
                return
            self._make_ours(connection)
            execute(self._begin(), writesql.delete_all(database, table))
            self._cleared[namespace] = f"{database}.{table}"

    def commit(self, upto: Offset) -> None:
        if self._connection is None:
            return
        self._record(dict.fromkeys((*self._written, *self._cleared), upto))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._destinations.clear()
        self._prepared.clear()
        self._written.clear()
        self._cleared.clear()
        self._is_prepared = False
        if connection is not None and connection.open:
            with suppress(pymysql.err.MySQLError, OSError):
                execute(connection, writesql.ROLLBACK)
            connection.close()

    def _session(self) -> pymysql.Connection[Any]:
        if self._connection is None:
            self._connection = self._server.connect()
            if not self._foreign_keys:
                execute(self._connection, writesql.WITHOUT_FOREIGN_KEYS)
            ((room,),) = rows(self._connection, writesql.PACKET_BYTES)
            self._room = min(_ROOM_MAX, int(room) // 2)
        return self._connection

    def _begin(self) -> pymysql.Connection[Any]:
        """The connection, inside a transaction."""
        connection = self._session()
        if not self._written and not is_in_transaction(connection):
            execute(connection, writesql.BEGIN)
        return connection

    def _record(self, upto: Mapping[str, Offset]) -> None:
        """Commit what was written, together with how far each namespace has come."""
        with self._server.errors():
            connection = self._session()
            for namespace, offset in upto.items():
                made = self._destinations.get(namespace)
                place = made.name if made else self._cleared[namespace]
                execute(connection, writesql.apply(self._consumer, namespace, place, offset))
            execute(connection, writesql.COMMIT)
        self._written.clear()
        self._cleared.clear()

    def _make_ours(self, connection: pymysql.Connection[Any]) -> None:
        """The table of offsets, which must be there before a transaction begins."""
        if not self._is_prepared and not rows(connection, writesql.IS_PREPARED):
            self._record(self._written)
            for statement in writesql.PREPARE:
                execute(connection, statement)
        self._is_prepared = True

    def _make(
        self,
        connection: pymysql.Connection[Any],
        found: Destination | None,
        database: str,
        table: str,
        fields: pa.Schema,
        key: tuple[str, ...],
    ) -> None:
        how = target.making(connection, self._key_length)
        if found is None:
            self._record(self._written)
            target.create(connection, database, table, fields, key, how)
        elif statements := target.missing(found, fields, how):
            self._record(self._written)
            for statement in statements:
                execute(connection, statement)

    def _refuse_namesake(self, namespace: str, database: str, table: str) -> None:
        place = f"{database}.{table}"
        if database == OURS:
            what = f"{namespace} would be written to {place}, a database that is ours"
            raise TailraceError("destination.refused", what, hint="rename it with a function, or say `into_database`")
        before = rows(self._session(), writesql.namesake(self._consumer, namespace, place))  # perhaps in another run
        taken = {str(other): place for (other,) in before}
        refuse_shared(namespace, place, {**taken, **{name: made.name for name, made in self._destinations.items()}})

    def _apply(self, connection: pymysql.Connection[Any], destination: Destination, messages: Messages) -> None:
        """Write the last state of every key. Where these states collide on the way, every change in its order."""
        refuse_without_key(messages, destination.key)
        try:
            with _all_or_nothing(connection):
                self._write_outcome(connection, destination, outcome(messages, destination.key, _rendered))
        except pymysql.err.MySQLError as error:
            if len(messages) == 1 or code_of(error) not in (_DUPLICATE, writesql.TWO_ROWS):
                raise
            with _all_or_nothing(connection):
                for at in range(len(messages)):
                    result = outcome(messages.slice(at, 1), destination.key, _rendered)
                    self._write_outcome(connection, destination, result)

    def _write_outcome(self, connection: pymysql.Connection[Any], destination: Destination, result: Outcome) -> None:
        if len(result.gone[0][0]):
            key = {field.name: column for column, field in result.gone}
            columns = {name: _literals(destination, name, column) for name, column in key.items()}
            for statement in writesql.deletes(destination.database, destination.table, columns, self._room):
                execute(connection, statement)
        if len(result.put):
            self._put(connection, destination, result.put)

    def _put(self, connection: pymysql.Connection[Any], destination: Destination, data: pa.StructArray) -> None:
        columns = {
            field.name: _literals(destination, field.name, data.field(field.name))
            for field in data.type
            if not _column(destination, field.name).is_generated
        }
        statements = writesql.upserts(
            destination.database,
            destination.table,
            columns,
            destination.key,
            self._room,
            guarded=destination.has_other_uniques,
        )
        for statement in statements:
            execute(connection, statement)

    @contextmanager
    def _errors(self, namespace: str, where: str) -> Iterator[None]:
        """The server's errors as ours: about the messages, or about the server."""
        try:
            yield
        except (pymysql.err.MySQLError, OSError) as error:
            code = code_of(error)
            if is_away(error) or code in AGAIN:
                raise self._server.error(error) from error
            if code == writesql.TWO_ROWS:
                why = "a row is the same as one with another key, by a unique index of the table"
                raise refused(namespace, where, why) from error
            if code == _TOO_LONG and (key := self._keys.get(namespace) or self._key(namespace)):
                raise refused(namespace, where, f"{told(error)} (the key is {', '.join(key)})") from error
            raise refused(namespace, where, told(error)) from error
        except (OverflowError, ValueError, KeyError) as error:
            raise refused(namespace, where, error) from error

    def _key(self, namespace: str) -> tuple[str, ...]:
        made = self._destinations.get(namespace)
        return made.key if made else ()


@contextmanager
def _all_or_nothing(connection: pymysql.Connection[Any]) -> Iterator[None]:
    """What fails in the middle leaves nothing; what the transaction did before stays."""
    execute(connection, writesql.SAVE)
    try:
        yield
    except Exception:
        with suppress(pymysql.err.MySQLError, OSError):  # a server that is gone forgets by itself
            execute(connection, writesql.BACK)
        raise


def _column(destination: Destination, name: str) -> Column:
    column = destination.columns.get(name)
    if column is None:
        raise KeyError(f"there is no column {name} in {destination.name}")
    return column


def _literals(destination: Destination, name: str, column: pa.Array[Any]) -> pa.Array[Any]:
    is_bits = _column(destination, name).type.base == "bit" and pa.types.is_string(column.type)
    try:
        return literals(column, as_bits=is_bits)
    except ValueError as error:
        raise ValueError(f"column {name}: {error}") from error


def _rendered(column: pa.Array[Any], _field: pa.Field[Any]) -> pa.Array[Any]:
    return as_text(column)
