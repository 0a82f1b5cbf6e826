"""Quarantine: rows that were not taken, kept for people. Refused here, refused by others, or edits that lost.

An edit has lost without a word if it was beaten by one whose author did not know it. Whoever has both sees it: neither
the sender of the one that stays nor its author is known to have had the other one, or anything newer.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import orjson

from tailrace.sync.database import Link
from tailrace.sync.entity import Rule
from tailrace.sync.exchange import Acks, Key
from tailrace.sync.incoming import Here, Incoming, Reception
from tailrace.sync.names import Dialect, equal, mark, quoted
from tailrace.sync.shape import Shape
from tailrace.sync.values import from_wire, to_wire


class Why(StrEnum):
    """Why a row is in quarantine."""

    REFUSED = "refused"
    """It came, and the receive view did not want it."""
    REJECTED = "rejected"
    """Another node did not want it of this one."""
    LOST = "lost"
    """It was beaten by an edit that did not know it."""
    WAITING = "waiting"
    """It refers to rows that are not here yet, or rows that are here refer to it; it is tried again by itself."""


@dataclass(frozen=True, slots=True)
class Lost:
    """An edit that loses."""

    key: Key
    node: int
    """Who made it."""
    version: str
    row: Mapping[str, Any] | None
    """None: it was a deletion."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row in quarantine."""

    id: int
    why: Why
    table_id: int
    key: list[Any]
    node: int
    version: str
    reason: str
    row: dict[str, Any] | None
    at_ms: int


def unknown_edits(reception: Reception, rows: Sequence[Incoming], before: Mapping[Key, Here]) -> list[Lost]:
    """The edits that will lose, here or among the rows that came, although nobody who beats them knew them."""
    link, shape = reception.link, reception.shape
    if shape.entity.conflict is not Rule.NEWER:
        return []
    found = []
    for row in rows:
        here = before.get(row.key)
        if here is None or here.node == row.node or (here.is_deleted and row.is_deleted):
            continue
        if here.stamp > row.stamp:
            if row.node not in (reception.oneself, 0) and not _has(link, shape, row, row.version, ">=", {row.node}):
                told = None if row.is_deleted else dict(zip(shape.column_names, row.values, strict=True))
                found.append(Lost(row.key, row.node, str(row.version), told))
        elif here.node != 0:
            mine = None if here.is_deleted else _row(link, shape, row.key)
            version = mine[shape.entity.version] if mine is not None and shape.is_hash else here.time
            lost = replace(row, time=here.time, node=here.node)
            if not _has(link, shape, lost, version, "=", {reception.sender, row.node}):
                found.append(Lost(row.key, here.node, str(version), mine))
    return found


def keep_refused(link: Link, shape: Shape, sender: int, row: Incoming, why: str) -> None:
    told = None if row.is_deleted else dict(zip(shape.column_names, row.values, strict=True))
    _keep(link, shape, Why.REFUSED, Lost(row.key, sender, str(row.version), told), why)


def keep_waiting(link: Link, shape: Shape, sender: int, row: Incoming, told: Mapping[str, Any], why: str) -> None:
    _keep(link, shape, Why.WAITING, Lost(row.key, sender, f"{row.time}-{row.node}", told), why)


def keep_rejected(link: Link, shape: Shape, node: int, acks: Acks) -> None:
    """Rows of this node that another one does not want."""
    for place, why in acks.refused.items():
        key, version, _ = acks[place].tracker
        _keep(link, shape, Why.REJECTED, Lost(key, node, str(version), _row(link, shape, key)), why)


def keep_lost(link: Link, shape: Shape, edits: Sequence[Lost]) -> None:
    for edit in edits:
        _keep(link, shape, Why.LOST, edit, "another node changed the row at the same time, and its change stays")


