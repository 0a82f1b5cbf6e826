"""A receive queue as a Spark stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.queues.census import take_census
from tailrace.queues.discovery import listener_consumer
from tailrace.queues.names import receive_queue
from tailrace.spark import register
from tests.queues.arrivals import arrive, arrive_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_what_has_come_is_a_stream_of_typed_rows(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    batches: list[list[tuple[Any, ...]]] = []

    def take(frame: DataFrame, _number: Any) -> None:
        rows = frame.selectExpr("lsn", "tx", "data.kind", "data.request", "data.payload").orderBy("offset")
        batches.append([tuple(row) for row in rows.collect()])

    with CommitLog.open(tmp_path / "queues") as log:
        arrive_snapshot(log, "stock", "north", "r1", "a", "b", "c")
        arrive(log, "stock", "south", "not for this stream")
        queue = receive_queue("stock", "north")
        reading = spark.readStream.format("tailrace").option("path", log.directory).option("namespace", queue)
        query = reading.load().writeStream.foreachBatch(take).start()
        try:
            query.processAllAvailable()
            arrive(log, "stock", "north", "d\0\x80")
            query.processAllAvailable()
        finally:
            query.stop()
    snapshot = [(number, "r1", 2, "r1", text.encode()) for number, text in enumerate("abc")]
    entry = [(0, "t1", 1, "", "d\0\x80".encode())]
    assert [batch for batch in batches if batch] == [[*snapshot, (3, "r1", 3, "r1", b"")], entry]


def test_a_stream_that_is_a_listener_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Neither to retention nor with its checkpoint, and over restarts nothing comes twice from that."""
    register(spark)
    queue = receive_queue("stock", "north")
    name = listener_consumer("stock", "spark")
    come: list[str] = []

    def take(frame: DataFrame, _number: Any) -> None:
        come.extend(row[0].decode() for row in frame.orderBy("offset").selectExpr("data.payload").collect())

    def run(log: CommitLog, checkpoint: str, *texts: str) -> None:
        """A query that is ended and begun again for each text."""
        for text in texts:
            arrive(log, "stock", "north", text)
            reading = spark.readStream.format("tailrace").option("path", log.directory).option("namespace", queue)
            stream = reading.option("consumer", name).option("maxBytesPerTrigger", "1B").load()
            writing = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / checkpoint))
            query = writing.trigger(availableNow=True).start()
            assert query.awaitTermination(120)
            log.roll()
            retain(log.directory)

    with CommitLog.open(tmp_path / "queues") as log:
        arrive(log, "stock", "north", "a")
        run(log, "first", "b", "c")
        assert come == ["a", "b", "c"]
        held = Consumers(log.directory).get(name)
        assert 0 < held.positions.through(queue) < log.next_offset - 1, "the last micro-batch is not passed yet"
        assert LogReader(log.directory).oldest > 0
        run(log, "second", "d")
        assert come[3:] == ["c", "d"], "it goes on where the consumer is"
        (waiting,) = take_census(log.directory).received[0].waiting
        assert (waiting.listener, waiting.messages) == ("spark", 1)


def test_only_a_stream_is_a_consumer(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with CommitLog.open(tmp_path / "queues") as log:
        arrive(log, "stock", "north", "a")
        reading = spark.read.format("tailrace").option("namespace", receive_queue("stock", "north"))
        with pytest.raises(Exception, match=r"option consumer is for spark\.readStream"):
            reading.option("consumer", "x").load(log.directory).collect()
    assert Consumers(tmp_path / "queues").names() == []
