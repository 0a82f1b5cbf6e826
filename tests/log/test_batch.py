"""Batches: messages come back from their columns as they went in, or are refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import COMPRESS_BYTES_MIN, FRAME_BYTES_MAX, FRAME_ROWS_MAX, KIB, MIB, U64_MAX
from tailrace.log.batch import (
    TIMESTAMP,
    Batch,
    batch_of,
    batches_of,
    decode_body,
    encode_body,
    encode_frame,
    key_of,
    message_rows,
    with_key,
)
from tailrace.log.commitlog import CommitLog
from tailrace.log.frame import Codec
from tailrace.log.reader import LogReader
from tailrace.message import SECONDS_MAX, Lsn, Message, Micros, Mode, NodeId, Op, Row
from tests.log.batches import log_numbers, numbered, numbers
from tests.log.refusals import refused

I64_MAX = 2**63 - 1


def insert(data: Row | None, *, before: Row | None = None, namespace: str = "shop.orders") -> Message:
    return Message(Op.INSERT, Micros(1), namespace, data, before)


def stored(messages: Iterable[Message]) -> list[Message]:
    """Messages after their way through the bytes of frames."""
    return [
        message
        for batch in batches_of(messages)
        for message in message_rows(
            decode_body(encode_frame(batch, Codec.LZ4)[1]), batch.namespace, encode_frame(batch, Codec.LZ4)[0].origin
        )
    ]


def isnan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def is_same(kept: Any, given: Any) -> bool:
    """Equal, and of the same type all the way down; nan is itself."""
    if isinstance(given, dict):
        return (
            isinstance(kept, dict)
            and kept.keys() == given.keys()
            and all(is_same(kept[name], given[name]) for name in given)
        )
    if isinstance(given, list):
        return isinstance(kept, list) and len(kept) == len(given) and all(map(is_same, kept, given))
    return type(kept) is type(given) and (kept == given or (isnan(kept) and isnan(given)))


def assert_same(kept: Sequence[Message], given: Sequence[Message]) -> None:
    assert len(kept) == len(given)
    for one, other in zip(kept, given, strict=True):
        for field in ("data", "before"):
            assert is_same(getattr(one, field), getattr(other, field)), (one, other)
        assert (one.op, one.timestamp, one.namespace, one.origin) == (
            other.op,
            other.timestamp,
            other.namespace,
            other.origin,
        )
        assert (one.lsn, one.tx, one.destinations) == (other.lsn, other.tx, other.destinations)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.sampled_from(["id", "name", "größe", "a.b", "", "n\0"])
KINDS: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), I64_MAX),
    st.floats(),
    st.booleans(),
    TEXT,
    st.binary(max_size=8),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000)),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=4),
]


def values_of_one_kind(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value, or lists and documents of such values in which every list is of one kind."""
    plain = st.none() | kind
    return st.one_of(
        plain,
        st.lists(plain, max_size=3),
        st.lists(st.lists(plain, max_size=2), max_size=2),
        st.dictionaries(NAMES, plain, max_size=3),
        st.lists(st.fixed_dictionaries({"x": plain, "y": st.lists(plain, max_size=2)}), max_size=2),
    )


VALUES = st.one_of([values_of_one_kind(kind) for kind in KINDS])
ROWS = st.none() | st.dictionaries(NAMES, VALUES, max_size=4)
MESSAGES = st.builds(
    Message,
    op=st.sampled_from(Op),
    timestamp=st.integers(0, SECONDS_MAX * 1_000_000).map(Micros),
    namespace=st.sampled_from(["shop.orders", "shop.users"]),
    data=ROWS,
    before=ROWS,
    origin=st.sampled_from([NodeId(0), NodeId(U64_MAX)]),
    lsn=st.integers(0, I64_MAX).map(Lsn),
    tx=st.none() | TEXT,
    destinations=st.lists(st.sampled_from(["north", "south", "ost"]), max_size=2, unique=True).map(tuple),
)


