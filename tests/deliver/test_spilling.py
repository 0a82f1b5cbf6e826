"""What functions make of a stretch, kept in files until it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.deliver import columnroute
from tailrace.deliver.messages import messages_of
from tailrace.deliver.spilling import described, restored
from tailrace.log.batch import Batch, rows_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.log.reader import LogReader
from tailrace.message import Message, Micros, Mode, NodeId, Op
from tailrace.pipeline.spec import WriteSpec
from tailrace.transform import python
from tests.deliver.conftest import Deliver, position
from tests.deliver.notebook import NotebookOptions


def test_messages_come_back_as_they_were(log: CommitLog) -> None:
    rows = with_key(rows_of([Message(Op.INSERT, Micros(1), "a.b", {"id": 1})]), ["id"])
    log.append([Batch("a.b", rows, Mode.COPY, NodeId(1 << 63))])
    for frame in LogReader(log.directory).frames():
        messages = messages_of(frame)
        assert restored(described(messages)) == messages


def test_a_slow_function_runs_in_several_tasks(
    log: CommitLog, deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order stays, two namespaces stay apart, and one task writes."""
    monkeypatch.setattr(columnroute, "SPILL_BYTES_MIN", 1)
    for start in range(0, 100, 10):
        for name in ("a", "b"):
            log.append_messages([Message(Op.INSERT, Micros(1), name, {"n": n}) for n in range(start, start + 10)])

    def with_process(message: dict[str, Any]) -> dict[str, Any] | None:
        import os

        message["data"]["process"] = os.getpid()
        return message if message["data"]["n"] % 2 == 0 else None

    notes = tmp_path / "notes"
    deliver(WriteSpec("notes", "notebook", NotebookOptions(path=str(notes)), through=(python(with_process),)))

    (commit,) = [json.loads(line) for line in notes.read_text().splitlines()]
    offsets = [offset for offset, _ in commit]
    for which in range(2):
        mine = [data["n"] for offset, data in commit if offset // 10 % 2 == which]
        assert mine == list(range(0, 100, 2))
    assert len(offsets) == len(set(offsets)) == 100
    assert len({data["process"] for _, data in commit}) > 1
    assert position(log, "notes") == log.next_offset - 1
    assert not list(Path(log.directory).glob("spill/*/*"))
