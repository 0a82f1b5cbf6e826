"""Files to read, and all that a reader makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.deliver.messages import Messages
from tailrace.log.batch import Batch, message_rows
from tailrace.message import Op
from tailrace.source.contract import Position, Reader

Row = dict[str, Any]


def reader_of(path: Path | str, **options: Any) -> Reader:
    return FilesReaderOptions.model_validate({"path": str(path), **options}).open()


def rows_of(batches: Iterable[Batch]) -> list[Any]:
    return [message.data for batch in batches for message in message_rows(batch.rows, batch.namespace, batch.origin)]


def lsns_of(batches: Iterable[Batch]) -> list[int]:
    return [lsn.as_py() for batch in batches for lsn in batch.rows.column("lsn")]


def copied(path: Path | str, **options: Any) -> list[Any]:
    """All rows that a copy gives, read by another reader than the one that planned, as in a task."""
    planner, task = reader_of(path, **options), reader_of(path, **options)
    planner.position()
    return rows_of(
        batch
        for table in planner.tables()
        for piece in through_json(planner.plan_copy(table))
        for batch in task.read_copy(table.namespace, piece)
    )


def changed(path: Path | str, start: Position, end: Position | None = None, **options: Any) -> list[Any]:
    """All rows that came after a position."""
    reader = reader_of(path, **options)
    pieces = reader.plan_changes(through_json(start), through_json(end or reader.position()))
    return rows_of(batch for piece in through_json(pieces) for batch in reader.read_changes(piece))


def through_json(value: Any) -> Any:
    """Positions and pieces are stored as JSON."""
    return json.loads(json.dumps(value))


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def append_lines(path: Path, rows: Iterable[Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def messages(namespace: str, rows: Any, first: int = 0, op: Op = Op.INSERT, **columns: Any) -> Messages:
    """Messages of which the offsets follow each other."""
    data = rows if isinstance(rows, pa.Array) else pa.array(rows)
    count = len(data)
    made: dict[str, Any] = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "op": pa.array([int(op)] * count, pa.int8()),
        "timestamp": pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
        "lsn": pa.array([0] * count, pa.int64()),
        "data": data,
        **columns,
    }
    return Messages(namespace, pa.RecordBatch.from_arrays(list(made.values()), names=list(made)))
