"""Filters: what is judged here is judged as Spark would, and heads never hide a message that is wanted."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tailrace.log.commitlog import CommitLog
from tailrace.log.reader import LogReader
from tailrace.message import Mode, Op, moment
from tailrace.spark.source_filters import conditions_of
from tailrace.spark.source_plan import divide
from tailrace.spark.source_rows import Rows
from tailrace.spark.source_schema import COLUMNS
from tailrace.spark.source_wanted import OneOf, Wanted, Within
from tests.log.material import change


def matches(row: dict[str, Any], condition: Filter) -> bool:
    """What the filter means, message by message."""
    match condition:
        case Not(child):
            return not matches(row, child)
        case EqualTo((name,), value) | EqualNullSafe((name,), value):
            return bool(row[name] == value)
        case In((name,), values):
            return row[name] in values
        case GreaterThan((name,), value):
            return bool(row[name] > value)
        case GreaterThanOrEqual((name,), value):
            return bool(row[name] >= value)
        case LessThan((name,), value):
            return bool(row[name] < value)
        case LessThanOrEqual((name,), value):
            return bool(row[name] <= value)
    raise AssertionError(condition)


def numbers(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    kinds = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    return st.one_of(
        st.builds(lambda kind, value: kind((column,), value), st.sampled_from(kinds), values),
        st.builds(lambda value: Not(EqualTo((column,), value)), values),
        st.builds(lambda chosen: In((column,), tuple(chosen)), st.lists(values, max_size=3)),
    )


def texts(column: str, *values: str) -> st.SearchStrategy[Filter]:
    chosen = st.lists(st.sampled_from(values), max_size=3).map(tuple)
    return st.one_of(
        st.builds(lambda value: EqualTo((column,), value), st.sampled_from(values)),
        st.builds(lambda value: Not(EqualTo((column,), value)), st.sampled_from(values)),
        st.builds(lambda many: In((column,), many), chosen),
        st.builds(lambda many: Not(In((column,), many)), chosen),
    )


FILTERS = st.one_of(
    numbers("offset", st.integers(-2, 40)),
    numbers("lsn", st.integers(-1, 12)),
    numbers("origin", st.integers(0, 3).map(Decimal)),
    numbers("timestamp", st.integers(0, 12).map(lambda second: datetime.fromtimestamp(second, UTC))),
    texts("namespace", "a", "b", "zzz"),
    texts("op", "insert", "update", "delete", "command", "upsert"),
    texts("mode", "sync", "copy"),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of one op and of several, times that go back, several segments."""
    directory = tmp_path_factory.mktemp("filters") / "log"
    ops = (Op.INSERT, Op.INSERT, Op.DELETE, Op.UPDATE, Op.COMMAND)
    with CommitLog.open(directory) as log:
        for group in range(10):
            if group in (4, 7):
                log.roll()
            many = [
                change(
                    "ab"[group % 3 == 1],
                    number,
                    op=ops[(group * number) % len(ops)],
                    at_s=(group * 7 + number) % 11,
                    origin=group % 3,
                    lsn=group + number,
                )
                for number in range(3)
            ]
            log.append_messages(many, Mode.COPY if group < 2 else Mode.SYNC)
    return directory


@given(filters=st.lists(FILTERS, min_size=1, max_size=3))
def test_pushed_filters_give_the_messages_that_spark_would_keep(directory: Path, filters: list[Filter]) -> None:
    conditions, left = conditions_of(filters)
    assert left == []
    wanted = Wanted(conditions=tuple(conditions))
    reader = LogReader(directory)
    rows = Rows(pa.schema({"offset": COLUMNS["offset"]}), wanted)
    found: list[int] = []
    for part in divide(reader.view, reader.oldest, reader.next_offset, wanted, part_bytes=2000):
        for batch in rows.batches(reader.frames(part.start, part.end, wanted)):
            found.extend(batch.column(0).to_numpy())
    expected = []
    for entry in reader.entries():
        message = entry.message
        row = {
            "offset": entry.offset,
            "timestamp": moment(message.timestamp),
            "mode": entry.mode.name.lower(),
            "namespace": message.namespace,
            "op": message.op.name.lower(),
            "origin": message.origin,
            "lsn": message.lsn,
        }
        if all(matches(row, condition) for condition in filters):
            expected.append(entry.offset)
    assert found == expected


@pytest.mark.parametrize(
    "unfit",
    [
        EqualTo(("data", "id"), 1),
        EqualTo(("tx",), "t"),
        EqualTo(("offset",), None),
        EqualTo(("origin",), Decimal("1.5")),
        EqualTo(("op",), True),
        GreaterThan(("namespace",), "a"),
        Not(In(("op",), ("insert", None))),
        Not(GreaterThan(("offset",), 1)),
        IsNotNull(("tx",)),
        IsNull(("offset",)),
        StringStartsWith(("namespace",), "shop."),
    ],
)
def test_what_cannot_be_judged_is_left_for_spark(unfit: Filter) -> None:
    conditions, left = conditions_of([unfit, EqualTo(("lsn",), 3)])
    assert conditions == [OneOf("lsn", frozenset((3,)))]
    assert left == [unfit]
    assert left[0] is unfit


def test_columns_without_nulls_need_no_filter_for_them() -> None:
    assert conditions_of([IsNotNull(("offset",)), IsNotNull(("op",))]) == ([], [])


def test_a_null_among_values_is_no_value() -> None:
    assert conditions_of([In(("op",), ("insert", None))])[0] == [OneOf("op", frozenset(("insert",)))]


def test_filters_read_fewer_frames(directory: Path) -> None:
    reader = LogReader(directory)

    def frames(*conditions: Within | OneOf) -> int:
        wanted = Wanted(conditions=conditions)
        return sum(part.frames for part in divide(reader.view, reader.oldest, reader.next_offset, wanted))

    assert frames() == 10
    assert frames(Within("offset", 6, 8)) == 1
    assert frames(OneOf("offset", frozenset((0, 29)))) == 2
    assert frames(OneOf("origin", frozenset((2,)))) == 3
    assert frames(OneOf("namespace", frozenset(("nobody's",)))) == 0
    assert frames(Within("lsn", 10)) == 2
    assert frames(Within("timestamp", low=11_000_000)) == 0
    assert 0 < frames(OneOf("op", frozenset(("delete",)))) < 10
