"""Whole pipelines: the handoff from copy to changes, schema change, writers at their own pace, how a run ends."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from tailrace.adaptor.lake import lake
from tailrace.adaptor.sqlite import sqlite
from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.message import Mode
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Running, Summary, Until, Watcher, run
from tailrace.pipeline.shutdown import Shutdown
from tailrace.pipeline.spec import PipelineSpec, WriteSpec
from tailrace.source.bookmark import load_progress
from tailrace.source.phase import Phase
from tests.deliver.notebook import Notebook, NotebookOptions, commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Listener(Watcher):
    """Remembers what was said, and can act while a run goes on."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.is_up = threading.Event()

    def say(self, text: str) -> None:
        self.said.append(text)

    def began(self, running: Running) -> None:
        self.is_up.set()


def make_source(path: Path, rows: int = 0) -> None:
    with closing(sqlite3.connect(path)) as source, source:
        source.execute("PRAGMA journal_mode = WAL")
        source.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
        source.executemany("INSERT INTO t VALUES (?, 0)", [(number,) for number in range(rows)])


def table(path: Path, columns: str = "id, v") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {columns} FROM t ORDER BY id").fetchall()


def to_table(directory: Path, **options: Any) -> PipelineSpec:
    pipeline = Pipeline("test", log=str(directory / "log")).read(sqlite(str(directory / "source.db"), **options))
    return pipeline.write(sqlite(str(directory / "out.db")), name="table").spec()


def start(spec: PipelineSpec, spark: SparkSession, until: Until, **options: Any) -> tuple[threading.Thread, list[Any]]:
    """A run in a thread; its summary, or its error, is put into the list."""
    result: list[Any] = []

    def work() -> None:
        try:
            result.append(run(spec, until, session=lambda: spark, **options))
        except TailraceError as error:
            result.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, result


def test_copy_then_changes_without_a_gap(tmp_path: Path, spark: SparkSession) -> None:
    """The source is written all the time, so rows change before, while and after their piece is copied."""
    make_source(tmp_path / "source.db", 5000)
    spec = to_table(tmp_path, piece_rows=200)
    over = threading.Event()
    listener = Listener()
    thread, result = start(spec, spark, Until.CAUGHT_UP, watcher=listener, not_before=over)
    assert listener.is_up.wait(120)
    chosen = random.Random(3)
    with closing(sqlite3.connect(tmp_path / "source.db", timeout=60)) as source:
        for number in range(1, 400):
            with source:
                row = chosen.randrange(6000)
                if number % 7 == 0:
                    source.execute("DELETE FROM t WHERE id = ?", (row,))
                elif number % 11 == 0:
                    source.execute("UPDATE OR IGNORE t SET id = ? WHERE id = ?", (row + 6000, row))
                else:
                    source.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (row, number))
            time.sleep(0.005)
    over.set()
    thread.join()

    summary: Summary = result[0]
    assert summary.errors == []
    assert table(tmp_path / "out.db") == table(tmp_path / "source.db")
    modes = {entry.mode for entry in LogReader(spec.log).entries() if entry.message.namespace == "main.t"}
    assert modes == {Mode.COPY, Mode.COMPLETE, Mode.SYNC}
    assert load_progress(LogReader(spec.log)).tables["main.t"].phase is not Phase.COPY


def test_what_came_before_the_end_was_asked_for_is_delivered(tmp_path: Path, spark: SparkSession) -> None:
    """That the source was idle when it was looked at last says nothing of what was written since."""
    make_source(tmp_path / "source.db", 1)
    spec = replace(to_table(tmp_path), poll_s=2.0)
    over, is_idle = threading.Event(), threading.Event()

    class Looking(Watcher):
        def look(self, running: Running) -> None:
            if running.capture.is_idle and running.deliveries[0].next_offset == running.log.next_offset:
                is_idle.set()

    thread, result = start(spec, spark, Until.CAUGHT_UP, watcher=Looking(), not_before=over)
    assert is_idle.wait(60)
    with closing(sqlite3.connect(tmp_path / "source.db")) as source, source:
        source.execute("INSERT INTO t VALUES (2, 2)")
    over.set()
    thread.join()

    assert result[0].errors == []
    assert table(tmp_path / "out.db") == [(0, 0), (2, 2)]


def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path, spark: SparkSession) -> None:
    make_source(tmp_path / "source.db", 10)
    spec = to_table(tmp_path)
    run(spec, Until.ONCE, session=lambda: spark)
    end = LogReader(spec.log).next_offset
    with closing(sqlite3.connect(tmp_path / "source.db")) as source, source:
        source.execute("UPDATE t SET v = 7 WHERE id = 3")
    listener = Listener()

    summary = run(spec, Until.ONCE, watcher=listener, session=lambda: spark)

    assert summary.captured == {"main.t": 1}
    assert f"writer table: resumes at offset {end}; nothing is repeated" in listener.said
    assert table(tmp_path / "out.db") == table(tmp_path / "source.db")


