"""Avro files: typed by their schema, read block by block as they grow, written effectively once."""

from __future__ import annotations

import datetime as dt
import io
import os
import sys
import time
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tailrace.adaptor.files.marks import SETTLED_S
from tailrace.adaptor.files.options import FilesReaderOptions, FilesWriterOptions
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.message import Offset, Op
from tests.adaptor.files.material import changed, copied, messages, reader_of

NUMBERS: Any = {"type": "record", "name": "numbers", "fields": [{"name": "n", "type": "long"}]}
MARKER = b"0123456789abcdef"
CHAIN: Any = {"type": "record", "name": "chain", "fields": [{"name": "next", "type": ["null", "chain"]}]}

IDENTIFIER = uuid.UUID("12345678-1234-5678-1234-567812345678")
FAR = 253_402_300_800_000
"""The year 10000, in milliseconds, which Python has no moment for."""

TYPES: list[tuple[Any, Any, pa.DataType, Any]] = [
    ("boolean", True, pa.bool_(), True),
    ("int", -1, pa.int32(), -1),
    ("long", 2**62, pa.int64(), 2**62),
    ("float", 0.5, pa.float32(), 0.5),
    ("double", 1e300, pa.float64(), 1e300),
    ("bytes", b"\0", pa.binary(), b"\0"),
    ("string", "ü", pa.string(), "ü"),
    ("null", None, pa.null(), None),
    (["null", "long"], 7, pa.int64(), 7),
    (["null", "long"], None, pa.int64(), None),
    ({"type": "int", "logicalType": "date"}, dt.date(1969, 12, 31), pa.date32(), dt.date(1969, 12, 31)),
    ({"type": "int", "logicalType": "time-millis"}, 1, pa.time32("ms"), dt.time(0, 0, 0, 1000)),
    ({"type": "long", "logicalType": "time-micros"}, 1, pa.time64("us"), dt.time(0, 0, 0, 1)),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        1,
        pa.timestamp("ms", tz="UTC"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=dt.UTC),
    ),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        -1,
        pa.timestamp("us", tz="UTC"),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        1,
        pa.timestamp("us"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
        Decimal("-123.45"),
        pa.decimal128(20, 2),
        Decimal("-123.45"),
    ),
    (
        {"type": "fixed", "name": "money", "size": 20, "logicalType": "decimal", "precision": 40, "scale": 1},
        Decimal("1.5"),
        pa.decimal256(40, 1),
        Decimal("1.5"),
    ),
    ({"type": "string", "logicalType": "uuid"}, IDENTIFIER, pa.string(), str(IDENTIFIER)),
    ({"type": "long", "logicalType": "unheard-of"}, 5, pa.int64(), 5),
    ({"type": "enum", "name": "colour", "symbols": ["red", "blue"]}, "blue", pa.string(), "blue"),
    ({"type": "fixed", "name": "three", "size": 3}, b"abc", pa.binary(3), b"abc"),
    ({"type": "array", "items": ["null", "int"]}, [1, None], pa.list_(pa.int32()), [1, None]),
    ({"type": "map", "values": "long"}, {"k": 1}, pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    (
        {"type": "record", "name": "place", "fields": [{"name": "x", "type": {"type": "int", "logicalType": "date"}}]},
        {"x": dt.date(1970, 1, 2)},
        pa.struct([("x", pa.date32())]),
        {"x": dt.date(1970, 1, 2)},
    ),
]


def write_avro(path: Path, schema: Any, *blocks: list[Any], codec: str = "null") -> list[int]:
    """Blocks as a file; returns where the header and each of them ends."""
    ends: list[int] = []
    content = b""
    for rows in ([], *blocks):
        out = io.BytesIO()
        fastavro.writer(out, schema, rows, codec=codec, sync_marker=MARKER)
        content += out.getvalue()[ends[0] if ends else 0 :]
        ends.append(len(content))
    path.write_bytes(content)
    return ends


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"n": value} for value in values]


@pytest.mark.parametrize(("avro", "value", "kind", "expected"), TYPES, ids=[str(each[0])[-40:] for each in TYPES])
def test_types_are_those_of_the_schema(tmp_path: Path, avro: Any, value: Any, kind: pa.DataType, expected: Any) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": avro}]}
    write_avro(tmp_path / "a.avro", schema, [{"v": value}])
    (table,) = reader_of(tmp_path).tables()
    assert table.schema.field("v").type == kind
    assert copied(tmp_path) == [{"v": expected}]


def test_moments_beyond_those_of_python(tmp_path: Path) -> None:
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    write_avro(tmp_path / "a.avro", {**NUMBERS, "fields": [{"name": "t", "type": kind}]}, [{"t": FAR}])
    reader = reader_of(tmp_path)
    reader.position()
    (piece,) = reader.plan_copy(reader.tables()[0])
    (batch,) = reader.read_copy("files.a", piece)
    data: Any = batch.rows.column("data")
    assert data.field("t").cast(pa.int64()).to_pylist() == [FAR]


