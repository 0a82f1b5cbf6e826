"""Conflicts in a node's store: found, kept beside the tables that they are about, and resolved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg.sql import Identifier

from tailrace.adaptor.clashes import Present, Row, plain_rows, row_of
from tailrace.adaptor.postgres import sql, storesql, target, writesql
from tailrace.adaptor.postgres.catalog import find_table
from tailrace.adaptor.postgres.types import Kinds
from tailrace.errors import TailraceError
from tailrace.node.conflict import Conflict, Keep, Policy

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


def note(connection: psycopg.Connection[Any], conflicts: Iterable[Conflict]) -> None:
    """Keep conflicts; one that is known stays as it is."""
    rows = [
        (c.namespace, c.key, c.left_key, c.origin, c.lsn, c.at_us, c.policy, c.ours, c.theirs, c.keep)
        for c in conflicts
    ]
    with connection.cursor() as cursor:
        cursor.executemany(storesql.NOTE_CONFLICT, rows)
    connection.execute(storesql.FORGET_CONFLICTS, (SETTLED_MAX,))


def decision(connection: psycopg.Connection[Any], origin: str, lsn: int) -> Keep | None:
    """What somebody has decided about a message."""
    found = connection.execute(storesql.DECISION, (origin, lsn)).fetchone()
    return None if found is None or found[0] is None else Keep(found[0])


def all_conflicts(connection: psycopg.Connection[Any]) -> list[Conflict]:
    if connection.execute(storesql.HAS_CONFLICTS).fetchone() != (True,):
        return []
    return [_conflict(found) for found in connection.execute(storesql.ALL_CONFLICTS)]


def resolve(connection: psycopg.Connection[Any], number: int, keep: Keep, kinds: Kinds) -> None:
    """Decide. One of the rows becomes the newest there is: it is written once more, as a change of this database's own,
    except where the message waits to be written itself."""
    conflict = _conflict(connection.execute(storesql.ONE_CONFLICT, (number,)).fetchone())
    connection.execute(storesql.SETTLE, (keep, number))
    if conflict.policy is Policy.STOP and conflict.keep is None and keep is Keep.THEIRS:
        return
    key, theirs = row_of(conflict.key), None if conflict.theirs is None else row_of(conflict.theirs)
    schema, table = target.place_of(conflict.namespace)
    there = Rows(connection, kinds, schema, table, tuple(key)).look([key])(key)
    wanted = there if keep is Keep.OURS else theirs
    place = _Table(connection, schema, table, tuple(key))
    if wanted is not None:
        place.put(wanted)
    else:
        if there is None and theirs is not None:
            place.put(theirs)  # only what is there can be deleted
        place.delete(key)
    if keep is Keep.THEIRS and conflict.left_key is not None:
        place.delete(row_of(conflict.left_key))


class _Table:
    """A table as its users write it."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, table: str, key: tuple[str, ...]) -> None:
        found = target.find(connection, schema, table, key)
        if found is None:
            raise TailraceError("destination.refused", f"there is no table {schema}.{table}", hint="make it again")
        self._connection = connection
        self._columns = found.columns
        self._place = Identifier(schema, table)
        self._key = key

    def put(self, row: Row) -> None:
        named = {name: value for name, value in row.items() if not self._columns[name].is_generated}
        statement = writesql.insert_values(self._place, {n: self._columns[n].type_name for n in named}, self._key)
        self._execute(statement, named)

    def delete(self, row: Row) -> None:
        named = {name: row[name] for name in self._key}
        self._execute(writesql.delete_values(self._place, {n: self._columns[n].type_name for n in named}), named)

    def _execute(self, statement: Any, row: Row) -> None:
        with psycopg.RawCursor(self._connection) as cursor:
            cursor.execute(statement, [_text(value) for value in row.values()])


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
    number, namespace, key, left_key, origin, lsn, at_us, policy, ours, theirs, keep = found
    kept = None if keep is None else Keep(keep)
    return Conflict(namespace, key, left_key, origin, lsn, at_us, Policy(policy), ours, theirs, kept, number)
