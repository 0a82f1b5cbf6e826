"""How much room the rows of a body take once they are unpacked, found out without unpacking them.

Arrow writes before each compressed buffer how long it is really, and a few bytes can claim anything. The lengths are
read from the messages' own tables (flatbuffers), whose every place is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyarrow import ipc

_BATCHES: Final = {2: 1, 3: None}
"""Kinds of messages that carry rows: a dictionary, whose rows are a part of it, and rows themselves."""
_HEADER_TYPE, _HEADER = 1, 2
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3
_PAIR: Final = struct.Struct("<qq")
_AS_IT_IS: Final = -1


def unpacked_bytes(body: Any) -> int:
    """The bytes of all columns, or as many as a column has rows if these are more. Raises ValueError or Arrow's own
    error when the body is no Arrow stream."""
    stream = pa.BufferReader(pa.py_buffer(body))
    total = 0
    while True:
        try:
            message = ipc.read_message(stream)
        except EOFError:
            return total
        metadata = message.metadata.to_pybytes()
        try:
            total += _bytes_of(metadata, message.body)
        except struct.error as error:
            raise ValueError(f"a message of Arrow's points outside itself: {error}") from error


def _bytes_of(metadata: bytes, body: pa.Buffer | None) -> int:
    root = _Table(metadata, _at(metadata, 0))
    kind = root.number(_HEADER_TYPE, "<B")
    header = root.table(_HEADER)
    if kind not in _BATCHES or header is None:
        return 0
    inside = _BATCHES[kind]
    batch = header if inside is None else header.table(inside)
    if batch is None:
        return 0
    is_packed = batch.table(_COMPRESSION) is not None
    content = memoryview(body) if body is not None else memoryview(b"")
    sizes = sum(_real_length(content, *place, is_packed=is_packed) for place in batch.pairs(_BUFFERS))
    return max([sizes, *(length for length, _ in batch.pairs(_NODES))])


def _real_length(content: memoryview, offset: int, length: int, *, is_packed: bool) -> int:
    if not is_packed or length == 0:
        return max(0, length)
    if offset < 0:
        raise ValueError("a buffer begins before its message")
    (claimed,) = struct.unpack_from("<q", content, offset)
    if claimed < _AS_IT_IS:
        raise ValueError(f"a buffer claims {claimed} bytes")
    return length if claimed == _AS_IT_IS else int(claimed)


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, content: bytes, place: int) -> None:
        self._content = content
        self._place = place
        (back,) = struct.unpack_from("<i", content, place)
        self._fields = place - back
        (self._size,) = struct.unpack_from("<H", content, _inside(self._fields))

    def number(self, field: int, form: str) -> int:
        place = self._field(field)
        return int(struct.unpack_from(form, self._content, place)[0]) if place else 0

    def table(self, field: int) -> _Table | None:
        place = self._field(field)
        return _Table(self._content, _at(self._content, place)) if place else None

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structures, each of two long numbers."""
        place = self._field(field)
        if not place:
            return
        begin = _at(self._content, place)
        (count,) = struct.unpack_from("<I", self._content, begin)
        for number in range(count):
            yield _PAIR.unpack_from(self._content, begin + 4 + number * _PAIR.size)

    def _field(self, field: int) -> int:
        """Where a field is; 0 when there is none."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        (offset,) = struct.unpack_from("<H", self._content, _inside(self._fields + entry))
        return self._place + int(offset) if offset else 0


def _at(content: bytes, place: int) -> int:
    """Where an offset leads that is kept at a place."""
    (offset,) = struct.unpack_from("<I", content, place)
    return place + int(offset)


def _inside(place: int) -> int:
    if place < 0:
        raise ValueError("a message of Arrow's points before itself")
    return place