@given(st.lists(MESSAGES, max_size=6))
@example([insert({"a": 1}), insert({"a": None}), insert({}), insert({"a": 2.5}), insert({"a": "x"}), insert(None)])
@example([insert({"a": I64_MAX}), insert({"a": 0.5}), insert({"a": -(2**63)})])
@example([insert({"a": True}), insert({"a": 1}), insert({"a": b"x"}), insert({"a": "x"})])
@example([insert({"a": {"b": 1}}), insert({"a": {"c": 1}}), insert({"a": {"b": None, "c": 1}})])
@example([insert({"a": date(2020, 1, 1)}), insert({"a": datetime(2020, 1, 1)}), insert({"a": time(1)})])
@example([insert({"a": datetime(2020, 1, 1)}), insert({"a": datetime(2020, 1, 1, tzinfo=UTC)})])
@example([insert({"a": Decimal("1.5")}), insert({"a": 1}), insert({"a": 1.5})])
@example([insert({"a": 1}, before={"a": 1}), insert({"a": 1}, before={"a": 2.5})])
@example([insert({"a": 1}, before={"a": {"b": 1}}), insert({"a": 1}, before={"a": {"c": 1}})])
def test_messages_come_back_exactly_as_they_went_in(messages: list[Message]) -> None:
    assert_same(stored(messages), messages)


MIXED = st.recursive(
    st.none() | st.one_of(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def is_equal(kept: Any, given: Any) -> bool:
    """Equal; an integer among fractions may have become one."""
    if isinstance(given, dict):
        return (
            isinstance(kept, dict)
            and kept.keys() == given.keys()
            and all(is_equal(kept[name], given[name]) for name in given)
        )
    if isinstance(given, list):
        return isinstance(kept, list) and len(kept) == len(given) and all(map(is_equal, kept, given))
    return bool(kept == given or (isnan(kept) and isnan(given)))


@given(st.lists(st.dictionaries(NAMES, MIXED, max_size=3), min_size=1, max_size=3))
@example([{"a": [1, 2.5]}])
@example([{"a": [{"x": 1}, {"y": 2}]}])
@example([{"a": [date(2020, 1, 1), datetime(2020, 1, 1, 5)]}])
@example([{"a": [b"x", "x"]}])
@example([{"a": [timedelta(1), 1]}])
@example([{"a": [[1], [{}]]}])
def test_any_document_is_kept_as_it_is_or_refused(documents: list[dict[str, Any]]) -> None:
    try:
        kept = stored(map(insert, documents))
    except TailraceError as refusal:
        assert refusal.code == "message.invalid"
        return
    assert all(is_equal(one.data, other) for one, other in zip(kept, documents, strict=True))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(["x", b"x"], id="text and bytes in a list"),
        pytest.param([date(2020, 1, 1), datetime(2020, 1, 1, 5)], id="days and moments in a list"),
        pytest.param([timedelta(1), 1], id="spans and numbers in a list"),
        pytest.param({1: 2}, id="a field whose name is no text"),
        pytest.param({1, 2}, id="a set"),
        pytest.param(1 + 2j, id="a complex number"),
        pytest.param(Decimal("NaN"), id="not a number"),
        pytest.param(Decimal(10) ** 80, id="a decimal of 81 digits"),
    ],
)
def test_value_that_would_change_is_refused_by_name(value: Any) -> None:
    with refused("message.invalid", saying="'shop.orders'"):
        list(batches_of([insert({"a": 1}), insert({"a": value}), insert({"a": 2})]))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{"x": 1}, {"y": 2}], id="documents of different fields in a list"),
        pytest.param([1, "x", None, [True]], id="values of all kinds in a list"),
        pytest.param({"deep": [{"x": [1, "y"]}, {}]}, id="differences deep inside"),
        pytest.param(2**63, id="a number of 64 bits and no sign"),
        pytest.param(-(2**200), id="a number of 200 bits"),
        pytest.param([2**53 + 1, 0.5], id="a number that would lose digits beside a fraction"),
        pytest.param("\ud800", id="half a character"),
        pytest.param(UUID(int=1), id="an identifier"),
    ],
)
def test_value_without_a_column_of_its_own_is_kept_all_the_same(value: Any) -> None:
    messages = [insert({"a": 1}), insert({"a": value, "b": 2}, before={"a": value}), insert({"a": 2})]
    assert_same(stored(messages), messages)


