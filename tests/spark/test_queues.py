"""A receive queue as a Spark stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.log.commitlog import CommitLog
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
