"""Comparing a column with a value, exactly: nothing is rounded on the way, whatever the two types are."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.message import micros

Match = bool | int | float | Decimal | str | datetime | date
"""What a field can be compared with."""

_ON_COLUMNS: Final[dict[str, Callable[..., Any]]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
}
_ON_VALUES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_SECONDS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_US: Final = 86_400_000_000


class Incomparable(ValueError):
    """A column and a value of kinds that have nothing in common."""


def compare(column: pa.Array[Any], how: str, match: Match) -> pa.Array[Any]:
    """For every row whether the comparison (one of `== != > >= < <= =~`) holds; of no meaning where it is null."""
    kind: Any = column.type
    if pa.types.is_dictionary(kind):
        return compare(pc.cast(column, kind.value_type), how, match)
    if pa.types.is_null(kind):
        return _always(column, False)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _compare_texts(column, how, match)
    if how == "=~":
        raise Incomparable("only text is matched with =~")
    if pa.types.is_boolean(kind):
        if not isinstance(match, bool) or how not in ("==", "!="):
            raise Incomparable("true and false are compared with == and !=")
        same: pa.Array[Any] = _ON_COLUMNS[how](column, match)
        return same
    numbers, number = _as_numbers(column, match)
    return _compare_numbers(numbers, how, number)


def compare_json(column: pa.Array[Any], within: str, how: str, match: Match) -> pa.Array[Any]:
    """The same for the values at a path in a column of JSON text; null where there is none."""
    values = [None if text is None else value_at(json.loads(text), within) for text in column.to_pylist()]
    return pa.array([None if value is None else _holds(value, how, match) for value in values], pa.bool_())


def value_at(document: Any, path: str) -> Any:
    """The value at a path in a document, None when there is none."""
    if not path:
        return document
    if not isinstance(document, dict):
        return None
    for name, value in document.items():
        if name == path:
            return value
        found = value_at(value, path[len(name) + 1 :]) if path.startswith(name + ".") else None
        if found is not None:
            return found
    return None


def moment_us(match: Match) -> int:
    """A moment, or ISO text for one, in microseconds; one without a zone is taken as UTC."""
    if isinstance(match, str):
        if re.search(r"[.,]\d{7}", match):
            raise Incomparable("moments are given to the microsecond")
        try:
            match = datetime.fromisoformat(match)
        except ValueError:
            raise Incomparable("moments are given as ISO text, such as 2026-01-31T12:00:00Z") from None
    if isinstance(match, datetime):
        return micros(match)
    if isinstance(match, date):
        return micros(datetime.combine(match, time()))
    raise Incomparable("moments are given as ISO text, such as 2026-01-31T12:00:00Z")


def _compare_texts(column: pa.Array[Any], how: str, match: Match) -> pa.Array[Any]:
    if not isinstance(match, str):
        raise Incomparable("text is compared with text; put the match in quotes")
    if how == "=~":
        return pc.match_substring_regex(column, match)
    found: pa.Array[Any] = _ON_COLUMNS[how](column, pa.scalar(match, column.type))
    return found


def _as_numbers(column: pa.Array[Any], match: Match) -> tuple[pa.Array[Any], int | float | Decimal | Fraction]:
    """A column as plain numbers, and the match counted in the same unit."""
    kind: Any = column.type
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64()), Fraction(moment_us(match) * _SECONDS[kind.unit], _SECONDS["us"])
    if pa.types.is_date32(kind):
        return column.view(pa.int32()), Fraction(moment_us(match), _DAY_US)
    if pa.types.is_date64(kind):
        return column.view(pa.int64()), Fraction(moment_us(match), 1000)
    if isinstance(match, bool | str | date) or not isinstance(match, int | float | Decimal):
        raise Incomparable("it is compared with a number" if _is_number(kind) else "there is no order on this type")
    if pa.types.is_floating(kind):
        return column.cast(pa.float64()), match
    if not _is_number(kind):
        raise Incomparable("there is no order on this type")
    # A float that a user wrote as 10.1 is meant as 10.1, and not as the binary number next to it.
    return column, Fraction(Decimal(str(match)) if isinstance(match, float) else match)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _compare_numbers(column: pa.Array[Any], how: str, number: Any) -> pa.Array[Any]:
    """A number that the column's type does not have lies between two that it has: compare with those."""
    below, above = _neighbours(column.type, number)
    if below is not None and below == above:
        return _against(column, how, below)
    if how in ("==", "!="):
        return _always(column, how == "!=")
    if how in (">", ">="):
        return _always(column, False) if above is None else _against(column, ">=", above)
    return _always(column, False) if below is None else _against(column, "<=", below)


def _against(column: pa.Array[Any], how: str, value: Any) -> pa.Array[Any]:
    found: pa.Array[Any] = _ON_COLUMNS[how](column, pa.scalar(value, column.type))
    return found


def _neighbours(kind: Any, number: Any) -> tuple[Any, Any]:
    """The highest value of a type that is not above a number and the lowest not below it; None beyond its range."""
    if pa.types.is_floating(kind):
        return _float_neighbours(number)
    floor, ceiling = math.floor(number), math.ceil(number)
    if pa.types.is_decimal(kind):
        unit = Fraction(10) ** kind.scale
        highest = 10**kind.precision - 1
        within = _clipped(math.floor(number * unit), math.ceil(number * unit), -highest, highest)
        below, above = (None if value is None else Decimal(f"{value}E{-kind.scale}") for value in within)
        return below, above
    signed = pa.types.is_signed_integer(kind)
    lowest = -(1 << (kind.bit_width - 1)) if signed else 0
    return _clipped(floor, ceiling, lowest, (1 << (kind.bit_width - signed)) - 1)


def _clipped(floor: int, ceiling: int, lowest: int, highest: int) -> tuple[int | None, int | None]:
    below = None if floor < lowest else min(floor, highest)
    above = None if ceiling > highest else max(ceiling, lowest)
    return below, above


def _float_neighbours(number: Any) -> tuple[float, float]:
    try:
        near = float(number)
    except OverflowError:
        near = math.inf if number > 0 else -math.inf
    if near == number:
        return near, near
    return (near, math.nextafter(near, math.inf)) if near < number else (math.nextafter(near, -math.inf), near)


def _always(column: pa.Array[Any], holds: bool) -> pa.Array[Any]:
    return pa.repeat(pa.scalar(holds), len(column))


def _holds(value: Any, how: str, match: Match) -> bool:
    """The comparison on one value out of JSON."""
    if how == "=~":
        if isinstance(value, str):
            return bool(compare(pa.array([value], pa.string()), how, match)[0].as_py())
        raise Incomparable("only text is matched with =~")
    is_number = [isinstance(each, int | float | Decimal) and not isinstance(each, bool) for each in (value, match)]
    alike = all(is_number) or (isinstance(value, str | bool) and type(value) is type(match))
    if not alike or (isinstance(value, bool) and how not in ("==", "!=")):
        raise Incomparable(f"there is a value of type {type(value).__name__}")
    return bool(_ON_VALUES[how](value, match))