def test_row_that_is_no_document_is_refused() -> None:
    no_document: Any = [1]
    for message in (insert(no_document), insert({"a": 1}, before=no_document)):
        with refused("message.invalid"):
            list(batches_of([message]))


def test_numbers_of_other_libraries_become_pythons() -> None:
    given = {"i": np.int32(7), "f": np.float64("nan"), "l": np.array([1, 2]), "t": (1, 2), "b": bytearray(b"x")}
    (kept,) = stored([insert(given)])
    assert is_same(kept.data, {"i": 7, "f": float("nan"), "l": [1, 2], "t": [1, 2], "b": b"x"})


def test_like_messages_share_a_batch_and_others_follow_in_order() -> None:
    messages = [insert({"a": n}) for n in range(50)] + [insert({"a": "x"})] + [insert({"a": n}) for n in range(50)]
    batches = list(batches_of(messages))
    assert_same(stored(messages), messages)
    assert len(batches) < 20
    assert sum(map(len, batches)) == 101


def test_batch_is_of_one_namespace_and_one_origin() -> None:
    a, b = insert({"n": 1}, namespace="a"), insert({"n": 1}, namespace="b")
    other = Message(Op.INSERT, Micros(1), "b", {"n": 1}, origin=NodeId(4))
    batches = list(batches_of([a, a, b, other, a], Mode.COPY))
    assert [(batch.namespace, batch.origin, len(batch)) for batch in batches] == [
        ("a", 0, 2),
        ("b", 0, 1),
        ("b", 4, 1),
        ("a", 0, 1),
    ]
    assert {batch.mode for batch in batches} == {Mode.COPY}


def test_split_messages_keep_their_order_in_the_log(tmp_path: Path) -> None:
    values: list[Any] = [1, 2.5, "x", None, b"y", True, [1], {"z": 1}, Decimal("1.5"), 7]
    messages = [insert({"a": value}) for value in values]
    with CommitLog.open(tmp_path) as log:
        assert log.append_messages(messages) == (0, len(values))
    entries = list(LogReader(tmp_path).entries())
    assert [entry.offset for entry in entries] == list(range(len(values)))
    assert_same([entry.message for entry in entries], messages)
    heads = [frame.head for frame in LogReader(tmp_path).frames()]
    assert len(heads) > 1
    assert [head.closes_group for head in heads] == [False] * (len(heads) - 1) + [True]


def test_head_tells_what_the_rows_hold() -> None:
    messages = [
        Message(Op.UPDATE, Micros(9), "a", {"n": 1}, lsn=Lsn(7), destinations=("west", "east")),
        Message(Op.UPDATE, Micros(4), "a", {"n": 2}, lsn=Lsn(3), destinations=("east",)),
        Message(Op.UPDATE, Micros(5), "a", {"n": 3}, lsn=Lsn(5)),
    ]
    (batch,) = batches_of(messages, Mode.COMPLETE)
    head, body = encode_frame(batch, Codec.LZ4)
    assert (head.messages, head.span, head.mode, head.op) == (3, 3, Mode.COMPLETE, Op.UPDATE)
    assert (head.timestamp, head.first_lsn, head.last_lsn) == (9, 3, 7)
    assert head.destinations == ("east", "west")
    assert head.body_bytes == body.size
    mixed = [*messages, Message(Op.DELETE, Micros(1), "a", {"n": 4})]
    (batch,) = batches_of(mixed)
    assert encode_frame(batch, Codec.LZ4)[0].op is None


