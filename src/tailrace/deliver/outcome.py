"""The outcome of messages: of many changes to a key only the last one is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.sqlite.binding import bindable, is_json
from tailrace.adaptor.sqlite.values import to_json
from tailrace.deliver.messages import Messages
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.message import Op

_MARK: Final = "mark"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be done, in this order: the keys to delete, then the rows to put."""

    gone: list[tuple[pa.Array[Any], pa.Field[Any]]]
    """One column per part of the key."""
    put: pa.StructArray
    """Rows in log order."""


def outcome(messages: Messages, key: tuple[str, ...]) -> Outcome:
    """The last change of every key. A row that moved to another key is gone from the one it had.

    An event's mark is twice its message's place, plus one where the row is there afterwards.
    """
    new, old, fields = _keys(messages, key)
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
    messages: Messages, key: tuple[str, ...]
) -> tuple[list[pa.Array[Any]], list[pa.Array[Any]] | None, list[pa.Field[Any]]]:
    """The keys that rows have and, if anybody said, those they had, each pair of columns of one type."""
    before = messages.before
    new = [pc.struct_field(messages.data, [name]) for name in key]
    fields = [messages.data.type.field(name) for name in key]
    if before is None or any(before.type.get_field_index(name) < 0 for name in key):
        return new, None, fields
    old = [pc.struct_field(before, [name]) for name in key]
    for at, name in enumerate(key):
        others = before.type.field(name)
        if fields[at].type != others.type or is_json(fields[at]) or is_json(others):
            new[at], old[at] = _as_json(new[at], fields[at]), _as_json(old[at], others)
            fields[at] = pa.field(name, pa.string(), metadata={TYPE_METADATA: JSON})
    return new, old, fields


def _as_json(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    return pa.array([to_json(value) for value in bindable(column, field)], pa.string())


def _events(columns: list[pa.Array[Any]], marks: Any) -> pa.Table:
    names = [str(number) for number in range(len(columns))]
    return pa.Table.from_arrays([*columns, pa.array(marks)], names=[*names, _MARK])


def _moved(messages: Messages, new: list[pa.Array[Any]], old: list[pa.Array[Any]]) -> Any:
    """For each message whether its row had another key before."""
    before: Any = messages.before
    differs = np.zeros(len(messages), bool)
    for now, then in zip(new, old, strict=True):
        equal: Any = pc.equal(now, then)
        same: Any = pc.fill_null(equal, False)
        both_null = pc.and_(pc.is_null(now), pc.is_null(then))
        differs |= ~pc.or_(same, both_null).to_numpy(zero_copy_only=False)
    return differs & _is(messages, Op.UPDATE) & before.is_valid().to_numpy(zero_copy_only=False)


def _is(messages: Messages, op: Op) -> Any:
    return pc.equal(messages.ops(), pa.scalar(int(op), pa.int8())).to_numpy(zero_copy_only=False)
