"""Quarantine: rows that were not taken, kept for people. Refused here, refused by others, or edits that lost.

An edit has lost without a word if it was beaten by one whose author did not know it. Whoever has both sees it: neither
the sender of the one that stays nor its author is known to have had the other one, or anything newer.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from tailrace.sync import names
from tailrace.sync.database import Link
from tailrace.sync.entity import Rule
from tailrace.sync.exchange import Acks, Key, Tracker
from tailrace.sync.incoming import Here, Incoming, Reception
from tailrace.sync.names import Dialect, equal, mark, quoted
from tailrace.sync.room import Room
from tailrace.sync.shape import Shape
from tailrace.sync.values import from_wire, to_wire


class Why(StrEnum):
    """Why a row is in quarantine."""

    REFUSED = "refused"
    """It came, and the receive view did not want it."""
    REJECTED = "rejected"
    """Another node did not want it of this one, or it cannot be sent."""
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
    why: str = "another node changed the row at the same time, and its change stays"


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
    sender: int
    """Because of whom it is here, and takes room."""


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


def keep_refused(reception: Reception, row: Incoming, why: str) -> bool:
    """A row that came is not wanted; whether there was room for it, as with the others."""
    shape, sender = reception.shape, reception.sender
    told = None if row.is_deleted else dict(zip(shape.column_names, row.values, strict=True))
    entry = _entry(shape, Why.REFUSED, Lost(_indexed(row.key), sender, str(row.version), told), why, sender)
    return _keep(reception.link, shape, entry, reception.room)


def keep_waiting(reception: Reception, row: Incoming, told: Mapping[str, Any], why: str) -> bool:
    shape, sender = reception.shape, reception.sender
    entry = _entry(shape, Why.WAITING, Lost(row.key, sender, f"{row.time}-{row.node}", told), why, sender)
    return _keep(reception.link, shape, entry, reception.room)


def keep_rejected(link: Link, shape: Shape, node: int, acks: Acks, room: Room) -> Acks:
    """Rows of this node that another one does not want. Gives the acks that count: where there is no room it is as if
    nothing had been said, and the row stays pending. Nobody can reject what is not meant for it."""
    ignored = set()
    for place, why in acks.refused.items():
        key, version, _ = acks[place].tracker
        if not _is_tracked(link, shape, node, key):
            ignored.add(place)
            continue
        lost = Lost(key, node, str(version), _row(link, shape, key))
        if not _keep(link, shape, _entry(shape, Why.REJECTED, lost, why, node), room):
            ignored.add(place)
    return acks.without(ignored)


def keep_untold(link: Link, shape: Shape, node: int, key: Key, why: str, version: str = "") -> None:
    """A row of this node that cannot be sent, to all (`node` is this one) or to one. It stays in its table: what is
    kept of it is its key, for which there is room."""
    lost = Lost(key, node, version, dict(zip(shape.key, key, strict=True)))
    _insert(link, shape, _entry(shape, Why.REJECTED, lost, why, node))


def keep_unsent(link: Link, shape: Shape, node: int, row: Tracker, why: str, room: Room) -> bool:
    """The same for one that is too large for a node; whether there was room. Others decide what is too large, too."""
    told = dict(zip(shape.key, row.key, strict=True))
    entry = _entry(shape, Why.REJECTED, Lost(row.key, node, str(row.version), told), why, node)
    return _keep(link, shape, entry, room)


def without_room(reception: Reception, edits: Sequence[Lost]) -> set[Key]:
    """Of edits that will lose the keys of those for which there is no room. For the others it is taken."""
    link, shape, room = reception.link, reception.shape, reception.room
    return {edit.key for edit in edits if not _has_room(link, shape, _lost_entry(reception, edit), room)}


def keep_lost(reception: Reception, edits: Sequence[Lost]) -> None:
    """Edits that lose, for which room was taken."""
    for edit in edits:
        _insert(reception.link, reception.shape, _lost_entry(reception, edit))


def as_it_is(link: Link, shape: Shape, key: Key, here: Here, why: str) -> Lost:
    """What is here of a row, if it loses."""
    row = _row(link, shape, key)
    version = row[shape.entity.version] if row is not None and shape.is_hash else here.time
    return Lost(key, here.node, str(version), row, why)


def forget_known(reception: Reception, deletions: Sequence[Incoming], why: str) -> None:
    """Edits that were kept for a reason, and of which it turns out that who deletes the row knew them."""
    link, shape = reception.link, reception.shape
    which = f"qKind = '{Why.LOST}' AND qTableId = {shape.table_id:d} AND qSender = {reception.sender:d}"
    query = f"SELECT qId, qKey, qNode, qVersion FROM {shape.own_table(names.QUARANTINE)} WHERE {which}"
    kept = link.rows(f"{query} AND qReason = {shape.mark(1)}", (why,)) if deletions else []
    by_key = {orjson.dumps(row.key).decode(): row for row in deletions}
    for number, key, node, version in kept:
        row = by_key.get(key)
        if row is None:
            continue
        edit = replace(row, node=node, time=row.time if shape.is_hash else int(version))
        if edit.stamp <= row.stamp and _has(link, shape, edit, version, "=", {reception.sender, row.node}):
            link.run(f"DELETE FROM {shape.own_table(names.QUARANTINE)} WHERE qId = {number:d}")


def listed(link: Link, dialect: Dialect, limit: int, sender: int | None) -> list[Quarantined]:
    """The newest first; only what one node has sent, if that is said."""
    whose = "" if sender is None else f"WHERE qSender = {sender:d}"
    query = f"""SELECT qId, qKind, qTableId, qKey, qNode, qVersion, qReason, qRow, qAt, qSender FROM DoorQuarantine
        {whose} ORDER BY qId DESC LIMIT {mark(dialect, 1)}"""
    return [
        Quarantined(
            number, Why(kind), table, orjson.loads(key), node, version, reason, row and orjson.loads(row), at, sender
        )
        for number, kind, table, key, node, version, reason, row, at, sender in link.rows(query, (limit,))
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


class _Entry(NamedTuple):
    """A line of the quarantine."""

    kind: Why
    table_id: int
    key: str
    node: int
    version: str
    reason: str
    row: str | None
    at_ms: int
    sender: int
    bytes: int


_COLUMNS: Final = ("qKind", "qTableId", "qKey", "qNode", "qVersion", "qReason", "qRow", "qAt", "qSender", "qBytes")
_KEY_BYTES_MAX: Final = 1000
_PART_MAX: Final = 60
"""Of a longer key so many characters of each part are kept."""
_SAME: Final = 5
"""So many of them say whether it is the same."""


def _entry(shape: Shape, why: Why, lost: Lost, reason: str, sender: int) -> _Entry:
    key = orjson.dumps(lost.key)
    row = None if lost.row is None else orjson.dumps(lost.row)
    size = len(key) + len(lost.version) + len(reason.encode()) + len(row or b"")
    told = None if row is None else row.decode()
    return _Entry(why, shape.table_id, key.decode(), lost.node, lost.version, reason, told, _now_ms(), sender, size)


def _indexed(key: Key) -> Key:
    """A key that an index can hold: PostgreSQL may have refused the row for want of that. The row has all of it."""
    if len(orjson.dumps(key)) <= _KEY_BYTES_MAX:
        return key
    return tuple(_cut(part) if isinstance(part, str) and len(part) > _PART_MAX else part for part in key)


def _cut(text: str) -> str:
    return f"{text[:_PART_MAX]}… ({len(text):,} characters, {hashlib.sha256(text.encode()).hexdigest()[:16]})"


def _lost_entry(reception: Reception, edit: Lost) -> _Entry:
    return _entry(reception.shape, Why.LOST, edit, edit.why, reception.sender)


def _keep(link: Link, shape: Shape, entry: _Entry, room: Room) -> bool:
    """Whether it is there now."""
    has_room = _has_room(link, shape, entry, room)
    if has_room:
        _insert(link, shape, entry)
    return has_room


def _has_room(link: Link, shape: Shape, entry: _Entry, room: Room) -> bool:
    """Whether there is room; what is there already needs none."""
    if room.take(link, shape, entry.sender, entry.bytes):
        return True
    same = equal(_COLUMNS[:_SAME], [shape.mark(number) for number in range(1, _SAME + 1)])
    return bool(link.rows(f"SELECT 1 FROM {shape.own_table(names.QUARANTINE)} WHERE {same}", entry[:_SAME]))


def _insert(link: Link, shape: Shape, entry: _Entry) -> None:
    marks = ", ".join(shape.mark(number) for number in range(1, len(entry) + 1))
    into = f"INSERT INTO {shape.own_table(names.QUARANTINE)}({', '.join(_COLUMNS)}) VALUES ({marks})"
    link.run(f"{into} ON CONFLICT DO NOTHING", entry)


def _is_tracked(link: Link, shape: Shape, node: int, key: Key) -> bool:
    at_key = equal(shape.tracker_key, [shape.mark(number) for number in range(1, len(key) + 1)])
    query = f"SELECT 1 FROM {shape.tracker} WHERE {at_key} AND {shape.own('trkrDestinationNode')} = {node:d}"
    return bool(link.rows(query, from_wire(shape, [key], shape.key)[0]))


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
