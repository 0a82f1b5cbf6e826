"""Looking again and again says the same as looking once."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.log import retention
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.operator import Operator
from tailrace.log.stat import LogStat, Whereabouts, stat, stat_of
from tailrace.message import Message, Op, now

NAMES = ("all", "some", "late")


def told(found: LogStat) -> list[object]:
    """The age of a message depends on when one looks."""
    return [replace(each, lag=replace(each.lag, seconds=0.0)) for each in found.consumers]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_is_what_is_found(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with CommitLog.open(tmp_path / "log", LogConfig(segment_bytes=4000)) as log:
        consumers, whereabouts = Consumers(log.directory), Whereabouts()
        for name in NAMES:
            consumers.register(name)
        for _ in range(60):
            messages = [Message(Op.INSERT, now(), f"t{chance.randrange(3)}", {"id": chance.randrange(9)})] * 3
            log.append_messages(messages)
            _move(consumers, chance, log.next_offset)
            if chance.random() < 0.1:
                retention.retain(log.directory)
            if chance.random() < 0.1:
                compact(log.directory)
            assert told(stat_of(consumers, whereabouts)) == told(stat(log.directory))


def _move(consumers: Consumers, chance: random.Random, end: int) -> None:
    """Mostly nobody moves; that is what is remembered."""
    if chance.random() < 0.7:
        return
    name = chance.choice(NAMES)
    position = consumers.position(consumers.get(name))
    if position + 1 >= end:
        return
    operator = Operator(consumers)
    match chance.randrange(3):
        case 0:
            operator.mark(name, chance.randrange(position + 1, end), reason="a test")
        case 1:
            operator.rewind(name, max(position, consumers.view.bases()[0]), reason="a test")
        case _:
            last = consumers.view.last_offsets().get("t1", -1)
            if last > consumers.get(name).positions.of("t1"):
                operator.mark(name, last, namespace="t1", reason="a test")
