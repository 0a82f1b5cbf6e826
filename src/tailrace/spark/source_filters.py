"""Filters that Spark hands down, as conditions of ours."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tailrace.message import micros
from tailrace.spark.source_wanted import NUMBERS, TEXTS, Condition, OneOf, Within


def conditions_of(filters: Iterable[Filter]) -> tuple[list[Condition], list[Filter]]:
    """What can be judged here, wholly, and the filters that are left for Spark."""
    conditions: list[Condition] = []
    left: list[Filter] = []
    for given in filters:
        if isinstance(given, IsNotNull) and given.attribute[0] in (*NUMBERS, *TEXTS):
            continue  # there are none
        condition = _condition(given)
        if condition is None:
            left.append(given)
        else:
            conditions.append(condition)
    return conditions, left


def _condition(given: Filter) -> Condition | None:
    if isinstance(given, Not):
        inner = _condition(given.child) if isinstance(given.child, EqualTo | In) else None
        if isinstance(given.child, In) and None in given.child.value:
            return None
        return OneOf(inner.column, inner.values, is_excluded=True) if isinstance(inner, OneOf) else None
    if not isinstance(
        given, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | In
    ):
        return None
    column = ".".join(given.attribute)
    if column not in NUMBERS and column not in TEXTS:
        return None
    if isinstance(given, In):
        values = [_comparable(column, value) for value in given.value if value is not None]
        return None if None in values else OneOf(column, frozenset(values))
    value = _comparable(column, given.value)
    if value is None:
        return None
    if isinstance(given, EqualTo | EqualNullSafe):
        return OneOf(column, frozenset((value,)))
    return _within(column, given, value) if column in NUMBERS else None


def _within(column: str, given: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual, value: int) -> Condition:
    match given:
        case GreaterThan():
            return Within(column, low=value + 1)
        case GreaterThanOrEqual():
            return Within(column, low=value)
        case LessThan():
            return Within(column, high=value - 1)
        case LessThanOrEqual():
            return Within(column, high=value)


def _comparable(column: str, value: Any) -> Any:
    """A value of Spark's as the log has it, None when there is none."""
    if column in TEXTS:
        return value if isinstance(value, str) else None
    if column == "timestamp":
        return micros(value) if isinstance(value, datetime) else None
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
