"""References: the foreign keys between entities, and what becomes of a row when the one that it refers to goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tailrace.sync.database import Link
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Shape

_POSTGRES: Final = """SELECT c.relname::text, k.confdeltype::text,
    ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS n(number, place)
          JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = n.number ORDER BY n.place),
    ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS n(number, place)
          JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = n.number ORDER BY n.place)
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid
    WHERE k.conrelid = to_regclass($1) AND k.contype = 'f' ORDER BY k.conname"""
_SQLITE: Final = """SELECT id, "table", on_delete, "from", coalesce("to", (
        SELECT p.name FROM pragma_table_info(f."table") AS p WHERE p.pk = f.seq + 1))
    FROM pragma_foreign_key_list(?1) AS f ORDER BY id, seq"""


class Loss(Enum):
    """What happens to a row when the one that it refers to is deleted."""

    NOTHING = auto()
    """The other one cannot be deleted."""
    CHANGED = auto()
    """It refers to nothing any more, or to something else."""
    DELETED = auto()


_LOSSES: Final = {
    **{"c": Loss.DELETED, "n": Loss.CHANGED, "d": Loss.CHANGED},
    **{"CASCADE": Loss.DELETED, "SET NULL": Loss.CHANGED, "SET DEFAULT": Loss.CHANGED},
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key of one entity to another, or to itself."""

    child: Shape
    columns: tuple[str, ...]
    parent: Shape
    to: tuple[str, ...]
    loss: Loss


def find(link: Link, shapes: Sequence[Shape]) -> tuple[Reference, ...]:
    """All between some tables. One that refers to a column which does not travel is left to the database."""
    by_table = {shape.entity.table.lower(): shape for shape in shapes}
    found = []
    for child in shapes:
        for table, action, columns, to in _told(link, child):
            parent = by_table.get(table.lower())
            own = None if parent is None else (_named(child, columns), _named(parent, to))
            if parent is not None and own is not None and None not in (*own[0], *own[1]):
                names = [tuple(name for name in each if name is not None) for each in own]
                found.append(Reference(child, names[0], parent, names[1], _LOSSES.get(action, Loss.NOTHING)))
    return tuple(found)


def _told(link: Link, child: Shape) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Tables that are referred to, what a deletion there does, and the columns at both ends."""
    if child.dialect is Dialect.POSTGRES:
        yield from link.rows(_POSTGRES, (child.table,))
        return
    keys: dict[int, tuple[str, str, list[str], list[str]]] = {}
    for number, table, action, column, to in link.rows(_SQLITE, (child.entity.table,)):
        _, _, columns, others = keys.setdefault(number, (table, action, [], []))
        columns.append(column)
        others.append(to or "")
    yield from keys.values()


def _named(shape: Shape, names: Iterable[str]) -> list[str | None]:
    """The columns as the table has them; SQLite does not care for capitals."""
    if shape.dialect is Dialect.POSTGRES:
        return [name if name in shape.column_names else None for name in names]
    known = {name.lower(): name for name in shape.column_names}
    return [known.get(name.lower()) for name in names]