@pytest.mark.parametrize(
    ("avro", "value", "expected"),
    [
        (["null", "long", "string"], "x", "x"),
        (["long", "string"], 5, 5),
        (["null", CHAIN], {"next": {"next": None}}, {"next": {"next": None}}),
        ({"type": "array", "items": ["long", "string"]}, [1, "a"], [1, "a"]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 90, "scale": 0}, Decimal(7), "7"),
    ],
    ids=["three", "two", "recursive", "inside", "long decimal"],
)
def test_what_has_no_common_type_is_json_text(tmp_path: Path, avro: Any, value: Any, expected: Any) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": avro}]}
    write_avro(tmp_path / "a.avro", schema, [{"v": value}])
    (table,) = reader_of(tmp_path).tables()
    assert table.schema.field("v").metadata == {TYPE_METADATA: JSON}
    assert copied(tmp_path) == [{"v": expected}]


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("piece_bytes", [1, 40, 10**9])
def test_blocks_are_divided_among_tasks(tmp_path: Path, codec: str, piece_bytes: int) -> None:
    blocks = [numbers(*range(at, at + 10)) for at in range(0, 100, 10)]
    write_avro(tmp_path / "a.avro", NUMBERS, *blocks, codec=codec)
    reader = reader_of(tmp_path, piece_bytes=piece_bytes)
    reader.position()
    pieces = reader.plan_copy(reader.tables()[0])
    assert len(pieces) == 1 if piece_bytes > 1000 else len(pieces) > 3
    assert copied(tmp_path, piece_bytes=piece_bytes) == numbers(*range(100))


