"""What a stretch has of a namespace, and the parts in which a DataFrame of it tells no lies."""

from __future__ import annotations

import re
from typing import Any

from tailrace.deliver.stretch import Share, measure
from tailrace.log.batch import Batch, rows_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.log.reader import LogReader
from tailrace.message import Message, Micros, Mode, Offset, Op


def share_of(log: CommitLog, *frames: list[tuple[Op, dict[str, Any]]]) -> Share:
    """A share of frames that are one commit group."""
    batches = [
        Batch("t", with_key(rows_of([Message(op, Micros(1), "t", data) for op, data in frame]), ["id"]), Mode.SYNC)
        for frame in frames
    ]
    log.append(batches)
    return measure(LogReader(log.directory).view, Offset(0), re.compile(""), 1, with_schemas=True).shares["t"]


def test_updates_with_other_fields_are_another_part(log: CommitLog) -> None:
    """Even inside a commit group. A field that an update does not have stays as it is, so it must not become null."""
    share = share_of(
        log,
        [(Op.INSERT, {"id": 1, "a": 1, "b": 1})],
        [(Op.UPDATE, {"id": 1, "a": 2})],
        [(Op.UPDATE, {"id": 1, "a": 3}), (Op.DELETE, {"id": 1, "a": 3})],
        [(Op.DELETE, {"id": 1})],
        [(Op.UPDATE, {"id": 1, "a": 4, "b": 4})],
        [(Op.INSERT, {"id": 2, "a": 5})],
    )
    parts = [(part.first, part.end, part.messages) for part in share.parts()]
    assert parts == [(0, 1, 1), (1, 5, 4), (5, 7, 2)]
    names = [[entry.name for entry in part.schema.field("data").type] for part in share.parts() if part.schema]
    assert names == [["id", "a", "b"], ["id", "a"], ["id", "a", "b"]]
    assert sum(part.bytes for part in share.parts()) == share.bytes


def test_inserts_are_whole_rows(log: CommitLog) -> None:
    share = share_of(log, [(Op.INSERT, {"id": 1, "a": 1})], [(Op.INSERT, {"id": 2, "b": 1})], [(Op.DELETE, {"id": 1})])
    assert share.parts() == [share]
