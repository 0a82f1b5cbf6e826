"""`format("tailrace")` in a real Spark session: batch and streaming reads."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.retention import retain
from tailrace.message import Message, Micros, NodeId, Op
from tailrace.spark import register
from tests.log.batches import bulky
from tests.log.material import SECOND, change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = "shop.orders"


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "log") as log:
        yield log


@pytest.fixture
def directory(log: CommitLog, tmp_path: Path) -> str:
    """Groups of an order and an item; times are their numbers in seconds."""
    for number in range(4):
        order = {"id": number, "total": Decimal("9.50"), "tags": ["a"], "ship": {"city": "Bern"}}
        log.append_messages(
            [
                Message(Op.INSERT, Micros(number * SECOND), ORDERS, order, origin=NodeId(2**64 - 1)),
                change("shop.items", number, at_s=number, op=Op.UPDATE),
            ]
        )
    log.append_messages([change("_tailrace.marks", 8), change(ORDERS, 9, op=Op.NOOP)])
    return str(tmp_path / "log")


def load(session: SparkSession, directory: str, **options: str) -> DataFrame:
    return session.read.format("tailrace").options(**options).load(directory)


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


class TestBatch:
    def test_typed(self, session: SparkSession, directory: str) -> None:
        frame = load(session, directory, namespace=ORDERS)
        assert " ".join(frame.columns) == "offset timestamp mode namespace op origin lsn tx data before"
        shown = frame.selectExpr("*", "data.ship.city as city", "cast(timestamp as string) as at")
        rows = shown.orderBy("offset").collect()
        assert [row["offset"] for row in rows] == [0, 2, 4, 6]
        assert rows[1]["data"].asDict(recursive=True) == {
            "id": 1,
            "total": Decimal("9.50"),
            "tags": ["a"],
            "ship": {"city": "Bern"},
        }
        row = rows[1].asDict()
        assert (row["city"], row["op"], row["mode"], row["before"]) == ("Bern", "insert", "sync", None)
        assert (row["origin"], row["at"]) == (2**64 - 1, "1970-01-01 00:00:01")

    def test_json(self, session: SparkSession, directory: str) -> None:
        frame = load(session, directory, namespaces=r"shop\.")
        assert frame.groupBy("namespace").count().orderBy("namespace").collect() == [("shop.items", 4), (ORDERS, 4)]
        parsed = frame.selectExpr("data", "from_json(data, 'total decimal(5,2)').total as total")
        assert parsed.where("total is not null").head() == (
            '{"id":0,"total":9.50,"tags":["a"],"ship":{"city":"Bern"}}',
            Decimal("9.50"),
        )

    def test_ranges_columns_and_what_is_hidden(self, session: SparkSession, directory: str) -> None:
        assert offsets(load(session, directory)) == list(range(8))
        everything = load(session, directory, includeInternal="true", includeNoop="true", startingOffset="3")
        assert offsets(everything) == list(range(3, 10))
        moments = {"startingTimestamp": "1970-01-01T00:00:02Z", "endingTimestamp": "3000000"}
        light = load(session, directory, columns="offset,op", **moments)
        assert light.orderBy("offset").collect() == [(4, "insert"), (5, "update")]
        assert load(session, directory, startingOffset="latest").count() == 0

    def test_one_frame_serves_queries_with_different_filters(self, session: SparkSession, directory: str) -> None:
        frame = load(session, directory)
        ends = frame.where("offset < 2").union(frame.where("offset > 5"))
        assert offsets(ends) == [0, 1, 6, 7]
        assert frame.count() == 8

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("offset >= 3 and origin in (0, 1) and timestamp > '1970-01-01T00:00:02Z'", [7]),
            ("origin = 18446744073709551615 and op <> 'delete' and lsn = 0 and mode = 'sync'", [0, 2, 4, 6]),
        ],
    )
    def test_filters_that_spark_hands_down_are_not_its_own_any_more(
        self, session: SparkSession, directory: str, condition: str, expected: list[int]
    ) -> None:
        session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        try:
            chosen = load(session, directory, filterPushdown="true").where(condition)
            assert "Filter " not in chosen._jdf.queryExecution().executedPlan().toString()
            assert offsets(chosen) == expected
        finally:
            session.conf.unset("spark.sql.python.filterPushdown.enabled")

    def test_a_frame_shows_the_log_as_it_was_when_it_was_loaded(
        self, session: SparkSession, log: CommitLog, directory: str
    ) -> None:
        frame = load(session, directory, namespace=ORDERS)
        log.append_messages([Message(Op.INSERT, Micros(1), ORDERS, {"id": 1, "new": 1})])
        assert frame.count() == 4
        assert load(session, directory, namespace=ORDERS).where("data.new = 1").count() == 1

    def test_a_schema_of_the_users(self, session: SparkSession, directory: str) -> None:
        reader = session.read.format("tailrace").schema("offset long, data struct<id: int>")
        frame = reader.options(namespace=ORDERS, onNewField="ignore").load(directory)
        assert [row.data.id for row in frame.orderBy("offset").collect()] == [0, 1, 2, 3]

    def test_rows_without_any_field(self, session: SparkSession, log: CommitLog, directory: str) -> None:
        log.append_messages([Message(Op.COMMAND, Micros(1), "void", None)])
        [row] = load(session, directory, namespace="void").collect()
        assert (row["op"], row["data"]) == ("command", None)

    def test_what_is_wrong_is_told(self, session: SparkSession, directory: str) -> None:
        with pytest.raises(Exception, match=r"did you mean startingOffset\?"):
            load(session, directory, startingOfset="1")


def available(session: SparkSession, directory: str, checkpoint: Path, **options: str) -> list[list[int]]:
    """The offsets of each micro-batch of a query that ends with what is available now."""
    batches: list[list[int]] = []

    def take(frame: DataFrame, _number: Any) -> None:
        batches.append(offsets(frame))

    stream = session.readStream.format("tailrace").options(**options).load(directory)
    writer = stream.writeStream.foreachBatch(take).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return batches


class TestStream:
    def test_a_checkpoint_group_by_group_and_after_a_loss(
        self, session: SparkSession, log: CommitLog, tmp_path: Path
    ) -> None:
        directory, checkpoint = str(tmp_path / "log"), tmp_path / "checkpoint"
        for _ in range(3):
            log.append([bulky(0, 10_000, "a"), bulky(0, 10_000, "b")])
        log.append([bulky(0, 200_000, "a")])
        found = available(session, directory, checkpoint, maxBytesPerTrigger="60kB")
        assert found == [[0, 1, 2, 3], [4, 5], [6]]
        log.append([bulky(0, 10, "a")])
        log.roll()
        log.append([bulky(0, 10, "a"), bulky(0, 10, "b")])
        Consumers(directory).register("c", start=8)
        assert len(retain(directory).removed) == 1
        with pytest.raises(Exception, match=r"log\.below_oldest: messages from offset 7 on"):
            available(session, directory, checkpoint)
        assert available(session, directory, checkpoint, failOnDataLoss="false") == [[8, 9]]

    def test_typed_into_a_table_and_a_new_field(self, session: SparkSession, log: CommitLog, directory: str) -> None:
        options = {"namespace": ORDERS, "startingOffset": "latest"}
        stream = session.readStream.format("tailrace").options(**options).load(directory)
        writer = stream.selectExpr("offset", "data.id").writeStream.format("memory").queryName("latest_orders")
        query = writer.start()
        try:
            query.processAllAvailable()
            log.append_messages([Message(Op.INSERT, Micros(1), ORDERS, {"id": 7})])
            query.processAllAvailable()
            assert session.table("latest_orders").collect() == [(10, 7)]
            log.append_messages([Message(Op.INSERT, Micros(1), ORDERS, {"id": 8, "new": 1})])
            with pytest.raises(Exception, match=r"schema\.changed: shop\.orders has fields from offset 11 on"):
                query.processAllAvailable()
        finally:
            query.stop()
