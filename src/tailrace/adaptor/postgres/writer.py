"""Writing into a PostgreSQL database: rows and the offset that they came up to, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import errors as pg_errors
from psycopg.pq import TransactionStatus

from tailrace.adaptor.postgres import copystream, target, writesql
from tailrace.adaptor.postgres.encoding import Encode, encoder
from tailrace.adaptor.postgres.literals import as_text
from tailrace.adaptor.postgres.server import Server, is_away
from tailrace.adaptor.postgres.target import Destination
from tailrace.ahead import one_ahead
from tailrace.deliver.contract import Spread, Target
from tailrace.deliver.messages import Messages
from tailrace.deliver.ordering import in_source_order
from tailrace.deliver.outcome import outcome
from tailrace.deliver.parting import Part
from tailrace.deliver.refusal import refuse_changes, refuse_shared, refuse_without_key, refused, span
from tailrace.errors import TailraceError
from tailrace.message import Mode, Offset

_FEW: Final = 20
"""So many rows are sent one by one: making a table for them would take longer."""
_PART: Final = " part "
_STREAM_ROWS: Final = 16_384
_AGAIN: Final = ("40", "55")
"""Classes of SQLSTATE that say that the same may succeed another time."""


class PostgresWriter:
    """A destination. A transaction is open from the first `prepare` or `write` to `commit` or `close`."""

    spread = Spread.KEY

    def __init__(
        self,
        server: Server,
        consumer: str,
        keys: Mapping[str, tuple[str, ...]],
        *,
        schema: str = "",
        creates: bool = True,
        as_replica: bool = False,
        in_order: bool = False,
        parts: int = 1,
        widens: bool = True,
    ) -> None:
        self.parts = parts
        self._server = server
        self._consumer = consumer
        self._keys = keys
        self._schema = schema
        self._creates = creates
        self._as_replica = as_replica
        self._in_order = in_order
        self._widens = widens
        self._part: Part | None = None
        self._waiting: list[Messages] = []
        """What is written with the commit, in the source's order."""
        self._connection: psycopg.Connection[Any] | None = None
        self._destinations: dict[str, Destination] = {}
        self._prepared: dict[str, pa.Schema] = {}
        self._written: dict[str, str] = {}
        """The namespaces written in this transaction, each with its table."""

    def take(self, part: Part) -> None:
        self._part = part

    def key_of(self, namespace: str, key: tuple[str, ...]) -> tuple[str, ...]:
        return self._keys.get(namespace, key)

    def applied(self, namespace: str) -> Offset | None:
        with self._server.errors():
            connection = self._begin()
            if connection.execute(writesql.IS_PREPARED).fetchone() != (True,):
                return None
            consumers = [self._consumer, self._recorded_as(is_whole=False)]
            (found,) = connection.execute(writesql.APPLIED, (consumers, namespace)).fetchone() or (None,)
        return None if found is None else Offset(found)

    def prepare(self, target_: Target) -> None:
        namespace = target_.namespace
        if self._prepared.get(namespace) == target_.schema:
            return
        schema, table = target.place_of(namespace, self._schema)
        key = self._keys.get(namespace, target_.key)
        with self._errors(namespace, "its table cannot be made ready"):
            connection = self._begin()
            self._refuse_namesake(namespace, f"{schema}.{table}")
            found = target.find(connection, schema, table, key)
            if found is None and not self._creates:
                what = f"{namespace} has no table {schema}.{table} in {self._server.place}"
                raise TailraceError("destination.refused", what, hint="create it, or say `create: true`")
            if found is None:
                target.create(connection, schema, table, target_.schema, key)
                self._made(connection, (schema, table), key)
            elif self._creates and not found.is_view:
                target.extend(connection, found, target_.schema, widens=self._widens)
            found = target.find(connection, schema, table, key)
            if found is None:
                raise TailraceError("destination.refused", f"{schema}.{table} cannot be seen", hint="tailrace doctor")
            target.check_key(connection, found, namespace)
        self._destinations[namespace] = found
        self._prepared[namespace] = target_.schema

    def _made(self, connection: psycopg.Connection[Any], table: tuple[str, str], key: tuple[str, ...]) -> None:
        """A table was made, in this transaction."""

    def write(self, messages: Messages) -> None:
        if not len(messages):
            return
        namespace = messages.namespace
        if namespace not in self._destinations:
            self.prepare(Target(namespace, pa.schema(list(messages.data.type)), messages.key))
        self._written[namespace] = self._destinations[namespace].name
        if self._in_order:
            self._waiting.append(messages)
        else:
            self._write(messages)

    def _write(self, messages: Messages) -> None:
        destination = self._destinations[messages.namespace]
        with self._errors(messages.namespace, span(messages)):
            connection = self._begin()
            if not destination.key:
                refuse_changes(messages)
                self._put(connection, destination, messages.data, ())
            elif not self._copy_straight(connection, destination, messages):
                self._apply(connection, destination, messages)

    def clear(self, namespace: str) -> None:
        """Empty the table of a namespace, as its source did."""
        schema, table = target.place_of(namespace, self._schema)
        with self._errors(namespace, "it cannot be emptied"):
            connection = self._begin()
            found = self._destinations.get(namespace) or target.find(connection, schema, table, ())
            if found is None:
                return
            self._written[namespace] = found.name
            try:
                with connection.transaction():
                    connection.execute(writesql.truncate(found.delete_from))
            except (pg_errors.FeatureNotSupported, pg_errors.WrongObjectType):  # it is referred to, or a view
                connection.execute(writesql.delete_all(found.delete_from))

    def commit(self, upto: Offset) -> None:
        connection = self._connection
        if connection is None:
            return
        self._flush()
        with self._server.errors():
            if self._written:
                self._prepare_record(connection)
            for namespace, table in self._written.items():
                self._record(connection, namespace, table, upto)
            connection.execute("COMMIT")
        self._written.clear()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._destinations.clear()
        self._prepared.clear()
        self._waiting.clear()
        self._written.clear()
        if connection is not None:
            with suppress(psycopg.Error):
                connection.rollback()
            connection.close()

    def _flush(self) -> None:
        """Send what waits."""
        for messages in in_source_order(self._waiting):
            self._write(messages)
        self._waiting.clear()

    def _prepare_record(self, connection: psycopg.Connection[Any]) -> None:
        """Others may do the same at the same time; a session learns what they made only when it stumbles over it."""
        if connection.execute(writesql.IS_PREPARED).fetchone() == (True,):
            return
        connection.execute(writesql.LOCK_RECORD)
        for is_last in (False, True):
            try:
                with connection.transaction():
                    for statement in writesql.PREPARE:
                        connection.execute(statement)
            except (pg_errors.UniqueViolation, pg_errors.DuplicateTable, pg_errors.DuplicateSchema):
                if is_last:
                    raise

    def _record(self, connection: psycopg.Connection[Any], namespace: str, table: str, upto: Offset) -> None:
        """Together with the rows (I3). What is written as a whole holds for every part, which may have been further:
        it comes again."""
        is_whole = self._part is None or not self._destinations[namespace].key
        connection.execute(writesql.APPLY, (self._recorded_as(is_whole=is_whole), namespace, table, upto))
        if is_whole:
            connection.execute(writesql.FORGET_PARTS, (f"{self._consumer}{_PART}", namespace))

    def _recorded_as(self, *, is_whole: bool) -> str:
        """The name of the record; that of a part says which, of how many."""
        part = self._part
        return self._consumer if part is None or is_whole else f"{self._consumer}{_PART}{part.number}/{part.of}"

    def _begin(self) -> psycopg.Connection[Any]:
        """The connection, inside a transaction; what is nested in it is a savepoint and commits nothing."""
        if self._connection is None:
            self._connection = self._connect()
        if self._connection.info.transaction_status is TransactionStatus.IDLE:
            self._connection.execute("BEGIN")
        return self._connection

    def _connect(self) -> psycopg.Connection[Any]:
        connection = self._server.connect()
        if self._as_replica:
            connection.execute("SET session_replication_role = replica")
        return connection

    def _refuse_namesake(self, namespace: str, table: str) -> None:
        if table.partition(".")[0] == writesql.OURS:
            what = f"{namespace} would be written to {table}, a schema that is ours"
            raise TailraceError("destination.refused", what, hint="rename it with a function, or say `into_schema`")
        taken = {other: made.name for other, made in self._destinations.items()}
        refuse_shared(namespace, table, {**self._written_before(namespace, table), **taken})

    def _written_before(self, namespace: str, table: str) -> dict[str, str]:
        """Another namespace that this writer has written to the same table, perhaps in another run."""
        connection = self._begin()
        if connection.execute(writesql.IS_PREPARED).fetchone() != (True,):
            return {}
        asked = (table, namespace, self._consumer, f"{self._consumer}{_PART}")
        found = connection.execute(writesql.NAMESAKE, asked).fetchone()
        return {} if found is None else {found[0]: table}

    def _copy_straight(self, connection: psycopg.Connection[Any], destination: Destination, messages: Messages) -> bool:
        """Rows of a copy are mostly new, so they are sent straight into the table; False when one was there."""
        is_copy = messages.mode is Mode.COPY and len(messages) > _FEW and not destination.is_view
        plan = _plan(destination, messages.data.type) if is_copy else None
        if plan is None or None in plan.values():
            return False
        try:
            with connection.transaction():
                _stream(connection, writesql.copy_into(destination.into, list(plan)), messages.data, plan)
        except pg_errors.UniqueViolation:
            return False
        return True

    def _apply(self, connection: psycopg.Connection[Any], destination: Destination, messages: Messages) -> None:
        """Write the last state of every key. Where these states collide on the way, every change in its order; where
        that collides with others' rows, all rows anew."""
        refuse_without_key(messages, destination.key)
        for way in (self._write_outcome, self._write_in_order, self._write_anew):
            try:
                with connection.transaction():
                    way(connection, destination, messages)
            except pg_errors.UniqueViolation:
                if len(messages) == 1 or way == self._write_anew:
                    raise
            else:
                return

    def _write_outcome(self, connection: psycopg.Connection[Any], destination: Destination, messages: Messages) -> None:
        result = outcome(messages, destination.key, _rendered)
        gone = pa.StructArray.from_arrays(
            [column for column, _ in result.gone], fields=[field for _, field in result.gone]
        )
        if len(gone):
            self._delete(connection, destination, gone)
        if len(result.put):
            self._put(connection, destination, result.put, destination.key)

    def _write_in_order(
        self, connection: psycopg.Connection[Any], destination: Destination, messages: Messages
    ) -> None:
        for at in range(len(messages)):
            self._write_outcome(connection, destination, messages.slice(at, 1))

    def _write_anew(self, connection: psycopg.Connection[Any], destination: Destination, messages: Messages) -> None:
        """Rows that exchange their values are taken out first. That is only possible with whole rows, to which no
        other table refers."""
        rows = outcome(messages, destination.key, _rendered).put
        written = {name for name, column in destination.columns.items() if not column.is_generated}
        is_referred = connection.execute(writesql.IS_REFERRED, (destination.schema, destination.table)).fetchone()
        if destination.is_view or is_referred == (True,) or not written <= {field.name for field in rows.type}:
            self._write_in_order(connection, destination, messages)
            return
        fields = [rows.type.field(name) for name in destination.key]
        keys = pa.StructArray.from_arrays([rows.field(name) for name in destination.key], fields=fields)
        self._delete(connection, destination, keys)
        self._write_outcome(connection, destination, messages)

    def _put(
        self,
        connection: psycopg.Connection[Any],
        destination: Destination,
        rows: pa.StructArray,
        key: tuple[str, ...],
    ) -> None:
        plan = _plan(destination, rows.type)
        over = () if destination.is_view else key
        if len(rows) <= _FEW:
            kinds = {name: destination.columns[name].type_name for name in plan}
            _execute_each(connection, writesql.insert_values(destination.into, kinds, over), rows, list(plan))
            return
        with _staged(connection, destination, rows, plan) as casts:
            connection.execute(writesql.insert_staged(destination.into, casts, over))

    def _delete(self, connection: psycopg.Connection[Any], destination: Destination, keys: pa.StructArray) -> None:
        plan = _plan(destination, keys.type)
        if len(keys) <= _FEW:
            kinds = {name: destination.columns[name].type_name for name in plan}
            _execute_each(connection, writesql.delete_values(destination.delete_from, kinds), keys, list(plan))
            return
        with _staged(connection, destination, keys, plan) as casts:
            connection.execute(writesql.delete_staged(destination.delete_from, casts))

    @contextmanager
    def _errors(self, namespace: str, where: str) -> Iterator[None]:
        """The server's errors as ours: about the messages, or about the server."""
        try:
            yield
        except psycopg.Error as error:
            if is_away(error) or (error.sqlstate or "").startswith(_AGAIN):
                raise self._server.error(error) from error
            raise refused(namespace, where, error) from error
        except (OverflowError, ValueError, KeyError) as error:
            raise refused(namespace, where, error) from error


