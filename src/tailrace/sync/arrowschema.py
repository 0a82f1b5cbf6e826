"""The schema of an Arrow stream, looked at before Arrow makes objects of it: in a few bytes many columns can stand that
share their parts, or have others inside, and each of them takes room of its own."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_COLUMNS_MAX, SYNC_SCHEMA_BYTES_MAX
from tailrace.log.flatbuffer import Table
from tailrace.sync.wire import malformed

_SCHEMA: Final = 1
_HEADER_TYPE, _HEADER = 1, 2
_FIELDS, _NOTES = 1, 2
_NAME, _DICTIONARY, _CHILDREN, _FIELD_NOTES = 0, 4, 5, 6
_GOES_ON: Final = b"\xff\xff\xff\xff"
_NOTE_BYTES: Final = 64
"""What a note takes beside its texts."""


def check_schema_size(body: bytes) -> None:
    """Refuse a schema that would take much room. Raises `ValueError` or Arrow's own errors if it is none."""
    try:
        _check(body)
    except struct.error as error:
        raise ValueError(f"a schema of Arrow's points outside itself: {error}") from error


def _check(body: bytes) -> None:
    (claimed,) = struct.unpack_from("<i", body, len(_GOES_ON) if body.startswith(_GOES_ON) else 0)
    if claimed > SYNC_SCHEMA_BYTES_MAX:
        raise _too_large()
    metadata = ipc.read_message(pa.BufferReader(pa.py_buffer(body))).metadata.to_pybytes()
    root = Table.root(metadata)
    schema = root.table(_HEADER)
    if root.number(_HEADER_TYPE, "<B") != _SCHEMA or schema is None:
        raise malformed("an Arrow stream begins without a schema")
    if schema.length(_FIELDS) > SYNC_COLUMNS_MAX:
        what = f"rows have more than {SYNC_COLUMNS_MAX} columns"
        raise TailraceError("sync.too_large", what, hint="send tables with fewer columns")
    size = _notes(schema.tables(_NOTES))
    for field in schema.tables(_FIELDS):
        if field.length(_CHILDREN) or field.table(_DICTIONARY) is not None:
            raise malformed("a body has a column of a type that is none of rows' types")
        size += field.length(_NAME) + _notes(field.tables(_FIELD_NOTES))
        if size > SYNC_SCHEMA_BYTES_MAX:
            raise _too_large()


def _notes(notes: Iterable[Table]) -> int:
    """What keys and values beside a column take; what they have in common counts for each."""
    size = 0
    for note in notes:
        size += _NOTE_BYTES + note.length(0) + note.length(1)
        if size > SYNC_SCHEMA_BYTES_MAX:
            raise _too_large()
    return size


def _too_large() -> TailraceError:
    what = f"the names of columns and what is noted beside them take more than {SYNC_SCHEMA_BYTES_MAX} bytes"
    return TailraceError("sync.too_large", what, hint="send tables with fewer columns")