def columns(**changes: Any) -> pa.RecordBatch:
    """The columns of one message, some of them other ones or left out."""
    given: dict[str, Any] = {
        "op": pa.array([0], pa.int8()),
        "timestamp": pa.array([1], TIMESTAMP),
        "lsn": pa.array([0], pa.int64()),
        "data": pa.array([{"n": 1}]),
        **changes,
    }
    return pa.RecordBatch.from_pydict({name: column for name, column in given.items() if column is not None})


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        pytest.param(columns(lsn=None), "no column lsn", id="missing"),
        pytest.param(columns(extra=pa.array([1])), "'extra' that nobody knows", id="unknown"),
        pytest.param(columns(op=pa.array([0], pa.int64())), "op is int64", id="wrong type"),
        pytest.param(columns(timestamp=pa.array([0], pa.timestamp("us"))), "timestamp", id="no time zone"),
        pytest.param(columns(data=pa.array(["x"])), "not a struct", id="data is no document"),
        pytest.param(columns(before=pa.array([1])), "not a struct", id="before is no document"),
    ],
)
def test_columns_that_nobody_knows_are_refused(rows: pa.RecordBatch, why: str) -> None:
    with refused("message.invalid", saying=why):
        Batch("a", rows)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        pytest.param(columns(op=pa.array([5], pa.int8())), "log.op_unknown", id="op 5"),
        pytest.param(columns(op=pa.array([-1], pa.int8())), "log.op_unknown", id="op -1"),
        pytest.param(columns(op=pa.array([None], pa.int8())), "message.invalid", id="no op"),
        pytest.param(columns(lsn=pa.array([-1], pa.int64())), "message.invalid", id="lsn below 0"),
        pytest.param(columns(timestamp=pa.array([-1], TIMESTAMP)), "message.invalid", id="before 1970"),
        pytest.param(columns(timestamp=pa.array([None], TIMESTAMP)), "message.invalid", id="no timestamp"),
        pytest.param(columns(destinations=pa.array([["../x"]])), "name.invalid", id="destination is a path"),
        pytest.param(columns(destinations=pa.array([[None]], pa.list_(pa.string()))), "name.invalid", id="no name"),
    ],
)
def test_values_that_nobody_knows_are_refused(rows: pa.RecordBatch, code: str) -> None:
    with refused(code):
        encode_frame(Batch("a", rows), Codec.NONE)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Message(Op.INSERT, Micros(-1), "a", {}), id="before 1970"),
        pytest.param(Message(Op.INSERT, Micros(1), "a", {}, lsn=Lsn(-1)), id="lsn below 0"),
        pytest.param(Message(Op.INSERT, Micros(1), "a", {}, lsn=Lsn(2**63)), id="lsn above 63 bits"),
        pytest.param(Message(Op.INSERT, Micros(1), "a", {}, origin=NodeId(2**64)), id="origin above 64 bits"),
        pytest.param(Message(Op.INSERT, Micros(1), "a", {}, origin=NodeId(-1)), id="origin below 0"),
        pytest.param(Message(Op.INSERT, Micros(2**63), "a", {}), id="timestamp above 63 bits"),
    ],
)
def test_numbers_out_of_range_are_refused_and_nothing_is_appended(tmp_path: Path, message: Message) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append([numbered(1)])
        with refused("message.invalid"):
            log.append_messages([insert({"n": 7}), message])
        log.append([numbered(2)])
    assert log_numbers(tmp_path) == [1, 2]


def test_message_above_the_limit_is_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append([numbered(1)])
        with refused("log.frame_too_long"):
            log.append_messages([insert({"n": 7}), insert({"blob": np.random.default_rng(4).bytes(FRAME_BYTES_MAX)})])
        log.append([numbered(2)])
    assert log_numbers(tmp_path) == [1, 2]


