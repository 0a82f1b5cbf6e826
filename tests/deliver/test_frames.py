"""Delivery through DataFrames: functions that need them, writers that Spark writes, and columns nobody knew before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.deliver.trouble import TroubleFile
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, rows_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.message import Message, Micros, Mode, Op
from tailrace.pipeline.spec import SchemaPolicy, WriteSpec
from tailrace.transform import omit, python, rename, sql
from tests.deliver.conftest import Deliver, failure, position
from tests.deliver.notebook import NotebookOptions


def append(log: CommitLog, *changes: tuple[Op, dict[str, Any]], mode: Mode = Mode.SYNC, **more: Any) -> None:
    """One commit group of changes to table t, whose key is id."""
    messages = [Message(op, Micros(1), "main.t", data, **more) for op, data in changes]
    log.append([Batch("main.t", with_key(rows_of(messages), ["id"]), mode)])


def insert(log: CommitLog, *rows: dict[str, Any], mode: Mode = Mode.SYNC) -> None:
    append(log, *[(Op.INSERT, row) for row in rows], mode=mode)


def lake_writer(path: Path, *functions: Any, **spec: Any) -> WriteSpec:
    options = LakeWriterOptions.model_validate({"path": str(path), **spec.pop("options", {})})
    return WriteSpec("lake", "lake", options, through=functions, **spec)


def current(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(path / "main.t" / "current", format="parquet").to_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_current_state(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"})
    deliver(lake_writer(tmp_path))
    append(log, (Op.UPDATE, {"id": 1, "v": "A"}), (Op.DELETE, {"id": 2, "v": "b"}), (Op.INSERT, {"id": 4, "v": "d"}))
    append(log, (Op.UPDATE, {"id": 30, "v": "c"}), before={"id": 3, "v": "c"})
    append(log, (Op.INSERT, {"id": 5, "v": "e"}), (Op.DELETE, {"id": 5, "v": "e"}))

    deliver(lake_writer(tmp_path))

    assert current(tmp_path) == [{"id": 1, "v": "A"}, {"id": 4, "v": "d"}, {"id": 30, "v": "c"}]


def test_what_is_delivered_twice_is_there_once(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """The lake knows its own offset, so a consumer that lost its own does no harm."""
    insert(log, {"id": 1, "v": "a"})
    deliver(lake_writer(tmp_path))
    append(log, (Op.DELETE, {"id": 1, "v": "a"}))
    deliver(lake_writer(tmp_path))

    again = lake_writer(tmp_path)
    deliver(WriteSpec("other", "lake", again.options))

    assert current(tmp_path) == []


def test_history_keeps_every_message(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    spec = lake_writer(tmp_path, options={"keep": "history"})
    insert(log, {"id": 1, "v": "a"})
    deliver(spec)
    append(log, (Op.UPDATE, {"id": 1, "v": "b"}), (Op.DELETE, {"id": 1, "v": "b"}))
    deliver(spec)
    deliver(WriteSpec("again", "lake", spec.options))

    rows = ds.dataset(tmp_path / "main.t", format="parquet", exclude_invalid_files=False).to_table()
    told = sorted(zip(rows["_offset"].to_pylist(), rows["_op"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert told == [(0, "insert", "a"), (1, "update", "b"), (2, "delete", "b")]


def test_fields_that_only_the_function_knows(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, {"id": 1, "v": "a"}, {"id": 2, "v": "bb"})

    def measure(message: dict[str, Any]) -> dict[str, Any]:
        message["data"]["length"] = len(message["data"]["v"])
        return message

    deliver(lake_writer(tmp_path, python(measure), omit("v")))

    assert current(tmp_path) == [{"id": 1, "length": 1}, {"id": 2, "length": 2}]
    assert not list(Path(log.directory).glob("spill/*/*"))


def test_sql_into_a_writer_of_columns(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, *[{"id": number, "v": str(number)} for number in range(100)])
    options = NotebookOptions(path=str(tmp_path / "notes"))

    deliver(
        WriteSpec("notes", "notebook", options, through=(sql("SELECT id * 2 AS twice FROM messages WHERE id < 5"),))
    )

    lines = [pair for line in (tmp_path / "notes").read_text().splitlines() for pair in json.loads(line)]
    assert lines == [[number, {"twice": number * 2}] for number in range(5)]
    assert position(log, "notes") == 99


def test_a_function_on_columns_after_sql(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, {"id": 1, "v": "a"}, {"id": 2, "v": "b"})

    deliver(lake_writer(tmp_path, sql("SELECT id, upper(v) AS v FROM messages"), rename({"v": "w"})))

    assert current(tmp_path) == [{"id": 1, "w": "A"}, {"id": 2, "w": "B"}]


def test_new_fields_and_wider_types_reach_the_lake(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, {"id": 1, "v": 1})
    deliver(lake_writer(tmp_path))
    insert(log, {"id": 2, "v": 2.5, "w": "new"})

    said = deliver(lake_writer(tmp_path))

    assert current(tmp_path) == [{"id": 1, "v": 1.0, "w": None}, {"id": 2, "v": 2.5, "w": "new"}]
    assert any("new field w" in line for line in said)
    assert any("field v was int64, is now double" in line for line in said)


def test_a_frozen_schema_stops_the_writer(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    spec = lake_writer(tmp_path, on_schema_change=SchemaPolicy.FREEZE)
    insert(log, {"id": 1, "v": 1})
    deliver(spec)
    insert(log, {"id": 2, "v": 2, "w": "new"})

    error = failure(deliver, spec)

    assert error.code == "schema.changed"
    assert "new field w" in error.what
    assert current(tmp_path) == [{"id": 1, "v": 1}]


def test_discarded_fields_are_reported(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    spec = lake_writer(tmp_path, on_schema_change=SchemaPolicy.DISCARD)
    insert(log, {"id": 1, "v": 1})
    deliver(spec)
    insert(log, {"id": 2, "v": 2, "w": "new"})

    said = deliver(spec)

    assert current(tmp_path) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert any("field w is new and left out" in line for line in said)


def test_a_function_that_fails_stops_before_its_message(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    insert(log, *[{"id": number, "v": 10 - number} for number in range(20)])

    def divide(message: dict[str, Any]) -> dict[str, Any]:
        message["data"]["v"] = 1 / message["data"]["v"]
        return message

    spec = lake_writer(tmp_path, python(divide))
    assert failure(deliver, spec).code == "function.failed"
    assert position(log, "lake") == -1

    error = failure(deliver, spec)

    assert "offset 10" in error.what
    assert position(log, "lake") == 9
    assert [row["id"] for row in current(tmp_path)] == list(range(10))
    trouble = TroubleFile(log.directory, "lake").read()
    assert trouble is not None and trouble.first == 10


def test_a_function_on_messages_cannot_follow_one_on_frames() -> None:
    from tailrace.transform.chain import Chain

    with pytest.raises(TailraceError) as raised:
        Chain((sql("SELECT * FROM messages"), python(lambda message: message))).split()
    assert raised.value.code == "config.invalid"


def test_copies_of_a_table_do_not_add_up(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """Rows of a first copy are only added; those of a second one replace them."""
    rows = [{"id": number, "v": "first"} for number in range(50)]
    log.append_messages([Message(Op.NOOP, Micros(1), "main.t", None)], Mode.COPY)
    insert(log, *rows[:25], mode=Mode.COPY)
    deliver(lake_writer(tmp_path))
    insert(log, *rows[25:], mode=Mode.COPY)
    deliver(lake_writer(tmp_path))
    assert current(tmp_path) == rows
    log.append_messages([Message(Op.NOOP, Micros(1), "main.t", None)], Mode.COPY)
    insert(log, *[{**row, "v": "second"} for row in rows[:30]], mode=Mode.COPY)

    deliver(lake_writer(tmp_path))

    assert [row["v"] for row in current(tmp_path)] == ["second"] * 30 + ["first"] * 20
