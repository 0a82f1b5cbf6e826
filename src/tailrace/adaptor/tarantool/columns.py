"""Columns out of msgpack: many tuples at once, field by field, without a Python value for each.

A cursor stands in every tuple; each field moves all of them on. Fields that hold arrays or maps are not read here:
`fields_of` then gives nothing, and the caller decodes the tuples one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.adaptor.tarantool.frames import Ints, Octets

_NIL: Final = 0xC0
_BYTES: Final = np.full(256, -1, np.int64)
"""How many bytes follow a mark, -1 where the next bytes say it or this is not read here."""
_BYTES[:0x80] = 0
_BYTES[0xE0:] = 0
_BYTES[[0xC0, 0xC2, 0xC3]] = 0
_BYTES[[0xCC, 0xD0]] = 1
_BYTES[[0xCD, 0xD1]] = 2
_BYTES[[0xCA, 0xCE, 0xD2]] = 4
_BYTES[[0xCB, 0xCF, 0xD3]] = 8
_BYTES[0xA0:0xC0] = np.arange(32)
_BYTES[0xD4:0xD9] = (2, 3, 5, 9, 17)
_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Marks behind which a length of so many bytes stands."""
_EXTENSIONS: Final = (0xC7, 0xC8, 0xC9)
"""Those whose length does not count the byte that says what they are."""
_UNSIGNED: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED: Final = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_TEXTS: Final = np.zeros(256, np.bool_)
_TEXTS[0xA0:0xC0] = True
_TEXTS[[0xD9, 0xDA, 0xDB]] = True
_BINARIES: Final = np.zeros(256, np.bool_)
_BINARIES[[0xC4, 0xC5, 0xC6]] = True
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of many tuples: its marks, and where they stand, and where its value begins and ends."""

    octets: Octets
    marks: Octets
    """Nil where a tuple does not have the field."""
    at: Ints
    start: Ints
    end: Ints

    def is_null(self) -> Flags:
        found: Flags = self.marks == _NIL
        return found


def fields_of(octets: Octets, starts: Ints, ends: Ints, most: int) -> list[Field] | None:
    """The fields of tuples; None when one holds something that is not read here. The bytes must be followed by nine
    that belong to nothing."""
    at = starts.copy()
    counts = _counts(octets, at)
    if counts is None:
        return None
    widest = int(counts.max(initial=0))
    if widest > most:
        return None
    fields = []
    for number in range(widest):
        is_there = counts > number
        marks = octets[at]
        marks[~is_there] = _NIL
        sizes = _BYTES[marks]
        begin = at + 1
        for mark in set(np.unique(marks[sizes < 0]).tolist()):
            if mark not in _LENGTHS:
                return None
            here: Ints = np.flatnonzero(marks == mark)
            count = _LENGTHS[mark]
            sizes[here] = _number(octets, begin[here], count).astype(np.int64) + (mark in _EXTENSIONS)
            begin[here] += count
        after = begin + sizes
        if bool((after > ends)[is_there].any()):
            return None
        fields.append(Field(octets, marks, at, begin, after))
        at = np.where(is_there, after, at)
    return fields if bool((at == ends).all()) else None


def gather(field: Field, arrow: pa.DataType) -> pa.Array[Any] | None:
    """A field as a column of this type; None when it has values of other kinds, or ones that have no room in it."""
    if arrow == pa.uint64():
        return _whole(field, np.uint64)
    if arrow == pa.int64():
        return _whole(field, np.int64)
    if arrow == pa.float64():
        return _floats(field)
    if arrow == pa.bool_():
        return _booleans(field)
    if arrow in (pa.string(), pa.binary()):
        return _strings(field, arrow)
    return None


def _counts(octets: Octets, at: Ints) -> Ints | None:
    """How many fields each tuple has; the cursors move behind that."""
    marks = octets[at]
    counts = (marks & 0x0F).astype(np.int64)
    is_long = marks == 0xDC
    if not bool(((marks & 0xF0 == 0x90) | is_long).all()):
        return None
    if bool(is_long.any()):
        counts[is_long] = _number(octets, at[is_long] + 1, 2).astype(np.int64)
    at += np.where(is_long, 3, 1)
    return counts


def _number(octets: Octets, at: Ints, count: int) -> npt.NDArray[np.uint64]:
    found = np.zeros(len(at), np.uint64)
    for number in range(count):
        found = found << np.uint64(8) | octets[at + number]
    return found


def _whole(field: Field, kind: type[np.uint64] | type[np.int64]) -> pa.Array[Any] | None:
    values = _whole_numbers(field, may_be_negative=kind is np.int64)
    return None if values is None else _made(values, pa.int64() if kind is np.int64 else pa.uint64(), field.is_null())


def _whole_numbers(field: Field, *, may_be_negative: bool) -> npt.NDArray[np.int64] | None:
    """The bits of whole numbers, zeros for nulls; None when one is of another kind, or out of range."""
    marks = field.marks
    values = np.zeros(len(marks), np.int64)
    known = field.is_null()
    _take(known, marks < 0x80, values, lambda here: marks[here].astype(np.int64))
    if may_be_negative:
        _take(known, marks >= 0xE0, values, lambda here: marks[here].view(np.int8).astype(np.int64))
    for mark, count in ({**_UNSIGNED, **_SIGNED} if may_be_negative else _UNSIGNED).items():
        here: Ints = np.flatnonzero(marks == mark)
        if not len(here):
            continue
        raw = _number(field.octets, field.start[here], count)
        known[here] = True
        if mark in _SIGNED:
            shift = np.int64(64 - 8 * count)
            values[here] = raw.view(np.int64) << shift >> shift
            continue
        if may_be_negative and bool((raw >> np.uint64(63)).any()):
            return None
        values[here] = raw.view(np.int64)
    return values if bool(known.all()) else None


def _take(known: Flags, those: Flags, values: npt.NDArray[Any], read: Any) -> None:
    if bool(those.any()):
        values[those] = read(those)
        known |= those


def _floats(field: Field) -> pa.Array[Any] | None:
    marks = field.marks
    nulls = field.is_null()
    values = np.zeros(len(marks), np.float64)
    is_float, is_double = marks == 0xCA, marks == 0xCB
    if is_double.any():
        values[is_double] = _number(field.octets, field.start[is_double], 8).view(np.float64)
    if is_float.any():
        values[is_float] = _number(field.octets, field.start[is_float], 4).astype(np.uint32).view(np.float32)
    others: Ints = np.flatnonzero(~(is_float | is_double | nulls))
    if len(others):
        part = Field(field.octets, marks[others], field.at[others], field.start[others], field.end[others])
        numbers = _whole_numbers(part, may_be_negative=True)
        if numbers is None or bool((np.abs(numbers) > 1 << 53).any()):
            return None
        values[others] = numbers
    return _made(values, pa.float64(), nulls)


def _booleans(field: Field) -> pa.Array[Any] | None:
    nulls = field.is_null()
    if not bool((nulls | (field.marks == 0xC2) | (field.marks == 0xC3)).all()):
        return None
    return _made(np.packbits(field.marks == 0xC3, bitorder="little"), pa.bool_(), nulls)


def _strings(field: Field, arrow: pa.DataType) -> pa.Array[Any] | None:
    """The bytes between two values count as values of no interest: Arrow then leaves them out when it copies."""
    nulls = field.is_null()
    wanted = _TEXTS if arrow == pa.string() else _BINARIES
    if not bool((nulls | wanted[field.marks]).all()):
        return None
    found: pa.Array[Any] = _between(field.octets, field.start, field.end, nulls)
    return found if arrow == pa.binary() else found.cast(pa.string())


def values_of(field: Field) -> list[Any]:
    """A field as Python values."""
    nulls = field.is_null()
    present = ~nulls
    encoded = _between(field.octets, field.at[present], field.end[present], nulls[present])
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogateescape", max_buffer_size=0)
    unpacker.feed(memoryview(encoded.buffers()[2]))
    values = np.full(len(nulls), None, object)
    for at, value in zip(np.flatnonzero(present).tolist(), unpacker, strict=True):
        values[at] = value
    return list(values)


def _between(octets: Octets, start: Ints, end: Ints, nulls: Flags) -> Any:
    """Stretches of bytes as an array. What lies between two of them counts as an element, too: Arrow leaves that out
    when it copies the others."""
    count = len(start)
    offsets = np.zeros(2 * count + 1, np.int32)
    offsets[0:-1:2] = start
    offsets[1::2] = end
    offsets[-1] = offsets[-2] if count else 0
    parts: tuple[Any, Any] = (offsets, octets)
    mixed = pa.Array.from_buffers(pa.binary(), 2 * count, [None, *map(pa.py_buffer, parts)])
    return mixed.take(_made(np.arange(0, 2 * count, 2, dtype=np.int64), pa.int64(), nulls))


def _made(values: npt.NDArray[Any], arrow: pa.DataType, nulls: Flags) -> pa.Array[Any]:
    """A column of these bytes. `pa.array` would do, but for its looking into pandas, which takes a second at first."""
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None
    whole: Any = np.ascontiguousarray(values)
    return pa.Array.from_buffers(arrow, len(nulls), [validity, pa.py_buffer(whole)])
