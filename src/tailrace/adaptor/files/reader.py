"""Reading files: their contents first, then what is added."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.adaptor.files.contents import Part, first_schema, parts_of, read_part
from tailrace.adaptor.files.marks import Mark, is_unchanged
from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.adaptor.files.watch import Watch
from tailrace.log.batch import TIMESTAMP, Batch, with_key
from tailrace.message import Mode, Op
from tailrace.source.contract import Piece, Position, Table

_log = logging.getLogger(__name__)


class FilesReader:
    """Files as a source. A position is the mark of every file: `{"files": {name: mark}}`.

    Nothing comes twice, for rows without a key could not be told apart. So a copy ends at the last position that was
    given since `install`, and what is added later comes as changes. Whoever has installed and takes no position has
    one already: all files that are new since then come as changes, and there is nothing to copy.
    """

    def __init__(self, options: FilesReaderOptions) -> None:
        self._options = options
        self._watch = Watch(options)
        self._schemas: dict[tuple[str, int], pa.Schema] = {}
        self._is_installed = False
        self._given: dict[str, Mark] | None = None
        self._to_copy: dict[str, Mark] | None = None
        self._names_to_copy: dict[str, list[str]] = {}
        """By namespace; made when the first copy is planned."""

    def tables(self) -> list[Table]:
        tables: dict[str, pa.Schema] = {}
        for name, mark in self._watch.marks().items():
            namespace = self._watch.namespace_of(name)
            if not len(tables.get(namespace, ())):
                tables[namespace] = self._schema(name, mark)
        return [Table(namespace, schema, self._options.key) for namespace, schema in sorted(tables.items())]

    def install(self, tables: Sequence[Table]) -> None:
        """Files need nothing, but a copy needs the position that comes next."""
        self._is_installed, self._to_copy = True, None

    def uninstall(self) -> None:
        """Files need nothing."""

    def position(self) -> Position:
        if self._given is None or self._options.tail:
            self._given = self._watch.marks()
        self._to_copy, self._names_to_copy = self._given, {}
        return {"files": {name: mark.to_json() for name, mark in self._given.items()}}

    def plan_copy(self, table: Table) -> list[Piece]:
        marks = self._to_copy
        if marks is None:
            marks = {} if self._is_installed else self._watch.marks()
        if self._to_copy is None or not self._names_to_copy:
            self._names_to_copy = self._by_namespace(marks)
        names = self._names_to_copy.get(table.namespace, [])
        return self._pieces([part for name in names for part in self._parts(name, 0, marks[name], lsn=0)])

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        for part in piece["parts"]:
            for _, data in self._read(part):
                lsns = np.zeros(data.num_rows, np.int64)
                yield self._batch(namespace, data, Mode.COPY, lsns, time.time_ns() // 1000)

    def copied(self) -> None:
        """No view was kept."""

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        before = start.get("files", {})
        lsn = sum(mark["size"] for mark in before.values())
        parts: list[Part] = []
        for name, stored in end.get("files", {}).items():
            if stored == before.get(name):
                continue
            mark = Mark.from_json(stored)
            first = self._first_new_byte(name, Mark.from_json(before[name]), mark) if name in before else 0
            parts += self._parts(name, first, mark, lsn)
            lsn += mark.size - first
        return self._pieces(parts)

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        for part in piece["parts"]:
            first, last = part["lsn"], part["lsn"] + part["to"] - part["from"]
            for at, data in self._read(part):
                lsns = np.minimum(np.arange(first + at, first + at + data.num_rows), last)
                yield self._batch(part["namespace"], data, Mode.SYNC, lsns, part["mark"]["at"])

    def reached(self) -> None:
        """Pieces are read to their end."""

    def forget(self, upto: Position) -> None:
        """The files belong to whoever writes them."""

    def close(self) -> None:
        """No file stays open."""

    def _by_namespace(self, marks: Mapping[str, Mark]) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for name in marks:
            names.setdefault(self._watch.namespace_of(name), []).append(name)
        return names

    def _first_new_byte(self, name: str, known: Mark, mark: Mark) -> int:
        """Where to go on in a file that has changed."""
        path = self._watch.path_of(name)
        if known == mark:
            return mark.size
        goes_on = self._watch.content_of(name).is_appendable and known.id == mark.id and known.size <= mark.size
        if goes_on and is_unchanged(path, known):
            return known.size
        _log.warning("%r was replaced or has become shorter; it is read again from its start", path)
        return 0

    def _parts(self, name: str, start: int, mark: Mark, lsn: int) -> list[Part]:
        """What lies between a byte and a mark. `lsn` is the number of the first byte."""
        path = self._watch.path_of(name)
        try:
            parts = parts_of(path, self._watch.content_of(name), start, mark.size, self._options)
        except FileNotFoundError:
            _log.warning("%r is gone before it was read", path)
            return []
        common = {"file": name, "namespace": self._watch.namespace_of(name), "mark": mark.to_json()}
        return [{**common, **part, "lsn": lsn + part["from"] - start} for part in parts]

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

    def _read(self, part: Part) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a part; none when its file is no longer what it was, for then it is read anew anyway."""
        path = self._watch.path_of(part["file"])
        if not is_unchanged(path, Mark.from_json(part["mark"])):
            _log.warning("%r was replaced, shortened or removed before it was read", path)
            return
        yield from read_part(path, self._watch.content_of(part["file"]), part, self._options)

    def _schema(self, name: str, mark: Mark) -> pa.Schema:
        """The columns that a file begins with; remembered, unless there are none yet."""
        known = self._schemas.get((name, mark.id))
        if known is not None:
            return known
        schema = first_schema(self._watch.path_of(name), self._watch.content_of(name), mark.size, self._options)
        if len(schema):
            self._schemas[name, mark.id] = schema
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
