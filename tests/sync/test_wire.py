"""The forms of rows: JSON and Arrow give the same, whatever the values."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_ROWS_MAX
from tailrace.sync.arrowform import as_arrow, read_arrow
from tailrace.sync.entity import Entity, VersionKind
from tailrace.sync.exchange import ANY_NODE, Ack, Receipt, RowBatch, Tracker
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Column, Kind, Shape
from tailrace.sync.wire import Wire

COLUMNS = (
    Column("id", "INTEGER", Kind.PLAIN),
    Column("what", "TEXT", Kind.PLAIN),
    Column("any", "", Kind.PLAIN),
    Column("changed", "INTEGER", Kind.PLAIN),
)
SHAPE = Shape(Entity("todo", 42, "changed"), Dialect.SQLITE, COLUMNS, ("id",))
PAIR = Shape(Entity("todo", 42, "changed"), Dialect.SQLITE, COLUMNS, ("id", "what"))
HASH = Shape(Entity("todo", 42, "what", version_kind=VersionKind.HASH), Dialect.SQLITE, COLUMNS, ("id",))
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
NODE = st.integers(0, (1 << 63) - 1)
VALUE = st.one_of(
    st.none(),
    LONG,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.sampled_from([{"$bytes": "00ff"}, {"$real": "nan"}, {"$text": "\\x"}]),
)
TIME = st.integers(0, (1 << 53) - 1)
NAMES = tuple(column.name for column in COLUMNS)


@st.composite
def batches(draw: st.DrawFn) -> RowBatch:
    """Rows as a store gives them."""
    rows = []
    for key in draw(st.lists(LONG, max_size=8, unique=True)):
        time, gone = draw(TIME), draw(st.booleans())
        values = (None, None, None) if gone else (draw(VALUE), draw(VALUE), time)
        rows.append((key, *values, time, draw(NODE), gone, time))
    return RowBatch(NAMES, rows)


def exactly(batch: RowBatch) -> list[tuple[tuple[type, Any], ...]]:
    """So that 1 is neither 1.0 nor True."""
    return [tuple((type(value), value) for value in row) for row in batch.rows]


@given(batches())
def test_json_and_arrow_give_the_same_rows(batch: RowBatch) -> None:
    wire = Wire(SHAPE)
    by_arrow = read_arrow(wire, as_arrow(batch))
    assert exactly(by_arrow) == exactly(batch)
    read = wire.read_rows(orjson.loads(orjson.dumps(wire.rows(batch, 7))))
    assert [row for part in read for row in exactly(part)] == exactly(batch)
    assert all(part.columns == batch.columns == by_arrow.columns for part in read)


@given(batches())
def test_numbers_as_text_come_back(batch: RowBatch) -> None:
    wire = Wire(SHAPE, longs_as_text=True)
    sent = wire.rows(batch, 7)
    for row in sent:
        assert {type(row[name]) for name in ("id", "doorTime", "doorNode", "trkrVersionId", "trkrDestinationNode")} == {
            str
        }
    assert [row for part in wire.read_rows(sent) for row in exactly(part)] == exactly(batch)


WHY = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
"""Reasons lose their NULs: not every database can keep them."""


@given(LONG, st.text(), LONG, NODE | st.just(ANY_NODE), WHY, st.booleans())
def test_trackers_come_back(key: int, text: str, version: int, node: int, refused: str | None, as_text: bool) -> None:
    for shape, parts, made in ((SHAPE, (key,), version), (PAIR, (key, text), version), (HASH, (key,), text)):
        wire = Wire(shape, as_text)
        tracker = Tracker(parts, made, node)
        assert wire.read_trackers(wire.trackers([tracker])) == [tracker]
        assert list(wire.read_acks(wire.acks([Ack(tracker, refused)]))) == [Ack(tracker, refused)]
        receipt = Receipt([Ack(tracker, "why")], [tracker])
        assert wire.read_receipt(wire.receipt(receipt)) == receipt


def test_a_deleted_row_of_a_table_with_hashes_has_the_version_that_says_so() -> None:
    wire = Wire(HASH)
    batch = RowBatch(NAMES, [(1, None, None, None, 5, 7, True, "-5-7")])
    assert wire.read_rows(wire.rows(batch, 9)) == [batch]
    assert read_arrow(wire, as_arrow(batch)) == batch


@pytest.mark.parametrize(
    "told",
    [
        *({}, None, 1, "x", [1], [None], [[]], [{}], [{"primaryKey": 1}], [{"versionId": 1}]),
        *([{"primaryKey": None, "versionId": 1}], [{"primaryKey": [1], "versionId": 1}]),
        *([{"primaryKey": {"a": 1}, "versionId": 1}], [{"primaryKey": 1, "versionId": "x"}]),
        *([{"primaryKey": 1, "versionId": None}], [{"primaryKey": 1, "versionId": True}]),
        *([{"primaryKey": 1, "versionId": 1, "changedBy": "x"}], [{"primaryKey": 1, "versionId": 1, "changedBy": -1}]),
        [{"primaryKey": 1, "versionId": 1, "refused": 5}],
    ],
)
def test_what_is_no_tracker_is_refused(told: Any) -> None:
    with pytest.raises(TailraceError) as caught:
        Wire(SHAPE).read_acks(told)
    assert caught.value.code == "sync.malformed"


def stream(table: pa.Table | pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()


def test_an_arrow_body_cannot_claim_more_than_it_may_have() -> None:
    zeros = pa.table({"id": pa.array([0] * 9000), "what": pa.array(["x" * 40_000] * 9000)})
    packed = stream(zeros, compression="zstd")
    assert len(packed) < 1 << 20
    with pytest.raises(TailraceError) as caught:
        read_arrow(Wire(SHAPE), packed)
    assert caught.value.code == "sync.too_large"


def test_too_many_rows_of_nothing_are_refused() -> None:
    for many in (pa.table({"id": pa.nulls(SYNC_ROWS_MAX + 1)}), pa.table({"id": pa.nulls(100_000_000)})):
        with pytest.raises(TailraceError) as caught:
            read_arrow(Wire(SHAPE), stream(many))
        assert caught.value.code == "sync.too_large"


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": pa.array([[1]])}),
        pa.table({"id": pa.array([{"a": 1}])}),
        pa.table({"id": pa.array(["a"]).dictionary_encode()}),
        pa.table({"id": pa.array([b"a"])}),
        pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]),
        pa.table({"id": [1], "doorDeleted": ["no"]}),
        pa.table([pa.array([1])], schema=pa.schema([pa.field("id", pa.int64(), metadata={"tailrace": "json"})])),
        pa.table([pa.array(["{"])], schema=pa.schema([pa.field("id", pa.string(), metadata={"tailrace": "json"})])),
    ],
)
def test_what_is_no_column_of_rows_is_refused(table: pa.Table) -> None:
    with pytest.raises(TailraceError) as caught:
        read_arrow(Wire(SHAPE), stream(table))
    assert caught.value.code == "sync.malformed"


def test_a_damaged_arrow_body_is_refused_or_gives_rows() -> None:
    batch = RowBatch(NAMES, [(n, f"w{n}", None, 5, 5, 7, False, 5) for n in range(3)])
    body = as_arrow(batch)
    for place in range(0, len(body)):
        for change in (0xFF, 0x80, 0x01):
            damaged = bytearray(body)
            damaged[place] ^= change
            try:
                read_arrow(Wire(SHAPE), bytes(damaged))
            except TailraceError as error:
                assert error.code in ("sync.malformed", "sync.too_large")
    for length in range(len(body)):
        try:
            read_arrow(Wire(SHAPE), body[:length])
        except TailraceError as error:
            assert error.code == "sync.malformed"
