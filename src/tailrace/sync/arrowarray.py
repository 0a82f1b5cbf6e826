"""Arrays of Arrow, made of the values of a column.

`pyarrow.array` does the same. But where pandas is installed, it imports it the first time, which takes longer than some
ten thousand rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

KINDS: Final[dict[type, pa.DataType]] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
_NUMBERS: Final = {int: np.int64, float: np.float64}


def array_of(values: Sequence[Any], kind: type, *, has_none: bool = False) -> pa.Array[Any]:
    """Values that are all of one of `KINDS`, or None."""
    validity = None
    if has_none:
        validity = _bits([value is not None for value in values])
        nothing = kind()
        values = [nothing if value is None else value for value in values]
    buffers = _text(values) if kind is str else [_bits(values) if kind is bool else _numbers(values, kind)]
    return pa.Array.from_buffers(KINDS[kind], len(values), [validity, *buffers])


def _numbers(values: Sequence[Any], kind: type) -> pa.Buffer:
    return pa.py_buffer(np.array(values, _NUMBERS[kind]).data)


def _bits(values: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(values, bool), bitorder="little").data)


def _text(values: Sequence[str]) -> list[pa.Buffer]:
    """Where each text ends, and all of them together."""
    joined = "".join(values)
    parts: Sequence[str | bytes] = values if joined.isascii() else [value.encode() for value in values]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, parts), np.int32, len(values)), out=ends[1:])
    return [pa.py_buffer(ends.data), pa.py_buffer(joined.encode())]
