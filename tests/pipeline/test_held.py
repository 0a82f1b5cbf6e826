"""What a source holds back is told before it fills a disk."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.limits import GIB
from tailrace.source import held
from tailrace.source.held import HeldWatch


class Holding:
    """A source that holds back what it is told to."""

    def __init__(self) -> None:
        self.bytes: int | None = None

    def held_bytes(self) -> int | None:
        return self.bytes


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LOOK_EVERY_S", 0.0)


def test_much_is_told_once_and_again_when_it_has_doubled() -> None:
    said: list[str] = []
    watch, source = HeldWatch(said.append), Holding()
    reader: Any = source
    story = [None, GIB // 2, GIB, GIB + 1, 2 * GIB, 3 * GIB, 4 * GIB, GIB // 2, GIB // 3]
    told = []
    for source.bytes in story:
        watch.look(reader)
        told.append(len(said))
    assert told == [0, 0, 1, 1, 2, 2, 3, 4, 4]
    assert said[0] == "the source holds back 1.1 GB of its own log until we have read it"
    assert said[-1] == "the source holds back only 536.9 MB of its own log now"


def test_a_source_that_holds_nothing_is_not_asked() -> None:
    reader: Any = object()
    HeldWatch(lambda _: pytest.fail("nothing is held")).look(reader)
