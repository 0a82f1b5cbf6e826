"""What a peer gets, and what not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import batches_of, decode_body
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.contents import Contents
from tailrace.log.frame import Head
from tailrace.log.view import LogView
from tailrace.message import Lsn, Message, Micros, NodeId, Offset, Op, now
from tailrace.relay.journal import Journal
from tailrace.relay.names import NOOPS
from tailrace.relay.outgoing import Outgoing, Wish
from tailrace.relay.vclock import Vclock
from tailrace.relay.wire import packed_together
from tests.relay.test_journal import HERE, THERE, group, message

OTHER = NodeId(7)


@pytest.fixture(params=[1, 1 << 30], ids=["a segment per group", "one segment"])
def journal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Journal]:
    with CommitLog.open(tmp_path, LogConfig(segment_bytes=request.param)) as log:
        made = Journal(log, HERE)
        made.append_local(batches_of([message(1), message(2, "main.secret"), message(3)]))
        made.append_group(group(1, 2))
        log.append(batches_of([Message(Op.COMMAND, Micros(0), "_tailrace.position", {"json": "{}"})]))
        made.append_local(batches_of([message(4)]))
        made.append_group(group(3))
        yield made


def clock(here: int = 0, there: int = 0) -> Vclock:
    return Vclock({HERE: Lsn(here), THERE: Lsn(there)})


def outgoing(journal: Journal, since: Vclock, wish: Wish | None = None) -> Outgoing:
    return Outgoing(LogView(journal.log.directory), wish or Wish(OTHER), since, journal.vclock)


def sent(going: Outgoing, journal: Journal) -> list[list[tuple[str, int]]]:
    """By group: the namespaces and the lsns."""
    found = []
    for frames in going.groups(journal.log.next_offset):
        found.append([(head.namespace, lsn) for head, body in frames for lsn in lsns(head, body)])
    going.close()
    return found


def lsns(head: Head, body: Any) -> list[int]:
    found: list[Any] = decode_body(body).column("lsn").to_pylist()
    assert (head.first_lsn, head.last_lsn) == (min(found), max(found))
    return found


FIRST = [("main.t", 1), ("main.secret", 2), ("main.t", 3)]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (clock(), [FIRST, [("main.t", 1), ("main.t", 2)], [("main.t", 4)], [("main.t", 3)]]),
        (clock(here=3), [[("main.t", 1), ("main.t", 2)], [("main.t", 4)], [("main.t", 3)]]),
        (clock(here=3, there=2), [[("main.t", 4)], [("main.t", 3)]]),
        (clock(there=3), [FIRST, [("main.t", 4)]]),
        (clock(here=4, there=3), []),
        (clock(here=99, there=99), []),
    ],
)
def test_what_its_clock_does_not_cover(journal: Journal, since: Vclock, expected: Any) -> None:
    going = outgoing(journal, since)
    found = sent(going, journal)
    assert [sorted(each, key=lambda pair: pair[1]) for each in found] == expected
    assert journal.vclock <= going.vclock


def test_more_comes_later(journal: Journal) -> None:
    going = outgoing(journal, journal.vclock)
    assert list(going.groups(journal.log.next_offset)) == []
    journal.append_local(batches_of([message(5)]))
    assert sent(going, journal) == [[("main.t", 5)]]


def test_a_large_group_is_gathered_in_steps(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a peer is not without a sign of life meanwhile. It comes whole all the same."""
    monkeypatch.setattr("tailrace.relay.outgoing._STEP_BYTES", 1)
    rows = [Message(Op.INSERT, now(), f"main.t{n}", {"n": n}, lsn=Lsn(n)) for n in range(3)]
    known = journal.vclock
    journal.append_local(batches_of(rows))
    going = Outgoing(journal.view, Wish(NodeId(99)), known, known)
    first, second, whole = going.steps(journal.end)
    assert (first, second) == ([], [])
    assert len(whole) == 3
    assert [batch is None for batch, _ in packed_together([first, second, whole])] == [True, True, False]
    assert [len(group) for group in Outgoing(journal.view, Wish(NodeId(99)), known, known).groups(journal.end)] == [3]


def test_its_own_messages_come_back_only_if_it_lost_them(journal: Journal) -> None:
    """What it writes after it has subscribed it has."""
    lost = outgoing(journal, clock(here=4, there=1 - 1), Wish(THERE))
    journal.append_group(group(4, 5))
    assert sent(lost, journal) == [[("main.t", 1), ("main.t", 2)], [("main.t", 3)]]


def test_origins_that_it_does_not_want(journal: Journal) -> None:
    assert sent(outgoing(journal, clock(here=3), Wish(OTHER, without=frozenset({THERE}))), journal) == [[("main.t", 4)]]


def test_namespaces_that_it_does_not_want_say_nothing(journal: Journal) -> None:
    going = outgoing(journal, clock(there=3), Wish(OTHER, namespace=re.compile(r"\.t$")))
    first, second = sent(going, journal)
    assert sorted(first, key=lambda pair: pair[1]) == [("main.t", 1), (NOOPS, 2), ("main.t", 3)]
    assert second == [("main.t", 4)]
    again = outgoing(journal, clock(there=3), Wish(OTHER, namespace=re.compile("nothing")))
    frames = [frame for each in again.groups(journal.log.next_offset) for frame in each]
    assert b"secret" not in b"".join(bytes(body) for _, body in frames)
    assert {head.op for head, _ in frames} == {Op.NOOP}


def test_groups_of_noops_are_groups(journal: Journal, tmp_path: Path) -> None:
    """Another node takes them, and its clock has no holes."""
    going = outgoing(journal, Vclock(), Wish(OTHER, namespace=re.compile(r"\.t$")))
    with CommitLog.open(tmp_path / "other") as log:
        other = Journal(log, OTHER)
        for frames in going.groups(journal.log.next_offset):
            assert other.append_group(frames)
        assert other.vclock == journal.vclock


def test_in_the_middle_of_a_transaction(journal: Journal) -> None:
    with pytest.raises(TailraceError) as caught:
        sent(outgoing(journal, clock(here=2)), journal)
    assert caught.value.code == "relay.inside_transaction"


def test_what_is_no_longer_here(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path, LogConfig(segment_bytes=1)) as log:
        journal = Journal(log, HERE)
        for number in range(1, 4):
            journal.append_local(batches_of([message(number)]))
        (tmp_path / "00000000000000000000.log").unlink()
        with pytest.raises(TailraceError, match="messages 1 to 1") as caught:
            sent(outgoing(journal, Vclock()), journal)
        assert caught.value.code == "relay.gap"
        assert sent(outgoing(journal, clock(here=1)), journal) == [[("main.t", 2)], [("main.t", 3)]]


class _Growing(LogView):
    """A log to which something is appended while somebody looks at what it has."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal.log.directory)
        self._journal = journal

    def all_contents(self) -> Iterator[tuple[Offset, Contents]]:
        yield from super().all_contents()
        self._journal.append_local(batches_of([message(5)]))


def test_what_is_appended_while_the_beginning_is_looked_for_is_sent(journal: Journal) -> None:
    going = Outgoing(_Growing(journal), Wish(OTHER), journal.vclock, journal.vclock)
    assert sent(going, journal) == [[("main.t", 5)]]
