"""Changes noted by triggers come in the order in which rows were locked, whoever commits when."""

from __future__ import annotations

from contextlib import ExitStack, closing

import psycopg
import pytest

from tailrace.adaptor.postgres.options import PostgresReaderOptions
from tailrace.adaptor.postgres.reader import PostgresReader
from tailrace.errors import TailraceError
from tailrace.message import Message, Op
from tailrace.source.contract import Position
from tests.adaptor.contract import messages
from tests.adaptor.postgres.databases import ask, run


def open_reader(database: str, pipeline: str = "one") -> PostgresReader:
    return PostgresReaderOptions(url=database, changes="triggers", pipeline=pipeline).open()  # type: ignore[arg-type]


def follow(reader: PostgresReader, start: Position) -> tuple[list[Message], Position]:
    end = reader.position()
    found = [batch for piece in reader.plan_changes(start, end) for batch in reader.read_changes(piece)]
    return messages(found), end


def test_a_lower_transaction_that_commits_later(database: str) -> None:
    """`early` has the lowest number but changes the row last, while `open_` keeps the horizon between the two."""
    run(database, "CREATE TABLE t(id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, ''), (2, ''), (3, '')")
    with closing(open_reader(database)) as reader, ExitStack() as stack:
        reader.install(reader.tables())
        position = reader.position()
        early, open_, late = (stack.enter_context(psycopg.connect(database)) for _ in range(3))
        early.execute("UPDATE t SET a = 'early' WHERE id = 2")
        open_.execute("UPDATE t SET a = 'open' WHERE id = 3")
        late.execute("UPDATE t SET a = 'first' WHERE id = 1")
        late.commit()
        first, position = follow(reader, position)
        early.execute("UPDATE t SET a = 'second' WHERE id = 1")
        early.commit()
        second, position = follow(reader, position)
        reader.forget(position)
        open_.commit()
        third, position = follow(reader, position)
        reader.forget(position)
    told = [[(message.data or {})["a"] for message in found] for found in (first, second, third)]
    assert told == [["first"], ["early", "second"], ["open"]]
    assert ask(database, "SELECT count(*) FROM tailrace.tailrace_changelog") == [(0,)]


def test_writes_go_on_whatever_happens_to_the_table(database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY, a text, b numeric)")
    with closing(open_reader(database)) as reader:
        reader.install(reader.tables())
        start = reader.position()
        run(
            database,
            "SET DateStyle = 'German'",
            "INSERT INTO t VALUES (1, 'one', 1.50)",
            "ALTER TABLE t DROP COLUMN a",
            "ALTER TABLE t ADD COLUMN at timestamptz",
            "INSERT INTO t VALUES (2, 'NaN', '2026-01-01 00:00+01')",
            "TRUNCATE t",
            "INSERT INTO t VALUES (3, 3, 'infinity')",
        )
        found, _ = follow(reader, start)
    assert [message.op for message in found] == [Op.INSERT, Op.INSERT, Op.COMMAND, Op.INSERT]
    assert (found[0].data or {})["b"] == "1.50"
    assert (found[1].data or {})["b"] == "NaN"
    assert (found[3].data or {})["at"] == "infinity"
    assert "a" not in (found[0].data or {})


def test_a_second_pipeline_is_refused(database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY)")
    with closing(open_reader(database)) as one, closing(open_reader(database, "two")) as two:
        one.install(one.tables())
        start = one.position()
        with pytest.raises(TailraceError, match="noted for pipeline one"):
            two.install(two.tables())
        with pytest.raises(TailraceError, match="noted for pipeline one"):
            two.uninstall()
        run(database, "INSERT INTO t VALUES (1)")
        assert one.plan_changes(start, one.position())
        one.uninstall()
        two.install(two.tables())
        with pytest.raises(TailraceError, match="not the one that was read before") as lost:
            one.plan_changes(start, two.position())
        assert lost.value.code == "source.position_lost"
