"""Circles: rows that wait for each other, since their tables refer to each other, and are taken in one transaction.

1. Of those that wait the ones are picked of which all that they refer to is here, or among them.
2. The database is told to look at foreign keys when the transaction ends. PostgreSQL does so only with those that are
   deferrable. For the others, columns that may be NULL are so at first.
3. The rows are taken, then these columns get what came, and nobody is told of it.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tailrace.sync import postgresddl, receiving, waiting
from tailrace.sync.database import Link
from tailrace.sync.incoming import Reception
from tailrace.sync.names import Dialect, equal, quoted
from tailrace.sync.references import Reference
from tailrace.sync.shape import Shape
from tailrace.sync.values import from_wire
from tailrace.sync.waiting import Waiting

Row = Mapping[str, Any]


def tables(referring: Mapping[int, Collection[int]]) -> set[int]:
    """Those that refer to each other, directly or not; by table, `referring` has all that refer to it."""
    return {
        table_id
        for table_id, others in referring.items()
        if any(each != table_id and table_id in referring.get(each, ()) for each in others)
    }


def take(
    link: Link,
    rows: Sequence[Waiting],
    shapes: Mapping[int, Shape],
    references: Sequence[Reference],
    reception: Callable[[int, int], Reception],
) -> int:
    """Take rows that wait for each other; how many there were."""
    own = {table_id: [each for each in references if each.child.table_id == table_id] for table_id in shapes}
    is_postgres = any(shape.dialect is Dialect.POSTGRES for shape in shapes.values())
    closed = _closed(link, [each for each in rows if not is_postgres or _is_simple(shapes[each.table_id])], own)  # 1
    if closed:
        link.run("SET CONSTRAINTS ALL DEFERRED" if is_postgres else "PRAGMA defer_foreign_keys = ON")  # 2
    parts = [(each, _optional(own[each.table_id]) if is_postgres else ()) for each in closed]
    for each, optional in parts:  # 3
        waiting.remove(link, each)
        early = replace(each, rows=tuple({**row, **dict.fromkeys(optional)} for row in each.rows))
        for batch in early.batches(shapes[each.table_id]):
            receiving.receive(reception(each.table_id, each.sender), batch)
    for each, optional in parts:
        _complete(link, shapes[each.table_id], each.rows, optional)
    return sum(len(each.ids) for each in closed)


def _is_simple(shape: Shape) -> bool:
    """A view of somebody's own has to see rows as they came, and not with columns that are NULL for a moment."""
    return shape.entity.receive.body is None and shape.entity.receive.condition is None


def _optional(references: Sequence[Reference]) -> tuple[str, ...]:
    """Columns that refer to something, and need not."""
    found = {name: each.child for each in references for name in each.columns}
    return tuple(name for name, shape in found.items() if not shape.column(name).is_required and name not in shape.key)


def _closed(link: Link, groups: Sequence[Waiting], own: Mapping[int, Sequence[Reference]]) -> list[Waiting]:
    """What is left when rows are taken away that refer to something which is neither here nor among them."""
    left = [each for each in groups if each.ids]
    here: dict[tuple[int, tuple[str, ...], tuple[Any, ...]], bool] = {}

    def is_here(reference: Reference, values: tuple[Any, ...]) -> bool:
        asked = (reference.parent.table_id, reference.to, values)
        if asked not in here:
            here[asked] = _exists(link, reference, values)
        return here[asked]

    while True:
        among = {
            (each.parent.table_id, each.to, tuple(row.get(name) for name in each.to))
            for references in own.values()
            for each in references
            for group in left
            if group.table_id == each.parent.table_id
            for row in group.rows
        }
        kept = [
            _only(
                group,
                [
                    not any(
                        (each.parent.table_id, each.to, values) not in among and not is_here(each, values)
                        for each, values in _referred(own[group.table_id], row)
                    )
                    for row in group.rows
                ],
            )
            for group in left
        ]
        before, left = sum(len(each.ids) for each in left), [each for each in kept if each.ids]
        if sum(len(each.ids) for each in left) == before:
            return left


def _referred(references: Sequence[Reference], row: Row) -> Iterator[tuple[Reference, tuple[Any, ...]]]:
    """To what a row refers; a reference of which a part is NULL is none."""
    for each in references:
        values = tuple(row.get(name) for name in each.columns)
        if None not in values:
            yield each, values


def _only(group: Waiting, wanted: Sequence[bool]) -> Waiting:
    places = [place for place, is_wanted in enumerate(wanted) if is_wanted]
    return replace(
        group, ids=tuple(group.ids[place] for place in places), rows=tuple(group.rows[place] for place in places)
    )


def _exists(link: Link, reference: Reference, values: tuple[Any, ...]) -> bool:
    parent = reference.parent
    at_row = _at(parent, reference.to, 1)
    return bool(link.rows(f"SELECT 1 FROM {parent.table} WHERE {at_row}", from_wire(parent, [values], reference.to)[0]))


def _complete(link: Link, shape: Shape, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Let columns have what came, where that version is here."""
    if not columns:
        return
    be_quiet, be_loud = postgresddl.quiet(shape)
    count, keys = len(columns), len(shape.key)
    changes = equal([quoted(name) for name in columns], _marks(shape, columns, 1)).replace(" AND ", ", ")
    same = equal([f"door_st.{name}" for name in shape.stamp_key], _marks(shape, shape.key, count + 1))
    stamp = (
        f"({shape.own('stTime')}, {shape.own('stNode')}) = (${count + keys + 1}::bigint, ${count + keys + 2}::bigint)"
    )
    is_here = f"EXISTS (SELECT 1 FROM {shape.stamp} AS door_st WHERE {same} AND {stamp})"
    statement = f"UPDATE {shape.table} SET {changes} WHERE {_at(shape, shape.key, count + 1)} AND {is_here}"
    link.run(be_quiet)
    for row in rows:
        names = (*columns, *shape.key)
        values = from_wire(shape, [tuple(row.get(name) for name in names)], names)[0]
        link.run(statement, (*values, row["doorTime"], row["doorNode"]))
    link.run(be_loud)


def _at(shape: Shape, columns: Sequence[str], first: int) -> str:
    return equal([quoted(name) for name in columns], _marks(shape, columns, first))


def _marks(shape: Shape, columns: Sequence[str], first: int) -> list[str]:
    """Where values of columns are bound."""
    marks = [shape.mark(first + number) for number in range(len(columns))]
    if shape.dialect is Dialect.SQLITE:
        return marks
    return [f"{mark}::text::{shape.column(name).declared}" for mark, name in zip(marks, columns, strict=True)]
