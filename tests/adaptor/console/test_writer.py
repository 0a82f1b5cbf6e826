"""The console prints messages in log order, one a line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.console.options import ConsoleWriterOptions
from tailrace.adaptor.console.writer import ConsoleWriter
from tailrace.adaptor.registry import find
from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.message import Offset, Op


class Row(dict[str, Any]):
    """Stands in for Spark's."""

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802
        assert recursive
        return dict(self)


class Frame:
    """Stands in for a DataFrame of which only a part is in memory."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    def orderBy(self, name: str) -> Frame:  # noqa: N802
        return Frame(*sorted(self._rows, key=lambda row: row[name]))

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[Row]:  # noqa: N802, N803
        return map(Row, self._rows)


AT = datetime(2024, 5, 6, 7, 8, 9, 123456)
SCHEMA = pa.schema([("n", pa.int64())])


def message(offset: int, op: int | str, data: dict[str, Any] | None, before: Any = None) -> dict[str, Any]:
    return {"offset": offset, "op": op, "timestamp": AT, "lsn": 0, "data": data, "before": before}


def printed(format_: Any, *rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> str:
    out = io.StringIO()
    writer = ConsoleWriter(format_, out)
    frame: Any = Frame(*rows)
    writer.write_frame(Target("main.t", schema, ()), frame, Offset(9))
    assert writer.applied("main.t") is None
    writer.close()
    return out.getvalue()


def test_text() -> None:
    rows = [message(8, int(Op.DELETE), {"n": 2}), message(7, int(Op.INSERT), {"n": 1}), message(9, "update", None)]
    assert printed("text", *rows) == 'insert main.t 7 {"n":1}\ndelete main.t 8 {"n":2}\nupdate main.t 9 null\n'


def test_json() -> None:
    (line,) = printed("json", message(7, int(Op.UPDATE), {"n": 1}, {"n": 0})).splitlines()
    assert json.loads(line) == {
        "op": "update",
        "namespace": "main.t",
        "timestamp": "2024-05-06T07:08:09.123456Z",
        "offset": 7,
        "data": {"n": 1},
        "before": {"n": 0},
    }


def test_values_of_all_kinds_are_one_line() -> None:
    data = {
        "text": "a\nb",
        "bytes": bytearray(b"\0"),
        "decimal": Decimal("1.10"),
        "at": AT.replace(tzinfo=UTC),
        "nan": float("nan"),
        "map": {1: "x"},
        "list": [{"a": None}],
    }
    (line,) = printed("text", message(0, 0, data)).splitlines()
    assert json.loads(line.split(" ", 3)[3]) == {
        "text": "a\nb",
        "bytes": "AA==",
        "decimal": "1.10",
        "at": "2024-05-06T07:08:09.123456Z",
        "nan": None,
        "map": {"1": "x"},
        "list": [{"a": None}],
    }


def test_json_text_is_printed_as_what_it_is() -> None:
    schema = pa.schema([pa.field("v", pa.string(), metadata={TYPE_METADATA: JSON})])
    rows = [message(0, 0, {"v": "[1,2]"}), message(1, 0, {"v": None})]
    assert printed("text", *rows, schema=schema) == 'insert main.t 0 {"v":[1,2]}\ninsert main.t 1 {"v":null}\n'


def test_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    options = ConsoleWriterOptions()
    assert options.on_driver
    frame: Any = Frame(message(1, 0, {"n": 1}))
    options.open().write_frame(Target("main.t", SCHEMA, ()), frame, Offset(1))
    assert capsys.readouterr().out == 'insert main.t 1 {"n":1}\n'


def test_nobody_reads() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    frame: Any = Frame(message(1, 0, {"n": 1}))
    with pytest.raises(TailraceError) as told:
        ConsoleWriter("text", Closed()).write_frame(Target("main.t", SCHEMA, ()), frame, Offset(1))
    assert told.value.code == "destination.unreachable"


def test_adaptor() -> None:
    found = find("console")
    assert found.reader is None
    assert found.writer is ConsoleWriterOptions
