"""Values as PostgreSQL writes them, as Arrow columns. The session's settings are those of `server.SETTINGS`.

Whole columns are converted by Arrow. Only what Arrow cannot read (infinite dates, years before Christ or of more than
four digits, arrays) is looked at value by value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.converting import Convert
from tailrace.adaptor.postgres.extremes import extreme

_MOMENT: Final = re.compile(
    r"(?P<year>\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[ T](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?"
    r"(?:\+00(?::?00)?|Z)?(?P<bc> BC)?"
)
_TIME: Final = re.compile(r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?")
_DAY_US: Final = 86_400_000_000


def booleans(texts: pa.Array[Any]) -> pa.Array[Any]:
    return pc.equal(texts, pa.scalar("t"))


def binaries(texts: pa.Array[Any]) -> pa.Array[Any]:
    r"""Hexadecimal digits after `\x`."""
    digits: Any = pc.utf8_slice_codeunits(texts, 2)
    buffers = digits.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[digits.offset : digits.offset + len(digits) + 1]
    content = b"" if buffers[2] is None else bytes.fromhex(buffers[2].to_pybytes()[offsets[0] : offsets[-1]].decode())
    halves = pa.py_buffer(((offsets - offsets[0]) // 2).astype(np.int32))
    validity = None if digits.null_count == 0 else pa.py_buffer(_bits(digits.is_valid()))
    made: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), len(digits), [validity, halves, pa.py_buffer(content)])
    return made


def money(texts: pa.Array[Any]) -> pa.Array[Any]:
    """As the locale C writes it: `-$1,234.50`."""
    return pc.replace_substring_regex(texts, r"[$,]", "").cast(pa.decimal128(19, 2))


def days(texts: pa.Array[Any]) -> pa.Array[Any]:
    return _arrow_or_each(texts, pa.date32(), _day)


def moments(kind: pa.DataType) -> Convert:
    """`timestamp` and `timestamptz`; the session's zone is UTC, so both are written alike."""

    def convert(texts: pa.Array[Any]) -> pa.Array[Any]:
        return _arrow_or_each(texts, kind, _moment)

    return convert


def times(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Arrow reads them only as part of a moment; 24:00:00, which PostgreSQL has, it does not."""
    kind = pa.time64("us")
    try:
        parts: Any = (pa.scalar("1970-01-01"), texts, pa.scalar(" "))
        on_first_day: Any = pc.binary_join_element_wise(*parts)
        counts: Any = on_first_day.cast(pa.timestamp("us")).view(pa.int64())
    except pa.ArrowInvalid:
        return _each(texts, kind, _time)
    viewed: pa.Array[Any] = counts.view(kind)
    return viewed


def _arrow_or_each(texts: pa.Array[Any], kind: pa.DataType, read: Callable[[str, pa.DataType], int]) -> pa.Array[Any]:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return _each(texts, kind, read)


def _each(texts: pa.Array[Any], kind: pa.DataType, read: Callable[[str, pa.DataType], int]) -> pa.Array[Any]:
    counts = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    numbers = [None if text is None else read(text, kind) for text in texts.to_pylist()]
    made: Any = pa.array(numbers, counts)
    viewed: pa.Array[Any] = made.view(kind)
    return viewed


def _day(text: str, kind: pa.DataType) -> int:
    infinite = extreme(text, kind)
    return _days(_parsed(text)) if infinite is None else infinite


def _moment(text: str, kind: pa.DataType) -> int:
    infinite = extreme(text, kind)
    if infinite is not None:
        return infinite
    found = _parsed(text)
    count = _days(found) * _DAY_US + _of_day(found)
    if count > np.iinfo(np.int64).max:
        raise ValueError(f"{text} has no room in 64 bits of microseconds since 1970")
    return count


def _parsed(text: str) -> re.Match[str]:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no date")
    return found


def _time(text: str, _kind: pa.DataType) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time of day")
    return _of_day(found)


def _of_day(found: re.Match[str]) -> int:
    if found["hour"] is None:
        return 0
    seconds = int(found["hour"]) * 3600 + int(found["minute"]) * 60 + int(found["second"])
    return seconds * 1_000_000 + int((found["fraction"] or "").ljust(6, "0"))


def _days(found: re.Match[str]) -> int:
    """Days since 1970, in the Gregorian calendar, carried on into the past and future as PostgreSQL does."""
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    if found["bc"]:
        year = 1 - year
    shifted = year - 1 if month <= 2 else year
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _bits(flags: pa.Array[Any]) -> Any:
    return np.packbits(flags.to_numpy(zero_copy_only=False), bitorder="little")
