"""Reading files: their contents first, then what is added."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.adaptor.files.contents import Part, first_schema, parts_of, read_part
from tailrace.adaptor.files.formats import content_of
from tailrace.adaptor.files.listing import Found
from tailrace.adaptor.files.marks import Mark, is_unchanged, mark_of
from tailrace.adaptor.files.names import namespace_of
from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.log.batch import TIMESTAMP, Batch, with_key
from tailrace.message import Mode, Op
from tailrace.source.contract import Piece, Position, Table

_log = logging.getLogger(__name__)


class FilesReader:
    """Files as a source. A position is the mark of every file: `{"files": {name: mark}}`.

    The copy ends where the position was that this reader gave last, so that what is added later comes as a change
    and not twice.
    """

    copies_once: Final = True
    """Files and columns that are found after the start come as changes: they must not be copied as well."""

    def __init__(self, options: FilesReaderOptions) -> None:
        self._options = options
        self._listing = options.listing()
        self._marks: dict[str, tuple[tuple[int, ...], Mark | None]] = {}
        self._schemas: dict[tuple[str, int], pa.Schema] = {}
        self._given: dict[str, Mark] | None = None

    def tables(self) -> list[Table]:
        tables: dict[str, pa.Schema] = {}
        for file, mark in self._marked(self._listing.found()):
            namespace = self._namespace(file)
            if mark is not None and not len(tables.get(namespace, ())):
                tables[namespace] = self._schema(file, mark.size)
        return [Table(namespace, schema, self._options.key) for namespace, schema in sorted(tables.items())]

    def install(self, tables: Sequence[Table]) -> None:
        """Files need nothing."""

    def uninstall(self) -> None:
        """Files need nothing."""

    def position(self) -> Position:
        if self._given is None or self._options.tail:
            self._given = {file.name: mark for file, mark in self._marked(self._listing.found()) if mark is not None}
        return {"files": {name: mark.to_json() for name, mark in self._given.items()}}

    def plan_copy(self, table: Table) -> list[Piece]:
        parts: list[Part] = []
        for file, now in self._marked(self._listing.found()):
            mark = now if self._given is None else self._given.get(file.name)
            if mark is not None and self._namespace(file) == table.namespace:
                parts += self._parts(file, 0, mark, lsn=0)
        return self._pieces(parts)

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        for part in piece["parts"]:
            for _, data in self._read(part):
                lsns = np.zeros(data.num_rows, np.int64)
                yield self._batch(namespace, data, Mode.COPY, lsns, time.time_ns() // 1000)

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        before = {name: Mark.from_json(mark) for name, mark in start.get("files", {}).items()}
        after = {name: Mark.from_json(mark) for name, mark in end.get("files", {}).items()}
        if before == after:
            return []
        lsn = sum(mark.size for mark in before.values())
        parts: list[Part] = []
        for file in self._listing.found():
            mark, known = after.get(file.name), before.get(file.name)
            if mark is not None and mark != known:
                first = self._first_new_byte(file, known, mark)
                parts += self._parts(file, first, mark, lsn)
                lsn += mark.size - first
        return self._pieces(parts)

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        for part in piece["parts"]:
            first, last = part["lsn"], part["lsn"] + part["to"] - part["from"]
            for at, data in self._read(part):
                lsns = np.minimum(np.arange(first + at, first + at + data.num_rows), last)
                yield self._batch(part["namespace"], data, Mode.SYNC, lsns, part["mark"]["at"])

    def forget(self, upto: Position) -> None:
        """The files belong to whoever writes them."""

    def close(self) -> None:
        """No file stays open."""

    def _namespace(self, file: Found) -> str:
        return self._options.namespace or namespace_of(file.content.stem)

    def _marked(self, files: list[Found]) -> Iterator[tuple[Found, Mark | None]]:
        """Files with their marks; those of files that have not been touched since the last time are remembered."""
        remembered, self._marks = self._marks, {}
        for file in files:
            status = file.stat
            touched = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known = remembered.get(file.name)
            if known is None or known[0] != touched:
                mark = mark_of(self._listing.path_of(file.name), file, self._options)
                known = touched, mark
            self._marks[file.name] = known
            yield file, known[1]

    def _first_new_byte(self, file: Found, known: Mark | None, mark: Mark) -> int:
        if known is None:
            return 0
        path = self._listing.path_of(file.name)
        goes_on = file.content.is_appendable and known.id == mark.id and known.size <= mark.size
        if goes_on and is_unchanged(path, known):
            return known.size
        _log.warning("%r was replaced or has become shorter; it is read again from its start", path)
        return 0

    def _pieces(self, parts: list[Part]) -> list[Piece]:
        """Parts put together into pieces that are worth a task: files may be small and many."""
        pieces: list[dict[str, list[Part]]] = []
        piece_bytes = 0
        for part in parts:
            piece_bytes += part["to"] - part["from"]
            if not pieces or piece_bytes > self._options.piece_bytes:
                pieces.append({"parts": []})
                piece_bytes = part["to"] - part["from"]
            pieces[-1]["parts"].append(part)
        return list(pieces)

    def _parts(self, file: Found, start: int, mark: Mark, lsn: int) -> list[Part]:
        """What lies between a byte and a mark. `lsn` is the number of the first byte."""
        path = self._listing.path_of(file.name)
        try:
            parts = parts_of(path, file.content, start, mark.size, self._options)
        except FileNotFoundError:
            _log.warning("%r is gone before it was read", path)
            return []
        common = {"file": file.name, "namespace": self._namespace(file), "mark": mark.to_json()}
        return [{**common, **part, "lsn": lsn + part["from"] - start} for part in parts]

    def _read(self, part: Part) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a part; none when its file is no longer what it was, for then it is read anew anyway."""
        path = self._listing.path_of(part["file"])
        content = content_of(os.path.basename(part["file"]), self._options.given_format)
        if content is None or not is_unchanged(path, Mark.from_json(part["mark"])):
            _log.warning("%r was replaced, shortened or removed before it was read", path)
            return
        yield from read_part(path, content, part, self._options)

    def _schema(self, file: Found, size: int) -> pa.Schema:
        """The columns that a file begins with; remembered, unless there are none yet."""
        path = self._listing.path_of(file.name)
        known = self._schemas.get((file.name, file.stat.st_ino))
        if known is not None:
            return known
        schema = first_schema(path, file.content, size, self._options)
        if len(schema):
            self._schemas[file.name, file.stat.st_ino] = schema
        return schema

    def _batch(self, namespace: str, data: pa.RecordBatch, mode: Mode, lsns: np.ndarray[Any, Any], at: int) -> Batch:
        count = data.num_rows
        columns: dict[str, pa.Array[Any]] = {
            "op": pa.repeat(pa.scalar(int(Op.INSERT), pa.int8()), count),
            "timestamp": pa.repeat(pa.scalar(at, TIMESTAMP), count),
            "lsn": pa.array(lsns, pa.int64()),
            "data": data.to_struct_array(),
        }
        rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return Batch(namespace, with_key(rows, self._options.key), mode)
