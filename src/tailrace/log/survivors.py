"""Which messages compaction keeps although every consumer has had them: the last of each namespace, or of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from tailrace.log.batch import key_of
from tailrace.log.frame import Head
from tailrace.log.selection import SelectedFrame
from tailrace.message import Op

TRANSPORTER_KEY = "_id"


class Survivors(Protocol):
    """Says which messages of a frame stay."""

    def of(self, head: Head, frame: Callable[[], SelectedFrame]) -> frozenset[int] | None:
        """The offsets that stay, None for all. The frame is fetched only when its head does not tell."""


class LastOfNamespace:
    """The last message of every namespace stays."""

    def __init__(self, last_offsets: dict[str, int]) -> None:
        self._last = last_offsets

    def of(self, head: Head, frame: Callable[[], SelectedFrame]) -> frozenset[int] | None:
        last = self._last[head.namespace]
        return frozenset((last,)) if head.offset <= last < head.end else frozenset()


class LastOfKey:
    """The last message of every primary key stays; of a namespace whose key nobody named, everything does.

    A message that changes a key is the last word on the old key as well as on the new one, until either is used again.
    An update that does not tell all fields is no last word on the others: who told them last stays, too.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, Any], tuple[tuple[int, frozenset[str]], ...]] = {}
        """For every key the messages that stay, each with the fields that it tells."""

    def learn(self, frame: SelectedFrame) -> None:
        """Take up the next frame, in log order."""
        told, partial = _fields(frame)
        for offset, keys in _keys(frame):
            for key in keys:
                place = frame.head.namespace, key
                before = self._last.get(place, ()) if offset in partial else ()
                kept = (word for word in before if not word[1] <= told)
                self._last[place] = (*kept, (offset, told))

    def of(self, head: Head, frame: Callable[[], SelectedFrame]) -> frozenset[int] | None:
        found = frame()
        offsets = {
            offset: any(offset == word for key in keys for word, _ in self._last[head.namespace, key])
            for offset, keys in _keys(found)
        }
        if len(offsets) < head.messages:
            return None
        return frozenset(offset for offset, is_last in offsets.items() if is_last)


def _keys(frame: SelectedFrame) -> Iterator[tuple[int, set[Any]]]:
    """For each message that has a key its offset and its keys: after the change and, when it differs, before it."""
    if not frame.head.is_batch:
        yield from _document_key(frame)
        return
    rows = frame.rows()
    names = key_of(rows.schema)
    columns = [column for name in ("data", "before") if (column := _key_columns(rows, name, names)) is not None]
    for at, offset in enumerate(frame.offsets().to_pylist()):
        keys = {key for column in columns if (key := column[at]) is not None}
        if keys and offset is not None:
            yield offset, keys


def _fields(frame: SelectedFrame) -> tuple[frozenset[str], frozenset[int]]:
    """The fields that the messages of a frame tell, and which of them may leave others as they were: updates."""
    if not frame.head.is_batch:
        return frozenset(), frozenset()  # a document is always whole
    rows = frame.rows()
    data: Any = rows.column("data").type
    ops: list[Any] = rows.column("op").to_pylist()
    offsets: list[Any] = frame.offsets().to_pylist()
    updates = frozenset(offset for offset, op in zip(offsets, ops, strict=True) if op == Op.UPDATE)
    return frozenset(field.name for field in data), updates


def _document_key(frame: SelectedFrame) -> Iterator[tuple[int, set[Any]]]:
    """Transporter's documents have their key in `_id`; their values need not fit into columns."""
    document = frame.plain_data()
    if isinstance(document, dict) and (key := _key((TRANSPORTER_KEY,), [document.get(TRANSPORTER_KEY)])) is not None:
        yield frame.head.offset, {key}


def _key_columns(rows: pa.RecordBatch, name: str, key: tuple[str, ...]) -> list[Any] | None:
    """The key of each row in `data` or `before`, None where there is none."""
    if not key or name not in rows.schema.names:
        return None
    documents: Any = rows.column(name)
    fields = {field.name for field in documents.type}
    if not fields.issuperset(key):
        return None
    values = [documents.field(part).to_pylist() for part in key]
    present = documents.is_valid().to_pylist()
    return [_key(key, parts) if is_there else None for is_there, *parts in zip(present, *values, strict=True)]


def _key(names: tuple[str, ...], values: list[Any]) -> Any:
    """A key that can be compared with others; None when a part of it is missing."""
    return None if None in values else (names, *map(_comparable, values))


def _comparable(value: Any) -> Any:
    is_plain = value.__hash__ is not None and value == value  # noqa: PLR0124  a NaN is not equal to itself
    return value if is_plain else (type(value), repr(value))
