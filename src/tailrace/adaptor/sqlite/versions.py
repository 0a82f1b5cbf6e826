"""Versions: which message wrote each row of a node's store last. Of two that were written at the same time, by nodes
that did not know of each other, the later one stays, everywhere.

A row that is gone has a version too, so that an older change does not bring it back.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.sqlite.binding import bindable
from tailrace.deliver.messages import Messages
from tailrace.message import Op

VersionRow = tuple[str, str, int, str, int]
"""Namespace, key, timestamp, origin and lsn. Origins have 64 bits, and SQLite's numbers a sign, so they are text."""
Mark = tuple[int, str, int]
"""Timestamp, origin and lsn: of two messages the one with the greater mark is newer, for every node."""
_NEVER: Final[Mark] = (-1, "", 0)
_TABLE: Final = """CREATE TABLE IF NOT EXISTS tailrace_version(
    namespace TEXT NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, origin TEXT NOT NULL, lsn INTEGER NOT NULL,
    PRIMARY KEY(namespace, key)) WITHOUT ROWID"""
_FIND: Final = "SELECT at, origin, lsn FROM tailrace_version WHERE namespace = ? AND key = ?"
_NOTE_ALWAYS: Final = """INSERT INTO tailrace_version VALUES (?, ?, ?, ?, ?) ON CONFLICT(namespace, key)
    DO UPDATE SET at = excluded.at, origin = excluded.origin, lsn = excluded.lsn"""
_NOTE: Final = f"""{_NOTE_ALWAYS}
    WHERE (excluded.at, excluded.origin, excluded.lsn) > (at, origin, lsn)"""
_ALL: Final = "SELECT namespace, key, at, origin, lsn FROM tailrace_version ORDER BY namespace, key"
_BATCH_ROWS: Final = 10_000
_ORIGIN_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of each message of a batch."""

    is_newer: list[bool] = field(default_factory=list)
    """Whether it is newer than the row that it writes."""
    is_move: list[bool] = field(default_factory=list)
    """Whether it moves a row to another key."""
    may_move: list[bool] = field(default_factory=list)
    """Whether it is newer than the row that it moves away from."""
    is_foreign: list[bool] = field(default_factory=list)
    """Whether a node other than its own last wrote a row that it writes or moves away from."""


class Versions:
    """The versions in one database, inside the transaction of whoever uses it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(_TABLE)

    def judge(self, messages: Messages, key: Sequence[str]) -> Judgement:
        """What each message is against the rows that are there."""
        new, old = keys_of(messages, key)
        seen: dict[str, Mark] = {}
        made = Judgement()
        for mine, there, was in zip(_marks(messages), new, old, strict=True):
            written = self._known(seen, messages.namespace, there)
            left = self._known(seen, messages.namespace, was)
            made.is_newer.append(mine > written)
            made.is_move.append(was != there)
            made.may_move.append(was == there or mine > left)
            made.is_foreign.append(any(mark != _NEVER and mark[1] != mine[1] for mark in (written, left)))
            seen[there] = max(mine, written)
            seen[was] = max(mine, left)
        return made

    def note(self, messages: Messages, key: Sequence[str], *, always: bool = False) -> None:
        """These messages were written, or lost against newer ones. What is older than what is known counts only if it
        is said so."""
        new, old = keys_of(messages, key)
        rows: list[VersionRow] = []
        for mine, there, was in zip(_marks(messages), new, old, strict=True):
            rows += [(messages.namespace, each, *mine) for each in dict.fromkeys((there, was))]
        self._connection.executemany(_NOTE_ALWAYS if always else _NOTE, rows)

    def put(self, rows: Iterable[VersionRow]) -> None:
        """What a source knows of rows that the node has got from there."""
        self._connection.executemany(_NOTE, rows)

    def _known(self, seen: dict[str, Mark], namespace: str, key: str) -> Mark:
        if key not in seen:
            found = self._connection.execute(_FIND, (namespace, key)).fetchone()
            seen[key] = found or _NEVER
        return seen[key]


def all_versions(connection: sqlite3.Connection) -> Iterator[list[VersionRow]]:
    """All there are, many at a time."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_version'").fetchone() is None:
        return
    cursor = connection.execute(_ALL)
    while rows := cursor.fetchmany(_BATCH_ROWS):
        yield rows


def keys_of(messages: Messages, key: Sequence[str]) -> tuple[list[str], list[str]]:
    """The key that each message's row has, and the one that it had, as text."""
    new = _texts(messages.data, key)
    before = messages.before
    if before is None or any(before.type.get_field_index(name) < 0 for name in key):
        return new, new
    there: list[Any] = before.is_valid().to_pylist()
    deleted: list[Any] = pc.equal(messages.ops(), pa.scalar(int(Op.DELETE), pa.int8())).to_pylist()
    old = _texts(before, key)
    return new, [
        was if is_there and not is_gone else now
        for was, is_there, is_gone, now in zip(old, there, deleted, new, strict=True)
    ]


def _texts(rows: pa.StructArray, key: Sequence[str]) -> list[str]:
    columns = [bindable(pc.struct_field(rows, [name]), rows.type.field(name)) for name in key]
    return [json.dumps(parts, default=_plain) for parts in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    return {"bytes": bytes(value).hex()} if isinstance(value, bytes | memoryview) else str(value)


def _marks(messages: Messages) -> Iterator[Mark]:
    times: list[Any] = messages.rows.column("timestamp").view(pa.int64()).to_pylist()
    lsns: list[Any] = messages.rows.column("lsn").to_pylist()
    origin = f"{messages.origin:0{_ORIGIN_DIGITS}d}"
    return ((at, origin, lsn) for at, lsn in zip(times, lsns, strict=True))
