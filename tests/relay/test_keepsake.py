"""What a node knows when messages are gone from its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import batches_of
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.message import Lsn, Message, Micros, NodeId, Op
from tailrace.relay.journal import Journal
from tailrace.relay.keepsake import NAME, Keepsake, keep, kept
from tailrace.relay.limbo import Control, Kind
from tailrace.relay.vclock import Vclock

HERE = NodeId(11)


def test_there_and_back(tmp_path: Path) -> None:
    known = Keepsake(Vclock({HERE: Lsn(2**63 - 1)}), Vclock({NodeId(2**64 - 1): Lsn(3)}), 4 * 10**15)
    assert kept(str(tmp_path)) == Keepsake()
    keep(str(tmp_path), known)
    assert kept(str(tmp_path)) == known


@pytest.mark.parametrize("said", [b"", b"{}", b"[]", b'{"vclock": {"x": 1}, "begin": {}, "latest_us": 0}', b"\xff"])
def test_a_file_that_cannot_be_read(tmp_path: Path, said: bytes) -> None:
    """It is not guessed: with a clock that is too low the node would give its numbers twice."""
    (tmp_path / NAME).write_bytes(said)
    with pytest.raises(TailraceError) as caught:
        kept(str(tmp_path))
    assert caught.value.code == "log.corrupt"


def test_what_is_undecided_when_its_leader_is_long_known(tmp_path: Path) -> None:
    """How its term began is not in the log any more. Where it waits is told: up to there messages can be removed."""
    row = Message(Op.INSERT, Micros(1), "main.t", {"n": 1}, lsn=Lsn(2))
    with CommitLog.open(tmp_path, LogConfig(segment_bytes=1)) as log:
        journal = Journal(log, HERE)
        journal.append_local(batches_of([Control(kind=Kind.PROMOTE, term=3).message()]))
        journal.append_local(batches_of([row]))
        begin = journal.end
        journal.append_local(batches_of([Control(kind=Kind.BEGIN, term=3).message(), row]))
        journal.append_local(batches_of([row]))
        assert journal.remember() == begin
        waiting = journal.limbo
        assert (waiting.term, waiting.leader, len(waiting.pending)) == (3, HERE, 1)
    (tmp_path / "00000000000000000000.log").unlink()
    with CommitLog.open(tmp_path) as log:
        journal = Journal(log, HERE)
        assert journal.limbo == waiting
        journal.begin_at(Vclock({HERE: Lsn(100)}))  # a snapshot that has all of it
        assert journal.limbo.pending == ()
    with CommitLog.open(tmp_path) as log:
        assert Journal(log, HERE).limbo.pending == ()
