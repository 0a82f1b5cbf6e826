"""The pictures of the design document, to the letter: normal operations and message failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.deliver.delivery import DeliveryStats
from tailrace.deliver.trouble import TroubleFile
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.operator import Operator
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.pipeline.spec import OnError, WriteSpec
from tests.deliver.conftest import Deliver, append_keys, failure, position
from tests.deliver.notebook import NotebookOptions, commits

NORMAL = "AABBAABBCACBAACB"
FAILURES = "A" * 16


def register_at(log: CommitLog, consumer: str, offsets: list[int]) -> None:
    """A consumer that has committed these offsets, one after the other."""
    consumers = Consumers(log.directory)
    consumers.register(consumer)
    with ConsumerSession(consumers, consumer) as session:
        for offset in offsets:
            session.commit(offset)
            session.flush()


def writer(name: str, path: Path, **options: object) -> WriteSpec:
    return WriteSpec(name, "notebook", NotebookOptions.model_validate({"path": str(path), **options}))


def test_normal_operations(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    append_keys(log, NORMAL)
    register_at(log, "c0", [1, 4, 6, 4, 7, 10, 12])
    register_at(log, "c1", [4, 5, 7, 13])
    assert (log.next_offset - 1, position(log, "c0"), position(log, "c1")) == (15, 12, 13)

    deliver(writer("c0", tmp_path / "c0"))
    deliver(writer("c1", tmp_path / "c1"))

    assert sorted(offset for batch in commits(tmp_path / "c0") for offset in batch) == [13, 14, 15]
    assert sorted(offset for batch in commits(tmp_path / "c1") for offset in batch) == [14, 15]
    assert (position(log, "c0"), position(log, "c1")) == (15, 15)


def test_message_failures(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    append_keys(log, FAILURES)
    register_at(log, "c0", [1, 3, 4, 5, 7, 8])
    notes = tmp_path / "c0"

    error = failure(deliver, writer("c0", notes, bulk_max=1, poison=[14]))
    assert "offsets 9 to 15" in error.what
    assert (position(log, "c0"), commits(notes)) == (8, [])

    error = failure(deliver, writer("c0", notes, bulk_max=1, poison=[14]))
    assert commits(notes) == [[9], [10], [11], [12], [13]]
    assert position(log, "c0") == 13
    assert "cannot stomach {'n': 14}" in error.what
    for command in ("tailrace log show 14", "retry:", "tailrace offset ack c0 14"):
        assert command in error.hint

    error = failure(deliver, writer("c0", notes, bulk_max=1, poison=[14]))
    assert (position(log, "c0"), len(commits(notes))) == (13, 5)

    Operator(Consumers(log.directory)).acknowledge("c0", 14, reason="cannot be written")
    deliver(writer("c0", notes, bulk_max=1, poison=[14]))
    assert commits(notes)[5:] == [[15]]
    assert position(log, "c0") == 15
    assert TroubleFile(log.directory, "c0").read() is None


def test_a_failure_that_has_passed(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    append_keys(log, FAILURES)
    register_at(log, "c0", [8])
    failure(deliver, writer("c0", tmp_path / "c0", bulk_max=1))

    said = deliver(writer("c0", tmp_path / "c0", bulk_max=1))

    assert commits(tmp_path / "c0") == [[offset] for offset in range(9, 16)]
    assert position(log, "c0") == 15
    assert any("offsets 9 to 15 are delivered one at a time" in line for line in said)


def test_a_message_acknowledged_ahead_is_not_sent(log: CommitLog, deliver: Deliver, tmp_path: Path) -> None:
    append_keys(log, FAILURES)
    register_at(log, "c0", [8])
    Operator(Consumers(log.directory)).acknowledge("c0", 12, reason="not wanted")

    deliver(writer("c0", tmp_path / "c0"))

    assert commits(tmp_path / "c0") == [[9, 10, 11, 13, 14, 15]]


@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_messages_put_aside(
    log: CommitLog, deliver: Deliver, stats: dict[str, DeliveryStats], tmp_path: Path, on_error: OnError
) -> None:
    append_keys(log, FAILURES)
    options = NotebookOptions(path=str(tmp_path / "c0"), poison=(3, 9))
    spec = WriteSpec("c0", "notebook", options, on_error=on_error)

    said = deliver(spec)

    fate = "skipped" if on_error is OnError.SKIP else "put aside"
    assert [line.split(": ")[1] for line in said if fate in line] == [f"offset 3 {fate}", f"offset 9 {fate}"]
    assert (stats["c0"].written.total(), stats["c0"].aside) == (14, 2)
    written = [offset for batch in commits(tmp_path / "c0") for offset in batch]
    assert written == [offset for offset in range(16) if offset not in (3, 9)]
    letters = [entry.message.data for entry in LogReader(log.directory).entries() if "dead" in entry.message.namespace]
    if on_error is OnError.SKIP:
        assert letters == []
        return
    assert [letter["offset"] for letter in letters if letter] == [3, 9]
    assert [json.loads(letter["data"]) for letter in letters if letter] == [{"n": 3}, {"n": 9}]
    assert all("cannot stomach" in letter["error"] for letter in letters if letter)
    deliver(spec)  # the dead letters themselves are nobody's messages
    assert [offset for batch in commits(tmp_path / "c0") for offset in batch] == written
