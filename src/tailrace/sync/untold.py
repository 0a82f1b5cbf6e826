"""Rows of which no other node can be told, because of what is in them. They are kept in quarantine with the reason, and
hold up nobody; when they are changed, they are looked at again."""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Sequence

from tailrace.sync import names, quarantine
from tailrace.sync.database import IS_TEXT, Link
from tailrace.sync.names import Dialect, equal
from tailrace.sync.shape import Shape
from tailrace.sync.trackers import current, table_join, untellable
from tailrace.sync.values import from_wire, to_wire


def keep_untold(link: Link, shape: Shape, among: str = "") -> None:
    """Put such rows into quarantine, and let nobody wait for them. `among` joins the stamps to what they are about."""
    keys = [f"door_st.{name}" for name in shape.stamp_key]
    version, node = current(shape)
    shown = [shape.shown(name, key) for name, key in zip(shape.key, keys, strict=True)]
    yes = "true" if shape.dialect is Dialect.POSTGRES else "1"
    is_known = f"({shape.table}.{shape.table_key[0]} IS NOT NULL OR door_st.{shape.own('stDeleted')} = {yes})"
    for condition, why in {**untellable(shape, keys), **_no_texts(shape, keys)}.items():
        query = f"""SELECT DISTINCT {", ".join(shown)}, {version}, {node} FROM {shape.stamp} AS door_st {among}
            {table_join(shape)} WHERE {condition} AND {is_known}"""
        for *key, here, made_by in to_wire(shape, link.rows(query), shape.key):
            bound = from_wire(shape, [tuple(key)], shape.key)[0]
            if _close(link, shape, (*bound, here, made_by)):
                oneself = link.value(f"SELECT nodeId FROM {shape.own_table(names.SELF)}")
                quarantine.keep_untold(link, shape, oneself, tuple(key), why)


def _no_texts(shape: Shape, keys: Sequence[str]) -> dict[str, str]:
    """When a key of SQLite is a text and no UTF-8; and why that is no key elsewhere. Asked once for each change, since
    it takes its time: later nobody is to get such a row."""
    if shape.dialect is Dialect.POSTGRES:
        return {}
    return {
        f"typeof({key}) = 'text' AND NOT {IS_TEXT}(CAST({key} AS BLOB))": f"its key has text in {name} that is no UTF-8"
        for name, key in zip(shape.key, keys, strict=True)
    }


def _close(link: Link, shape: Shape, bound: tuple[object, ...]) -> bool:
    """Nobody gets a version; whether somebody was to."""
    marks = [shape.mark(place) for place in range(1, len(bound) + 1)]
    yes, no = "1", "0"
    if shape.dialect is Dialect.POSTGRES:
        kinds = (*shape.key_types, shape.version_type, "bigint")
        marks = [f"{place}::text::{kind}" for place, kind in zip(marks, kinds, strict=True)]
        yes, no = "true", "false"
    *keys, version, node = marks
    at_key = equal(shape.tracker_key, keys)
    if shape.dialect is Dialect.SQLITE:  # what is no UTF-8 was read as bytes
        pairs = zip(shape.tracker_key, keys, bound, strict=False)
        at_key = " AND ".join(
            f"{name} IN ({key}, CAST({key} AS TEXT))" if type(value) is bytes else f"{name} = {key}"
            for name, key, value in pairs
        )
    processed = shape.own(names.TRACKER_PROCESSED)
    return bool(
        link.run(
            f"""UPDATE {shape.tracker} SET {processed} = {yes}, {shape.own(names.TRACKER_VERSION)} = {version},
                {shape.own(names.TRACKER_VERSION_NODE)} = {node}
            WHERE {at_key} AND {processed} = {no}""",
            bound,
        )
    )
