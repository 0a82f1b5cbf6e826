"""A table that is emptied in the source is emptied where it can be, between what came before and after."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.adaptor.options import WriterOptions
from tailrace.adaptor.sqlite.options import SqliteWriterOptions
from tailrace.deliver.clearing import COMMAND
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Message, Micros, Mode, Op
from tailrace.pipeline.spec import WriteSpec
from tests.deliver.conftest import Deliver, failure, position

STORY: Sequence[Any] = (
    ("main.t", Op.INSERT, {"id": 1, "v": "old"}),
    ("main.other", Op.INSERT, {"id": 1, "v": "stays"}),
    ("main.t", Op.COMMAND, COMMAND),
    ("main.t", Op.INSERT, {"id": 2, "v": "new"}),
    ("main.t", Op.COMMAND, {"command": "vacuum"}),
)


def append(log: CommitLog, story: Sequence[Any]) -> None:
    """All of it as one commit group, as a transaction of the source is."""
    with log.group() as group:
        for namespace, op, data in story:
            for batch in batches_of([Message(op, Micros(1), namespace, data)], Mode.SYNC):
                rows = with_key(batch.rows, ("id",)) if op is not Op.COMMAND else batch.rows
                group.add(Batch(namespace, rows, batch.mode))


def table(path: Path, name: str = "t") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT id, v FROM {name} ORDER BY id").fetchall()


def spec(options: WriterOptions, **more: Any) -> WriteSpec:
    return WriteSpec(name="w", adaptor="any", options=options, **more)


def test_sqlite(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    append(log, STORY)
    writer = spec(SqliteWriterOptions(path=str(tmp_path / "out.db")))
    assert deliver(writer) == []
    assert table(tmp_path / "out.db") == [(2, "new")]
    assert table(tmp_path / "out.db", "other") == [(1, "stays")]
    assert position(log, "w") == len(STORY) - 1


def test_what_was_emptied_once_is_not_emptied_again(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """The consumer's offset was lost in a crash, but the destination knows its own."""
    append(log, STORY)
    writer = spec(SqliteWriterOptions(path=str(tmp_path / "out.db")))
    deliver(writer)
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection, connection:
        connection.execute("INSERT INTO t VALUES (3, 'by somebody else')")
    Consumers(log.directory).delete("w", "lost in a crash")
    deliver(writer)
    assert table(tmp_path / "out.db") == [(2, "new"), (3, "by somebody else")]


def test_between_messages_that_go_one_at_a_time(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT CHECK (v <> 'bad'))")
        connection.execute("INSERT INTO t VALUES (9, 'before')")
    append(log, (*STORY[:4], ("main.t", Op.INSERT, {"id": 4, "v": "bad"})))
    writer = spec(SqliteWriterOptions(path=str(path)))
    failure(deliver, writer)
    assert "offset 4" in failure(deliver, writer).what
    assert table(path) == [(2, "new")]
    assert position(log, "w") == 3


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_lake(log: CommitLog, deliver: Deliver, tmp_path: Path, form: str) -> None:
    append(log, STORY)
    options: dict[str, Any] = {"path": str(tmp_path / "lake"), "format": form}
    assert deliver(spec(LakeWriterOptions(**options))) == []
    if form == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(tmp_path / "lake" / "main.t").to_pyarrow_table().to_pylist()
    else:
        found = pq.read_table(tmp_path / "lake" / "main.t" / "current").to_pylist()
    assert found == [{"id": 2, "v": "new"}]


def test_a_history_keeps_what_it_has_and_says_so(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    append(log, STORY)
    options: dict[str, Any] = {"path": str(tmp_path / "lake"), "keep": "history"}
    (news,) = deliver(spec(LakeWriterOptions(**options)))
    assert "keeps what it has" in news
