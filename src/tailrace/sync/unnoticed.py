"""What happened to a table while its triggers were away, as far as rows and stamps tell it.

A row without a stamp is new, a stamp without a row is a deletion, and a row whose version is not that of its stamp was
changed. Of an edit that left the version as it was nothing is known; nor of one that changed only a hash.

What an application has written to a column before that was installed went nowhere: the version stood for the others.

An empty table on which there is no trigger any more was made anew: nobody has deleted the rows that it had, and other
nodes send them again.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.sync import names, postgresddl, setback, sqliteddl
from tailrace.sync.database import Link
from tailrace.sync.entity import Deletes
from tailrace.sync.exchange import AHEAD_MS, ROW_STAMP
from tailrace.sync.names import CHANGED_KEY, Dialect, equal, numbered, quoted
from tailrace.sync.shape import Column, Shape
from tailrace.sync.wholeness import named

_OF_VIEW: Final = (
    names.FROM_NODE,
    *ROW_STAMP,
    names.TRACKER_NODE,
    names.TRACKER_VERSION,
    names.TRACKER_VERSION_NODE,
    names.TRACKER_PROCESSED,
)
"""Columns of a receive view that are none of its table."""


@dataclass(frozen=True, slots=True)
class Unnoticed:
    """How many rows of a table were found to be otherwise than they were known."""

    table: str
    were_away: Sequence[str] = ()
    """The triggers and views that were missing, or did not fire."""
    gone: int = 0
    changed: int = 0
    forgotten: int = 0
    """Rows of a table that was made anew."""

    def told(self) -> list[str]:
        """For people."""
        if not (self.were_away or self.gone or self.changed):
            return []
        found = f"{self.changed} changed and {self.gone} deleted rows were found, and others are told"
        if self.forgotten:
            found = f"it is empty, so the {self.forgotten} rows that it had are asked for again"
        lines = [f"table {self.table}: changes went past the triggers; {found}"]
        if self.were_away:
            lines.append(
                f"table {self.table}: {named(self.were_away)} did not fire; a row that was changed meanwhile, and"
                " not its version, is sent when it is changed again"
            )
        return lines


def count(link: Link, shape: Shape) -> tuple[int, int]:
    """How many rows are gone, and how many were changed."""
    gone = link.value(f"SELECT count(*) FROM {shape.stamp} AS s WHERE {_is_gone(shape)}")
    changed = link.value(f"SELECT count(*) FROM {_stamped_rows(shape)} WHERE {_differs(shape)}")
    return int(gone), int(changed)


def forget(link: Link, shape: Shape) -> int:
    """The table was made anew: nothing is known of its rows; says of how many. What was deleted before stays so."""
    alive = f"SELECT {', '.join(shape.stamp_key)} FROM {shape.stamp} WHERE NOT {_deleted(shape, '')}"
    link.run(f"DELETE FROM {shape.tracker} WHERE ({', '.join(shape.tracker_key)}) IN ({alive})")
    found = link.run(f"DELETE FROM {shape.stamp} WHERE NOT {_deleted(shape, '')}")
    nodes = [node for (node,) in link.rows(f"SELECT nodeId FROM {shape.own_table(names.NODES)}")]
    setback.start_over(link, shape.dialect, [shape], nodes)
    return found


def is_empty(link: Link, shape: Shape) -> bool:
    return not link.rows(f"SELECT 1 FROM {shape.table} LIMIT 1")


def bury(link: Link, shape: Shape) -> None:
    """Stamp deletions, so that others hear of them. Nobody else may write to the table meanwhile."""
    _tell(link, shape, 2, f"{shape.stamp} AS s WHERE {_is_gone(shape)}")
    if shape.entity.deletes is Deletes.REPLICATE:
        buried = f"{shape.own('stTime')} = {_later(shape)}, {shape.own('stDeleted')} = {_truth(shape, True)}"
        link.run(f"UPDATE {shape.stamp} AS s SET {buried}, {_by_oneself(shape)} WHERE {_is_gone(shape)}")
        return
    keys = f"SELECT {', '.join(shape.stamp_key)} FROM {shape.stamp} AS s WHERE {_is_gone(shape)}"
    link.run(f"DELETE FROM {shape.tracker} WHERE ({', '.join(shape.tracker_key)}) IN ({keys})")
    link.run(f"DELETE FROM {shape.stamp} AS s WHERE {_is_gone(shape)}")


def known_columns(link: Link, shape: Shape, view: str) -> set[str]:
    """The columns that the table had when its receive view was made; none where there is no such view any more."""
    query = "SELECT name FROM pragma_table_info(?1)"
    if shape.dialect is Dialect.POSTGRES:
        query = "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0"
        view = quoted(view)
    return {name for (name,) in link.rows(query, (view,))}


def stamp_written(link: Link, shape: Shape, known: Collection[str], *, was_made_older: bool) -> None:
    """Stamp rows that have something in a column that was not known, and so was not sent; just above what they were
    (`was_made_older`: by `growth`, before), so that no edit of others loses by it.

    A column that is gone may have got the name of a new one, and then what stands in that is no news. Of a hash no
    other is made here: such a row is sent with its next change.
    """
    if not known or shape.is_hash or shape.entity.receive.select is not None:
        return
    of_view = {name.lower() for name in (*_OF_VIEW, *numbered(names.TRACKER_KEY, len(shape.key)))}
    columns = {column.name: column for column in shape.columns}
    if any(name not in columns and name.lower() not in of_view for name in known):
        return
    new = [columns[name] for name in columns.keys() - known]
    written = [_is_written(shape, each) for each in new if not (each.is_generated or each.is_identity)]
    if written:
        above = 2 if was_made_older else 1
        _stamp(link, shape, f"({' OR '.join(written)})", f"s.{shape.own('stTime')} + {above}")


def _is_written(shape: Shape, column: Column) -> str:
    unless_written = f"({column.default or 'NULL'})"
    if shape.dialect is Dialect.POSTGRES:  # not every type can be compared
        return f"e.{quoted(column.name)}::text IS DISTINCT FROM {unless_written}::{column.declared}::text"
    return f"e.{quoted(column.name)} IS NOT {unless_written}"


def stamp(link: Link, shape: Shape) -> None:
    """The same for rows that were changed. A version from the application stays, if it is later than what was known."""
    time, version = f"s.{shape.own('stTime')}", f"e.{shape.version}"
    stamped = _later(shape)
    if not shape.is_hash:
        is_later = f"{version} > {time} AND {version} <= {_now(shape)} + {AHEAD_MS}"
        stamped = f"CASE WHEN {is_later} THEN {version} ELSE {stamped} END"
    _stamp(link, shape, _differs(shape), stamped)


def _stamp(link: Link, shape: Shape, which: str, stamped: str) -> None:
    _tell(link, shape, 1, f"{_stamped_rows(shape)} WHERE {which}")
    time, changed = shape.own("stTime"), f"{_same(shape)} AND {which}"
    alive = f"{time} = {stamped}, {shape.own('stDeleted')} = {_truth(shape, False)}, {_by_oneself(shape)}"
    link.run(f"UPDATE {shape.stamp} AS s SET {alive} FROM {shape.table} AS e WHERE {changed}")
    if shape.is_hash:
        return
    quietly = postgresddl.quiet(shape) if shape.dialect is Dialect.POSTGRES else sqliteddl.quiet(shape)
    link.run(quietly[0])
    link.run(f"UPDATE {shape.table} AS e SET {shape.version} = s.{time} FROM {shape.stamp} AS s WHERE {changed}")
    link.run(quietly[1])


def _tell(link: Link, shape: Shape, kind: int, stamps: str) -> None:
    """Lines of the ChangeLog for some stamps."""
    columns = ", ".join(CHANGED_KEY[: len(shape.key)])
    as_text = "::text" if shape.dialect is Dialect.POSTGRES else ""
    link.run(
        f"""INSERT INTO {shape.own_table(names.CHANGES)}(chTableId, {columns}, chType)
            SELECT {shape.table_id}, {", ".join(f"s.{name}{as_text}" for name in shape.stamp_key)}, {kind}
            FROM {stamps}"""
    )


def _same(shape: Shape) -> str:
    return equal([f"s.{name}" for name in shape.stamp_key], [f"e.{name}" for name in shape.table_key])


def _is_gone(shape: Shape) -> str:
    return f"NOT {_deleted(shape)} AND NOT EXISTS (SELECT 1 FROM {shape.table} AS e WHERE {_same(shape)})"


def _stamped_rows(shape: Shape) -> str:
    return f"{shape.stamp} AS s JOIN {shape.table} AS e ON {_same(shape)}"


def _differs(shape: Shape) -> str:
    if shape.is_hash:
        return _deleted(shape)
    is_other = "IS DISTINCT FROM" if shape.dialect is Dialect.POSTGRES else "IS NOT"
    return f"({_deleted(shape)} OR e.{shape.version} {is_other} s.{shape.own('stTime')})"


def _deleted(shape: Shape, prefix: str = "s.") -> str:
    return f"({prefix}{shape.own('stDeleted')} = {_truth(shape, True)})"


def _truth(shape: Shape, value: bool) -> str:
    return str(value).lower() if shape.dialect is Dialect.POSTGRES else str(int(value))


def _now(shape: Shape) -> str:
    return postgresddl.now(shape) if shape.dialect is Dialect.POSTGRES else sqliteddl.NOW


def _later(shape: Shape) -> str:
    greatest = "greatest" if shape.dialect is Dialect.POSTGRES else "max"
    return f"{greatest}({_now(shape)}, s.{shape.own('stTime')} + 1)"


def _by_oneself(shape: Shape) -> str:
    return f"{shape.own('stNode')} = (SELECT nodeId FROM {shape.own_table(names.SELF)})"
