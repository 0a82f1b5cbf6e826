"""What a writer is not sent again, what an operator has sent again, and namespaces that become one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.adaptor.sqlite.options import SqliteWriterOptions
from tailrace.log.batch import Batch, rows_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.operator import Operator
from tailrace.message import Message, Micros, Op
from tailrace.pipeline.spec import WriteSpec
from tailrace.transform import remap
from tests.deliver.conftest import Deliver, append_keys, position
from tests.deliver.notebook import NotebookOptions, commits


def insert(log: CommitLog, namespace: str, *rows: dict[str, Any]) -> None:
    messages = [Message(Op.INSERT, Micros(1), namespace, row) for row in rows]
    log.append([Batch(namespace, with_key(rows_of(messages), ["id"]))])


def table(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()


def test_two_namespaces_that_become_one_in_a_table(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, "a.t", {"id": 1, "v": "a"})
    insert(log, "b.t", {"id": 2, "v": "b"})
    insert(log, "a.t", {"id": 3, "v": "a"})
    options = SqliteWriterOptions(path=str(tmp_path / "out.db"))

    deliver(WriteSpec("table", "sqlite", options, through=(remap({"b.t": "a.t"}),)))

    assert table(tmp_path / "out.db") == [(1, "a"), (2, "b"), (3, "a")]


def test_two_namespaces_that_become_one_in_a_lake(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, "a.t", {"id": 1, "v": "a"})
    insert(log, "b.t", {"id": 2, "v": "b"}, {"id": 1, "v": "b"})
    spec = WriteSpec("lake", "lake", LakeWriterOptions(path=str(tmp_path)), through=(remap({"b.t": "a.t"}),))

    deliver(spec)

    rows = ds.dataset(tmp_path / "a.t" / "current", format="parquet").to_table().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": 1, "v": "b"}, {"id": 2, "v": "b"}]


def test_a_rewind_sends_again_what_the_destination_has(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """Somebody has spoilt the destination, which still believes that it has everything."""
    insert(log, "main.t", *[{"id": number, "v": "right"} for number in range(10)])
    insert(log, "main.t", *[{"id": number, "v": "right"} for number in range(10, 20)])
    path = tmp_path / "out.db"
    spec = WriteSpec("table", "sqlite", SqliteWriterOptions(path=str(path)))
    deliver(spec)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE t SET v = 'wrong'")

    deliver(spec)
    assert {v for _, v in table(path)} == {"wrong"}
    Operator(Consumers(log.directory)).rewind("table", 5, reason="spoilt")
    deliver(spec)

    assert [v for _, v in table(path)] == ["wrong"] * 5 + ["right"] * 15
    assert position(log, "table") == 19


def test_a_rewind_of_one_namespace_leaves_the_others(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    append_keys(log, "ABABAB")
    spec = WriteSpec("c0", "notebook", NotebookOptions(path=str(tmp_path / "c0")))
    deliver(spec)
    Operator(Consumers(log.directory)).rewind("c0", 2, namespace="A", reason="A was lost")

    deliver(spec)

    assert [sorted(batch) for batch in commits(tmp_path / "c0")] == [[0, 1, 2, 3, 4, 5], [2, 4]]


def test_a_lake_that_was_only_copied_has_nothing_twice_after_a_rewind(
    log: CommitLog, deliver: Deliver, tmp_path: Path
) -> None:
    from tailrace.message import Mode

    log.append_messages([Message(Op.NOOP, Micros(1), "main.t", None)], Mode.COPY)
    rows = [Message(Op.INSERT, Micros(1), "main.t", {"id": number}) for number in range(10)]
    log.append([Batch("main.t", with_key(rows_of(rows), ["id"]), Mode.COPY)])
    spec = WriteSpec("lake", "lake", LakeWriterOptions(path=str(tmp_path)))
    deliver(spec)
    Operator(Consumers(log.directory)).rewind("lake", 0, reason="again")

    deliver(spec)

    rows_now = ds.dataset(tmp_path / "main.t" / "current", format="parquet").to_table().to_pylist()
    assert sorted(row["id"] for row in rows_now) == list(range(10))
