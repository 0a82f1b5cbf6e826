"""Whole pipelines into lakes: copy and changes, a lost offset, a driver that is killed."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tailrace.adaptor.lake import lake
from tailrace.adaptor.sqlite import sqlite
from tailrace.log.consumers import PREFIX
from tailrace.log.reader import LogReader
from tailrace.pipeline import Pipeline
from tailrace.pipeline.load import load
from tailrace.pipeline.run import Until, Watcher, run
from tailrace.pipeline.spec import PipelineSpec
from tailrace.verify.verify import Scope, verify
from tests.adaptor.lake.lakes import CurrentLake, DeltaLake, HistoryLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S: Final = 240.0
SHOP: Final = """
PRAGMA journal_mode = WAL;
CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, name TEXT);
CREATE TABLE pair (a TEXT, b INTEGER, x TEXT, y TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
"""
CHANGES: Final = """
-- of rows
UPDATE t SET v = 7 WHERE id = 1;
UPDATE t SET id = 100, name = 'moved' WHERE id = 2;
DELETE FROM t WHERE id = 3;
INSERT INTO t VALUES (3, 33, 'again'), (50, 50, 'new');
DELETE FROM t WHERE id = 50;
UPDATE pair SET b = 20 WHERE a = 'a' AND b = 2;
DELETE FROM pair WHERE a = 'b';
-- of columns and tables
ALTER TABLE t ADD COLUMN note TEXT DEFAULT 'there';
INSERT INTO t VALUES (101, 2.5, 'half', 'new');
CREATE TABLE young (id INTEGER PRIMARY KEY);
INSERT INTO young VALUES (1);
CREATE TABLE pair_new (a TEXT, b INTEGER, y TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
INSERT INTO pair_new SELECT a, b, y || '!' FROM pair;
DROP TABLE pair;
ALTER TABLE pair_new RENAME TO pair;
"""
KILLED: Final = r"""
pipeline: shop
log: log
read:
  sqlite: {path: shop.db}
  namespace: main\.t
write:
  - {name: history, lake: {path: history, keep: history, every: 0s}}
  - {name: current, lake: {path: current}}
"""


def execute(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute(query).fetchall())


class Listener(Watcher):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_delta_and_history_follow_their_source(tmp_path: Path, spark: SparkSession) -> None:
    shop = tmp_path / "shop.db"
    execute(shop, SHOP)
    with closing(sqlite3.connect(shop)) as connection, connection:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(number, number, "n") for number in range(40)])
        connection.executemany("INSERT INTO pair VALUES (?, ?, 'x', 'y')", [(a, b) for a in "ab" for b in range(5)])
    pipeline = Pipeline("shop", log=str(tmp_path / "log")).read(sqlite(str(shop)))
    pipeline = pipeline.write(lake(str(tmp_path / "delta"), format="delta"), name="delta")
    spec = pipeline.write(lake(str(tmp_path / "history"), keep="history"), name="history").spec()
    delta, history = DeltaLake(tmp_path / "delta"), HistoryLake(tmp_path / "history")
    assert run(spec, Until.ONCE, session=lambda: spark).errors == []
    assert len(delta.rows("main.t")) == 40
    end = LogReader(spec.log).next_offset

    def traces() -> list[object]:
        return [each.trace(name) for each in (delta, history) for name in ("main.t", "main.pair", "main.young")]

    with lost_offsets(spec, "delta", "history"):
        execute(shop, CHANGES)
        assert run(spec, Until.ONCE, session=lambda: spark).errors == []
        before = traces()
    listener = Listener()
    assert run(spec, Until.ONCE, watcher=listener, session=lambda: spark).errors == []

    for writer in ("delta", "history"):
        told = [line for line in listener.said if line.startswith(f"writer {writer}: resumes at offset {end}")]
        assert told, listener.said
    assert traces() == before, "what the lakes had was written again"
    assert_equal(spec, spark)
    kept = sorted((found["a"], found["b"], found["x"], found["y"]) for found in delta.rows("main.pair"))
    assert kept == rows_of(shop, "SELECT a, b, 'x', y FROM pair"), "what the source has no more is kept"
    assert_history(history, spec, "main.t", rows_of(shop, "SELECT id, CAST(v AS TEXT), name, note FROM t"))


@pytest.mark.crash
def test_a_driver_that_is_killed_in_the_middle_of_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    """Its lakes can be read at once, and the next one loses nothing and writes nothing twice."""
    shop = tmp_path / "shop.db"
    execute(shop, SHOP)
    with closing(sqlite3.connect(shop)) as connection, connection:
        connection.executemany("INSERT INTO t VALUES (?, 0, 'n')", [(number,) for number in range(100)])
    (tmp_path / "pipeline.yml").write_text(KILLED)
    spec = load(str(tmp_path / "pipeline.yml"))
    history, current = HistoryLake(tmp_path / "history"), CurrentLake(tmp_path / "current")
    with written_meanwhile(shop), running(tmp_path) as process:
        wait_for(lambda: len(history.files("main.t")) > 2 and current.files("main.t") != [], process)
        wait_for(lambda: any(history.directory("main.t").glob("_staging/*/_temporary")), process)
        process.kill()

    offsets = [row["_offset"] for row in spark.read.parquet(str(history.directory("main.t"))).collect()]
    assert len(offsets) == len(set(offsets)) >= 100
    assert len(current.rows("main.t")) == 100
    assert run(spec, Until.ONCE, session=lambda: spark).errors == []

    rows = rows_of(shop, "SELECT id, v, name FROM t")
    assert sorted(tuple(found.values()) for found in current.rows("main.t")) == rows
    assert_history(history, spec, "main.t", rows)


def assert_equal(spec: PipelineSpec, spark: SparkSession) -> None:
    """What can be compared is equal."""
    report = verify(Scope(spec), lambda: spark, lambda _: None)
    for writer in report.writers:
        assert not any(each.differences.counts for each in writer.namespaces), writer
        assert writer.namespaces or writer.incomparable


def assert_history(history: HistoryLake, spec: PipelineSpec, namespace: str, rows: list[tuple[Any, ...]]) -> None:
    """Every message of the log is there once, and together they make the rows of the source, whose key is `id`."""
    messages = [entry for entry in LogReader(spec.log).entries() if entry.message.namespace == namespace]
    told = history.rows(namespace)
    assert sorted({found["_offset"] for found in told}) == [entry.offset for entry in messages if entry.message.data]
    assert len({(found["_offset"], found["id"]) for found in told}) == len(told)
    assert sorted(tuple(found.values()) for found in history.state(namespace, ("id",))) == rows


@contextmanager
def lost_offsets(spec: PipelineSpec, *writers: str) -> Iterator[None]:
    """A crash after the destinations have committed and before the offsets were: these are as they were."""
    places = [Path(spec.log, PREFIX + writer) for writer in writers]
    for place in places:
        shutil.copytree(place, place.with_suffix(".kept"))
    yield
    for place in places:
        shutil.rmtree(place)
        place.with_suffix(".kept").rename(place)


@contextmanager
def written_meanwhile(shop: Path) -> Iterator[None]:
    """Updates all the time."""
    over = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(shop, timeout=60)) as connection:
            number = 0
            while not over.wait(0.01):
                number += 1
                with connection:
                    connection.execute("UPDATE t SET v = ? WHERE id = ?", (number, number * 7 % 100))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def running(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tailrace run` until the block ends."""
    with open(directory / "run.log", "wb") as talk:
        command = [sys.executable, "-m", "tailrace", "run", str(directory / "pipeline.yml")]
        process = subprocess.Popen(command, stdout=talk, stderr=talk)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    give_up_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, "the pipeline ended by itself"
        assert time.monotonic() < give_up_s
        time.sleep(0.001)
