"""Columns as JSON: what is written reads back as it was."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.adaptor.files.columns import batches_of_documents
from tailrace.adaptor.files.jsontext import json_of, json_of_struct, lines_of
from tests.adaptor.files.test_jsonlines import DOCUMENTS, without_nulls

UTF8 = st.text(st.characters(codec="utf-8"))


def read_back(column: pa.Array[Any]) -> list[Any]:
    texts = json_of(column)
    assert texts.null_count == 0
    return [json.loads(text.as_py()) for text in texts]


@given(st.lists(UTF8 | st.none() | st.sampled_from(['"', "\\", '\\"', "\n", "\x00\x1f\x7f", "\u2028"])))
def test_text(values: list[str | None]) -> None:
    assert read_back(pa.array(values, pa.string())) == values
    assert read_back(pa.array(["left out", *values], pa.string())[1:]) == values
    assert read_back(pa.array(values, pa.string()).dictionary_encode()) == values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none()))
def test_doubles_are_the_same_and_stay_doubles(values: list[float | None]) -> None:
    found = read_back(pa.array(values, pa.float64()))
    assert [repr(value) for value in found] == [repr(value) for value in values]


def test_what_is_no_number_is_text() -> None:
    column = pa.array([math.nan, math.inf, -math.inf, 1.0, None])
    assert read_back(column) == ["NaN", "Infinity", "-Infinity", 1.0, None]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()))
def test_whole_numbers(values: list[int | None]) -> None:
    assert read_back(pa.array(values, pa.int64())) == values


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=4, max_value=10**20, min_value=-(10**20))))
def test_decimals_keep_their_digits(values: list[Decimal]) -> None:
    texts = json_of(pa.array(values, pa.decimal128(38, 4)))
    assert [json.loads(text.as_py(), parse_float=Decimal) for text in texts] == values


@given(st.lists(st.none() | st.lists(st.none() | st.lists(st.integers(-5, 5) | st.none(), max_size=3), max_size=3)))
def test_lists(values: list[Any]) -> None:
    column = pa.array(values, pa.list_(pa.list_(pa.int64())))
    assert read_back(column) == values
    assert read_back(column[1:]) == values[1:]
    assert read_back(column.cast(pa.large_list(pa.large_list(pa.int64())))) == values


@given(st.lists(st.binary() | st.none()))
def test_bytes(values: list[bytes | None]) -> None:
    found = read_back(pa.array(values, pa.binary()))
    assert [None if text is None else base64.b64decode(text) for text in found] == values


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", None])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments(zone: str | None, unit: Any) -> None:
    moment = datetime(1969, 2, 28, 23, 59, 58, tzinfo=UTC)
    values: Any = pa.array([moment.replace(tzinfo=None), None]).cast(pa.timestamp(unit))
    column = values if zone is None else pa.array([moment, None], pa.timestamp(unit, zone))
    text, nothing = read_back(column)
    assert nothing is None
    assert text.endswith("Z") == (zone is not None)
    assert datetime.fromisoformat(text).replace(tzinfo=UTC) == moment


def test_nothing_at_all() -> None:
    assert read_back(pa.nulls(2)) == [None, None]
    assert bytes(lines_of(json_of(pa.array([], pa.string())))) == b""
    empty: Any = pa.array([{}, None], pa.struct([]))
    assert [text.as_py() for text in json_of_struct(empty)] == ["{}", "null"]


@given(DOCUMENTS)
def test_documents(documents: list[Any]) -> None:
    """From documents to columns to text: nested ones, and those that are kept as JSON text, too."""
    lines = b"".join(
        lines_of(json_of_struct(batch.to_struct_array()))
        for batch in batches_of_documents(documents, keep_missing=False)
    )
    found = [json.loads(line) for line in lines.split(b"\n")[:-1]]
    assert [without_nulls(row) for row in found] == [without_nulls(row) for row in documents]
