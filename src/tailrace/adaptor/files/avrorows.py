"""Messages as Avro: typed, every column may be null. What has no type there, or is nested, is text."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.files.avroblocks import avro_file, known_header
from tailrace.adaptor.files.avrotypes import TEXT, as_stored, avro_type
from tailrace.adaptor.files.tabular import Column, Tabular, text_of
from tailrace.errors import Place, TailraceError

_CODEC: Final = "deflate"
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_RECORD: Final = {"type": "record", "name": "row"}


class AvroRows(Tabular):
    """Writes rows to one file of which the header tells the columns. Each batch makes blocks of its own."""

    def _begin(self, fields: list[pa.Field[Any]]) -> bytes:
        for each in fields:
            if not _NAME.fullmatch(each.name):
                what = f"Avro has no column named {each.name[:200]!r}, only letters, digits and _"
                hint = "rename it with the function rename, or write jsonl"
                raise TailraceError("destination.refused", what, place=Place(self._file.path), hint=hint)
        columns = [{"name": each.name, "type": ["null", avro_type(each)], "default": None} for each in fields]
        return avro_file({**_RECORD, "fields": columns}, [], secrets.token_bytes(16), _CODEC)

    def _find_columns(self) -> Mapping[str, Any]:
        schema = known_header(self._file.open(), self._file.path).schema
        return {each["name"]: each["type"] for each in schema["fields"]}

    def _is_fit(self, field: pa.Field[Any]) -> bool:
        """A column of text takes everything."""
        return self.columns[field.name] in (["null", TEXT], ["null", avro_type(field)])

    def _rows(self, columns: Mapping[str, Column], count: int) -> bytes:
        header = known_header(self._file.open(), self._file.path)
        values = {name: _values(*columns[name], self.columns[name][1]) for name in self.columns if name in columns}
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        begin = avro_file(header.schema, [], header.marker, header.codec)
        return avro_file(header.schema, rows, header.marker, header.codec)[len(begin) :]


def _values(field: pa.Field[Any], column: pa.Array[Any], avro: Any) -> list[Any]:
    """Moments are written as the numbers that they are stored as."""
    if avro == TEXT:
        return text_of(field, column).to_pylist()
    stored = as_stored(avro)
    if isinstance(stored, Mapping) and "logicalType" not in stored:
        column = column.cast(pa.int32() if stored["type"] == "int" else pa.int64())
    return column.to_pylist()
