"""Rows of a copy that tasks write by themselves are those that Spark would have written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tailrace.adaptor.lake import current, delta, history
from tailrace.deliver.delivery import Delivery
from tailrace.errors import TailraceError
from tailrace.log.batch import batch_of
from tailrace.log.commitlog import CommitLog
from tailrace.message import Message, Micros, Mode, Op
from tailrace.pipeline.spec import WriteSpec
from tests.adaptor.contract import SAMPLES
from tests.adaptor.lake.lakes import CurrentLake, DeltaLake, HistoryLake, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKES: list[type[Lake]] = [CurrentLake, HistoryLake, DeltaLake]
WRITERS = {CurrentLake: current.CurrentLake, HistoryLake: history.HistoryLake, DeltaLake: delta.DeltaLake}
LOADED = {name: sample for name, sample in SAMPLES.items() if name not in ("time", "duration", "null")}
"""Values of the types that a lake has as Spark has them."""


def deliver(log: CommitLog, spark: SparkSession, lake: Lake) -> None:
    spec = WriteSpec("lake", "lake", lake.options())
    delivery = Delivery(spec, log, lambda: spark, stop=threading.Event(), report=lambda _: None)
    delivery.open()
    delivery.until = log.next_offset
    try:
        while delivery.turn():
            pass
    finally:
        delivery.close()


def copy(log: CommitLog, first: int) -> None:
    """Two rows of a copy, of which the second has nothing but its key."""
    values = [pa.concat_arrays([one, pa.nulls(1, one.type)]) for one in LOADED.values()]
    rows = pa.StructArray.from_arrays([pa.array([first, first + 1]), *values], ["id", *LOADED])
    log.append([batch_of("main.t", rows, timestamp=Micros(1), mode=Mode.COPY, key=["id"])])


def begin(log: CommitLog) -> None:
    log.append_messages([Message(Op.NOOP, Micros(1), "main.t", None)], Mode.COPY)


def deliver_copy(directory: Path, spark: SparkSession, lake: Lake) -> None:
    """A copy in two batches."""
    with CommitLog.open(directory) as log:
        begin(log)
        for first in (1, 3):
            copy(log, first)
            deliver(log, spark, lake)


@pytest.mark.parametrize("form", LAKES)
def test_it_is_what_spark_writes(
    tmp_path: Path, spark: SparkSession, form: type[Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, sparks = form(tmp_path / "ours"), form(tmp_path / "sparks")
    with monkeypatch.context() as patched:
        patched.setattr(WRITERS[form], "write_frame", None)
        deliver_copy(tmp_path / "log", spark, ours)
    monkeypatch.setattr(WRITERS[form], "load", lambda *_: False)
    deliver_copy(tmp_path / "log2", spark, sparks)
    assert ours.table("main.t").schema.remove_metadata() == sparks.table("main.t").schema.remove_metadata()
    assert sorted(map(repr, ours.rows("main.t"))) == sorted(map(repr, sparks.rows("main.t")))


@pytest.mark.parametrize("form", LAKES)
def test_what_follows_a_copy_finds_its_rows(tmp_path: Path, spark: SparkSession, form: type[Lake]) -> None:
    lake = form(tmp_path / "lake")
    deliver_copy(tmp_path / "log", spark, lake)
    with CommitLog.open(tmp_path / "log") as log:
        log.append_messages([Message(Op.INSERT, Micros(2), "main.t", {"id": 9, "int64": 9})], Mode.SYNC)
        deliver(log, spark, lake)
    assert sorted(row["id"] for row in lake.rows("main.t")) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("form", [CurrentLake, DeltaLake])
def test_a_key_with_null_is_refused(tmp_path: Path, spark: SparkSession, form: type[Lake]) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        begin(log)
        rows = pa.StructArray.from_arrays([pa.array([1, None]), pa.array(["a", "b"])], ["id", "v"])
        log.append([batch_of("main.t", rows, timestamp=Micros(1), mode=Mode.COPY, key=["id"])])
        with pytest.raises(TailraceError, match=r"main\.t has NULL in its key column id"):
            deliver(log, spark, form(tmp_path / "lake"))
