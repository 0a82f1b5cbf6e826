"""What tests of delivery share: a log, and writers that deliver from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.deliver.delivery import Delivery, DeliveryStats
from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Message, Micros, Mode, Op
from tailrace.pipeline.spec import WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Deliver = Callable[[WriteSpec], list[str]]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "log") as opened:
        yield opened


@pytest.fixture
def stats() -> dict[str, DeliveryStats]:
    """What each writer has done when it ran last."""
    return {}


@pytest.fixture
def deliver(log: CommitLog, spark: SparkSession, stats: dict[str, DeliveryStats]) -> Deliver:
    """Run one writer until it has everything that is in the log, or fails. Gives what it said; raises its error."""

    def run(spec: WriteSpec) -> list[str]:
        said: list[str] = []
        delivery = Delivery(spec, log, lambda: spark, stop=threading.Event(), report=said.append)
        stats[spec.name] = delivery.stats
        delivery.open()
        delivery.until = log.next_offset
        try:
            while delivery.turn():
                pass
        finally:
            delivery.close()
        return said

    return run


def append_keys(log: CommitLog, keys: str) -> None:
    """One message per letter, which is its namespace; each is a commit group, as in the seed's pictures."""
    for number, key in enumerate(keys):
        log.append_messages([Message(Op.INSERT, Micros(1), key, {"n": number})], Mode.SYNC)


def position(log: CommitLog, consumer: str) -> int:
    """The offset up to which a consumer has acknowledged everything, as on disk."""
    consumers = Consumers(log.directory)
    return consumers.position(consumers.get(consumer))


def failure(deliver: Deliver, spec: WriteSpec) -> TailraceError:
    """The error with which a writer stops."""
    with pytest.raises(TailraceError) as raised:
        deliver(spec)
    return raised.value
