"""Messages as CSV. The columns are those of the file's first line for good."""

from __future__ import annotations

import csv as python_csv
import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tailrace.adaptor.files.datafile import DataFile
from tailrace.adaptor.files.jsontext import json_of, json_of_struct
from tailrace.deliver.conforming import op_names
from tailrace.deliver.messages import Messages
from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.message import Op

_ENVELOPE: Final = ("_op", "_namespace", "_timestamp", "_offset", "_before")
_HEADER_BYTES_MAX: Final = MIB


class CsvText:
    """Writes rows to one file. Text is quoted and null is not, so that no text differs from an empty one."""

    def __init__(self, file: DataFile, *, with_envelope: bool, deletes: str) -> None:
        self._file = file
        self._with_envelope = with_envelope
        self._deletes = deletes
        self._columns: list[str] | None = None

    def prepare(self, fields: list[str]) -> None:
        """Write the first line, or make sure that these fields are in it."""
        wanted = [*(_ENVELOPE if self._with_envelope else ()), *fields]
        if self._columns is None and self._file.is_empty():
            self._file.append(_header(wanted))
            self._columns = wanted
        columns = self._read_columns()
        unknown = [name for name in wanted if name not in columns]
        if unknown or len(set(wanted)) != len(wanted):
            what = f"the file has no column for {', '.join(unknown or wanted)[:200]!r}, and a CSV file gets no new ones"
            hint = "write jsonl, or to another path"
            raise TailraceError("schema.changed", what, place=Place(self._file.path), hint=hint)

    def write(self, messages: Messages) -> None:
        """Write messages of one namespace."""
        self.prepare(messages.fields)
        if not self._with_envelope:
            messages = self._without_deletes(messages)
        columns = {field.name: _text(column, field) for field, column in _fields(messages)}
        if self._with_envelope:
            columns.update(_envelope(messages))
        nothing = pa.nulls(len(messages), pa.string())
        rows = [columns.get(name, nothing) for name in self._read_columns()]
        sink = pa.BufferOutputStream()
        csv.write_csv(
            pa.RecordBatch.from_arrays(rows, names=self._read_columns()),
            sink,
            csv.WriteOptions(include_header=False, quoting_style="needed"),
        )
        self._file.append(sink.getvalue())

    def _without_deletes(self, messages: Messages) -> Messages:
        stays: Any = pc.not_equal(messages.ops(), pa.scalar(int(Op.DELETE), pa.int8()))
        if self._deletes != "skip" and not pc.all(stays, min_count=0).as_py():
            what = f"a row of {messages.namespace!r} was deleted, for which plain CSV has no form"
            raise TailraceError("destination.refused", what, hint="set with_envelope: true, or deletes: skip")
        return messages.filter(stays)

    def _read_columns(self) -> list[str]:
        if self._columns is None:
            head = self._file.head(_HEADER_BYTES_MAX).decode(errors="replace")
            self._columns = next(python_csv.reader(io.StringIO(head, newline="")), [])
        return self._columns


def _fields(messages: Messages) -> list[tuple[pa.Field[Any], pa.Array[Any]]]:
    return list(zip(messages.data.type, messages.data.flatten(), strict=True))


def _envelope(messages: Messages) -> dict[str, pa.Array[Any]]:
    count = len(messages)
    nothing = pa.nulls(count, pa.string())
    return {
        "_op": op_names().take(messages.ops()),
        "_namespace": pa.repeat(pa.scalar(messages.namespace), count),
        "_timestamp": _text(messages.rows.column("timestamp")),
        "_offset": messages.offsets(),
        "_before": nothing if messages.before is None else json_of_struct(messages.before),
    }


def _text(column: pa.Array[Any], field: pa.Field[Any] | None = None) -> pa.Array[Any]:
    """A column as CSV has it: numbers and text as they are, nested values as JSON."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column
    json = json_of(column, field)
    text: Any = json if pa.types.is_nested(kind) else pc.utf8_trim(json, '"')
    with_nulls: pa.Array[Any] = pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))
    return with_nulls


def _header(names: list[str]) -> bytes:
    line = io.StringIO()
    python_csv.writer(line, lineterminator="\n", quoting=python_csv.QUOTE_ALL).writerow(names)
    return line.getvalue().encode()
