"""A node's log and its clock: no message twice, none left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batches_of, encode_frame
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.frame import Codec, Head
from tailrace.log.reader import LogReader
from tailrace.message import Lsn, Message, Micros, NodeId, Op, now
from tailrace.relay.journal import Journal
from tailrace.relay.limbo import Control, Kind
from tailrace.relay.vclock import Vclock

Frame = tuple[Head, Any]
HERE, THERE = NodeId(11), NodeId(2**64 - 1)


def message(number: int, namespace: str = "main.t", origin: NodeId = HERE) -> Message:
    return Message(Op.INSERT, Micros(number), namespace, {"n": number}, lsn=Lsn(number), origin=origin)


def group(*numbers: int, origin: NodeId = THERE) -> list[Frame]:
    return [encode_frame(batch, Codec.LZ4) for batch in batches_of([message(n, origin=origin) for n in numbers])]


def numbers(directory: Path, origin: NodeId) -> list[tuple[int, int]]:
    """The lsn and the content of an origin's messages, in log order."""
    found = (entry.message for entry in LogReader(directory).entries())
    return [(m.lsn, (m.data or {})["n"]) for m in found if m.origin == origin]


def test_local_messages_are_numbered_without_holes(tmp_path: Path) -> None:
    """In the order that their source gave them, across namespaces."""
    with CommitLog.open(tmp_path) as log:
        journal = Journal(log, HERE)
        a = next(iter(batches_of([message(n, "main.a") for n in (10, 40, 70)])))
        b = next(iter(batches_of([message(n, "main.b") for n in (20, 90)])))
        assert journal.append_local([a, b])[HERE] == 5
        assert journal.append_local([]) == journal.vclock
        assert journal.append_local(batches_of([message(100)]))[HERE] == 6
    found = sorted(numbers(tmp_path, HERE))
    assert found == [(1, 10), (2, 20), (3, 40), (4, 70), (5, 90), (6, 100)]


def test_a_group_comes_once_and_without_a_hole(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        journal = Journal(log, HERE)
        assert journal.append_group(group(1, 2, 3))
        assert not journal.append_group(group(1, 2, 3))
        assert journal.append_group(group(4))
        with pytest.raises(TailraceError) as hole:
            journal.append_group(group(6, 7))
        assert hole.value.code == "relay.gap"
        assert "5 to 5" in hole.value.what
        with pytest.raises(TailraceError) as inside:
            journal.append_group(group(4, 5))
        assert inside.value.code == "relay.inside_transaction"
        assert journal.vclock == Vclock({THERE: Lsn(4)})
    assert numbers(tmp_path, THERE) == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (group(1, 3), "relay.bad_group"),
        (group(1, origin=NodeId(0)), "relay.malformed"),
        ([*group(1), *group(2, origin=HERE)], "relay.interleaved"),
    ],
    ids=["a hole inside", "of nobody", "of two"],
)
def test_what_is_no_group_is_refused(tmp_path: Path, frames: list[Frame], code: str) -> None:
    with CommitLog.open(tmp_path) as log:
        journal = Journal(log, HERE)
        with pytest.raises(TailraceError) as caught:
            journal.append_group(frames)
        assert caught.value.code == code
        assert not journal.vclock


def test_the_clock_outlives_the_process_and_what_is_removed(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, LogConfig(segment_bytes=1)) as log:
        journal = Journal(log, HERE)
        journal.begin_at(Vclock({NodeId(5): Lsn(50)}))
        journal.append_group(group(1, 2))
        journal.append_local(batches_of([message(1)]))
        known = journal.vclock
    with CommitLog.open(tmp_path) as log:
        journal = Journal(log, HERE)
        assert journal.vclock == known == Vclock({NodeId(5): Lsn(50), THERE: Lsn(2), HERE: Lsn(1)})
        journal.remember()
    (tmp_path / "00000000000000000000.log").unlink()
    with CommitLog.open(tmp_path) as log:
        assert Journal(log, HERE).vclock == known


def test_batches_keep_everything_else(tmp_path: Path) -> None:
    original = next(iter(batches_of([message(5), message(6)])))
    with CommitLog.open(tmp_path) as log:
        Journal(log, HERE).append_local([Batch("main.t", original.rows, original.mode)])
    (frame,) = LogReader(tmp_path).frames()
    assert frame.head.origin == HERE
    assert frame.rows().column("data").to_pylist() == [{"n": 5}, {"n": 6}]
    assert frame.rows().column("timestamp").cast(pa.int64()).to_pylist() == [5, 6]


def test_what_happens_here_is_later_than_what_is_known_here(tmp_path: Path) -> None:
    """Though another node's clock is far ahead, also after a restart."""
    ahead = 10**15
    with CommitLog.open(tmp_path) as log:
        journal = Journal(log, HERE)
        journal.append_group(group(1))
        (batch,) = batches_of([Message(Op.INSERT, Micros(ahead), "main.t", {"n": 2}, lsn=Lsn(2), origin=THERE)])
        journal.append_group([encode_frame(batch, Codec.LZ4)])
        journal.append_local(batches_of([message(5), message(6)]))
    with CommitLog.open(tmp_path) as log:
        Journal(log, HERE).append_local(batches_of([message(7)]))
    times = [e.message.timestamp for e in LogReader(tmp_path).entries() if e.message.origin == HERE]
    assert times[0] > ahead
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_a_time_that_nobody_comes_to(tmp_path: Path) -> None:
    """What happens here is later than all that is known, and after the last year there is nothing."""
    with CommitLog.open(tmp_path, LogConfig()) as log:
        journal = Journal(log, HERE)
        late = Message(
            Op.INSERT, Micros(now() + 400 * 86_400 * 1_000_000), "main.t", {"n": 1}, origin=THERE, lsn=Lsn(1)
        )
        frames = [encode_frame(batch, Codec.NONE) for batch in batches_of([late])]
        with pytest.raises(TailraceError) as caught:
            journal.append_group(frames)
        assert caught.value.code == "relay.malformed"
        assert journal.vclock == Vclock()


def test_a_leader_of_a_term_that_nobody_comes_to(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, LogConfig()) as log:
        journal = Journal(log, HERE)
        said = replace(Control(kind=Kind.PROMOTE, term=1 << 60).message(), origin=THERE, lsn=Lsn(1))
        with pytest.raises(TailraceError) as caught:
            journal.append_group([encode_frame(batch, Codec.NONE) for batch in batches_of([said])])
        assert caught.value.code == "relay.malformed"
        assert journal.limbo.term == 0
