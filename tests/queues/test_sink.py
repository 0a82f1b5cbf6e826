"""The sink: whatever is lost, repeated, or comes in another order, each message is there once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.reader import LogReader
from tailrace.log.selection import Selection, exactly
from tailrace.queues.entries import SHIPPED, Kind, received_batch, received_messages
from tailrace.queues.names import receive_queue
from tailrace.queues.sink import Sink
from tailrace.queues.wire import Phase, Session, Shipment, pack, unpack

LOG = "0" * 16
SESSION = Session(client="inventory", source="plant", sink="office", log=LOG)


@contextmanager
def sink_at(directory: Path) -> Iterator[Sink]:
    with CommitLog.open(directory / "queues") as log:
        sink = Sink("office", log, str(directory / "incoming"))
        try:
            yield sink
        finally:
            sink.close()


def rows(first: int, end: int) -> pa.RecordBatch:
    told = [
        {"id": number, "transaction": "t", "timestamp": number, "payload": str(number).encode()}
        for number in range(first, end)
    ]
    return pa.RecordBatch.from_pylist(told, schema=SHIPPED)


def entries(previous: int, current: int, session: Session = SESSION) -> tuple[Shipment, pa.RecordBatch]:
    shipment = Shipment(session=session, phase=Phase.ENTRIES, previous=previous, current=current)
    return shipment, rows(max(previous, 0), current)


def snapshot(request: str, previous: int, current: int, *, is_end: bool = False) -> tuple[Shipment, pa.RecordBatch]:
    phase = Phase.SNAPSHOT_END if is_end else Phase.SNAPSHOT
    shipment = Shipment(session=SESSION, phase=phase, previous=previous, current=current, request=request, base=10)
    return shipment, rows(0, 0) if is_end else rows(previous, current)


def come(directory: Path, kind: Kind | None = None) -> list[int]:
    reader = LogReader(directory / "queues")
    selection = Selection(namespace=exactly(receive_queue("inventory", "plant")))
    found = [
        message
        for frame in reader.frames(None, None, selection)
        for message in received_messages(frame.head.offset, frame.rows())
    ]
    return [message.source_id for message in found if kind in (None, message.kind)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(-1, 30), st.integers(0, 12)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1])),
            st.just("restart"),
        ),
        max_size=30,
    )
)
def test_each_comes_once_and_in_order(steps: list[tuple[int, int] | str]) -> None:
    """Acceptance test 18: shipments of any two places of the source's log, again and again, in any order."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        reached = -1
        opened = sink_at(directory)
        sink = opened.__enter__()
        for step in steps:
            if isinstance(step, str):
                opened.__exit__(None, None, None)
                opened = sink_at(directory)
                sink = opened.__enter__()
                continue
            previous, current = step
            with suppress(TailraceError):
                standing = sink.receive(*entries(previous, current))
                assert standing.position >= current
            reached = max(reached, current) if previous <= reached else reached
            assert sink.negotiate(SESSION).position == reached
        opened.__exit__(None, None, None)
        assert come(directory) == list(range(max(reached, 0)))


def test_a_hole_is_refused(tmp_path: Path) -> None:
    with sink_at(tmp_path) as sink:
        sink.receive(*entries(-1, 5))
        with pytest.raises(TailraceError) as caught:
            sink.receive(*entries(6, 9))
        assert caught.value.code == "queue.gap"
        assert come(tmp_path) == list(range(5))


def test_another_log_is_refused(tmp_path: Path) -> None:
    other = SESSION.model_copy(update={"log": "f" * 16})
    with sink_at(tmp_path) as sink:
        sink.receive(*entries(-1, 5))
        with pytest.raises(TailraceError) as caught:
            sink.receive(*entries(5, 9, other))
        assert caught.value.code == "queue.other_log"


def test_another_log_from_its_beginning_is_taken(tmp_path: Path) -> None:
    """As after the source was set up anew, when there are no snapshots."""
    other = SESSION.model_copy(update={"log": "f" * 16})
    with sink_at(tmp_path) as sink:
        sink.receive(*entries(-1, 5))
        assert sink.receive(*entries(-1, 3, other)).position == 3
        sink.receive(*entries(-1, 3, other))
        assert sink.receive(*entries(3, 4, other)).position == 4
        assert come(tmp_path) == [*range(5), *range(4)]
    with sink_at(tmp_path) as sink:
        assert (sink.negotiate(other).log, sink.negotiate(other).position) == ("f" * 16, 4)


def test_what_comes_of_a_snapshot_that_is_in_place(tmp_path: Path) -> None:
    """Nothing is staged again, so nobody waits for an end that never comes."""
    with sink_at(tmp_path) as sink:
        sink.receive(*snapshot("a.1", 10, 13))
        sink.receive(*snapshot("a.1", 13, 14, is_end=True))
        standing = sink.receive(*snapshot("a.1", 10, 13))
        assert (standing.applied, standing.staged) == ("a.1", None)
        assert sink.status()[0]["is_consistent"]
        assert come(tmp_path, Kind.SNAPSHOT) == [10, 11, 12]


