"""Infinite dates and moments, and those that Arrow has no room for.

PostgreSQL counts from the year 2000 and has two infinities. In the log they are the largest and the smallest number
that the column's type holds; no other value of PostgreSQL is that large.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.moments import INFINITY, MINUS_INFINITY

_EPOCH_US: Final = 946_684_800_000_000
_EPOCH_DAYS: Final = 10_957
_FIRST_US: Final = -211_813_488_000_000_000
"""Before this moment (4714 BC) PostgreSQL has none, so what looks older has wrapped round."""
_FIRST_DAY: Final = -2_451_545


def unwrapped(column: pa.Array[Any]) -> pa.Array[Any]:
    """A column of dates or moments as the driver adds epochs, without caring for overflow: infinities put right.

    Raises `OverflowError` for a moment that does not fit.
    """
    is_date = pa.types.is_date32(column.type)
    counts: Any = column.view(pa.int32() if is_date else pa.int64())
    first, limits = (_FIRST_DAY, np.iinfo(np.int32)) if is_date else (_FIRST_US, np.iinfo(np.int64))
    least = pc.min(counts).as_py()
    if least is None or least >= first:
        return column
    epoch = _EPOCH_DAYS if is_date else _EPOCH_US
    plus, minus = _wrapped(limits.max + epoch, limits), limits.min + epoch
    strange: Any = pc.less(counts, pa.scalar(first, counts.type))
    for wrapped, meant in ((plus, limits.max), (minus, limits.min)):
        is_it: Any = pc.equal(counts, pa.scalar(int(wrapped), counts.type))
        counts = pc.if_else(is_it, pa.scalar(int(meant), counts.type), counts)
        strange = pc.and_not(strange, is_it)
    if pc.any(strange).as_py():
        raise OverflowError("a moment after the year 294246 has no room in 64 bits of microseconds since 1970")
    mended: pa.Array[Any] = counts.view(column.type)
    return mended


def extreme(text: str, kind: pa.DataType) -> int | None:
    """The number that stands for an infinity, None for any other text."""
    limits = np.iinfo(np.int32 if pa.types.is_date32(kind) else np.int64)
    return {INFINITY: int(limits.max), MINUS_INFINITY: int(limits.min)}.get(text)


def _wrapped(number: int, limits: Any) -> int:
    return int(number - (int(limits.max) - int(limits.min) + 1))
