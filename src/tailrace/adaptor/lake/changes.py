"""Changes by key: a row that moves to another key is gone from the one it had."""

from __future__ import annotations

import functools
from operator import and_
from typing import TYPE_CHECKING

from tailrace.adaptor.lake.columns import fitted_fields, struct_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_moves(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Messages, and for each one that moved its row the delete of the old key, with the same offset."""
    from pyspark.sql import functions as sql

    was = struct_of(frame, "before")
    if not key or not set(key) <= set(was.names):
        return frame
    message = {name: frame[name] for name in frame.columns}
    row = sql.struct(*fitted_fields(frame["before"], was, struct_of(frame, "data")))
    gone = {**message, "op": sql.lit("delete"), "data": row}
    here, there = (sql.struct(*[part.alias(name) for name, part in each.items()]) for each in (message, gone))
    is_moved = (frame["op"] == "update") & _has_other_key(frame, key)
    told = sql.when(is_moved, sql.array(there, here)).otherwise(sql.array(here))
    return frame.select(sql.explode(told).alias("told")).select("told.*")


def _has_other_key(frame: DataFrame, key: tuple[str, ...]) -> Column:
    """Whether a row had another key before; a key with a null in it names no row."""
    old = [frame["before"].getField(name) for name in key]
    same = [part == frame["data"].getField(name) for name, part in zip(key, old, strict=True)]
    return functools.reduce(and_, [part.isNotNull() for part in old]) & ~functools.reduce(and_, same)