def test_columns_come_and_tables_come(tmp_path: Path, spark: SparkSession) -> None:
    """Rows that had the new column's default before anybody looked get it too."""
    make_source(tmp_path / "source.db", 10)
    spec = to_table(tmp_path)
    run(spec, Until.ONCE, session=lambda: spark)
    with closing(sqlite3.connect(tmp_path / "source.db")) as source, source:
        source.execute("ALTER TABLE t ADD COLUMN w TEXT DEFAULT 'there'")
        source.execute("INSERT INTO t VALUES (100, 1, 'new')")
        source.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, x TEXT)")
        source.execute("INSERT INTO other VALUES (1, 'one')")
    listener = Listener()

    run(spec, Until.ONCE, watcher=listener, session=lambda: spark)

    assert table(tmp_path / "out.db", "id, v, w") == table(tmp_path / "source.db", "id, v, w")
    with closing(sqlite3.connect(tmp_path / "out.db")) as out:
        assert out.execute("SELECT * FROM other").fetchall() == [(1, "one")]
    assert any("main.t: new column w; it is copied again" in line for line in listener.said)
    assert any("main.other: new, it is copied" in line for line in listener.said)


class SlowOptions(NotebookOptions):
    """A destination that does not end before a file is there."""

    gate: str

    def open(self) -> Slow:
        return Slow(self)


class Slow(Notebook):
    def __init__(self, options: SlowOptions) -> None:
        super().__init__(options)
        self._gate = Path(options.gate)

    def commit(self, upto: Any) -> None:
        while not self._gate.exists():
            time.sleep(0.01)
        super().commit(upto)


def test_a_slow_writer_slows_nobody(tmp_path: Path, spark: SparkSession) -> None:
    """One writer hangs; the other has everything meanwhile, the source goes on, and the slow one loses nothing."""
    make_source(tmp_path / "source.db", 100)
    slow = SlowOptions(path=str(tmp_path / "slow"), gate=str(tmp_path / "gate"))
    spec = to_table(tmp_path)
    spec = PipelineSpec(spec.name, spec.log, spec.read, (*spec.writes, WriteSpec("slow", "notebook", slow)))
    over = threading.Event()
    thread, result = start(spec, spark, Until.CAUGHT_UP, not_before=over)
    with closing(sqlite3.connect(tmp_path / "source.db", timeout=60)) as source:
        for number in range(5):
            with source:
                source.execute("UPDATE t SET v = ? WHERE id = 1", (number,))
            give_up_s = time.monotonic() + 120
            while not (tmp_path / "out.db").exists() or (1, number) not in _rows(tmp_path / "out.db"):
                assert time.monotonic() < give_up_s, "the fast writer waits for the slow one"
                time.sleep(0.02)
    assert commits(tmp_path / "slow") == []
    (tmp_path / "gate").touch()
    over.set()
    thread.join()

    assert result[0].errors == []
    offsets = [offset for batch in commits(tmp_path / "slow") for offset in batch]
    assert offsets == sorted(set(offsets))
    assert len(offsets) >= 100 + 4  # the first change may be part of the copy


def _rows(path: Path) -> list[tuple[Any, ...]]:
    try:
        return table(path)
    except sqlite3.OperationalError:  # the table is being made
        return []


def test_one_writer_fails_and_the_others_go_on(tmp_path: Path, spark: SparkSession) -> None:
    make_source(tmp_path / "source.db", 50)
    bad = NotebookOptions(path=str(tmp_path / "bad"), bulk_max=1, poison=(20,))
    spec = to_table(tmp_path)
    spec = PipelineSpec(spec.name, spec.log, spec.read, (WriteSpec("bad", "notebook", bad), *spec.writes))

    summary = run(spec, Until.ONCE, session=lambda: spark)

    assert [error.code for error in summary.errors] == ["destination.refused"]
    assert "writer bad stopped" in summary.errors[0].what
    assert table(tmp_path / "out.db") == table(tmp_path / "source.db")
    again = run(spec, Until.ONCE, session=lambda: spark)
    assert "tailrace offset ack bad 20" in again.errors[0].hint
    assert [offset for batch in commits(tmp_path / "bad") for offset in batch][-1] == 19


def test_a_signal_lets_writers_finish(tmp_path: Path, spark: SparkSession) -> None:
    make_source(tmp_path / "source.db", 2000)
    spec = to_table(tmp_path)
    shutdown, listener = Shutdown(), Listener()
    thread, result = start(spec, spark, Until.STOPPED, watcher=listener, shutdown=shutdown)
    give_up_s = time.monotonic() + 120
    while not (tmp_path / "log").exists() or _copied(spec) < 2000:
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
    shutdown.asked.set()
    thread.join()

    assert result[0].drained
    assert len(table(tmp_path / "out.db")) == 2000


def _copied(spec: PipelineSpec) -> int:
    try:
        tables = load_progress(LogReader(spec.log)).tables
    except TailraceError:
        return 0
    return tables["main.t"].copied if "main.t" in tables else 0


def test_a_source_that_is_not_there(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(TailraceError) as raised:
        run(to_table(tmp_path), Until.ONCE, session=lambda: spark)
    assert raised.value.code == "source.unreachable"


def test_fan_out_to_a_lake_and_a_table(tmp_path: Path, spark: SparkSession) -> None:
    """The payload is in the log once, whatever the number of writers."""
    make_source(tmp_path / "source.db", 1000)
    pipeline = Pipeline("test", log=str(tmp_path / "log")).read(sqlite(str(tmp_path / "source.db")))
    spec = pipeline.write(sqlite(str(tmp_path / "out.db")), name="table").write(lake(str(tmp_path / "lake"))).spec()

    run(spec, Until.ONCE, session=lambda: spark)

    rows = ds.dataset(tmp_path / "lake" / "main.t" / "current", format="parquet").to_table()
    assert sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == table(tmp_path / "source.db")
    assert table(tmp_path / "out.db") == table(tmp_path / "source.db")
    logged = [json.dumps(entry.message.data) for entry in LogReader(spec.log).entries()]
    assert sum('"v"' in line for line in logged) == 1000
