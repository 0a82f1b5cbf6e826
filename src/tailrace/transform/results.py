"""What a person's function returned, message by message, gathered into columns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from operator import is_
from typing import Any, Final

import pyarrow as pa

from tailrace.deliver.messages import Messages
from tailrace.log.documents import is_json
from tailrace.message import Op
from tailrace.transform.columns import Column, NoColumn, column_of
from tailrace.transform.fields import struct_of, with_key

CHUNK_ROWS: Final = 4096
"""So many documents are held at a time: more of them would keep the garbage collector busy."""
OP_NUMBERS: Final = {op.name.lower(): int(op) for op in (Op.INSERT, Op.UPDATE, Op.DELETE)}


class Unusable(ValueError):
    """A function returned something that is not a message."""


class Results:
    """The results of one batch of messages, in order."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._ops: list[int] = []
        self._has_data: list[bool] = []
        self._columns: dict[str, list[Any]] = {}
        self._rows: list[Mapping[str, Any]] = []

    def add(self, at: int, result: Any, op: str) -> None:
        """Take what the function returned for the message at a place in the batch that had this op."""
        if not isinstance(result, dict):
            raise Unusable(f"it returned {type(result).__name__}, not a dict or None")
        if "data" not in result:
            raise Unusable("it returned a dict without data")
        row, op = result["data"], result.get("op", op)
        if row is not None and not isinstance(row, dict):
            raise Unusable(f"the data it returned is {type(row).__name__}, not a dict or None")
        if op not in OP_NUMBERS:
            raise Unusable(f"the op it returned is {op!r}, not one of {', '.join(OP_NUMBERS)}")
        self._kept.append(at)
        self._ops.append(OP_NUMBERS[op])
        self._has_data.append(row is not None)
        self._rows.append(row or {})
        if len(self._rows) == CHUNK_ROWS:
            self._gather()

    def messages(self, given: Messages, values: list[list[Any]]) -> Messages:
        """The messages that were kept, with the new data. `values` are those that the fields had."""
        self._gather()
        if not self._kept:
            return given.slice(0, 0)
        if len(self._kept) < len(given):
            picked: Any = pa.array(self._kept, pa.int64())
            values = [[column[at] for at in self._kept] for column in values]
            given = Messages(given.namespace, given.rows.take(picked), given.key, given.mode, given.origin)
        data = self._data(given.data, values)
        names = {field.name for field in data.type}
        changed = given.with_column("data", data).with_column("op", pa.array(self._ops, pa.int8()))
        return with_key(changed, given.key if names.issuperset(given.key) else ())

    def _data(self, given: pa.StructArray, values: list[list[Any]]) -> pa.StructArray:
        if not any(self._has_data):
            return pa.nulls(len(self._kept), given.type)
        was = {field.name: at for at, field in enumerate(given.type)}
        names = [name for name in was if name in self._columns] + [name for name in self._columns if name not in was]
        columns = given.flatten()
        made: list[Column] = []
        for name in names:
            if not isinstance(name, str):
                raise NoColumn(f"field name {name!r} is not text")
            at = was.get(name)
            field = None if at is None else given.type.field(at)
            if at is not None and field is not None and _is_untouched(field, self._columns[name], values[at]):
                made.append((field, columns[at]))
            else:
                made.append(column_of(name, self._columns[name], field))
        there: Any = pa.array([is_there or None for is_there in self._has_data], pa.bool_())
        return struct_of([field for field, _ in made], [column for _, column in made], there)

    def _gather(self) -> None:
        rows, done = self._rows, len(self._kept) - len(self._rows)
        names = dict.fromkeys(chain.from_iterable(rows))
        for name in names:
            if name not in self._columns:
                self._columns[name] = [None] * done
        for name, values in self._columns.items():
            values.extend([row.get(name) for row in rows] if name in names else [None] * len(rows))
        self._rows = []


def _is_untouched(field: pa.Field[Any], values: list[Any], given: list[Any]) -> bool:
    """Whether a function left the very values it was given. Of those that can be changed in place nobody knows."""
    if is_json(field) or pa.types.is_nested(field.type):
        return False
    return all(map(is_, values, given))
