"""Whole pipelines from Tarantool: copy, changes, and source and destination compared."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.adaptor.sqlite import sqlite
from tailrace.adaptor.tarantool import tarantool as from_tarantool
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Until, run
from tailrace.verify.verify import Scope, verify
from tests.servers.tarantool import TarantoolServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAKE = """
local s = box.schema.space.create('orders', {format = {{'id', 'unsigned'}, {'city', 'string'}, {'total', 'number'}}})
s:create_index('pk')
for i = 1, 500 do s:insert{i, 'city ' .. i % 7, i / 4} end
local f = box.schema.space.create('free')
f:create_index('pk', {parts = {1, 'string'}})
f:insert{'a', 1, {x = {1, 2}}}
f:insert{'b'}
local e = box.schema.space.create('empty', {format = {{'id', 'unsigned'}, {'note', 'string'}}})
e:create_index('pk')
"""
CHANGE = """
local s = box.space.orders
s:update(1, {{'+', 3, 0.5}, {'=', 2, 'elsewhere'}})
s:update({2}, {{':', 2, 1, 4, 'CITY'}})
s:upsert({3, 'x', 0}, {{'-', 'total', 1}})
s:upsert({1000, 'new', 7}, {{'+', 'total', 1}})
box.begin() s:delete(4) s:replace{5, 'five', 5} s:insert{1001, 'last', 1} box.commit()
box.space.free:truncate()
box.space.free:insert{'c', -1, 'later'}
local late = box.schema.space.create('late', {format = {{'id', 'unsigned'}, {'note', 'string'}}})
late:create_index('pk')
late:insert{1, 'new'}
"""


def found_in(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def test_copy_then_changes(tarantool: TarantoolServer, tmp_path: Path, spark: SparkSession) -> None:
    tarantool.run(MAKE)
    copy = tmp_path / "copy.db"
    out = (
        Pipeline("shop", log=str(tmp_path / "log"))
        .read(from_tarantool(tarantool.address(), piece_rows=100))
        .write(sqlite(str(copy)), name="copy")
        .spec()
    )
    assert run(out, Until.ONCE, session=lambda: spark).errors == []
    assert found_in(copy, "SELECT count(*), sum(total) FROM orders") == [(500, sum(n / 4 for n in range(1, 501)))]
    assert found_in(copy, "SELECT * FROM free ORDER BY 1") == [("a", "1", '{"x":[1,2]}'), ("b", None, None)]
    assert found_in(copy, "SELECT * FROM empty") == []
    tarantool.run(CHANGE)
    assert run(out, Until.ONCE, session=lambda: spark).errors == []
    changed = found_in(copy, "SELECT * FROM orders WHERE id IN (1, 2, 3, 4, 5, 1000, 1001) ORDER BY id")
    assert changed == [
        (1, "elsewhere", 0.75),
        (2, "CITY 2", 0.5),
        (3, "city 3", -0.25),
        (5, "five", 5.0),
        (1000, "new", 7.0),
        (1001, "last", 1.0),
    ]
    assert found_in(copy, "SELECT * FROM free") == [("c", "-1", '"later"')]
    assert found_in(copy, "SELECT * FROM late") == [(1, "new")]
    report = verify(Scope(out, (), None), lambda: spark, lambda _: None).encode()
    assert report["equal"], report
