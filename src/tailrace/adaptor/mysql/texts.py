"""Values as MySQL writes them, as Arrow columns. Whole columns are converted by Arrow where it can."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.converting import Convert

_TIME: Final = re.compile(r"(?P<minus>-?)(?P<hour>\d+):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?")
_YEAR_ZERO: Final = "0000-"


def moments(kind: pa.DataType, *, nulls: bool) -> Convert:
    """Dates and moments; those that no calendar has become null, or are errors."""

    def convert(texts: pa.Array[Any]) -> pa.Array[Any]:
        try:
            if not pc.any(pc.starts_with(texts, _YEAR_ZERO)).as_py():
                return _cast(texts, kind)
        except pa.ArrowInvalid:
            pass
        values: list[Any] = texts.to_pylist()
        bad = next((value for value in values if value is not None and not _is_real(value)), None)
        if bad is not None and not nulls:
            raise ValueError(f"{bad} is no date of the calendar")
        real = [value if value is not None and _is_real(value) else None for value in values]
        return _cast(pa.array(real, pa.string()), kind)

    return convert


def durations(texts: pa.Array[Any]) -> pa.Array[Any]:
    """`TIME`, which goes from -838:59:59 to 838:59:59."""
    micros = [None if text is None else _micros(text) for text in texts.to_pylist()]
    return pa.array(micros, pa.duration("us"))


def singles(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Floats of single precision, written with the digits of double."""
    return texts.cast(pa.float64()).cast(pa.float32(), safe=False)


def time_text(micros: int, digits: int = 6) -> str:
    """A duration as MySQL writes a `TIME`."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if micros < 0 else ""
    part = f".{fraction:06d}"[: digits + 1] if digits else ""
    return f"{sign}{hour:02d}:{minute:02d}:{second:02d}{part}"


def _cast(texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """The session's zone is UTC, so moments are written in it."""
    if not pa.types.is_timestamp(kind):
        return texts.cast(kind)
    return texts.cast(pa.timestamp("us")).cast(kind)


def _is_real(text: str) -> bool:
    try:
        datetime.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


def _micros(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    seconds = int(found["hour"]) * 3600 + int(found["minute"]) * 60 + int(found["second"])
    micros = seconds * 1_000_000 + int((found["fraction"] or "").ljust(6, "0"))
    return -micros if found["minus"] else micros
