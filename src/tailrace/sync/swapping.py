"""Rows that exchange values of which no two rows may have the same: one by one, each collides with another.

They are parked first: what must be unique about the rows that are here becomes NULL, or something that nobody has. Then
they are written as they came. If one of them collides with a row that is not among them, it is left, and the others are
tried without it. Nothing is deleted, so nothing that refers to them is.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.sync import postgresddl
from tailrace.sync.database import Link
from tailrace.sync.exchange import Key
from tailrace.sync.incoming import Incoming, Reception
from tailrace.sync.names import Dialect, equal, quoted
from tailrace.sync.shape import Column, Kind, Shape
from tailrace.sync.values import from_wire

_POSTGRES_UNIQUES = """SELECT array_agg(a.attname::text ORDER BY a.attnum)
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indexprs IS NULL GROUP BY i.indexrelid"""

_REFERRED = {
    Dialect.SQLITE: """SELECT f."to" FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f
        WHERE m.type = 'table' AND f."table" = ?1 COLLATE NOCASE""",
    Dialect.POSTGRES: """SELECT a.attname::text FROM pg_constraint k
        JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = ANY (k.confkey)
        WHERE k.confrelid = to_regclass($1) AND k.contype = 'f'""",
}
"""Columns to which foreign keys refer, also those of tables that are not synced."""


class _NotTogether(Exception):
    """Some of the rows cannot be written, or were not."""


def put_together(
    reception: Reception,
    rows: Sequence[Incoming],
    put: Callable[[Sequence[Incoming]], None],
    are_here: Callable[[Sequence[Incoming]], bool],
) -> set[Key]:
    """Write rows that collided one by one; says which were written. `are_here` looks whether they are, as they came."""
    group, link = list(rows), reception.link
    stops: tuple[type[Exception], ...] = (_NotTogether, *reception.refusals)
    parking = _parking(link, reception.shape) if len(group) > 1 else ""
    while parking and len(group) > 1:
        failed: set[Key] = set()
        try:
            with link.savepoint():
                _park(link, reception.shape, group, parking)
                failed = _put(reception, group, put)
                if failed or not are_here(group):
                    raise _NotTogether
        except stops:
            if not failed:
                return set()
            group = [row for row in group if row.key not in failed]
        else:
            return {row.key for row in group}
    return set()


def _put(reception: Reception, rows: Sequence[Incoming], put: Callable[[Sequence[Incoming]], None]) -> set[Key]:
    """One after the other; says which could not be."""
    failed = set()
    for row in rows:
        try:
            with reception.link.savepoint():
                put([row])
        except reception.refusals:
            failed.add(row.key)
    return failed


def _park(link: Link, shape: Shape, rows: Sequence[Incoming], parking: str) -> None:
    """No trigger of sync's may see it."""
    at_row = equal(shape.table_key, [shape.mark(number) for number in range(1, len(shape.key) + 1)])
    be_quiet, be_loud = f"UPDATE DoorReceiving SET rcTableId = {shape.table_id}, rcTime = NULL", ""
    if shape.dialect is Dialect.POSTGRES:
        be_quiet, be_loud = postgresddl.quiet(shape)
        marks = [f"{shape.mark(number)}::text::{kind}" for number, kind in enumerate(shape.key_types, 1)]
        at_row = equal(shape.table_key, marks)
    link.run(be_quiet)
    for key in from_wire(shape, [row.key for row in rows], shape.key):
        link.run(f"UPDATE {shape.table} SET {parking} WHERE {at_row}", key)
    if be_loud:
        link.run(be_loud)


def _parking(link: Link, shape: Shape) -> str:
    """What is set; nothing where that cannot be."""
    found: dict[str, str] = {}
    table = shape.table if shape.dialect is Dialect.POSTGRES else shape.entity.table
    referred = {name for (name,) in link.rows(_REFERRED[shape.dialect], (table,))}  # these would follow, and not return
    for unique in _uniques(link, shape):
        able = {name: value for name in unique if name not in referred and (value := _parked(shape, name)) is not None}
        if not able:
            return ""
        if not able.keys() & found.keys():
            name, value = next(iter(able.items()))
            found[name] = value
    return ", ".join(f"{quoted(name)} = {value}" for name, value in found.items())


def _uniques(link: Link, shape: Shape) -> list[tuple[str, ...]]:
    if shape.dialect is Dialect.SQLITE:
        return list(shape.uniques)
    found = [tuple(names) for (names,) in link.rows(_POSTGRES_UNIQUES, (shape.table,))]
    return [names for names in found if set(names) != set(shape.key)]


def _parked(shape: Shape, name: str) -> str | None:
    """What a column may have for a moment."""
    column = next((each for each in shape.columns if each.name == name), None)
    if column is None or name in shape.key or column.is_generated or column.is_identity:
        return None
    return _random(column, shape.dialect) if column.is_required else "NULL"


def _random(column: Column, dialect: Dialect) -> str | None:
    declared = column.declared.lower()
    is_postgres = dialect is Dialect.POSTGRES
    if column.kind is Kind.PLAIN and "int" in declared:
        most = {"smallint": 1 << 15, "integer": 1 << 31}.get(declared, 1 << 53) - 2
        return f"(-1 - floor(random() * {most}))::{declared}" if is_postgres else f"-1 - abs(random() % {most})"
    if column.kind is Kind.PLAIN:
        return "gen_random_uuid()::text" if is_postgres else "hex(randomblob(16))"
    return "gen_random_uuid()" if declared == "uuid" else None
