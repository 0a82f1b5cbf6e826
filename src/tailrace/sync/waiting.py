"""Rows that wait for others: one that refers to a row which is not here yet, a deletion of one to which others refer.

Tables come one after the other, and what one node deletes together another one may hear of in parts. Such a row is kept
beside those in quarantine, its sender is done with it, and it is tried again by itself when other rows have come.
"""
# ruff: noqa: S608  names cannot be bound; all of them are sync's own

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from tailrace.sync import names, quarantine
from tailrace.sync.database import Link
from tailrace.sync.exchange import ROW_STAMP, RowBatch
from tailrace.sync.incoming import Incoming, Reception
from tailrace.sync.shape import Shape

_AT_ONCE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows of one table that one node has sent, and that are deletions or not."""

    table_id: int
    sender: int
    is_deleted: bool
    ids: tuple[int, ...]
    rows: tuple[Mapping[str, Any], ...]

    def halves(self) -> tuple[Waiting, Waiting]:
        half = len(self.ids) // 2
        first = replace(self, ids=self.ids[:half], rows=self.rows[:half])
        return first, replace(self, ids=self.ids[half:], rows=self.rows[half:])

    def batches(self, shape: Shape) -> list[RowBatch]:
        """As they came. The table may have got or lost columns since."""
        found: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        for row in self.rows:
            columns = tuple(name for name in shape.column_names if name in row)
            found.setdefault(columns, []).append(tuple(row[name] for name in (*columns, *ROW_STAMP)))
        return [RowBatch(columns, rows) for columns, rows in found.items()]


def keep(reception: Reception, row: Incoming, why: str) -> bool:
    """Let a row wait, if there is room for it."""
    shape = reception.shape
    told = dict(zip(shape.column_names, row.values, strict=True))
    if row.is_deleted:
        told = {name: told[name] for name in shape.key}
    told |= zip(ROW_STAMP, (row.time, row.node, row.is_deleted, row.version), strict=True)
    return quarantine.keep_waiting(reception, row, told, why)


def found(link: Link, order: Sequence[int], most: int = _AT_ONCE_MAX) -> list[Waiting]:
    """All that wait, in the order in which they can be taken: rows before those that refer to them, and the deletions
    of these before theirs. `order` are the tables, those to which others refer first."""
    query = f"""SELECT qTableId, qNode, qId, qRow FROM DoorQuarantine WHERE qKind = '{quarantine.Why.WAITING}'
        ORDER BY qId LIMIT {most:d}"""
    groups: dict[tuple[int, int, bool], list[tuple[int, Mapping[str, Any]]]] = {}
    for table_id, sender, number, text in link.rows(query):
        row = orjson.loads(text)
        groups.setdefault((table_id, sender, row["doorDeleted"]), []).append((number, row))
    known = [
        Waiting(table_id, sender, is_deleted, *zip(*rows, strict=True))
        for (table_id, sender, is_deleted), rows in groups.items()
        if table_id in order
    ]
    places = {table_id: place for place, table_id in enumerate(order)}
    rows_first = sorted((each for each in known if not each.is_deleted), key=lambda each: places[each.table_id])
    gone = sorted((each for each in known if each.is_deleted), key=lambda each: -places[each.table_id])
    return rows_first + gone


def remove(link: Link, waiting: Waiting) -> None:
    """They are tried again; who has to wait longer is kept anew."""
    link.run(f"DELETE FROM DoorQuarantine WHERE qId IN ({', '.join(f'{number:d}' for number in waiting.ids)})")


def count(link: Link, shape: Shape) -> int:
    """How many rows of a table wait."""
    which = f"qKind = '{quarantine.Why.WAITING}' AND qTableId = {shape.table_id:d}"
    return int(link.value(f"SELECT count(*) FROM {shape.own_table(names.QUARANTINE)} WHERE {which}"))
