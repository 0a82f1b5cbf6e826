"""Values on their way: what a database's driver gives, as JSON and Arrow can carry it, and back.

Whole numbers, text, true and false travel as they are. Bytes are `\\x` and hexadecimal digits, as PostgreSQL writes
them, and what PostgreSQL has beyond that is the text that it writes. A value that a column of SQLite holds against its
declared type says what it is: `{"$bytes": "0aff"}`, `{"$real": "inf"}`. So does a text of SQLite that is no UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import isfinite
from typing import Any, Final

import orjson

from tailrace.errors import TailraceError
from tailrace.sync.affinity import fitting
from tailrace.sync.columns import Columns, Row, Types
from tailrace.sync.database import Unfit
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Column, Kind, Shape

_TRUTH: Final = {0: False, 1: True}
_BYTES_MARK: Final = "\\x"


def to_wire(shape: Shape, rows: list[Row], columns: Sequence[str]) -> list[Row]:
    """Rows whose first values are those of the named columns."""
    if not rows:
        return rows
    found = Columns.of_rows(rows)
    columns_to_wire(shape, found, columns)
    return found.rows()


def columns_to_wire(shape: Shape, columns: Columns, names: Sequence[str]) -> None:
    """The same for columns; those that travel otherwise than the driver gives them are changed where they are."""
    for place, name in enumerate(names):
        values, types = columns.values[place], columns.types(place)
        if (make := _maker(shape.dialect, shape.column(name).kind, values, types)) is not None:
            columns.put(place, map(make, values))


def _maker(dialect: Dialect, kind: Kind, column: Sequence[Any], types: Types) -> Callable[[Any], Any] | None:
    """What has to be done with each value of a column; mostly nothing."""
    if dialect is Dialect.SQLITE and kind is Kind.BYTES:
        return _bytes if types & {bytes, str, float} else None
    if dialect is Dialect.SQLITE and kind is Kind.BOOLEAN and int in types:
        return _TRUTH.__getitem__ if types == {int} and set(column) <= _TRUTH.keys() else _boolean
    if bytes in types:
        return _plain
    if float not in types:
        return None
    reals = column if types == {float} else [value for value in column if type(value) is float]
    return None if all(map(isfinite, reals)) else _real


def from_wire(shape: Shape, rows: list[Row], columns: Sequence[str]) -> list[Row]:
    """The inverse: what the driver binds, or for PostgreSQL what its JSON functions read. Raises `Unfit`."""
    if not rows:
        return rows
    found = Columns.of_rows(rows)
    columns_from_wire(shape, found, columns)
    return found.rows()


def columns_from_wire(shape: Shape, columns: Columns, names: Sequence[str]) -> None:
    """The same for columns, which are changed where they are."""
    for place, name in enumerate(names):
        column, types = shape.column(name), columns.types(place)
        is_odd = dict in types or list in types
        make: Callable[[Any], Any] | None = None
        if shape.dialect is Dialect.POSTGRES:
            make = partial(_read_postgres, column) if is_odd else None
        elif column.kind is Kind.BYTES:
            make = _read_bytes if is_odd or str in types else None
        elif is_odd:
            make = _read_marked
        if make is not None:
            columns.put(place, map(make, columns.values[place]))
        if shape.dialect is Dialect.SQLITE and column.kind is not Kind.BYTES:
            fit = fitting(column.declared, columns.types(place), columns.values[place])
            if fit is not None:
                columns.put(place, map(fit, columns.values[place]))


def recordset(rows: Iterable[Row]) -> str:
    """Rows as PostgreSQL's `jsonb_to_recordset` reads them, with the columns c0, c1 …"""
    return orjson.dumps([{f"c{place}": value for place, value in enumerate(row)} for row in rows]).decode()


def _plain(value: Any) -> Any:
    if type(value) is bytes:
        return {"$bytes": value.hex()}
    return _real(value)


def _real(value: Any) -> Any:
    return {"$real": str(value)} if type(value) is float and not isfinite(value) else value


def _bytes(value: Any) -> Any:
    if type(value) is bytes:
        return _BYTES_MARK + value.hex()
    return {"$text": value} if type(value) is str and value.startswith(_BYTES_MARK) else _real(value)


def _boolean(value: Any) -> Any:
    return _TRUTH.get(value, value) if type(value) is int else _plain(value)


def _read_marked(value: Any) -> Any:
    if type(value) is dict:
        return _marked(value)
    if type(value) is list:
        raise _malformed("a list")
    return value


def _read_bytes(value: Any) -> Any:
    is_hex = type(value) is str and value.startswith(_BYTES_MARK)
    return _unhexed(value[2:]) if is_hex else _read_marked(value)


def _read_postgres(column: Column, value: Any) -> Any:
    found = _read_marked(value)
    if type(value) is not dict:
        return found
    if type(found) is not bytes:
        return str(found)
    if column.kind is not Kind.BYTES:  # its text would be their digits, and come back as that
        raise Unfit(f"column {column.name}, which is {column.declared}, cannot keep bytes that are no text")
    return _BYTES_MARK + found.hex()


def _marked(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        (mark, inner), *_ = value.items()
        if mark == "$bytes" and type(inner) is str:
            return _unhexed(inner)
        if mark == "$text" and type(inner) is str:
            return inner
        if mark == "$real" and inner in ("inf", "-inf", "nan"):
            return float(inner)
    raise _malformed("an object")


def _unhexed(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise _malformed("hexadecimal digits that are none") from None


def _malformed(what: str) -> TailraceError:
    return TailraceError("sync.malformed", f"a row has {what} where a value belongs", hint="send it as documented")
