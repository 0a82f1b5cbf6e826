"""Disclosure: what a node is told about rows that it names itself. It could guess keys and versions of others' rows, so
it hears only of those that it may have, or is known to have."""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Sequence

from tailrace.sync import names
from tailrace.sync.columns import Columns
from tailrace.sync.database import Link
from tailrace.sync.exchange import ANY_NODE, Tracker
from tailrace.sync.names import Dialect, equal
from tailrace.sync.shape import Shape
from tailrace.sync.spelling import misspelt
from tailrace.sync.templates import for_node
from tailrace.sync.trackers import as_json, bound, current, is_gone, is_open, key_columns, table_join, versions_told


def held(link: Link, shape: Shape, node: int, trackers: Sequence[Tracker]) -> list[Tracker]:
    """Of some versions those that are the ones here, and of which the node may know it."""
    return _among(link, shape, node, trackers, is_exact=True)


def heard_of(link: Link, shape: Shape, node: int, trackers: Sequence[Tracker]) -> list[Tracker]:
    """Of some rows, in whatever version, those of which the node may know that they are here."""
    return _among(link, shape, node, trackers, is_exact=False)


def _among(link: Link, shape: Shape, node: int, trackers: Sequence[Tracker], *, is_exact: bool) -> list[Tracker]:
    keys = [f"door_st.{name}" for name in shape.stamp_key]
    is_postgres = shape.dialect is Dialect.POSTGRES
    *asked, version, made_by = [shape.mark(number) for number in range(1, len(keys) + 3)]
    if is_postgres:
        asked, version, made_by = key_columns(shape, "door_a"), "door_a.v", "door_a.n"
    audience = shape.entity.audience
    joined = table_join(shape) if shape.is_hash or audience is not None else ""
    where = []
    if is_exact:
        here, here_node = current(shape)
        where.append(f"{here} = {version} AND ({made_by} = {ANY_NODE} OR {here_node} = {made_by})")
    if audience is not None or shape.entity.is_told_by_hooks:
        at_tracker = equal([f"door_tr.{name}" for name in shape.tracker_key], keys)
        of_node = f"door_tr.{shape.own(names.TRACKER_NODE)} = {node:d}"
        joined += f" LEFT JOIN {shape.tracker} AS door_tr ON {at_tracker} AND {of_node}"
        where.append(_may_know(shape, node))
    if is_postgres:
        query = f"""SELECT door_a.place FROM {versions_told(shape)}
            JOIN {shape.stamp} AS door_st ON {equal(keys, asked)} {joined}
            {"WHERE" if where else ""} {" AND ".join(where)} ORDER BY door_a.place"""
        found = [trackers[place - 1] for (place,) in link.rows(query, (as_json(shape, bound(shape, trackers)),))]
        odd = misspelt(link, shape, Columns.of_rows(each.key for each in found))  # their rows are told of what is wrong
        return [each for each in found if each.key not in odd]
    query = f"SELECT 1 FROM {shape.stamp} AS door_st {joined} WHERE {' AND '.join((equal(keys, asked), *where))}"
    values = [told if is_exact else told[: len(keys)] for told in bound(shape, trackers)]
    return [each for each, told in zip(trackers, values, strict=True) if link.rows(query, told)]


def _may_know(shape: Shape, node: int) -> str:
    """Whether a node may know of a row. Who has sent an old version of it has a tracker, too, which alone says nothing;
    of one that is gone there is nothing to know but that."""
    has_tracker = f"door_tr.{shape.tracker_key[0]} IS NOT NULL"
    if shape.entity.audience is not None:
        audience = for_node(shape.entity.audience.of(shape.dialect), node)
        is_there = f"{shape.table}.{shape.table_key[0]} IS NOT NULL"
        return f"CASE WHEN {is_gone(shape)} THEN {has_tracker} ELSE {is_there} AND ({audience}) END"
    version, made_by = current(shape)
    has = f"door_tr.{shape.own(names.TRACKER_VERSION)} = {version}"
    has += f" AND door_tr.{shape.own(names.TRACKER_VERSION_NODE)} = {made_by}"
    return f"{has_tracker} AND ({is_open(shape, 'door_tr.')} OR ({has}))"
