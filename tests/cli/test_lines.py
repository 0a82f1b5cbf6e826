"""Progress as plain lines."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tailrace.cli import lines
from tailrace.cli.lines import LINE_EVERY_S, Lines, namespace_line, summary_lines, writer_line
from tailrace.cli.sight import NamespaceSight, Sight, WriterSight
from tailrace.message import Offset
from tailrace.pipeline.run import Summary
from tailrace.source.phase import Phase

COPYING = NamespaceSight("main.orders", Phase.COPY, 1_000, 4_000, 1_000, 500.0)
SYNCING = NamespaceSight("main.items", Phase.SYNC, 10, 10, 2_500, 12.4)
BEHIND = WriterSight("lake", "running", 1_200, 0, 300.0, 42, 1.5)
DONE = WriterSight("copy", "waiting for messages", 3_500, 2, 0.0, 0, 0.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lines, "time", clock)
    return clock


def test_a_namespace_that_is_copied() -> None:
    assert namespace_line(COPYING) == "main.orders: copy, 1,000 of about 4,000 rows (25%), 500/s, 6.0 s left"


def test_a_namespace_of_unknown_size() -> None:
    assert namespace_line(replace(COPYING, rows=None)) == "main.orders: copy, 1,000 rows, 500/s"


def test_a_copy_longer_than_it_was_said_to_be() -> None:
    line = namespace_line(replace(COPYING, copied=5_000))
    assert line == "main.orders: copy, 5,000 of about 4,000 rows (100%), 500/s, 0.0 s left"


def test_a_copy_that_stands_still_has_no_end() -> None:
    assert "left" not in namespace_line(replace(COPYING, rate=0.0))


def test_a_namespace_that_is_followed() -> None:
    assert namespace_line(SYNCING) == "main.items: sync, 2,500 messages captured, 12/s"


def test_writers() -> None:
    assert writer_line(BEHIND) == "writer lake: 1,200 written, 300/s, 42 messages behind (1.5 s), running"
    assert writer_line(DONE) == "writer copy: 3,500 written, 0/s, 0 messages behind, 2 put aside, waiting for messages"
    assert ", 2 skipped, " in writer_line(replace(DONE, fate="skipped"))


def test_parts_that_moved_have_a_line_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    display = Lines(stream)
    sight = Sight((COPYING, SYNCING), (BEHIND,), is_waiting=False)
    display.show(sight)
    assert stream.getvalue() == ""
    clock.now_s += LINE_EVERY_S
    display.show(sight)
    assert len(stream.getvalue().splitlines()) == 3
    display.show(sight)
    clock.now_s += LINE_EVERY_S
    display.show(replace(sight, writers=(replace(BEHIND, behind=41),)))
    assert len(stream.getvalue().splitlines()) == 4
    assert "41 messages behind" in stream.getvalue()


def test_the_end_of_a_copy_is_told_at_once(clock: Clock) -> None:
    stream = io.StringIO()
    display = Lines(stream)
    display.show(Sight((COPYING,), (BEHIND,), is_waiting=False))
    for _ in range(2):
        display.show(Sight((replace(COPYING, phase=Phase.COMPLETE),), (BEHIND,), is_waiting=False))
    assert stream.getvalue() == "main.orders: complete, 1,000 messages captured, 500/s\n"


def test_waiting_is_told_at_once_and_then_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    display = Lines(stream)
    for is_waiting in (True, False, True):
        display.show(Sight((), (DONE,), is_waiting))
    assert stream.getvalue() == "waiting for changes\n"
    clock.now_s += LINE_EVERY_S
    display.show(Sight((), (DONE,), is_waiting=True))
    assert stream.getvalue().splitlines()[1:] == [writer_line(DONE), "waiting for changes"]


def test_the_summary() -> None:
    summary = Summary(
        captured={"main.orders": 900, "main.items": 100},
        delivered={"lake": {"main.orders": 900}, "copy": {}},
        end=Offset(1_010),
        seconds=12.0,
    )
    assert list(summary_lines(summary, 10.0)) == [
        "captured 1,000 messages, 100/s",
        "writer lake: 900 messages written, 90/s",
        "writer copy: 0 messages written, 0/s",
        "ended at offset 1009 after 12.0 s",
    ]


def test_a_run_too_short_to_measure() -> None:
    summary = Summary(captured={}, delivered={}, end=Offset(0), seconds=0.0)
    assert next(summary_lines(summary, 0.0)) == "captured 0 messages, 0/s"