Plan = Mapping[str, Encode | None]
"""The columns that are written, each with how it is sent in binary, None where it is sent as text."""


def _plan(destination: Destination, fields: pa.StructType) -> Plan:
    plan: dict[str, Encode | None] = {}
    for field in fields:
        column = destination.columns.get(field.name)
        if column is None:
            raise KeyError(f"there is no column {field.name} in {destination.name}")
        if not column.is_generated:
            plan[field.name] = encoder(field.type, column.kind)
    return plan


@contextmanager
def _staged(
    connection: psycopg.Connection[Any], destination: Destination, rows: pa.StructArray, plan: Plan
) -> Iterator[dict[str, tuple[str, str] | None]]:
    """A table that holds the rows for a while; gives the types that its texts are to be cast to."""
    types = {name: destination.columns[name].type_name for name in plan}
    connection.execute(writesql.create_stage({name: types[name] if plan[name] else None for name in plan}))
    _stream(connection, writesql.copy_into(writesql.stage_name(), list(plan)), rows, plan)
    yield {name: None if plan[name] else types[name] for name in plan}
    connection.execute(writesql.drop_stage())


def _stream(connection: psycopg.Connection[Any], statement: Any, rows: pa.StructArray, plan: Plan) -> None:
    texts = encoder(pa.string(), "text")
    assert texts is not None  # noqa: S101  text is always sent

    def encoded(part: pa.StructArray) -> memoryview:
        columns = ((encode, _column(part, name)) for name, encode in plan.items())
        return copystream.rows([encode(column) if encode else texts(as_text(column)) for encode, column in columns])

    parts = (rows.slice(begin, _STREAM_ROWS) for begin in range(0, len(rows), _STREAM_ROWS))
    with connection.cursor() as cursor, cursor.copy(statement) as stream:
        stream.write(copystream.HEAD)
        for chunk in one_ahead(map(encoded, parts)):
            stream.write(chunk)
        stream.write(copystream.TAIL)


def _execute_each(
    connection: psycopg.Connection[Any], statement: Any, rows: pa.StructArray, columns: Sequence[str]
) -> None:
    values = [_without_nul(name, as_text(_column(rows, name))).to_pylist() for name in columns]
    with psycopg.RawCursor(connection) as cursor:
        cursor.executemany(statement, list(zip(*values, strict=True)))


def _without_nul(name: str, texts: pa.Array[Any]) -> pa.Array[Any]:
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise ValueError(f"column {name} has a NUL character, for which PostgreSQL's text has no room")
    return texts


def _column(rows: pa.StructArray, name: str) -> pa.Array[Any]:
    column = rows.field(name)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _rendered(column: pa.Array[Any], _field: pa.Field[Any]) -> pa.Array[Any]:
    return as_text(column)
