"""Messages as rows of a file that has columns: those with which it begins, for good."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.files.datafile import DataFile
from tailrace.adaptor.files.jsontext import json_of, json_of_struct
from tailrace.deliver.conforming import op_names
from tailrace.deliver.messages import Messages
from tailrace.errors import Place, TailraceError
from tailrace.log.batch import TIMESTAMP
from tailrace.message import Op

Column = tuple["pa.Field[Any]", "pa.Array[Any]"]

_ENVELOPE: Final = (
    pa.field("_op", pa.string()),
    pa.field("_namespace", pa.string()),
    pa.field("_timestamp", TIMESTAMP),
    pa.field("_offset", pa.int64()),
    pa.field("_before", pa.string()),
)


class Tabular(ABC):
    """Writes rows to one file."""

    def __init__(self, file: DataFile, *, with_envelope: bool, deletes: str) -> None:
        self._file = file
        self._with_envelope = with_envelope
        self._deletes = deletes

    @abstractmethod
    def _begin(self, fields: list[pa.Field[Any]]) -> Any:
        """What a new file begins with."""

    @abstractmethod
    def _find_columns(self) -> Mapping[str, Any]:
        """The columns that the file begins with, each with its type if it has one."""

    @abstractmethod
    def _rows(self, columns: Mapping[str, Column], count: int) -> Any:
        """Rows as they stand in the file; a column that is not given is null."""

    def _is_fit(self, field: pa.Field[Any]) -> bool:
        """Whether the values of a field can be in the column of its name."""
        return True

    @cached_property
    def columns(self) -> Mapping[str, Any]:
        """The columns of the file."""
        return self._find_columns()

    def prepare(self, schema: Iterable[pa.Field[Any]]) -> None:
        """Begin the file, or make sure that it has a column for each field."""
        wanted = [*(_ENVELOPE if self._with_envelope else ()), *schema]
        if self._file.is_empty():
            self._file.append(self._begin(wanted))
        missing = [field.name for field in wanted if field.name not in self.columns or not self._is_fit(field)]
        if missing or len({field.name for field in wanted}) != len(wanted):
            names = ", ".join(missing or [field.name for field in wanted])[:200]
            what = f"the file has no column for {names!r}, and its columns do not change"
            hint = "write jsonl, or to another path"
            raise TailraceError("schema.changed", what, place=Place(self._file.path), hint=hint)

    def write(self, messages: Messages) -> None:
        """Write messages of one namespace."""
        if not self._with_envelope:
            messages = self._without_deletes(messages)
        columns = _columns(messages.data.type, messages.data.flatten())
        if self._with_envelope:
            columns |= _columns(_ENVELOPE, _envelope(messages))
        self._file.append(self._rows(columns, len(messages)))

    def _without_deletes(self, messages: Messages) -> Messages:
        stays: Any = pc.not_equal(messages.ops(), pa.scalar(int(Op.DELETE), pa.int8()))
        if self._deletes != "skip" and not pc.all(stays, min_count=0).as_py():
            what = f"a row of {messages.namespace!r} was deleted, for which plain rows have no form"
            raise TailraceError("destination.refused", what, hint="set with_envelope: true, or deletes: skip")
        return messages.filter(stays)


def text_of(field: pa.Field[Any], column: pa.Array[Any]) -> pa.Array[Any]:
    """A column as text: text as it is, nested values as JSON."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    json = json_of(column, field)
    text: Any = json if pa.types.is_nested(kind) else pc.utf8_trim(json, '"')
    with_nulls: pa.Array[Any] = pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))
    return with_nulls


def _columns(fields: Iterable[pa.Field[Any]], columns: Iterable[pa.Array[Any]]) -> dict[str, Column]:
    return {field.name: (field, column) for field, column in zip(fields, columns, strict=True)}


def _envelope(messages: Messages) -> list[pa.Array[Any]]:
    count = len(messages)
    return [
        op_names().take(messages.ops()),
        pa.repeat(pa.scalar(messages.namespace), count),
        messages.rows.column("timestamp"),
        messages.offsets(),
        pa.nulls(count, pa.string()) if messages.before is None else json_of_struct(messages.before),
    ]
