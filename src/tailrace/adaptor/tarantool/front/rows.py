"""Rows: messages of a node as Tarantool's log has them.

Each message is one row with its place in its origin's order. Those that mean nothing to a Tarantool become rows without
data, so that its clock has no holes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from tailrace.adaptor.tarantool.catalog import TRUNCATIONS
from tailrace.adaptor.tarantool.front.state import CATALOG, FrontState, Layout
from tailrace.adaptor.tarantool.holder import CLUSTER as MEMBERS
from tailrace.adaptor.tarantool.iproto import Key, Type, packed
from tailrace.adaptor.values import from_plain
from tailrace.deliver.clearing import COMMAND
from tailrace.log.batch import decode_body, key_of, message_rows
from tailrace.message import Message, Op
from tailrace.namespace import RESERVED
from tailrace.relay.names import CLUSTER, SYNCHRO
from tailrace.relay.outgoing import Frame

_SECOND_US: Final = 1_000_000
_Place = tuple[int, bytes]
"""A space, and a key in it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the log."""

    type: Type
    body: Mapping[int, Any] | None
    replica: int
    lsn: int
    time_s: float


def layouts_of(frames: Sequence[Frame], state: FrontState) -> None:
    """Learn how the rows of some frames are laid out, before any is sent."""
    for head, body in frames:
        if not head.namespace.startswith(RESERVED):
            _layout(head.namespace, decode_body(body), state)


def tuples_of(frames: Sequence[Frame], state: FrontState) -> Iterator[tuple[int, list[Any]]]:
    """The rows of a snapshot: spaces and tuples."""
    for head, body in frames:
        if head.namespace.startswith(RESERVED):
            continue
        rows = decode_body(body)
        layout = _layout(head.namespace, rows, state)
        for message in message_rows(rows, head.namespace, head.origin):
            if layout is not None and message.data is not None:
                yield layout.space, _tuple(layout, message.data)


def rows_of(group: Sequence[Frame], state: FrontState) -> list[Row]:
    """A commit group as a transaction, in its origin's order.

    What a key had before a row went on from it to another key is not told: that key is emptied before the transaction
    (`moved_rows`), and in it no row is left to say so.
    """
    messages = _messages(group, state)
    left = {_left(message, layout): at for at, (message, layout) in enumerate(messages)}
    rows = []
    for at, (message, layout) in enumerate(messages):
        type_, content = _meaning(message, layout, state)
        place = _place(message, layout)
        if place is not None and at < left.get(place, 0):
            type_, content = Type.NOP, None
        where = state.id_of(message.origin), int(message.lsn), message.timestamp / _SECOND_US
        rows.append(Row(type_, content, *where))
    return rows


def waits_for_decision(group: Sequence[Frame]) -> bool:
    """Whether a group is a synchronous transaction: it may be rolled back, and a Tarantool would have it by then."""
    names = {head.namespace for head, _ in group}
    return SYNCHRO in names and any(not name.startswith(RESERVED) for name in names)


def moved_rows(group: Sequence[Frame], state: FrontState) -> list[Row]:
    """Deletes of the keys that rows had which have others after a group: a key never changes in Tarantool."""
    found = []
    for message, layout in _messages(group, state):
        if layout is not None and message.before is not None and _left(message, layout) is not None:
            gone: dict[int, Any] = {Key.SPACE_ID: layout.space, Key.KEY: _key(layout, message.before)}
            found.append(Row(Type.DELETE, gone, CATALOG, state.next_lsn(), 0.0))
    return found


def _messages(group: Sequence[Frame], state: FrontState) -> list[tuple[Message, Layout | None]]:
    """The messages of a group in their order, and how their rows are laid out."""
    found = []
    for head, body in group:
        decoded = decode_body(body)
        layout = None if head.namespace.startswith(RESERVED) else _layout(head.namespace, decoded, state)
        found += [(message, layout) for message in message_rows(decoded, head.namespace, head.origin)]
    return sorted(found, key=lambda each: each[0].lsn)


def _left(message: Message, layout: Layout | None) -> _Place | None:
    """The key that a row had before a message gave it another one."""
    if layout is None or message.op is not Op.UPDATE or not message.before or not message.data:
        return None
    old = _key(layout, message.before)
    return (layout.space, packed(old)) if old != _key(layout, message.data) else None


def _place(message: Message, layout: Layout | None) -> _Place | None:
    """The key that a message is about."""
    if layout is None or message.data is None or message.op is Op.COMMAND:
        return None
    return layout.space, packed(_key(layout, message.data))


def catalog_rows(state: FrontState, after: int) -> list[Row]:
    """The changes of the catalog since some."""
    rows = []
    for each in state.catalog:
        body: dict[int, Any] = {Key.SPACE_ID: each.space, Key.TUPLE: each.row}
        if each.lsn > after:
            rows.append(Row(Type.REPLACE, body, CATALOG, each.lsn, 0.0))
    return rows


def _layout(namespace: str, rows: Any, state: FrontState) -> Layout | None:
    """None for a namespace without a key: Tarantool has no such spaces."""
    key = key_of(rows.schema)
    fields = [field.name for field in rows.schema.field("data").type]
    known = state.layouts.get(namespace)
    if not key:
        return known
    ordered = [*key, *(name for name in fields if name not in key)]
    return state.layout(namespace, ordered, key)


def _meaning(message: Message, layout: Layout | None, state: FrontState) -> tuple[Type, Mapping[int, Any] | None]:
    if message.namespace == CLUSTER:
        return _member(message, state)
    if layout is None or message.data is None:
        return Type.NOP, None
    if message.op in (Op.INSERT, Op.UPDATE):
        return Type.REPLACE, {Key.SPACE_ID: layout.space, Key.TUPLE: _tuple(layout, message.data)}
    if message.op is Op.DELETE:
        return Type.DELETE, {Key.SPACE_ID: layout.space, Key.KEY: _key(layout, message.data)}
    if message.op is Op.COMMAND and message.data == COMMAND:
        return Type.REPLACE, {Key.SPACE_ID: TRUNCATIONS, Key.TUPLE: [layout.space, int(message.lsn)]}
    return Type.NOP, None


def _member(message: Message, state: FrontState) -> tuple[Type, Mapping[int, Any] | None]:
    """A newcomer; only Tarantools have a place in the space of members."""
    told = json.loads((message.data or {}).get("json", "{}"))
    replica = state.replicas.get(int(told.get("node", 0)))
    if replica is None:
        return Type.NOP, None
    id_ = state.ids[int(told["node"])]
    return Type.REPLACE, {Key.SPACE_ID: MEMBERS, Key.TUPLE: [id_, replica]}


def _tuple(layout: Layout, data: Mapping[str, Any]) -> list[Any]:
    return [_value(data.get(name)) for name in layout.fields]


def _key(layout: Layout, data: Mapping[str, Any]) -> list[Any]:
    return [_value(data.get(name)) for name in layout.key]


def _value(value: Any) -> Any:
    """As msgpack has it; what it has no word for is text."""
    value = from_plain(value)
    if isinstance(value, Mapping):
        return {str(name): _value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    return value
