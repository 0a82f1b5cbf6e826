"""How much room the rows of a body take once they are unpacked, found out without unpacking them.

Arrow writes before each compressed buffer how long it is really, and a few bytes can claim anything. The lengths are
read from the messages' own tables.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa
from pyarrow import ipc

from tailrace.log.flatbuffer import Table

_BATCHES: Final = {2: 1, 3: None}
"""Kinds of messages that carry rows: a dictionary, whose rows are a part of it, and rows themselves."""
_HEADER_TYPE, _HEADER = 1, 2
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3
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
    root = Table.root(metadata)
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
    lengths = [length for length, _ in batch.pairs(_NODES)]
    if min(lengths, default=0) < 0:
        raise ValueError(f"a column claims {min(lengths)} rows")
    return max([sizes, *lengths])


def _real_length(content: memoryview, offset: int, length: int, *, is_packed: bool) -> int:
    if offset < 0 or length < 0:
        raise ValueError(f"a buffer claims to begin at {offset}, and {length} bytes")
    if not is_packed or length == 0:
        return length
    (claimed,) = struct.unpack_from("<q", content, offset)
    if claimed < _AS_IT_IS:
        raise ValueError(f"a buffer claims {claimed} bytes")
    return length if claimed == _AS_IT_IS else int(claimed)
