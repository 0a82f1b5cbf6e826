"""Which messages a log still has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.message import Lsn, NodeId
from tailrace.relay.journal import Journal
from tailrace.relay.oldest import check_contained, check_kept, told
from tailrace.relay.vclock import Vclock
from tests.relay.hostile import frame

HERE, THERE, THIRD = NodeId(11), NodeId(12), NodeId(13)


def clock(**lsns: int) -> Vclock:
    names = {"here": HERE, "there": THERE, "third": THIRD}
    return Vclock({names[name]: Lsn(lsn) for name, lsn in lsns.items()})


def test_what_was_removed_and_what_never_was_there(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, LogConfig(segment_bytes=1)) as log:
        journal = Journal(log, HERE)
        assert journal.oldest() == Vclock()
        journal.append_group([frame(1, 2, origin=THERE)])
        journal.append_group([frame(1, origin=THIRD)])
        journal.append_group([frame(3, origin=THERE)])
        assert journal.oldest() == Vclock()
        journal.remember()
    (tmp_path / "00000000000000000000.log").unlink()
    with CommitLog.open(tmp_path, LogConfig(segment_bytes=1)) as log:
        journal = Journal(log, HERE)
        assert journal.oldest() == clock(there=2)
        journal.begin_at(clock(there=10, here=5))  # a snapshot: the log has a hole where it came
        assert journal.oldest() == clock(there=10, here=5)
        journal.append_group([frame(11, 12, origin=THERE)])
        assert journal.oldest() == clock(there=10, here=5)
        assert journal.vclock == clock(there=12, here=5, third=1)


def test_refusals() -> None:
    check_kept(clock(there=2), clock(there=2, here=1))
    check_kept(clock(there=2), clock(there=1), {THERE})
    with pytest.raises(TailraceError, match="messages 2 to 9 of node 12") as gap:
        check_kept(clock(there=9), clock(there=1))
    assert gap.value.code == "relay.gap"
    check_contained(clock(there=2), clock(there=2, here=1))
    with pytest.raises(TailraceError, match="messages 1 to 2 of node 12") as unsent:
        check_contained(clock(there=2), clock(here=7))
    assert unsent.value.code == "relay.unsent"
    assert told([(NodeId(n), 1, 2) for n in range(9)]).endswith("and of 4 other nodes")
