"""Delivery through DataFrames: functions that need them, writers that Spark writes, and columns nobody knew before."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tailrace.adaptor.console.options import ConsoleWriterOptions
from tailrace.adaptor.files.options import FilesWriterOptions
from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.deliver.deadletter import dead_letter_namespace
from tailrace.deliver.trouble import TroubleFile
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batch_of, rows_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.log.documents import json_field
from tailrace.log.reader import LogReader
from tailrace.message import Message, Micros, Mode, Op
from tailrace.pipeline.spec import OnError, SchemaPolicy, WriteSpec
from tailrace.transform import omit, pretty, python, rename, sql
from tests.deliver.conftest import Deliver, failure, position
from tests.deliver.notebook import Notebook, NotebookOptions, commits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAR = sql("SELECT * FROM messages")


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


def test_blobs_stay_blobs_when_other_values_come(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """Such values are JSON in the log, of a whole batch at a time, be it by itself or among others."""
    blob = b"\x00\xff"
    mixed = ['{"$binary": "AP8="}', '"text"', '{"$text": "/w=="}', "2.5", None]

    def append_mixed(first: int) -> None:
        ids = pa.array(range(first, first + len(mixed)), pa.int64())
        data = pa.StructArray.from_arrays([ids, pa.array(mixed)], fields=[pa.field("id", pa.int64()), json_field("v")])
        log.append([batch_of("main.t", data, timestamp=Micros(1), key=["id"])])

    insert(log, {"id": 1, "v": blob})
    append_mixed(2)
    deliver(lake_writer(tmp_path))
    append_mixed(7)
    deliver(lake_writer(tmp_path))

    expected = [blob, b"text", b"\xff", b"2.5", None]
    assert [row["v"] for row in current(tmp_path)] == [blob, *expected, *expected]


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
    insert(log, {"id": 2, "v": "2", "w": "new"}, {"id": 3, "v": "three", "w": None})

    said = deliver(spec)

    assert current(tmp_path) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}, {"id": 3, "v": None}]
    assert any("field w is new and left out" in line for line in said)
    assert "lake: main.t: 1 values of v discarded in offsets 1 to 2" in said


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


def test_a_message_at_fault_repeats_none_of_the_others(
    log: CommitLog, deliver: Deliver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even where the destination does not know what it has."""
    spec = WriteSpec("terminal", "console", ConsoleWriterOptions(format="json"))
    insert(log, *[{"id": number, "v": "good"} for number in range(3)])
    moments = pa.StructArray.from_arrays([pa.array([1, 2], pa.timestamp("ns"))], names=["at"])
    log.append([batch_of("main.u", moments, timestamp=Micros(1))])
    assert failure(deliver, spec).code == "schema.changed"
    capsys.readouterr()

    error = failure(deliver, spec)

    assert "stopped before offset 3" in error.what
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == [0, 1, 2]


def odd(frame: DataFrame) -> DataFrame:
    return frame.where("data.id % 2 = 1").select("offset", "op", "data", "_originals")


