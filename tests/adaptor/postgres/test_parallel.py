"""Several transactions at a time, each with its part of the keys, leave what one would."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.adaptor.postgres.options import PostgresWriterOptions
from tailrace.deliver.delivery import Delivery
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, rows_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.message import Message, Micros, Mode, Op
from tailrace.pipeline.spec import OnError, WriteSpec
from tests.adaptor.postgres.databases import ask, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 3_000


def spec(url: str, parallel: int, **more: Any) -> WriteSpec:
    options: dict[str, Any] = {"url": url, "parallel": parallel}
    return WriteSpec("pg", "postgres", PostgresWriterOptions(**options), **more)


def deliver(log: CommitLog, spark: SparkSession, wanted: WriteSpec) -> list[str]:
    said: list[str] = []
    delivery = Delivery(wanted, log, lambda: spark, stop=threading.Event(), report=said.append)
    delivery.open()
    delivery.until = log.next_offset
    try:
        while delivery.turn():
            pass
    finally:
        delivery.close()
    return said


def append(log: CommitLog, namespace: str, key: list[str], changes: list[tuple[Op, Any, Any]]) -> None:
    messages = [Message(op, Micros(1), namespace, data, before=before) for op, data, before in changes]
    log.append([Batch(namespace, with_key(rows_of(messages), key), Mode.SYNC)])


def story(seed: int) -> tuple[list[tuple[Op, Any, Any]], dict[int, str]]:
    """Changes and moves of a few thousand rows, and what is left of them."""
    chance = random.Random(seed)
    rows: dict[int, str] = {}
    made: list[tuple[Op, Any, Any]] = []
    for number in range(MANY):
        key = chance.randrange(MANY // 3)
        if key not in rows:
            made.append((Op.INSERT, {"id": key, "v": f"v{number}"}, None))
            rows[key] = f"v{number}"
        elif chance.random() < 0.2:
            made.append((Op.DELETE, {"id": key, "v": rows.pop(key)}, None))
        else:
            new = chance.choice([key, key + MANY]) if key + MANY not in rows else key
            old = rows.pop(key)
            made.append((Op.UPDATE, {"id": new, "v": f"v{number}"}, {"id": key, "v": old}))
            rows[new] = f"v{number}"
    return made, rows


def table(url: str) -> dict[int, str]:
    return dict(ask(url, "SELECT id, v FROM main.t"))


def test_parts_leave_what_one_would(tmp_path: Path, spark: SparkSession, database: str) -> None:
    """Also when their number changes on the way."""
    with CommitLog.open(tmp_path / "log") as log:
        changes, rows = story(1)
        for begin, parallel in ((0, 3), (1000, 1), (2000, 2)):
            append(log, "main.t", ["id"], changes[begin : begin + 1000])
            append(log, "main.plain", [], [(Op.INSERT, {"n": number}, None) for number in range(1000)])
            deliver(log, spark, spec(database, parallel))
        assert table(database) == rows
        assert ask(database, "SELECT count(*) FROM main.plain") == [(3000,)]


def test_new_fields_reach_all_parts(tmp_path: Path, spark: SparkSession, database: str) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        append(log, "main.t", ["id"], [(Op.INSERT, {"id": number, "v": "old"}, None) for number in range(1500)])
        deliver(log, spark, spec(database, 2))
        append(log, "main.t", ["id"], [(Op.INSERT, {"id": number, "v": "old"}, None) for number in range(1500, 2000)])
        more = [(Op.INSERT, {"id": number, "v": "new", "w": number}, None) for number in range(2000, 4000)]
        append(log, "main.t", ["id"], more)
        said = deliver(log, spark, spec(database, 2))
        assert said == ["pg: main.t: new field w (int64)"]
        assert ask(database, "SELECT count(*), count(w) FROM main.t") == [(4000, 2000)]


def test_what_one_part_refuses(tmp_path: Path, spark: SparkSession, database: str) -> None:
    """The other parts were further; what they had is passed over or comes again, and nothing is left out."""
    changes, rows = story(2)
    poison = min(int(value[1:]) for value in rows.values() if int(value[1:]) > MANY // 2)  # nothing changes it later
    with CommitLog.open(tmp_path / "log") as log:
        append(log, "main.t", ["id"], changes[:10])
        deliver(log, spark, spec(database, 3))
        run(database, f"ALTER TABLE main.t ADD CHECK (v <> 'v{poison}')")
        append(log, "main.t", ["id"], changes[10:])
        with pytest.raises(TailraceError, match="offsets 10 to 2999 were not written"):
            deliver(log, spark, spec(database, 3))
        with pytest.raises(TailraceError, match=f"stopped before offset {poison}"):
            deliver(log, spark, spec(database, 3))
        run(database, "ALTER TABLE main.t DROP CONSTRAINT t_v_check")
        deliver(log, spark, spec(database, 3))
        assert table(database) == rows


def test_a_message_put_aside_leaves_the_others(tmp_path: Path, spark: SparkSession, database: str) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        append(log, "main.t", ["id"], [(Op.INSERT, {"id": -1, "v": "first"}, None)])
        deliver(log, spark, spec(database, 3))
        run(database, "ALTER TABLE main.t ADD CHECK (id <> 700)")
        append(log, "main.t", ["id"], [(Op.INSERT, {"id": number, "v": "x"}, None) for number in range(2000)])
        said = deliver(log, spark, spec(database, 3, on_error=OnError.SKIP))
        assert any("offset 701 skipped" in line for line in said)
        assert ask(database, "SELECT count(*) FROM main.t") == [(2000,)]
