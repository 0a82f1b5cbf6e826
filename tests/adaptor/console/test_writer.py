"""The console prints messages in log order, one a line."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.console.options import ConsoleWriterOptions
from tailrace.adaptor.console.writer import ConsoleWriter
from tailrace.adaptor.registry import find
from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.message import Offset


class Frame:
    """Stands in for a DataFrame."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def orderBy(self, name: str) -> Frame:  # noqa: N802
        return Frame(self._table.sort_by(name))

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self._table


SCHEMA = pa.schema([("n", pa.int64())])


def frame_of(schema: pa.Schema, *rows: tuple[int, str, Any, Any]) -> Any:
    """Messages as Spark has them: offset, op, data and before."""
    offsets, ops, data, before = zip(*rows, strict=True)
    struct = pa.struct([pa.field(field.name, field.type) for field in schema])
    return Frame(
        pa.table(
            {
                "offset": pa.array(offsets, pa.int64()),
                "op": pa.array(ops, pa.string()),
                "timestamp": pa.array([1_700_000_000_123_456] * len(rows), pa.timestamp("us", tz="Etc/UTC")),
                "lsn": pa.array([0] * len(rows), pa.int64()),
                "tx": pa.nulls(len(rows), pa.string()),
                "namespace": pa.array(["main.t"] * len(rows)),
                "data": pa.array(data, struct),
                "before": pa.array(before, struct),
            }
        )
    )


def printed(format_: Any, *rows: tuple[int, str, Any, Any], schema: pa.Schema = SCHEMA) -> str:
    out = io.StringIO()
    writer = ConsoleWriter(format_, out)
    writer.write_frame(Target("main.t", schema, ()), frame_of(schema, *rows), Offset(9))
    assert writer.applied("main.t") is None
    writer.close()
    return out.getvalue()


def test_text() -> None:
    rows = [(8, "delete", {"n": 2}, None), (7, "insert", {"n": 1}, None), (9, "update", None, None)]
    assert printed("text", *rows) == 'insert main.t 7 {"n":1}\ndelete main.t 8 {"n":2}\nupdate main.t 9 null\n'


def test_json() -> None:
    (line,) = printed("json", (7, "update", {"n": 1}, {"n": 0})).splitlines()
    assert json.loads(line) == {
        "op": "update",
        "namespace": "main.t",
        "timestamp": "2023-11-14T22:13:20.123456Z",
        "offset": 7,
        "data": {"n": 1},
        "before": {"n": 0},
    }


def test_text_with_line_ends_is_one_line() -> None:
    schema = pa.schema([("s", pa.string())])
    (line,) = printed("text", (0, "insert", {"s": "a\nb"}, None), schema=schema).splitlines()
    assert line.endswith('{"s":"a\\nb"}')


def test_more_than_are_printed_at_once() -> None:
    rows = [(number, "insert", {"n": number}, None) for number in reversed(range(2500))]
    lines = printed("text", *rows).splitlines()
    assert [int(line.split()[2]) for line in lines] == list(range(2500))


def test_json_text_is_printed_as_what_it_is() -> None:
    schema = pa.schema([pa.field("v", pa.string(), metadata={TYPE_METADATA: JSON})])
    rows = [(0, "insert", {"v": "[1,2]"}, None), (1, "insert", {"v": None}, None)]
    assert printed("text", *rows, schema=schema) == 'insert main.t 0 {"v":[1,2]}\ninsert main.t 1 {"v":null}\n'


def test_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    options = ConsoleWriterOptions()
    assert options.on_driver
    frame = frame_of(SCHEMA, (1, "insert", {"n": 1}, None))
    options.open().write_frame(Target("main.t", SCHEMA, ()), frame, Offset(1))
    assert capsys.readouterr().out == 'insert main.t 1 {"n":1}\n'


def test_nobody_reads() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    frame = frame_of(SCHEMA, (1, "insert", {"n": 1}, None))
    with pytest.raises(TailraceError) as told:
        ConsoleWriter("text", Closed()).write_frame(Target("main.t", SCHEMA, ()), frame, Offset(1))
    assert told.value.code == "destination.unreachable"


def test_adaptor() -> None:
    found = find("console")
    assert found.reader is None
    assert found.writer is ConsoleWriterOptions