def test_blocks_are_read_when_they_are_complete(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever the file is cut, every row comes once."""
    file = tmp_path / "a.avro"
    ends = write_avro(file, NUMBERS, numbers(1, 2), numbers(3), numbers(4))
    content = file.read_bytes()
    rows: list[Any] = []
    position: Any = {}
    for size in range(len(content) + 1):
        file.write_bytes(content[:size])
        end = reader_of(tmp_path).position()
        rows += changed(tmp_path, position, end)
        position = end
        assert len(rows) == sum(n for n, at in zip((2, 1, 1), ends[1:], strict=True) if size >= at), size
    assert rows == numbers(1, 2, 3, 4)
    assert any("not complete yet" in line for line in caplog.messages)


@pytest.mark.parametrize("content", [b"no Avro at all", b"Obj\x01"])
def test_what_nobody_completes_is_damaged(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.avro"
    file.write_bytes(content)
    assert copied(tmp_path) == []
    hours_ago = time.time() - 2 * SETTLED_S
    os.utime(file, (hours_ago, hours_ago))
    with pytest.raises(TailraceError) as told:
        copied(tmp_path)
    assert told.value.code == "source.malformed"


def test_a_block_that_nobody_completes_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    write_avro(file, NUMBERS, numbers(1), numbers(2))
    file.write_bytes(file.read_bytes()[:-5])
    hours_ago = time.time() - 2 * SETTLED_S
    os.utime(file, (hours_ago, hours_ago))
    with pytest.raises(TailraceError, match="never completed"):
        copied(tmp_path)


def write(file: Path, *batches: Messages, commit: bool = True, **options: Any) -> None:
    """Messages through a writer of their own."""
    writer = FilesWriterOptions(path=str(file), **options).open()
    try:
        for batch in batches:
            writer.prepare(Target(batch.namespace, pa.schema(list(batch.data.type)), ()))
            writer.write(batch)
        if commit:
            writer.commit(Offset(batches[-1].offsets()[-1].as_py()))
    finally:
        writer.close()


def stored(file: Path) -> list[Any]:
    with file.open("rb") as opened:
        return list(fastavro.reader(opened))


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """All types that Avro has, written and read again."""
    file = tmp_path / "out.avro"
    columns: dict[str, Any] = {
        "flag": pa.array([True, None]),
        "small": pa.array([-8, None], pa.int8()),
        "large": pa.array([2**62, None], pa.int64()),
        "half": pa.array([0.5, None], pa.float32()),
        "number": pa.array([1e300, None]),
        "text": pa.array(["ü\0", None]),
        "bytes": pa.array([b"\0", None]),
        "day": pa.array([dt.date(1969, 12, 31), None]),
        "clock": pa.array([1, None], pa.time32("ms")),
        "moment": pa.array([FAR * 1000, None], pa.timestamp("us", tz="Europe/Berlin")),
        "local": pa.array([1, None], pa.timestamp("ms")),
        "money": pa.array([Decimal("-1.25"), None], pa.decimal128(20, 2)),
    }
    arrays, names = list(columns.values()), list(columns)
    write(file, messages("main.t", pa.StructArray.from_arrays(arrays, names)))
    reader = reader_of(file)
    (table,) = reader.tables()
    reader.position()
    (piece,) = reader.plan_copy(table)
    (batch,) = reader.read_copy("files.out", piece)
    data: Any = batch.rows.column("data")
    kinds = {**{name: column.type for name, column in columns.items()}, "small": pa.int32()}
    kinds["moment"] = pa.timestamp("us", tz="UTC")
    assert {field.name: field.type for field in table.schema} == kinds
    for name, column in columns.items():
        assert data.field(name).equals(column.cast(kinds[name])), name


def test_what_avro_has_no_type_for_is_text(tmp_path: Path) -> None:
    file = tmp_path / "out.avro"
    json_text = pa.field("json", pa.string(), metadata={TYPE_METADATA: JSON})
    fields = [
        json_text,
        pa.field("list", pa.list_(pa.int64())),
        pa.field("nanos", pa.timestamp("ns")),
        pa.field("no", pa.null()),
    ]
    arrays: list[Any] = [pa.array(["[1]"]), pa.array([[1, 2]]), pa.array([1], pa.timestamp("ns")), pa.nulls(1)]
    write(file, messages("main.t", pa.StructArray.from_arrays(arrays, fields=fields)))
    assert stored(file) == [{"json": "[1]", "list": "[1,2]", "nanos": "1970-01-01T00:00:00.000000001", "no": None}]
    write(file, messages("main.t", [{"no": 5}], first=1))  # text takes everything
    assert stored(file)[1]["no"] == "5"


def test_written_effectively_once(tmp_path: Path) -> None:
    file = tmp_path / "out.avro"
    first, second = messages("main.t", numbers(1, 2)), messages("main.t", numbers(3), first=2)
    write(file, first, commit=False)
    write(file, first)
    write(file, second, commit=False)
    assert stored(file) == numbers(1, 2)
    write(file, first, second)
    write(file, second)
    assert stored(file) == numbers(1, 2, 3)


def test_a_file_of_somebody_else_is_added_to_in_its_own_way(tmp_path: Path) -> None:
    file = tmp_path / "out.avro"
    schema = {**NUMBERS, "fields": [{"name": "n", "type": ["null", "long"]}]}
    write_avro(file, schema, numbers(1), codec="null")
    write(file, messages("main.t", numbers(2)))
    assert stored(file) == numbers(1, 2)
    file.with_name(".out.avro.tailrace").unlink()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(TailraceError) as told:
        write(file, messages("main.t", numbers(3), first=1))
    assert told.value.code == "destination.refused"


@pytest.mark.parametrize("rows", [[{"n": 1, "other": 2}], [{"n": 0.5}]], ids=["column", "type"])
def test_columns_do_not_change(tmp_path: Path, rows: Any) -> None:
    file = tmp_path / "out.avro"
    write(file, messages("main.t", numbers(1)))
    with pytest.raises(TailraceError) as told:
        write(file, messages("main.t", rows, first=1))
    assert told.value.code == "schema.changed"
    assert stored(file) == numbers(1)


def test_names_that_avro_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(TailraceError) as told:
        write(tmp_path / "out.avro", messages("main.t", [{"first name": 1}]))
    assert told.value.code == "destination.refused"
    assert "rename" in told.value.hint


def test_envelopes_and_deletes(tmp_path: Path) -> None:
    file = tmp_path / "out.avro"
    gone = messages("main.t", numbers(1), op=Op.DELETE, before=pa.array(numbers(0)))
    with pytest.raises(TailraceError, match="deleted"):
        write(file, gone)
    write(tmp_path / "skipped.avro", gone, deletes="skip")
    assert stored(tmp_path / "skipped.avro") == []
    write(tmp_path / "with.avro", gone, with_envelope=True)
    (row,) = stored(tmp_path / "with.avro")
    moment = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert row == {
        "_op": "delete",
        "_namespace": "main.t",
        "_timestamp": moment,
        "_offset": 0,
        "_before": '{"n":0}',
        "n": 1,
    }


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_avro(tmp_path / "a.avro", NUMBERS, numbers(1))
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(TailraceError) as told:
        reader_of(tmp_path).tables()
    assert (told.value.code, told.value.hint) == ("source.unsupported", "pip install 'tailrace[avro]'")
    reading = FilesReaderOptions(path=str(tmp_path)).probe()
    writing = FilesWriterOptions(path=str(tmp_path / "out.avro")).probe()
    for checks in (reading, writing):
        assert [(check.ok, check.cure) for check in checks][1:] == [(False, "pip install 'tailrace[avro]'")]
