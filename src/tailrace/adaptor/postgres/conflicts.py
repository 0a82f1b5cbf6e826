"""Conflicts in a node's store: found, kept beside the tables that they are about, and resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg.sql import Identifier

from tailrace.adaptor import resolving
from tailrace.adaptor.clashes import Present, Row, plain_rows, row_of
from tailrace.adaptor.postgres import sql, storesql, target, writesql
from tailrace.adaptor.postgres.catalog import find_table
from tailrace.adaptor.postgres.types import Kinds
from tailrace.adaptor.postgres.versions import PostgresVersions
from tailrace.adaptor.rivals import rivals
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.node.conflict import Clash, Conflict, Keep, Policy

SETTLED_MAX: Final = 10_000
"""So many of the conflicts that are settled are kept."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table as they are now, inside a transaction."""

    connection: psycopg.Connection[Any]
    kinds: Kinds
    schema: str
    table: str
    key: tuple[str, ...]

    def look(self, asked: Sequence[Row]) -> Present:
        """All that will be asked for with one question."""
        found = self._found(asked) if asked else {}
        return lambda row: found.get(tuple(map(_text, (row[name] for name in self.key))))

    def _found(self, asked: Sequence[Row]) -> dict[tuple[str | None, ...], Row]:
        info = find_table(self.connection, self.kinds, self.schema, self.table)
        types = {} if info is None else {column.name: column for column in info.columns}
        if info is None or not set(self.key) <= set(types):
            return {}
        order = [*self.key, *(name for name in types if name not in self.key)]
        query = sql.rows_by_key(
            self.schema, self.table, order[len(self.key) :], self.key, [types[name].type_name for name in self.key]
        )
        keys = dict.fromkeys(tuple(map(_text, (row[name] for name in self.key))) for row in asked)
        with psycopg.RawCursor(self.connection) as cursor:
            told = cursor.execute(query, [list(part) for part in zip(*keys, strict=True)]).fetchall()
        columns = [pa.array(values, pa.string()) for values in zip(*told, strict=True)] if told else []
        if not columns:
            return {}
        kinds = [types[name].kind for name in order]
        made = pa.StructArray.from_arrays(
            [kind.convert(values) for kind, values in zip(kinds, columns, strict=True)],
            fields=[kind.field(name) for name, kind in zip(order, kinds, strict=True)],
        )
        rows = [row for row in plain_rows(made) if row is not None]
        return {tuple(map(_text, (row[name] for name in self.key))): row for row in rows}


def find_rivals(
    connection: psycopg.Connection[Any],
    kinds: Kinds,
    key: tuple[str, ...],
    uniques: Sequence[tuple[str, ...]],
    messages: Messages,
) -> Iterator[Clash]:
    """The messages that cannot be written beside what a table has, as of now."""
    schema, table = target.place_of(messages.namespace)
    yield from rivals(
        messages,
        key,
        uniques,
        lambda columns: Rows(connection, kinds, schema, table, columns).look,
        lambda keys: PostgresVersions(connection).find(messages.namespace, keys),
    )


def drop_rival(connection: psycopg.Connection[Any], kinds: Kinds, conflict: Conflict) -> int:
    """Delete the row that a message found; says how many that are."""
    rival = row_of(conflict.rival)
    return _Table(Rows(connection, kinds, *target.place_of(conflict.namespace), tuple(rival))).delete(rival)


def note(connection: psycopg.Connection[Any], conflicts: Iterable[Conflict]) -> None:
    """Keep conflicts; one that is known stays as it is."""
    rows = [
        (c.namespace, c.key, c.left_key, c.origin, c.lsn, c.at_us, c.policy, c.ours, c.theirs, c.keep, c.rival)
        for c in conflicts
    ]
    with connection.cursor() as cursor:
        cursor.executemany(storesql.NOTE_CONFLICT, rows)
    connection.execute(storesql.FORGET_CONFLICTS, (SETTLED_MAX,))


def decision(connection: psycopg.Connection[Any], conflict: Conflict) -> Keep | None:
    """What somebody has decided about a message."""
    found = connection.execute(storesql.DECISION, (conflict.origin, conflict.lsn, conflict.rival)).fetchone()
    return None if found is None or found[0] is None else Keep(found[0])


def all_conflicts(connection: psycopg.Connection[Any]) -> list[Conflict]:
    if connection.execute(storesql.HAS_CONFLICTS).fetchone() != (True,):
        return []
    return [_conflict(found) for found in connection.execute(storesql.ALL_CONFLICTS)]


def resolve(connection: psycopg.Connection[Any], number: int, keep: Keep, kinds: Kinds) -> None:
    """Decide."""
    conflict = _conflict(connection.execute(storesql.ONE_CONFLICT, (number,)).fetchone())
    connection.execute(storesql.SETTLE, (keep, number))
    rows = Rows(connection, kinds, *target.place_of(conflict.namespace), tuple(row_of(conflict.key)))
    resolving.resolve(conflict, keep, _Table(rows))


class _Table:
    """A table as its users write it."""

    def __init__(self, rows: Rows) -> None:
        found = target.find(rows.connection, rows.schema, rows.table, rows.key)
        if found is None:
            what = f"there is no table {rows.schema}.{rows.table}"
            raise TailraceError("destination.refused", what, hint="make it again")
        self._rows = rows
        self._columns = found.columns
        self._place = Identifier(rows.schema, rows.table)
        self._key = rows.key

    def found(self, key: Row) -> Row | None:
        return self._rows.look([key])(key)

    def put(self, row: Row) -> None:
        named = {name: value for name, value in row.items() if not self._columns[name].is_generated}
        statement = writesql.insert_values(self._place, {n: self._columns[n].type_name for n in named}, self._key)
        self._execute(statement, named)

    def delete(self, row: Row) -> int:
        named = {name: row[name] for name in self._key}
        return self._execute(writesql.delete_values(self._place, {n: self._columns[n].type_name for n in named}), named)

    def _execute(self, statement: Any, row: Row) -> int:
        with psycopg.RawCursor(self._rows.connection) as cursor:
            return cursor.execute(statement, [_text(value) for value in row.values()]).rowcount


def _text(value: Any) -> str | None:
    """A plain value as PostgreSQL reads it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return str(int(value)) if isinstance(value, bool) else str(value)


def _conflict(found: tuple[Any, ...] | None) -> Conflict:
    if found is None:
        raise TailraceError("input.invalid", "there is no conflict with this number", hint="tailrace conflict list")
    number, namespace, key, left_key, origin, lsn, at_us, policy, ours, theirs, keep, rival = found
    kept = None if keep is None else Keep(keep)
    return Conflict(namespace, key, left_key, origin, lsn, at_us, Policy(policy), ours, theirs, kept, rival, number)
