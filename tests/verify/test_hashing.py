"""Equal values have equal hashes, whatever their columns are; others do not."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.verify.hashing import hash_column, hash_values

AT = datetime(2026, 3, 1, 12, 30, 15, 123_456)
EQUAL: list[list[pa.Array[Any]]] = [
    [
        pa.array([5], pa.int8()),
        pa.array([5], pa.uint64()),
        pa.array([5.0], pa.float32()),
        pa.array([Decimal("5.00")], pa.decimal128(10, 2)),
        pa.array([5]).dictionary_encode(),
    ],
    [pa.array([1], pa.int64()), pa.array([True])],
    [pa.array([0.1]), pa.array([Decimal("0.1")])],
    [pa.array([2**63], pa.uint64()), pa.array([Decimal(2**63)], pa.decimal128(20, 0))],
    [pa.array(["ü"]), pa.array(["ü"], pa.large_string()), pa.array(["ü"], pa.string_view())],
    [pa.array([b"\x00"]), pa.array([b"\x00"], pa.binary(1)), pa.array([b"\x00"], pa.large_binary())],
    [
        pa.array([AT], pa.timestamp("us")),
        pa.array([AT], pa.timestamp("ns")),
        pa.array([AT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        pa.array([AT.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=2)))], pa.timestamp("us", "+02:00")),
    ],
    [pa.array([date(2026, 3, 1)], pa.date32()), pa.array([date(2026, 3, 1)], pa.date64())],
    [pa.array([{"a": 1, "b": [1.5]}]), pa.array([{"b": [1.5], "a": 1.0}])],
    [pa.array([None]), pa.array([None], pa.int64()), pa.array([None], pa.string()), pa.array([None], pa.float64())],
]


@pytest.mark.parametrize("columns", EQUAL, ids=lambda columns: str(columns[0][0]))
def test_equal_values_of_different_types(columns: list[pa.Array[Any]]) -> None:
    assert len({int(hash_column(column)[0]) for column in columns}) == 1


def test_different_values_differ() -> None:
    columns = [group[0] for group in EQUAL]
    values: list[Any] = ["5", b"5", "1", 0.5, "", b"", "null", float("nan"), float("inf"), -1]
    others = [pa.array([value]) for value in values]
    assert len({int(hash_column(column)[0]) for column in [*columns, *others]}) == len(columns) + len(others)


def test_json_stands_for_its_values() -> None:
    texts = pa.array(["5", '"5"', '{"$binary": "AA=="}', '{"$real": "inf"}', None])
    assert hash_column(texts, is_json=True).tolist() == hash_values([5, "5", b"\x00", float("inf"), None]).tolist()


def test_only_loosely_is_text_a_number() -> None:
    texts = pa.array(["5", "5.0", "5e0", "true", "five", "1 2", None])
    loose = hash_column(texts, is_loose=True).tolist()
    assert loose[:4] == [*hash_values([5, 5, 5, 1]).tolist()]
    assert loose[4:] == hash_column(texts).tolist()[4:]
    assert hash_column(texts).tolist()[0] != hash_values([5])[0]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_columns_and_single_values_agree(values: list[int | None]) -> None:
    column = pa.array(values, pa.int64())
    assert np.array_equal(hash_column(column), hash_values(values))
    assert np.array_equal(hash_column(column.slice(1)), hash_values(values[1:]))


@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1))
def test_floats_agree(values: list[float | None]) -> None:
    assert np.array_equal(hash_column(pa.array(values, pa.float64())), hash_values(values))


@given(st.lists(st.one_of(st.none(), st.text(), st.just("x" * 5000)), min_size=1))
def test_texts_agree(values: list[str | None]) -> None:
    """One by one, as a column and as a slice of one."""
    column = pa.array([*values, "rest"], pa.string()).slice(0, len(values))
    single = [int(hash_values([value])[0]) for value in values]
    assert hash_column(column).tolist() == single
    assert hash_column(column.slice(1)).tolist() == single[1:]
    assert len(set(single)) == len(set(values))


def test_texts_that_look_alike_differ() -> None:
    texts = ["", "\0", "\0\0", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "ihgfedcba", "x" * 4096, "x" * 4097]
    assert len(set(hash_column(pa.array(texts)).tolist())) == len(texts)
    views = hash_column(pa.array(texts, pa.string_view()))
    assert views.tolist() == hash_column(pa.array(texts)).tolist()
