"""Rows as a stream of `COPY … (FORMAT binary)`, put together from encoded columns without looking at single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tailrace.adaptor.postgres.encoding import Encoded

HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TAIL: Final = b"\xff\xff"
_COUNT_BYTES: Final = 2
_LENGTH_BYTES: Final = 4


def rows(columns: Sequence[Encoded]) -> memoryview:
    """The rows alone, without what comes before the first and after the last."""
    sizes = [np.maximum(column.lengths, 0).astype(np.int64) for column in columns]
    widths = _COUNT_BYTES + _LENGTH_BYTES * len(columns) + np.sum(sizes, axis=0)
    ends = np.cumsum(widths)
    out = np.empty(int(ends[-1]), np.uint8)
    at = ends - widths
    _windows(out, ">i2")[at] = len(columns)
    at = at + _COUNT_BYTES
    lengths = _windows(out, ">i4")
    for column, size in zip(columns, sizes, strict=True):
        lengths[at] = column.lengths
        at = at + _LENGTH_BYTES
        _place(out, at, column, size)
        at = at + size
    return out.data


def _place(out: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], column: Encoded, size: npt.NDArray[np.int64]) -> None:
    if column.width is not None:
        if column.width:
            form = f"V{column.width}"
            is_there = column.lengths >= 0
            _windows(out, form)[at[is_there]] = column.content.view(form)[is_there]
        return
    source = np.cumsum(size) - size
    out[np.repeat(at - source, size) + np.arange(len(column.content))] = column.content


def _windows(out: npt.NDArray[np.uint8], form: str) -> npt.NDArray[np.generic]:
    """At every place the value that begins there."""
    return np.ndarray((len(out) - np.dtype(form).itemsize + 1,), form, out, strides=(1,))
