"""Tuples as columns: those of a snapshot by the thousand, those of changes one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.adaptor.converting import converted
from tailrace.adaptor.tarantool import columns, frames
from tailrace.adaptor.tarantool.catalog import Space
from tailrace.adaptor.tarantool.columns import Field
from tailrace.adaptor.tarantool.iproto import unpacked
from tailrace.adaptor.tarantool.types import HINT, Kind, Numbers

Row = Sequence[Any]
_BEHIND: Final = bytes(9)
"""A number is read from up to nine bytes, also the last one."""
_FIELDS_MAX: Final = 1000
"""Tuples with more fields than this are decoded one by one."""


def of_frames(space: Space, numbers: Numbers, data: bytes) -> pa.StructArray:
    """The tuples of a run of a snapshot."""
    starts, ends = frames.tuples_of(data)
    octets = np.frombuffer(data + _BEHIND, np.uint8)
    fields = columns.fields_of(octets, starts, ends, _FIELDS_MAX)
    if fields is None:
        view = memoryview(data)
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return of_rows(space, numbers, [unpacked(view[start:end]) for start, end in pairs])
    named = space.widened(len(fields))
    made: list[pa.Array[Any]] = []
    for at, column in enumerate(named):
        kind = column.kind(numbers)
        if at >= len(fields):
            made.append(kind.gather([None] * len(starts)))
            continue
        made.append(converted(space.namespace, column.name, partial(_column, kind), fields[at], hint=HINT))
    return pa.StructArray.from_arrays(made, fields=[column.kind(numbers).field(column.name) for column in named])


def of_rows(space: Space, numbers: Numbers, rows: Sequence[Row | None], fields: int = 0) -> pa.StructArray:
    """Decoded tuples, of at least so many fields; None where there is no row."""
    widest = max(fields, max((len(row) for row in rows if row is not None), default=0))
    named = space.widened(widest)
    width = len(named)
    filled = [(None,) * width if row is None else (*row, *(None,) * (width - len(row))) for row in rows]
    by_column: Any = zip(*filled, strict=True) if filled else [()] * width
    made = [
        converted(space.namespace, column.name, column.kind(numbers).gather, values, hint=HINT)
        for column, values in zip(named, by_column, strict=True)
    ]
    mask: Any = pa.array([row is None for row in rows]) if any(row is None for row in rows) else None
    return pa.StructArray.from_arrays(
        made, fields=[column.kind(numbers).field(column.name) for column in named], mask=mask
    )


def _column(kind: Kind, field: Field) -> pa.Array[Any]:
    found = columns.gather(field, kind.arrow) if kind.declared is None else None
    return kind.gather(columns.values_of(field)) if found is None else found
