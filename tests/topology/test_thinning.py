"""Which messages still matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.deliver.task import DeliverItem
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.message import Lsn, Message, Micros, NodeId, Offset, Op
from tailrace.topology.thinning import Marking, Thinning

A, B = NodeId(1), NodeId(2)


def message(number: int, op: Op, data: dict[str, Any], origin: NodeId = A, before: Any = None) -> Message:
    return Message(op, Micros(1_000_000 + number), "main.t", data, before=before, origin=origin, lsn=Lsn(number))


def mattering(directory: Path, messages: list[Message], undone: tuple[tuple[int, int], ...] = ()) -> list[int]:
    """As Spark finds them."""
    with CommitLog.open(directory) as log:
        for each in messages:
            (batch,) = batches_of([each])
            log.append([Batch(batch.namespace, with_key(batch.rows, ["id"]), batch.mode, batch.origin)])
        end = log.next_offset
    work = Thinning(str(directory), "main.t", (), 0, end, undone, "")
    marked = Marking(work, [DeliverItem(Offset(0), end, ("main.t",))])
    newest: dict[tuple[str, str], tuple[Any, int]] = {}
    for found in marked(iter([pa.record_batch([pa.array([0], pa.int64())], names=["id"])])):
        for row in found.to_pylist():
            key, new = (row["key"], row["fields"]), ((row["at"], row["origin"], row["lsn"]), row["offset"])
            newest[key] = max(newest.get(key, new), new)
    return sorted({offset for _, offset in newest.values()})


def test_the_last_of_each_row(tmp_path: Path) -> None:
    told = [
        message(1, Op.INSERT, {"id": 1, "word": "a"}),
        message(2, Op.INSERT, {"id": 2, "word": "b"}),
        message(3, Op.UPDATE, {"id": 1, "word": "c"}),
        message(4, Op.DELETE, {"id": 2, "word": "b"}),
    ]
    assert mattering(tmp_path, told) == [2, 3]


def test_the_newest_is_not_the_last_to_come(tmp_path: Path) -> None:
    told = [message(9, Op.UPDATE, {"id": 1, "word": "newer"}), message(3, Op.UPDATE, {"id": 1, "word": "late"}, B)]
    assert mattering(tmp_path, told) == [0]


def test_a_row_that_moved_is_gone_from_where_it_was(tmp_path: Path) -> None:
    told = [
        message(1, Op.INSERT, {"id": 1, "word": "a"}),
        message(2, Op.UPDATE, {"id": 5, "word": "a"}, before={"id": 1, "word": "a"}),
        message(3, Op.UPDATE, {"id": 5, "word": "b"}),
    ]
    assert mattering(tmp_path, told) == [1, 2]


def test_updates_that_tell_some_fields_only(tmp_path: Path) -> None:
    told = [
        message(1, Op.INSERT, {"id": 1, "word": "a", "long": "x"}),
        message(2, Op.UPDATE, {"id": 1, "word": "b", "long": "y"}),
        message(3, Op.UPDATE, {"id": 1, "word": "c"}),
        message(4, Op.UPDATE, {"id": 1, "word": "d"}),
    ]
    assert mattering(tmp_path, told) == [1, 3]


def test_what_did_not_happen(tmp_path: Path) -> None:
    told = [message(1, Op.INSERT, {"id": 1, "word": "a"}), message(2, Op.UPDATE, {"id": 1, "word": "b"})]
    assert mattering(tmp_path, told, ((1, 2),)) == [0]