def test_batch_above_the_limit_is_split(tmp_path: Path) -> None:
    """80 MiB that no codec makes shorter, the rows of very different length."""
    noise = np.random.default_rng(4).bytes(8 * MIB)
    sizes = [16 * MIB, 1, 24 * MIB, 8 * MIB, 0, 30 * MIB, 2 * MIB] + [KIB] * 20
    blobs = [(noise * 4)[:size] for size in sizes]
    data = pa.RecordBatch.from_pydict({"n": pa.array(range(len(sizes)), pa.int64()), "blob": pa.array(blobs)})
    with CommitLog.open(tmp_path) as log:
        log.append([batch_of("a", data, timestamp=Micros(1))])
    reader = LogReader(tmp_path)
    frames = list(reader.frames())
    assert len(frames) > 2
    assert max(frame.head.frame_bytes for frame in frames) <= FRAME_BYTES_MAX
    assert [frame.head.closes_group for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert numbers(reader.entries()) == [(n, n) for n in range(len(sizes))]
    kept = [len(entry.message.data["blob"]) for entry in reader.entries() if entry.message.data is not None]
    assert kept == sizes


def test_batch_of_too_many_rows_is_split() -> None:
    count = FRAME_ROWS_MAX * 2 + 3
    data = pa.RecordBatch.from_pydict({"n": pa.array(range(count), pa.int32())})
    pieces = list(batch_of("a", data, timestamp=Micros(1)).pieces())
    assert max(map(len, pieces)) <= FRAME_ROWS_MAX
    joined = pa.Table.from_batches([piece.rows for piece in pieces])
    assert joined.num_rows == count
    assert [joined["data"][at].as_py()["n"] for at in (0, FRAME_ROWS_MAX, count - 1)] == [0, FRAME_ROWS_MAX, count - 1]
    firsts = [piece.rows.column("lsn")[0].as_py() for piece in pieces]
    assert firsts[0] == 0
    assert all(after - before == len(piece) for (before, after), piece in zip(pairwise(firsts), pieces, strict=False))


def test_slice_of_a_large_batch_is_small_in_the_log() -> None:
    """A slice shares the memory of the whole; only its own rows may be written."""
    data = pa.RecordBatch.from_pydict({"n": pa.array(range(100_000), pa.int64())})
    whole = batch_of("a", data, timestamp=Micros(1))
    head, _ = encode_frame(whole.slice(500, 10), Codec.NONE)
    assert head.body_bytes < 4 * KIB
    assert (head.messages, head.first_lsn, head.last_lsn) == (10, 500, 509)


@pytest.mark.parametrize("codec", Codec)
def test_body_comes_back_from_every_codec(codec: Codec) -> None:
    rows = batch_of(
        "a", pa.RecordBatch.from_pydict({"n": pa.array(range(50_000), pa.int64())}), timestamp=Micros(1)
    ).rows
    body, used = encode_body(rows, codec)
    assert used is codec
    assert (body.size < rows.nbytes) is (codec is not Codec.NONE)
    assert decode_body(body).equals(rows)


def test_small_batch_is_not_compressed() -> None:
    rows = numbered(1, 2, 3).rows
    assert rows.nbytes < COMPRESS_BYTES_MIN
    assert encode_body(rows, Codec.ZSTD)[1] is Codec.NONE


def test_empty_batch_adds_nothing(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        assert log.append([numbered()]) == (0, 0)
        assert log.append([numbered(1), numbered(), numbered(2)]) == (0, 2)
        assert log.append([]) == (2, 2)
    assert log_numbers(tmp_path) == [1, 2]


def test_key_travels_with_the_rows(tmp_path: Path) -> None:
    data = pa.RecordBatch.from_pydict({"id": [1], "part": ["x"]})
    with CommitLog.open(tmp_path) as log:
        log.append([batch_of("a", data, timestamp=Micros(1), key=("id", "part"))])
    (frame,) = LogReader(tmp_path).frames()
    assert key_of(frame.rows().schema) == ("id", "part")
    assert key_of(numbered(1).rows.schema) == ()
    assert with_key(numbered(1).rows, ()).schema.metadata is None
