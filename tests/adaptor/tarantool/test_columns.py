"""Columns out of msgpack: what is read at once is what is read one by one."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from msgpack import ExtType

from tailrace.adaptor.tarantool import columns, frames, iproto, tuples
from tailrace.adaptor.tarantool.catalog import Column, Space
from tailrace.adaptor.tarantool.iproto import packed
from tailrace.adaptor.tarantool.types import Numbers
from tailrace.errors import TailraceError

SPACE = Space(
    512,
    "t",
    (
        Column("u", "unsigned"),
        Column("i", "integer"),
        Column("n", "number"),
        Column("s", "string"),
        Column("b", "boolean"),
        Column("v", "varbinary"),
        Column("d", "decimal"),
        Column("a", "any"),
    ),
    (),
)
NOTHING = some.none()
DECIMAL = ExtType(1, b"\x02\x01\x2d")
ROWS = some.lists(
    some.tuples(
        some.integers(0, 2**64 - 1) | NOTHING,
        some.integers(-(2**63), 2**63 - 1) | NOTHING,
        some.floats(allow_nan=False) | some.integers(-(2**53), 2**53) | NOTHING,
        some.text(max_size=300) | NOTHING,
        some.booleans() | NOTHING,
        some.binary(max_size=300) | NOTHING,
        some.just(DECIMAL) | NOTHING,
        some.text(max_size=3) | some.integers(0, 300) | some.lists(some.integers(0, 3), max_size=2) | NOTHING,
        some.integers(-5, 5) | NOTHING,
    ),
    max_size=20,
)


@given(ROWS, some.data())
@example([], None)
def test_at_once_and_one_by_one(rows: list[tuple[Any, ...]], data: Any) -> None:
    cut = [list(row[: data.draw(some.integers(0, 9))]) if data else list(row) for row in rows]
    run = b"".join(frames.row_frame(512, packed(row)) for row in cut)
    at_once: Any = tuples.of_frames(SPACE, Numbers.DOUBLE, run)
    one_by_one: Any = tuples.of_rows(SPACE, Numbers.DOUBLE, cut)
    assert at_once.to_pylist() == one_by_one.to_pylist()


@pytest.mark.parametrize("edge", [0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1])
def test_whole_numbers_of_every_length(edge: int) -> None:
    rows = [[edge, -edge - 1, edge if edge <= 2**53 else 0.5] for _ in range(3)]
    made: Any = tuples.of_frames(SPACE, Numbers.DOUBLE, b"".join(frames.row_frame(512, packed(row)) for row in rows))
    assert [(row["u"], row["i"], row["n"]) for row in made.to_pylist()] == [tuple(row) for row in rows]


def test_a_text_that_is_none() -> None:
    run = frames.row_frame(512, b"\x94\x01\x01\x01\xa2\xff\xfe")
    with pytest.raises(TailraceError, match="column s"):
        tuples.of_frames(SPACE, Numbers.DOUBLE, run)


def test_fields_that_reach_too_far() -> None:
    """A length that a tuple has no room for is not believed."""
    octets = np.frombuffer(b"\x91\xdb\x7f\xff\xff\xff" + bytes(9), np.uint8)
    assert columns.fields_of(octets, np.array([0]), np.array([6]), 10) is None


@given(
    some.lists(some.tuples(some.sampled_from([272, 280, 512, 513]), some.binary(min_size=1, max_size=9)), max_size=30)
)
def test_runs(rows: list[tuple[int, bytes]]) -> None:
    ok = iproto.encode({0: 0, 1: 3}, {0x26: {1: 5}})
    data = b"".join(frames.row_frame(space, b"\x91\xc4" + bytes([len(blob)]) + blob) for space, blob in rows) + ok
    starts, end = frames.starts_of(data + ok[:7])
    assert (starts.tolist(), end) == frames.walk(data + ok[:7])
    assert (len(starts), end) == (len(rows) + 1, len(data))
    runs = list(frames.runs_of(data, starts, end))
    assert [run.space for run in runs for _ in range(run.rows)] == [*(space for space, _ in rows), None]
    assert b"".join(data[run.start : run.end] for run in runs) == data
    assert data[runs[-1].start :] == ok


def test_a_length_that_is_too_long() -> None:
    with pytest.raises(TailraceError, match="says that it has"):
        frames.starts_of(struct.pack(">BI", 0xCE, iproto.PACKET_BYTES_MAX + 1))
    with pytest.raises(TailraceError, match="does not begin with its length"):
        frames.starts_of(b"\x01\x00\x00\x00\x00")


def test_types() -> None:
    schema = SPACE.table(Numbers.TEXT).schema
    assert schema.field("n").type == pa.string()
    assert schema.field("d").metadata == {b"tailrace.sql": b"numeric"}
