"""How a session goes on: every line of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.errors import TailraceError
from tailrace.queues.negotiation import Course, Source, decide
from tailrace.queues.wire import Standing

LOG = "0" * 16
OTHER = "1" * 16
SOURCE = Source(LOG, acknowledged=100, last_enqueued=150, first_kept=50, end=200, takes_snapshots=True)
SINK = Standing(log=LOG, position=100, applied="a.1")


@pytest.mark.parametrize(
    ("source", "sink", "course"),
    [
        (SOURCE, SINK, Course.RESUME),
        (SOURCE, Standing(is_applying=True), Course.WAIT),
        (SOURCE, Standing(), Course.SNAPSHOT),
        (SOURCE, Standing(log=LOG, staged="a.1", staged_position=7), Course.SNAPSHOT),
        (SOURCE, SINK.model_copy(update={"log": OTHER}), Course.SNAPSHOT),
        (SOURCE, SINK.model_copy(update={"position": 99}), Course.SNAPSHOT),
        (SOURCE, SINK.model_copy(update={"position": 120}), Course.RESUME),
        (SOURCE, SINK.model_copy(update={"position": 200}), Course.RESUME),
        (SOURCE, SINK.model_copy(update={"position": 201}), Course.SNAPSHOT),
        (replace(SOURCE, is_forced=True), SINK, Course.SNAPSHOT),
        (replace(SOURCE, first_kept=101), SINK, Course.SNAPSHOT),
        (replace(SOURCE, first_kept=100), SINK, Course.RESUME),
        (replace(SOURCE, first_kept=500, last_enqueued=99), SINK, Course.RESUME),
        (replace(SOURCE, first_kept=500, last_enqueued=-1), SINK, Course.RESUME),
        (replace(SOURCE, takes_snapshots=False), Standing(), Course.RESUME),
        (replace(SOURCE, takes_snapshots=False, first_kept=500), SINK, Course.RESUME),
        (replace(SOURCE, takes_snapshots=False), Standing(log=OTHER, position=900), Course.RESUME),
    ],
)
def test_what_comes_next(source: Source, sink: Standing, course: Course) -> None:
    """Acceptance test 19."""
    assert decide(source, sink) is course


def test_a_sink_that_has_more_than_there_is_and_gets_no_snapshots() -> None:
    """What it lacks of a log that was set back nobody could tell."""
    with pytest.raises(TailraceError, match=r"queue\.ahead"):
        decide(replace(SOURCE, takes_snapshots=False), SINK.model_copy(update={"position": 201}))
