"""Trackers: which version of each row each node is known to have, and whether it should get another."""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import orjson

from tailrace.sync.columns import Columns
from tailrace.sync.database import Link
from tailrace.sync.exchange import ANY_NODE, PAGE_LENGTH_MAX, Acks, Key, Part, RowBatch, Tracker
from tailrace.sync.names import (
    TRACKER_NODE,
    TRACKER_PROCESSED,
    TRACKER_VERSION,
    TRACKER_VERSION_NODE,
    Dialect,
    equal,
    quoted,
)
from tailrace.sync.shape import Kind, Shape
from tailrace.sync.templates import for_node
from tailrace.sync.valuelist import run_with_values
from tailrace.sync.values import columns_from_wire, columns_to_wire, from_wire

_TURN: Final = 0x446F6F7254
"""The number of PostgreSQL's lock for whose turn it is."""
_WHOLE: Final = ("smallint", "integer", "bigint")
_DENSE: Final = 4
"""Of so many keys that there could be, one is told of."""
_TRACKED: Final = (TRACKER_VERSION, TRACKER_VERSION_NODE, TRACKER_PROCESSED)
_BY_SCAN: Final = "SELECT set_config('enable_nestloop', 'off', true)"
_BY_SEARCH: Final = "SELECT set_config('enable_nestloop', 'on', true)"
_IN_ORDER: Final = "SELECT set_config('enable_sort', $1, true), set_config('enable_bitmapscan', $1, true)"
"""What a new node should get is in no statistics yet: PostgreSQL would read and sort all of it for each page."""


def take_turn(link: Link, shape: Shape, *, alone: bool = False) -> None:
    """In PostgreSQL, wait until the trackers can be written, until the end of the transaction.

    Who notes what a node has looks at the stamps; who says what a node should get looks at both. Neither would see what
    the other is about to commit, so the latter does it alone. In SQLite everybody who writes does.
    """
    if shape.dialect is Dialect.POSTGRES:
        link.run(f"SELECT pg_advisory_xact_lock{'' if alone else '_shared'}({_TURN})")


def pending(link: Link, shape: Shape, node: int, after: Key | None, limit: int) -> list[Tracker]:
    """Versions that a node should get, in the order of their keys."""
    wanted = [*(shape.shown(name, column) for name, column in _tracker_columns(shape)), *current(shape)]
    query, values = _pending_query(shape, wanted, node, after, limit)
    found, _ = link.page(query, values, PAGE_LENGTH_MAX)
    if not found:
        return []
    columns_to_wire(shape, found, shape.key)
    *keys, versions, nodes = found.values
    return list(map(Tracker, zip(*keys, strict=True), versions, nodes))