def listed(link: Link, dialect: Dialect, limit: int) -> list[Quarantined]:
    """The newest first."""
    query = f"""SELECT qId, qKind, qTableId, qKey, qNode, qVersion, qReason, qRow, qAt FROM DoorQuarantine
        ORDER BY qId DESC LIMIT {mark(dialect, 1)}"""
    return [
        Quarantined(number, Why(kind), table, orjson.loads(key), node, version, reason, row and orjson.loads(row), at)
        for number, kind, table, key, node, version, reason, row, at in link.rows(query, (limit,))
    ]


def send_again(link: Link, shape: Shape, number: int) -> bool:
    """Let a row that another node did not want be sent to it once more, as it is by now; whether that can be."""
    at = f"qId = {shape.mark(1)} AND qKind = '{Why.REJECTED}'"
    found = link.rows(f"SELECT qKey, qNode FROM {shape.own_table('DoorQuarantine')} WHERE {at}", (number,))
    if not found:
        return False
    ((text, node),) = found
    key = from_wire(shape, [tuple(orjson.loads(text))], shape.key)[0]
    marks = [shape.mark(place) for place in range(1, len(key) + 1)]
    if shape.dialect is Dialect.POSTGRES:
        marks = [f"{place}::text::{kind}" for place, kind in zip(marks, shape.key_types, strict=True)]
    at_key = equal(shape.tracker_key, marks)
    no = "false" if shape.dialect is Dialect.POSTGRES else "0"
    opened = link.run(
        f"""UPDATE {shape.tracker} SET {shape.own("trkrProcessed")} = {no}
        WHERE {at_key} AND {shape.own("trkrDestinationNode")} = {node:d}""",
        key,
    )
    link.run(f"DELETE FROM {shape.own_table('DoorQuarantine')} WHERE qId = {shape.mark(1)}", (number,))
    return opened == 1


def _keep(link: Link, shape: Shape, why: Why, lost: Lost, reason: str) -> None:
    marks = ", ".join(shape.mark(number) for number in range(1, 9))
    row = None if lost.row is None else orjson.dumps(lost.row).decode()
    values = (why, shape.table_id, orjson.dumps(lost.key).decode(), lost.node, lost.version, reason, row, _now_ms())
    columns = "qKind, qTableId, qKey, qNode, qVersion, qReason, qRow, qAt"
    into = f"INSERT INTO {shape.own_table('DoorQuarantine')}({columns}) VALUES ({marks})"
    link.run(f"{into} ON CONFLICT DO NOTHING", values)


def _has(link: Link, shape: Shape, edit: Incoming, version: Any, how: str, nodes: Collection[int]) -> bool:
    """Whether one of some nodes is known to have had an edit (=), or that or something newer (>=)."""
    count = len(edit.key)
    at_key = equal(shape.tracker_key, [shape.mark(number) for number in range(1, count + 1)])
    known = [shape.own("trkrVersionId"), shape.own("trkrVersionNode")]
    has = f"({', '.join(known)}) {how} ({shape.mark(count + 1)}, {edit.node:d})"
    if shape.is_hash:
        has = f"{known[0]} = {shape.mark(count + 1)}"
    who = f"{shape.own('trkrDestinationNode')} IN ({', '.join(f'{node:d}' for node in nodes)})"
    bound = (*from_wire(shape, [edit.key], shape.key)[0], version if shape.is_hash else edit.time)
    return bool(link.rows(f"SELECT 1 FROM {shape.tracker} WHERE {at_key} AND {has} AND {who} LIMIT 1", bound))


def _row(link: Link, shape: Shape, key: Key) -> dict[str, Any] | None:
    """A row as it is here."""
    at_key = equal(shape.table_key, [shape.mark(number) for number in range(1, len(key) + 1)])
    columns = ", ".join(shape.shown(name, quoted(name)) for name in shape.column_names)
    query = f"SELECT {columns} FROM {shape.table} WHERE {at_key}"
    rows = to_wire(shape, link.rows(query, from_wire(shape, [key], shape.key)[0]), shape.column_names)
    return dict(zip(shape.column_names, rows[0], strict=True)) if rows else None


def _now_ms() -> int:
    return int(time.time() * 1000)
