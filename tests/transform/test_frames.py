"""sql and the DataFrame form of python, on Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.transform import python, sql
from tailrace.transform.options import Missing
from tailrace.transform.python import PythonFrame
from tests.log.refusals import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """offset long, op tinyint, timestamp timestamp, lsn long, tx string, namespace string,
    data struct<id: long, price: double, address: struct<city: string>>, before struct<id: long>"""
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rows = [
        (100, 0, NOON, 1, None, "shop.orders", (1, 2.5, ("Rome",)), None),
        (101, 1, NOON, 2, "t1", "shop.orders", (2, 4.0, None), (2,)),
        (102, 2, NOON, 3, "t1", "shop.orders", (3, None, None), None),
        (103, 2, NOON, 4, None, "shop.orders", None, (4,)),
    ]
    return spark.newSession().createDataFrame(rows, SCHEMA)


def collected(frame: DataFrame) -> dict[int, Any]:
    """The documents by offset."""
    return {row["offset"]: row["data"] and row["data"].asDict(recursive=True) for row in frame.collect()}


def applied(query: str, frame: DataFrame, missing: Missing = "ignore") -> DataFrame:
    return sql(query, missing=missing).apply_frame(frame, "shop.orders")


def test_fields_are_selected_and_rows_filtered(frame: DataFrame) -> None:
    after = applied("SELECT id, price * 2 AS price FROM messages WHERE price > 3", frame)
    assert after.columns == frame.columns
    (row,) = after.collect()
    assert row.asDict(recursive=True) == {
        "offset": 101,
        "op": 1,
        "timestamp": row["timestamp"],
        "lsn": 2,
        "tx": "t1",
        "namespace": "shop.orders",
        "data": {"id": 2, "price": 8.0},
        "before": {"id": 2},
    }
    assert after.drop("data").schema == frame.drop("data").schema


def test_star_is_the_fields(frame: DataFrame) -> None:
    after = applied("SELECT * FROM messages", frame)
    assert collected(after) == collected(frame)
    assert after.schema["data"].dataType.simpleString() == frame.schema["data"].dataType.simpleString()
    more = collected(applied("SELECT *, _op AS op FROM messages m WHERE m.id = 1", frame))
    assert more == {100: {"id": 1, "price": 2.5, "address": {"city": "Rome"}, "op": "insert"}}
    assert collected(applied("SELECT m.* EXCEPT (price, address) FROM messages m WHERE id < 3", frame)) == {
        100: {"id": 1},
        101: {"id": 2},
    }


def test_what_else_there_is(frame: DataFrame) -> None:
    after = applied(
        "SELECT _op, _offset, _namespace, _timestamp AS at, address.city FROM messages WHERE _op <> 'delete'", frame
    )
    assert {
        offset: (row["_op"], row["_offset"], row["_namespace"], row["city"]) for offset, row in collected(after).items()
    } == {
        100: ("insert", 100, "shop.orders", "Rome"),
        101: ("update", 101, "shop.orders", None),
    }


def test_ops_may_be_text(frame: DataFrame) -> None:
    texts = frame.selectExpr("offset", "'update' AS op", "timestamp", "namespace", "data")
    assert collected(applied("SELECT _op FROM messages WHERE id = 1", texts)) == {100: {"_op": "update"}}


def test_fields_of_the_same_name_come_first(frame: DataFrame) -> None:
    own = frame.selectExpr(
        "offset", "op", "timestamp", "namespace", "named_struct('_op', 'mine', 'id', data.id) AS data"
    )
    assert collected(applied("SELECT * FROM messages WHERE id = 1", own)) == {100: {"_op": "mine", "id": 1}}


def test_one_after_the_other(frame: DataFrame) -> None:
    first = applied("SELECT id, price + 1 AS price FROM messages", frame)
    assert collected(applied("SELECT price FROM messages WHERE id = 1", first)) == {100: {"price": 3.5}}


def test_no_rows(frame: DataFrame) -> None:
    after = applied("SELECT id FROM messages", frame.limit(0))
    assert after.collect() == []
    assert after.schema["data"].dataType.simpleString() == "struct<id:bigint>"


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("SELECT id, nope AS n, m.nope, price * far.away AS far FROM messages m WHERE m.`x.y` IS NULL", {"far": None}),
        ("SELECT id, far.away, far.near, address.geo.x FROM messages", {"away": None, "near": None, "x": None}),
        ("SELECT id, nope FROM messages WHERE coalesce(messages.nope, 'there') = 'there'", {}),
    ],
)
def test_fields_that_a_namespace_lacks(
    frame: DataFrame, query: str, row: dict[str, None], caplog: pytest.LogCaptureFixture
) -> None:
    """They are NULL, and a column that is nothing else is not there: an update must not make it NULL."""
    for _ in range(2):
        assert collected(applied(f"{query} AND id = 1" if "WHERE" in query else query, frame))[100] == {"id": 1, **row}
    told = [record.getMessage() for record in caplog.records]
    assert told and len(told) == len(set(told))
    assert all("shop.orders has no field" in line for line in told)


def test_a_lacking_field_beside_a_star(frame: DataFrame) -> None:
    after = applied("SELECT *, nope FROM messages WHERE lower(nope) IS NULL", frame)
    assert collected(after) == collected(frame)
    assert collected(applied("SELECT nope FROM messages WHERE id = 1", frame)) == {100: {"nope": None}}


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT nope FROM messages", "nope"),
        ("SELECT nofunction(id) FROM messages", "UNRESOLVED_ROUTINE"),
        ("SELECT id, price AS id FROM messages", "same name"),
        ("SELECT id id id FROM messages", "PARSE_SYNTAX_ERROR"),
        ("SELECT bit_xor(id) FROM messages", "MISSING_GROUP_BY"),
    ],
)
def test_queries_that_fail_say_why(frame: DataFrame, query: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with refused("function.failed", saying=why) as refusal:
        applied(query, frame, "error")
    assert "\n" not in refusal.value.what
    assert query in refusal.value.what
    assert capfd.readouterr().err == "", "Spark told it, too"


def cheap(frame: DataFrame) -> DataFrame:
    return frame.where("data.price < 3")


def test_own_function_on_a_frame(frame: DataFrame) -> None:
    by_name = PythonFrame.model_validate("tests.transform.test_frames:cheap")
    itself = python(cheap, frame=True)
    assert isinstance(itself, PythonFrame)
    for function in (by_name, itself):
        assert list(collected(function.apply_frame(frame, "shop.orders"))) == [100]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda frame: frame.drop("offset"), "returned a DataFrame without offset"),
        (lambda frame: frame.select("offset"), "without op, data"),
        (lambda frame: 5, "returned int"),
        (lambda frame: frame.where(1 / 0), "ZeroDivisionError: division by zero (test_frames.py, line "),
    ],
)
def test_own_function_that_goes_wrong(frame: DataFrame, function: Callable[[Any], Any], why: str) -> None:
    made = python(function, frame=True)
    assert isinstance(made, PythonFrame)
    with refused("function.failed", saying=why):
        made.apply_frame(frame, "shop.orders")