def pending_rows(link: Link, shape: Shape, node: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
    """The rows that a node should get, likewise; or only those that are not gone, or only those that are."""
    keys = dict(zip(shape.key, shape.tracker_key, strict=True))
    wanted = [
        shape.shown(name, f"door_tr.{keys[name]}" if name in keys else f"{shape.table}.{quoted(name)}")
        for name in shape.column_names
    ]
    wanted += _stamp(shape)
    if after is not None and (dense := _dense_rows(link, shape, wanted, node, after, limit, part)) is not None:
        return dense
    return _rows(link, shape, *_pending_query(shape, wanted, node, after, limit, part=part))


def has_pending(link: Link, shape: Shape, node: int, part: Part = Part.ALL) -> bool:
    """Whether there is anything for a node."""
    query, values = _pending_query(shape, ["1"], node, None, 1, part=part)
    return bool(link.rows(query, values))


def pending_nodes(link: Link, shape: Shape) -> list[int]:
    """The nodes that should get something. The index is asked for one after the other, and not read as a whole."""
    column = shape.own("trkrDestinationNode")
    query = f"SELECT min({column}) FROM {shape.tracker} WHERE {is_open(shape, '')} AND {column} > {shape.mark(1)}"
    found = [0]
    while (node := link.value(query, (found[-1],))) is not None:
        found.append(node)
    return found[1:]


def pending_counts(link: Link, shape: Shape) -> dict[int, int]:
    """By node: how many rows of an entity it should get."""
    node, processed = shape.own("trkrDestinationNode"), shape.own("trkrProcessed")
    is_open = f"NOT {processed}" if shape.schema else f"{processed} = 0"
    return dict(link.rows(f"SELECT {node}, count(*) FROM {shape.tracker} WHERE {is_open} GROUP BY {node}"))


def mark(link: Link, shape: Shape, node: int, acks: Acks) -> None:
    """A node has these versions, or does not want them. Where another one is here by now, it should get that.

    Only what it should get can be confirmed: whoever could open a tracker would get the row.
    """
    if not acks:
        return
    take_turn(link, shape)
    keys = Columns(acks.keys)
    columns_from_wire(shape, keys, shape.key)
    made_by = [ANY_NODE] * len(acks) if shape.is_hash else acks.nodes  # a hash says by itself what it is of
    if shape.dialect is Dialect.SQLITE:
        run_with_values(link, partial(_mark_sqlite, shape, node), [*keys.values, acks.versions, made_by])
        return
    if _is_dense(shape, keys):
        link.run(_BY_SCAN)
        arrays = map(_array, (keys.values[0], acks.versions, made_by))
        if link.run(_mark_dense(shape), (*arrays, node, keys.values[0][0], keys.values[0][-1])) == len(acks):
            return
    rows = zip(*keys.values, acks.versions, made_by, strict=True)
    link.run(_mark_postgres(shape), (as_json(shape, rows), node))


def forget(link: Link, shape: Shape, node: int) -> None:
    """A node is gone for good."""
    link.run(f"DELETE FROM {shape.tracker} WHERE {shape.own('trkrDestinationNode')} = {shape.mark(1)}", (node,))


def open_again(link: Link, shape: Shape, node: int) -> None:
    """A node was set back: what it was known to have it gets again, or says that it has it. Where only hooks know who
    may have a row, that counts for what it had; a key that it only sent does not make it get the row."""
    take_turn(link, shape, alone=True)
    is_postgres = shape.dialect is Dialect.POSTGRES
    version, made_by, processed = (shape.own(name) for name in _TRACKED)
    of_node = f"door_tr.{shape.own(TRACKER_NODE)} = {node:d}"
    is_done = f"door_tr.{processed}"
    if shape.entity.is_told_by_hooks:
        same = equal([f"door_st.{name}" for name in shape.stamp_key], [f"door_tr.{name}" for name in shape.tracker_key])
        here, here_node = current(shape)
        is_here = f"{here} = door_tr.{version} AND {here_node} = door_tr.{made_by}"
        at_stamp = f"{shape.stamp} AS door_st {_with_table(shape)} WHERE {same} AND {is_here}"
        is_done += f" AND NOT EXISTS (SELECT 1 FROM {at_stamp})"
    else:
        is_done = "false" if is_postgres else "0"
    link.run(
        f"""UPDATE {shape.tracker} AS door_tr SET {version} = NULL, {made_by} = 0, {processed} = {is_done}
            WHERE {of_node}"""
    )


def current(shape: Shape) -> list[str]:
    """Two expressions: the version that is here, and the node that made it. A hash says by itself what it is of."""
    if not shape.is_hash:
        return [f"door_st.{shape.own('stTime')}", f"door_st.{shape.own('stNode')}"]
    gone = f"'-' || door_st.{shape.own('stTime')} || '-' || door_st.{shape.own('stNode')}"
    return [f"CASE WHEN {is_gone(shape)} THEN {gone} ELSE {shape.table}.{shape.version} END", "0"]


def untellable(shape: Shape, keys: Sequence[str]) -> dict[str, str]:
    """When nobody can be told of a row that has this key, beside its stamp and its table; and why."""
    found = {}
    if shape.is_hash:
        found[f"({current(shape)[0]}) IS NULL"] = f"its version is NULL: set {shape.entity.version}"
    if shape.dialect is Dialect.SQLITE:
        for name, key in zip(shape.key, keys, strict=True):
            if shape.column(name).kind is not Kind.BYTES:
                found[f"typeof({key}) = 'blob'"] = f"its key has bytes in {name}, which is no column of bytes"
    return found


def key_types(shape: Shape) -> str:
    """Columns k1, k2 … of a key, with their types."""
    return ", ".join(f"k{number} {kind}" for number, kind in enumerate(shape.key_types, 1))


def key_columns(shape: Shape, row: str) -> list[str]:
    return [f"{row}.k{number}" for number in range(1, len(shape.key) + 1)]


def table_join(shape: Shape) -> str:
    """The table beside its stamps, for those versions that stand in it."""
    return f"LEFT JOIN {shape.table} ON {equal(_table_columns(shape), [f'door_st.{name}' for name in shape.stamp_key])}"


def _with_table(shape: Shape) -> str:
    return table_join(shape) if shape.is_hash else ""


def _table_columns(shape: Shape) -> list[str]:
    return [f"{shape.table}.{name}" for name in shape.table_key]


def _tracker_columns(shape: Shape) -> list[tuple[str, str]]:
    return [(name, f"door_tr.{column}") for name, column in zip(shape.key, shape.tracker_key, strict=True)]


def _stamp(shape: Shape) -> list[str]:
    """What `ROW_STAMP` names, but for a version that is the time."""
    told = [f"door_st.{shape.own(name)}" for name in ("stTime", "stNode", "stDeleted")]
    return [*told, current(shape)[0]] if shape.is_hash else told


def _pending_query(
    shape: Shape,
    wanted: Sequence[str],
    node: int,
    after: Key | None,
    limit: int,
    between: tuple[int, int] | None = None,
    part: Part = Part.ALL,
) -> tuple[str, tuple[object, ...]]:
    """What there is for a node behind a key; or, in PostgreSQL, with a key that is one of these or between them."""
    keys = [f"door_tr.{name}" for name in shape.tracker_key]
    where = [f"door_tr.{shape.own('trkrDestinationNode')} = {shape.mark(1)}", is_open(shape, "door_tr.")]
    where.append(f"({is_gone(shape)} OR {_table_columns(shape)[0]} IS NOT NULL)")
    where += [f"NOT ({condition})" for condition in untellable(shape, keys)]
    if part is not Part.ALL:
        where.append(is_gone(shape) if part is Part.DELETIONS else f"NOT ({is_gone(shape)})")
    values: list[object] = [node, limit]
    if shape.entity.audience is not None:
        where.append(f"({is_gone(shape)} OR ({for_node(shape.entity.audience.of(shape.dialect), node)}))")
    stamp_keys, from_there = [f"door_st.{name}" for name in shape.stamp_key], ""
    if after is not None:
        marks = _key_marks(shape, 3)
        if shape.dialect is Dialect.POSTGRES:
            # it follows, but PostgreSQL does not see it, and would read the stamps and the table from their beginning
            where.append(_is_after(stamp_keys, marks))
            from_there = f"AND {_is_after(_table_columns(shape), marks)}"
        where.append(_is_after(keys, marks))
        values += from_wire(shape, [tuple(after)], shape.key)[0]
    if between is not None:
        where += [f"{key} BETWEEN $3 AND $4" for key in (*keys, *stamp_keys)]
        from_there = f"AND {_table_columns(shape)[0]} BETWEEN $3 AND $4"
        values += between
    query = f"""SELECT {", ".join(wanted)} FROM {shape.tracker} AS door_tr
        JOIN {shape.stamp} AS door_st ON {equal(stamp_keys, keys)} {table_join(shape)} {from_there}
        WHERE {" AND ".join(where)} ORDER BY {", ".join(keys)} LIMIT {shape.mark(2)}"""
    return query, tuple(values)


def _key_marks(shape: Shape, first: int) -> list[str]:
    """Where a key is bound."""
    marks = [shape.mark(number) for number in range(first, first + len(shape.key))]
    if shape.dialect is Dialect.SQLITE:
        return marks
    # whatever it is, it is read as a key or refused as a value
    return [f"{place}::text::{kind}" for place, kind in zip(marks, shape.key_types, strict=True)]


def _is_after(keys: Sequence[str], marks: Sequence[str]) -> str:
    return f"({', '.join(keys)}) > ({', '.join(marks)})"


def is_open(shape: Shape, prefix: str) -> str:
    """As the index of what is pending has it."""
    column = f"{prefix}{shape.own('trkrProcessed')}"
    return f"NOT {column}" if shape.dialect is Dialect.POSTGRES else f"{column} = 0"


def is_gone(shape: Shape) -> str:
    return f"door_st.{shape.own('stDeleted')}" + ("" if shape.dialect is Dialect.POSTGRES else " = 1")


def bound(shape: Shape, trackers: Sequence[Tracker]) -> list[tuple[object, ...]]:
    """Keys, versions and their nodes. A hash says by itself what it is of."""
    keys = from_wire(shape, [each.key for each in trackers], shape.key)
    if shape.is_hash:
        return [(*key, each.version, ANY_NODE) for key, each in zip(keys, trackers, strict=True)]
    return [(*key, each.version, each.node) for key, each in zip(keys, trackers, strict=True)]


def _rows(link: Link, shape: Shape, query: str, values: Sequence[object]) -> RowBatch:
    found, is_cut = link.page(query, values, PAGE_LENGTH_MAX)
    if not found:
        return RowBatch(shape.column_names, [])
    columns_to_wire(shape, found, shape.column_names)
    if not shape.is_hash:
        found = found.picked([*range(len(found.values)), len(shape.columns)])
    return RowBatch(shape.column_names, found, was_cut=is_cut)


def _dense_rows(
    link: Link, shape: Shape, wanted: Sequence[str], node: int, after: Key, limit: int, part: Part
) -> RowBatch | None:
    """In PostgreSQL, the rows of a further page, if there cannot be many others between its first and its last key:
    then stamps and table are read from the one to the other, and not searched row by row. None if it may be otherwise.
    """
    if shape.dialect is not Dialect.POSTGRES or not _has_whole_key(shape) or shape.entity.audience is not None:
        return None
    if part is Part.DELETIONS:
        return None
    link.run(_IN_ORDER, ("off",))
    first, last, count = link.rows(*_reach_query(shape, node, after, limit))[0]
    if not count or not _are_close(first, last, count):
        link.run(_IN_ORDER, ("on",))
        return None
    link.run(_BY_SCAN)
    found = _rows(link, shape, *_pending_query(shape, wanted, node, None, limit, (first, last), part))
    if len(found) == count or found.is_cut:
        return found
    link.run(_IN_ORDER, ("on",))  # some cannot be told: there are others behind these
    link.run(_BY_SEARCH)
    return None


def _reach_query(shape: Shape, node: int, after: Key, limit: int) -> tuple[str, tuple[object, ...]]:
    """The first key of a page, its last one, and how many there are."""
    key = shape.tracker_key[0]
    page = f"""SELECT {key} AS k1 FROM {shape.tracker} WHERE {shape.own("trkrDestinationNode")} = $1
        AND {is_open(shape, "")} AND {_is_after([key], _key_marks(shape, 3))} ORDER BY {key} LIMIT $2"""
    values = (node, limit, *from_wire(shape, [tuple(after)], shape.key)[0])
    return f"SELECT min(k1), max(k1), count(*) FROM ({page}) AS door_p", values


def _mark_sqlite(shape: Shape, node: int, listed: str) -> str:
    """A statement that marks the versions of a list."""
    keys = key_columns(shape, "door_a")
    same = equal([f"door_st.{name}" for name in shape.stamp_key], keys)
    stamp = f"FROM {shape.stamp} AS door_st {_with_table(shape)} WHERE {same}"
    here, here_node = current(shape)
    made_by = f"CASE door_a.n WHEN {ANY_NODE} THEN (SELECT {here_node} {stamp}) ELSE door_a.n END"
    is_current = f"{here} = door_a.v AND (door_a.n = {ANY_NODE} OR {here_node} = door_a.n)"
    columns = ", ".join((*(f"k{number}" for number in range(1, len(keys) + 1)), "v", "n"))
    return f"""WITH door_a({columns}) AS ({listed})
        UPDATE {shape.tracker} SET trkrVersionId = door_a.v, trkrVersionNode = coalesce({made_by}, 0),
            trkrProcessed = EXISTS (SELECT 1 {stamp} AND {is_current})
        FROM door_a WHERE {equal([f"{shape.tracker}.{name}" for name in shape.tracker_key], keys)}
            AND {shape.tracker}.trkrDestinationNode = {node:d} AND {shape.tracker}.trkrProcessed = 0"""


def _is_dense(shape: Shape, keys: Columns) -> bool:
    """Whether there cannot be many more rows between the first and the last key, so that these are read as a whole."""
    if not _has_whole_key(shape) or shape.is_hash or keys.types(0) != {int}:
        return False
    return _are_close(keys.values[0][0], keys.values[0][-1], len(keys))


def _has_whole_key(shape: Shape) -> bool:
    return len(shape.key) == 1 and shape.key_types[0] in _WHOLE


def _are_close(first: int, last: int, count: int) -> bool:
    return 0 < last - first < _DENSE * count


def _array(values: Sequence[object]) -> str:
    """Whole numbers, as PostgreSQL writes an array."""
    return f"{{{','.join(map(str, values))}}}"


def versions_told(shape: Shape) -> str:
    """Versions that are bound as JSON, as a table with the columns k1, k2 …, v and n, and their places from 1 on."""
    columns = ", ".join((*(f"k{number}" for number in range(1, len(shape.key) + 1)), "v", "n"))
    read = f"json_to_recordset($1::json) AS ({key_types(shape)}, v {shape.version_type}, n bigint)"
    return f"ROWS FROM ({read}) WITH ORDINALITY AS door_a({columns}, place)"


def _mark_postgres(shape: Shape) -> str:
    same = equal([f"door_st.{name}" for name in shape.stamp_key], key_columns(shape, "door_a"))
    stamps = f"LEFT JOIN {shape.stamp} AS door_st ON {same} {_with_table(shape)}"
    return _marked(shape, f"{versions_told(shape)} {stamps}", "$2")


def _mark_dense(shape: Shape) -> str:
    """The same for versions between two keys."""
    told = "unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS door_a(k1, v, n)"
    stamp, tracker = f"door_st.{shape.stamp_key[0]}", f"door_tr.{shape.tracker_key[0]}"
    stamps = f"LEFT JOIN {shape.stamp} AS door_st ON {stamp} = door_a.k1 AND {stamp} BETWEEN $5 AND $6"
    return f"{_marked(shape, f'{told} {stamps}', '$4')} AND {tracker} BETWEEN $5 AND $6"


def _marked(shape: Shape, told: str, node: str) -> str:
    here, here_node = current(shape)
    return f"""UPDATE {shape.tracker} AS door_tr SET trkrversionid = door_a.v,
        trkrversionnode = coalesce(CASE door_a.n WHEN {ANY_NODE} THEN {here_node} ELSE door_a.n END, 0),
        trkrprocessed = coalesce({here} = door_a.v AND (door_a.n = {ANY_NODE} OR {here_node} = door_a.n), false)
        FROM {told}
        WHERE {equal([f"door_tr.{name}" for name in shape.tracker_key], key_columns(shape, "door_a"))}
            AND door_tr.trkrdestinationnode = {node} AND NOT door_tr.trkrprocessed"""


def as_json(shape: Shape, rows: Iterable[tuple[object, ...]]) -> str:
    names = [*(f"k{number}" for number in range(1, len(shape.key) + 1)), "v", "n"]
    return orjson.dumps([dict(zip(names, told, strict=True)) for told in rows]).decode()
