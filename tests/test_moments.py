"""Dates and moments as text, over all that their columns can hold."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.moments import texts, time_texts, values

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.dates())
def test_days_that_python_knows(day: date) -> None:
    assert texts(pa.array([day, None])).to_pylist() == [day.isoformat(), None]


@given(st.datetimes())
def test_moments_that_python_knows(moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC)
    column = pa.array([(aware - EPOCH) // timedelta(microseconds=1)], pa.int64()).view(pa.timestamp("us", "UTC"))
    assert texts(column).to_pylist() == [moment.isoformat(timespec="microseconds") + "Z"]


@given(st.integers(-2_000_000_000, 2_000_000_000))
def test_the_calendar_repeats_every_400_years(days: int) -> None:
    """So a far day is a near one with another year."""
    era, near = divmod(days - 10_957, 146_097)  # eras that begin in the year 2000
    (text,) = texts(pa.array([days], pa.int32()).view(pa.date32())).to_pylist()
    known = date(2000, 1, 1) + timedelta(days=near)
    year, _, rest = (text or "").rpartition("-")[0].rpartition("-")
    assert int(year) == known.year + 400 * era
    assert (text or "").endswith(known.isoformat()[4:])
    assert rest == f"{known.month:02d}"


@pytest.mark.parametrize(
    ("unit", "count", "text"),
    [
        ("us", 2**63 - 1, "infinity"),
        ("us", -(2**63), "-infinity"),
        ("us", 316_516_204_800_000_000, "12000-01-01T00:00:00.000000Z"),
        ("us", 9_223_372_036_854_775_806, "294247-01-10T04:00:54.775806Z"),
        ("s", -62_198_755_200, "-0001-01-01T00:00:00Z"),
        ("ms", 253_402_300_800_001, "10000-01-01T00:00:00.001Z"),
        ("ns", 1, "1970-01-01T00:00:00.000000001Z"),
    ],
)
def test_moments_that_python_does_not_know(unit: str, count: int, text: str) -> None:
    kind = pa.timestamp(unit, "Europe/Berlin")  # type: ignore[call-overload]
    assert texts(pa.array([count, None, 0], pa.int64()).view(kind)).to_pylist()[:2] == [text, None]


def test_values_are_text_only_where_they_must_be() -> None:
    near = pa.array([date(2024, 2, 29), None])
    assert values(near) == [date(2024, 2, 29), None]
    far = pa.array([2**31 - 1, 0, None], pa.int32()).view(pa.date32())
    assert values(far) == ["infinity", "1970-01-01", None]


def test_the_end_of_the_day_is_not_its_begin() -> None:
    """Python has no 24:00:00 and takes it for 00:00:00."""
    times = pa.array([0, 86_400_000_000, None, 45_000_000_001], pa.int64()).view(pa.time64("us"))
    assert time_texts(times).to_pylist() == ["00:00:00.000000", "24:00:00.000000", None, "12:30:00.000001"]
    assert values(times.slice(0, 1)) == [time(0)]
    within = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), times)
    assert values(within) == [["00:00:00.000000", "24:00:00.000000"], []]
    rows = pa.StructArray.from_arrays([times.slice(1)], ["at"])
    assert values(rows.slice(0, 1)) == [{"at": "24:00:00.000000"}]


def test_moments_in_lists_that_python_does_not_have() -> None:
    days = pa.array([1, None, 2**31 - 1, -(2**31)], pa.int32()).view(pa.date32())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 2, 4], pa.int32()), days)
    assert values(lists) == [["1970-01-02", None], [], None, ["infinity", "-infinity"]]
    assert values(lists.slice(3)) == [["infinity", "-infinity"]]
    assert values(lists.slice(0, 1)) == [[date(1970, 1, 2), None]]
