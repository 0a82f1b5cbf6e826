"""Messages as CSV. Text is quoted and null is not, so that no text differs from an empty one."""

from __future__ import annotations

import csv as python_csv
import io
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv

from tailrace.adaptor.files.tabular import Column, Tabular, text_of
from tailrace.limits import MIB

_HEADER_BYTES_MAX: Final = MIB


class CsvText(Tabular):
    """Writes rows to one file of which the first line names the columns."""

    def _begin(self, fields: list[pa.Field[Any]]) -> bytes:
        line = io.StringIO()
        names = [field.name for field in fields]
        python_csv.writer(line, lineterminator="\n", quoting=python_csv.QUOTE_ALL).writerow(names)
        return line.getvalue().encode()

    def _find_columns(self) -> Mapping[str, Any]:
        head = self._file.head(_HEADER_BYTES_MAX).decode(errors="replace")
        return dict.fromkeys(next(python_csv.reader(io.StringIO(head, newline="")), []))

    def _rows(self, columns: Mapping[str, Column], count: int) -> Any:
        nothing = pa.nulls(count, pa.string())
        rows = [_field(*columns[name]) if name in columns else nothing for name in self.columns]
        sink = pa.BufferOutputStream()
        csv.write_csv(
            pa.RecordBatch.from_arrays(rows, names=list(self.columns)),
            sink,
            csv.WriteOptions(include_header=False, quoting_style="needed"),
        )
        return sink.getvalue()


def _field(field: pa.Field[Any], column: pa.Array[Any]) -> pa.Array[Any]:
    """A column as CSV has it: what Arrow writes without quotes as it is, the rest as text."""
    kind = column.type
    return column if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else text_of(field, column)
