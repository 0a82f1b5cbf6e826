"""Fresh rows: many at once of which a SQLite database has none, as when a node is new.

Nothing is judged, nothing can lose: rows and stamps are inserted as they are, and the trackers follow from the stamps.
Whether there is something between the first and the last key is seen at once; whether rows are all there are between
these keys is seen by their number. Where either is not so, nothing was done.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

import sqlite3

from tailrace.sync import names, sqliteddl
from tailrace.sync.columns import Columns
from tailrace.sync.exchange import Receipt
from tailrace.sync.incoming import Reception
from tailrace.sync.names import CHANGED_KEY, quoted
from tailrace.sync.shape import Shape
from tailrace.sync.trackers import current, table_join
from tailrace.sync.valuelist import run_with_values
from tailrace.sync.values import columns_from_wire


class _NotAll(Exception):
    """Rows are not in the order of their keys."""


def receive(reception: Reception, rows: Columns) -> Receipt | None:
    """Take rows; None when some may be here already, and nothing was done."""
    shape = reception.shape
    rows = rows.picked(range(len(rows.values)))
    columns_from_wire(shape, rows, shape.column_names)
    places = [shape.column_names.index(name) for name in shape.key]
    first, last = (tuple(rows.values[place][end] for place in places) for end in (0, -1))
    between = (*first, *last)
    for table, key in ((shape.stamp, shape.stamp_key), (shape.table, shape.table_key)):
        if reception.link.rows(f"SELECT 1 FROM {table} WHERE {_between(shape, key)} LIMIT 1", between):
            return None
    try:
        with reception.link.savepoint():
            _insert(reception, rows, places, between)
    except (_NotAll, sqlite3.IntegrityError):
        return None
    return Receipt()


def _insert(reception: Reception, rows: Columns, places: list[int], between: tuple[object, ...]) -> None:
    link, shape = reception.link, reception.shape
    count = len(shape.columns)
    be_quiet, be_loud = sqliteddl.quiet(shape)
    columns = ", ".join(map(quoted, shape.column_names))
    link.run(be_quiet)
    run_with_values(link, lambda listed: f"INSERT INTO {shape.table}({columns}) {listed}", rows.values[:count])
    link.run(be_loud)
    stamp = ", ".join((*shape.stamp_key, "stTime", "stNode"))
    stamps = [*(rows.values[place] for place in places), *rows.values[count : count + 2]]
    run_with_values(link, lambda listed: f"INSERT INTO {shape.stamp}({stamp}) {listed}", stamps)
    keys = ", ".join(f"door_st.{name}" for name in shape.stamp_key)
    own = (names.TRACKER_NODE, names.TRACKER_VERSION, names.TRACKER_VERSION_NODE, names.TRACKER_PROCESSED)
    tracker = ", ".join((*shape.tracker_key, *own))
    changes = ", ".join(f"{name} = excluded.{name}" for name in own[1:])
    here = f"{shape.stamp} AS door_st {table_join(shape) if shape.is_hash else ''}"
    which = _between(shape, [f"door_st.{name}" for name in shape.stamp_key])
    noted = link.run(
        f"""INSERT INTO {shape.tracker}({tracker})
            SELECT {keys}, {reception.sender:d}, {", ".join(current(shape))}, 1 FROM {here} WHERE {which}
            ON CONFLICT ({", ".join((*shape.tracker_key, own[0]))}) DO UPDATE SET {changes}""",
        between,
    )
    if noted != len(rows):
        raise _NotAll
    others = link.rows("SELECT nodeId FROM DoorNode")
    if others != [(reception.sender,)] or reception.is_watched:
        line = ", ".join(("chTableId", *CHANGED_KEY[: len(shape.key)], "chType"))
        query = f"SELECT {shape.table_id}, {keys}, 1 FROM {shape.stamp} AS door_st WHERE {which}"
        link.run(f"INSERT INTO ChangeLog({line}) {query}", between)


def _between(shape: Shape, columns: list[str] | tuple[str, ...]) -> str:
    """Whether a key is none before the first and none behind the last."""
    count = len(columns)
    first, last = ([shape.mark(start + number) for number in range(1, count + 1)] for start in (0, count))
    key = ", ".join(columns)
    return f"({key}) >= ({', '.join(first)}) AND ({key}) <= ({', '.join(last)})"
