"""Serving a log's bytes: to how many at once, and to whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.relay.holds import Holds
from tailrace.topology.pulling import Pulling
from tailrace.topology.request import Pull
from tests.topology.logs import append


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "root") as made:
        append(made, 0, 5)
        yield made


def test_all_who_come_at_once_are_no_more_than_the_fanout(log: CommitLog, tmp_path: Path) -> None:
    directory, came = str(tmp_path / "root"), 30
    looked = threading.Barrier(came)

    def fanout() -> int:
        with suppress(threading.BrokenBarrierError):
            looked.wait(0.2)  # until all are here, if they can be
        return 2

    pulling = Pulling(directory, Holds(Consumers(directory)), fanout=fanout, beat_s=60.0)
    extent = pulling.extent()
    begun: list[object] = []

    def come(name: str) -> None:
        asked = Pull(name=name, log=extent.log, edition=extent.edition, base=extent.first, position=0, waits=True)
        pieces = pulling.pull(asked, lambda: False)
        with suppress(TailraceError):
            next(pieces)
            begun.append(pieces)

    threads = [threading.Thread(target=come, args=(f"copy{number}",)) for number in range(came)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == len(pulling.copies) == 2


def test_a_connection_that_was_taken_over_does_not_speak_for_later_ones(log: CommitLog, tmp_path: Path) -> None:
    directory = str(tmp_path / "root")
    pulling = Pulling(directory, Holds(Consumers(directory)), fanout=lambda: 8, beat_s=0.2)
    extent = pulling.extent()
    asked = Pull(name="copy", log=extent.log, edition=extent.edition, base=extent.first, position=0, waits=True)
    first, second, third = (pulling.pull(asked, lambda: False) for _ in range(3))
    next(first)
    next(second)
    second.close()
    next(third)
    assert next(first, None) is None, "it is over"
    assert pulling.copies == ["copy"]
    assert pulling._pulling, "the third still copies"
    third.close()
