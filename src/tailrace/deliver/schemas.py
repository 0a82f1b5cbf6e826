"""What the rows of frames look like: read without their bodies, and put together to one schema that holds them all."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import ipc

from tailrace.deliver.evolution import wider
from tailrace.errors import TailraceError
from tailrace.limits import KIB
from tailrace.log.batch import key_of
from tailrace.log.documents import is_json
from tailrace.log.segment import Located, Segment
from tailrace.log.selection import whole_frame

_SCHEMA_BYTES: Final = 16 * KIB
"""A frame's schema comes first and is rarely longer."""


def schema_of(segment: Segment, located: Located) -> pa.Schema:
    """The columns of a frame."""
    head = located.head
    if not head.is_batch:
        return whole_frame(segment, located).rows().schema
    begin = located.position + head.head_bytes
    for size in (_SCHEMA_BYTES, head.body_bytes):
        try:
            return ipc.read_schema(pa.py_buffer(segment.bytes_at(begin, min(size, head.body_bytes))))
        except (pa.ArrowException, OSError, EOFError):
            continue
    place = segment.place(located.position, head.offset)
    raise TailraceError("log.corrupt", "a frame's schema cannot be read", place=place, hint="tailrace log verify")


def unified(known: pa.Schema | None, found: pa.Schema) -> pa.Schema:
    """All columns of both; `data` and `before` with all fields of both, each with a type that holds all values."""
    if known is None or known.equals(found, check_metadata=True):
        return found
    fields = {entry.name: entry for entry in known}
    for entry in found:
        if entry.name not in fields:
            fields[entry.name] = entry
        elif entry.name in ("data", "before"):
            fields[entry.name] = pa.field(entry.name, unified_struct(fields[entry.name].type, entry.type))
    metadata: Any = found.metadata if key_of(found) else known.metadata
    return pa.schema(list(fields.values()), metadata=metadata)


def unified_struct(known: Any, found: Any) -> pa.StructType:
    """All fields of two structs, each with a type that holds all values."""
    inner: dict[str, pa.Field[Any]] = {entry.name: entry for entry in known}
    for entry in found:
        inner[entry.name] = _common(inner[entry.name], entry) if entry.name in inner else entry
    return pa.struct(list(inner.values()))


def _common(known: pa.Field[Any], found: pa.Field[Any]) -> pa.Field[Any]:
    """A field for the values of both; blobs stay blobs where other values are among them (see `conforming.fit`)."""
    for one, other in ((known, found), (found, known)):
        if is_json(one) and pa.types.is_binary(other.type):
            return other
    return wider(known, found)
