"""Pipelines that read a node, on Spark: copy and changes, into a database and a lake; nodes that are killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.adaptor.lake import lake
from tailrace.adaptor.relay import relay
from tailrace.adaptor.sqlite import sqlite
from tailrace.log.reader import LogReader
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Summary, Until, run
from tailrace.pipeline.spec import PipelineSpec
from tests.adaptor.lake.lakes import CurrentLake
from tests.adaptor.sqlite.databases import ask
from tests.node.test_serve import SECRET, NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.runs.test_outages import going_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 20_000
SOME = """INSERT INTO t WITH RECURSIVE n(value) AS
    (SELECT {} UNION ALL SELECT value + 1 FROM n WHERE value < {}) SELECT value, 'old' FROM n"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def node_of(stack: ExitStack, directory: Path) -> tuple[NodeProcess, str]:
    """A node with rows, and where it listens."""
    (port,) = free_ports(1)
    file = node_file("a", port, {}, founder="true").replace("path: a.db", "path: a.db, piece_rows: 500")
    node = NodeProcess(directory, "a", file)
    node.run("PRAGMA journal_mode = WAL", SOME.format(1, ROWS))
    stack.enter_context(node)
    wait_for(lambda: bool(node.status()), 60)
    return node, f"127.0.0.1:{port}"


def spec_of(directory: Path, address: str) -> PipelineSpec:
    pipeline = Pipeline("test", log=str(directory / "log")).read(relay(address, token=SECRET))
    pipeline = pipeline.write(sqlite(str(directory / "out.db")), name="table")
    return pipeline.write(lake(str(directory / "lake")), name="lake").spec()


def written(directory: Path) -> list[tuple[Any, ...]]:
    return ask(directory / "out.db", "SELECT * FROM t ORDER BY id")


def in_lake(directory: Path) -> list[tuple[Any, ...]]:
    rows = CurrentLake(directory / "lake").rows("main.t")
    return sorted((row["id"], row["word"]) for row in rows)


def test_copy_then_changes(stack: ExitStack, tmp_path: Path, spark: SparkSession) -> None:
    node, address = node_of(stack, tmp_path)
    spec = spec_of(tmp_path, address)
    assert run(spec, Until.ONCE, session=lambda: spark).errors == []
    assert written(tmp_path) == node.rows()
    assert len(written(tmp_path)) == ROWS
    node.run("UPDATE t SET word = 'new' WHERE id % 7 = 0", "DELETE FROM t WHERE id % 11 = 0")
    node.run(SOME.format(ROWS + 1, ROWS + 99))
    assert run(spec, Until.ONCE, session=lambda: spark).errors == []
    assert written(tmp_path) == in_lake(tmp_path) == node.rows()


def test_a_node_is_killed_in_the_middle(stack: ExitStack, tmp_path: Path, spark: SparkSession) -> None:
    """Of the copy, and of the changes. The pipeline waits for it, and nothing is lost."""
    node, address = node_of(stack, tmp_path)
    spec = spec_of(tmp_path, address)

    def captured() -> int:
        return LogReader(spec.log).next_offset

    with going_on(spec, spark) as (listener, result):
        wait_for(lambda: 0 < captured() < ROWS)
        node.end(signal.SIGKILL)
        node.run("UPDATE t SET word = 'while it was away' WHERE id % 3 = 0", "DELETE FROM t WHERE id % 5 = 0")
        node.start()
        wait_for(lambda: captured() > ROWS, 120)
        node.run("UPDATE t SET word = 'later' WHERE id % 2 = 0")
        node.end(signal.SIGKILL)
        node.run(SOME.format(ROWS + 1, ROWS + 2000))
        node.start()
        wait_for(lambda: len(written(tmp_path)) == len(node.rows()), 120)
    summary: Summary = result[0]
    assert summary.errors == []
    assert written(tmp_path) == node.rows()
    assert any("goes on after" in line for line in listener.said)
