"""Arrow streams that would take much more room than they have bytes."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from pyarrow import ipc

from tailrace.errors import TailraceError
from tailrace.limits import MIB, SYNC_BODY_BYTES_MAX, SYNC_COLUMNS_MAX, SYNC_ROWS_MAX, SYNC_SCHEMA_BYTES_MAX
from tailrace.log.flatbuffer import Table
from tailrace.sync.arrowform import read_arrow
from tailrace.sync.wire import Wire
from tests.sync.peak import peak_bytes
from tests.sync.test_wire import SHAPE, stream


def refused(body: bytes) -> str:
    """The code; and nothing was made of it."""

    def read() -> None:
        with pytest.raises(TailraceError) as caught:
            read_arrow(Wire(SHAPE), body)
        codes.append(caught.value.code)

    codes: list[str] = []
    before = pa.total_allocated_bytes()
    assert peak_bytes(read) < 3 * SYNC_BODY_BYTES_MAX
    assert pa.total_allocated_bytes() - before < MIB
    return codes[0]


def test_columns_of_nothing_are_values_too() -> None:
    rows = SYNC_ROWS_MAX
    assert refused(stream(pa.table({f"c{number}": pa.nulls(rows) for number in range(4000)}))) == "sync.too_large"


def test_texts_that_are_json_have_the_limits_of_json() -> None:
    field = pa.field("what", pa.string(), metadata={"tailrace": "json"})
    many = pa.table([pa.array(["[" + "{}," * (10 * MIB) + "{}]"])], schema=pa.schema([field]))
    assert refused(stream(many)) == "sync.too_large"
    deep = pa.table([pa.array(["[" * 500 + "]" * 500])], schema=pa.schema([field]))
    assert refused(stream(deep)) == "sync.malformed"


def test_schemas_that_are_too_large() -> None:
    many = pa.schema([pa.field(f"c{number}", pa.null()) for number in range(SYNC_COLUMNS_MAX + 1)])
    noted = pa.schema([pa.field("id", pa.int64(), metadata={"x": "y" * SYNC_SCHEMA_BYTES_MAX})])
    beside = pa.schema([pa.field("id", pa.int64())], metadata={str(key): "x" for key in range(20_000)})
    for schema in (many, noted, beside):
        assert refused(stream(schema.empty_table())) == "sync.too_large"


def test_names_that_columns_share_count_for_each() -> None:
    """Each of 2,000 columns points at one name of 500,000 bytes: a gigabyte, in half a megabyte."""
    names = ["n" * 500_000, *(f"c{number}" for number in range(2000))]
    body = bytearray(stream(pa.schema([pa.field(name, pa.null()) for name in names]).empty_table()))
    metadata = ipc.read_message(pa.BufferReader(bytes(body))).metadata.to_pybytes()
    begin = bytes(body).index(metadata)
    schema = Table.root(metadata).table(2)
    assert schema is not None
    long_name = metadata.index(b"n" * 500_000) - 4
    for field in schema.tables(1):
        place = field._field(0)
        if long_name > place:
            struct.pack_into("<I", body, begin + place, long_name - place)
    assert len(body) < MIB
    assert refused(bytes(body)) == "sync.too_large"
