"""What a receive view's own body, or triggers of the application, have made of rows that came.

A body that writes another version than the one that came makes a change here, of which others are told. If that were so
when only the version is another, two nodes with such bodies would tell each other for ever. So a row that is as it came
has the stamp that came.

A trigger has no word about the version of a row that comes. If it has changed anything else, that is a change made
here.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.sync import postgresddl, sqliteddl
from tailrace.sync.database import Link
from tailrace.sync.exchange import Key
from tailrace.sync.incoming import Here, Incoming
from tailrace.sync.names import Dialect, equal, quoted
from tailrace.sync.shape import Shape
from tailrace.sync.values import from_wire, recordset


def settle(link: Link, shape: Shape, rows: Sequence[Incoming], now: Mapping[Key, Here], *, has_others: bool) -> bool:
    """Give rows that were written the stamp that came if a body has made nothing else of them, and one of this node if
    triggers have; whether there were any. A hash says by itself whether there is something new."""
    if shape.is_hash:
        return False
    here = [(row, now[row.key].stamp == row.stamp) for row in rows if not row.is_deleted and row.key in now]
    if shape.entity.receive.body is not None:
        settled = [row for row, is_theirs in here if not is_theirs and _is_as_it_came(link, shape, row)]
        for row in settled:
            _stamp(link, shape, row)
        return bool(settled)
    made = [row for row, is_theirs in here if has_others and is_theirs and not _is_as_it_came(link, shape, row)]
    for row in made:
        _change(link, shape, row)
    return bool(made)


def _is_as_it_came(link: Link, shape: Shape, row: Incoming) -> bool:
    """Whether a row is what an insert of what came would have made it."""
    told = {column.name: column for column in shape.columns if column.name != shape.entity.version}
    came = dict(zip(shape.column_names, from_wire(shape, [row.values], shape.column_names)[0], strict=True))
    values = tuple(came[name] for name in told)
    if shape.dialect is Dialect.SQLITE:
        same = " AND ".join(f"{quoted(name)} IS {shape.mark(number)}" for number, name in enumerate(told, 1))
        return bool(link.rows(f"SELECT 1 FROM {shape.table} WHERE {same}", values))
    sent = ", ".join(f"c{place} {column.read_as}" for place, column in enumerate(told.values()))
    read = {name: f"a.c{place}::{column.declared}" for place, (name, column) in enumerate(told.items())}
    at_row = equal([f"e.{name}" for name in shape.table_key], [read[name] for name in shape.key])
    same = " AND ".join(f"e.{quoted(name)}::text IS NOT DISTINCT FROM {value}::text" for name, value in read.items())
    query = f"SELECT 1 FROM jsonb_to_recordset($1::jsonb) AS a({sent}) JOIN {shape.table} AS e ON {at_row}"
    return bool(link.rows(f"{query} WHERE {same}", (recordset([values]),)))


def _change(link: Link, shape: Shape, row: Incoming) -> None:
    """To the triggers of sync it is as if the application had changed nothing: the row gets the next version."""
    key = from_wire(shape, [row.key], shape.key)[0]
    at_row = equal(shape.table_key, [shape.mark(number) for number in range(1, len(key) + 1)])
    link.run(f"UPDATE {shape.table} SET {shape.version} = {shape.version} WHERE {at_row}", key)


def _stamp(link: Link, shape: Shape, row: Incoming) -> None:
    """The line in the ChangeLog stays: others than the sender may want the row."""
    key = from_wire(shape, [row.key], shape.key)[0]
    marks = [shape.mark(number) for number in range(1, len(key) + 1)]
    be_quiet, be_loud = (postgresddl if shape.dialect is Dialect.POSTGRES else sqliteddl).quiet(shape)
    link.run(be_quiet)
    link.run(f"UPDATE {shape.table} SET {shape.version} = {row.time:d} WHERE {equal(shape.table_key, marks)}", key)
    link.run(be_loud)
    stamp = f"{shape.own('stTime')} = {row.time:d}, {shape.own('stNode')} = {row.node:d}"
    link.run(f"UPDATE {shape.stamp} SET {stamp} WHERE {equal(shape.stamp_key, marks)}", key)
