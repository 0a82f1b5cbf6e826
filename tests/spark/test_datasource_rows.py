"""Rows: what frames hold, in the typed form and as JSON, exactly."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import Place, TailraceError
from tailrace.log.batch import Batch, batch_of, encode_frame
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import By, compact
from tailrace.log.frame import Codec, place_head
from tailrace.log.reader import LogReader
from tailrace.log.selection import SelectedFrame
from tailrace.message import Message, Micros, Offset, Op
from tailrace.spark.source_options import read_options
from tailrace.spark.source_plan import range_of, wanted_by
from tailrace.spark.source_rows import Rows
from tailrace.spark.source_schema import COLUMNS, check_schema, picked, schema_for
from tailrace.spark.source_wanted import Wanted
from tailrace.spark.types import arrow_schema, spark_schema
from tests.log.material import append_keyed, transporter_log, write_plain


def read(directory: Path, schema: pa.Schema | None = None, **options: str) -> list[dict[str, Any]]:
    """What a batch read with these options gives, without Spark."""
    chosen = read_options({"path": str(directory), **options})
    reader, wanted = LogReader(directory), wanted_by(chosen)
    start, end = range_of(reader, chosen, wanted)
    found = schema or arrow_schema(spark_schema(schema_for(reader, chosen, start, end, wanted)))
    rows = Rows(found, wanted, picked(chosen))
    return [row for batch in rows.batches(reader.frames(start, end, wanted)) for row in batch.to_pylist()]


def append(directory: Path, *documents: dict[str, Any] | None, namespace: str = "shop.orders") -> None:
    """Each document in a group of its own."""
    with CommitLog.open(directory) as log:
        for document in documents:
            log.append_messages([Message(Op.INSERT, Micros(1), namespace, document)])


class TestJson:
    def test_a_document_comes_back_to_the_last_digit(self, tmp_path: Path) -> None:
        document = {
            "int": 2**63 - 1,
            "huge": 2**70,
            "float": 0.1,
            "decimal": Decimal("12345678901234567890.10"),
            "text": 'é "\\\u2028 \x00',
            "none": None,
            "list": [1, None],
            "mixed": [1, "a", {"b": None}],
            "inner": {"a": [{"b": 1.5}]},
        }
        append(tmp_path, document)
        [row] = read(tmp_path)
        assert json.loads(row["data"], parse_float=_number) == document
        assert row["before"] is None

    def test_values_without_a_form_in_json(self, tmp_path: Path) -> None:
        append(
            tmp_path,
            {
                "binary": b"\x00\xff",
                "day": date(2026, 1, 2),
                "moment": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
                "span": timedelta(seconds=1),
                "nan": float("nan"),
                "endless": [{"deep": float("-inf")}],
            },
        )
        [row] = read(tmp_path)
        assert row["data"] == (
            '{"binary":"AP8=","day":"2026-01-02","moment":"2026-01-02T03:04:05.000006+00:00","span":"0:00:01",'
            '"nan":NaN,"endless":[{"deep":-Infinity}]}'
        )

    def test_documents_of_transporter_are_as_they_were_written(self, tmp_path: Path) -> None:
        texts = [b'{"b": 1.50,  "a": 12345678901234567890123}', b"[1, 2]", b"null", '{"é": 1}'.encode("utf-16")]
        write_plain(tmp_path, 0, [(offset, "a.b", text) for offset, text in enumerate(texts)])
        rows = read(tmp_path)
        assert [row["data"] for row in rows] == [texts[0].decode(), "[1, 2]", None, '{"é": 1}']
        assert {row["op"] for row in rows} == {"insert"}

    def test_what_is_no_json_is_damage(self, tmp_path: Path) -> None:
        write_plain(tmp_path, 0, [(0, "a.b", b"{")])
        with pytest.raises(TailraceError) as raised:
            read(tmp_path)
        assert raised.value.code == "log.corrupt"

    def test_a_log_of_the_real_transporter(self, tmp_path: Path) -> None:
        directory = transporter_log(tmp_path / "log")
        entries = list(LogReader(directory).entries())
        rows = read(directory, includeNoop="true")
        assert [row["offset"] for row in rows] == [entry.offset for entry in entries]
        assert [row["mode"] for row in rows] == [entry.mode.name.lower() for entry in entries]
        assert [row["data"] and json.loads(row["data"]) for row in rows] == [entry.message.data for entry in entries]


class TestTyped:
    def test_fields_of_all_frames_in_one_form(self, tmp_path: Path) -> None:
        append(tmp_path, {"id": 1}, {"id": 2, "name": "b"}, {"id": 2.5}, {"at": None, "inner": {"a": 1}})
        append(tmp_path, {"inner": {"b": [1]}})
        assert [row["data"] for row in read(tmp_path, namespace="shop.orders")] == [
            {"id": 1.0, "name": None, "at": None, "inner": None},
            {"id": 2.0, "name": "b", "at": None, "inner": None},
            {"id": 2.5, "name": None, "at": None, "inner": None},
            {"id": None, "name": None, "at": None, "inner": {"a": 1, "b": None}},
            {"id": None, "name": None, "at": None, "inner": {"a": None, "b": [1]}},
        ]

    def test_before_has_the_fields_of_data(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            append_keyed(log, "t", [(Op.INSERT, {"id": 1, "v": "a"}, None)])
            append_keyed(log, "t", [(Op.DELETE, None, {"id": 1})])
        rows = read(tmp_path, namespace="t")
        assert [(row["op"], row["data"], row["before"]) for row in rows] == [
            ("insert", {"id": 1, "v": "a"}, None),
            ("delete", None, {"id": 1, "v": None}),
        ]

    def test_messages_without_any_field(self, tmp_path: Path) -> None:
        append(tmp_path, None)
        assert [row["data"] for row in read(tmp_path, namespace="shop.orders")] == [None]

    def test_only_the_frames_of_the_range_count(self, tmp_path: Path) -> None:
        append(tmp_path, {"old": 1}, {"new": 1})
        assert read(tmp_path, namespace="shop.orders", startingOffset="1")[0]["data"] == {"new": 1}

    def test_an_empty_range_has_the_fields_of_the_log(self, tmp_path: Path) -> None:
        append(tmp_path, {"old": 1}, {"new": 1})
        options = read_options({"path": str(tmp_path), "namespace": "shop.orders"})
        schema = schema_for(LogReader(tmp_path), options, Offset(2), Offset(2), wanted_by(options))
        assert [entry.name for entry in schema.field("data").type] == ["old", "new"]

    def test_a_namespace_that_is_not_there(self, tmp_path: Path) -> None:
        append(tmp_path, {"id": 1})
        with pytest.raises(TailraceError) as raised:
            read(tmp_path, namespace="shop.order")
        assert "did you mean shop.orders?" in raised.value.what

    @pytest.mark.parametrize("name", [".*", "shop'; drop --", 'a"b`c', "a|b", "ü.ß", "(", "shop.orders$"])
    def test_a_name_is_nothing_but_a_name(self, tmp_path: Path, name: str) -> None:
        append(tmp_path, {"right": 1}, namespace=name)
        append(tmp_path, {"wrong": 1}, namespace="shop.orders")
        assert [(row["namespace"], row["data"]) for row in read(tmp_path, namespace=name)] == [(name, {"right": 1})]

    def test_hostile_field_names(self, tmp_path: Path) -> None:
        document = {"a.b": 1, "`": 2, "": 3, "select": 4, "data": 5}
        append(tmp_path, document)
        assert read(tmp_path, namespace="shop.orders")[0]["data"] == document

    @pytest.mark.parametrize(
        ("later", "lost"),
        [
            ({"id": 2, "new": 1}, "new"),
            ({"id": 2, "inner": {"a": 1, "b": 2}}, "inner.b"),
            ({"id": 2, "many": [{"a": 1, "b": 2}]}, "many.b"),
        ],
    )
    def test_a_field_that_the_schema_lacks_is_refused_or_left_out(
        self, tmp_path: Path, later: dict[str, Any], lost: str
    ) -> None:
        append(tmp_path, {"id": 1, "inner": {"a": 1}, "many": [{"a": 1}]})
        chosen = read_options({"path": str(tmp_path), "namespace": "shop.orders"})
        reader, wanted = LogReader(tmp_path), wanted_by(chosen)
        known = arrow_schema(spark_schema(schema_for(reader, chosen, Offset(0), Offset(1), wanted)))
        append(tmp_path, later)
        with pytest.raises(TailraceError) as raised:
            list(Rows(known, wanted).batches(reader.frames(0, 2, wanted)))
        assert raised.value.code == "schema.changed"
        assert raised.value.what.endswith(f"shop.orders has fields from offset 1 on that the schema lacks: {lost}")
        ignoring = Rows(known, wanted, frozenset(("data", "before")))
        [batch] = ignoring.batches(reader.frames(0, 2, wanted))
        assert [row["data"]["id"] for row in batch.to_pylist()] == [1, 2]

    def test_a_field_without_a_value_is_nothing_to_lose(self, tmp_path: Path) -> None:
        append(tmp_path, {"id": 1}, {"id": 2, "new": None})
        known = pa.schema({"data": pa.struct([("id", pa.int64())])})
        assert [row["data"]["id"] for row in read(tmp_path, known, namespace="shop.orders")] == [1, 2]

    def test_a_value_that_does_not_fit_is_refused(self, tmp_path: Path) -> None:
        append(tmp_path, {"id": 2**40})
        known = pa.schema({"data": pa.struct([("id", pa.int32())])})
        with pytest.raises(TailraceError) as raised:
            read(tmp_path, known, namespace="shop.orders")
        assert raised.value.code == "schema.changed"


class TestColumns:
    def test_only_those_that_were_asked_for_in_that_order(self, tmp_path: Path) -> None:
        append(tmp_path, {"id": 1, "a.b": 2, "c": 3})
        assert read(tmp_path, columns="op, offset") == [{"op": "insert", "offset": 0}]
        rows = read(tmp_path, namespace="shop.orders", columns="offset,data.a.b,data.id")
        assert rows == [{"offset": 0, "data": {"a.b": 2, "id": 1}}]

    @pytest.mark.parametrize(
        ("columns", "meant"), [("ofset", "offset"), ("data.idd", "id"), ("before.idd", "id"), ("tx.id", "")]
    )
    def test_a_column_that_is_not_there(self, tmp_path: Path, columns: str, meant: str) -> None:
        append(tmp_path, {"id": 1})
        with pytest.raises(TailraceError) as raised:
            read(tmp_path, namespace="shop.orders", columns=columns)
        assert raised.value.code == "input.invalid"
        assert meant in raised.value.what

    def test_fields_are_those_of_the_typed_form(self, tmp_path: Path) -> None:
        append(tmp_path, {"id": 1})
        with pytest.raises(TailraceError, match=r"no column 'data\.id'"):
            read(tmp_path, columns="data.id")

    def test_new_fields_are_not_missed_where_fields_were_picked(self, tmp_path: Path) -> None:
        append(tmp_path, {"id": 1, "other": 1})
        known = pa.schema({"data": pa.struct([("id", pa.int64())])})
        assert read(tmp_path, known, namespace="shop.orders", columns="data.id") == [{"data": {"id": 1}}]

    def test_what_was_not_asked_for_is_not_decoded(self) -> None:
        """A body whose `data` cannot be decompressed is readable but for `data`."""
        numbers = pa.RecordBatch.from_pydict({"n": pa.array(range(50_000), pa.int64())})
        head, body = encode_frame(batch_of("a", numbers, timestamp=Micros(1)), Codec.LZ4)
        head = place_head(head, offset=0, closes_group=True)[0]
        spoilt = bytearray(body.to_pybytes())
        at = len(spoilt) - 20_000  # `data` is the last column
        spoilt[at : at + 15_000] = bytes(15_000)
        frame = SelectedFrame(head, memoryview(spoilt), Place("x"), Offset(0), head.end)
        light = pa.schema({name: COLUMNS[name] for name in ("offset", "timestamp", "lsn", "tx")})
        assert sum(batch.num_rows for batch in Rows(light, Wanted()).batches([frame])) == 50_000
        with pytest.raises(TailraceError) as raised:
            list(Rows(pa.schema({"data": pa.struct([("n", pa.int64())])}), Wanted()).batches([frame]))
        assert raised.value.code == "log.corrupt"


class TestFrames:
    def test_small_frames_come_in_few_pieces_and_large_ones_in_several(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for number in range(50):
                log.append([_numbers(number, 1)])
            log.append([_numbers(0, 200_000)])
        rows = Rows(pa.schema({"offset": COLUMNS["offset"]}), Wanted())
        batches = list(rows.batches(LogReader(tmp_path).frames(selection=Wanted())))
        assert [value for batch in batches for value in batch.column(0).to_pylist()] == list(range(200_050))
        assert max(batch.num_rows for batch in batches) < 140_000
        assert len(batches) < 6

    def test_offsets_after_compaction(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            append_keyed(log, "t", [(Op.INSERT, {"id": number % 3, "v": number}, None) for number in range(9)])
            log.roll()
        compact(tmp_path, by=By.KEY, upto=8)
        rows = read(tmp_path, namespace="t", startingOffset="7")
        assert [(row["offset"], row["data"]["v"]) for row in rows] == [(7, 7), (8, 8)]

    def test_a_frame_that_says_more_than_it_holds_is_damage(self) -> None:
        head, body = encode_frame(_numbers(0, 3), Codec.NONE)
        frame = SelectedFrame(head._replace(messages=4, span=4), memoryview(body), Place("x"), Offset(0), Offset(4))
        with pytest.raises(TailraceError, match="4 messages but holds 3"):
            list(Rows(pa.schema({"offset": COLUMNS["offset"]}), Wanted()).batches([frame]))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"ofset": pa.int64()}, "did you mean offset?"),
        ({"offset": pa.string()}, "column offset cannot be string"),
        ({"data": pa.int64()}, "column data cannot be int64"),
    ],
)
def test_a_schema_that_no_read_can_have(schema: dict[str, pa.DataType], told: str) -> None:
    options = read_options({"path": "log", "namespace": "a"})
    with pytest.raises(TailraceError) as raised:
        check_schema(pa.schema(schema), options)
    assert told in raised.value.what


def test_structs_are_for_one_namespace() -> None:
    schema = pa.schema({"data": pa.struct([("id", pa.int64())])})
    check_schema(schema, read_options({"path": "log", "namespace": "a"}))
    with pytest.raises(TailraceError, match="option namespace"):
        check_schema(schema, read_options({"path": "log"}))


def _numbers(first: int, count: int) -> Batch:
    data = pa.RecordBatch.from_pydict({"n": pa.array(range(first, first + count), pa.int64())})
    return batch_of("a", data, timestamp=Micros(1))


def _number(text: str) -> float | Decimal:
    return Decimal(text) if len(text) > 18 else float(text)
