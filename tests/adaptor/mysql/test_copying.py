"""Pieces of a copy: together all rows, each once, whatever the key is made of."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.adaptor.mysql.options import MysqlReaderOptions
from tests.adaptor.contract import messages
from tests.adaptor.mysql.databases import run
from tests.adaptor.mysql.test_changes import position_of

KEYS = {
    "number": ("k bigint unsigned", "k", "18446744073709551615 - seq * 7", True),
    "text of numbers": ("k varchar(20)", "k", "seq", True),
    "text": ("k varchar(20) COLLATE utf8mb4_general_ci", "k", "concat(if(seq % 2, 'a''\\\\', 'B'), seq)", True),
    "several": ("a varchar(5), k int, b date", "a, k, b", "seq % 4, seq, '2024-01-01' + INTERVAL seq % 9 DAY", True),
    "binary": ("k varbinary(9)", "k", "unhex(lpad(hex(seq * 200), 8, '0'))", True),
    "decimal": ("k decimal(20,3)", "k", "seq / 7 - 20", True),
    "uuid": ("k uuid", "k", "uuid()", True),
    "moment": ("k timestamp(6)", "k", "'2024-01-01 00:00:00.000001' + INTERVAL seq HOUR", True),
    "time": ("k time(3)", "k", "sec_to_time(seq)", False),
}
"""By name: columns, key, values, and whether it is parted."""


@pytest.mark.parametrize("name", KEYS)
def test_pieces_by_key(database: str, name: str) -> None:
    columns, key, values, is_parted = KEYS[name]
    run(
        database,
        f"CREATE TABLE t({columns}, n int, PRIMARY KEY ({key}))",
        f"INSERT INTO t SELECT {values}, seq FROM seq_1_to_300",
        "ANALYZE TABLE t",
    )
    with closing(MysqlReaderOptions(url=database, piece_rows=40).open()) as reader:  # type: ignore[arg-type]
        (table,) = reader.tables()
        pieces = reader.plan_copy(table)
        found = messages(batch for piece in pieces for batch in reader.read_copy(table.namespace, piece))
    assert sorted(message.data["n"] for message in found if message.data) == list(range(1, 301))
    assert len(pieces) > 4 if is_parted else len(pieces) == 1


def test_changes_that_nobody_wants_are_no_work(database: str) -> None:
    """Nor does the place in the log get lost when it moves on without them."""
    run(database, "CREATE TABLE t(id int PRIMARY KEY)", "CREATE TABLE u(id int PRIMARY KEY)")
    with closing(MysqlReaderOptions(url=database).open()) as reader:  # type: ignore[arg-type]
        reader.install([table for table in reader.tables() if table.namespace.endswith(".t")])
        start = reader.position()
        run(database, "INSERT INTO t VALUES (1)")
        (piece,) = reader.plan_changes(start, reader.position())
        assert len(messages(reader.read_changes(piece))) == 1
        reached = reader.reached()
        assert reached is not None
        run(database, "INSERT INTO u VALUES (1)")
        run(database, "ALTER TABLE u ADD COLUMN a int")
        end = reader.position()
        assert reader.plan_changes(reached, end) == []
    run(database, "INSERT INTO t VALUES (2)")
    with closing(MysqlReaderOptions(url=database).open()) as reader:  # type: ignore[arg-type]
        (piece,) = reader.plan_changes({**reached, **end}, position_of(database))
        assert [message.data for message in messages(reader.read_changes(piece))] == [{"id": 2}]
