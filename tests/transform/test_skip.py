"""skip: keeps what the condition holds for, compares exactly, and says what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.transform import skip
from tailrace.transform.skip import Skip
from tests.log.refusals import refused
from tests.transform.material import (
    DELETE,
    INSERT,
    UPDATE,
    column,
    data_of,
    json_field,
    messages_of,
    messages_with,
    offsets_of,
)

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, ">": gt, ">=": ge, "<": lt, "<=": le}
BIG = 2**53 + 1


def kept(values: Sequence[Any], operator: str, match: Any, kind: pa.DataType | None = None) -> list[Any]:
    """The values that stay."""
    after = skip("v", operator, match).apply(messages_with(column(values, kind)))
    return [row["v"] for row in data_of(after) if row]


def test_keeps_when_true() -> None:
    assert kept([9, 10, 11, None], ">", 10) == [11]


@pytest.mark.parametrize(
    ("sign", "names"),
    [
        ("==", ["eq", "$eq"]),
        ("!=", ["ne", "$ne"]),
        (">", ["gt", "$gt"]),
        (">=", ["gte", "$gte"]),
        ("<", ["lt", "$lt"]),
        ("<=", ["lte", "$lte"]),
    ],
)
def test_every_name_of_an_operator(sign: str, names: list[str]) -> None:
    expected = [value for value in (1, 2, 3) if OPERATORS[sign](value, 2)]
    for name in (sign, *names):
        assert kept([1, 2, 3], name, 2) == expected


@pytest.mark.parametrize(
    ("values", "operator", "match", "kind", "expected"),
    [
        ([BIG, BIG - 1], "==", BIG, pa.int64(), [BIG]),
        ([BIG, BIG - 1], ">", float(BIG - 1), pa.int64(), [BIG]),
        ([2**63, 2**64 - 1], ">", 2**63, pa.uint64(), [2**64 - 1]),
        ([1, 127], "<", 300, pa.int8(), [1, 127]),
        ([1, 127], ">", 300, pa.int8(), []),
        ([1, 127], "!=", 300, pa.int8(), [1, 127]),
        ([0, 1], ">=", -5, pa.uint8(), [0, 1]),
        ([10, 11], ">", 10.5, pa.int64(), [11]),
        ([10, 11], "<=", 10.5, pa.int64(), [10]),
        ([10, 11], "==", 10.0, pa.int64(), [10]),
        ([Decimal("10.50"), Decimal("10.51")], "==", 10.5, pa.decimal128(10, 2), [Decimal("10.50")]),
        ([Decimal("10.10"), Decimal("10.11")], "<=", 10.1, pa.decimal128(10, 2), [Decimal("10.10")]),
        ([Decimal("10.10"), Decimal("10.11")], ">", Decimal("10.101"), pa.decimal128(10, 2), [Decimal("10.11")]),
        ([Decimal("9.99")], "<", 10**40, pa.decimal128(3, 2), [Decimal("9.99")]),
        ([Decimal("9.99")], ">", 10**40, pa.decimal128(3, 2), []),
        ([2.0**53, 2.0**53 + 2], ">", BIG, pa.float64(), [2.0**53 + 2]),
        ([1e308, float("inf")], ">", 10**400, pa.float64(), [float("inf")]),
        ([0.5, 0.25], ">=", 0.5, pa.float32(), [0.5]),
        (["10", "9"], "==", "10", pa.string(), ["10"]),
        (["a", "b"], ">", "a", pa.large_string(), ["b"]),
        (["a", "b"], "==", "b", pa.dictionary(pa.int32(), pa.string()), ["b"]),
        ([True, False], "==", True, pa.bool_(), [True]),
        ([True, False], "!=", True, pa.bool_(), [False]),
        ([None, None], "==", 1, pa.null(), []),
        ([1, 2, 3], "in", [1, 3, 99], pa.int64(), [1, 3]),
        (["a", "b"], "in", ["b"], pa.string(), ["b"]),
        (["order-1", "item-2", None], "=~", "^ord", pa.string(), ["order-1"]),
        (["xyz", "z"], "=~", "y", pa.string(), ["xyz"]),
    ],
)  # fmt: skip
def test_comparisons(values: list[Any], operator: str, match: Any, kind: pa.DataType, expected: list[Any]) -> None:
    assert kept(values, operator, match, kind) == expected


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    "match",
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31 12:00:00",
        "2026-01-31T14:00:00+02:00",
        NOON,
        NOON.astimezone(timezone(timedelta(hours=-5))),
    ],
)
def test_moments(unit: Any, match: Any) -> None:
    moments = [NOON + timedelta(seconds=step) for step in (-1, 0, 1)]
    for kind in (pa.timestamp(unit, "UTC"), pa.timestamp(unit)):
        messages = messages_with(column(moments, kind))
        assert offsets_of(skip("v", ">=", match).apply(messages)) == [101, 102]
        assert offsets_of(skip("v", "==", match).apply(messages)) == [101]


def test_moments_between_two_seconds() -> None:
    messages = messages_with(column([NOON, NOON + timedelta(seconds=1)], pa.timestamp("s", "UTC")))
    assert offsets_of(skip("v", ">", "2026-01-31T12:00:00.5Z").apply(messages)) == [101]


@pytest.mark.parametrize("match", ["2026-01-31", date(2026, 1, 31)])
@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_days(match: Any, kind: pa.DataType) -> None:
    days = [date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 1)]
    assert kept(days, "<=", match, kind) == days[:2]
    assert kept(days, ">", "2026-01-31T12:00:00", kind) == days[2:]


@pytest.mark.parametrize(
    ("kind", "operator", "match"),
    [
        (pa.int64(), "==", "10"),
        (pa.int64(), "==", True),
        (pa.int64(), "=~", "1"),
        (pa.float64(), ">", "x"),
        (pa.string(), "==", 10),
        (pa.string(), "in", ["a", 1]),
        (pa.bool_(), "==", 1),
        (pa.bool_(), ">", False),
        (pa.timestamp("us"), ">", "soon"),
        (pa.timestamp("us"), ">", 10),
        (pa.timestamp("ns"), ">", "2026-01-31T12:00:00.123456789"),
        (pa.decimal128(5, 2), ">", "1.5"),
        (pa.list_(pa.int64()), "==", 1),
        (pa.binary(), "==", "x"),
        (pa.binary(), "==", 1),
    ],
)
def test_what_cannot_be_compared_is_refused(kind: pa.DataType, operator: str, match: Any) -> None:
    messages = messages_with(column([], kind))
    with refused("function.failed", saying=f"field 'v' is {kind}") as refusal:
        skip("v", operator, match).apply(messages)
    assert repr(skip("v", operator, match).match) in refusal.value.what


def test_null_satisfies_nothing_but_deletes_stay() -> None:
    messages = messages_with(column([None, None, None, 1, 1]), ops=[INSERT, UPDATE, DELETE, DELETE, INSERT])
    assert offsets_of(skip("v", "!=", 1).apply(messages)) == [102]
    assert offsets_of(skip("v", "==", 1).apply(messages)) == [102, 103, 104]


def test_nested_and_null_parents() -> None:
    rows = [{"a": {"b": 5}}, None, {"a": None}, {"a": {"b": 1}}]
    messages = messages_of(rows, ops=[INSERT, DELETE, INSERT, INSERT])
    assert offsets_of(skip("a.b", ">", 3).apply(messages)) == [100, 101]
    assert offsets_of(skip("a.b", ">", 3).apply(messages.slice(1, 3))) == [101]


def test_field_that_is_missing() -> None:
    messages = messages_of([{"id": 1}, {"id": 2}], ops=[INSERT, DELETE])
    assert offsets_of(skip("nope", "==", 1).apply(messages)) == [100, 101]
    assert offsets_of(skip("nope", "==", 1, missing="drop").apply(messages)) == [101]
    with refused("function.failed", saying="no field 'nope'; there are: id"):
        skip("nope", "==", 1, missing="error").apply(messages)
    assert len(skip("nope", "==", 1, missing="error").apply(messages.slice(1, 1))) == 1


def test_values_in_json_text() -> None:
    texts = [json.dumps(value) for value in ({"n": 10**30}, {"n": 2.5}, {}, {"n": None})] + [None]
    data = pa.StructArray.from_arrays([pa.array(texts, pa.string())], fields=[json_field("doc")])
    messages = messages_with(data, ops=[INSERT] * 4 + [DELETE])
    assert offsets_of(skip("doc.n", ">", 2).apply(messages)) == [100, 101, 104]
    assert offsets_of(skip("doc.n", "in", [2.5]).apply(messages)) == [101, 104]
    with refused("function.failed", saying="field 'doc.n' is json"):
        skip("doc.n", "==", "2.5").apply(messages)


def test_no_rows_keep_their_columns() -> None:
    messages = messages_with(column([1, 2]))
    assert skip("v", ">", 1).apply(messages.slice(0, 0)).rows.schema == messages.rows.schema


@pytest.mark.parametrize(
    ("operator", "match"),
    [("~", 1), ("in", 5), ("in", []), ("==", [1]), ("=~", "("), ("=~", "(?=x)"), ("==", float("nan")), ("==", None)],
)
def test_options_are_checked(operator: str, match: Any) -> None:
    with refused("config.invalid", saying="skip"):
        skip("v", operator, match)


def test_short_form() -> None:
    assert Skip.model_validate(["total", "gt", 10]) == skip("total", ">", 10)
    assert Skip.model_validate({"field": "v", "operator": "==", "match": "2026-01-31"}).match == "2026-01-31"


numbers = st.integers(-(2**70), 2**70) | st.decimals(allow_nan=False, allow_infinity=False, places=3)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), numbers, st.sampled_from(list(OPERATORS)))
def test_integers_compare_as_in_python(values: list[int], match: Any, sign: str) -> None:
    for near in (match, *values[:2]):
        assert kept(values, sign, near, pa.int64()) == [value for value in values if OPERATORS[sign](value, near)]


@given(st.lists(st.floats(allow_nan=False)), numbers | st.floats(-1e300, 1e300), st.sampled_from(list(OPERATORS)))
def test_floats_compare_as_in_python(values: list[float], match: Any, sign: str) -> None:
    assert kept(values, sign, match, pa.float64()) == [value for value in values if OPERATORS[sign](value, match)]


@given(
    st.lists(st.decimals(-(10**15), 10**15, places=2)),
    st.integers(-(2**70), 2**70) | st.decimals(-(10**17), 10**17, places=4),
    st.sampled_from(list(OPERATORS)),
)
def test_decimals_compare_as_in_python(values: list[Decimal], match: Any, sign: str) -> None:
    expected = [value for value in values if OPERATORS[sign](value, match)]
    assert kept(values, sign, match, pa.decimal128(20, 2)) == expected