def test_another_site_was_meant(tmp_path: Path) -> None:
    with sink_at(tmp_path) as sink, pytest.raises(TailraceError) as caught:
        sink.negotiate(SESSION.model_copy(update={"sink": "depot"}))
    assert caught.value.code == "queue.other_site"


def test_a_snapshot_is_seen_when_it_is_whole(tmp_path: Path) -> None:
    with sink_at(tmp_path) as sink:
        sink.receive(*snapshot("a.1", 10, 13))
        sink.receive(*snapshot("a.1", 10, 13))
        sink.receive(*snapshot("a.1", 10, 15))
        assert come(tmp_path) == []
    with sink_at(tmp_path) as sink:
        assert sink.negotiate(SESSION).staged_position == 15
        sink.receive(*snapshot("a.1", 15, 16))
        standing = sink.receive(*snapshot("a.1", 16, 17, is_end=True))
        assert (standing.applied, standing.position, standing.staged) == ("a.1", 10, None)
        sink.receive(*snapshot("a.1", 16, 17, is_end=True))
        assert come(tmp_path, Kind.SNAPSHOT) == [10, 11, 12, 13, 14, 15]
        assert len(come(tmp_path, Kind.SNAPSHOT_END)) == 1
        sink.receive(*entries(10, 12))
        assert come(tmp_path, Kind.LOG_ENTRY) == [10, 11]


def test_a_snapshot_that_begins_again_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    with sink_at(tmp_path) as sink:
        sink.receive(*snapshot("a.1", 10, 13))
        sink.receive(*snapshot("a.2", 10, 12))
        sink.receive(*snapshot("a.2", 12, 13, is_end=True))
        assert come(tmp_path, Kind.SNAPSHOT) == [10, 11]
        assert sink._log.staging.waiting() == {}


def test_a_crash_after_a_snapshot_was_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there twice."""
    with sink_at(tmp_path) as sink:
        sink.receive(*snapshot("a.1", 10, 13))
        monkeypatch.setattr(Sink, "_forget", lambda *_: None)
        sink.receive(*snapshot("a.1", 13, 14, is_end=True))
        monkeypatch.undo()
    with sink_at(tmp_path) as sink:
        assert sink.negotiate(SESSION).staged is None
        sink.receive(*snapshot("a.1", 13, 14, is_end=True))
        assert come(tmp_path, Kind.SNAPSHOT) == [10, 11, 12]


def test_a_snapshot_of_which_something_is_gone_comes_again(tmp_path: Path) -> None:
    """What waits for longer than a day is cleared away when the log is opened."""
    with sink_at(tmp_path) as sink:
        sink.receive(*snapshot("a.1", 10, 13))
        shutil.rmtree(tmp_path / "queues" / "staging")
        with pytest.raises(TailraceError, match=r"log\.staging_missing"):
            sink.receive(*snapshot("a.1", 13, 14, is_end=True))
        assert sink.negotiate(SESSION).staged is None
        sink.receive(*snapshot("a.1", 10, 13))
        sink.receive(*snapshot("a.1", 13, 14, is_end=True))
        assert come(tmp_path, Kind.SNAPSHOT) == [10, 11, 12]


def test_what_was_said_is_said_again(tmp_path: Path) -> None:
    """So that the log need not be kept from where a source was last heard of."""
    with sink_at(tmp_path) as sink:
        sink.receive(*entries(-1, 5))
        before = sink._holding.resume_offset
        sink.renew()
        sink._holding.flush()
        assert sink._holding.resume_offset > before
    with sink_at(tmp_path) as sink:
        assert sink.negotiate(SESSION).position == 5


def test_it_is_said_again_while_others_write(tmp_path: Path) -> None:
    """What is not on disk yet can be held by nobody."""
    with sink_at(tmp_path) as sink:
        with sink._log.group(waits=False) as group:
            group.add(received_batch("inventory", "plant", Kind.LOG_ENTRY, rows(0, 3)))
        sink.renew()
        sink._log.sync()
        sink.renew()
        assert sink._holding.resume_offset == 3


@pytest.mark.parametrize("spoil", [lambda raw: raw[:3], lambda raw: b"\xff" * 4 + raw[4:], lambda raw: raw[:-50]])
def test_shipments_that_cannot_be(spoil: object) -> None:
    assert callable(spoil)
    with pytest.raises(TailraceError) as caught:
        unpack(spoil(pack(*entries(-1, 5))))
    assert caught.value.code == "relay.malformed"
