"""Keys of rows as text: one for each row, the same whichever store has it.

Versions of rows travel between nodes under it. SQLite has the fewest classes of values, so a value is written as it
would be kept there: a row that was captured in PostgreSQL and one that was captured in SQLite have the same key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.binding import bindable
from tailrace.deliver.messages import Messages
from tailrace.message import Op


def keys_of(messages: Messages, key: Sequence[str]) -> tuple[list[str], list[str]]:
    """The key that each message's row has, and the one that it had."""
    new = key_texts(messages.data, key)
    before = messages.before
    if before is None or any(before.type.get_field_index(name) < 0 for name in key):
        return new, new
    there: list[Any] = before.is_valid().to_pylist()
    deleted: list[Any] = pc.equal(messages.ops(), pa.scalar(int(Op.DELETE), pa.int8())).to_pylist()
    old = key_texts(before, key)
    return new, [
        was if is_there and not is_gone else now
        for was, is_there, is_gone, now in zip(old, there, deleted, new, strict=True)
    ]


def key_texts(rows: pa.StructArray, key: Sequence[str]) -> list[str]:
    """The keys of rows: a JSON array each, of ASCII characters only."""
    columns = [_values(pc.struct_field(rows, [name]), rows.type.field(name)) for name in key]
    return [_text(parts) for parts in zip(*columns, strict=True)]


def key_text(values: Iterable[Any]) -> str:
    """The key of one row, of which the values are given as a store has them."""
    return _text([int(value) if isinstance(value, bool) else value for value in values])


def _text(parts: Sequence[Any]) -> str:
    return json.dumps(parts, default=_plain)


def _values(column: pa.Array[Any], field: pa.Field[Any]) -> list[Any]:
    found = bindable(column, field)
    if not pa.types.is_boolean(column.type):
        return found
    return [None if value is None else int(value) for value in found]


def _plain(value: Any) -> Any:
    return {"bytes": bytes(value).hex()} if isinstance(value, bytes | memoryview) else str(value)
