"""Avro files: a header with the schema, then blocks of rows.

The header and every block end with the file's marker, which occurs nowhere else; so blocks are found as lines are.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa

from tailrace.adaptor.files.avrotypes import arrow_schema, as_stored
from tailrace.adaptor.files.columns import is_json_text
from tailrace.adaptor.files.jsontext import plain
from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.log.disk import read_exactly

_HEADER_BYTES_MAX: Final = MIB


@dataclass(frozen=True, slots=True)
class Header:
    """How an Avro file begins."""

    schema: Any
    codec: str
    marker: bytes
    size: int


def avro_package(code: str) -> Any:
    """What reads and writes Avro."""
    try:
        import fastavro
    except ImportError as error:
        what = "Avro files need the package fastavro"
        raise TailraceError(code, what, hint="pip install 'tailrace[avro]'") from error
    return fastavro


def header_of(fd: int) -> Header | None:
    """The header of a file; None when it is not complete, or there is none."""
    stream = io.BytesIO(read_exactly(fd, _HEADER_BYTES_MAX, 0))
    try:
        reader = avro_package("source.unsupported").block_reader(stream)
    except (EOFError, ValueError, LookupError):
        return None
    codec = reader.metadata.get("avro.codec", "null")
    return Header(orjson.loads(reader.metadata["avro.schema"]), codec, reader._header["sync"], stream.tell())


def ends_with_marker(fd: int, size: int) -> bool:
    """Whether the last block of a file is complete."""
    header = header_of(fd)
    return header is not None and read_exactly(fd, len(header.marker), size - len(header.marker)) == header.marker


def known_header(fd: int, path: str) -> Header:
    """The header of a file that must have one, and hold records."""
    header = header_of(fd)
    if header is None or not isinstance(header.schema, dict) or header.schema["type"] != "record":
        what, hint = "the file holds no Avro records", "put a whole file in its place, or move it away"
        raise TailraceError("source.malformed", what, place=Place(path), hint=hint)
    return header


def read_blocks(fd: int, path: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows of a range of whole blocks."""
    header = known_header(fd, path)
    schema = arrow_schema(header.schema)
    start = max(start, header.size)
    try:
        begin = avro_file(as_stored(header.schema), [], header.marker, header.codec)
        text = io.BytesIO(begin + read_exactly(fd, end - start, start))
        for block in avro_package("source.unsupported").block_reader(text):
            rows = [_with_json(row, schema) for row in block]
            columns: Any = pa.array(rows, pa.struct(list(schema)))
            yield pa.RecordBatch.from_struct_array(columns)
    except (EOFError, ValueError, LookupError, pa.ArrowException) as error:
        what = f"the file is damaged, was never completed, or is of an unknown kind: {type(error).__name__}: {error}"
        hint = "put a whole file in its place, or move it away"
        raise TailraceError("source.malformed", what, place=Place(path), hint=hint) from error


def avro_file(schema: Any, rows: list[dict[str, Any]], marker: bytes, codec: str) -> bytes:
    """A header, and blocks of rows if there are any."""
    out = io.BytesIO()
    avro_package("destination.unreachable").writer(out, schema, rows, codec=codec, sync_marker=marker)
    return out.getvalue()


def _with_json(row: Any, schema: pa.Schema) -> Any:
    for field in schema:
        if is_json_text(field) and row[field.name] is not None:
            row[field.name] = orjson.dumps(row[field.name], default=plain).decode()
    return row