def test_values_of_several_types_pass_through_frames(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """What a function does not touch stays as it is, whatever it is called; what it changes is text."""

    def mixed(first: int, values: list[str | None]) -> None:
        ids = pa.array(range(first, first + len(values)), pa.int64())
        data = pa.StructArray.from_arrays([ids, pa.array(values)], fields=[pa.field("id", pa.int64()), json_field("v")])
        log.append([batch_of("main.t", data, timestamp=Micros(1), key=["id"])])

    mixed(1, ["1", '"1"', '{"x": [1, "a"]}', None, "true"])
    insert(log, {"id": 6, "v": 6.0}, {"id": 7, "v": 7.5})
    insert(log, {"id": 8, "v": "eight"}, {"id": 9, "v": "nine"})
    query = sql("SELECT id, v, v AS again, upper(v) AS w FROM messages WHERE v IS NULL OR v <> 'eight'")

    def write(name: str, *functions: Any) -> list[dict[str, Any]]:
        options = FilesWriterOptions.model_validate({"path": str(tmp_path / f"{name}.jsonl")})
        deliver(WriteSpec(name, "files", options, through=functions))
        return [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]

    values = {1: 1, 2: "1", 3: {"x": [1, "a"]}, 4: None, 5: True, 6: 6.0, 7: 7.5, 9: "nine"}
    texts = ["1", "1", '{"X": [1, "A"]}', None, "TRUE", "6.0", "7.5", "NINE"]
    expected = [{"id": id, "v": v, "b": v, "w": text} for (id, v), text in zip(values.items(), texts, strict=True)]
    assert write("all", query, rename({"again": "b"})) == expected
    assert write("odd", python(odd, frame=True), omit("w")) == [{"id": id, "v": values[id]} for id in (1, 3, 5, 7, 9)]


def test_what_functions_log_comes_through_frames(
    log: CommitLog, deliver: Deliver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    insert(log, {"id": 1, "v": "a"}, {"id": 2, "v": "b"})
    options = NotebookOptions(path=str(tmp_path / "notes"))
    doubled = sql("SELECT id * 2 AS id FROM messages")

    with caplog.at_level(logging.INFO, "tailrace.pretty"):
        deliver(WriteSpec("notes", "notebook", options, through=(pretty(0), doubled, pretty(0))))

    told = [json.loads(record.getMessage())["data"] for record in caplog.records if record.name == "tailrace.pretty"]
    assert sorted(told, key=lambda data: (len(data), data["id"])) == [
        {"id": 2},
        {"id": 4},
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]


class Counted(NotebookOptions):
    """Notes how often it was opened."""

    def open(self) -> Notebook:
        with open(f"{self.path}.opened", "a", encoding="utf-8") as file:
            file.write("once\n")
        return super().open()


def test_a_refused_message_is_no_failed_task(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """Spark would try such a task again, several times."""
    insert(log, {"id": 1, "v": "a"}, {"id": 2, "v": "b"})
    spec = WriteSpec("notes", "notebook", Counted(path=str(tmp_path / "notes"), poison=(1,)), through=(STAR,))

    error = failure(deliver, spec)

    assert "cannot stomach" in error.what
    assert (tmp_path / "notes.opened").read_text() == "once\n"
    again = failure(deliver, spec)
    assert "stopped before offset 1" in again.what
    assert commits(tmp_path / "notes") == [[0]]


def jobs(spark: SparkSession) -> int:
    """How many jobs Spark has begun so far."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def test_a_refused_message_costs_few_jobs(
    log: CommitLog, deliver: Deliver, tmp_path: Path, spark: SparkSession
) -> None:
    """Through DataFrames, too, messages are redelivered one at a time in one task, each committed by itself."""
    insert(log, *[{"id": number, "v": "x"} for number in range(300)])
    options = NotebookOptions(path=str(tmp_path / "notes"), poison=(200,))
    spec = WriteSpec("notes", "notebook", options, through=(STAR,))
    failure(deliver, spec)
    before = jobs(spark)

    error = failure(deliver, spec)

    assert "stopped before offset 200" in error.what
    assert commits(tmp_path / "notes") == [[offset] for offset in range(200)]
    assert position(log, "notes") == 199
    assert jobs(spark) - before < 6


@pytest.mark.parametrize("functions", [(), (STAR,)], ids=["plain", "sql"])
def test_many_messages_that_a_lake_refuses_cost_few_jobs(
    log: CommitLog, deliver: Deliver, tmp_path: Path, spark: SparkSession, functions: tuple[Any, ...]
) -> None:
    rows = [{"id": None if number % 3 else number, "v": "x"} for number in range(300)]
    insert(log, *rows)
    before = jobs(spark)

    deliver(lake_writer(tmp_path, *functions, on_error=OnError.DEAD_LETTER))

    assert [row["id"] for row in current(tmp_path)] == [number for number in range(300) if number % 3 == 0]
    assert jobs(spark) - before < 20
    entries = [entry.message for entry in LogReader(log.directory).entries()]
    letters = [one.data["offset"] for one in entries if one.namespace == dead_letter_namespace("lake") and one.data]
    assert letters == [number for number in range(300) if number % 3]


def test_a_refused_schema_is_put_aside_with_its_messages_alone(
    log: CommitLog, deliver: Deliver, tmp_path: Path
) -> None:
    spec = lake_writer(tmp_path, on_schema_change=SchemaPolicy.FREEZE, on_error=OnError.SKIP)
    insert(log, {"id": 1, "v": 1})
    deliver(spec)
    insert(log, {"id": 2, "v": 2, "w": "new"})
    insert(log, {"id": 3, "v": 3})

    said = deliver(spec)

    assert current(tmp_path) == [{"id": 1, "v": 1}, {"id": 3, "v": 3}]
    assert any("offset 1 skipped" in line for line in said)


def test_a_function_on_frames_that_fails_at_single_messages(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """Only Spark knows which: they are found by halving."""
    insert(log, *[{"id": number, "v": str(number) if number % 10 else "none"} for number in range(20)])
    options = NotebookOptions(path=str(tmp_path / "notes"))
    spec = WriteSpec(
        "notes", "notebook", options, through=(sql("SELECT CAST(v AS INT) AS v FROM messages"),), on_error=OnError.SKIP
    )

    said = deliver(spec)

    assert [line for line in said if "skipped" in line and "offset 10" in line]
    assert sorted(offset for one in commits(tmp_path / "notes") for offset in one) == [
        number for number in range(20) if number % 10
    ]
    assert position(log, "notes") == 19


def test_keys_that_a_lake_cannot_tell_apart_are_refused(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    """The number 1 and the text "1" would be one row."""
    insert(log, {"id": 1, "v": "number"})
    fields = [json_field("id"), pa.field("v", pa.string())]
    keys = pa.StructArray.from_arrays([pa.array(["1", '"1"']), pa.array(["a", "b"])], fields=fields)
    log.append([batch_of("main.t", keys, timestamp=Micros(1), key=["id"])])
    failure(deliver, lake_writer(tmp_path))

    error = failure(deliver, lake_writer(tmp_path))

    assert "stopped before offset 1" in error.what
    assert "key column id of main.t has values of several types" in error.what
    assert current(tmp_path) == [{"id": 1, "v": "number"}]
