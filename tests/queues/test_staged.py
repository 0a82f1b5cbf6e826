"""Snapshots that tasks of Spark stage beside the log of a site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.staging import Staging
from tailrace.queues import RoutingQueue, SnapshotContext
from tailrace.queues.application import application_of
from tailrace.queues.claims import Claim, Claims
from tailrace.queues.staged import Stage, StagedPart, stage_frame
from tailrace.queues.supply import Supply
from tests.queues.outboxes import TestPlace
from tests.queues.sites import TestSite
from tests.queues.test_capturing import capturing, logged, payloads, send
from tests.relay.nodes import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def rows(*texts: str) -> Iterator[pa.RecordBatch]:
    """What a task gets, in pieces of two."""
    for at in range(0, len(texts), 2):
        yield pa.RecordBatch.from_pydict({"payload": [text.encode() for text in texts[at : at + 2]]})


def claimed(place: TestPlace) -> tuple[Claims, Claim]:
    place.outbox.ask("r1", "shop", ["plant", "store"])
    claims = Claims(application_of(place.connect()))
    claim = claims.claim("shop", "me", 60)
    assert claim is not None
    return claims, claim


def test_they_are_in_the_log_once_and_before_their_end(place: TestPlace, tmp_path: Path) -> None:
    """Whatever else was staged by tasks that were run twice, and although the outbox is read again."""
    with capturing(tmp_path, place.outbox) as (capture, log):
        claims, claim = claimed(place)
        stage = Stage(log.directory, claim.client, claim.attempt, claim.sites)
        stage.write(0, rows("of a task that died"))
        for number, texts in enumerate((["a", "b", "c"], ["d"])):
            claims.refer(claim, stage.write(number, rows(*texts)).encode(), 0, None)
        claims.finish(claim)
        send(place, b"delta")
        batch = place.outbox.read(None)
        assert batch is not None
        assert len(batch) == 6
        assert capture._publish(batch)  # and then the process ends
    with capturing(tmp_path, place.outbox) as (capture, log):
        assert capture.step() == 6
        assert capture.step() == 0
        assert log.staging.waiting() == {}
    found = logged(tmp_path, destination="lrq_snapsync_store")
    assert [(message.data or {})["payload"] for message in found] == [b"a", b"b", b"c", b"d", b""]
    assert {message.tx for message in found} == {claim.attempt}
    assert payloads(tmp_path, destination="lrq_logentry_plant") == [b"delta"]


def test_what_is_gone_is_asked_for_again_and_holds_up_nobody(place: TestPlace, tmp_path: Path) -> None:
    said: list[str] = []
    with capturing(tmp_path, place.outbox, report=said.append) as (capture, log):
        claims, claim = claimed(place)
        part = Stage(log.directory, claim.client, claim.attempt, claim.sites).write(0, rows("a"))
        claims.refer(claim, part.encode(), 1, None)
        claims.finish(claim)
        send(place, b"delta")
        Staging(log.directory).discard(part.batch)
        while capture.step() or place.read_all():
            pass
    assert payloads(tmp_path) == [b"delta"]
    (asked,) = place.outbox.requests()
    assert (asked.attempt, asked.is_done, asked.failures) == (None, False, 1)
    assert "log.staging_missing" in (asked.error or "")
    assert len(said) == 1
    again = claims.claim("shop", "me", 60)
    assert again is not None
    assert again.attempt != claim.attempt


@pytest.mark.parametrize(
    "told",
    [
        b"{}",
        b"nothing",
        b"[]",
        b'{"batch": "../x", "file": {"name": "a", "frames": 1, "messages": 1, "size": 1}}',
        b'{"batch": "x", "file": {"name": "../a", "frames": 1, "messages": 1, "size": 1}}',
        b'{"batch": "x", "file": {"name": "a"}}',
    ],
)
def test_rows_that_name_no_staged_file(told: bytes) -> None:
    with pytest.raises(ValueError, match=r"staged file|Expecting"):
        StagedPart.decode(told)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    wide = spark.range(count).repartitionByRange(4, "id")
    return wide.selectExpr("cast(cast(id as string) as binary) as payload")


def test_a_frame_goes_from_tasks_to_a_site(
    stack: ExitStack, tmp_path: Path, place: TestPlace, spark: SparkSession
) -> None:
    """Through the outbox go places, and no rows."""
    office = stack.enter_context(TestSite(tmp_path, "office"))
    form = {"sqlite": str(tmp_path / "shop.db")} if place.url.startswith("sqlite") else {"postgres": place.address}  # type: ignore[attr-defined]
    place.change("DELETE FROM LRQ_Site")
    plant = TestSite(tmp_path, "plant").sends({"shop": {"outbox": form}}, office=office.port)
    stack.enter_context(plant)
    supplied: list[int] = []

    def provide(context: SnapshotContext) -> None:
        context.transmit_frame(numbers(spark, 1000), log=plant.site.directory)
        supplied.append(context.done)

    with RoutingQueue("shop").provide_snapshots(place.connecting(), provide):
        wait_for(lambda: "END" in office.payloads(client="shop"), 120)
    assert office.payloads(client="shop") == [*map(str, range(1000)), "END"]
    assert supplied == [1000]
    ids = [message.source_id for message in office.messages(client="shop")[:-1]]
    assert ids == sorted(set(ids)), "they have places of their own"
    assert plant.site.log.staging.waiting() == {}


def test_a_frame_goes_from_tasks_to_a_site_in_the_same_process(
    stack: ExitStack, tmp_path: Path, spark: SparkSession
) -> None:
    office = stack.enter_context(TestSite(tmp_path, "office"))
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends({"inventory": {}}, office=office.port))

    def provide(supply: Supply) -> None:
        supply.transmit(b"first")
        supply.transmit_frame(numbers(spark, 100))
        supply.transmit_frame(numbers(spark, 10))
        supply.transmit(b"last")

    plant.site.provide("inventory", provide)
    office.gets(["first", *map(str, range(100)), *map(str, range(10)), "last", "END"])


def test_frames_that_have_no_payloads(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is left behind."""
    with CommitLog.open(tmp_path / "log") as log:
        stage = Stage(log.directory, "shop", "r1.1", ["plant"])
        with pytest.raises(TailraceError, match=r"queue\.payload"):
            stage_frame(spark.range(3), "id", stage)
        null: Any = "cast(null as binary) as payload"
        with pytest.raises(TailraceError, match=r"queue\.payload"):
            stage_frame(spark.range(3).selectExpr(null), "payload", stage)
        assert stage_frame(numbers(spark, 0), "payload", stage) == []
        with pytest.raises(TailraceError, match=r"log\.not_found"):
            stage_frame(numbers(spark, 3), "payload", Stage(str(tmp_path / "nowhere"), "shop", "r1.1", ["plant"]))
        half = "cast(if(id = 0, null, 'text') as binary) as payload"
        with pytest.raises(TailraceError, match=r"queue\.payload"):
            stage_frame(spark.range(0, 4, 1, 4).selectExpr(half), "payload", stage)
        assert log.staging.waiting() == {}
