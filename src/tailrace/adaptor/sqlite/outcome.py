"""The outcome of messages: of many changes to a key only the last one is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.message import Op

_AT = "\0at"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be done, in this order: the keys to delete, then the rows to put."""

    gone: list[pa.Array[Any]]
    """One column per part of the key."""
    put: pa.StructArray
    """Rows in log order."""


def outcome(messages: Messages, key: tuple[str, ...]) -> Outcome:
    """The last change of every key. A row that moved to another key is gone from the one it had.

    An event's mark is twice its message's place, plus one where the row is there afterwards.
    """
    events = [_events(messages.data, key, np.arange(len(messages)), _is(messages, Op.DELETE))]
    moved = _moved(messages, key)
    if moved is not None and len(moved):
        before: Any = messages.before
        events.append(_events(before.take(pa.array(moved)), key, moved, np.ones(len(moved), bool)))
    table = pa.concat_tables(events, promote_options="permissive")
    names = [str(number) for number in range(len(key))]
    last: Any = table.group_by(names).aggregate([(_AT, "max")])
    places = last.column(f"{_AT}_max").to_numpy()
    gone = last.filter(pa.array(places % 2 == 0))
    rows = np.sort(places[places % 2 == 1] // 2)
    put: Any = messages.data.take(pa.array(rows))
    return Outcome([gone.column(name).combine_chunks() for name in names], put)


def _events(rows: Any, key: tuple[str, ...], places: Any, gone: Any) -> pa.Table:
    columns = [pc.struct_field(rows, [name]) for name in key]
    marks = pa.array(places * 2 + np.where(gone, 0, 1))
    return pa.Table.from_arrays([*columns, marks], names=[*(str(number) for number in range(len(key))), _AT])


def _moved(messages: Messages, key: tuple[str, ...]) -> Any:
    """The messages whose row had another key before."""
    before = messages.before
    if before is None or any(before.type.get_field_index(name) < 0 for name in key):
        return None
    differs = np.zeros(len(messages), bool)
    for name in key:
        new, old = pc.struct_field(messages.data, [name]), pc.struct_field(before, [name])
        same = pc.fill_null(pc.equal(new, old), False)
        both_null = pc.and_(pc.is_null(new), pc.is_null(old))
        differs |= ~pc.or_(same, both_null).to_numpy(zero_copy_only=False)
    differs &= _is(messages, Op.UPDATE) & before.is_valid().to_numpy(zero_copy_only=False)
    return np.flatnonzero(differs)


def _is(messages: Messages, op: Op) -> Any:
    return pc.equal(messages.ops(), pa.scalar(int(op), pa.int8())).to_numpy(zero_copy_only=False)
