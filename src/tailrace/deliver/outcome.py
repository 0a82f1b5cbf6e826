"""The outcome of messages: of many changes to a key only the last one is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.deliver.refusal import refuse_null
from tailrace.log.documents import is_json, json_field
from tailrace.message import Op

_MARK: Final = "mark"

Rendering = Callable[["pa.Array[Any]", "pa.Field[Any]"], "pa.Array[Any]"]
"""Gives the values of a column as JSON text, the same text for what the destination takes for the same value."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be done, in this order: the keys to delete, then the rows to put."""

    gone: list[tuple[pa.Array[Any], pa.Field[Any]]]
    """One column per part of the key."""
    put: pa.StructArray
    """Rows in log order."""


def outcome(messages: Messages, key: tuple[str, ...], rendering: Rendering) -> Outcome:
    """The last change of every key. A row that moved to another key is gone from the one it had.

    Raises for NULL in a key: to a database no two of those are the same row, and no row can be found by one.
    Key columns that hold values of several classes are compared, and given back, as `rendering` gives them.
    An event's mark is twice its message's place, plus one where the row is there afterwards.
    """
    new, old, fields = _keys(messages, key, rendering)
    refuse_null(messages, key, new)
    places = np.arange(len(messages))
    events = [_events(new, places * 2 + np.where(_is(messages, Op.DELETE), 0, 1))]
    if old is not None:
        moved: Any = np.flatnonzero(_moved(messages, new, old))
        events.append(_events([column.take(moved) for column in old], moved * 2))
    names = [str(number) for number in range(len(key))]
    last: Any = pa.concat_tables(events).group_by(names).aggregate([(_MARK, "max")])
    marks = last.column(f"{_MARK}_max").to_numpy()
    gone = last.filter(pa.array(marks % 2 == 0))
    put: Any = messages.data.take(pa.array(np.sort(marks[marks % 2 == 1] // 2)))
    return Outcome(
        [(gone.column(name).combine_chunks(), field) for name, field in zip(names, fields, strict=True)], put
    )


def _keys(
    messages: Messages, key: tuple[str, ...], rendering: Rendering
) -> tuple[list[pa.Array[Any]], list[pa.Array[Any]] | None, list[pa.Field[Any]]]:
    """The keys that rows have and, if anybody said, those they had, each pair of columns of one type."""
    before = messages.before
    has_old = before is not None and all(before.type.get_field_index(name) >= 0 for name in key)
    new: list[pa.Array[Any]] = []
    old: list[pa.Array[Any]] = []
    fields: list[pa.Field[Any]] = []
    for name in key:
        struct = [messages.data, before] if has_old else [messages.data]
        found = [(pc.struct_field(each, [name]), each.type.field(name)) for each in struct if each is not None]
        field = found[0][1]
        if any(is_json(other) or other.type != field.type for _, other in found):
            found = [(rendering(column, other), other) for column, other in found]
            field = json_field(name)
        new.append(found[0][0])
        old.append(found[-1][0])
        fields.append(field)
    return new, old if has_old else None, fields


def _events(columns: list[pa.Array[Any]], marks: Any) -> pa.Table:
    names = [str(number) for number in range(len(columns))]
    return pa.Table.from_arrays([*columns, pa.array(marks)], names=[*names, _MARK])


def _moved(messages: Messages, new: list[pa.Array[Any]], old: list[pa.Array[Any]]) -> Any:
    """For each message whether its row had another key before; one with NULL in it was never written."""
    before: Any = messages.before
    had = before.is_valid().to_numpy(zero_copy_only=False)
    differs = np.zeros(len(messages), bool)
    for now, then in zip(new, old, strict=True):
        had &= then.is_valid().to_numpy(zero_copy_only=False)
        other: Any = pc.not_equal(now, then)
        differs |= pc.fill_null(other, False).to_numpy(zero_copy_only=False)
    return differs & had & _is(messages, Op.UPDATE)


def _is(messages: Messages, op: Op) -> Any:
    return pc.equal(messages.ops(), pa.scalar(int(op), pa.int8())).to_numpy(zero_copy_only=False)
