"""Cascades: what a deletion that came takes with it here, since it refers to the row that goes.

The sender has told before of all rows that it has moved away or deleted. What is taken even so it did not know, or had
not deleted: it is kept in quarantine as it was. If a version of it waits here that its sender has saved from the
deletion, the deletion waits, too: a cascade would be later, and that version lose.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import orjson

from tailrace.sync import names, quarantine
from tailrace.sync.database import Link
from tailrace.sync.exchange import Key
from tailrace.sync.incoming import Here, Incoming, Reception, Refusal
from tailrace.sync.names import Dialect, equal, quoted
from tailrace.sync.quarantine import Lost
from tailrace.sync.references import Loss, Reference
from tailrace.sync.shape import Shape
from tailrace.sync.values import from_wire, to_wire

WHY: Final = "it referred to a row that another node has deleted, and was deleted or changed with it"
_WAITS: Final = "a row refers to it of which a later version waits here for others"
CROWDED: Final = "rows here refer to it, of which its sender does not know, and would be deleted or changed with it"
_KEYS_MAX: Final = 500
"""So many keys are asked about in one statement."""


@dataclass(frozen=True, slots=True)
class Cascade:
    """What some deletions take with them."""

    lost: Sequence[tuple[Reception, Lost, Here]] = ()
    waiting: Mapping[Key, Refusal] = field(default_factory=dict)
    """Deletions that have to wait."""
    crowded: frozenset[Key] = frozenset()
    """Deletions that take something for which there is no room in quarantine."""
    places: Mapping[Key, int] = field(default_factory=dict)
    """Of deletions that would take each other with them."""

    def in_order(self, rows: Sequence[Incoming]) -> list[Incoming]:
        """Rows before deletions, and of these first what would go with others."""
        return sorted(rows, key=lambda row: (row.is_deleted, self.places.get(row.key, 0)))

    def keep(self) -> None:
        """What was taken is kept as it was."""
        for reception, lost, here in self.lost:
            if _alive(reception.link, reception.shape, [lost.key]).get(lost.key) != here:
                quarantine.keep_lost(reception, [lost])


def expected(reception: Reception, rows: Sequence[Incoming], before: Mapping[Key, Here]) -> Cascade:
    """What will be taken by the deletions among some rows. In PostgreSQL nobody changes it until they are done."""
    if not any(each.parent.table_id == reception.shape.table_id for each in _acting(reception)):
        return Cascade()
    winning = {row.key for row in rows if row.is_deleted and _wins(row, before.get(row.key))}
    if not winning:
        return Cascade()
    _lock(reception, winning)
    waiting: dict[Key, Refusal] = {}
    lost: list[tuple[Reception, Lost, Here]] = []
    crowded: set[Key] = set()
    for child, roots in _reached(reception, winning):
        theirs = replace(reception, shape=child)
        keys = [key for key in roots if child.table_id != reception.shape.table_id or key not in winning]
        here = _alive(reception.link, child, keys)
        later = _waiting(reception.link, child, here)
        waiting |= {roots[key]: Refusal(_WAITS, is_about_others=True) for key in later}
        for key in here.keys() - later:
            edit = quarantine.as_it_is(reception.link, child, key, here[key], WHY)
            if quarantine.without_room(theirs, [edit]):
                crowded.add(roots[key])
            lost.append((theirs, edit, here[key]))
    return Cascade(lost, waiting, frozenset(crowded - waiting.keys()), _places(reception, winning))


def forget_known(reception: Reception, rows: Sequence[Incoming]) -> None:
    """Rows that went with others, and of which their sender tells now that it has deleted them itself."""
    if any(each.child.table_id == reception.shape.table_id for each in _acting(reception)):
        quarantine.forget_known(reception, [row for row in rows if row.is_deleted], WHY)


def _wins(row: Incoming, here: Here | None) -> bool:
    return here is not None and not here.is_deleted and here.stamp < row.stamp


def _acting(reception: Reception) -> Iterator[Reference]:
    return (each for each in reception.references if each.loss is not Loss.NOTHING)


def _reached(reception: Reception, winning: set[Key]) -> list[tuple[Shape, dict[Key, Key]]]:
    """By table: the rows that are taken, each with one of the deletions because of which."""
    found: dict[int, tuple[Shape, dict[Key, Key]]] = {}
    ahead: list[tuple[Shape, dict[Key, Key]]] = [(reception.shape, {key: key for key in winning})]
    seen = {(reception.shape.table_id, key) for key in winning}
    while ahead:
        parent, roots = ahead.pop()
        for reference in _acting(reception):
            if reference.parent.table_id != parent.table_id:
                continue
            child = reference.child
            pairs = _referring(reception.link, reference, list(roots))
            new = {key: roots[of] for of, key in pairs if (child.table_id, key) not in seen}
            seen |= {(child.table_id, key) for key in new}
            found.setdefault(child.table_id, (child, {}))[1].update(new)
            if reference.loss is Loss.DELETED and new:
                ahead.append((child, new))
    return list(found.values())


def _places(reception: Reception, winning: set[Key]) -> dict[Key, int]:
    """Where deletions of one table stand among each other, so that what refers to others goes first."""
    sorter = TopologicalSorter[Key]()
    for reference in _acting(reception):
        if reference.child.table_id == reference.parent.table_id == reception.shape.table_id:
            for of, key in _referring(reception.link, reference, list(winning)):
                if key != of and key in winning:
                    sorter.add(of, key)
    try:
        return {key: place for place, key in enumerate(sorter.static_order())}
    except CycleError:
        return {}


def _lock(reception: Reception, keys: set[Key]) -> None:
    shape = reception.shape
    if shape.dialect is Dialect.POSTGRES:
        for which, values in _listed(shape, shape.table_key, list(keys)):
            reception.link.rows(f"SELECT 1 FROM {shape.table} WHERE {which} FOR UPDATE", values)


def _referring(link: Link, reference: Reference, keys: list[Key]) -> list[tuple[Key, Key]]:
    """Keys of rows that are referred to, and of those that refer to them."""
    parent, child = reference.parent, reference.child
    wanted = [parent.shown(name, f"door_p.{quoted(name)}") for name in parent.key]
    wanted += [child.shown(name, f"door_c.{quoted(name)}") for name in child.key]
    same = equal(
        [f"door_c.{quoted(name)}" for name in reference.columns], [f"door_p.{quoted(name)}" for name in reference.to]
    )
    lock = "FOR UPDATE OF door_c" if child.dialect is Dialect.POSTGRES else ""
    count, found = len(parent.key), list[tuple[Key, Key]]()
    for which, values in _listed(parent, [f"door_p.{name}" for name in parent.table_key], keys):
        query = f"""SELECT {", ".join(wanted)} FROM {parent.table} AS door_p
            JOIN {child.table} AS door_c ON {same} WHERE {which} {lock}"""
        rows = link.rows(query, values)
        of = to_wire(parent, [row[:count] for row in rows], parent.key)
        found += zip(of, to_wire(child, [row[count:] for row in rows], child.key), strict=True)
    return found


def _alive(link: Link, shape: Shape, keys: Sequence[Key]) -> dict[Key, Here]:
    """What is here of rows that are not gone."""
    columns = ", ".join(
        [shape.shown(name, own) for name, own in zip(shape.key, shape.stamp_key, strict=True)]
        + [shape.own(name) for name in ("stTime", "stNode", "stDeleted")]
    )
    found = {}
    for which, values in _listed(shape, shape.stamp_key, keys):
        rows = link.rows(f"SELECT {columns} FROM {shape.stamp} WHERE {which}", values)
        for *key, time, node, is_gone in to_wire(shape, rows, shape.key):
            if not is_gone:
                found[tuple(key)] = Here(time, node, is_deleted=False)
    return found


def _waiting(link: Link, shape: Shape, here: Mapping[Key, Here]) -> set[Key]:
    """Rows of which a later version waits here."""
    by_text = {orjson.dumps(key).decode(): key for key in here}
    query = f"""SELECT qKey, qRow FROM {shape.own_table(names.QUARANTINE)}
        WHERE qKind = '{quarantine.Why.WAITING}' AND qTableId = {shape.table_id:d}"""
    found = set()
    for text, told in link.rows(query) if here else ():
        row: dict[str, Any] = orjson.loads(told)
        key = by_text.get(text)
        if key is not None and not row["doorDeleted"] and (row["doorTime"], row["doorNode"]) > here[key].stamp:
            found.add(key)
    return found


def _listed(shape: Shape, columns: Sequence[str], keys: Sequence[Key]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Conditions that columns are one of some keys, and what is bound in each."""
    count = len(shape.key)
    for start in range(0, len(keys), _KEYS_MAX):
        some = from_wire(shape, list(keys[start : start + _KEYS_MAX]), shape.key)
        marks = [shape.mark(number + 1) for number in range(count * len(some))]
        if shape.dialect is Dialect.POSTGRES:
            marks = [f"{mark}::text::{shape.key_types[place % count]}" for place, mark in enumerate(marks)]
        tuples = (f"({', '.join(marks[place : place + count])})" for place in range(0, len(marks), count))
        yield f"({', '.join(columns)}) IN (VALUES {', '.join(tuples)})", tuple(part for key in some for part in key)
