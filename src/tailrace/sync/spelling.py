"""Spelling: keys that are one to this database and several to others, such as a UUID in capitals.

Where a key is a text, each spelling is a row of its own. A database that reads it as a UUID, a time or a number writes
all of them in one way, so a row would come back as another one, and its deletion would meet neither. So a key is taken
only as this database writes it, or has written it for the row that is here. SQLite writes what it was given.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from tailrace.sync.columns import Columns
from tailrace.sync.database import Link
from tailrace.sync.exchange import Key
from tailrace.sync.names import Dialect, equal
from tailrace.sync.shape import Column, Kind, Shape
from tailrace.sync.values import from_wire, recordset, to_wire

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BYTES: Final = re.compile(r"\\x([0-9a-f]{2})*")
_VARCHAR: Final = re.compile(r"character varying(\((?P<length>\d+)\))?")
_WHOLE: Final = ("smallint", "integer", "bigint")
_SHOWN_MAX: Final = 60


def misspelt(link: Link, shape: Shape, keys: Columns) -> dict[Key, str]:
    """Of keys that this database can read those that it writes otherwise, and why they are not taken. Of several that
    are one to it, and of which no row is here, the first counts."""
    if not keys or shape.dialect is Dialect.SQLITE:
        return {}
    if all(_is_exact(shape.column(name), keys, place) for place, name in enumerate(shape.key)):
        return {}
    came = keys.rows()
    written = _written(link, shape, came)
    return {key: _why(key, own) for key, own in zip(came, written, strict=True) if not all(map(_is_same, key, own))}


def _is_exact(column: Column, columns: Columns, place: int) -> bool:
    """Whether values of a column are seen to be as PostgreSQL writes them, without asking it."""
    values, types = columns.values[place], columns.types(place)
    if column.declared in _WHOLE:
        return types == {int}
    if column.kind is Kind.BOOLEAN:
        return types == {bool}
    if types != {str}:
        return False
    if column.kind is Kind.PLAIN:
        limited = _VARCHAR.fullmatch(column.declared)
        length = None if limited is None else limited["length"]
        return length is None or max(map(len, values)) <= int(length)  # blanks behind it are cut off
    canonical = {"uuid": _UUID, "bytea": _BYTES}.get(column.declared)
    return canonical is not None and all(map(canonical.fullmatch, values))


def _written(link: Link, shape: Shape, keys: list[Key]) -> list[Key]:
    """The keys as they are written here."""
    count = len(shape.key)
    told = recordset([(*key, place) for place, key in enumerate(from_wire(shape, keys, shape.key))])
    read = [f"a.c{place}" for place in range(count)]
    typed = ", ".join(f"c{place} {kind}" for place, kind in enumerate(shape.key_types))
    here = [f"st.{name}" for name in shape.stamp_key]
    known = [f"coalesce({own}, first_value({came}) OVER alike)" for own, came in zip(here, read, strict=True)]
    wanted = ", ".join(shape.shown(name, each) for name, each in zip(shape.key, known, strict=True))
    found = link.rows(
        f"""SELECT {wanted} FROM jsonb_to_recordset($1::jsonb) AS a({typed}, c{count} integer)
            LEFT JOIN {shape.stamp} AS st ON {equal(here, read)}
            WINDOW alike AS (PARTITION BY {", ".join(read)} ORDER BY a.c{count}) ORDER BY a.c{count}""",
        (told,),
    )
    return to_wire(shape, found, shape.key)


def _is_same(came: Any, written: Any) -> bool:
    """Whether a value, when it comes back as it is written here, is the same where it came from."""
    if isinstance(came, str) == isinstance(written, str):
        return bool(came == written)
    if isinstance(came, str):  # a column for texts makes one of the number
        return came == (repr(written) if isinstance(written, float) else str(int(written)))
    try:
        return Decimal(written) == Decimal(repr(came) if isinstance(came, float) else came)
    except InvalidOperation:
        return False


def _why(came: Key, written: Key) -> str:
    return f"its key is {_shown(came)}, and this database writes {_shown(written)}; spell it so"


def _shown(key: Key) -> str:
    text = ", ".join(map(repr, key))
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
