"""Dates and moments as text, also those for which Python and Arrow have none.

Python knows the years 1 to 9999, and Arrow writes wrong years beyond 32767, while a column of microseconds reaches to
the year 294246. The largest and the smallest number of a column stand for infinity, as PostgreSQL has it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

INFINITY: Final = "infinity"
MINUS_INFINITY: Final = "-infinity"
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_S: Final = 86_400
_FIRST_DAY: Final = -719_162
"""The first of January of the year 1."""
_END_DAY: Final = 2_932_897
"""The first of January of the year 10000."""


def texts(column: pa.Array[Any]) -> pa.Array[Any]:
    """ISO 8601: `2024-02-29`, `2024-02-29T12:30:00.000005`, in UTC with a Z where the column has a zone; with as many
    digits as the type has, so that texts sort as moments do. Years before 1 are 0000, -0001 and so on."""
    if pa.types.is_date64(column.type):
        column = column.cast(pa.date32())
    is_date = pa.types.is_date(column.type)
    counts: Any = column.view(pa.int32() if is_date else pa.int64())
    per_day = 1 if is_date else _DAY_S * _PER_SECOND[_unit(column)]
    zone = "" if is_date or _zone(column) is None else "Z"
    limits = np.iinfo(np.int32 if is_date else np.int64)
    low, end = max(_FIRST_DAY * per_day, int(limits.min) + 1), min(_END_DAY * per_day, int(limits.max))
    wide: Any = counts.cast(pa.int64())
    is_far: Any = pc.or_(pc.less(wide, pa.scalar(low, pa.int64())), pc.greater_equal(wide, pa.scalar(end, pa.int64())))
    near: Any = pc.if_else(is_far, pa.scalar(0, counts.type), counts)
    form = "%Y-%m-%d" if is_date else "%Y-%m-%dT%H:%M:%S"
    unzoned: Any = pa.timestamp
    plain: Any = near.view(pa.date32() if is_date else unzoned(_unit(column)))
    written: Any = pc.strftime(plain, form + zone)
    units = None if is_date else _PER_SECOND[_unit(column)]
    far = [_far(count, limits, units, zone) for count in wide.filter(is_far).to_pylist()]
    mended: pa.Array[Any] = pc.replace_with_mask(written, pc.fill_null(is_far, False), pa.array(far, pa.string()))
    return mended


def time_texts(column: pa.Array[Any]) -> pa.Array[Any]:
    """Times of the day; 24:00:00, which PostgreSQL has, is the end of the last second."""
    is_end = _is_end_of_day(column)
    if not pc.any(is_end).as_py():
        return column.cast(pa.string())
    kind: Any = column.type
    counts: Any = column.view(pa.int64() if pa.types.is_time64(kind) else pa.int32())
    within: Any = pc.if_else(is_end, pa.scalar(0, counts.type), counts)
    written: Any = within.view(kind).cast(pa.string())
    late: pa.Array[Any] = pc.if_else(is_end, pc.replace_substring(written, "00", "24", max_replacements=1), written)
    return late


def values(column: pa.Array[Any], **how: Any) -> list[Any]:
    """The values as Python has them; all dates, times and moments, also those in lists and structs, as text when Python
    does not have one of them."""
    if not has_end_of_day(column):
        with suppress(OverflowError, ValueError):
            found: list[Any] = column.to_pylist(**how)
            return found
    return _with_texts(column).to_pylist(**how)


def has_end_of_day(column: Any) -> bool:
    """Whether there is a time 24:00:00 in a column, or in its lists and structs, which Python takes for 00:00:00."""
    kind = column.type
    if pa.types.is_time(kind):
        return bool(pc.any(_is_end_of_day(column)).as_py())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return has_end_of_day(column.flatten())
    return pa.types.is_struct(kind) and any(map(has_end_of_day, column.flatten()))


def _is_end_of_day(column: pa.Array[Any]) -> pa.Array[Any]:
    kind: Any = column.type
    counts: Any = column.view(pa.int64() if pa.types.is_time64(kind) else pa.int32())
    found: pa.Array[Any] = pc.equal(counts, pa.scalar(_DAY_S * _PER_SECOND[kind.unit], counts.type))
    return found


def _with_texts(column: Any) -> pa.Array[Any]:
    """A column with text in place of dates and moments."""
    kind = column.type
    if is_moment(kind):
        return texts(column)
    if pa.types.is_time(kind):
        return time_texts(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        form = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        begins = column.offsets
        inner = column.values.slice(begins[0].as_py(), begins[-1].as_py() - begins[0].as_py())
        return form.from_arrays(pc.subtract(begins, begins[0]), _with_texts(inner), mask=column.is_null())
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(list(map(_with_texts, column.flatten())), names, mask=column.is_null())
    plain: pa.Array[Any] = column
    return plain


def is_moment(kind: pa.DataType) -> bool:
    """Whether a type is one of dates or moments."""
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _far(count: int, limits: Any, per_second: int | None, zone: str) -> str:
    if count == limits.max:
        return INFINITY
    if count == limits.min:
        return MINUS_INFINITY
    if per_second is None:
        return _day(count)
    seconds, part = divmod(count, per_second)
    days, second = divmod(seconds, _DAY_S)
    digits = len(str(per_second)) - 1
    fraction = f".{part:0{digits}d}" if digits else ""
    return f"{_day(days)}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}{fraction}{zone}"


def _day(days: int) -> str:
    """A day since 1970 in the Gregorian calendar, carried on into past and future."""
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = era * 400 + year_of_era + (month <= 2)
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{of_year - (153 * shifted + 2) // 5 + 1:02d}"


def _unit(column: pa.Array[Any]) -> str:
    kind: Any = column.type
    return str(kind.unit)


def _zone(column: pa.Array[Any]) -> str | None:
    kind: Any = column.type
    zone: str | None = kind.tz
    return zone
